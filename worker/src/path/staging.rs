//! Packets that wait for a session.
//!
//! Bounded a peer as in the kernel, where the oldest goes first, and bounded over all peers in
//! packets and bytes. Buffers are used again, whoever's packets they held: traffic to a peer that
//! is dead takes no memory a packet.

use ringway_shm::ids::PeerSlot;
use std::collections::{HashMap, VecDeque};

/// The kernel's MAX_STAGED_PACKETS.
const EACH: usize = 128;
/// All peers together.
const PACKETS: usize = 8_192;
const BYTES: usize = 16 << 20;
/// Buffers kept while nothing waits in them, and how long one of those may be: what a usual packet
/// takes, so that all of them together are small.
const SPARE: usize = 2 * EACH;
const SPARE_BYTES: usize = 2_048;

/// A packet that waits.
pub(super) struct Staged {
    pub(super) bytes: Vec<u8>,
    pub(super) shard: ringway_shm::ids::ShardId,
}

struct Waiting {
    incarnation: u32,
    /// Meta knows that packets wait.
    told: bool,
    packets: VecDeque<Staged>,
}

/// All that wait.
#[derive(Default)]
pub(super) struct Staging {
    peers: HashMap<PeerSlot, Waiting>,
    packets: usize,
    bytes: usize,
    spare: Vec<Vec<u8>>,
}

impl Staging {
    /// Whether anything waits for any peer: the cheap question of the steady path.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.packets == 0
    }

    /// Whether something waits for this peer.
    pub(super) fn waits(&self, peer: PeerSlot) -> bool {
        !self.is_empty() && self.peers.contains_key(&peer)
    }

    /// Meta was told that packets wait for this peer.
    pub(super) fn told(&mut self, peer: PeerSlot) {
        if let Some(waiting) = self.peers.get_mut(&peer) {
            waiting.told = true;
        }
    }

    /// The peers, with their incarnations, of which meta was not told that packets wait for them.
    pub(super) fn untold(&self) -> Vec<(PeerSlot, u32)> {
        self.peers
            .iter()
            .filter(|(_, waiting)| !waiting.told)
            .map(|(peer, waiting)| (*peer, waiting.incarnation))
            .collect()
    }

    /// Keeps a copy of a packet; returns how many packets were dropped for it, itself included.
    pub(super) fn push(
        &mut self,
        peer: PeerSlot,
        incarnation: u32,
        bytes: &[u8],
        shard: ringway_shm::ids::ShardId,
    ) -> u64 {
        let mut dropped = 0;
        if self
            .peers
            .get(&peer)
            .is_some_and(|waiting| waiting.incarnation != incarnation)
        {
            // They were for another peer, which had the slot before.
            dropped += self.purge(peer);
        }
        let waiting = self.peers.entry(peer).or_insert_with(|| Waiting {
            incarnation,
            told: false,
            packets: VecDeque::new(),
        });
        let mut buffer = None;
        if waiting.packets.len() >= EACH {
            if let Some(oldest) = waiting.packets.pop_front() {
                dropped += 1;
                self.packets -= 1;
                self.bytes -= oldest.bytes.len();
                buffer = Some(oldest.bytes);
            }
        }
        if self.packets >= PACKETS || self.bytes + bytes.len() > BYTES {
            if waiting.packets.is_empty() {
                self.peers.remove(&peer);
            }
            return dropped + 1;
        }
        let mut buffer = buffer.or_else(|| self.spare.pop()).unwrap_or_default();
        buffer.clear();
        buffer.extend_from_slice(bytes);
        self.packets += 1;
        self.bytes += buffer.len();
        waiting.packets.push_back(Staged {
            bytes: buffer,
            shard,
        });
        dropped
    }

    /// Takes the oldest packet of a peer, if it belongs to this incarnation. Its buffer should be
    /// [given back](Staging::give_back).
    pub(super) fn pop(&mut self, peer: PeerSlot, incarnation: u32) -> Option<Staged> {
        let waiting = self
            .peers
            .get_mut(&peer)
            .filter(|waiting| waiting.incarnation == incarnation)?;
        let packet = waiting.packets.pop_front()?;
        self.packets -= 1;
        self.bytes -= packet.bytes.len();
        if waiting.packets.is_empty() {
            self.peers.remove(&peer);
        }
        Some(packet)
    }

    /// Keeps a buffer for another packet.
    pub(super) fn give_back(&mut self, buffer: Vec<u8>) {
        put_by(&mut self.spare, buffer);
    }

    /// Drops what waits for a peer; returns how many packets that were.
    pub(super) fn purge(&mut self, peer: PeerSlot) -> u64 {
        let Some(waiting) = self.peers.remove(&peer) else {
            return 0;
        };
        let purged = waiting.packets.len();
        self.packets -= purged;
        for packet in waiting.packets {
            self.bytes -= packet.bytes.len();
            put_by(&mut self.spare, packet.bytes);
        }
        purged as u64
    }
}

