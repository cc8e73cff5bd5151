//! Gateways made of real segments and workers, and packets to send through them.

use crate::control::{self, FromWorker, GroupInfo, Received, ToWorker};
use crate::offload::packets::frame;
use crate::offload::vnet::VnetHeader;
use crate::run::{WorkerFds, WorkerSettings, assemble};
use crate::worker::Worker;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, setsockopt, socketpair, sockopt};
use ringway_proto::config::PollMode;
use ringway_shm::counters::DropReason;
use ringway_shm::doorbell::Doorbell;
use ringway_shm::ids::{LaneSlot, PeerSlot, ShardId, WorkerSlot};
use ringway_shm::keys::{KeysWriter, LaneKeys};
use ringway_shm::lanes::Lanes;
use ringway_shm::messages::{Command, Event, MESSAGE_MAX, PacketHeader};
use ringway_shm::ring::{Consumer, Producer};
use ringway_shm::rings::{RingId, Rings};
use ringway_shm::routes::Route;
use ringway_shm::segment::{Access, Geometry, Segment, SegmentFds, SegmentKind, create};
use ringway_shm::state::{Endpoint, PeerPath, StateWriter};
use ringway_shm::sync::Ordering;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

pub(super) const PEERS: u32 = 16;
const VNET: usize = 10;

/// A gateway: what supervisor and meta hold of it, and its workers.
pub(super) struct Gateway {
    pub(super) state: StateWriter,
    pub(super) keys: KeysWriter,
    pub(super) lanes: Lanes,
    pub(super) rings: Rings,
    pub(super) geometry: Geometry,
    pub(super) workers: Vec<Worker>,
    pub(super) tun: Vec<OwnedFd>,
    pub(super) sockets: Vec<UdpSocket>,
    pub(super) control: Vec<OwnedFd>,
    pub(super) bells: Vec<Doorbell>,
    events: Vec<Consumer>,
    to_meta: Vec<Consumer>,
    commands: Vec<Producer>,
    from_meta: Vec<Producer>,
    generation: u32,
}

/// What [`run`](crate::run()) is given, for tests of the whole of it.
pub(super) struct Raw {
    pub(super) fds: Vec<WorkerFds>,
    pub(super) gateway: Gateway,
}

impl Gateway {
    /// A gateway with its workers, without sockets yet.
    pub(super) fn new(shards: u8, workers: u8) -> Gateway {
        let Raw { fds, mut gateway } = Gateway::raw(shards, workers);
        for (slot, fds) in fds.into_iter().enumerate() {
            let settings = settings(slot as u8, workers);
            gateway.workers.push(assemble(fds, settings).unwrap());
        }
        gateway
    }

    /// A gateway with one worker on one shard and a socket on the loopback address.
    pub(super) fn simple() -> Gateway {
        let mut gateway = Gateway::new(1, 1);
        gateway.listen();
        gateway
    }

    /// Everything but the workers.
    pub(super) fn raw(shards: u8, workers: u8) -> Raw {
        let geometry = Geometry::new(shards, PEERS, 1_000).unwrap();
        let [state, keys, lanes, rings] = [
            SegmentKind::State,
            SegmentKind::Keys,
            SegmentKind::Lanes,
            SegmentKind::Rings,
        ]
        .map(|kind| (kind, create(kind, geometry).unwrap()));
        let attach = |(kind, fds): &(SegmentKind, SegmentFds)| {
            Segment::attach(fds.writable.as_fd(), *kind, Access::ReadWrite).unwrap()
        };
        let views = Rings::attach(&attach(&rings)).unwrap();
        for slot in 0..workers {
            views.prepare_slot(WorkerSlot(slot), workers).unwrap();
        }
        for shard in 0..shards {
            let owner = views.shard_owner(ShardId(shard));
            owner.store(u32::from(shard % workers), Ordering::Relaxed);
        }
        let bells: Vec<OwnedFd> = (0..3 + workers)
            .map(|_| Doorbell::create().unwrap())
            .collect();
        let (near, tun): (Vec<_>, Vec<_>) = (0..shards).map(|_| pair()).unzip();
        let mut fds = Vec::new();
        let mut control = Vec::new();
        for _ in 0..workers {
            let (here, there) = pair();
            control.push(here);
            fds.push(WorkerFds {
                control: there,
                state: copy(&state.1.readable),
                keys: copy(&keys.1.readable),
                lanes: copy(&lanes.1.writable),
                rings: copy(&rings.1.writable),
                tun: near.iter().map(copy).collect(),
                doorbells: bells.iter().map(copy).collect(),
            });
        }
        let all = || (0..workers).map(WorkerSlot);
        let gateway = Gateway {
            state: StateWriter::attach(&attach(&state)).unwrap(),
            keys: KeysWriter::attach(&attach(&keys)).unwrap(),
            lanes: Lanes::attach(&attach(&lanes)).unwrap(),
            geometry,
            workers: Vec::new(),
            tun,
            sockets: Vec::new(),
            control,
            bells: bells.into_iter().map(Doorbell::from_fd).collect(),
            events: all()
                .map(|from| views.consumer(RingId::Events { from }).unwrap())
                .collect(),
            to_meta: all()
                .map(|from| views.consumer(RingId::ToMeta { from }).unwrap())
                .collect(),
            commands: all()
                .map(|to| views.producer(RingId::Commands { to }).unwrap())
                .collect(),
            from_meta: all()
                .map(|to| views.producer(RingId::FromMeta { to }).unwrap())
                .collect(),
            rings: views,
            generation: 0,
        };
        Raw { fds, gateway }
    }

