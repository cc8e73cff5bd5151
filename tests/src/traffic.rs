//! Traffic through a tunnel: a stream that is compared, and a paced flow of numbered datagrams.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::namespace::Namespace;
use crate::wait;

const LIMIT: Duration = Duration::from_secs(20);

/// Sends `length` bytes over TCP from one namespace to an address in the other and compares what arrives.
///
/// # Panics
/// If they do not all arrive, as they were, within 20 s.
pub fn stream(from: &Namespace, to: &Namespace, address: IpAddr, length: usize) {
    let listener = to.listen(SocketAddr::new(address, 0));
    let target = listener.local_addr().unwrap();
    let expected: Vec<u8> = pattern(length);
    let receiver = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        let mut received = Vec::with_capacity(length);
        stream.read_to_end(&mut received).map(|_| received)
    });
    let mut stream = from
        .connect(target, LIMIT)
        .unwrap_or_else(|error| panic!("no connection to {target}: {error}"));
    stream.set_write_timeout(Some(LIMIT)).unwrap();
    stream.write_all(&expected).unwrap();
    drop(stream);
    let received = receiver.join().unwrap().unwrap();
    assert_eq!(received.len(), length, "bytes that arrived");
    assert!(received == expected, "bytes were altered");
}

fn pattern(length: usize) -> Vec<u8> {
    let mut state = 1_u32;
    (0..length)
        .map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        })
        .collect()
}

/// Numbered datagrams at an even pace, until stopped.
pub struct Flow {
    stop: Arc<AtomicBool>,
    seen: Arc<AtomicU64>,
    sender: JoinHandle<u64>,
    receiver: JoinHandle<Vec<u64>>,
}

/// What became of a flow.
#[derive(Debug)]
pub struct Outcome {
    /// Datagrams sent.
    pub sent: u64,
    /// Numbers that never came.
    pub lost: Vec<u64>,
    /// Numbers that came more than once.
    pub twice: Vec<u64>,
}

impl Flow {
    /// From one namespace to `address` in the other, one datagram of `size` bytes every `interval`.
    pub fn start(
        from: &Namespace,
        to: &Namespace,
        address: IpAddr,
        interval: Duration,
        size: usize,
    ) -> Flow {
        let socket = to.udp(SocketAddr::new(address, 0));
        let target = socket.local_addr().unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let seen = Arc::new(AtomicU64::new(0));
        let (stop_sender, stop_receiver, count) = (stop.clone(), stop.clone(), seen.clone());
        let sender = from.spawn(move || send_paced(target, interval, size, &stop_sender));
        socket
            .set_read_timeout(Some(Duration::from_millis(500)))
            .unwrap();
        let receiver = std::thread::spawn(move || {
            let mut buffer = vec![0; 65536];
            let mut numbers = Vec::new();
            loop {
                match socket.recv(&mut buffer) {
                    Ok(length) => {
                        let number = buffer[..length].first_chunk().copied();
                        numbers.extend(number.map(u64::from_be_bytes));
                        count.fetch_add(1, Ordering::Relaxed);
                    }
                    // Half a second of silence after the sender has stopped: all is in.
                    Err(_) if stop_receiver.load(Ordering::Relaxed) => return numbers,
                    Err(_) => {}
                }
            }
        });
        Flow {
            stop,
            seen,
            sender,
            receiver,
        }
    }

    /// Datagrams received so far.
    pub fn received(&self) -> u64 {
        self.seen.load(Ordering::Relaxed)
    }

    /// Waits until `count` more have come.
    pub fn await_more(&self, count: u64, limit: Duration) {
        let goal = self.received() + count;
        wait::holds("the flow to go on", limit, || self.received() >= goal);
    }

    /// Stops the sender, takes in what is under way, and tells what is missing.
    pub fn stop(self) -> Outcome {
        self.stop.store(true, Ordering::Relaxed);
        let sent = self.sender.join().unwrap();
        let mut numbers = self.receiver.join().unwrap();
        numbers.sort_unstable();
        let twice: Vec<u64> = numbers
            .windows(2)
            .filter(|pair| pair[0] == pair[1])
            .map(|pair| pair[0])
            .collect();
        let lost = (0..sent)
            .filter(|number| numbers.binary_search(number).is_err())
            .collect();
        Outcome { sent, lost, twice }
    }
}

fn send_paced(target: SocketAddr, interval: Duration, size: usize, stop: &AtomicBool) -> u64 {
    let any: SocketAddr = if target.is_ipv4() {
        ([0; 4], 0).into()
    } else {
        ([0_u16; 8], 0).into()
    };
    let socket = std::net::UdpSocket::bind(any).unwrap();
    let start = Instant::now();
    let mut number = 0_u64;
    let mut datagram = vec![0; size.max(8)];
    while !stop.load(Ordering::Relaxed) {
        datagram[..8].copy_from_slice(&number.to_be_bytes());
        // A full queue of the interface is a loss like any other.
        let _ = socket.send_to(&datagram, target);
        number += 1;
        let due = start + interval * u32::try_from(number).unwrap();
        if let Some(pause) = due.checked_duration_since(Instant::now()) {
            std::thread::sleep(pause);
        }
    }
    number
}