/// Keeps a buffer for another packet, if it is small and few are kept.
fn put_by(spare: &mut Vec<Vec<u8>>, buffer: Vec<u8>) {
    if spare.len() < SPARE && buffer.capacity() <= SPARE_BYTES {
        spare.push(buffer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringway_shm::ids::ShardId;

    const SHARD: ShardId = ShardId(0);

    #[test]
    fn the_oldest_goes_and_order_stays() {
        let mut staging = Staging::default();
        let peer = PeerSlot(3);
        let mut dropped = 0;
        for i in 0..200_u8 {
            dropped += staging.push(peer, 1, &[i], SHARD);
        }
        assert_eq!(dropped, 200 - EACH as u64);
        for i in 200 - EACH as u8..200 {
            assert_eq!(staging.pop(peer, 1).unwrap().bytes, [i]);
        }
        assert!(!staging.waits(peer));
        assert!(staging.is_empty());
        assert_eq!(staging.bytes, 0);
    }

    #[test]
    fn all_peers_together_are_bounded() {
        let mut staging = Staging::default();
        let packet = vec![0; 60_000];
        let mut dropped = 0;
        for peer in 0..1_000 {
            dropped += staging.push(PeerSlot(peer), 1, &packet, SHARD);
        }
        assert_eq!(dropped as usize, 1_000 - BYTES / packet.len());
        assert!(staging.bytes <= BYTES);
        assert_eq!(staging.peers.len(), BYTES / packet.len());
    }

    #[test]
    fn buffers_are_used_again_and_not_kept_without_bound() {
        let mut staging = Staging::default();
        let peer = PeerSlot(1);
        staging.push(peer, 1, &[7; 1_400], SHARD);
        let first = staging.pop(peer, 1).unwrap().bytes;
        let place = first.as_ptr();
        staging.give_back(first);
        staging.push(PeerSlot(2), 1, &[8; 1_400], SHARD);
        let again = staging.pop(PeerSlot(2), 1).unwrap().bytes;
        assert_eq!((again.as_ptr(), &again[..]), (place, &[8; 1_400][..]));
        staging.give_back(again);
        for peer in 0..1_000 {
            staging.push(PeerSlot(peer), 1, &[7; 1_400], SHARD);
            staging.push(PeerSlot(peer), 1, &[7; 9_000], SHARD);
        }
        for peer in 0..1_000 {
            staging.purge(PeerSlot(peer));
        }
        assert_eq!(staging.spare.len(), SPARE);
        assert!(
            staging
                .spare
                .iter()
                .all(|spare| spare.capacity() <= SPARE_BYTES)
        );
    }

    #[test]
    fn a_slot_with_another_peer_forgets_the_first() {
        let mut staging = Staging::default();
        staging.push(PeerSlot(1), 1, b"old", SHARD);
        assert!(staging.pop(PeerSlot(1), 2).is_none());
        assert_eq!(staging.push(PeerSlot(1), 2, b"new", SHARD), 1);
        assert_eq!(staging.pop(PeerSlot(1), 2).unwrap().bytes, b"new");
        assert_eq!(staging.purge(PeerSlot(1)), 0);
        assert!(staging.is_empty());
    }
}
