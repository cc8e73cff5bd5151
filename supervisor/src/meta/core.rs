//! Everything that meta knows, and what it wants done at the end of the turn.
//!
//! The core touches shared memory and its own tables and nothing else: what is to be sent, asked
//! or run lands in the [`Outbox`], which [`super::run`] empties. Its verbs are in the files of their
//! nouns: `handshake`, `timers`, `events`, `change`, `transaction`, `apply`, `resolve`, `scripts`.

use super::allowed::AllowedIps;
use super::cookies::Cookies;
use super::jobs::Jobs;
use super::lanes::LaneTable;
use super::path::PathMtu;
use super::peers::PeerTable;
use super::queue::HandshakeQueue;
use super::requests::Requests;
use super::scripts::Scripts;
use super::source::Datagram;
use super::wheel::Wheel;
use super::workers::Workers;
use crate::channel::FromMeta;
use crate::helper::protocol::HelperJob;
use ringway_proto::config::Config;
use ringway_proto::cookie::MacChecker;
use ringway_proto::keys::PrivateKey;
use ringway_proto::ratelimit::RateLimiter;
use ringway_proto::tai64n::Stamper;
use ringway_proto::time::Instant;
use ringway_proto::timers::{ActivitySnapshot, Constants};
use ringway_shm::counters::DropReason;
use ringway_shm::ids::PeerSlot;
use ringway_shm::keys::KeysWriter;
use ringway_shm::lanes::Lanes;
use ringway_shm::rings::Rings;
use ringway_shm::segment::Geometry;
use ringway_shm::state::{GatewayRecord, Name, PeerPath, PeerRecord, StateWriter};
use std::path::PathBuf;
use std::sync::atomic::Ordering;

/// The state owner.
#[derive(Debug)]
pub(crate) struct Core {
    pub(super) state: StateWriter,
    pub(super) keys: KeysWriter,
    pub(super) activities: Lanes,
    pub(super) rings: Rings,
    pub(super) workers: Workers,
    pub(super) geometry: Geometry,
    pub(super) constants: Constants,
    /// The time of this turn.
    pub(super) now: Instant,
    /// The same on the wall clock, Unix nanoseconds.
    pub(super) unix_ns: u64,
    /// What the file says, or what a start without a file amounts to.
    pub(super) config: Config,
    pub(super) config_path: Option<PathBuf>,
    pub(super) identity: Option<Identity>,
    pub(super) stamper: Stamper,
    pub(super) limiter: RateLimiter,
    pub(super) cookies: Cookies,
    pub(super) gateway: GatewayRecord,
    /// The port was chosen by the kernel and not by anybody's wish.
    pub(super) automatic_port: bool,
    pub(super) families: Families,
    pub(super) peers: PeerTable,
    pub(super) allowed: AllowedIps,
    pub(super) lanes: LaneTable,
    pub(super) wheel: Wheel,
    pub(super) queue: HandshakeQueue,
    /// Allowed IPs changed since the workers' table was made.
    pub(super) routes_dirty: bool,
    pub(super) requests: Requests,
    pub(super) jobs: Jobs,
    pub(super) scripts: Scripts,
    pub(super) out: Outbox,
}

/// Who the gateway is.
#[derive(Debug)]
pub(super) struct Identity {
    pub(super) private: PrivateKey,
    pub(super) checker: MacChecker,
}

/// For which families there are sockets.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Families {
    pub(super) v4: bool,
    pub(super) v6: bool,
}

/// What the turn wants done outside.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    /// Handshake messages to send.
    pub(crate) datagrams: Vec<Datagram>,
    /// Messages to the supervisor.
    pub(crate) supervisor: Vec<FromMeta>,
    /// Jobs for the helper.
    pub(crate) jobs: Vec<HelperJob>,
}

/// The views and settings that a core is made of.
pub(crate) struct Parts {
    pub(crate) state: StateWriter,
    pub(crate) keys: KeysWriter,
    pub(crate) lanes: Lanes,
    pub(crate) rings: Rings,
    pub(crate) workers: Workers,
    pub(crate) geometry: Geometry,
    pub(crate) constants: Constants,
}

