//! Either end moves, and the other follows, but only after something new that is authentic.

#![allow(clippy::unwrap_used)]

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use ringway_tests::client::Client;
use ringway_tests::topology::{Family, Pair};
use ringway_tests::traffic;
use ringway_tests::tunnel::Implementation::{Ringway, WireguardGo};
use ringway_tests::tunnel::Tunnel;
use ringway_tests::{gateway, inner, wait};

const PORT: u16 = 51820;
const LIMIT: Duration = Duration::from_secs(5);

fn inside(host: u8) -> IpAddr {
    format!("10.9.0.{host}").parse().unwrap()
}

#[test]
fn a_stock_peer_moves_and_then_the_gateway() {
    let pair = Pair::new();
    let ours = Tunnel::start(&pair.a, Ringway);
    let theirs = Tunnel::start(&pair.b, WireguardGo);
    ours.set(&format!("listen-port {PORT}"));
    theirs.set(&format!("listen-port {PORT}"));
    ours.set(&format!(
        "peer {} allowed-ips 10.9.0.2/32",
        theirs.keys.public
    ));
    let endpoint = SocketAddr::new(pair.at_a.address(Family::V4), PORT);
    theirs.set(&format!(
        "peer {} endpoint {endpoint} allowed-ips 10.9.0.1/32",
        ours.keys.public
    ));
    ours.up(&["10.9.0.1/24"]);
    theirs.up(&["10.9.0.2/24"]);
    theirs.ping(inside(1));
    let known =
        |tunnel: &Tunnel, of: &Tunnel| tunnel.show_peer("endpoints", &of.keys.public).concat();
    assert_eq!(known(&ours, &theirs), format!("{}:{PORT}", pair.at_b.v4));

    // The peer changes its port, then its address, then its family.
    theirs.set("listen-port 51999");
    theirs.ping(inside(1));
    wait::holds("the new port", LIMIT, || {
        known(&ours, &theirs).ends_with(":51999")
    });
    ours.ping(inside(2));

    let port = &pair.at_b.interface;
    pair.b.sysctl("ipv4/conf/all/promote_secondaries", "1");
    pair.b.ip(&format!("address add 192.0.2.77/24 dev {port}"));
    pair.b
        .ip(&format!("address del {}/24 dev {port}", pair.at_b.v4));
    // The peer's own idea of its address goes with the endpoint.
    theirs.set(&format!("peer {} endpoint {endpoint}", ours.keys.public));
    theirs.ping(inside(1));
    wait::holds("the new address", LIMIT, || {
        known(&ours, &theirs).starts_with("192.0.2.77:")
    });
    ours.ping(inside(2));

    // The old address goes for good: an answer sent there meanwhile would call the peer back.
    pair.b.ip(&format!("address del 192.0.2.77/24 dev {port}"));
    let six = SocketAddr::new(pair.at_a.address(Family::V6), PORT);
    theirs.set(&format!("peer {} endpoint {six}", ours.keys.public));
    theirs.ping(inside(1));
    wait::holds("the other family", LIMIT, || {
        known(&ours, &theirs).starts_with("[2001:db8:")
    });
    ours.ping(inside(2));

    // The gateway moves: a new port, and it speaks first.
    ours.set("listen-port 51888");
    ours.ping(inside(2));
    wait::holds("the gateway's port", LIMIT, || {
        known(&theirs, &ours).ends_with(":51888")
    });
    theirs.ping(inside(1));
    traffic::stream(&pair.b, &pair.a, inside(1), 1_000_000);
}

#[test]
fn only_new_authentic_data_moves_an_endpoint() {
    let pair = Pair::new();
    let ours = Tunnel::start(&pair.a, Ringway);
    ours.set(&format!("listen-port {PORT}"));
    ours.up(&["10.9.0.1/24"]);
    let here = pair.b.udp("0.0.0.0:0".parse().unwrap());
    let there = pair.b.udp("0.0.0.0:0".parse().unwrap());
    let gateway = SocketAddr::new(pair.at_a.address(Family::V4), PORT);
    let mut client = Client::new(here.try_clone().unwrap(), gateway, &ours.keys.public);
    ours.set(&format!(
        "peer {} allowed-ips 10.9.0.2/32",
        client.keys.public
    ));
    let initiation = client.initiation();
    client.send_raw(&initiation);
    assert!(matches!(
        client.receive(LIMIT),
        Some(ringway_tests::client::Received::Response)
    ));
    let ports = [&here, &there].map(|socket| socket.local_addr().unwrap().port());
    let key = client.keys.public.clone();
    let known = || {
        let endpoint = ours.show_peer("endpoints", &key).concat();
        endpoint
            .rsplit_once(':')
            .and_then(|(_, port)| port.parse::<u16>().ok())
            .unwrap_or(0)
    };
    wait::holds("the endpoint", LIMIT, || known() == ports[0]);

    let pings = [1, 2].map(|sequence| inner::ping(inside(2), inside(1), sequence, &[0; 32]));
    let first = client.seal(&pings[0]);
    client.send_raw(&first);
    assert_eq!(client.expect(LIMIT, inner::is_pong), Some(1));

    // Replays of the data and of the initiation, from elsewhere; then a forgery with the right index.
    let replays = gateway::dropped(&ours.name, "replay");
    there.send_to(&first, gateway).unwrap();
    wait::holds("the replay to be counted", LIMIT, || {
        gateway::dropped(&ours.name, "replay") > replays
    });
    let stamps = gateway::dropped(&ours.name, "timestamp_replay");
    there.send_to(&initiation, gateway).unwrap();
    wait::holds("the old time stamp to be counted", LIMIT, || {
        gateway::dropped(&ours.name, "timestamp_replay") > stamps
    });
    let forged = gateway::dropped(&ours.name, "decrypt");
    let mut bytes = client.seal(&pings[1]);
    bytes[20] ^= 1;
    there.send_to(&bytes, gateway).unwrap();
    wait::holds("the forgery to be counted", LIMIT, || {
        gateway::dropped(&ours.name, "decrypt") > forged
    });
    assert_eq!(known(), ports[0]);

    // Fresh data from there moves it, and its own answer already goes there.
    client.socket = there;
    client.send(&inner::ping(inside(2), inside(1), 2, &[0; 32]));
    assert_eq!(client.expect(LIMIT, inner::is_pong), Some(2));
    wait::holds("the endpoint to move", LIMIT, || known() == ports[1]);
}
