//! IPv4 and IPv6 addresses as the trie sees them: bits from the left.

use crate::sync::{AtomicU64, Ordering};

/// An address. Any depth and count is taken, whatever it means.
pub(super) trait Key: Copy + Ord {
    /// Bits of an address.
    const WIDTH: u32;
    /// Words of a node: three of its own and [`path_words`](Self::path_words).
    const NODE_WORDS: usize;
    /// The address family's place in the arena's header.
    const SECTION: usize;

    /// The `count` bits (1 to 31) after the first `depth`; zeros stand behind the address.
    fn bits(self, depth: u32, count: u32) -> usize;
    /// How many bits are equal from the left.
    fn common(self, other: Self) -> u32;
    /// The address with all but the first `length` bits zero.
    fn masked(self, length: u32) -> Self;
    /// The address and the number in a node's last words.
    fn path(node: &[AtomicU64]) -> (Self, u32);
    /// The same as words.
    fn path_words(self, number: u32, words: &mut Vec<u64>);
}

impl Key for u32 {
    const WIDTH: u32 = 32;
    const NODE_WORDS: usize = 4;
    const SECTION: usize = 4;

    #[inline]
    fn bits(self, depth: u32, count: u32) -> usize {
        ((self << (depth & 31)) >> (Self::WIDTH.wrapping_sub(count) & 31)) as usize
    }

    #[inline]
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

    fn path_words(self, number: u32, words: &mut Vec<u64>) {
        words.push(u64::from(self) | u64::from(number) << 32);
    }
}

impl Key for u128 {
    const WIDTH: u32 = 128;
    /// Six are used; eight are a cache line.
    const NODE_WORDS: usize = 8;
    const SECTION: usize = 8;

    #[inline]
    fn bits(self, depth: u32, count: u32) -> usize {
        let top = ((self << (depth & 127)) >> 96) as u32;
        (top >> (32_u32.wrapping_sub(count) & 31)) as usize
    }

    #[inline]
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

    fn path_words(self, number: u32, words: &mut Vec<u64>) {
        words.extend([(self >> 64) as u64, self as u64, number.into(), 0, 0]);
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
        assert_eq!(v4.bits(0, 6), 0b10_0000);
        assert_eq!(v4.bits(26, 6), 3);
        assert_eq!(v4.bits(30, 6), 0b11_0000);
        assert_eq!(v4.bits(0, 8), 0x80);
        assert_eq!(
            (v4.common(v4), v4.common(0), v4.common(0x8000_0000)),
            (32, 0, 30)
        );
        assert_eq!(
            (v4.masked(0), v4.masked(31), v4.masked(32)),
            (0, 0x8000_0002, v4)
        );

        let v6 = u128::from(v4) << 96 | 3;
        assert_eq!(v6.bits(0, 6), 0b10_0000);
        assert_eq!(v6.bits(126, 6), 0b11_0000);
        assert_eq!(v6.bits(108, 20), 3);
        assert_eq!(
            (v6.common(v6), v6.common(0), v6.common(v6 ^ 1)),
            (128, 0, 127)
        );
        assert_eq!((v6.masked(0), v6.masked(128)), (0, v6));
    }
}
