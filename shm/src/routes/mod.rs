//! Allowed IPs: which peer an address belongs to, by the longest prefix.
//!
//! The table is a trie with up to 64 children a node (after poptrie: Asai and Ohara, SIGCOMM 2015): a node has one bit
//! for each child and one for each run of equal leaves, and counting bits gives the place in an array. Paths without
//! a fork are skipped (the node says which bits must have come before), so an IPv6 table is no deeper than an IPv4
//! one; where many prefixes meet, one table of up to 20 bits stands for several levels, and a prefix alone needs no
//! level at all.
//!
//! It is written whole into one of two arenas while the other is read; a generation word says which is which. All
//! places are counted from the arena's start and checked at every step: a lookup in an arena full of garbage gives a
//! wrong peer or none.

mod arena;
mod build;
mod key;
#[cfg(all(test, not(loom)))]
mod tests;
mod trie;

pub(crate) use arena::{Arenas, RoutesControl, arena_words};

use crate::{
    ids::PeerSlot,
    segment::View,
    sync::{AtomicU64, Ordering, fence},
};
use std::net::IpAddr;

/// One prefix of one peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Route {
    /// The address; bits behind the prefix are ignored.
    pub address: IpAddr,
    /// The prefix length: up to 32 or 128; more means that.
    pub length: u8,
    /// Whose it is.
    pub peer: PeerSlot,
}

/// Why routes were not published; the old ones stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PublishError {
    /// A worker may still read the arena that is written next: try again next turn.
    #[error("a worker still reads the former routes: try again")]
    Busy,
    /// More routes than the limit, or no memory for them.
    #[error("the route table is full: raise `routes` in [limits] and start again")]
    Full,
}

/// How often a reader that is in no epoch tries to read one generation.
const TRIES: u32 = 4;

/// The route tables, for reading.
///
/// [`lookup_v4`](Self::lookup_v4) and [`lookup_v6`](Self::lookup_v6) are for workers, whose epoch keeps the arena they
/// read from being written; the others look at the generation again afterwards.
#[derive(Clone, Debug)]
pub struct Routes {
    control: View<RoutesControl>,
    arenas: [View<[AtomicU64]>; 2],
}

impl Routes {
    pub(crate) fn new(control: View<RoutesControl>, arenas: [View<[AtomicU64]>; 2]) -> Routes {
        Routes { control, arenas }
    }

    /// The peer with the longest prefix that covers an IPv4 address.
    #[inline]
    pub fn lookup_v4(&self, address: u32) -> Option<PeerSlot> {
        trie::lookup(self.current()?, address)
    }

    /// The peer with the longest prefix that covers an IPv6 address.
    #[inline]
    pub fn lookup_v6(&self, address: u128) -> Option<PeerSlot> {
        trie::lookup(self.current()?, address)
    }

    /// The peer with the longest prefix that covers an address.
    pub fn lookup(&self, address: IpAddr) -> Option<PeerSlot> {
        self.consistent(|arena| match address {
            IpAddr::V4(v4) => trie::lookup(arena, u32::from(v4)),
            IpAddr::V6(v6) => trie::lookup(arena, u128::from(v6)),
        })
        .flatten()
    }

    /// All routes, IPv4 first, each by address and length. For the tools. Empty too when the routes change so fast
    /// that they can't be read.
    pub fn entries(&self) -> Vec<Route> {
        self.consistent(arena::entries).unwrap_or_default()
    }

    /// How many routes there are.
    pub fn len(&self) -> usize {
        self.consistent(arena::count).unwrap_or(0)
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Changes whenever routes are published; 0: none were yet.
    #[inline]
    pub fn generation(&self) -> u64 {
        // Acquire: who sees the generation sees its arena.
        self.control.generation.load(Ordering::Acquire)
    }

    #[inline]
    fn current(&self) -> Option<&[AtomicU64]> {
        let generation = self.generation();
        if generation == 0 {
            return None;
        }
        Some(self.arena(generation))
    }

    #[inline]
    fn arena(&self, generation: u64) -> &[AtomicU64] {
        &self.arenas[(generation & 1) as usize]
    }

    /// What `read` gives for an arena that was not written meanwhile; `None`: no routes yet, or no luck.
    fn consistent<R>(&self, read: impl Fn(&[AtomicU64]) -> R) -> Option<R> {
        for _ in 0..TRIES {
            let generation = self.generation();
            if generation == 0 {
                return None;
            }
            let result = read(self.arena(generation));
            // An arena is written again only after the next generation was published: seeing the same generation
            // after the reads, with the writer's release fence before its stores, means that none of them was seen.
            fence(Ordering::Acquire);
            if self.control.generation.load(Ordering::Relaxed) == generation {
                return Some(result);
            }
        }
        None
    }
}
