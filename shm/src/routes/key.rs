//! IPv4 and IPv6 addresses as the trie sees them: bits from the left.

use crate::sync::{AtomicU64, Ordering};

/// Bits that a node decides on.
pub(super) const STRIDE: u32 = 6;

/// An address. Depths count bits from the left; any depth is taken, one beyond the address counts as one within.
pub(super) trait Key: Copy + Ord {
    /// Bits of an address.
    const WIDTH: u32;
    /// Words of a node: two bitmaps, two bases, then [`path_words`](Self::path_words).
    const NODE_WORDS: usize;
    /// The address family's place in the arena's header.
    const SECTION: usize;
    /// The bits of the table before the trie are at most these.
    const FIRST_BITS_MAX: u32;

    /// The [`STRIDE`] bits after the first `depth`; zeros stand behind the address.
    fn stride(self, depth: u32) -> u32;
    /// The first `bits` bits, at most 31.
    fn first(self, bits: u32) -> usize;
    /// Whether two addresses differ in the first `depth` bits.
    fn differs(self, other: Self, depth: u32) -> bool;
    /// How many bits are equal from the left.
    fn common(self, other: Self) -> u32;
    /// The address with all but the first `length` bits zero.
    fn masked(self, length: u32) -> Self;
    /// A node's depth and the address that leads to it, from its last words.
    fn path(node: &[AtomicU64]) -> (Self, u32);
    /// The same as words.
    fn path_words(self, depth: u32, words: &mut Vec<u64>);
}

impl Key for u32 {
    const WIDTH: u32 = 32;
    const NODE_WORDS: usize = 4;
    const SECTION: usize = 4;
    const FIRST_BITS_MAX: u32 = 18;

    #[inline]
    fn stride(self, depth: u32) -> u32 {
        (self << (depth & 31)) >> (Self::WIDTH - STRIDE)
    }

    #[inline]
    fn first(self, bits: u32) -> usize {
        ((u64::from(self) << (bits & 31)) >> 32) as usize
    }

    #[inline]
    fn differs(self, other: u32, depth: u32) -> bool {
        u64::from(self ^ other) >> (32 - (depth & 31)) != 0
    }

    fn common(self, other: u32) -> u32 {
        (self ^ other).leading_zeros()
    }

    fn masked(self, length: u32) -> u32 {
        self & u32::MAX.checked_shl(Self::WIDTH - length).unwrap_or(0)
    }

    #[inline]
    fn path(node: &[AtomicU64]) -> (u32, u32) {
        let word = word(node, 3);
        (word as u32, (word >> 32) as u32)
    }

    fn path_words(self, depth: u32, words: &mut Vec<u64>) {
        words.push(u64::from(self) | u64::from(depth) << 32);
    }
}

impl Key for u128 {
    const WIDTH: u32 = 128;
    /// Six are used; eight are a cache line.
    const NODE_WORDS: usize = 8;
    const SECTION: usize = 8;
    const FIRST_BITS_MAX: u32 = 0;

    #[inline]
    fn stride(self, depth: u32) -> u32 {
        ((self << (depth & 127)) >> (Self::WIDTH - STRIDE)) as u32
    }

    #[inline]
    fn first(self, bits: u32) -> usize {
        ((self >> 96 << (bits & 31)) >> 32) as usize
    }

    #[inline]
    fn differs(self, other: u128, depth: u32) -> bool {
        ((self ^ other) >> 1) >> (127 - (depth & 127)) != 0
    }

    fn common(self, other: u128) -> u32 {
        (self ^ other).leading_zeros()
    }

    fn masked(self, length: u32) -> u128 {
        self & u128::MAX.checked_shl(Self::WIDTH - length).unwrap_or(0)
    }

    #[inline]
    fn path(node: &[AtomicU64]) -> (u128, u32) {
        let path = u128::from(word(node, 3)) << 64 | u128::from(word(node, 4));
        (path, word(node, 5) as u32)
    }

    fn path_words(self, depth: u32, words: &mut Vec<u64>) {
        words.extend([(self >> 64) as u64, self as u64, depth.into(), 0, 0]);
    }
}

/// A word of an arena; zero beyond its end.
#[inline]
pub(super) fn word(words: &[AtomicU64], at: usize) -> u64 {
    words.get(at).map_or(0, |word| word.load(Ordering::Relaxed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_are_counted_from_the_left() {
        let v4 = 0x8000_0003_u32;
        assert_eq!(v4.stride(0), 0b10_0000);
        assert_eq!(v4.stride(26), 3);
        assert_eq!(v4.stride(30), 0b11_0000);
        assert_eq!(v4.first(0), 0);
        assert_eq!(v4.first(8), 0x80);
        assert!(!v4.differs(0, 0) && v4.differs(0, 1));
        assert!(!v4.differs(0x8000_0000, 30) && v4.differs(0x8000_0000, 31));
        assert_eq!(
            (v4.masked(0), v4.masked(31), v4.masked(32)),
            (0, 0x8000_0002, v4)
        );

        let v6 = u128::from(v4) << 96 | 3;
        assert_eq!(v6.stride(0), 0b10_0000);
        assert_eq!(v6.stride(126), 0b11_0000);
        assert_eq!(v6.first(0), 0);
        assert!(!v6.differs(0, 0) && v6.differs(0, 1));
        assert!(!v6.differs(u128::from(v4) << 96, 126) && v6.differs(u128::from(v4) << 96, 127));
        assert_eq!((v6.masked(0), v6.masked(128)), (0, v6));
    }
}
