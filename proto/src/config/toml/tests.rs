use proptest::prelude::*;

use super::*;
use crate::config::{Config, Table, WorkersSetting, parse_conf};

const PRIVATE: &str = "yAnz5TF+lXXJte14tji3zlMNq+hd2rYUIgJBgB3fBmk=";
const A: &str = "xTIBA5rboUvnH4htodjb6e697QjLERt1NAB4mZqp8Dg=";
const B: &str = "TrMvSoP4jYQlY6RIzBgbssQqY3vxI2Pi+y71lOWWXX0=";

fn read(text: &str) -> Config {
    parse_toml(text, Path::new("wg0.toml"))
        .unwrap_or_else(|error| panic!("{error}\n{text}"))
        .config
}

fn error(text: &str) -> String {
    parse_toml(text, Path::new("wg0.toml"))
        .expect_err(text)
        .to_string()
}

#[test]
fn it_is_the_model_of_conf() {
    let toml = format!(
        "[interface]\nprivate_key = \"{PRIVATE}\"\nlisten_port = 51820\nfwmark = 0xca6c\naddresses = [\"10.9.0.1/24\", \"fd00::1/64\"]\n\
         dns = [\"1.1.1.1\", \"example.org\"]\ndns_search = \"corp\"\nmtu = 1380\ntable = \"off\"\npre_up = \"a %i\"\npost_up = [\"b; c\", \"d = e\"]\n\
         pre_down = []\npost_down = [\"g\"]\nsave_config = true\nlisten_addresses = [\"192.0.2.1\"]\nbind_device = \"eth0\"\nworkers = 4\n\
         shards = 8\ncpus = [0, 1, 2, 5]\npoll = \"busy\"\n\n[limits]\npeers = 100\nroutes = 1_000\n\n\
         [[peer]]\nname = \"Anna\"\npublic_key = \"{A}\"\npreshared_key = \"{B}\"\nallowed_ips = [\"10.9.0.2/32\", \"10.7.3.9/16\", \"fd00::2\"]\n\
         endpoint = \"gw.example.org:51820\"\npersistent_keepalive = 25\npeer_up = \"up %i\"\npeer_down = \"down\"\n"
    );
    let conf = format!(
        "[Interface]\nPrivateKey = {PRIVATE}\nListenPort = 51820\nFwMark = 0xca6c\nAddress = 10.9.0.1/24, fd00::1/64\n\
         DNS = 1.1.1.1, example.org, corp\nMTU = 1380\nTable = off\nPreUp = a %i\nPostUp = b; c\nPostUp = d = e\nPostDown = g\nSaveConfig = true\n\
         ListenAddress = 192.0.2.1\nBindDevice = eth0\nWorkers = 4\nShards = 8\nCpus = 0-2,5\nPoll = busy\n[Limits]\nPeers = 100\nRoutes = 1000\n\
         [Peer]\nName = Anna\nPublicKey = {A}\nPresharedKey = {B}\nAllowedIPs = 10.9.0.2/32, 10.7.3.9/16, fd00::2\n\
         Endpoint = gw.example.org:51820\nPersistentKeepalive = 25\nPeerUp = up %i\nPeerDown = down\n"
    );
    let config = read(&toml);
    assert_eq!(
        config,
        parse_conf(&conf, Path::new("wg0.conf")).unwrap().config
    );
    assert_eq!(config.interface.workers, Some(WorkersSetting::Count(4)));
}

#[test]
fn numbers_and_texts_are_alike() {
    let config = read(
        "[interface]\nlisten_port = \"5\"\nfwmark = \"off\"\ntable = 0x10\nworkers = \"auto\"\ncpus = \"0-1\"\n",
    );
    assert_eq!(config.interface.listen_port, Some(5));
    assert_eq!(config.interface.table, Table::Number(16));
    assert_eq!(read(""), Config::default());
    assert_eq!(read("interface.mtu = 1400").interface.mtu, Some(1400));
}

