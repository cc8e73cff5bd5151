//! The path to a stock peer shrinks under a flow: the inner sender is told, and large packets pass again.

#![allow(clippy::unwrap_used)]

use std::net::SocketAddr;
use std::time::Duration;

use ringway_tests::namespace::Namespace;
use ringway_tests::topology::{self, Port};
use ringway_tests::tunnel::Implementation::{Ringway, WireguardGo};
use ringway_tests::tunnel::Tunnel;
use ringway_tests::wait;

const PORT: u16 = 51820;
const LIMIT: Duration = Duration::from_secs(5);
/// Outer IPv4 header, UDP, WireGuard.
const OVERHEAD: usize = 60;
/// Inner IPv4 header and ICMP.
const PING: usize = 28;

/// The gateway, a router, a stock peer.
struct Path {
    a: Namespace,
    router: Namespace,
    b: Namespace,
    at_a: Port,
    router_to_a: Port,
    router_to_b: Port,
    at_b: Port,
}

impl Path {
    fn new() -> Path {
        let [a, router, b] = [(); 3].map(|()| Namespace::new());
        let (at_a, router_to_a) = topology::wire(&a, &router, 2);
        let (router_to_b, at_b) = topology::wire(&router, &b, 3);
        router.sysctl("ipv4/ip_forward", "1");
        a.ip(&format!("route add 192.0.3.0/24 via {}", router_to_a.v4));
        b.ip(&format!("route add 192.0.2.0/24 via {}", router_to_b.v4));
        Path {
            a,
            router,
            b,
            at_a,
            router_to_a,
            router_to_b,
            at_b,
        }
    }

    fn tunnels(&self) -> (Tunnel<'_>, Tunnel<'_>) {
        let ours = Tunnel::start(&self.a, Ringway);
        let theirs = Tunnel::start(&self.b, WireguardGo);
        theirs.set(&format!("listen-port {PORT}"));
        theirs.set(&format!(
            "peer {} allowed-ips 10.9.0.1/32",
            ours.keys.public
        ));
        let endpoint = SocketAddr::new(self.at_b.v4.into(), PORT);
        ours.set(&format!(
            "peer {} endpoint {endpoint} allowed-ips 10.9.0.2/32",
            theirs.keys.public
        ));
        ours.up(&["10.9.0.1/24"]);
        theirs.up(&["10.9.0.2/24"]);
        ours.ping("10.9.0.2".parse().unwrap());
        (ours, theirs)
    }

    /// One ping that may not be fragmented, of so many bytes in all.
    fn whole_ping(&self, size: usize) -> ringway_tests::command::Said {
        let size = (size - PING).to_string();
        self.a.attempt(&[
            "ping", "-n", "-c", "1", "-W", "1", "-M", "do", "-s", &size, "10.9.0.2",
        ])
    }
}

fn too_big_is_told_and_smaller_ones_pass(path: &Path, ours: &Tunnel, mtu: usize) {
    wait::holds("the inner sender to be told", LIMIT, || {
        let said = path.whole_ping(1420);
        let text = said.out + &said.err;
        text.contains("Frag needed") || text.contains("essage too long")
    });
    // The greatest that fits, found within the same five seconds.
    wait::holds("a ping of the new size", LIMIT, || {
        path.whole_ping(mtu - OVERHEAD).ok()
    });
    // What may be fragmented passes whatever its size.
    let size = (1420 - PING).to_string();
    let said = path.a.attempt(&[
        "ping", "-n", "-c", "2", "-i", "0.2", "-W", "2", "-M", "dont", "-s", &size, "10.9.0.2",
    ]);
    assert!(said.ok(), "{}{}", said.out, said.err);
    let _ = ours;
}

#[test]
fn a_router_says_fragmentation_needed() {
    let path = Path::new();
    let (ours, _theirs) = path.tunnels();
    assert!(path.whole_ping(1420).ok(), "full size before");
    path.router
        .ip(&format!("link set {} mtu 1280", path.router_to_b.interface));
    path.b
        .ip(&format!("link set {} mtu 1280", path.at_b.interface));
    too_big_is_told_and_smaller_ones_pass(&path, &ours, 1280);
}

#[test]
fn the_gateways_own_link_shrinks() {
    let path = Path::new();
    let (ours, _theirs) = path.tunnels();
    assert!(path.whole_ping(1420).ok(), "full size before");
    path.a
        .ip(&format!("link set {} mtu 1280", path.at_a.interface));
    path.router
        .ip(&format!("link set {} mtu 1280", path.router_to_a.interface));
    too_big_is_told_and_smaller_ones_pass(&path, &ours, 1280);
}

#[test]
fn a_route_to_the_peer_has_a_smaller_mtu() {
    let path = Path::new();
    let (ours, _theirs) = path.tunnels();
    assert!(path.whole_ping(1420).ok(), "full size before");
    let via = path.a.ip("route show 192.0.3.0/24");
    path.a.ip(&format!("route replace {} mtu 1280", via.trim()));
    too_big_is_told_and_smaller_ones_pass(&path, &ours, 1280);
}
