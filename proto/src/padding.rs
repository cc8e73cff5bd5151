//! How far a packet is padded before it is sealed: to a multiple of 16, as section 5.4.6 of the white paper
//! asks, but not past the MTU, as Linux caps it: padding must never make a packet that the path refuses.

/// WireGuard's padding multiple.
pub const MULTIPLE: usize = 16;

/// The padded length of an inner packet of `length` bytes on an interface of `mtu` bytes (zero: unknown, no
/// cap). Never less than `length`.
pub const fn padded_length(length: usize, mtu: usize) -> usize {
    if mtu == 0 {
        return length.next_multiple_of(MULTIPLE);
    }
    // A packet above the MTU (it changed meanwhile) is padded as its last MTU-sized piece would be.
    let last = if length > mtu { length % mtu } else { length };
    let aligned = last.next_multiple_of(MULTIPLE);
    let padded = if aligned < mtu { aligned } else { mtu };
    length + (padded - last)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn to_sixteen_but_not_past_the_mtu() {
        assert_eq!(padded_length(0, 1420), 0);
        assert_eq!(padded_length(1, 1420), 16);
        assert_eq!(padded_length(16, 1420), 16);
        assert_eq!(padded_length(1409, 1420), 1420);
        assert_eq!(padded_length(1420, 1420), 1420);
        assert_eq!(padded_length(1421, 1420), 1436);
        assert_eq!(padded_length(1409, 0), 1424);
        assert_eq!(padded_length(65535, 65535), 65535);
    }

    proptest! {
        #[test]
        fn never_shorter_and_never_sixteen_longer(length in 0_usize..70_000, mtu in 0_usize..70_000) {
            let padded = padded_length(length, mtu);
            prop_assert!(padded >= length && padded < length + MULTIPLE);
            if mtu > 0 && length <= mtu {
                prop_assert!(padded <= mtu);
            }
        }
    }
}
