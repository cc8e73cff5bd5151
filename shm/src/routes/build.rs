//! Building a trie from a list of prefixes, in the builder's own memory.

use super::{
    key::{Key, STRIDE},
    trie::NODE,
};

const CHILDREN: usize = 1 << STRIDE;

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
    /// The bits that the table before the trie decides on.
    pub(super) first_bits: u32,
    /// That table: leaves and nodes.
    pub(super) first: Vec<u32>,
    /// [`Key::NODE_WORDS`] each.
    pub(super) nodes: Vec<u64>,
    pub(super) leaves: Vec<u32>,
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
        let first_bits = prefixes
            .len()
            .checked_ilog2()
            .unwrap_or(0)
            .min(K::FIRST_BITS_MAX);
        let mut trie = Trie {
            first_bits,
            first: vec![0; 1 << first_bits],
            nodes: Vec::new(),
            leaves: Vec::new(),
        };
        let mut rest = prefixes;
        while let Some(prefix) = rest.first() {
            let index = prefix.address.first(first_bits);
            if prefix.length <= first_bits {
                let count = 1 << (first_bits - prefix.length);
                trie.first[index..index + count].fill(prefix.leaf);
                rest = &rest[1..];
                continue;
            }
            let inside;
            (inside, rest) = split(rest, |other| other.address.first(first_bits) == index);
            let node = trie.reserve::<K>(1);
            trie.fill(node, inside, first_bits, trie.first[index]);
            trie.first[index] = NODE | node;
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

    /// Writes the node of all prefixes that begin with the same `depth` bits and are longer. `inherited` is the leaf
    /// of the prefix around them.
    fn fill<K: Key>(&mut self, node: u32, prefixes: &[Prefix<K>], depth: u32, inherited: u32) {
        let (Some(first), Some(last)) = (prefixes.first(), prefixes.last()) else {
            return;
        };
        // Up to here there is no fork and no prefix ends, so these bits are skipped. The shortest prefix, if it is
        // shorter than what all share, is the first.
        let common = first.address.common(last.address).min(first.length);
        let depth = common.min(K::WIDTH - STRIDE).max(depth);

        let mut slots = [inherited; CHILDREN];
        let mut children: u64 = 0;
        let mut groups: Vec<(usize, &[Prefix<K>])> = Vec::new();
        let mut rest = prefixes;
        while let Some(prefix) = rest.first() {
            let slot = prefix.address.stride(depth) as usize;
            if prefix.length <= depth + STRIDE {
                let count = 1 << (depth + STRIDE - prefix.length);
                slots[slot..slot + count].fill(prefix.leaf);
                rest = &rest[1..];
                continue;
            }
            let inside;
            (inside, rest) = split(rest, |other| other.address.stride(depth) as usize == slot);
            children |= 1 << slot;
            groups.push((slot, inside));
        }

        let first_leaf = self.leaves.len() as u32;
        let runs = self.push_leaves(inherited, &slots, children);
        let first_child = self.reserve::<K>(groups.len());
        let mut words = Vec::with_capacity(K::NODE_WORDS);
        words.extend([
            children,
            runs,
            u64::from(first_child) | u64::from(first_leaf) << 32,
        ]);
        first.address.path_words(depth, &mut words);
        let start = node as usize * K::NODE_WORDS;
        self.nodes[start..start + K::NODE_WORDS].copy_from_slice(&words);

        for (child, (slot, inside)) in groups.into_iter().enumerate() {
            self.fill(
                first_child + child as u32,
                inside,
                depth + STRIDE,
                slots[slot],
            );
        }
    }

    /// The leaf for whoever leaves the path, then one for each run of equal slots, children not counted. Gives the
    /// bits of where runs begin.
    fn push_leaves(&mut self, inherited: u32, slots: &[u32; CHILDREN], children: u64) -> u64 {
        self.leaves.push(inherited);
        let mut runs = 0;
        let mut current = None;
        for (slot, leaf) in slots.iter().enumerate() {
            if children >> slot & 1 == 0 && current != Some(*leaf) {
                current = Some(*leaf);
                runs |= 1 << slot;
                self.leaves.push(*leaf);
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
