//! What is known of a peer.

use super::path::PathMtu;
use super::resolve::Resolving;
use super::sessions::Sessions;
use super::source::Datagram;
use ringway_proto::cookie::MacMaker;
use ringway_proto::endpoint::HostPort;
use ringway_proto::keys::{PresharedKey, PublicKey};
use ringway_proto::noise::InitiatorHandshake;
use ringway_proto::time::Instant;
use ringway_proto::timers::PeerTimers;
use ringway_shm::ids::{LaneSlot, PeerSlot};
use ringway_shm::state::{Endpoint, Refusal};
use std::time::Duration;

/// One peer.
#[derive(Debug)]
pub(crate) struct Peer {
    /// Where its records are.
    pub(crate) slot: PeerSlot,
    /// Tells it from those that had the slot before.
    pub(crate) incarnation: u32,
    /// Who it is.
    pub(crate) public_key: PublicKey,
    /// What the tools call it.
    pub(crate) name: Option<String>,
    /// All zero: none.
    pub(crate) preshared_key: PresharedKey,
    /// Where it is spoken to.
    pub(crate) endpoint: Option<Endpoint>,
    /// Where the configuration says that it is.
    pub(crate) host: Option<HostPort>,
    /// The state of the search for `host`'s address.
    pub(crate) resolving: Resolving,
    /// Persistent keepalive in seconds; 0: none.
    pub(crate) keepalive: u16,
    /// Command to run when its first session is there.
    pub(crate) up_command: Option<String>,
    /// Command to run when its keys are gone.
    pub(crate) down_command: Option<String>,
    /// Made by `wg set` and not in the file.
    pub(crate) runtime: bool,
    /// Puts MACs on what is sent to it.
    pub(crate) macs: MacMaker,
    /// The initiation that waits for its response.
    pub(crate) pending: Option<Pending>,
    /// Its sessions.
    pub(crate) sessions: Sessions,
    /// Counts its sessions.
    pub(crate) serial: u64,
    /// Its timers.
    pub(crate) timers: PeerTimers,
    /// Raised whenever workers shall report its next packet.
    pub(crate) arm_generation: u32,
    /// When its last initiation was accepted.
    pub(crate) initiation_received: Option<Instant>,
    /// Answers of ours in a row that no session came of.
    pub(crate) unconfirmed: u32,
    /// Initiations in a row that nobody answered; traffic that asks for a session again does not
    /// set it back.
    pub(crate) unanswered: u32,
    /// Our last answer, until the route that it takes is known to lead anywhere.
    pub(crate) answer: Option<Box<Datagram>>,
    /// The last completed handshake, Unix nanoseconds; 0: never.
    pub(crate) last_handshake_unix_ns: u64,
    /// Bytes of handshake messages from it.
    pub(crate) handshake_rx_bytes: u64,
    /// Bytes of handshake messages to it.
    pub(crate) handshake_tx_bytes: u64,
    /// Why it does not connect, and since when.
    pub(crate) refusal: Option<Refusal>,
    /// When that was last found so, Unix nanoseconds.
    pub(crate) refused_unix_ns: u64,
    /// What is known of the path to it.
    pub(crate) path: PathMtu,
    /// Session and counter of the packet that moved its endpoint last.
    pub(crate) roamed: (u64, u64),
    /// A session is wanted as soon as its endpoint is known.
    pub(crate) wanted: bool,
    /// Its endpoint is routed into this very tunnel.
    pub(crate) looped: bool,
    /// It has, or had until its keys go, a session; its command ran.
    pub(crate) up: bool,
}

/// An initiation that was sent.
#[derive(Debug)]
pub(crate) struct Pending {
    /// What the response is opened with; `None` between two attempts.
    pub(crate) handshake: InitiatorHandshake,
    /// Where the session is going to live.
    pub(crate) lane: LaneSlot,
}

impl Peer {
    /// A peer of which only the key is known.
    pub(super) fn new(
        slot: PeerSlot,
        (incarnation, arm_generation): (u32, u32),
        public_key: PublicKey,
        timers: PeerTimers,
    ) -> Self {
        Peer {
            slot,
            incarnation,
            public_key,
            name: None,
            preshared_key: PresharedKey::default(),
            endpoint: None,
            host: None,
            resolving: Resolving::default(),
            keepalive: 0,
            up_command: None,
            down_command: None,
            runtime: false,
            macs: MacMaker::new(&public_key),
            pending: None,
            sessions: Sessions::default(),
            serial: 0,
            timers,
            arm_generation,
            initiation_received: None,
            unconfirmed: 0,
            unanswered: 0,
            answer: None,
            last_handshake_unix_ns: 0,
            handshake_rx_bytes: 0,
            handshake_tx_bytes: 0,
            refusal: None,
            refused_unix_ns: 0,
            path: PathMtu::default(),
            roamed: (0, 0),
            wanted: false,
            looped: false,
            up: false,
        }
    }

    /// The persistent keepalive as the timers take it.
    pub(crate) fn keepalive(&self) -> Option<Duration> {
        (self.keepalive != 0).then(|| Duration::from_secs(u64::from(self.keepalive)))
    }

    /// The path to where it is carries no more than this. `false`: that was known.
    pub(crate) fn lower_path(&mut self, mtu: u16, now: Instant) -> bool {
        let v6 = self
            .endpoint
            .is_some_and(|endpoint| endpoint.remote.is_ipv6());
        self.path.lower(mtu, v6, now)
    }

    /// The name, or the key where there is none, for a message.
    pub(crate) fn label(&self) -> String {
        self.name
            .clone()
            .unwrap_or_else(|| self.public_key.to_string())
    }
}
