//! Explicit congestion notification through the tunnel: RFC 6040, normal mode. The rest of the traffic class
//! stays inside: the outer header shows DSCP 0, whatever the inner one says.

use crate::inner::{IPV4_HEADER, IPV6_HEADER};

/// Not ECN-capable.
pub const NOT_ECT: u8 = 0b00;
/// ECN-capable, codepoint 1.
pub const ECT_1: u8 = 0b01;
/// ECN-capable, codepoint 0.
pub const ECT_0: u8 = 0b10;
/// Congestion experienced.
pub const CE: u8 = 0b11;

/// What to do with an inner packet when it leaves the tunnel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decapsulated {
    /// As it is.
    Keep,
    /// With this ECN field ([`set`]).
    Set(u8),
    /// Drop: congestion was met, and the only way to tell a sender that is not ECN-capable is a loss.
    Drop,
}

/// The outer traffic class for an inner ECN field: that field, DSCP 0.
#[inline]
pub const fn encapsulate(inner: u8) -> u8 {
    inner & CE
}

/// RFC 6040, section 4.2, figure 4. `outer` may be the whole outer traffic class.
#[inline]
pub const fn decapsulate(inner: u8, outer: u8) -> Decapsulated {
    match (inner & CE, outer & CE) {
        (NOT_ECT, CE) => Decapsulated::Drop,
        (ECT_0 | ECT_1, CE) => Decapsulated::Set(CE),
        (ECT_0, ECT_1) => Decapsulated::Set(ECT_1),
        _ => Decapsulated::Keep,
    }
}

/// Writes the ECN field of an IPv4 or IPv6 packet; the IPv4 header checksum follows (RFC 1624, equation 3).
/// Anything that is neither is left alone.
#[inline]
pub fn set(packet: &mut [u8], ecn: u8) {
    let ecn = ecn & CE;
    match packet.first().map(|byte| byte >> 4) {
        Some(4) => {
            if let Some(header) = packet.first_chunk_mut::<IPV4_HEADER>() {
                let before = u16::from_be_bytes([header[0], header[1]]);
                header[1] = header[1] & !CE | ecn;
                let after = u16::from_be_bytes([header[0], header[1]]);
                let sum = u16::from_be_bytes([header[10], header[11]]);
                let sum = updated_checksum(sum, before, after);
                header[10..12].copy_from_slice(&sum.to_be_bytes());
            }
        }
        Some(6) => {
            if let Some(header) = packet.first_chunk_mut::<IPV6_HEADER>() {
                header[1] = header[1] & !(CE << 4) | ecn << 4;
            }
        }
        _ => {}
    }
}

/// The checksum after one 16-bit word changed.
fn updated_checksum(sum: u16, before: u16, after: u16) -> u16 {
    if before == after {
        return sum;
    }
    let mut total = u32::from(!sum) + u32::from(!before) + u32::from(after);
    total = (total & 0xffff) + (total >> 16);
    total = (total & 0xffff) + (total >> 16);
    !(total as u16)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fragment::checksum;
    use proptest::prelude::*;

    #[test]
    fn only_the_ecn_field_goes_outside() {
        for tos in 0..=255_u8 {
            assert_eq!(encapsulate(tos), tos & 3);
        }
    }

    #[test]
    fn leaves_the_tunnel_as_figure_4_says() {
        use Decapsulated::{Drop, Keep, Set};
        // Rows: inner; columns: outer Not-ECT, ECT(0), ECT(1), CE.
        let table = [
            (NOT_ECT, [Keep, Keep, Keep, Drop]),
            (ECT_0, [Keep, Keep, Set(ECT_1), Set(CE)]),
            (ECT_1, [Keep, Keep, Keep, Set(CE)]),
            (CE, [Keep, Keep, Keep, Keep]),
        ];
        for (inner, row) in table {
            for (outer, expected) in [NOT_ECT, ECT_0, ECT_1, CE].into_iter().zip(row) {
                assert_eq!(
                    decapsulate(inner, outer),
                    expected,
                    "inner {inner}, outer {outer}"
                );
                assert_eq!(decapsulate(inner, outer | 0xb8), expected);
            }
        }
    }

    #[test]
    fn what_is_no_packet_is_left_alone() {
        for bytes in [
            &mut [][..],
            &mut [0x45; 19],
            &mut [0x60; 39],
            &mut [0x50; 60],
        ] {
            let before = bytes.to_vec();
            set(bytes, CE);
            assert_eq!(bytes, before);
        }
    }

    proptest! {
        #[test]
        fn the_header_checksum_stays_right(mut header in prop::array::uniform20(any::<u8>()), ecn in 0_u8..4) {
            header[0] = 0x45;
            header[10..12].fill(0);
            let sum = checksum(&[&header]);
            header[10..12].copy_from_slice(&sum.to_be_bytes());
            let before = header;
            set(&mut header, ecn);
            prop_assert_eq!(header[1], before[1] & !3 | ecn);
            // One's complement has two zeros; what a receiver computes over the header is what counts.
            prop_assert_eq!(checksum(&[&header]), 0);
            header[1] = before[1];
            header[10..12].copy_from_slice(&before[10..12]);
            prop_assert_eq!(header, before);
        }

        #[test]
        fn an_ipv6_header_changes_in_two_bits(mut header in prop::collection::vec(any::<u8>(), 40..60), ecn in 0_u8..4) {
            header[0] = header[0] & 0xf | 0x60;
            let before = header.clone();
            set(&mut header, ecn);
            prop_assert_eq!(header[1] >> 4 & 3, ecn);
            header[1] = before[1];
            prop_assert_eq!(header, before);
        }
    }
}
