//! The peers: what is known of each, and the slots they live in.
//!
//! A slot of a removed peer is given to another only when every worker has passed an epoch that
//! began after the last table naming it was replaced.

use super::path::PathMtu;
use super::resolve::Resolving;
use super::sessions::Sessions;
use super::source::Datagram;
use ringway_proto::cookie::MacMaker;
use ringway_proto::endpoint::HostPort;
use ringway_proto::keys::{PresharedKey, PublicKey};
use ringway_proto::noise::InitiatorHandshake;
use ringway_proto::time::Instant;
use ringway_proto::timers::{Constants, PeerTimers};
use ringway_shm::ids::{LaneSlot, PeerSlot};
use ringway_shm::state::{Endpoint, Refusal};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
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

/// All peers.
#[derive(Debug)]
pub(crate) struct PeerTable {
    slots: Vec<Option<Box<Peer>>>,
    by_key: HashMap<PublicKey, PeerSlot>,
    /// The last incarnation and arm generation of each slot ever used; neither goes back.
    histories: Vec<(u32, u32)>,
    free: BinaryHeap<Reverse<u32>>,
    limit: u32,
    /// Removed since the routes were published last.
    removed: Vec<PeerSlot>,
    waiting: VecDeque<(u64, PeerSlot)>,
}

impl PeerTable {
    /// Room for `limit` peers.
    pub(crate) fn new(limit: u32) -> Self {
        Self {
            slots: Vec::new(),
            by_key: HashMap::new(),
            histories: Vec::new(),
            free: BinaryHeap::new(),
            limit,
            removed: Vec::new(),
            waiting: VecDeque::new(),
        }
    }

    /// How many there may be.
    pub(crate) fn limit(&self) -> u32 {
        self.limit
    }

    /// Makes a peer; `None` when every slot is in use.
    pub(crate) fn insert(
        &mut self,
        public_key: PublicKey,
        constants: Constants,
        now: Instant,
    ) -> Option<&mut Peer> {
        let slot = match self.free.pop() {
            Some(Reverse(slot)) => slot,
            None if (self.slots.len() as u32) < self.limit => {
                self.slots.push(None);
                self.histories.push((0, 0));
                self.slots.len() as u32 - 1
            }
            None => return None,
        };
        let history = &mut self.histories[slot as usize];
        // What the activity words say is of the slot's last user.
        let mut timers = PeerTimers::new(constants);
        timers.reset(now);
        // 0 stands for no peer and for not armed.
        history.0 = history.0.wrapping_add(1).max(1);
        history.1 = history.1.wrapping_add(1).max(1);
        self.by_key.insert(public_key, PeerSlot(slot));
        let peer = Peer {
            slot: PeerSlot(slot),
            incarnation: history.0,
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
            arm_generation: history.1,
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
        };
        Some(self.slots[slot as usize].insert(Box::new(peer)))
    }

    /// Takes a peer out; its slot waits for its grace.
    pub(crate) fn remove(&mut self, slot: PeerSlot) -> Option<Box<Peer>> {
        let peer = self.slots.get_mut(slot.0 as usize)?.take()?;
        self.by_key.remove(&peer.public_key);
        self.histories[slot.0 as usize] = (peer.incarnation, peer.arm_generation);
        self.removed.push(slot);
        Some(peer)
    }

    /// The peer of this slot.
    pub(crate) fn get(&self, slot: PeerSlot) -> Option<&Peer> {
        self.slots.get(slot.0 as usize)?.as_deref()
    }

    /// The peer of this slot.
    pub(crate) fn get_mut(&mut self, slot: PeerSlot) -> Option<&mut Peer> {
        self.slots.get_mut(slot.0 as usize)?.as_deref_mut()
    }

    /// The peer of this slot, if it is still the same one.
    pub(crate) fn same(&mut self, slot: PeerSlot, incarnation: u32) -> Option<&mut Peer> {
        self.get_mut(slot)
            .filter(|peer| peer.incarnation == incarnation)
    }

    /// Who has this key.
    pub(crate) fn find(&self, public_key: &PublicKey) -> Option<PeerSlot> {
        self.by_key.get(public_key).copied()
    }

    /// All of them, by slot.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Peer> {
        self.slots.iter().filter_map(|slot| slot.as_deref())
    }

    /// The slots in use.
    pub(crate) fn slots(&self) -> Vec<PeerSlot> {
        self.iter().map(|peer| peer.slot).collect()
    }

    /// Whether peers were removed since the last [`PeerTable::seal`].
    pub(crate) fn has_removed(&self) -> bool {
        !self.removed.is_empty()
    }

    /// No table names the removed ones any more since `epoch`.
    pub(crate) fn seal(&mut self, epoch: u64) {
        self.waiting
            .extend(self.removed.drain(..).map(|slot| (epoch, slot)));
    }

    /// Frees the slots whose epoch every worker has passed.
    pub(crate) fn advance(
        &mut self,
        passed: impl Fn(u64) -> bool,
        mut freed: impl FnMut(PeerSlot),
    ) {
        while let Some((epoch, slot)) = self.waiting.front().copied() {
            if !passed(epoch) {
                break;
            }
            self.waiting.pop_front();
            freed(slot);
            self.free.push(Reverse(slot.0));
        }
    }

    /// Whether a slot waits for workers.
    pub(crate) fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Whether slots that are taken now come back by themselves.
    pub(crate) fn frees_soon(&self) -> bool {
        self.has_removed() || self.is_waiting()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(byte: u8) -> PublicKey {
        PublicKey::from_bytes([byte; 32])
    }

    #[test]
    fn a_slot_is_reused_after_its_grace_by_another_incarnation() {
        let mut table = PeerTable::new(1);
        let first = table
            .insert(key(1), Constants::WIREGUARD, Instant(0))
            .unwrap();
        let (slot, incarnation) = (first.slot, first.incarnation);
        assert!(
            table
                .insert(key(2), Constants::WIREGUARD, Instant(0))
                .is_none()
        );
        assert!(table.remove(slot).is_some());
        assert_eq!(table.find(&key(1)), None);
        table.advance(|_| true, |_| {});
        assert!(
            table
                .insert(key(2), Constants::WIREGUARD, Instant(0))
                .is_none(),
            "routes may name it"
        );
        table.seal(9);
        table.advance(|epoch| epoch < 9, |_| {});
        assert!(
            table
                .insert(key(2), Constants::WIREGUARD, Instant(0))
                .is_none(),
            "a worker may hold it"
        );
        table.advance(|_| true, |_| {});
        let second = table
            .insert(key(2), Constants::WIREGUARD, Instant(0))
            .unwrap();
        assert_eq!(second.slot, slot);
        assert_ne!(second.incarnation, incarnation);
        assert!(table.same(slot, incarnation).is_none());
    }
}
