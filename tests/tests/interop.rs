//! Every stock implementation in both roles, over both families outside, with and without a preshared key,
//! both families inside, data in both directions.

#![allow(clippy::unwrap_used)]

use std::net::{IpAddr, SocketAddr};

use ringway_tests::config;
use ringway_tests::topology::{Family, Pair};
use ringway_tests::traffic;
use ringway_tests::tunnel::Implementation::{self, Boringtun, Ringway, WireguardGo};
use ringway_tests::tunnel::Tunnel;

#[derive(Clone, Copy, PartialEq)]
enum Role {
    RingwayInitiates,
    RingwayResponds,
}
use Role::{RingwayInitiates, RingwayResponds};

const PORT: u16 = 51820;
const BYTES: usize = 1_500_000;

fn exchange(peer: Implementation, role: Role, outside: Family, psk: bool) {
    let pair = Pair::new();
    let ours = Tunnel::start(&pair.a, Ringway);
    let theirs = Tunnel::start(&pair.b, peer);
    ours.set(&format!("listen-port {PORT}"));
    theirs.set(&format!("listen-port {PORT}"));

    let key = if psk {
        config::preshared_key()
    } else {
        String::new()
    };
    // All at once: boringtun takes no second message about a peer.
    let connect = |from: &Tunnel, to: &Tunnel, host: u8, endpoint: Option<IpAddr>| {
        let allowed = format!("10.9.0.{host}/32,fd00:9::{host}/128");
        let endpoint = endpoint.map(|address| SocketAddr::new(address, PORT).to_string());
        let mut words = vec!["peer", &to.keys.public, "allowed-ips", &allowed];
        if let Some(endpoint) = &endpoint {
            words.extend(["endpoint", endpoint]);
        }
        if psk {
            words.extend(["preshared-key", "/dev/stdin"]);
        }
        from.feed(&words, &key);
    };
    let towards = |role_of: Role, address| (role == role_of).then_some(address);
    connect(
        &ours,
        &theirs,
        2,
        towards(RingwayInitiates, pair.at_b.address(outside)),
    );
    connect(
        &theirs,
        &ours,
        1,
        towards(RingwayResponds, pair.at_a.address(outside)),
    );
    ours.up(&["10.9.0.1/24", "fd00:9::1/64"]);
    theirs.up(&["10.9.0.2/24", "fd00:9::2/64"]);

    let inside = |host: u8| -> [IpAddr; 2] {
        [
            format!("10.9.0.{host}").parse().unwrap(),
            format!("fd00:9::{host}").parse().unwrap(),
        ]
    };
    let (first, second) = match role {
        RingwayInitiates => (&ours, &theirs),
        RingwayResponds => (&theirs, &ours),
    };
    let (of_first, of_second) = match role {
        RingwayInitiates => (inside(1), inside(2)),
        RingwayResponds => (inside(2), inside(1)),
    };
    for (at_first, at_second) in of_first.into_iter().zip(of_second) {
        first.ping(at_second);
        second.ping(at_first);
        traffic::stream(first.namespace, second.namespace, at_second, BYTES);
        traffic::stream(second.namespace, first.namespace, at_first, BYTES);
    }
    assert!(
        ours.last_handshake(&theirs.keys.public) > 0,
        "no time of the last handshake"
    );
    let (received, sent) = ours.transfer(&theirs.keys.public);
    let least = 2 * BYTES as u64;
    assert!(
        received > least && sent > least,
        "transfer {received}, {sent}"
    );
}

macro_rules! matrix {
    ($($name:ident: $peer:expr, $role:expr, $family:expr, $psk:expr;)*) => {
        $(#[test] fn $name() { exchange($peer, $role, $family, $psk); })*
    };
}

matrix! {
    to_wireguard_go_v4: WireguardGo, RingwayInitiates, Family::V4, false;
    to_wireguard_go_v4_psk: WireguardGo, RingwayInitiates, Family::V4, true;
    to_wireguard_go_v6: WireguardGo, RingwayInitiates, Family::V6, false;
    to_wireguard_go_v6_psk: WireguardGo, RingwayInitiates, Family::V6, true;
    from_wireguard_go_v4: WireguardGo, RingwayResponds, Family::V4, false;
    from_wireguard_go_v4_psk: WireguardGo, RingwayResponds, Family::V4, true;
    from_wireguard_go_v6: WireguardGo, RingwayResponds, Family::V6, false;
    from_wireguard_go_v6_psk: WireguardGo, RingwayResponds, Family::V6, true;
    to_boringtun_v4: Boringtun, RingwayInitiates, Family::V4, false;
    to_boringtun_v4_psk: Boringtun, RingwayInitiates, Family::V4, true;
    to_boringtun_v6: Boringtun, RingwayInitiates, Family::V6, false;
    to_boringtun_v6_psk: Boringtun, RingwayInitiates, Family::V6, true;
    from_boringtun_v4: Boringtun, RingwayResponds, Family::V4, false;
    from_boringtun_v4_psk: Boringtun, RingwayResponds, Family::V4, true;
    from_boringtun_v6: Boringtun, RingwayResponds, Family::V6, false;
    from_boringtun_v6_psk: Boringtun, RingwayResponds, Family::V6, true;
    to_ringway_v4: Ringway, RingwayInitiates, Family::V4, false;
    to_ringway_v6_psk: Ringway, RingwayInitiates, Family::V6, true;
}
