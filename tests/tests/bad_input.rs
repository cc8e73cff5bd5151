//! What is broken, forged or repeated is dropped, counted by reason, and hurts nobody.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use ringway_tests::client::{Client, Received};
use ringway_tests::process::{alive, descendants};
use ringway_tests::topology::{Family, Pair};
use ringway_tests::tunnel::{Implementation, Tunnel};
use ringway_tests::{gateway, inner, wait};

const PORT: u16 = 51820;
const LIMIT: Duration = Duration::from_secs(5);

/// A gateway and one connected client.
struct Scene<'a> {
    tunnel: Tunnel<'a>,
    client: Client,
    children: Vec<u32>,
    sequence: u16,
}

fn us() -> IpAddr {
    "10.9.0.2".parse().unwrap()
}

fn them() -> IpAddr {
    "10.9.0.1".parse().unwrap()
}

impl<'a> Scene<'a> {
    fn new(pair: &'a Pair) -> Scene<'a> {
        let tunnel = Tunnel::start(&pair.a, Implementation::Ringway);
        tunnel.set(&format!("listen-port {PORT}"));
        tunnel.up(&["10.9.0.1/24"]);
        let socket = pair.b.udp("0.0.0.0:0".parse().unwrap());
        let at = SocketAddr::new(pair.at_a.address(Family::V4), PORT);
        let mut client = Client::new(socket, at, &tunnel.keys.public);
        tunnel.set(&format!(
            "peer {} allowed-ips 10.9.0.2/32",
            client.keys.public
        ));
        assert!(client.handshake(LIMIT), "no handshake");
        let children = descendants(tunnel.process.pid());
        let mut scene = Scene {
            tunnel,
            client,
            children,
            sequence: 0,
        };
        scene.is_well();
        scene
    }

    /// Everything lives and the client is served.
    fn is_well(&mut self) {
        self.tunnel.process.must_run();
        for &pid in &self.children {
            assert!(
                alive(pid),
                "process {pid} died; the daemon printed:\n{}",
                self.tunnel.process.printed()
            );
        }
        self.sequence += 1;
        let sequence = self.sequence;
        self.client
            .send(&inner::ping(us(), them(), sequence, &[3; 64]));
        let answer = self.client.expect(LIMIT, |packet| {
            inner::is_pong(packet).filter(|&at| at == sequence)
        });
        assert_eq!(answer, Some(sequence), "the client is no longer served");
    }

    fn counts(&self) -> BTreeMap<String, u64> {
        gateway::drops(&self.tunnel.name)
    }

    /// Does something and waits until one of `reasons` has counted `count` more.
    fn counted(&mut self, what: &str, reasons: &[&str], count: u64, act: impl FnOnce(&mut Client)) {
        let sum = |counts: &BTreeMap<String, u64>| -> u64 {
            reasons
                .iter()
                .filter_map(|reason| counts.get(*reason))
                .sum()
        };
        let before = self.counts();
        act(&mut self.client);
        let seen = wait::maybe(LIMIT, || {
            (sum(&self.counts()) >= sum(&before) + count).then_some(())
        });
        assert!(
            seen.is_some(),
            "{what}: {reasons:?} did not count {count} more\nbefore {before:?}\nafter {:?}",
            self.counts()
        );
        self.is_well();
    }
}

#[test]
fn outside() {
    let pair = Pair::new();
    let mut scene = Scene::new(&pair);
    scene.counted("nothing", &["truncated", "bad_type"], 1, |client| {
        client.send_raw(&[]);
    });
    scene.counted("too short", &["truncated", "bad_type"], 3, |client| {
        for bytes in [
            &[4][..],
            &[4, 0, 0, 0],
            &[4, 0, 0, 0, 1, 2, 3, 4, 0, 0, 0, 0, 0, 0, 0, 0],
        ] {
            client.send_raw(bytes);
        }
    });
    scene.counted(
        "of no type",
        &["bad_type", "truncated", "oversized"],
        300,
        |client| {
            for number in 0..300_u32 {
                let mut bytes = vec![0x5a; number as usize * 4 + 8];
                bytes[..4].copy_from_slice(&(number + 5).to_le_bytes());
                client.send_raw(&bytes);
            }
        },
    );
    scene.counted(
        "a long initiation",
        &["oversized", "truncated", "bad_type"],
        1,
        |client| {
            let mut bytes = client.initiation();
            bytes.push(0);
            client.send_raw(&bytes);
        },
    );
    scene.counted(
        "the longest datagram",
        &["unknown_index", "oversized", "bad_type"],
        1,
        |client| {
            let mut bytes = vec![0; 65000];
            bytes[0] = 4;
            client.send_raw(&bytes);
        },
    );
    scene.counted("unknown indices", &["unknown_index"], 100, |client| {
        for index in 0..100_u32 {
            let mut bytes = vec![0; 64];
            bytes[0] = 4;
            bytes[4..8].copy_from_slice(&index.wrapping_mul(0x9e37_79b9).to_le_bytes());
            client.send_raw(&bytes);
        }
    });
    scene.counted("a wrong MAC1", &["bad_mac1"], 1, |client| {
        let mut bytes = client.initiation();
        bytes[116] ^= 1;
        client.send_raw(&bytes);
    });
    scene.counted(
        "a response to nothing",
        &["bad_handshake", "unknown_index", "bad_mac1", "decrypt"],
        1,
        |client| {
            let mut bytes = vec![0; 92];
            bytes[0] = 2;
            client.seal_again(&mut bytes);
            client.send_raw(&bytes);
        },
    );
    scene.counted(
        "a cookie for nothing",
        &["bad_cookie", "unknown_index", "bad_handshake"],
        1,
        |client| {
            let mut bytes = vec![7; 64];
            bytes[..4].copy_from_slice(&[3, 0, 0, 0]);
            client.send_raw(&bytes);
        },
    );
    scene.counted(
        "a point of low order",
        &["low_order_point", "bad_handshake", "decrypt"],
        1,
        |client| {
            let mut bytes = client.initiation();
            bytes[8..40].fill(0);
            client.seal_again(&mut bytes);
            client.send_raw(&bytes);
        },
    );
    scene.counted("a peer that is unknown", &["unknown_peer"], 1, |client| {
        let socket = client.socket.try_clone().unwrap();
        let mut stranger = Client::new(socket, client.gateway, &client.gateway_key());
        let bytes = stranger.initiation();
        stranger.send_raw(&bytes);
    });
}

#[test]
fn replayed_and_flipped() {
    let pair = Pair::new();
    let mut scene = Scene::new(&pair);
    scene.counted("data again", &["replay"], 3, |client| {
        let bytes = client.seal(&[]);
        for _ in 0..4 {
            client.send_raw(&bytes);
        }
    });
    scene.counted("an initiation again", &["timestamp_replay"], 1, |client| {
        let bytes = client.initiation();
        client.send_raw(&bytes);
        assert!(matches!(client.receive(LIMIT), Some(Received::Response)));
        client.send(&[]);
        client.send_raw(&bytes);
    });
    let every_bit = 8 * 148;
    let reasons = [
        "bad_mac1",
        "bad_type",
        "truncated",
        "oversized",
        "decrypt",
        "bad_handshake",
        "rate_limited",
        "unknown_index",
    ];
    scene.counted(
        "an initiation with one bit flipped",
        &reasons,
        every_bit / 2,
        |client| {
            let message = client.initiation();
            for bit in 0..every_bit as usize {
                // MAC2 is not looked at as long as there is no load.
                if bit / 8 < 132 {
                    let mut bytes = message.clone();
                    bytes[bit / 8] ^= 1 << (bit % 8);
                    client.send_raw(&bytes);
                }
            }
        },
    );
    scene.counted(
        "data with one bit flipped",
        &["decrypt", "replay"],
        300,
        |client| {
            let message = client.seal(&inner::ping(us(), them(), 999, &[5; 24]));
            for bit in 128..message.len() * 8 {
                let mut bytes = message.clone();
                bytes[bit / 8] ^= 1 << (bit % 8);
                client.send_raw(&bytes);
            }
        },
    );
}

#[test]
fn inside() {
    let pair = Pair::new();
    let mut scene = Scene::new(&pair);
    scene.counted("another's source", &["forged_source"], 2, |client| {
        client.send(&inner::ping("10.9.0.3".parse().unwrap(), them(), 1, &[]));
        client.send(&inner::ping(
            "fd00::1".parse().unwrap(),
            "fd00::2".parse().unwrap(),
            1,
            &[],
        ));
    });
    scene.counted("neither IPv4 nor IPv6", &["not_ip"], 3, |client| {
        client.send(&[0; 32]);
        client.send(&[0x50; 32]);
        client.send(&[0xff; 32]);
    });
    scene.counted("shorter than it says", &["inner_truncated"], 3, |client| {
        let packet = inner::ping(us(), them(), 1, &[0; 200]);
        client.send(&packet[..100]);
        client.send(&packet[..16]);
        client.send(&[0x60; 32]);
    });
}

#[test]
fn garbage_by_the_thousand() {
    let pair = Pair::new();
    let mut scene = Scene::new(&pair);
    let mut state = 0x1234_5678_u64;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    for _ in 0..10 {
        for _ in 0..500 {
            let length = random() as usize % 1400;
            let mut bytes: Vec<u8> = (0..length).map(|_| random() as u8).collect();
            if length > 4 && random() % 2 == 0 {
                bytes[..4].copy_from_slice(&[random() as u8 % 6, 0, 0, 0]);
            }
            scene.client.send_raw(&bytes);
        }
        scene.is_well();
    }
    assert!(
        scene.counts().values().sum::<u64>() >= 4000,
        "{:?}",
        scene.counts()
    );
    let printed = scene.tunnel.process.printed();
    assert!(
        printed.lines().count() < 50,
        "the daemon logs per packet:\n{printed}"
    );
    assert!(!printed.contains("panicked"), "{printed}");
}
