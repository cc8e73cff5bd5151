//! A thousand peers configured, a hundred of them live; what one does wrong costs the others nothing.

#![allow(clippy::unwrap_used)]

use std::fmt::Write;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use ringway_tests::client::{Client, Received};
use ringway_tests::config::{self, KeyPair, PeerSection};
use ringway_tests::topology::{Family, Pair};
use ringway_tests::tunnel::{Implementation, Tunnel};
use ringway_tests::{gateway, inner};

const PORT: u16 = 51820;
const LIVE: usize = 100;
const LIMIT: Duration = Duration::from_secs(5);
const GATEWAY: Ipv4Addr = Ipv4Addr::new(10, 64, 0, 1);

/// The tunnel address of peer `number`.
fn address(number: usize) -> IpAddr {
    let number = number as u16 + 2;
    let [high, low] = number.to_be_bytes();
    Ipv4Addr::new(10, 64, high, low).into()
}

/// A gateway with `count` peers of which the first hundred are clients here.
fn gateway_with(pair: &Pair, count: usize) -> (Tunnel<'_>, Vec<Client>) {
    let tunnel = Tunnel::start(&pair.a, Implementation::Ringway);
    let keys: Vec<KeyPair> = (0..count).map(|_| KeyPair::new()).collect();
    let sections: Vec<PeerSection> = keys
        .iter()
        .enumerate()
        .map(|(number, keys)| PeerSection {
            public_key: keys.public.clone(),
            allowed_ips: format!("{}/32", address(number)),
            ..PeerSection::default()
        })
        .collect();
    let file = tempfile::NamedTempFile::new().unwrap();
    let text = config::wg_file(&tunnel.keys.private, Some(PORT), &sections);
    std::fs::write(file.path(), text).unwrap();
    let said = tunnel.wg("setconf", &[file.path().to_str().unwrap()], "");
    assert!(said.ok(), "wg setconf: {}{}", said.out, said.err);
    tunnel.up(&["10.64.0.1/16"]);
    let at = SocketAddr::new(pair.at_a.address(Family::V4), PORT);
    // Each from an address of its own: handshakes are rationed by source.
    let mut batch = String::new();
    for number in 0..LIVE {
        let _ = writeln!(batch, "address add 198.51.100.{}/32 dev lo", number + 1);
    }
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), batch).unwrap();
    pair.b
        .ip(&format!("-batch {}", file.path().to_str().unwrap()));
    pair.a
        .ip(&format!("route add 198.51.100.0/24 via {}", pair.at_b.v4));
    let clients = keys
        .into_iter()
        .take(LIVE)
        .enumerate()
        .map(|(number, keys)| {
            let from = format!("198.51.100.{}:0", number + 1).parse().unwrap();
            Client::with_keys(pair.b.udp(from), at, &tunnel.keys.public, keys)
        })
        .collect();
    (tunnel, clients)
}

/// One ping and its answer.
fn alive(client: &mut Client, number: usize, sequence: u16) -> bool {
    let ping = inner::ping(
        address(number),
        GATEWAY.into(),
        sequence,
        &[number as u8; 200],
    );
    client.send(&ping);
    client.expect(LIMIT, inner::is_pong) == Some(sequence)
}

/// Runs `work` for every client, each on a thread.
fn all(clients: &mut [Client], work: impl Fn(usize, &mut Client) + Sync) {
    std::thread::scope(|scope| {
        for (number, client) in clients.iter_mut().enumerate() {
            let work = &work;
            scope.spawn(move || work(number, client));
        }
    });
}

#[test]
fn a_thousand_configured_a_hundred_live() {
    let pair = Pair::new();
    let (tunnel, mut clients) = gateway_with(&pair, 1000);
    assert_eq!(tunnel.show("peers").lines().count(), 1000);
    all(&mut clients, |number, client| {
        assert!(client.handshake(LIMIT), "peer {number}: no handshake");
        for sequence in 0..20 {
            assert!(
                alive(client, number, sequence),
                "peer {number}: ping {sequence} was lost"
            );
        }
    });
    let peers = gateway::json("peers", &tunnel.name);
    let peers = peers["peers"].as_array().unwrap();
    assert_eq!(peers.len(), 1000);
    let connected = peers
        .iter()
        .filter(|peer| !peer["last_handshake_seconds"].is_null())
        .count();
    assert_eq!(connected, LIVE);
    // All of them at once, with new sessions while the old ones are in use.
    all(&mut clients, |number, client| {
        assert!(
            client.handshake(LIMIT),
            "peer {number}: no second handshake"
        );
        assert!(
            alive(client, number, 99),
            "peer {number}: lost after the second handshake"
        );
    });
}

type Step = (&'static str, fn(&mut Client));

/// What a peer does wrong, in the order of a connection's life.
const STEPS: [Step; 9] = [
    ("garbage instead of an initiation", |client| {
        client.send_raw(&[1; 148]);
    }),
    ("an initiation with a wrong MAC1", |client| {
        let mut message = client.initiation();
        message[120] ^= 1;
        client.send_raw(&message);
    }),
    ("an initiation that does not decrypt", |client| {
        let mut message = client.initiation();
        message[50] ^= 1;
        client.seal_again(&mut message);
        client.send_raw(&message);
    }),
    ("an initiation of the past", |client| {
        let message = client.initiation_at(1_000_000_000);
        client.send_raw(&message);
    }),
    ("another preshared key", |client| {
        client.preshared(&config::preshared_key());
        let message = client.initiation();
        client.send_raw(&message);
        assert!(!matches!(client.receive(LIMIT), Some(Received::Response)));
    }),
    ("a session that is never confirmed", |client| {
        let message = client.initiation();
        client.send_raw(&message);
        client.receive(LIMIT);
    }),
    ("data that does not decrypt", |client| {
        if client.handshake(LIMIT) {
            let mut message = client.seal(&[0; 64]);
            message[30] ^= 1;
            client.send_raw(&message);
        }
    }),
    ("an inner packet that is none", |client| {
        if client.handshake(LIMIT) {
            client.send(&[0x99; 64]);
        }
    }),
    ("somebody else's source address", |client| {
        if client.handshake(LIMIT) {
            client.send(&inner::ping(address(50), GATEWAY.into(), 1, &[]));
        }
    }),
];

#[test]
fn one_fails_at_each_step_and_the_other_99_lose_nothing() {
    let pair = Pair::new();
    let (mut tunnel, mut clients) = gateway_with(&pair, LIVE);
    for (index, (step, misbehave)) in STEPS.into_iter().enumerate() {
        all(&mut clients, |number, client| {
            if number == index {
                misbehave(client);
                return;
            }
            // Those that failed before are well again.
            if number < index {
                client.preshared("AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=");
            }
            assert!(
                client.handshake(LIMIT),
                "{step}: peer {number} got no handshake"
            );
            for sequence in 0..5 {
                let lived = alive(client, number, sequence);
                assert!(lived, "{step}: peer {number} lost ping {sequence}");
            }
        });
        tunnel.process.must_run();
    }
}
