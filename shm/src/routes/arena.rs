//! The arenas: how the tries and the list lie in words, and how one arena takes the other's place.

use super::{
    PublishError, Route, Routes,
    build::{Prefix, TABLE_ENTRIES_MAX, Trie, normalize},
    key::{Key, word},
    trie::leaf,
};
use crate::{
    ids::PeerSlot,
    layout::shared,
    segment::Segment,
    sync::{AtomicU64, Ordering, fence},
};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

shared! {
    /// Which arena is read and when the other may be written.
    #[repr(C)]
    pub(crate) struct RoutesControl {
        /// How often routes were published; its low bit is the arena that is read.
        pub(super) generation: AtomicU64,
        /// By arena: the epoch that every worker must have passed before it is written again.
        retired: [AtomicU64; 2],
    }
}

/// The arena's first words: number of IPv4 routes, of IPv6 routes, start of the list, and one [`Section`] a family.
const HEADER_WORDS: usize = 16;
/// A route in the list: the address in two words, then length, family and peer.
const ENTRY_WORDS: usize = 3;
/// Memory is allocated in pieces of this size.
const EXTENT: u64 = 256 * 1024;
const V6: u64 = 1 << 8;

/// Words that any table of this many routes fits.
pub(crate) const fn arena_words(routes: u32) -> u64 {
    // A node has two children or a prefix that ends in it: at most two for each prefix.
    let nodes = 2 * <u128 as Key>::NODE_WORDS as u64;
    // Half words: each fork has the leaf around and its first run, and two more for each prefix that ends in it.
    let leaves = 6 / 2;
    let tables = TABLE_ENTRIES_MAX as u64 / 2;
    let per_route = nodes + leaves + tables + ENTRY_WORDS as u64;
    // Some more for the start of a cache line and odd half words.
    HEADER_WORDS as u64 + 64 + per_route * routes as u64
}

/// Where an address family's trie begins and its arrays are, in words from the arena's start.
#[derive(Clone, Copy, Debug)]
pub(super) struct Section {
    pub(super) root: u32,
    pub(super) nodes: usize,
    pub(super) halves: usize,
}

impl Section {
    #[inline]
    pub(super) fn load<K: Key>(arena: &[AtomicU64]) -> Section {
        // 32 bits each, so that no sum of them overflows whatever they are.
        let number = |at| word(arena, K::SECTION + at) as u32;
        Section {
            root: number(0),
            nodes: number(1) as usize,
            halves: number(2) as usize,
        }
    }
}

/// How many routes an arena has.
pub(super) fn count(arena: &[AtomicU64]) -> usize {
    let number = |at| word(arena, at) as u32 as usize;
    (number(0) + number(1)).min(arena.len() / ENTRY_WORDS)
}

/// The list of an arena; what makes no sense is left out.
pub(super) fn entries(arena: &[AtomicU64]) -> Vec<Route> {
    let start = word(arena, 2) as u32 as usize;
    let end = start + count(arena) * ENTRY_WORDS;
    let Some(list) = arena.get(start..end) else {
        return Vec::new();
    };
    list.chunks_exact(ENTRY_WORDS)
        .filter_map(|entry| {
            let (high, low, rest) = (word(entry, 0), word(entry, 1), word(entry, 2));
            let (address, width): (IpAddr, u8) = if rest & V6 == 0 {
                (Ipv4Addr::from(low as u32).into(), 32)
            } else {
                (
                    Ipv6Addr::from(u128::from(high) << 64 | u128::from(low)).into(),
                    128,
                )
            };
            let length = rest as u8;
            (length <= width).then_some(Route {
                address,
                length,
                peer: PeerSlot((rest >> 32) as u32),
            })
        })
        .collect()
}

/// The arenas' writing side.
#[derive(Debug)]
pub(crate) struct Arenas {
    segment: Segment,
    routes: Routes,
    /// By arena: bytes allocated for sure.
    allocated: [u64; 2],
}

impl Arenas {
    pub(crate) fn new(segment: &Segment, routes: Routes) -> Arenas {
        Arenas {
            segment: segment.clone(),
            routes,
            allocated: [0; 2],
        }
    }

    /// Writes the routes into the arena that nobody reads and makes it the one that is read. The caller then begins
    /// the epoch `next`.
    pub(crate) fn publish(
        &mut self,
        routes: &[Route],
        next: u64,
        passed: impl Fn(u64) -> bool,
    ) -> Result<(), PublishError> {
        let control = &self.routes.control;
        let generation = control.generation.load(Ordering::Relaxed);
        let target = (generation.wrapping_add(1) & 1) as usize;
        let retired = control.retired[target].load(Ordering::Relaxed);
        if retired != 0 && !passed(retired) {
            return Err(PublishError::Busy);
        }

        let (mut v4, mut v6) = by_family(routes);
        normalize(&mut v4);
        normalize(&mut v6);
        if v4.len() + v6.len() > self.segment.geometry().routes as usize {
            return Err(PublishError::Full);
        }
        let (trie_v4, trie_v6) = (Trie::build(&v4), Trie::build(&v6));

        let mut image = Image::new();
        image.section::<u32>(&trie_v4);
        image.section::<u128>(&trie_v6);
        image.list(&v4, &v6);
        self.allocate(target, image.end as u64 * 8)?;

        // A reader outside of the epochs that sees one of the stores below sees the last generation, too.
        fence(Ordering::Release);
        image.copy_to(&self.routes.arenas[target])?;

        // Before the flip: a successor of a meta that died in between takes the old arena for retired, at worst later
        // than necessary.
        self.routes.control.retired[1 - target].store(next, Ordering::Relaxed);
        self.routes
            .control
            .generation
            .store(generation.wrapping_add(1), Ordering::SeqCst);
        Ok(())
    }