#[test]
fn errors_name_the_line() {
    let peer = format!("[[peer]]\npublic_key = \"{A}\"\n");
    for (text, message) in [
        (
            "[interface]\nadress = 1\n",
            "2: unknown key below [interface]: adress: did you mean addresses?",
        ),
        (
            "[interface]\nlistenport = 1\n",
            "2: unknown key below [interface]: listenport: did you mean listen_port?",
        ),
        (
            "[interface]\nallowed_ips = 1\n",
            "2: unknown key below [interface]: allowed_ips: allowed_ips belongs below [[peer]]",
        ),
        (
            "\n\n[interfaces]\n",
            "3: unknown section: interfaces: did you mean [interface]?",
        ),
        (
            "[peers]\n",
            "1: unknown section: peers: did you mean [[peer]]?",
        ),
        (
            "mtu = 1\n",
            "1: unknown section: mtu: only [interface], [[peer]] and [limits] are known; keys stand below one of them",
        ),
        (
            "[peer]\n",
            "1: peer is not a list: begin each peer with [[peer]]",
        ),
        (
            "interface = 1\n",
            "1: not a section: write [interface] on a line of its own, its keys below",
        ),
        (
            "[interface]\nmtu = [\n1]\n",
            "2: bad mtu: give one value, not a list",
        ),
        (
            "[interface]\nmtu = 1.5\n",
            "2: bad mtu: float: give a string, a whole number or true or false",
        ),
        (
            "[interface]\nmtu = -5\n",
            "2: bad mtu: -5: give a number of bytes from 68 to 65535; 1420 suits most links",
        ),
        (
            "[interface]\naddresses = [\n\"10.0.0.1/8\",\n\"x\"]\n",
            "4: bad addresses: x: give an IPv4 or IPv6 address, such as 10.9.0.1/24 or fd00::1/64",
        ),
        (
            &format!("{peer}{peer}"),
            &format!(
                "4: peer is there twice: the peer of line 1 and the peer of line 3: {A}: merge the two sections, or give one its own key"
            ),
        ),
    ] {
        assert_eq!(error(text), format!("wg0.toml:{message}"));
    }
    assert!(
        error("[interface]\n[[peer]]\nname = \"x\"\n")
            .starts_with("wg0.toml:2: peer without public_key: ")
    );
    assert!(error("[interface]\nmtu = \n").starts_with("wg0.toml:2: not TOML: "));
    assert!(error("[interface]\nmtu = 1400\nmtu = 1400\n").starts_with("wg0.toml:3: not TOML: "));
}

#[test]
fn no_error_shows_a_key() {
    for text in [
        format!("[interface]\nprivate_key = \"{}\"\n", &PRIVATE[..43]),
        format!("[interface]\nprivate_key = \"{PRIVATE}\n"),
        format!("[interface]\nprivate_key = {PRIVATE}\n"),
        format!("[interface]\n\"{PRIVATE}\" = 1\n"),
        format!("[\"{PRIVATE}\"]\n"),
        format!("[interface]\n\"{PRIVATE}\" = 1\n\"{PRIVATE}\" = 1\n"),
        format!("{PRIVATE}\n"),
        format!("[interface]\nmtu = \"{PRIVATE}\"\n"),
    ] {
        let message = error(&text);
        assert!(!message.contains(&PRIVATE[..8]), "{message}");
    }
}

proptest! {
    #[test]
    fn any_text_gives_a_line_or_a_configuration(
        lines in proptest::collection::vec(
            prop_oneof![
                Just("[interface]".to_owned()),
                Just("[[peer]]".to_owned()),
                Just(format!("public_key = \"{A}\"")),
                "[a-z_]{1,20} ?= ?(\"[^\"\\\\]{0,20}\"|[0-9]{1,5}|\\[\\]|true)",
                ".{0,60}",
            ],
            0..12,
        ),
    ) {
        if let Err(error) = parse_toml(&lines.join("\n"), Path::new("x.toml")) {
            let line = error.to_string();
            prop_assert!(!line.chars().any(char::is_control), "{line:?}");
        }
    }
}
