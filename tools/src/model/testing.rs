//! A gateway in real segments, filled by the writers that meta, the workers and the supervisor use.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::Ordering::Relaxed;

use ringway_shm::counters::DropReason;
use ringway_shm::ids::{LaneSlot, PeerSlot, ShardId, WorkerSlot};
use ringway_shm::process::{ProcessState, Role};
use ringway_shm::rings::{RingId, Rings};
use ringway_shm::routes::Route;
use ringway_shm::segment::{Access, Geometry, Segment, SegmentKind, create};
use ringway_shm::state::{
    Endpoint, GatewayRecord, Name, PeerPath, PeerRecord, Refusal, RefusalReason, StateWriter,
};

use super::sample::Sample;
use crate::attach::Gateway;

/// Seconds in nanoseconds.
pub(crate) const SECOND: u64 = 1_000_000_000;
/// The Unix time at which the tests look: 2025-01-01T00:00:00Z.
pub(crate) const NOW_UNIX: u64 = 1_735_689_600 * SECOND;
/// The boot time at which the tests look.
pub(crate) const NOW_BOOT: u64 = 1_000 * SECOND;

/// The gateway `name` with two workers, four shards and three peers, and what writes to it.
pub(crate) struct Fixture {
    /// What the tools see.
    pub(crate) gateway: Gateway,
    /// What the workers and the supervisor write to.
    pub(crate) rings: Rings,
    /// What meta writes to.
    pub(crate) state: StateWriter,
    /// The read-only descriptors of state and rings.
    pub(crate) fds: [OwnedFd; 2],
}

impl Fixture {
    /// Creates and fills the segments.
    pub(crate) fn new(name: &str) -> Fixture {
        let geometry = Geometry::new(4, 16, 64).unwrap();
        let state = create(SegmentKind::State, geometry).unwrap();
        let rings = create(SegmentKind::Rings, geometry).unwrap();
        let attach =
            |fd: &OwnedFd, kind| Segment::attach(fd.as_fd(), kind, Access::ReadWrite).unwrap();
        let mut writer = StateWriter::attach(&attach(&state.writable, SegmentKind::State)).unwrap();
        let written = Rings::attach(&attach(&rings.writable, SegmentKind::Rings)).unwrap();
        fill_state(&mut writer, name);
        fill_rings(&written);
        let fds = [state.readable, rings.readable];
        let [for_state, for_rings] = fds.each_ref().map(|fd| fd.try_clone().unwrap());
        let runtime = crate::runtime::tests::at(std::path::Path::new("/nonexistent"));
        let gateway = Gateway::over(&runtime, name, for_state, for_rings).unwrap();
        Fixture {
            gateway,
            rings: written,
            state: writer,
            fds,
        }
    }

    /// What is there now, read at the tests' own time.
    pub(crate) fn sample(&self) -> Sample {
        Sample {
            boot_ns: NOW_BOOT,
            unix_ns: NOW_UNIX,
            ..Sample::take(&self.gateway)
        }
    }
}

fn fill_state(state: &mut StateWriter, name: &str) {
    state.set_gateway(&GatewayRecord {
        name: Name::new(name),
        public_key: [7; 32],
        listen_port: 51820,
        fwmark: 0xca6c,
        mtu: 1420,
        link_up: true,
        last_refusal: Some(refusal(RefusalReason::UnknownKey, 30, "198.51.100.9:4000")),
    });
    // A laptop that is connected, a phone whose preshared key is wrong, a peer without a name that is just there.
    peer(state, 0, "laptop", 12, None, Some("203.0.113.5:51820"));
    let wrong = refusal(RefusalReason::PresharedKey, 4, "203.0.113.6:1234");
    peer(state, 1, "phone", 0, Some(wrong), Some("203.0.113.6:1234"));
    peer(state, 2, "", 0, None, None);
    let route = |address: &str, length, peer| Route {
        address: address.parse::<IpAddr>().unwrap(),
        length,
        peer: PeerSlot(peer),
    };
    let routes = [
        route("10.0.0.1", 32, 0),
        route("fd00::1", 128, 0),
        route("10.0.0.2", 32, 1),
        route("10.0.0.0", 8, 2),
    ];
    state.publish_routes(&routes, |_| true).unwrap();
}

