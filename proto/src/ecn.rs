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
