use proptest::prelude::*;

use super::*;
use crate::config::{Config, PollMode, Table, WorkersSetting};

const PRIVATE: &str = "yAnz5TF+lXXJte14tji3zlMNq+hd2rYUIgJBgB3fBmk=";
const A: &str = "xTIBA5rboUvnH4htodjb6e697QjLERt1NAB4mZqp8Dg=";
const B: &str = "TrMvSoP4jYQlY6RIzBgbssQqY3vxI2Pi+y71lOWWXX0=";

fn loaded(text: &str) -> Loaded {
    parse_conf(text, Path::new("wg0.conf")).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

fn read(text: &str) -> Config {
    loaded(text).config
}

fn error(text: &str) -> String {
    parse_conf(text, Path::new("wg0.conf"))
        .expect_err(text)
        .to_string()
}

fn interface_error(line: &str) -> String {
    error(&format!("[Interface]\n{line}\n"))
}

fn peer_error(line: &str) -> String {
    error(&format!("[Interface]\n\n[Peer]\nPublicKey = {A}\n{line}\n"))
}

#[test]
fn every_key_is_read() {
    let config = read(&format!(
        "[Interface]\nPrivateKey = {PRIVATE}\nListenPort = 51820\nFwMark = 0xca6c\n\
         Address = 10.9.0.1/24, fd00::1/64\nAddress = 10.8.0.1\nDNS = 1.1.1.1, example.org, 2606:4700::1111\nDNS = corp\n\
         MTU = 1380\nTable = 1234\nPreUp = a %i\nPostUp = b; c\nPostUp = d = e\nPreDown = f\nPostDown = g\nSaveConfig = true\n\
         ListenAddress = 192.0.2.1\nListenAddress = 2001:db8::1\nBindDevice = eth0\nWorkers = 4\nShards = 8\nCpus = 0-2,5\nPoll = busy\n\
         [Limits]\nPeers = 100\nRoutes = 1000\n\
         [Peer]\nName = Anna\nPublicKey = {A}\nPresharedKey = {B}\nAllowedIPs = 10.9.0.2/32, 10.7.3.9/16\nAllowedIPs = fd00::2\n\
         Endpoint = gw.example.org:51820\nPersistentKeepalive = 25\nPeerUp = up %i\nPeerDown = down\n"
    ));
    let interface = &config.interface;
    assert_eq!(
        *interface.private_key.as_ref().unwrap().to_base64(),
        PRIVATE
    );
    assert_eq!(interface.listen_port, Some(51820));
    assert_eq!(interface.fwmark, Some(51820));
    let addresses: Vec<_> = interface
        .addresses
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(addresses, ["10.9.0.1/24", "fd00::1/64", "10.8.0.1/32"]);
    assert_eq!(
        interface.dns,
        [
            "1.1.1.1".parse::<std::net::IpAddr>().unwrap(),
            "2606:4700::1111".parse().unwrap()
        ]
    );
    assert_eq!(interface.dns_search, ["example.org", "corp"]);
    assert_eq!(interface.mtu, Some(1380));
    assert_eq!(interface.table, Table::Number(1234));
    assert_eq!(interface.pre_up, ["a %i"]);
    assert_eq!(interface.post_up, ["b; c", "d = e"]);
    assert_eq!(
        (interface.pre_down.len(), interface.post_down.len()),
        (1, 1)
    );
    assert!(interface.save_config);
    assert_eq!(interface.listen_addresses.len(), 2);
    assert_eq!(interface.bind_device.as_deref(), Some("eth0"));
    assert_eq!(interface.workers, Some(WorkersSetting::Count(4)));
    assert_eq!(interface.shards, Some(8));
    assert_eq!(interface.cpus.as_ref().unwrap().cpus(), [0, 1, 2, 5]);
    assert_eq!(interface.poll, Some(PollMode::Busy));
    assert_eq!(
        (interface.limits.peers, interface.limits.routes),
        (100, 1000)
    );
    let peer = &config.peers[0];
    assert_eq!(peer.name.as_deref(), Some("Anna"));
    assert_eq!(peer.public_key.to_string(), A);
    assert_eq!(*peer.preshared_key.as_ref().unwrap().to_base64(), B);
    let allowed: Vec<_> = peer.allowed_ips.iter().map(ToString::to_string).collect();
    assert_eq!(allowed, ["10.9.0.2/32", "10.7.0.0/16", "fd00::2/128"]);
    assert_eq!(
        peer.endpoint.as_ref().unwrap().to_string(),
        "gw.example.org:51820"
    );
    assert_eq!(peer.persistent_keepalive, Some(25));
    assert_eq!(
        (peer.peer_up.as_deref(), peer.peer_down.as_deref()),
        (Some("up %i"), Some("down"))
    );
}

#[test]
fn wg_quicks_freedoms_are_taken() {
    let text = format!(
        "\u{feff}# a comment\r\n[interface] # here\r\nprivatekey={PRIVATE}\r\nFWMARK = off\r\naddress = 10.0.0.1/8 fd00::1/8\r\n\
         PostUp = echo one # not two\r\n\r\n[ PEER ]\r\n\tPUBLICKEY\t=\t{A}\r\nAllowedIPs =\r\npersistentkeepalive = off"
    );
    let config = read(&text);
    assert_eq!(config.interface.fwmark, None);
    assert_eq!(config.interface.addresses.len(), 2);
    assert_eq!(config.interface.post_up, ["echo one"]);
    assert_eq!(config.peers[0].persistent_keepalive, None);
    assert!(config.peers[0].allowed_ips.is_empty());
    assert_eq!(read(""), Config::default());
}

#[test]
fn zero_keys_are_no_keys() {
    let zero = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";
    let config = read(&format!(
        "[Interface]\nPrivateKey = {zero}\n[Peer]\nPublicKey = {A}\nPresharedKey = {zero}\n"
    ));
    assert_eq!(config.interface.private_key, None);
    assert_eq!(config.peers[0].preshared_key, None);
}

#[test]
fn comments_name_their_peer() {
    let names =
        |text: &str| -> Vec<_> { read(text).peers.into_iter().map(|peer| peer.name).collect() };
    let name = |name: &str| Some(name.to_owned());
    let inside =
        format!("[Peer]\n# Name = Anna\nPublicKey = {A}\n[Peer]\nPublicKey = {B}\n#name=Ben # 2\n");
    assert_eq!(names(&inside), [name("Anna"), name("Ben # 2")]);
    let above = format!(
        "[Interface]\n# Name = Anna\n[Peer]\nPublicKey = {A}\n\n# her brother\n# Name = Ben\n[Peer]\nPublicKey = {B}\n"
    );
    assert_eq!(names(&above), [name("Anna"), name("Ben")]);
    let after_blank = format!(
        "[Peer]\nPublicKey = {A}\n\n# Name = Anna\n\n[Peer]\nPublicKey = {B}\n\n# Name = Ben"
    );
    assert_eq!(names(&after_blank), [name("Anna"), name("Ben")]);
    let key_wins = format!("[Peer]\n# Name = Comment\nName = Key\nPublicKey = {A}\n");
    assert_eq!(names(&key_wins), [name("Key")]);
}

#[test]
fn a_bad_name_in_a_comment_is_only_told() {
    let long = "x".repeat(65);
    let loaded = loaded(&format!("[Peer]\nPublicKey = {A}\n# Name = {long}\n"));
    assert_eq!(loaded.config.peers[0].name, None);
    assert!(
        loaded.warnings[0]
            .to_string()
            .starts_with("wg0.conf:3: bad # Name: xxx"),
        "{}",
        loaded.warnings[0]
    );
    assert!(peer_error(&format!("Name = {long}")).starts_with("wg0.conf:5: bad Name: xxx"));
    assert!(peer_error("Name =").contains("bad Name: (empty): give 1 to 64 bytes"));
}

#[test]
fn doubts_are_told_and_taken() {
    let text = format!(
        "[Interface]\nMTU = 1000\nMTU = 1200\nAddress = fd00::1/64\n[Peer]\nName = x\nPublicKey = {A}\n[Peer]\nName = x\nPublicKey = {B}\n"
    );
    let loaded = loaded(&text);
    let told: Vec<_> = loaded.warnings.iter().map(ToString::to_string).collect();
    assert_eq!(loaded.config.interface.mtu, Some(1200));
    assert_eq!(told.len(), 3, "{told:?}");
    assert_eq!(
        told[0],
        "wg0.conf:3: key is there twice: MTU: the last one counts: remove the other"
    );
    assert!(
        told[1].starts_with("wg0.conf:8: two peers have one name: x: "),
        "{told:?}"
    );
    assert!(told[2].contains("MTU too small for IPv6"), "{told:?}");
}

#[test]
fn errors_are_one_line_with_file_line_value_and_remedy() {
    for (line, message) in [
        (
            "Adress = 10.0.0.1",
            "unknown key below [Interface]: Adress: did you mean Address?",
        ),
        (
            "AllowedIPs = ::/0",
            "unknown key below [Interface]: AllowedIPs: AllowedIPs belongs below [Peer]",
        ),
        (
            "Colour = red",
            "unknown key below [Interface]: Colour: remove it, or see ringway.toml(5) for the keys that are known",
        ),
        (
            "Address = 10.0.0.1/33",
            "bad Address: 10.0.0.1/33: give a prefix length of at most 32 for IPv4 or 128 for IPv6",
        ),
        (
            "Address = gw",
            "bad Address: gw: give an IPv4 or IPv6 address, such as 10.9.0.1/24 or fd00::1/64",
        ),
        (
            "ListenPort = 65536",
            "bad ListenPort: 65536: give a port from 0 to 65535; 0 is any that is free",
        ),
        (
            "ListenPort =",
            "bad ListenPort: (empty): give a port from 0 to 65535; 0 is any that is free",
        ),
        (
            "FwMark = 0x1ffffffff",
            "bad FwMark: 0x1ffffffff: give off, or a number of 32 bits such as 51820 or 0xca6c",
        ),
        (
            "MTU = 67",
            "bad MTU: 67: give a number of bytes from 68 to 65535; 1420 suits most links",
        ),
        (
            "Table = blue",
            "bad Table: blue: give auto, off, main or a table's number; names of /etc/iproute2 are not read",
        ),
        (
            "SaveConfig = yes",
            "bad SaveConfig: yes: give true or false",
        ),
        (
            "DNS = 1.1.1",
            "bad DNS: 1.1.1: give the address of a DNS server, or a search domain",
        ),
        (
            "PostUp =",
            "empty PostUp: give a shell command, or remove the line",
        ),
        (
            "Workers = 0",
            "bad Workers: 0: give auto or a number from 1 to 64",
        ),
        (
            "Shards = 3",
            "bad Shards: 3: give a power of two from 1 to 64",
        ),
        (
            "Cpus = x",
            "bad Cpus: x: give a list such as 0-3,8 or 0-10:2",
        ),
        (
            "Poll = fast",
            "bad Poll: fast: give epoll, busy, adaptive or napi",
        ),
        (
            "ListenAddress = eth0",
            "bad ListenAddress: eth0: give an IPv4 or IPv6 address of this host, without a port",
        ),
        (
            "BindDevice = sixteen-letters-",
            "bad BindDevice: sixteen-letters-: give the name of a network device, at most 15 bytes, such as eth0",
        ),
        (
            "[Interfaces]",
            "unknown section: [Interfaces]: did you mean [Interface]?",
        ),
        (
            "[Wall]",
            "unknown section: [Wall]: only [Interface], [Peer] and [Limits] are known",
        ),
        ("nonsense", "line without an equals sign: write Key = value"),
    ] {
        assert_eq!(interface_error(line), format!("wg0.conf:2: {message}"));
    }
    for (line, message) in [
        (
            "Endpoint = gw.example.org",
            "bad Endpoint: gw.example.org: end it with a colon and a port from 1 to 65535, such as gw.example.org:51820",
        ),
        (
            "Endpoint = 2001:db8::1:5",
            "bad Endpoint: 2001:db8::1:5: put an IPv6 address in brackets, such as [2001:db8::1]:51820",
        ),
        (
            "AllowedIPs = 10.0.0.0/8, x",
            "bad AllowedIPs: x: give an IPv4 or IPv6 address, such as 10.9.0.1/24 or fd00::1/64",
        ),
        (
            "AllowedIPs = -10.0.0.0/8",
            "bad AllowedIPs: -10.0.0.0/8: only `wg set` can take an allowed IP away: remove it from the file",
        ),
        (
            "PersistentKeepalive = 65536",
            "bad PersistentKeepalive: 65536: give off, or seconds from 1 to 65535; 25 suits most NATs",
        ),
        (
            "Adress = x",
            "unknown key below [Peer]: Adress: Address belongs below [Interface]",
        ),
    ] {
        // A near key of the same section would win over a far one of another; here there is none.
        if line.starts_with("Adress") {
            assert!(peer_error(line).starts_with("wg0.conf:5: unknown key below [Peer]: Adress: "));
        } else {
            assert_eq!(peer_error(line), format!("wg0.conf:5: {message}"));
        }
    }
    assert_eq!(
        error("MTU = 1"),
        "wg0.conf:1: key before the first section: MTU: begin the file with [Interface]"
    );
    let escaped = interface_error(&format!("MTU = \u{1b}[31m{}", "9".repeat(200)));
    assert!(
        !escaped.contains('\u{1b}') && escaped.len() < 250,
        "{escaped}"
    );
}

#[test]
fn no_error_shows_a_key() {
    let cut = &PRIVATE[..43];
    for text in [
        format!("[Interface]\nPrivateKey = {cut}\n"),
        format!("[Interface]\nPrivateKey = {PRIVATE}=\n"),
        format!("[Interface]\nPrivateKey {cut}\n"),
        format!("[Interface]\n{PRIVATE}\n"),
        format!("[Interface]\n{cut}\n"),
        format!("{PRIVATE}\n"),
        format!("[Interface]\nListenPort = {PRIVATE}\n"),
        format!("[Peer]\nPublicKey = {cut}\n"),
        format!("[Peer]\nPresharedKey = {cut}\n"),
        format!("[Peer]\nEndpoint = {PRIVATE}\n"),
    ] {
        let message = error(&text);
        assert!(!message.contains(&PRIVATE[..8]), "{message}");
        assert!(message.starts_with("wg0.conf:"), "{message}");
    }
    assert_eq!(
        interface_error(&format!("PrivateKey = {cut}")),
        "wg0.conf:2: bad PrivateKey: a key is 44 characters of base64, this has 43: copy it whole, as `wg genkey` prints it"
    );
}

#[test]
fn peers_must_agree() {
    let twice = format!("[Peer]\nName = Anna\nPublicKey = {A}\n\n[Peer]\nPublicKey = {A}\n");
    assert_eq!(
        error(&twice),
        format!(
            "wg0.conf:6: peer is there twice: Anna (line 1) and the peer of line 5: {A}: merge the two sections, or give one its own key"
        )
    );
    let claimed = format!(
        "[Peer]\n# Name = Anna\nPublicKey = {A}\nAllowedIPs = 10.0.0.1/8\n[Peer]\n# Name = Ben\nPublicKey = {B}\n\
         AllowedIPs = 10.1.0.0/16\nAllowedIPs = 10.9.9.9/8\n"
    );
    assert_eq!(
        error(&claimed),
        "wg0.conf:9: allowed IP of two peers: Anna (line 1) and Ben (line 5): 10.0.0.0/8: \
         leave it to one of them; a longer prefix may lie inside another's"
    );
    let own = read(&format!(
        "[Peer]\nPublicKey = {A}\nAllowedIPs = 10.0.0.1/8, 10.0.0.0/8\n"
    ));
    assert_eq!(own.peers[0].allowed_ips.len(), 1);
    assert!(
        error("[Interface]\n[Peer]\nAllowedIPs = ::/0\n")
            .starts_with("wg0.conf:2: peer without PublicKey: give the key")
    );
    let zero = "[Peer]\nPublicKey = AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\n";
    assert!(error(zero).contains("bad PublicKey: it is all zero"));
}

#[test]
fn limits_bind_the_file_too() {
    let text = format!("[Limits]\nPeers = 1\n[Peer]\nPublicKey = {A}\n[Peer]\nPublicKey = {B}\n");
    assert_eq!(
        error(&text),
        "wg0.conf: too many peers for the limit of 1: 2: raise Peers below [Limits]"
    );
    let text =
        format!("[Limits]\nRoutes = 1\n[Peer]\nPublicKey = {A}\nAllowedIPs = ::/0, 0.0.0.0/0\n");
    assert_eq!(
        error(&text),
        "wg0.conf: too many allowed IPs for the limit of 1: 2: raise Routes below [Limits]"
    );
    assert_eq!(
        error("[Interface]\nShards = 2\nWorkers = 3\n"),
        "wg0.conf:3: more workers than the 2 shards: 3: a worker needs a shard: raise the shards or lower the workers"
    );
}

#[test]
fn many_peers_read_fast() {
    let mut text = String::from("[Interface]\n");
    for number in 0..4000u32 {
        let mut key = [0; 32];
        key[..4].copy_from_slice(&(number + 1).to_le_bytes());
        let key = crate::keys::PublicKey::from_bytes(key);
        let address = std::net::Ipv4Addr::from(0x0a00_0000 + number);
        text.extend([
            "[Peer]\nPublicKey = ",
            &key.to_string(),
            "\nAllowedIPs = ",
            &address.to_string(),
            "\n",
        ]);
    }
    let started = std::time::Instant::now();
    assert_eq!(read(&text).peers.len(), 4000);
    assert!(started.elapsed() < std::time::Duration::from_secs(2));
}

proptest! {
    #[test]
    fn any_text_gives_a_line_or_a_configuration(
        lines in proptest::collection::vec(
            prop_oneof![
                Just("[Interface]".to_owned()),
                Just("[Peer]".to_owned()),
                Just(format!("PublicKey = {A}")),
                "[A-Za-z]{1,20} ?=.{0,40}",
                "(Endpoint|AllowedIPs|Address|DNS|Cpus|Table|FwMark|# Name) = .{0,30}",
                ".{0,60}",
            ],
            0..12,
        ),
    ) {
        if let Err(error) = parse_conf(&lines.join("\n"), Path::new("x.conf")) {
            let line = error.to_string();
            prop_assert!(!line.chars().any(char::is_control), "{line:?}");
            prop_assert!(line.starts_with("x.conf"));
        }
    }
}
