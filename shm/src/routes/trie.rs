//! Looking an address up in an arena.

use super::{
    arena::Section,
    key::{Key, STRIDE, word},
};
use crate::{ids::PeerSlot, sync::AtomicU64};

/// Set in an entry that is a node's number and not a leaf.
pub(super) const NODE: u32 = 1 << 31;

/// The leaf of a peer, above zero, which is nobody's. (No table has peers that a leaf has no room for.)
pub(super) fn leaf(peer: PeerSlot) -> u32 {
    peer.0.min(NODE - 2) + 1
}

const fn peer(leaf: u32) -> Option<PeerSlot> {
    match leaf {
        0 => None,
        leaf => Some(PeerSlot(leaf - 1)),
    }
}

/// The peer of the longest prefix that covers the address.
#[inline]
pub(super) fn lookup<K: Key>(arena: &[AtomicU64], address: K) -> Option<PeerSlot> {
    let section = Section::load::<K>(arena);
    let mut entry = half_word(arena, section.first, address.first(section.first_bits));
    // Each step goes six bits deeper, so a trie that was built has no more.
    for _ in 0..=K::WIDTH / STRIDE {
        if entry & NODE == 0 {
            break;
        }
        entry = step(arena, &section, address, (entry & !NODE) as usize)?;
    }
    peer(entry & !NODE)
}

/// What a node says about an address: a leaf or another node.
#[inline]
fn step<K: Key>(arena: &[AtomicU64], section: &Section, address: K, number: usize) -> Option<u32> {
    let start = section.nodes + number * K::NODE_WORDS;
    let node = arena.get(start..start + K::NODE_WORDS)?;
    let (children, runs, bases) = (word(node, 0), word(node, 1), word(node, 2));
    let first_leaf = (bases >> 32) as usize;
    let (path, depth) = K::path(node);
    if address.differs(path, depth) {
        // The node's first leaf is for whoever left the path on the way to it.
        return Some(half_word(arena, section.leaves, first_leaf));
    }
    let bit = address.stride(depth);
    if children >> bit & 1 == 1 {
        let before = (children & ((1 << bit) - 1)).count_ones();
        return Some(NODE | (bases as u32).wrapping_add(before));
    }
    let run = (runs & (u64::MAX >> (63 - bit))).count_ones();
    Some(half_word(arena, section.leaves, first_leaf + run as usize))
}

/// An entry of an array of half words that begins at the word `start`.
#[inline]
fn half_word(arena: &[AtomicU64], start: usize, number: usize) -> u32 {
    (word(arena, start + number / 2) >> (32 * (number & 1))) as u32
}
