//! `wg` and `wg-quick` drive the daemon, and it answers as the user-space API specifies.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::fmt::Write;
use std::time::{Duration, Instant};

use ringway_tests::config::{self, KeyPair, PeerSection};
use ringway_tests::namespace::Namespace;
use ringway_tests::tunnel::{Implementation, Tunnel};
use ringway_tests::{binaries, command, names, uapi, wait};

fn daemon(namespace: &Namespace) -> Tunnel<'_> {
    Tunnel::start(namespace, Implementation::Ringway)
}

/// `wg setconf`, `addconf` or `syncconf` with a file's text.
fn load(tunnel: &Tunnel, verb: &str, text: &str) {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), text).unwrap();
    let said = tunnel.wg(verb, &[file.path().to_str().unwrap()], "");
    assert!(said.ok(), "wg {verb}: {}{}", said.out, said.err);
}

fn peers(tunnel: &Tunnel) -> BTreeSet<String> {
    tunnel.show("peers").lines().map(str::to_owned).collect()
}

fn section(allowed_ips: &str) -> PeerSection {
    PeerSection {
        public_key: KeyPair::new().public,
        allowed_ips: allowed_ips.to_owned(),
        ..PeerSection::default()
    }
}

#[test]
fn set_and_show_agree() {
    let namespace = Namespace::new();
    let tunnel = daemon(&namespace);
    let (peer, psk) = (KeyPair::new(), config::preshared_key());
    tunnel.set("listen-port 51999 fwmark 0x1234");
    tunnel.feed(
        &[
            "peer",
            &peer.public,
            "preshared-key",
            "/dev/stdin",
            "endpoint",
            "192.0.2.7:1234",
            "persistent-keepalive",
            "25",
            "allowed-ips",
            "10.1.0.0/16,fd00::/8,10.1.2.3/32",
        ],
        &psk,
    );
    assert_eq!(tunnel.show("private-key").trim(), tunnel.keys.private);
    assert_eq!(tunnel.show("public-key").trim(), tunnel.keys.public);
    assert_eq!(tunnel.port(), 51999);
    assert_eq!(tunnel.show("fwmark").trim(), "0x1234");
    assert_eq!(tunnel.show_peer("preshared-keys", &peer.public), [psk]);
    assert_eq!(
        tunnel.show_peer("endpoints", &peer.public),
        ["192.0.2.7:1234"]
    );
    assert_eq!(
        tunnel.show_peer("persistent-keepalive", &peer.public),
        ["25"]
    );
    let allowed: BTreeSet<_> = tunnel
        .show_peer("allowed-ips", &peer.public)
        .into_iter()
        .collect();
    let expected = ["10.1.0.0/16", "fd00::/8", "10.1.2.3/32"].map(str::to_owned);
    assert_eq!(allowed, BTreeSet::from(expected));

    tunnel.set(&format!(
        "peer {} persistent-keepalive off endpoint [2001:db8::9]:7",
        peer.public
    ));
    assert_eq!(
        tunnel.show_peer("persistent-keepalive", &peer.public),
        ["off"]
    );
    assert_eq!(
        tunnel.show_peer("endpoints", &peer.public),
        ["[2001:db8::9]:7"]
    );
    tunnel.set(&format!("peer {} remove", peer.public));
    assert!(peers(&tunnel).is_empty());
    tunnel.set("fwmark 0");
    assert_eq!(tunnel.show("fwmark").trim(), "off");
}

#[test]
fn an_allowed_ip_moves_to_the_peer_that_claims_it_last() {
    let namespace = Namespace::new();
    let tunnel = daemon(&namespace);
    let (one, other) = (KeyPair::new().public, KeyPair::new().public);
    tunnel.set(&format!("peer {one} allowed-ips 10.0.0.0/8,10.1.0.0/16"));
    tunnel.set(&format!("peer {other} allowed-ips 10.1.0.0/16"));
    assert_eq!(tunnel.show_peer("allowed-ips", &one), ["10.0.0.0/8"]);
    assert_eq!(tunnel.show_peer("allowed-ips", &other), ["10.1.0.0/16"]);
    tunnel.feed(&["peer", &other, "allowed-ips", ""], "");
    assert_eq!(tunnel.show_peer("allowed-ips", &other), ["(none)"]);
}

