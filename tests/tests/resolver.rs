//! Endpoints by name: a start without a resolver serves the peers that need none, and a name is looked up
//! again when handshakes go unanswered.

#![allow(clippy::unwrap_used)]

use std::path::PathBuf;
use std::time::Duration;

use ringway_tests::config::{self, KeyPair};
use ringway_tests::topology::Pair;
use ringway_tests::tunnel::Implementation::WireguardGo;
use ringway_tests::tunnel::Tunnel;
use ringway_tests::{binaries, gateway, names, wait};

/// Files that `ip netns exec` puts over those in `/etc`.
struct Etc(PathBuf);

impl Etc {
    fn new(namespace: &str) -> Etc {
        let path = PathBuf::from("/etc/netns").join(namespace);
        std::fs::create_dir_all(&path).unwrap();
        Etc(path)
    }

    fn write(&self, file: &str, text: &str) {
        std::fs::write(self.0.join(file), text).unwrap();
    }
}

impl Drop for Etc {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
        let _ = std::fs::remove_dir("/etc/netns");
    }
}

/// Takes the gateway down, whatever happens.
struct Down(String);

impl Drop for Down {
    fn drop(&mut self) {
        gateway::ringway(&["down", &self.0]);
    }
}

#[test]
fn no_resolver_at_the_start_and_a_name_that_moves_later() {
    let pair = Pair::new();
    let etc = Etc::new(pair.a.name());
    etc.write(
        "resolv.conf",
        "nameserver 192.0.2.250\noptions timeout:1 attempts:1\n",
    );
    etc.write("hosts", "127.0.0.1 localhost\n");
    let ours = KeyPair::new();
    let known = Tunnel::start(&pair.b, WireguardGo);
    known.set(&format!(
        "listen-port 51820 peer {} allowed-ips 10.9.0.1/32",
        ours.public
    ));
    known.up(&["10.9.0.2/24"]);
    let named = Tunnel::start(&pair.b, WireguardGo);
    named.set(&format!(
        "listen-port 51821 peer {} allowed-ips 10.9.0.1/32",
        ours.public
    ));
    named.up(&["10.9.0.3/32"]);
    pair.b
        .ip(&format!("route add 10.9.0.1/32 dev {}", known.name));

    let directory = tempfile::tempdir().unwrap();
    let name = names::interface();
    let _down = Down(name.clone());
    let path = directory.path().join(format!("{name}.conf"));
    let text = format!(
        "[Interface]\nPrivateKey = {}\nAddress = 10.9.0.1/24\n\n[Peer]\nPublicKey = {}\nEndpoint = {}:51820\n\
         AllowedIPs = 10.9.0.2/32\n\n[Peer]\nPublicKey = {}\nEndpoint = gateway.ringway.test:51821\n\
         AllowedIPs = 10.9.0.3/32\nPersistentKeepalive = 1\n",
        ours.private, known.keys.public, pair.at_b.v4, named.keys.public
    );
    config::write_private(&path, &text);
    let words = [
        binaries::ringway(),
        "up".into(),
        path.to_str().unwrap().into(),
    ];
    let timers = [(
        "RINGWAY_TEST_TIMERS",
        "rekey_timeout=1,jitter=0.1,rekey_attempt=10,keepalive=2",
    )];
    let said = ringway_tests::command::attempt_with_input(&pair.a.words(&words), &timers, "");
    assert!(said.ok(), "{}{}", said.out, said.err);

    pair.a.run(&[
        "ping", "-n", "-q", "-c", "2", "-i", "0.2", "-W", "5", "10.9.0.2",
    ]);
    let peer = |key: &str| {
        let document = gateway::json("peers", &name);
        let list = document["peers"].as_array().unwrap().clone();
        list.into_iter()
            .find(|peer| peer["public_key"] == key)
            .unwrap()
    };
    wait::holds("the reason to be named", Duration::from_secs(20), || {
        peer(&named.keys.public)["last_refusal"]["reason"] == "unresolved_endpoint"
    });

    // The name appears, at an address where nobody listens; then at the right one.
    etc.write(
        "hosts",
        "127.0.0.1 localhost\n192.0.2.201 gateway.ringway.test\n",
    );
    wait::holds("the name to be resolved", Duration::from_secs(40), || {
        peer(&named.keys.public)["endpoint"] == "192.0.2.201:51821"
    });
    etc.write(
        "hosts",
        &format!(
            "127.0.0.1 localhost\n{} gateway.ringway.test\n",
            pair.at_b.v4
        ),
    );
    // The pause between two look-ups of a name grows to two minutes.
    wait::holds(
        "the name to be resolved again",
        Duration::from_secs(130),
        || !peer(&named.keys.public)["last_handshake_seconds"].is_null(),
    );
}
