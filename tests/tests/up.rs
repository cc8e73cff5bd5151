//! `ringway up FILE` and what belongs to it.

#![allow(clippy::unwrap_used)]

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use ringway_tests::command::Said;
use ringway_tests::config::{self, KeyPair};
use ringway_tests::namespace::Namespace;
use ringway_tests::topology::{Family, Pair};
use ringway_tests::tunnel::Implementation::WireguardGo;
use ringway_tests::tunnel::Tunnel;
use ringway_tests::{binaries, command, gateway, names, wait};

const LIMIT: Duration = Duration::from_secs(10);

/// A configuration file; the gateway goes down with it.
struct File<'a> {
    namespace: &'a Namespace,
    name: String,
    path: PathBuf,
    directory: tempfile::TempDir,
}

impl<'a> File<'a> {
    fn new(namespace: &'a Namespace, extension: &str, text: &str) -> File<'a> {
        let directory = tempfile::tempdir().unwrap();
        let name = names::interface();
        let path = directory.path().join(format!("{name}.{extension}"));
        let file = File {
            namespace,
            name,
            path,
            directory,
        };
        file.write(text);
        file
    }

    fn write(&self, text: &str) {
        let directory = self.directory.path().to_str().unwrap();
        config::write_private(&self.path, &text.replace("DIRECTORY", directory));
    }

    fn up(&self, arguments: &[&str]) -> Said {
        let mut words = vec![
            binaries::ringway(),
            "up".into(),
            self.path.to_str().unwrap().into(),
        ];
        words.extend(arguments.iter().map(|&argument| argument.to_owned()));
        self.namespace.attempt(&words)
    }

    fn must_up(&self, arguments: &[&str]) -> Said {
        let said = self.up(arguments);
        assert!(said.ok(), "ringway up: {}{}", said.out, said.err);
        said
    }

    fn has(&self, file: &str) -> bool {
        self.directory.path().join(file).exists()
    }

    fn wg(&self, field: &str) -> String {
        self.namespace.run(&["wg", "show", &self.name, field])
    }
}

impl Drop for File<'_> {
    fn drop(&mut self) {
        gateway::ringway(&["down", &self.name]);
    }
}

#[test]
fn a_wg_quick_file_with_everything() {
    let pair = Pair::new();
    let (ours, theirs) = (KeyPair::new(), Tunnel::start(&pair.b, WireguardGo));
    theirs.set(&format!(
        "listen-port 51820 peer {} allowed-ips 10.9.0.1/32,fd00:9::1/128",
        ours.public
    ));
    theirs.up(&["10.9.0.2/24", "fd00:9::2/64"]);
    let psk = config::preshared_key();
    theirs.feed(&["peer", &ours.public, "preshared-key", "/dev/stdin"], &psk);
    let text = format!(
        "[Interface]\nPrivateKey = {}\nAddress = 10.9.0.1/24, fd00:9::1/64\nMTU = 1380\nListenPort = 51830\n\
         FwMark = 0x99\nPreUp = touch DIRECTORY/pre-up\nPostUp = echo %i > DIRECTORY/post-up\n\
         PreDown = touch DIRECTORY/pre-down\nPostDown = touch DIRECTORY/post-down\n\n\
         [Peer]\n# Name = the office\nPublicKey = {}\nPresharedKey = {psk}\nEndpoint = {}:51820\n\
         AllowedIPs = 10.9.0.2/32, fd00:9::2/128, 10.50.0.0/16\nPersistentKeepalive = 5\n",
        ours.private, theirs.keys.public, pair.at_b.v4
    );
    let file = File::new(&pair.a, "conf", &text);
    file.must_up(&[]);
    assert!(file.has("pre-up") && !file.has("pre-down"));
    wait::holds("PostUp", LIMIT, || file.has("post-up"));
    let said = std::fs::read_to_string(file.directory.path().join("post-up")).unwrap();
    assert_eq!(said.trim(), file.name);
    let addresses = pair.a.ip(&format!("address show {}", file.name));
    assert!(
        addresses.contains("10.9.0.1/24") && addresses.contains("fd00:9::1/64"),
        "{addresses}"
    );
    assert!(addresses.contains("mtu 1380"), "{addresses}");
    assert!(pair.a.ip("route show").contains("10.50.0.0/16"));
    assert_eq!(file.wg("fwmark").trim(), "0x99");
    assert_eq!(file.wg("listen-port").trim(), "51830");
    pair.a.run(&[
        "ping", "-n", "-q", "-c", "2", "-i", "0.2", "-W", "5", "10.9.0.2",
    ]);
    pair.a.run(&[
        "ping",
        "-n",
        "-q",
        "-c",
        "2",
        "-i",
        "0.2",
        "-W",
        "5",
        "fd00:9::2",
    ]);
    let peers = gateway::json("peers", &file.name);
    assert_eq!(peers["peers"][0]["name"], "the office");

    let said = gateway::ringway(&["down", &file.name]);
    assert!(said.ok(), "{}{}", said.out, said.err);
    assert!(file.has("pre-down") && file.has("post-down"));
    assert!(!pair.a.has_interface(&file.name));
    assert!(!pair.a.ip("route show").contains("10.50.0.0/16"));
}