#[test]
fn setconf_addconf_syncconf_and_showconf() {
    let namespace = Namespace::new();
    let tunnel = daemon(&namespace);
    let key = KeyPair::new();
    let (one, two, three) = (
        section("10.0.1.0/24"),
        section("10.0.2.0/24"),
        section("10.0.3.0/24"),
    );
    let keys = |list: &[&PeerSection]| -> BTreeSet<String> {
        list.iter().map(|peer| peer.public_key.clone()).collect()
    };
    load(
        &tunnel,
        "setconf",
        &config::wg_file(&key.private, Some(51998), &[one.clone(), two.clone()]),
    );
    assert_eq!(peers(&tunnel), keys(&[&one, &two]));
    assert_eq!(tunnel.show("public-key").trim(), key.public);

    load(&tunnel, "addconf", &three.text());
    assert_eq!(peers(&tunnel), keys(&[&one, &two, &three]));
    load(
        &tunnel,
        "syncconf",
        &config::wg_file(&key.private, Some(51998), &[two.clone(), three.clone()]),
    );
    assert_eq!(peers(&tunnel), keys(&[&two, &three]));

    let shown = tunnel.wg("showconf", &[], "").out;
    load(
        &tunnel,
        "setconf",
        &config::wg_file(&key.private, None, &[]),
    );
    assert!(peers(&tunnel).is_empty());
    load(&tunnel, "setconf", &shown);
    assert_eq!(tunnel.wg("showconf", &[], "").out, shown);
}

#[test]
fn errors_are_numbers_and_change_nothing() {
    const EADDRINUSE: i32 = 98;
    const EINVAL: i32 = 22;
    let namespace = Namespace::new();
    let tunnel = daemon(&namespace);
    let before = tunnel.wg("showconf", &[], "").out;
    let key = "ab".repeat(32);
    for request in [
        "set=1\nlisten_port=65536\n".to_owned(),
        "set=1\nlisten_port=-1\n".to_owned(),
        "set=1\nprivate_key=zz\n".to_owned(),
        "set=1\nwhat=1\n".to_owned(),
        "set=1\nlisten_port\n".to_owned(),
        "set=1\nallowed_ip=10.0.0.0/8\n".to_owned(),
        format!("set=1\npublic_key={key}\nallowed_ip=10.0.0.0/33\n"),
        format!("set=1\npublic_key={key}\nendpoint=nowhere\n"),
        format!("set=1\npublic_key={key}\npersistent_keepalive_interval=65536\n"),
        format!("set=1\npublic_key={key}\nprotocol_version=2\n"),
    ] {
        let answer = uapi::ask(&tunnel.name, &request).unwrap();
        assert_ne!(uapi::errno(&answer), 0, "{request:?}");
    }
    for request in ["set=1\nlisten_port=x\n", "set=1\nprivate_key=12\n"] {
        let answer = uapi::ask(&tunnel.name, request).unwrap();
        assert_eq!(uapi::errno(&answer), EINVAL, "{request:?}");
    }
    let taken = namespace.udp("0.0.0.0:0".parse().unwrap());
    let port = taken.local_addr().unwrap().port();
    let answer = uapi::ask(&tunnel.name, &format!("set=1\nlisten_port={port}\n")).unwrap();
    assert_eq!(uapi::errno(&answer), EADDRINUSE);
    let strip = |text: &str| -> Vec<String> {
        text.lines()
            .filter(|line| !line.starts_with("[Peer]") && !line.contains("PublicKey"))
            .map(str::to_owned)
            .collect()
    };
    assert_eq!(strip(&tunnel.wg("showconf", &[], "").out), strip(&before));

    let answer = uapi::ask(&tunnel.name, "set=1\nfwmark=7\n").unwrap();
    assert_eq!(uapi::errno(&answer), 0);
    let answer = uapi::ask(&tunnel.name, "get=1\n").unwrap();
    assert_eq!(uapi::errno(&answer), 0);
    assert!(answer.contains("fwmark=7\n"));
}

#[test]
fn two_requests_on_one_connection() {
    use std::io::{Read, Write};
    let namespace = Namespace::new();
    let tunnel = daemon(&namespace);
    let mut stream = std::os::unix::net::UnixStream::connect(uapi::socket(&tunnel.name)).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(5)))
        .unwrap();
    stream.write_all(b"set=1\nfwmark=5\n\nget=1\n\n").unwrap();
    let mut answer = String::new();
    wait::holds("both answers", Duration::from_secs(5), || {
        let mut piece = [0; 4096];
        let count = stream.read(&mut piece).unwrap();
        answer.push_str(std::str::from_utf8(&piece[..count]).unwrap());
        answer.matches("errno=0\n\n").count() == 2
    });
    assert!(answer.contains("fwmark=5"));
}

