//! A gateway that is told to come with a cookie does so, and a cookie reply from elsewhere changes nothing.

#![allow(clippy::unwrap_used)]

use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use ringway_proto::cookie::{MacChecker, MacVerdict};
use ringway_proto::keys::PublicKey;
use ringway_proto::time::Instant;
use ringway_proto::wire::Initiation;
use ringway_tests::config::KeyPair;
use ringway_tests::process::Process;
use ringway_tests::topology::Pair;
use ringway_tests::tunnel::{Implementation, Tunnel};

/// The next datagram of an initiation's length, with who sent it.
fn initiation(socket: &UdpSocket, limit: Duration) -> Option<(Vec<u8>, SocketAddr)> {
    socket.set_read_timeout(Some(limit)).unwrap();
    let mut bytes = vec![0; 2048];
    loop {
        let (length, from) = socket.recv_from(&mut bytes).ok()?;
        if length == Initiation::LEN {
            return Some((bytes[..length].to_vec(), from));
        }
    }
}

#[test]
fn a_cookie_reply_replayed_from_another_address_moves_no_endpoint() {
    let pair = Pair::new();
    let timers = [("RINGWAY_TEST_TIMERS", "rekey_timeout=1,jitter=0.1")];
    let mut ours = Tunnel::start_with(&pair.a, Implementation::Ringway, &timers, &[]);
    ours.up(&["10.9.0.1/24"]);
    let peer = KeyPair::new();
    let right = pair.b.udp(SocketAddr::new(pair.at_b.v4.into(), 51820));
    pair.b.ip(&format!(
        "address add 192.0.2.66/24 dev {}",
        pair.at_b.interface
    ));
    let wrong = pair.b.udp("192.0.2.66:51820".parse().unwrap());
    let endpoint = right.local_addr().unwrap();
    ours.set(&format!(
        "peer {} endpoint {endpoint} allowed-ips 10.9.0.2/32",
        peer.public
    ));

    let mut checker = MacChecker::new(&PublicKey::from_base64(&peer.public).unwrap());
    let now = Instant(1_000_000_000_000);
    let words = pair.a.words(&["ping", "-n", "-i", "0.2", "10.9.0.2"]);
    let _pings = Process::start(&words, &[]);

    let (message, from) = initiation(&right, Duration::from_secs(5)).expect("an initiation");
    assert_eq!(
        checker.check(&message, from, true, now),
        MacVerdict::Mac1Only
    );
    let sender = u32::from_le_bytes(message[4..8].try_into().unwrap());
    let reply = checker
        .cookie_reply(&message, sender, from, now)
        .unwrap()
        .to_bytes();
    right.send_to(&reply, from).unwrap();
    // The same bytes, and some that open to nothing, from elsewhere; before and after the next initiation.
    wrong.send_to(&reply, from).unwrap();

    for round in 0..3 {
        let (message, from) =
            initiation(&right, Duration::from_secs(5)).expect("another initiation");
        assert_eq!(
            checker.check(&message, from, true, now),
            MacVerdict::Mac2Valid,
            "round {round}"
        );
        wrong.send_to(&reply, from).unwrap();
        let mut forged = reply;
        forged[40] ^= 1;
        wrong.send_to(&forged, from).unwrap();
        assert_eq!(
            ours.show_peer("endpoints", &peer.public),
            [endpoint.to_string()]
        );
    }
    assert!(
        initiation(&wrong, Duration::from_millis(1500)).is_none(),
        "it answered the wrong address"
    );
    ours.process.must_run();
}
