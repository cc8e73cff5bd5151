//! A flood of bogus handshakes: established traffic hardly notices, and a new peer still gets in.

#![allow(clippy::unwrap_used)]

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ringway_tests::client::Client;
use ringway_tests::namespace::Namespace;
use ringway_tests::process::Process;
use ringway_tests::topology;
use ringway_tests::tunnel::{Implementation, Tunnel};
use ringway_tests::{gateway, wait};
use serde_json::Value;

const PORT: u16 = 51820;
const RATE: u64 = 100_000;
const SECONDS: u64 = 10;
const KEPT: f64 = 0.8;

/// Initiations with a right MAC1 (anybody who knows the public key can make it) around random bytes.
fn bogus(client: &mut Client) -> Vec<Vec<u8>> {
    (0..64)
        .map(|_| {
            let mut message = client.initiation();
            message[60] ^= 0xff;
            client.seal_again(&mut message);
            message
        })
        .collect()
}

/// Sends at `RATE` until told to stop; counts what was sent.
fn flood(
    attacker: &Namespace,
    target: SocketAddr,
    messages: Vec<Vec<u8>>,
    stop: &Arc<AtomicBool>,
) -> Arc<AtomicU64> {
    let sent = Arc::new(AtomicU64::new(0));
    let (count, stop) = (sent.clone(), stop.clone());
    attacker.spawn(move || {
        let sockets: Vec<_> = (0..16)
            .map(|_| std::net::UdpSocket::bind("0.0.0.0:0").unwrap())
            .collect();
        let start = Instant::now();
        let mut number = 0_u64;
        while !stop.load(Ordering::Relaxed) {
            let due = (start.elapsed().as_secs_f64() * RATE as f64) as u64;
            // What could not be sent in time is not made up for in a burst.
            number = number.max(due.saturating_sub(2000));
            while number < due {
                let message = &messages[number as usize % messages.len()];
                let socket = &sockets[number as usize % sockets.len()];
                if socket.send_to(message, target).is_ok() {
                    count.fetch_add(1, Ordering::Relaxed);
                }
                number += 1;
            }
            std::thread::sleep(Duration::from_micros(200));
        }
    });
    sent
}

/// The rate of an iperf3 run between the peers while `target` is flooded, in bits per second.
fn rate_under_flood(
    peer: &Namespace,
    attacker: &Namespace,
    server: IpAddr,
    target: SocketAddr,
    messages: &[Vec<u8>],
    during: impl FnOnce(),
) -> f64 {
    let stop = Arc::new(AtomicBool::new(false));
    let words = [
        "iperf3",
        "-J",
        "-c",
        &server.to_string(),
        "-t",
        &SECONDS.to_string(),
        "-O",
        "1",
    ];
    let mut run = Process::start(&peer.words(&words), &[]);
    wait::holds("iperf3 to connect", Duration::from_secs(5), || {
        peer.run(&["ss", "-tnH", "state", "established", "dport", "=", ":5201"])
            .lines()
            .count()
            >= 2
    });
    let sent = flood(attacker, target, messages.to_vec(), &stop);
    let start = Instant::now();
    during();
    let status = run.wait(Duration::from_secs(SECONDS + 10));
    let seconds = start.elapsed().as_secs_f64();
    stop.store(true, Ordering::Relaxed);
    assert!(status.success(), "iperf3: {}", run.printed());
    let report: Value = serde_json::from_str(&run.printed()).unwrap();
    let flooded = sent.load(Ordering::Relaxed) as f64 / seconds;
    let rate = report["end"]["sum_received"]["bits_per_second"]
        .as_f64()
        .unwrap();
    eprintln!(
        "{target}: {flooded:.0} bogus handshakes a second, iperf3 {:.0} Mbit/s",
        rate / 1e6
    );
    rate
}

#[test]
fn established_traffic_keeps_its_rate_and_a_new_peer_gets_in() {
    let [ours, peer, attacker] = [(); 3].map(|()| Namespace::new());
    let (at_ours, at_peer) = topology::wire(&ours, &peer, 2);
    let (at_ours_bad, _) = topology::wire(&ours, &attacker, 3);
    let mut tunnel = Tunnel::start(&ours, Implementation::Ringway);
    let theirs = Tunnel::start(&peer, Implementation::WireguardGo);
    tunnel.set(&format!(
        "listen-port {PORT} peer {} allowed-ips 10.9.0.2/32",
        theirs.keys.public
    ));
    theirs.set(&format!(
        "peer {} endpoint {}:{PORT} allowed-ips 10.9.0.1/32",
        tunnel.keys.public, at_ours.v4
    ));
    tunnel.up(&["10.9.0.1/24"]);
    theirs.up(&["10.9.0.2/24"]);
    let server: IpAddr = "10.9.0.1".parse().unwrap();
    theirs.ping(server);
    let _iperf = Process::start(&ours.words(&["iperf3", "-s", "-B", "10.9.0.1"]), &[]);
    wait::holds("iperf3 to listen", Duration::from_secs(5), || {
        !ours.run(&["ss", "-tlnH", "sport", "=", ":5201"]).is_empty()
    });

    // A second socket that discards: bound, never read.
    let sink = ours.udp(SocketAddr::new(at_ours_bad.v4.into(), PORT + 1));
    let target = SocketAddr::new(at_ours_bad.v4.into(), PORT);
    let aside = sink.local_addr().unwrap();
    let mut stranger = Client::new(
        attacker.udp("0.0.0.0:0".parse().unwrap()),
        target,
        &tunnel.keys.public,
    );
    let messages = bogus(&mut stranger);

    let gateway_address = SocketAddr::new(at_ours.v4.into(), PORT);
    // Machines are noisy: the rule has to hold in one of three rounds, and a newcomer gets in in each.
    let mut best = 0.0_f64;
    for round in 0..3 {
        let beside = rate_under_flood(&peer, &attacker, server, aside, &messages, || {});
        let mut newcomer = Client::new(
            peer.udp(SocketAddr::new(at_peer.v4.into(), 0)),
            gateway_address,
            &tunnel.keys.public,
        );
        tunnel.set(&format!(
            "peer {} allowed-ips 10.9.1.{round}/32",
            newcomer.keys.public
        ));
        let under = rate_under_flood(&peer, &attacker, server, target, &messages, || {
            wait::maybe(Duration::from_secs(2), || None::<()>);
            assert!(
                newcomer.handshake(Duration::from_secs(5)),
                "round {round}: a new peer is locked out"
            );
        });
        best = best.max(under / beside);
        if best >= KEPT {
            break;
        }
    }
    assert!(best >= KEPT, "kept only {:.0} %", best * 100.0);
    assert!(
        gateway::drops(&tunnel.name).values().sum::<u64>() > RATE,
        "the flood is counted"
    );
    tunnel.process.must_run();
}
