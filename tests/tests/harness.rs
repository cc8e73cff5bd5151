//! The harness itself, with peers that are known to work: what fails here is no fault of Ringway.

#![allow(clippy::unwrap_used)]

use std::net::SocketAddr;
use std::time::Duration;

use ringway_tests::client::Client;
use ringway_tests::inner;
use ringway_tests::topology::{Family, Pair};
use ringway_tests::traffic::{self, Flow};
use ringway_tests::tunnel::{Implementation, Tunnel};

#[test]
fn wireguard_go_and_boringtun_talk() {
    let pair = Pair::new();
    let a = Tunnel::start(&pair.a, Implementation::WireguardGo);
    let b = Tunnel::start(&pair.b, Implementation::Boringtun);
    b.set("listen-port 51820");
    b.set(&format!("peer {} allowed-ips 10.9.0.1/32", a.keys.public));
    let endpoint = SocketAddr::new(pair.at_b.address(Family::V4), 51820);
    a.set(&format!(
        "peer {} endpoint {endpoint} allowed-ips 10.9.0.2/32",
        b.keys.public
    ));
    a.up(&["10.9.0.1/24"]);
    b.up(&["10.9.0.2/24"]);
    a.ping("10.9.0.2".parse().unwrap());
    traffic::stream(&pair.a, &pair.b, "10.9.0.2".parse().unwrap(), 1_000_000);
    let flow = Flow::start(
        &pair.a,
        &pair.b,
        "10.9.0.2".parse().unwrap(),
        Duration::from_millis(1),
        200,
    );
    flow.await_more(200, Duration::from_secs(5));
    let outcome = flow.stop();
    assert!(
        outcome.sent >= 200 && outcome.lost.is_empty(),
        "{outcome:?}"
    );
    assert!(a.last_handshake(&b.keys.public) > 0);
}

#[test]
fn the_client_talks_to_wireguard_go() {
    let pair = Pair::new();
    let b = Tunnel::start(&pair.b, Implementation::WireguardGo);
    b.set("listen-port 51820");
    b.up(&["10.9.0.2/24"]);
    let socket = pair.a.udp("0.0.0.0:0".parse().unwrap());
    let gateway = SocketAddr::new(pair.at_b.address(Family::V4), 51820);
    let mut client = Client::new(socket, gateway, &b.keys.public);
    b.set(&format!(
        "peer {} allowed-ips 10.9.0.1/32",
        client.keys.public
    ));
    assert!(client.handshake(Duration::from_secs(5)));
    let (us, them) = ("10.9.0.1".parse().unwrap(), "10.9.0.2".parse().unwrap());
    client.send(&inner::ping(us, them, 7, &[1; 100]));
    let pong = client.expect(Duration::from_secs(2), inner::is_pong);
    assert_eq!(pong, Some(7));
}
