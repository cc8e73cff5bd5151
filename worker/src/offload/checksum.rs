//! The Internet checksum (RFC 1071), also of bytes while they are copied.
//!
//! Sums are kept in the byte order of the machine: RFC 1071, section 2 (B), shows that the result
//! is the same once it is stored in that order, too.

use crate::sys::simd;

/// A sum that is not folded yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sum(u64);

impl Sum {
    /// Adds bytes. Only the last that are added may be odd in number.
    #[inline]
    #[must_use]
    pub fn bytes(self, bytes: &[u8]) -> Sum {
        Sum(self.0 + simd::sum(bytes))
    }

    /// Copies bytes and adds them in the same pass. Both ranges are equally long.
    #[inline]
    #[must_use]
    pub fn copied(self, to: &mut [u8], from: &[u8]) -> Sum {
        Sum(self.0 + simd::copy_and_sum(to, from))
    }

    /// Adds another sum.
    #[inline]
    #[must_use]
    pub fn and(self, other: Sum) -> Sum {
        Sum(self.0 + other.0)
    }

    /// Adds a 16-bit number.
    #[inline]
    #[must_use]
    pub fn word(self, word: u16) -> Sum {
        Sum(self.0 + u64::from(word.to_be()))
    }

    /// The sum in 16 bits with its carries, as the bytes that would be stored.
    #[inline]
    #[must_use]
    pub fn folded(self) -> [u8; 2] {
        let mut sum = (self.0 >> 32) + (self.0 & 0xffff_ffff);
        while sum > 0xffff {
            sum = (sum >> 16) + (sum & 0xffff);
        }
        (sum as u16).to_ne_bytes()
    }

    /// The checksum: the folded sum's complement.
    #[inline]
    #[must_use]
    pub fn checksum(self) -> [u8; 2] {
        self.folded().map(|byte| !byte)
    }

    /// The checksum as TCP and UDP store it where 0 would mean that there is none (RFC 768).
    #[inline]
    #[must_use]
    pub fn nonzero_checksum(self) -> [u8; 2] {
        match self.checksum() {
            [0, 0] => [0xff, 0xff],
            sum => sum,
        }
    }
}

/// The sum over the pseudo header of TCP and UDP (RFC 9293, section 3.1; RFC 8200, section 8.1):
/// `addresses` are both addresses as they stand in the header, `length` counts the transport header
/// and what it carries.
#[inline]
#[must_use]
pub fn pseudo_header(addresses: &[u8], protocol: u8, length: usize) -> Sum {
    Sum::default()
        .bytes(addresses)
        .word(protocol.into())
        .word((length >> 16) as u16)
        .word(length as u16)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Word by word as RFC 1071 words it.
    fn slow(bytes: &[u8]) -> u16 {
        let mut sum: u32 = 0;
        for pair in bytes.chunks(2) {
            sum += u32::from(pair[0]) << 8 | pair.get(1).map_or(0, |byte| u32::from(*byte));
            sum = (sum & 0xffff) + (sum >> 16);
        }
        sum as u16
    }

    #[test]
    fn the_example_of_rfc_1071() {
        let sum = Sum::default().bytes(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]);
        assert_eq!(sum.folded(), [0xdd, 0xf2]);
        assert_eq!(sum.checksum(), [0x22, 0x0d]);
    }

    #[test]
    fn the_longest_run_of_the_greatest_words_does_not_overflow() {
        let bytes = vec![0xff; 65_536];
        assert_eq!(Sum::default().bytes(&bytes).folded(), [0xff, 0xff]);
        assert_eq!(
            Sum::default().bytes(&bytes).nonzero_checksum(),
            [0xff, 0xff]
        );
    }

    proptest! {
        #[test]
        fn any_bytes_at_any_place_sum_up_as_word_by_word(
            bytes in prop::collection::vec(any::<u8>(), 0..3000), skip in 0_usize..40, even in 0_usize..200,
        ) {
            let bytes = bytes.get(skip..).unwrap_or_default();
            let expected = slow(bytes).to_be_bytes();
            let congruent = |sum: [u8; 2]| {
                sum == expected || (u16::from_be_bytes(sum) % 0xffff == u16::from_be_bytes(expected) % 0xffff)
            };
            prop_assert!(congruent(Sum::default().bytes(bytes).folded()));
            let mut copy = vec![0; bytes.len()];
            prop_assert!(congruent(Sum::default().copied(&mut copy, bytes).folded()));
            prop_assert_eq!(&copy[..], bytes);
            let cut = (2 * even).min(bytes.len() & !1);
            let parts = Sum::default().bytes(&bytes[..cut]).bytes(&bytes[cut..]);
            prop_assert!(congruent(parts.folded()));
        }
    }
}