    /// Makes one socket a shard and gives them to every worker. There is no steering here: each
    /// has a port of its own.
    pub(super) fn listen(&mut self) {
        let sockets: Vec<UdpSocket> = (0..self.geometry.shards)
            .map(|_| {
                let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
                socket.set_nonblocking(true).unwrap();
                setsockopt(&socket, sockopt::Ipv4PacketInfo, &true).unwrap();
                setsockopt(&socket, sockopt::Ipv4RecvErr, &true).unwrap();
                socket
            })
            .collect();
        self.sockets = sockets;
        self.listen_again();
    }

    /// Gives the workers the sockets that they have as those of another generation.
    pub(super) fn listen_again(&mut self) {
        let sockets = &self.sockets;
        self.generation += 1;
        let message = ToWorker::Sockets {
            generation: self.generation,
            groups: vec![GroupInfo {
                family_v6: false,
                address: Ipv4Addr::UNSPECIFIED.into(),
                port: sockets[0].local_addr().unwrap().port(),
            }],
            part: 0,
            parts: 1,
        };
        let fds: Vec<_> = sockets.iter().map(AsFd::as_fd).collect();
        for control in &self.control {
            control::send(control.as_fd(), &message, &fds).unwrap();
        }
        self.turns();
        for i in 0..self.workers.len() {
            assert_eq!(
                self.heard(i),
                Some(FromWorker::SocketsTaken {
                    generation: self.generation
                })
            );
        }
    }

    /// Where a shard's socket is.
    pub(super) fn address(&self, shard: usize) -> SocketAddr {
        self.sockets[shard].local_addr().unwrap()
    }

    /// One turn of every worker.
    pub(super) fn turn_once(&mut self) {
        for worker in &mut self.workers {
            worker.turn(Duration::ZERO).unwrap();
        }
    }

    /// Lets every worker turn until none finds work.
    pub(super) fn turns(&mut self) {
        let (mut quiet, mut rounds) = (0, 0_i64);
        while quiet < 2 {
            rounds += 1;
            assert!(rounds < 10_000, "a worker spins");
            let mut worked = false;
            for worker in &mut self.workers {
                worked |= worker.turn(Duration::ZERO).unwrap().worked;
                if worker.holds() {
                    // Nobody plays meta: what is held goes when its time is over.
                    rounds -= 1;
                    worked = true;
                    std::thread::yield_now();
                }
            }
            quiet = if worked { 0 } else { quiet + 1 };
        }
    }

    /// Sets a peer up: its way, and its allowed IPs as the only ones besides those of `others`.
    pub(super) fn peer(
        &mut self,
        peer: PeerSlot,
        path: &PeerPath,
        routes: &[(&str, u8, PeerSlot)],
    ) {
        self.state.set_path(peer, path);
        let record = ringway_shm::state::PeerRecord {
            incarnation: path.incarnation,
            public_key: [1; 32],
            name: ringway_shm::state::Name::default(),
            keepalive_seconds: 0,
            last_handshake_unix_ns: 0,
            handshake_rx_bytes: 0,
            handshake_tx_bytes: 0,
            refusal: None,
            has_preshared_key: false,
        };
        self.state.set_peer(peer, &record);
        let routes: Vec<Route> = routes
            .iter()
            .map(|(address, length, peer)| Route {
                address: address.parse().unwrap(),
                length: *length,
                peer: *peer,
            })
            .collect();
        // The workers rest between two calls of `turns`.
        self.state.publish_routes(&routes, |_| true).unwrap();
    }

