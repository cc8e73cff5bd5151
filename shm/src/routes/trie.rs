//! The trie in an arena: what its words mean, and looking an address up.
//!
//! An *entry* is a half word: a leaf (0: nobody's, else a peer) or, with [`NODE`] set, a node's number. Every node
//! says in its last words which bits must have come before it; who differs there gets the leaf of the prefix around
//! the node. There are three kinds:
//!
//! | kind | word 0 | word 1 | word 2 |
//! |---|---|---|---|
//! | end: one prefix | its leaf, leaf around | – | – |
//! | fork: decides on 6 bits | bit a child | bit where a run of equal leaves begins | first child, first leaf |
//! | table: decides on up to 20 bits | first entry, number of bits | leaf around | – |
//!
//! A fork's first leaf is the one around it, those of its runs follow. Children of a fork lie side by side; the
//! entries of a table are any.

use super::{
    arena::Section,
    key::{Key, word},
};
use crate::{ids::PeerSlot, sync::AtomicU64};

/// Set in an entry that is a node's number and not a leaf.
pub(super) const NODE: u32 = 1 << 31;
/// Bits that a fork decides on.
pub(super) const STRIDE: u32 = 6;

/// One prefix; the number in its path is the prefix length.
pub(super) const END: u32 = 0;
/// Up to 64 ways; the number in its path is the depth.
pub(super) const FORK: u32 = 1 << 8;
/// A table; the number in its path is the depth.
pub(super) const TABLE: u32 = 2 << 8;
/// What of that number is length or depth.
const DEPTH: u32 = 0xff;

/// The leaf of a peer, above zero, which is nobody's. (No table has peers that a leaf has no room for.)
pub(super) fn leaf(peer: PeerSlot) -> u32 {
    peer.0.min(NODE - 2) + 1
}

/// The peer of the longest prefix that covers the address.
#[inline]
pub(super) fn lookup<K: Key>(arena: &[AtomicU64], address: K) -> Option<PeerSlot> {
    let section = Section::load::<K>(arena);
    let mut entry = section.root;
    // Each step goes six bits deeper at least, so a trie that was built has no more.
    for _ in 0..=K::WIDTH.div_ceil(STRIDE) {
        if entry & NODE == 0 {
            break;
        }
        entry = step(arena, &section, address, (entry & !NODE) as usize)?;
    }
    match entry & !NODE {
        0 => None,
        leaf => Some(PeerSlot(leaf - 1)),
    }
}

/// What a node says about an address: a leaf or another node.
#[inline]
fn step<K: Key>(arena: &[AtomicU64], section: &Section, address: K, number: usize) -> Option<u32> {
    let start = section.nodes + number * K::NODE_WORDS;
    let node = arena.get(start..start + K::NODE_WORDS)?;
    let (path, number) = K::path(node);
    let depth = number & DEPTH;
    let left = address.common(path) < depth;
    match number & !DEPTH {
        END => Some((word(node, 0) >> if left { 32 } else { 0 }) as u32),
        FORK => {
            let (children, runs, bases) = (word(node, 0), word(node, 1), word(node, 2));
            let first_leaf = (bases >> 32) as usize;
            if left {
                return Some(half_word(arena, section.halves, first_leaf));
            }
            let bit = address.bits(depth, STRIDE);
            if children >> bit & 1 == 1 {
                let before = (children & ((1 << bit) - 1)).count_ones();
                return Some(NODE | (bases as u32).wrapping_add(before));
            }
            let run = (runs & (u64::MAX >> (63 - bit))).count_ones() as usize;
            Some(half_word(arena, section.halves, first_leaf + run))
        }
        TABLE => {
            if left {
                return Some(word(node, 1) as u32);
            }
            let table = word(node, 0);
            let index = address.bits(depth, (table >> 32) as u32);
            Some(half_word(
                arena,
                section.halves,
                table as u32 as usize + index,
            ))
        }
        _ => None,
    }
}

/// An entry of an array of half words that begins at the word `start`.
#[inline]
fn half_word(arena: &[AtomicU64], start: usize, number: usize) -> u32 {
    (word(arena, start + number / 2) >> (32 * (number & 1))) as u32
}