#[test]
fn a_toml_file_of_the_same_model() {
    let namespace = Namespace::new();
    let (ours, peer) = (KeyPair::new(), KeyPair::new());
    let text = format!(
        "[interface]\nprivate_key = \"{}\"\nlisten_port = 51831\naddresses = [\"10.9.0.1/24\"]\ntable = \"off\"\n\n\
         [[peer]]\nname = \"office\"\npublic_key = \"{}\"\nallowed_ips = [\"10.60.0.0/16\"]\n",
        ours.private, peer.public
    );
    let file = File::new(&namespace, "toml", &text);
    file.must_up(&[]);
    assert_eq!(file.wg("public-key").trim(), ours.public);
    assert!(file.wg("allowed-ips").contains("10.60.0.0/16"));
    assert!(
        !namespace.ip("route show").contains("10.60.0.0"),
        "table off"
    );
    let peers = gateway::json("peers", &file.name);
    assert_eq!(peers["peers"][0]["name"], "office");
}

#[test]
fn a_default_route_through_the_tunnel() {
    let pair = Pair::new();
    let (ours, theirs) = (KeyPair::new(), Tunnel::start(&pair.b, WireguardGo));
    theirs.set(&format!(
        "listen-port 51820 peer {} allowed-ips 10.9.0.1/32",
        ours.public
    ));
    theirs.up(&["10.9.0.2/24", "203.0.113.9/32"]);
    let text = format!(
        "[Interface]\nPrivateKey = {}\nAddress = 10.9.0.1/32\n[Peer]\nPublicKey = {}\nEndpoint = {}:51820\n\
         AllowedIPs = 0.0.0.0/0\n",
        ours.private, theirs.keys.public, pair.at_b.v4
    );
    let file = File::new(&pair.a, "conf", &text);
    file.must_up(&[]);
    pair.a.run(&[
        "ping",
        "-n",
        "-q",
        "-c",
        "2",
        "-i",
        "0.2",
        "-W",
        "5",
        "203.0.113.9",
    ]);
    // The endpoint itself stays outside.
    pair.a.run(&[
        "ping",
        "-n",
        "-q",
        "-c",
        "1",
        "-W",
        "5",
        &pair.at_b.v4.to_string(),
    ]);
    let rules = pair.a.ip("rule show");
    assert!(rules.contains("suppress_prefixlength 0"), "{rules}");
    assert!(gateway::ringway(&["down", &file.name]).ok());
    let rules = pair.a.ip("rule show");
    assert_eq!(rules.trim().lines().count(), 3, "rules are left: {rules}");
}

