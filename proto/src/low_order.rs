//! Public keys that force a known shared secret.
//!
//! Multiplying one of these points by any clamped scalar gives zero, so whoever
//! sends one knows the shared secret without a private key. A handshake refuses
//! them twice: here, before it spends a multiplication, and by the zero that
//! comes out (RFC 7748, section 6.1).

use crate::keys::PublicKey;

/// Whether the key is a point of low order.
pub fn is_low_order(key: &PublicKey) -> bool {
    let mut u = *key.as_bytes();
    // X25519 ignores the highest bit (RFC 7748, section 5).
    u[31] &= 0x7f;
    POINTS.contains(&u)
}

/// The u-coordinates, below 2^255, whose order divides 8: 0, 1, the two of order 8,
/// p-1, and p and p+1, which are 0 and 1 again without reduction.
const POINTS: [[u8; 32]; 7] = [
    [0; 32],
    first_and_last(0x01, 0, 0),
    [
        0xe0, 0xeb, 0x7a, 0x7c, 0x3b, 0x41, 0xb8, 0xae, 0x16, 0x56, 0xe3, 0xfa, 0xf1, 0x9f, 0xc4,
        0x6a, 0xda, 0x09, 0x8d, 0xeb, 0x9c, 0x32, 0xb1, 0xfd, 0x86, 0x62, 0x05, 0x16, 0x5f, 0x49,
        0xb8, 0x00,
    ],
    [
        0x5f, 0x9c, 0x95, 0xbc, 0xa3, 0x50, 0x8c, 0x24, 0xb1, 0xd0, 0xb1, 0x55, 0x9c, 0x83, 0xef,
        0x5b, 0x04, 0x44, 0x5c, 0xc4, 0x58, 0x1c, 0x8e, 0x86, 0xd8, 0x22, 0x4e, 0xdd, 0xd0, 0x9f,
        0x11, 0x57,
    ],
    first_and_last(0xec, 0xff, 0x7f),
    first_and_last(0xed, 0xff, 0x7f),
    first_and_last(0xee, 0xff, 0x7f),
];

const fn first_and_last(first: u8, middle: u8, last: u8) -> [u8; 32] {
    let mut bytes = [middle; 32];
    bytes[0] = first;
    bytes[31] = last;
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::PrivateKey;

    #[test]
    fn each_point_gives_zero_and_its_neighbours_do_not() {
        let private = PrivateKey::generate().unwrap();
        for point in POINTS {
            for high_bit in [0, 0x80] {
                let mut key = point;
                key[31] |= high_bit;
                assert!(is_low_order(&PublicKey::from_bytes(key)));
                assert_eq!(x25519_dalek::x25519(*private.as_bytes(), key), [0; 32]);
            }
            let mut neighbour = point;
            neighbour[0] ^= 8;
            assert!(!is_low_order(&PublicKey::from_bytes(neighbour)));
            assert_ne!(
                x25519_dalek::x25519(*private.as_bytes(), neighbour),
                [0; 32]
            );
        }
    }
}