fn peer(
    state: &mut StateWriter,
    slot: u32,
    name: &str,
    handshake_age: u64,
    refusal: Option<Refusal>,
    endpoint: Option<&str>,
) {
    let connected = handshake_age != 0;
    let endpoint = endpoint.map(|text| Endpoint {
        remote: text.parse::<SocketAddr>().unwrap(),
        local: None,
        ifindex: 0,
    });
    let record = PeerRecord {
        incarnation: 1,
        public_key: [slot as u8 + 1; 32],
        name: Name::new(name),
        keepalive_seconds: if connected { 25 } else { 0 },
        last_handshake_unix_ns: if connected {
            NOW_UNIX - handshake_age * SECOND
        } else {
            0
        },
        handshake_rx_bytes: if connected { 148 } else { 0 },
        handshake_tx_bytes: if connected { 92 } else { 0 },
        refusal,
        has_preshared_key: slot == 1,
    };
    let path = PeerPath {
        incarnation: 1,
        endpoint,
        lane: connected.then_some(LaneSlot(4)),
        path_mtu: if connected { 1500 } else { 0 },
        arm_generation: 0,
    };
    state.set_peer(PeerSlot(slot), &record);
    state.set_path(PeerSlot(slot), &path);
}

fn refusal(reason: RefusalReason, age: u64, from: &str) -> Refusal {
    Refusal {
        reason,
        at_unix_ns: NOW_UNIX - age * SECOND,
        from: from.parse().unwrap(),
    }
}

fn fill_rings(rings: &Rings) {
    for slot in [0, 1] {
        rings.prepare_slot(WorkerSlot(slot), 2).unwrap();
    }
    for shard in 0..4 {
        rings
            .shard_owner(ShardId(shard))
            .store(u32::from(shard) % 2, Relaxed);
    }
    let roles = [
        Role::Supervisor,
        Role::Meta,
        Role::Helper,
        Role::Worker(WorkerSlot(0)),
    ];
    for role in roles {
        let process = rings.process(role);
        process.pid.store(std::process::id(), Relaxed);
        process.set_state(ProcessState::Running);
        process.started_ns.store(NOW_BOOT - 100 * SECOND, Relaxed);
        process.turns.store(
            u64::from(role != Role::Supervisor && role != Role::Helper),
            Relaxed,
        );
    }
    rings
        .process(Role::Worker(WorkerSlot(0)))
        .cpu
        .store(3, Relaxed);
    // A worker that died and was not started again.
    let dead = rings.process(Role::Worker(WorkerSlot(1)));
    dead.pid.store(u32::MAX, Relaxed);
    dead.set_state(ProcessState::Failed);
    dead.restarts.store(5, Relaxed);

    let counters = rings.counters(WorkerSlot(0));
    counters.rx_packets.store(1_000, Relaxed);
    counters.rx_bytes.store(1_452_000, Relaxed);
    counters.tx_packets.store(500, Relaxed);
    counters.tx_bytes.store(64_000, Relaxed);
    counters.dropped(DropReason::Replay, 3);
    rings
        .counters(WorkerSlot(1))
        .dropped(DropReason::NoRoute, 2);
    rings.meta_counters().dropped(DropReason::BadMac1, 7);
    let traffic = rings.traffic(PeerSlot(0));
    traffic.rx_bytes.store(1_000_000, Relaxed);
    traffic.tx_bytes.store(2_000, Relaxed);
    traffic.rx_packets.store(700, Relaxed);

    let mut producer = rings
        .producer(RingId::Events {
            from: WorkerSlot(0),
        })
        .unwrap();
    for _ in 0..3 {
        producer.push(1, &[&[1, 2, 3]]).unwrap();
    }
    let _ = producer.publish();
}