#[test]
fn more_workers_than_cores() {
    let pair = Pair::new();
    let (ours, theirs) = (KeyPair::new(), Tunnel::start(&pair.b, WireguardGo));
    theirs.set(&format!(
        "listen-port 51820 peer {} allowed-ips 10.9.0.1/32",
        ours.public
    ));
    theirs.up(&["10.9.0.2/24"]);
    let text = format!(
        "[Interface]\nPrivateKey = {}\nAddress = 10.9.0.1/24\n[Peer]\nPublicKey = {}\nEndpoint = {}:51820\n\
         AllowedIPs = 10.9.0.2/32\n",
        ours.private, theirs.keys.public, pair.at_b.v4
    );
    let file = File::new(&pair.a, "conf", &text);
    let cores = std::thread::available_parallelism().unwrap().get();
    let workers = (cores * 2).max(4);
    let said = file.must_up(&[
        "--workers",
        &workers.to_string(),
        "--shards",
        &workers.next_power_of_two().to_string(),
    ]);
    assert!(
        said.err.contains("worker"),
        "a warning names the workers: {}{}",
        said.out,
        said.err
    );
    let document = gateway::json("workers", &file.name);
    let list = document["workers"].as_array().unwrap();
    assert_eq!(list.len(), workers);
    assert!(
        list.iter().all(|worker| worker["state"] == "running"),
        "{document}"
    );
    pair.a.run(&[
        "ping", "-n", "-q", "-c", "2", "-i", "0.2", "-W", "5", "10.9.0.2",
    ]);
    ringway_tests::traffic::stream(&pair.a, &pair.b, "10.9.0.2".parse().unwrap(), 3_000_000);
    ringway_tests::traffic::stream(&pair.b, &pair.a, "10.9.0.1".parse().unwrap(), 3_000_000);
}

#[test]
fn a_broken_file_is_one_line_and_changes_nothing() {
    let namespace = Namespace::new();
    let (ours, one, two) = (KeyPair::new(), KeyPair::new().public, KeyPair::new().public);
    let good = format!(
        "[Interface]\nPrivateKey = {}\nAddress = 10.9.0.1/24\n[Peer]\nPublicKey = {one}\nAllowedIPs = 10.61.0.0/16\n",
        ours.private
    );
    let file = File::new(&namespace, "conf", &good);
    file.must_up(&[]);
    let before = namespace.run(&["wg", "showconf", &file.name]);
    for (bad, line, part) in [
        (good.replace("Address", "Adress"), 3, "Adress"),
        (good.replace(&one, "tooshort="), 5, "PublicKey"),
        (
            format!("{good}[Peer]\nPublicKey = {two}\nAllowedIPs = 10.61.0.0/16\n"),
            9,
            "10.61.0.0/16",
        ),
        (
            good.replace("10.61.0.0/16", "10.61.0.0/40"),
            6,
            "10.61.0.0/40",
        ),
    ] {
        file.write(&bad);
        let said = gateway::ringway(&["reload", &file.name]);
        assert_eq!(said.code, 1, "{bad}: {}{}", said.out, said.err);
        let text = said.err.trim();
        assert_eq!(text.lines().count(), 1, "one line: {text}");
        assert!(
            text.contains(&format!(".conf:{line}")) && text.contains(part),
            "{line}, {part}: {text}"
        );
        assert!(!text.contains(&ours.private), "a private key is told");
        assert_eq!(namespace.run(&["wg", "showconf", &file.name]), before);
    }
    std::fs::remove_file(&file.path).unwrap();
    let said = gateway::ringway(&["reload", &file.name]);
    assert_eq!(said.code, 1);
    assert_eq!(said.err.trim().lines().count(), 1, "{}", said.err);

    // The file wins over what `wg` did, unless told otherwise.
    file.write(&good);
    namespace.run(&[
        "wg",
        "set",
        &file.name,
        "peer",
        &two,
        "allowed-ips",
        "10.62.0.0/16",
    ]);
    assert!(gateway::ringway(&["reload", &file.name, "--keep-runtime"]).ok());
    assert!(file.wg("peers").contains(&two));
    assert!(gateway::ringway(&["reload", &file.name]).ok());
    assert!(!file.wg("peers").contains(&two));
    assert!(file.wg("peers").contains(&one));
}

