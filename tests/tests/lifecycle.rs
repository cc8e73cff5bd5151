//! Starting twice, stopping, being moved and being deleted: nothing is left and nothing is missed.

#![allow(clippy::unwrap_used)]

use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use nix::sys::signal::Signal;
use ringway_tests::namespace::Namespace;
use ringway_tests::process::{self, Process};
use ringway_tests::topology::{Family, Pair};
use ringway_tests::tunnel::Implementation::{Ringway, WireguardGo};
use ringway_tests::tunnel::Tunnel;
use ringway_tests::{binaries, config, gateway, traffic, uapi, wait};

const LIMIT: Duration = Duration::from_secs(10);

fn nothing_is_left(namespace: &Namespace, name: &str, pids: &[u32]) {
    wait::holds("every process to end", LIMIT, || {
        !pids.iter().any(|&pid| process::alive(pid))
    });
    assert!(!namespace.has_interface(name), "the interface is left");
    assert!(
        !Path::new(&uapi::socket(name)).exists(),
        "the UAPI socket is left"
    );
    assert!(
        !Path::new(&gateway::runtime_directory(name)).exists(),
        "the runtime directory is left"
    );
    let sockets = namespace.run(&["ss", "-lunH"]);
    assert!(sockets.trim().is_empty(), "sockets are left: {sockets}");
}

fn all_pids(tunnel: &Tunnel) -> Vec<u32> {
    let pid = tunnel.process.pid();
    let mut pids = process::descendants(pid);
    assert!(pids.len() >= 3, "meta, helper and a worker: {pids:?}");
    pids.push(pid);
    pids
}

#[test]
fn signals_stop_it_and_nothing_is_left() {
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let namespace = Namespace::new();
        let mut tunnel = Tunnel::start(&namespace, Ringway);
        tunnel.set("listen-port 51820");
        tunnel.up(&["10.9.0.1/24", "fd00:9::1/64"]);
        let pids = all_pids(&tunnel);
        tunnel.process.signal(signal);
        let status = tunnel.process.wait(LIMIT);
        assert_eq!(
            status.code(),
            Some(0),
            "{signal}: {}",
            tunnel.process.printed()
        );
        nothing_is_left(&namespace, &tunnel.name, &pids);
        assert!(namespace.ip("address show").matches("10.9.0.1").count() == 0);
    }
}

#[test]
fn deleting_the_interface_stops_it() {
    let namespace = Namespace::new();
    let mut tunnel = Tunnel::start(&namespace, Ringway);
    tunnel.up(&["10.9.0.1/24"]);
    let pids = all_pids(&tunnel);
    namespace.ip(&format!("link delete {}", tunnel.name));
    let status = tunnel.process.wait(LIMIT);
    assert_eq!(status.code(), Some(0), "{}", tunnel.process.printed());
    nothing_is_left(&namespace, &tunnel.name, &pids);
}

#[test]
fn without_f_it_goes_to_the_background_when_it_is_ready() {
    let namespace = Namespace::new();
    let name = ringway_tests::names::interface();
    let said = namespace.attempt(&[binaries::ringwayd(), name.clone()]);
    assert!(said.ok(), "{}{}", said.out, said.err);
    // Ready means that the next command can rely on it.
    let answer = uapi::ask(&name, "get=1\n").unwrap();
    assert_eq!(uapi::errno(&answer), 0);
    assert!(namespace.has_interface(&name));
    let pids = namespace.pids();
    let said = gateway::ringway(&["down", &name]);
    assert!(said.ok(), "{}{}", said.out, said.err);
    nothing_is_left(&namespace, &name, &pids);
    let said = gateway::ringway(&["down", &name]);
    assert_eq!(said.code, 3, "not running: {}{}", said.out, said.err);
}

#[test]
fn the_same_name_or_port_a_second_time_is_refused_in_one_line() {
    let namespace = Namespace::new();
    let mut tunnel = Tunnel::start(&namespace, Ringway);
    tunnel.set("listen-port 51820");
    let mut second = Process::start(
        &namespace.words(&[binaries::ringwayd(), "-f".into(), tunnel.name.clone()]),
        &[],
    );
    let status = second.wait(LIMIT);
    assert_eq!(status.code(), Some(1));
    let printed = second.printed();
    assert_eq!(printed.trim().lines().count(), 1, "one line: {printed}");
    assert!(printed.contains(&tunnel.name), "{printed}");

    let other = Tunnel::start(&namespace, Ringway);
    let said = other.wg("set", &["listen-port", "51820"], "");
    assert_ne!(said.code, 0, "a second gateway took the port too");
    assert!(said.err.contains("in use"), "{}", said.err);

    // From a file, the port is refused before anything is made.
    let name = ringway_tests::names::interface();
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join(format!("{name}.conf"));
    let text = format!(
        "[Interface]\nPrivateKey = {}\nListenPort = 51820\n",
        other.keys.private
    );
    config::write_private(&file, &text);
    let said = namespace.attempt(&[
        binaries::ringway(),
        "up".into(),
        file.to_str().unwrap().into(),
    ]);
    assert_eq!(said.code, 1, "{}{}", said.out, said.err);
    assert_eq!(said.err.trim().lines().count(), 1, "one line: {}", said.err);
    assert!(said.err.contains("51820"), "{}", said.err);
    assert!(!namespace.has_interface(&name));
    tunnel.process.must_run();
}