    /// Puts an inner packet where the kernel would.
    pub(super) fn to_tun(&self, shard: usize, packet: &[u8]) {
        self.frame_to_tun(shard, VnetHeader::default(), packet);
    }

    /// Puts a super-packet there.
    pub(super) fn frame_to_tun(&self, shard: usize, header: VnetHeader, packet: &[u8]) {
        nix::unistd::write(&self.tun[shard], &frame(header, packet)).unwrap();
    }

    /// Takes what a worker wrote to a TUN queue.
    pub(super) fn written(&self, shard: usize) -> Vec<Vec<u8>> {
        let mut packets = Vec::new();
        let mut buffer = vec![0; 70_000];
        while let Ok(length) = nix::unistd::read(&self.tun[shard], &mut buffer) {
            assert_eq!(buffer[..VNET], [0; VNET]);
            packets.push(buffer[VNET..length].to_vec());
        }
        packets
    }

    /// Takes the events of a worker.
    pub(super) fn events(&mut self, worker: usize) -> Vec<Event> {
        let mut events = Vec::new();
        while let Some(event) = self.events[worker].pop_into(Event::decode).unwrap() {
            events.push(event.expect("an event"));
        }
        self.events[worker].release();
        events
    }

    /// Takes the datagrams that a worker passed on to meta.
    pub(super) fn handshakes(&mut self, worker: usize) -> Vec<(PacketHeader, Vec<u8>)> {
        let mut found = Vec::new();
        let decode = |kind, record: &[u8]| {
            assert_eq!(kind, PacketHeader::KIND);
            let (header, bytes) = PacketHeader::decode(record).unwrap();
            (header, bytes.to_vec())
        };
        while let Some(item) = self.to_meta[worker].pop_into(decode).unwrap() {
            found.push(item);
        }
        self.to_meta[worker].release();
        found
    }

    /// Gives a worker a command, and rings if it sleeps.
    pub(super) fn command(&mut self, worker: usize, command: Command) {
        let mut bytes = [0; MESSAGE_MAX];
        let length = command.encode(&mut bytes);
        let ring = &mut self.commands[worker];
        ring.push(command.kind(), &[&bytes[..length]]).unwrap();
        if ring.publish() {
            self.bells[3 + worker].ring();
        }
    }

    /// Gives a worker a record as if meta had received a datagram.
    pub(super) fn hand(&mut self, worker: usize, header: &PacketHeader, datagram: &[u8]) {
        let ring = &mut self.from_meta[worker];
        ring.push(PacketHeader::KIND, &[&header.encode(), datagram])
            .unwrap();
        let _ = ring.publish();
    }

    /// How often all workers dropped for a reason.
    pub(super) fn drops(&self, reason: DropReason) -> u64 {
        (0..self.rings.workers())
            .map(|slot| {
                self.rings.counters(WorkerSlot(slot)).drops[reason as usize].load(Ordering::Relaxed)
            })
            .sum()
    }

    /// All drops.
    pub(super) fn all_drops(&self) -> u64 {
        (0..self.rings.workers())
            .map(|slot| self.rings.counters(WorkerSlot(slot)).drops_total())
            .sum()
    }

    /// What a worker said to the supervisor.
    pub(super) fn heard(&self, worker: usize) -> Option<FromWorker> {
        match control::receive(self.control[worker].as_fd()).unwrap() {
            Received::Message(message, _) => Some(message),
            _ => None,
        }
    }

    /// A receiver index on a lane.
    pub(super) fn index(&self, lane: LaneSlot, generation: u32) -> u32 {
        (generation << self.geometry.lane_bits()) | lane.0
    }
}

/// The settings of a worker that sleeps.
pub(super) fn settings(slot: u8, workers: u8) -> WorkerSettings {
    WorkerSettings {
        slot: WorkerSlot(slot),
        workers,
        poll: PollMode::Epoll,
        cpu: None,
    }
}

