//! Building a trie from a list of prefixes, in the builder's own memory.

use super::{
    key::Key,
    trie::{END, FORK, NODE, STRIDE, TABLE},
};

const CHILDREN: usize = 1 << STRIDE;
/// From so many prefixes on a table is better than a fork.
const TABLE_FROM: usize = 4 * CHILDREN;
/// A table decides on at most so many bits: four megabytes.
const TABLE_BITS_MAX: u32 = 20;
/// Entries of tables there may be for each prefix. One table takes two at most; where tables within tables would take
/// more than this (prefixes made to that end), forks stand in their place.
pub(super) const TABLE_ENTRIES_MAX: usize = 4;

/// A prefix and the leaf it stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Prefix<K> {
    pub(super) address: K,
    pub(super) length: u32,
    pub(super) leaf: u32,
}

/// The arrays of one address family.
#[derive(Debug)]
pub(super) struct Trie {
    /// The entry to begin with.
    pub(super) root: u32,
    /// [`Key::NODE_WORDS`] each.
    pub(super) nodes: Vec<u64>,
    /// Leaves of forks and entries of tables.
    pub(super) halves: Vec<u32>,
    /// Entries that further tables may take.
    table_entries: usize,
}

/// Sorts by address and length; of equal prefixes the last one stays.
pub(super) fn normalize<K: Key>(prefixes: &mut Vec<Prefix<K>>) {
    // Stable, so that equal prefixes keep their order.
    prefixes.sort_by_key(|prefix| (prefix.address, prefix.length));
    prefixes.dedup_by(|later, earlier| {
        let same = later.address == earlier.address && later.length == earlier.length;
        if same {
            earlier.leaf = later.leaf;
        }
        same
    });
}

impl Trie {
    /// The trie of prefixes in the order of [`normalize`], which the recursion relies on: a prefix stands before those
    /// it covers.
    pub(super) fn build<K: Key>(prefixes: &[Prefix<K>]) -> Trie {
        let mut trie = Trie {
            root: 0,
            nodes: Vec::new(),
            halves: Vec::new(),
            table_entries: TABLE_ENTRIES_MAX * prefixes.len(),
        };
        if !prefixes.is_empty() {
            let root = trie.reserve::<K>(1);
            trie.fill(root, prefixes, 0, 0);
            trie.root = NODE | root;
        }
        trie
    }

    /// Room for nodes side by side; gives the first one's number.
    fn reserve<K: Key>(&mut self, count: usize) -> u32 {
        let number = self.nodes.len() / K::NODE_WORDS;
        self.nodes
            .resize(self.nodes.len() + count * K::NODE_WORDS, 0);
        number as u32
    }

    fn write<K: Key>(&mut self, node: u32, own: [u64; 3], path: K, number: u32) {
        let mut words = own.to_vec();
        path.path_words(number, &mut words);
        let start = node as usize * K::NODE_WORDS;
        self.nodes[start..start + K::NODE_WORDS].copy_from_slice(&words);
    }

    /// Writes the node of one or more prefixes that begin with the same `depth` bits and are no shorter. `around` is
    /// the leaf of the longest prefix around them.
    fn fill<K: Key>(&mut self, node: u32, prefixes: &[Prefix<K>], depth: u32, around: u32) {
        let (Some(first), Some(last)) = (prefixes.first(), prefixes.last()) else {
            return;
        };
        if prefixes.len() == 1 {
            let leaves = u64::from(first.leaf) | u64::from(around) << 32;
            return self.write(node, [leaves, 0, 0], first.address, END | first.length);
        }
        // Up to here there is no fork and no prefix ends, so these bits are skipped. The shortest prefix, if it is
        // shorter than what all share, is the first.
        let common = first.address.common(last.address).min(first.length);
        // As many bits as entries for all, so that a dense range of addresses needs nothing behind its table.
        let bits = prefixes
            .len()
            .next_power_of_two()
            .trailing_zeros()
            .min(TABLE_BITS_MAX);
        let bits = bits.min(K::WIDTH - common);
        if prefixes.len() >= TABLE_FROM && bits > STRIDE && self.table_entries >= 1 << bits {
            self.table_entries -= 1 << bits;
            self.fill_table(node, prefixes, common, bits, around);
        } else {
            let depth = common.min(K::WIDTH - STRIDE).max(depth);
            self.fill_fork(node, prefixes, depth, around);
        }
    }