#[test]
fn a_hundred_and_thirty_thousand_allowed_ips_in_one_message() {
    const COUNT: u32 = 130_000;
    let namespace = Namespace::new();
    let tunnel = daemon(&namespace);
    let peer = KeyPair::new().public;
    let mut list = String::new();
    for number in 0..COUNT {
        let [_, a, b, c] = number.to_be_bytes();
        let _ = write!(
            list,
            "{}100.{a}.{b}.{c}/32",
            if number > 0 { "," } else { "" }
        );
    }
    let mut request = format!(
        "set=1\npublic_key={}\nreplace_allowed_ips=true\n",
        hex(&peer)
    );
    for address in list.split(',') {
        let _ = writeln!(request, "allowed_ip={address}");
    }
    let start = Instant::now();
    let answer = uapi::ask(&tunnel.name, &request).unwrap();
    assert_eq!(uapi::errno(&answer), 0, "{answer}");
    let taken = start.elapsed();
    assert!(taken < Duration::from_secs(15), "took {taken:?}");
    assert_eq!(tunnel.show_peer("allowed-ips", &peer).len(), COUNT as usize);

    // And by `wg` itself.
    let text = config::wg_file(
        &tunnel.keys.private,
        None,
        &[PeerSection {
            public_key: peer.clone(),
            allowed_ips: list,
            ..PeerSection::default()
        }],
    );
    load(&tunnel, "setconf", &text);
    assert_eq!(tunnel.show_peer("allowed-ips", &peer).len(), COUNT as usize);
    load(
        &tunnel,
        "setconf",
        &config::wg_file(&tunnel.keys.private, None, &[]),
    );
    assert!(peers(&tunnel).is_empty());
}

fn hex(base64: &str) -> String {
    ringway_proto::keys::PublicKey::from_base64(base64)
        .unwrap()
        .to_hex()
}

#[test]
fn thousands_of_peers() {
    const COUNT: usize = 4000;
    let namespace = Namespace::new();
    let tunnel = daemon(&namespace);
    let sections: Vec<PeerSection> = (0..COUNT)
        .map(|number| section(&format!("10.{}.{}.0/24", number / 256, number % 256)))
        .collect();
    load(
        &tunnel,
        "setconf",
        &config::wg_file(&tunnel.keys.private, None, &sections),
    );
    assert_eq!(peers(&tunnel).len(), COUNT);
    // One past the limit of 4096 is refused by number, and the daemon goes on.
    let mut request = String::from("set=1\n");
    for number in 0..200 {
        let _ = writeln!(request, "public_key={:064x}", number + 1);
    }
    let answer = uapi::ask(&tunnel.name, &request).unwrap();
    assert_eq!(uapi::errno(&answer), 28, "ENOSPC");
    load(
        &tunnel,
        "syncconf",
        &config::wg_file(&tunnel.keys.private, None, &sections[..10]),
    );
    assert_eq!(peers(&tunnel).len(), 10);
}

#[test]
fn wg_quick_starts_it_and_takes_it_down() {
    if std::path::Path::new("/sys/module/wireguard").exists() {
        eprintln!("this kernel has WireGuard, and wg-quick prefers it: nothing to be seen");
        return;
    }
    let namespace = Namespace::new();
    let directory = tempfile::tempdir().unwrap();
    let name = names::interface();
    let file = directory.path().join(format!("{name}.conf"));
    let (key, peer) = (KeyPair::new(), section("10.77.0.2/32,10.78.0.0/16"));
    std::fs::write(
        &file,
        format!(
            "[Interface]\nPrivateKey = {}\nAddress = 10.77.0.1/24\nMTU = 1400\nListenPort = 51997\n\n{}",
            key.private,
            peer.text()
        ),
    )
    .unwrap();
    let file = file.to_str().unwrap();
    let quick = |verb: &str| {
        let daemon = binaries::ringwayd();
        let said = command::attempt_with_input(
            &namespace.words(&["wg-quick", verb, file]),
            &[("WG_QUICK_USERSPACE_IMPLEMENTATION", &daemon)],
            "",
        );
        assert!(said.ok(), "wg-quick {verb}: {}{}", said.out, said.err);
    };
    quick("up");
    let shown = namespace.run(&["wg", "show", &name, "allowed-ips"]);
    assert!(shown.contains("10.78.0.0/16"), "{shown}");
    assert!(
        namespace
            .ip(&format!("address show {name}"))
            .contains("10.77.0.1/24")
    );
    assert!(
        namespace
            .ip(&format!("link show {name}"))
            .contains("mtu 1400")
    );
    assert!(
        namespace
            .ip("route show")
            .contains(&format!("10.78.0.0/16 dev {name}"))
    );
    let daemons = namespace.pids();
    assert!(
        daemons.len() >= 4,
        "supervisor, meta, helper and workers: {daemons:?}"
    );
    quick("down");
    wait::holds("every process to end", Duration::from_secs(10), || {
        namespace.pids().is_empty()
    });
    assert!(!namespace.has_interface(&name));
}
