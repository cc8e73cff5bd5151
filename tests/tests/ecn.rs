//! ECN goes through the tunnel as RFC 6040 says; the rest of the traffic class stays inside.

#![allow(clippy::unwrap_used)]

use std::net::SocketAddr;
use std::time::Duration;

use ringway_tests::process::Process;
use ringway_tests::topology::{Family, Pair};
use ringway_tests::tunnel::Implementation::{Ringway, WireguardGo};
use ringway_tests::tunnel::Tunnel;
use ringway_tests::wait;

const PORT: u16 = 51820;

/// The outer traffic class of what leaves while the inner packets have `inner`.
fn outer_class(family: Family, inner: u8) -> u8 {
    let pair = Pair::new();
    let ours = Tunnel::start(&pair.a, Ringway);
    let theirs = Tunnel::start(&pair.b, WireguardGo);
    theirs.set(&format!("listen-port {PORT}"));
    theirs.set(&format!(
        "peer {} allowed-ips 10.9.0.1/32",
        ours.keys.public
    ));
    let endpoint = SocketAddr::new(pair.at_b.address(family), PORT);
    ours.set(&format!(
        "peer {} endpoint {endpoint} allowed-ips 10.9.0.2/32",
        theirs.keys.public
    ));
    ours.up(&["10.9.0.1/24"]);
    theirs.up(&["10.9.0.2/24"]);
    ours.ping("10.9.0.2".parse().unwrap());
    // Data of exactly this length is the ping; keepalives and handshakes are shorter.
    let dump = pair.b.words(&[
        "tcpdump",
        "-n",
        "-l",
        "-x",
        "-i",
        &pair.at_b.interface,
        "-c",
        "1",
        &format!("udp dst port {PORT} and greater 400"),
    ]);
    let dump = Process::start(&dump, &[]);
    wait::holds("tcpdump to listen", Duration::from_secs(5), || {
        dump.printed().contains("listening on")
    });
    let class = inner.to_string();
    pair.a.run(&[
        "ping", "-n", "-q", "-c", "5", "-i", "0.2", "-s", "400", "-Q", &class, "10.9.0.2",
    ]);
    let text = wait::until("a captured packet", Duration::from_secs(5), || {
        let printed = dump.printed();
        printed.contains("0x0010:").then_some(printed)
    });
    let line = text.lines().find(|line| line.contains("0x0000:")).unwrap();
    let first: Vec<&str> = line.split_whitespace().skip(1).collect();
    let word = u16::from_str_radix(first[0], 16).unwrap();
    match family {
        Family::V4 => word as u8,
        Family::V6 => (word >> 4) as u8,
    }
}

#[test]
fn only_ecn_is_copied_outside_v4() {
    assert_eq!(outer_class(Family::V4, 0xb8), 0x00);
    assert_eq!(outer_class(Family::V4, 0xb8 | 2), 0x02);
}

#[test]
fn only_ecn_is_copied_outside_v6() {
    assert_eq!(outer_class(Family::V6, 0xb8 | 1), 0x01);
    assert_eq!(outer_class(Family::V6, 0x20), 0x00);
}

/// Congestion met outside arrives inside; where the inner packet can't carry it, the packet does not arrive.
#[test]
fn congestion_outside_arrives_inside() {
    use ringway_tests::client::Client;
    use ringway_tests::{gateway, inner};
    let pair = Pair::new();
    let ours = Tunnel::start(&pair.a, Ringway);
    ours.set(&format!("listen-port {PORT}"));
    ours.up(&["10.9.0.1/24"]);
    let socket = pair.b.udp("0.0.0.0:0".parse().unwrap());
    let at = SocketAddr::new(pair.at_a.address(Family::V4), PORT);
    let mut client = Client::new(socket, at, &ours.keys.public);
    ours.set(&format!(
        "peer {} allowed-ips 10.9.0.2/32",
        client.keys.public
    ));
    assert!(client.handshake(Duration::from_secs(5)));

    let capture = pair.a.words(&[
        "tcpdump",
        "-n",
        "-l",
        "-x",
        "-i",
        &ours.name,
        "icmp[0] == 8",
    ]);
    let capture = Process::start(&capture, &[]);
    wait::holds("tcpdump to listen", Duration::from_secs(5), || {
        capture.printed().contains("listening on")
    });
    nix::sys::socket::setsockopt(&client.socket, nix::sys::socket::sockopt::Ipv4Tos, &3).unwrap();
    let (us, them) = ("10.9.0.2".parse().unwrap(), "10.9.0.1".parse().unwrap());
    let mut capable = inner::ping(us, them, 1, &[0; 32]);
    // ECT(0), and the checksum of one more bit.
    capable[1] = 2;
    let sum = u16::from_be_bytes([capable[10], capable[11]]);
    capable[10..12].copy_from_slice(&sum.wrapping_sub(2).to_be_bytes());
    client.send(&capable);
    assert_eq!(
        client.expect(Duration::from_secs(3), inner::is_pong),
        Some(1),
        "the header's checksum is right"
    );
    wait::holds(
        "the ping with congestion experienced",
        Duration::from_secs(3),
        || capture.printed().contains("0x0000:  4503"),
    );
    let before = gateway::dropped(&ours.name, "ecn_drop");
    client.send(&inner::ping(us, them, 2, &[0; 32]));
    wait::holds("the other to be dropped", Duration::from_secs(3), || {
        gateway::dropped(&ours.name, "ecn_drop") > before
    });
}