impl Core {
    /// A core without peers and without a key.
    pub(crate) fn new(parts: Parts, now: Instant, unix_ns: u64) -> Self {
        let Parts {
            state,
            keys,
            lanes,
            rings,
            workers,
            geometry,
            constants,
        } = parts;
        Self {
            state,
            keys,
            activities: lanes,
            rings,
            workers,
            geometry,
            constants,
            now,
            unix_ns,
            config: Config::default(),
            config_path: None,
            identity: None,
            stamper: Stamper::default(),
            limiter: RateLimiter::default(),
            cookies: Cookies::new(),
            gateway: GatewayRecord {
                name: Name::default(),
                public_key: [0; 32],
                listen_port: 0,
                fwmark: 0,
                mtu: 0,
                link_up: false,
                last_refusal: None,
            },
            automatic_port: true,
            families: Families::default(),
            peers: PeerTable::new(geometry.peers),
            allowed: AllowedIps::default(),
            lanes: LaneTable::new(geometry.lanes, geometry.shards),
            wheel: Wheel::new(now),
            queue: HandshakeQueue::new(),
            routes_dirty: false,
            requests: Requests::default(),
            jobs: Jobs::default(),
            scripts: Scripts::default(),
            out: Outbox::default(),
        }
    }

    /// Begins a turn.
    pub(crate) fn set_time(&mut self, now: Instant, unix_ns: u64) {
        // The clocks of two cores may differ by a moment; time must not run backwards.
        self.now = self.now.max(now);
        self.unix_ns = unix_ns;
    }

    /// What is to be done outside; emptied by whoever does it.
    pub(crate) fn outbox(&mut self) -> &mut Outbox {
        &mut self.out
    }

    /// Counts a datagram that led to nothing.
    pub(super) fn dropped(&self, reason: DropReason) {
        self.rings.meta_counters().dropped(reason, 1);
    }

    /// A random number. Where the system has none, the clock's low bits spread a jitter just as
    /// well; nothing secret is made of it.
    pub(super) fn random(&self) -> u32 {
        getrandom::u32().unwrap_or(self.unix_ns as u32)
    }

    /// A look at a peer's activity words.
    pub(super) fn activity(&self, slot: PeerSlot) -> ActivitySnapshot {
        let words = self.activities.activity(slot);
        let read =
            |word: &std::sync::atomic::AtomicU64| Instant::from_word(word.load(Ordering::Acquire));
        ActivitySnapshot {
            first_unanswered: read(&words.first_unanswered),
            first_unacknowledged: read(&words.first_unacknowledged),
            last_sent: read(&words.last_sent),
            last_received: read(&words.last_received),
            last_data_sent: read(&words.last_data_sent),
            last_data_received: read(&words.last_data_received),
        }
    }

    /// Writes the gateway's record.
    pub(super) fn publish_gateway(&mut self) {
        self.state.set_gateway(&self.gateway);
    }

    /// Writes what the tools show of a peer.
    pub(super) fn publish_peer(&mut self, slot: PeerSlot) {
        let Some(peer) = self.peers.get(slot) else {
            return;
        };
        let record = PeerRecord {
            incarnation: peer.incarnation,
            public_key: *peer.public_key.as_bytes(),
            name: Name::new(peer.name.as_deref().unwrap_or_default()),
            keepalive_seconds: peer.keepalive,
            last_handshake_unix_ns: peer.last_handshake_unix_ns,
            handshake_rx_bytes: peer.handshake_rx_bytes,
            handshake_tx_bytes: peer.handshake_tx_bytes,
            refusal: peer.refusal,
            has_preshared_key: !peer.preshared_key.is_zero(),
        };
        self.state.set_peer(slot, &record);
    }

    /// Writes what the workers need of a peer.
    pub(super) fn publish_path(&mut self, slot: PeerSlot) {
        let Some(peer) = self.peers.get(slot) else {
            return;
        };
        let path = PeerPath {
            incarnation: peer.incarnation,
            endpoint: peer.endpoint,
            lane: peer.sessions.current.map(|session| session.lane),
            path_mtu: PathMtu::current(&peer.path),
            arm_generation: peer.arm_generation,
        };
        self.state.set_path(slot, &path);
    }

    /// Moves on what waits for the workers: retired lanes, freed slots. `true`: something waits
    /// still, look again soon.
    pub(crate) fn grace(&mut self) -> bool {
        if self.lanes.has_fresh() || (self.peers.has_removed() && !self.routes_dirty) {
            let epoch = self.state.advance_epoch();
            self.lanes.seal(epoch);
            if !self.routes_dirty {
                self.peers.seal(epoch);
            }
        }
        let (rings, workers) = (&self.rings, &mut self.workers);
        self.lanes.advance(
            |epoch| rings.workers_passed(epoch),
            |lane| workers.clean_lane(rings, lane),
        );
        self.peers.advance(
            |epoch| rings.workers_passed(epoch),
            |slot| {
                // The next peer of this slot counts from zero.
                let traffic = rings.traffic(slot);
                for word in [
                    &traffic.rx_bytes,
                    &traffic.rx_packets,
                    &traffic.tx_bytes,
                    &traffic.tx_packets,
                ] {
                    word.store(0, Ordering::Relaxed);
                }
            },
        );
        self.lanes.is_waiting() || self.peers.is_waiting()
    }
}
