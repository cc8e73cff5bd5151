//! The peers by slot and by key.
//!
//! A slot of a removed peer is given to another only when every worker has passed an epoch that
//! began after the last table naming it was replaced.

use super::peer::Peer;
use ringway_proto::keys::PublicKey;
use ringway_proto::time::Instant;
use ringway_proto::timers::{Constants, PeerTimers};
use ringway_shm::ids::PeerSlot;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};

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
        let peer = Peer::new(PeerSlot(slot), *history, public_key, timers);
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