#[test]
fn check_changes_nothing() {
    let namespace = Namespace::new();
    let text = format!(
        "[Interface]\nPrivateKey = {}\nAddress = 10.9.0.1/24\n",
        KeyPair::new().private
    );
    let file = File::new(&namespace, "conf", &text);
    let said = file.up(&["--check"]);
    assert!(said.ok(), "{}{}", said.out, said.err);
    assert!(said.out.contains("10.9.0.1/24"), "{}", said.out);
    assert!(!namespace.has_interface(&file.name));
}

#[test]
fn keys_agree_with_wg() {
    let private = gateway::ringway(&["genkey"]).out;
    let with = |words: &[String]| command::attempt_with_input(words, &[], &private).out;
    let public = with(&[binaries::ringway(), "pubkey".into()]);
    assert_eq!(public, with(&["wg".into(), "pubkey".into()]));
    assert_eq!(gateway::ringway(&["genpsk"]).out.trim().len(), 44);
}

#[test]
fn a_peer_that_comes_and_goes_runs_its_commands() {
    let pair = Pair::new();
    let (ours, theirs) = (KeyPair::new(), Tunnel::start(&pair.b, WireguardGo));
    theirs.set(&format!(
        "listen-port 51820 peer {} allowed-ips 10.9.0.1/32",
        ours.public
    ));
    theirs.up(&["10.9.0.2/24"]);
    let text = format!(
        "[interface]\nprivate_key = \"{}\"\naddresses = [\"10.9.0.1/24\"]\n\n[[peer]]\nname = \"office\"\n\
         public_key = \"{}\"\nendpoint = \"{}:51820\"\nallowed_ips = [\"10.9.0.2/32\"]\n\
         peer_up = \"touch DIRECTORY/peer-up\"\npeer_down = \"touch DIRECTORY/peer-down\"\n",
        ours.private, theirs.keys.public, pair.at_b.v4
    );
    let file = File::new(&pair.a, "toml", &text);
    // A helper without privileges runs them.
    std::fs::set_permissions(
        file.directory.path(),
        std::os::unix::fs::PermissionsExt::from_mode(0o777),
    )
    .unwrap();
    file.must_up(&[]);
    pair.a
        .run(&["ping", "-n", "-q", "-c", "1", "-W", "5", "10.9.0.2"]);
    wait::holds("PeerUp", LIMIT, || file.has("peer-up"));
    pair.a.run(&[
        "wg",
        "set",
        &file.name,
        "peer",
        &theirs.keys.public,
        "remove",
    ]);
    wait::holds("PeerDown", LIMIT, || file.has("peer-down"));
}

/// Why a peer does not connect is told, peer by peer.
#[test]
fn the_last_refusal_is_named() {
    let pair = Pair::new();
    let (ours, theirs) = (KeyPair::new(), Tunnel::start(&pair.b, WireguardGo));
    let endpoint = SocketAddr::new(pair.at_a.address(Family::V4), 51832);
    theirs.set(&format!(
        "listen-port 51820 peer {} endpoint {endpoint} allowed-ips 10.9.0.1/32",
        ours.public
    ));
    theirs.up(&["10.9.0.2/24"]);
    let text = format!(
        "[Interface]\nPrivateKey = {}\nAddress = 10.9.0.1/24\nListenPort = 51832\n[Peer]\nPublicKey = {}\n\
         PresharedKey = {}\nAllowedIPs = 10.9.0.2/32\n",
        ours.private,
        theirs.keys.public,
        config::preshared_key()
    );
    let file = File::new(&pair.a, "conf", &text);
    file.must_up(&[]);
    let _ = pair
        .b
        .attempt(&["ping", "-n", "-c", "1", "-W", "1", "10.9.0.1"]);
    let refusal = wait::until("a refusal", Duration::from_secs(15), || {
        let peers = gateway::json("peers", &file.name);
        peers["peers"][0]["last_refusal"]["reason"]
            .as_str()
            .map(str::to_owned)
    });
    assert_eq!(refusal, "preshared_key");
}