    fn allocate(&mut self, arena: usize, bytes: u64) -> Result<(), PublishError> {
        let have = self.allocated[arena];
        if bytes <= have {
            return Ok(());
        }
        let whole = self.routes.arenas[arena].len() as u64 * 8;
        let wanted = bytes.next_multiple_of(EXTENT).min(whole);
        let name = ["routes_0", "routes_1"][arena];
        // Too much for the arena or for the memory: the same to the caller.
        self.segment
            .allocate(name, have, wanted.max(bytes) - have)
            .map_err(|_| PublishError::Full)?;
        self.allocated[arena] = wanted;
        Ok(())
    }
}

fn by_family(routes: &[Route]) -> (Vec<Prefix<u32>>, Vec<Prefix<u128>>) {
    let (mut v4, mut v6) = (Vec::new(), Vec::new());
    for route in routes {
        let leaf = leaf(route.peer);
        match route.address {
            IpAddr::V4(address) => v4.push(prefix(u32::from(address), route.length, leaf)),
            IpAddr::V6(address) => v6.push(prefix(u128::from(address), route.length, leaf)),
        }
    }
    (v4, v6)
}

fn prefix<K: Key>(address: K, length: u8, leaf: u32) -> Prefix<K> {
    let length = u32::from(length).min(K::WIDTH);
    Prefix {
        address: address.masked(length),
        length,
        leaf,
    }
}

/// What an arena will hold: pieces and where they go.
struct Image<'a> {
    header: [u64; HEADER_WORDS],
    halves: Vec<(usize, &'a [u32])>,
    words: Vec<(usize, &'a [u64])>,
    list: (usize, Vec<u64>),
    end: usize,
}

impl<'a> Image<'a> {
    fn new() -> Image<'a> {
        Image {
            header: [0; HEADER_WORDS],
            halves: Vec::new(),
            words: Vec::new(),
            list: (0, Vec::new()),
            end: HEADER_WORDS,
        }
    }

    fn section<K: Key>(&mut self, trie: &'a Trie) {
        // On a cache line, so that a node never lies on two.
        self.end = self.end.next_multiple_of(8);
        let nodes = self.place(trie.nodes.len());
        let halves = self.place(trie.halves.len().div_ceil(2));
        self.words.push((nodes, &trie.nodes));
        self.halves.push((halves, &trie.halves));
        let section = [u64::from(trie.root), nodes as u64, halves as u64];
        self.header[K::SECTION..K::SECTION + 3].copy_from_slice(&section);
    }

    fn list(&mut self, v4: &[Prefix<u32>], v6: &[Prefix<u128>]) {
        let mut list = Vec::with_capacity((v4.len() + v6.len()) * ENTRY_WORDS);
        let rest = |length: u32, leaf: u32| u64::from(length) | u64::from(leaf - 1) << 32;
        for prefix in v4 {
            list.extend([0, prefix.address.into(), rest(prefix.length, prefix.leaf)]);
        }
        for prefix in v6 {
            let (high, low) = ((prefix.address >> 64) as u64, prefix.address as u64);
            list.extend([high, low, rest(prefix.length, prefix.leaf) | V6]);
        }
        let start = self.place(list.len());
        self.header[..3].copy_from_slice(&[v4.len() as u64, v6.len() as u64, start as u64]);
        self.list = (start, list);
    }

    fn place(&mut self, words: usize) -> usize {
        let start = self.end;
        self.end += words;
        start
    }

    fn copy_to(&self, arena: &[AtomicU64]) -> Result<(), PublishError> {
        let pieces = self.words.iter().map(|(start, words)| (*start, *words));
        let rest = [
            (0, self.header.as_slice()),
            (self.list.0, self.list.1.as_slice()),
        ];
        for (start, words) in pieces.chain(rest) {
            let target = arena
                .get(start..start + words.len())
                .ok_or(PublishError::Full)?;
            for (shared, word) in target.iter().zip(words) {
                shared.store(*word, Ordering::Relaxed);
            }
        }
        for (start, halves) in &self.halves {
            let end = start + halves.len().div_ceil(2);
            let target = arena.get(*start..end).ok_or(PublishError::Full)?;
            for (shared, pair) in target.iter().zip(halves.chunks(2)) {
                let high = pair.get(1).copied().unwrap_or(0);
                shared.store(
                    u64::from(pair[0]) | u64::from(high) << 32,
                    Ordering::Relaxed,
                );
            }
        }
        Ok(())
    }
}