/// A way without a session.
pub(super) fn path(endpoint: Option<SocketAddr>, lane: Option<LaneSlot>) -> PeerPath {
    PeerPath {
        incarnation: 7,
        endpoint: endpoint.map(|remote| Endpoint {
            remote,
            local: None,
            ifindex: 0,
        }),
        lane,
        path_mtu: 0,
        arm_generation: 0,
    }
}

/// Keys for both ends of a session; `left` began it.
pub(super) fn session_keys(
    (left_peer, left_index): (PeerSlot, u32),
    (right_peer, right_index): (PeerSlot, u32),
) -> (LaneKeys, LaneKeys) {
    let born_ns = crate::clock::boot_time().0;
    let left = LaneKeys {
        peer: left_peer,
        incarnation: 7,
        local_index: left_index,
        remote_index: right_index,
        send_key: [3; 32],
        receive_key: [4; 32],
        born_ns,
        initiator: true,
    };
    let right = LaneKeys {
        peer: right_peer,
        incarnation: 7,
        local_index: right_index,
        remote_index: left_index,
        send_key: [4; 32],
        receive_key: [3; 32],
        born_ns,
        initiator: false,
    };
    (left, right)
}

/// Two gateways with one worker each and a session: 10.0.0.1 and fd00::1 on the left, 10.0.0.2
/// and fd00::2 on the right.
pub(super) fn two() -> (Gateway, Gateway) {
    let (mut left, mut right) = (Gateway::simple(), Gateway::simple());
    let peer = PeerSlot(2);
    let lane = LaneSlot(5);
    let (left_index, right_index) = (left.index(lane, 11), right.index(lane, 12));
    let (one, other) = session_keys((peer, left_index), (peer, right_index));
    left.keys.publish(lane, &one);
    right.keys.publish(lane, &other);
    let (here, there) = (left.address(0), right.address(0));
    left.peer(
        peer,
        &path(Some(there), Some(lane)),
        &[("10.0.0.2", 32, peer), ("fd00::2", 128, peer)],
    );
    right.peer(
        peer,
        &path(Some(here), Some(lane)),
        &[("10.0.0.1", 32, peer), ("fd00::1", 128, peer)],
    );
    (left, right)
}

pub(super) const LEFT: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
pub(super) const RIGHT: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);

/// An IPv4 packet with a payload that counts.
pub(super) fn ipv4(
    from: Ipv4Addr,
    to: Ipv4Addr,
    protocol: u8,
    dont_fragment: bool,
    payload: &[u8],
) -> Vec<u8> {
    let mut packet = vec![0x45, 0];
    packet.extend_from_slice(&(20 + payload.len() as u16).to_be_bytes());
    packet.extend_from_slice(&[
        0x12,
        0x34,
        if dont_fragment { 0x40 } else { 0 },
        0,
        64,
        protocol,
        0,
        0,
    ]);
    packet.extend_from_slice(&from.octets());
    packet.extend_from_slice(&to.octets());
    let sum: u32 = packet
        .chunks(2)
        .map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])))
        .sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    packet[10..12].copy_from_slice(&(!(folded as u16)).to_be_bytes());
    packet.extend_from_slice(payload);
    packet
}

/// An IPv6 packet.
pub(super) fn ipv6(from: Ipv6Addr, to: Ipv6Addr, payload: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x60, 0, 0, 0];
    packet.extend_from_slice(&(payload.len() as u16).to_be_bytes());
    packet.extend_from_slice(&[17, 64]);
    packet.extend_from_slice(&from.octets());
    packet.extend_from_slice(&to.octets());
    packet.extend_from_slice(payload);
    packet
}

/// Bytes that differ from their neighbours.
pub(super) fn payload(length: usize) -> Vec<u8> {
    (0..length).map(|i| (i * 7 + 3) as u8).collect()
}

fn pair() -> (OwnedFd, OwnedFd) {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let (near, far) = socketpair(AddressFamily::Unix, SockType::SeqPacket, None, flags).unwrap();
    for end in [&near, &far] {
        setsockopt(end, sockopt::SndBuf, &(4 << 20)).unwrap();
    }
    (near, far)
}

fn copy(fd: &OwnedFd) -> OwnedFd {
    fd.try_clone().unwrap()
}