#[test]
fn a_process_that_dies_ends_all_with_one_line_and_nothing_is_left() {
    for victim in ["worker", "meta"] {
        let namespace = Namespace::new();
        let mut tunnel = Tunnel::start(&namespace, Ringway);
        tunnel.set("listen-port 51820");
        let pids = all_pids(&tunnel);
        let workers = gateway::json("workers", &tunnel.name);
        let pid = match victim {
            "meta" => workers["meta"]["pid"].as_i64().unwrap(),
            _ => workers["workers"][0]["pid"].as_i64().unwrap(),
        };
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid as i32), Signal::SIGKILL).unwrap();
        let status = tunnel.process.wait(LIMIT);
        assert_eq!(status.code(), Some(1), "{victim}");
        let printed = tunnel.process.printed();
        assert!(printed.contains(victim), "{printed}");
        nothing_is_left(&namespace, &tunnel.name, &pids);
    }
}

#[test]
fn a_helper_that_dies_comes_back() {
    let namespace = Namespace::new();
    let mut tunnel = Tunnel::start(&namespace, Ringway);
    let helper = || {
        gateway::json("workers", &tunnel.name)["helper"]["pid"]
            .as_i64()
            .unwrap_or(0)
    };
    let before = helper();
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(before as i32), Signal::SIGKILL).unwrap();
    wait::holds("another helper", LIMIT, || {
        let now = helper();
        now != before && now > 0 && process::alive(now as u32)
    });
    tunnel.process.must_run();
}

/// How containers use WireGuard: the interface goes into another namespace, the sockets stay.
#[test]
fn an_interface_that_was_moved_is_followed() {
    let pair = Pair::new();
    let inside = Namespace::new();
    let mut ours = Tunnel::start(&pair.a, Ringway);
    let theirs = Tunnel::start(&pair.b, WireguardGo);
    theirs.set("listen-port 51820");
    let endpoint = SocketAddr::new(pair.at_b.address(Family::V4), 51820);
    ours.set(&format!(
        "peer {} endpoint {endpoint} allowed-ips 10.9.0.2/32",
        theirs.keys.public
    ));
    theirs.set(&format!(
        "peer {} allowed-ips 10.9.0.1/32",
        ours.keys.public
    ));
    theirs.up(&["10.9.0.2/24"]);
    let pids = all_pids(&ours);

    pair.a
        .ip(&format!("link set {} netns {}", ours.name, inside.name()));
    inside.ip(&format!("address add 10.9.0.1/24 dev {}", ours.name));
    inside.ip(&format!("link set {} up", ours.name));
    let there: IpAddr = "10.9.0.2".parse().unwrap();
    inside.run(&[
        "ping", "-n", "-q", "-c", "2", "-i", "0.2", "-W", "5", "10.9.0.2",
    ]);
    traffic::stream(&inside, &pair.b, there, 1_000_000);

    let status = |field: &str| {
        gateway::json("status", &ours.name)
            .to_string()
            .contains(field)
    };
    inside.ip(&format!("link set {} mtu 1300", ours.name));
    wait::holds("the new MTU to be noticed", LIMIT, || status("1300"));
    inside.run(&[
        "ping", "-n", "-q", "-c", "1", "-W", "5", "-M", "do", "-s", "1272", "10.9.0.2",
    ]);

    inside.ip(&format!("link delete {}", ours.name));
    let ended = ours.process.wait(LIMIT);
    assert_eq!(ended.code(), Some(0), "{}", ours.process.printed());
    nothing_is_left(&pair.a, &ours.name, &pids);
}

#[test]
fn the_mtu_is_followed_up_to_the_largest_frame() {
    let pair = Pair::new();
    let ours = Tunnel::start(&pair.a, Ringway);
    let theirs = Tunnel::start(&pair.b, Ringway);
    theirs.set("listen-port 51820");
    let endpoint = SocketAddr::new(pair.at_b.address(Family::V4), 51820);
    ours.set(&format!(
        "peer {} endpoint {endpoint} allowed-ips 10.9.0.2/32",
        theirs.keys.public
    ));
    theirs.set(&format!(
        "peer {} allowed-ips 10.9.0.1/32",
        ours.keys.public
    ));
    ours.up(&["10.9.0.1/24"]);
    theirs.up(&["10.9.0.2/24"]);
    ours.ping("10.9.0.2".parse().unwrap());
    // veth carries at most 65535 bytes.
    for (wire, tunnel) in [(9000, 8920), (65535, 65455), (1500, 1420)] {
        for (namespace, port, name) in [
            (&pair.a, &pair.at_a, &ours.name),
            (&pair.b, &pair.at_b, &theirs.name),
        ] {
            namespace.ip(&format!("link set {} mtu {wire}", port.interface));
            namespace.ip(&format!("link set {name} mtu {tunnel}"));
        }
        let size = (tunnel - 28).to_string();
        wait::holds(&format!("a ping of {tunnel} bytes"), LIMIT, || {
            // What the inner sender was told before is forgotten, as it would be in time.
            pair.a.ip("route flush cache");
            let words = [
                "ping", "-n", "-q", "-c", "1", "-W", "1", "-M", "do", "-s", &size, "10.9.0.2",
            ];
            pair.a.attempt(&words).ok()
        });
        traffic::stream(&pair.a, &pair.b, "10.9.0.2".parse().unwrap(), 2_000_000);
    }
}
