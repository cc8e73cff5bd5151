//! Two uplinks: a reply leaves by the address and the device that the request came to, whatever the routes
//! say, and by another when that address goes.

#![allow(clippy::unwrap_used)]

use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::time::Duration;

use nix::sys::socket::{setsockopt, sockopt};
use ringway_tests::client::Client;
use ringway_tests::inner;
use ringway_tests::namespace::Namespace;
use ringway_tests::topology;
use ringway_tests::tunnel::{Implementation, Tunnel};

const PORT: u16 = 51820;
const LIMIT: Duration = Duration::from_secs(5);

#[test]
fn a_reply_leaves_where_the_request_came_in() {
    let (a, b) = (Namespace::new(), Namespace::new());
    let (first, b_first) = topology::wire(&a, &b, 2);
    let (second, b_second) = topology::wire(&a, &b, 3);
    for namespace in [&a, &b] {
        for which in [
            "all",
            "default",
            &first.interface,
            &second.interface,
            &b_first.interface,
            &b_second.interface,
        ] {
            let path = format!("/proc/sys/net/ipv4/conf/{which}/rp_filter");
            namespace.enter(move || drop(std::fs::write(path, "0")));
        }
    }
    // The client's address is behind both, and the routes prefer the first.
    b.ip("address add 198.51.100.1/32 dev lo");
    a.ip(&format!(
        "route add 198.51.100.0/24 via {} metric 10",
        b_first.v4
    ));
    a.ip(&format!(
        "route add 198.51.100.0/24 via {} metric 20",
        b_second.v4
    ));

    let tunnel = Tunnel::start(&a, Implementation::Ringway);
    tunnel.set(&format!("listen-port {PORT}"));
    tunnel.up(&["10.9.0.1/24"]);
    let mut keys = None;
    for (number, (ours, theirs)) in [
        (&second, &b_second),
        (&first, &b_first),
        (&second, &b_second),
    ]
    .into_iter()
    .enumerate()
    {
        let gateway = SocketAddr::new(ours.v4.into(), PORT);
        let device = theirs.interface.clone();
        let socket = b.udp("198.51.100.1:0".parse().unwrap());
        let socket = b.enter(move || {
            setsockopt(&socket.as_fd(), sockopt::BindToDevice, &device.into()).unwrap();
            socket
        });
        let mut client = match keys.take() {
            Some(keys) => Client::with_keys(socket, gateway, &tunnel.keys.public, keys),
            None => Client::new(socket, gateway, &tunnel.keys.public),
        };
        tunnel.set(&format!(
            "peer {} allowed-ips 10.9.0.2/32",
            client.keys.public
        ));
        // Bound to its device and connected to the gateway's address, it hears nothing that comes another way.
        client.socket.connect(gateway).unwrap();
        assert!(
            client.handshake(LIMIT),
            "round {number}: the response left elsewhere"
        );
        // The very first answer leaves by the new session and the new way.
        let (us, them) = ("10.9.0.2".parse().unwrap(), "10.9.0.1".parse().unwrap());
        client.send(&inner::ping(us, them, 1, &[0; 300]));
        assert_eq!(
            client.expect(LIMIT, inner::is_pong),
            Some(1),
            "round {number}: the data left elsewhere"
        );
        keys = Some(client.keys.clone());
    }

    // The address that was spoken to goes: the peer is reached from another.
    a.ip(&format!(
        "address del {}/24 dev {}",
        second.v4, second.interface
    ));
    let listener = b.udp("198.51.100.1:40000".parse().unwrap());
    let key = keys.unwrap().public;
    tunnel.set(&format!("peer {key} endpoint 198.51.100.1:40000"));
    let _ = a.attempt(&["ping", "-n", "-c", "1", "-W", "1", "10.9.0.2"]);
    listener.set_read_timeout(Some(LIMIT)).unwrap();
    let mut bytes = [0; 2048];
    let (_, from) = listener
        .recv_from(&mut bytes)
        .expect("something from another address");
    assert_eq!(from.ip().to_string(), first.v4.to_string());
}