    fn fill_table<K: Key>(
        &mut self,
        node: u32,
        prefixes: &[Prefix<K>],
        depth: u32,
        bits: u32,
        around: u32,
    ) {
        let start = self.halves.len();
        self.halves.resize(start + (1 << bits), around);
        let table = start as u64 | u64::from(bits) << 32;
        self.write(
            node,
            [table, around.into(), 0],
            prefixes[0].address,
            TABLE | depth,
        );

        let mut rest = prefixes;
        while let Some(prefix) = rest.first() {
            let slot = start + prefix.address.bits(depth, bits);
            if prefix.length <= depth + bits {
                let count = 1 << (depth + bits - prefix.length);
                self.halves[slot..slot + count].fill(prefix.leaf);
                rest = &rest[1..];
                continue;
            }
            let inside;
            (inside, rest) = split(rest, |other| {
                start + other.address.bits(depth, bits) == slot
            });
            let child = self.reserve::<K>(1);
            self.fill(child, inside, depth + bits, self.halves[slot]);
            self.halves[slot] = NODE | child;
        }
    }

    fn fill_fork<K: Key>(&mut self, node: u32, prefixes: &[Prefix<K>], depth: u32, around: u32) {
        let mut slots = [around; CHILDREN];
        let mut children: u64 = 0;
        let mut groups: Vec<(usize, &[Prefix<K>])> = Vec::new();
        let mut rest = prefixes;
        while let Some(prefix) = rest.first() {
            let slot = prefix.address.bits(depth, STRIDE);
            if prefix.length <= depth + STRIDE {
                let count = 1 << (depth + STRIDE - prefix.length);
                slots[slot..slot + count].fill(prefix.leaf);
                rest = &rest[1..];
                continue;
            }
            let inside;
            (inside, rest) = split(rest, |other| other.address.bits(depth, STRIDE) == slot);
            children |= 1 << slot;
            groups.push((slot, inside));
        }

        let first_leaf = self.halves.len() as u64;
        let runs = self.push_leaves(around, &slots, children);
        let first_child = self.reserve::<K>(groups.len());
        let bases = u64::from(first_child) | first_leaf << 32;
        self.write(
            node,
            [children, runs, bases],
            prefixes[0].address,
            FORK | depth,
        );
        for (child, (slot, inside)) in (first_child..).zip(groups) {
            self.fill(child, inside, depth + STRIDE, slots[slot]);
        }
    }

    /// The leaf around, then one for each run of equal slots, children not counted. Gives the bits of where runs
    /// begin.
    fn push_leaves(&mut self, around: u32, slots: &[u32; CHILDREN], children: u64) -> u64 {
        self.halves.push(around);
        let mut runs = 0;
        let mut current = None;
        for (slot, leaf) in slots.iter().enumerate() {
            if children >> slot & 1 == 0 && current != Some(*leaf) {
                current = Some(*leaf);
                runs |= 1 << slot;
                self.halves.push(*leaf);
            }
        }
        runs
    }
}

/// The prefixes at the front for which `same` holds, and the others.
fn split<K: Key>(
    prefixes: &[Prefix<K>],
    same: impl Fn(&Prefix<K>) -> bool,
) -> (&[Prefix<K>], &[Prefix<K>]) {
    let end = prefixes.iter().position(|prefix| !same(prefix));
    prefixes.split_at(end.unwrap_or(prefixes.len()))
}
