//! Sessions are renewed under traffic and no packet is lost.

#![allow(clippy::unwrap_used)]

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use ringway_tests::topology::{Family, Pair};
use ringway_tests::traffic::Flow;
use ringway_tests::tunnel::Implementation::{self, Boringtun, Ringway, WireguardGo};
use ringway_tests::tunnel::Tunnel;
use ringway_tests::wait;

const PORT: u16 = 51820;
const REKEYS: u64 = 4;
const PACE: Duration = Duration::from_millis(1);

/// A flow in each direction while sessions follow each other; `timers` go to Ringway alone.
fn under_traffic(peer: Implementation, timers: &str) {
    let pair = Pair::new();
    let environment = [("RINGWAY_TEST_TIMERS", timers)];
    let ours = Tunnel::start_with(&pair.a, Ringway, &environment, &[]);
    let theirs = Tunnel::start_with(&pair.b, peer, &environment, &[]);
    theirs.set(&format!("listen-port {PORT}"));
    theirs.set(&format!(
        "peer {} allowed-ips 10.9.0.1/32",
        ours.keys.public
    ));
    let endpoint = SocketAddr::new(pair.at_b.address(Family::V4), PORT);
    ours.set(&format!(
        "peer {} endpoint {endpoint} allowed-ips 10.9.0.2/32",
        theirs.keys.public
    ));
    ours.up(&["10.9.0.1/24"]);
    theirs.up(&["10.9.0.2/24"]);
    let (us, them): (IpAddr, IpAddr) = ("10.9.0.1".parse().unwrap(), "10.9.0.2".parse().unwrap());
    ours.ping(them);

    let there = Flow::start(&pair.a, &pair.b, them, PACE, 600);
    let back = Flow::start(&pair.b, &pair.a, us, PACE, 600);
    let mut last = ours.last_handshake(&theirs.keys.public);
    for number in 0..REKEYS {
        last = wait::until(&format!("rekey {number}"), Duration::from_secs(10), || {
            let now = ours.last_handshake(&theirs.keys.public);
            (now > last).then_some(now)
        });
        there.await_more(100, Duration::from_secs(2));
        back.await_more(100, Duration::from_secs(2));
    }
    for (direction, flow) in [("there", there), ("back", back)] {
        let outcome = flow.stop();
        assert!(
            outcome.sent > 2000,
            "{direction}: only {} sent",
            outcome.sent
        );
        assert!(
            outcome.lost.is_empty() && outcome.twice.is_empty(),
            "{direction}: of {} lost {:?}, twice {:?}",
            outcome.sent,
            outcome.lost,
            outcome.twice
        );
    }
}

#[test]
fn between_two_ringways_by_time() {
    under_traffic(
        Ringway,
        "rekey_after=2,rekey_timeout=1,reject_after=8,keepalive=2",
    );
}

#[test]
fn between_two_ringways_by_messages() {
    under_traffic(Ringway, "rekey_after_messages=1500,rekey_timeout=1");
}

#[test]
fn with_wireguard_go() {
    under_traffic(WireguardGo, "rekey_after=2,rekey_timeout=1");
}

#[test]
fn with_boringtun() {
    under_traffic(Boringtun, "rekey_after=2,rekey_timeout=1");
}

#[test]
fn an_expired_session_is_replaced_when_traffic_comes_back() {
    let timers = "rekey_after=1,rekey_timeout=1,reject_after=2,keepalive=1";
    let pair = Pair::new();
    let environment = [("RINGWAY_TEST_TIMERS", timers)];
    let ours = Tunnel::start_with(&pair.a, Ringway, &environment, &[]);
    let theirs = Tunnel::start(&pair.b, WireguardGo);
    theirs.set(&format!("listen-port {PORT}"));
    theirs.set(&format!(
        "peer {} allowed-ips 10.9.0.1/32",
        ours.keys.public
    ));
    let endpoint = SocketAddr::new(pair.at_b.address(Family::V4), PORT);
    ours.set(&format!(
        "peer {} endpoint {endpoint} allowed-ips 10.9.0.2/32",
        theirs.keys.public
    ));
    ours.up(&["10.9.0.1/24"]);
    theirs.up(&["10.9.0.2/24"]);
    let them: IpAddr = "10.9.0.2".parse().unwrap();
    ours.ping(them);
    let first = ours.last_handshake(&theirs.keys.public);
    // Three times reject_after without traffic, then zeroing; the clock of `wg show` must move on.
    wait::holds("the keys to grow old", Duration::from_secs(12), || {
        ringway_tests::client::unix_ns() / 1_000_000_000 > first + 7
    });
    ours.ping(them);
    assert!(ours.last_handshake(&theirs.keys.public) > first);
}
