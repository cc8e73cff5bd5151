//! The header before each frame of a TUN queue that was opened with `IFF_VNET_HDR`.
//!
//! `struct virtio_net_hdr` of include/uapi/linux/virtio_net.h, ten bytes in the byte order of the
//! machine (drivers/net/tun.c, unless TUNSETVNETLE or TUNSETVNETBE says otherwise).

/// Bytes of the header.
pub const VNET_HEADER: usize = 10;

/// Bit of `flags`: the transport checksum is left to do; what is in its place is the sum over the
/// pseudo header.
pub const NEEDS_CSUM: u8 = 1;

/// `gso_type`: one packet.
pub const GSO_NONE: u8 = 0;
/// `gso_type`: TCP over IPv4.
pub const GSO_TCPV4: u8 = 1;
/// `gso_type`: TCP over IPv6.
pub const GSO_TCPV6: u8 = 4;
/// `gso_type`: UDP datagrams of equal length, over either (USO).
pub const GSO_UDP_L4: u8 = 5;
/// Added to `gso_type`: the first segment has CWR set, the others not.
pub const GSO_ECN: u8 = 0x80;

/// The header's fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct VnetHeader {
    /// [`NEEDS_CSUM`] and bits of no meaning here.
    pub flags: u8,
    /// One of the `GSO_` values, with [`GSO_ECN`] or not.
    pub gso_type: u8,
    /// How long the headers are; a hint that is never trusted.
    pub hdr_len: u16,
    /// Bytes of payload a segment.
    pub gso_size: u16,
    /// Where summing starts, from the packet's first byte.
    pub csum_start: u16,
    /// Where the sum belongs, from `csum_start`.
    pub csum_offset: u16,
}

impl VnetHeader {
    /// Reads the fields.
    #[inline]
    pub fn parse(bytes: &[u8; VNET_HEADER]) -> VnetHeader {
        let field = |at: usize| u16::from_ne_bytes([bytes[at], bytes[at + 1]]);
        VnetHeader {
            flags: bytes[0],
            gso_type: bytes[1],
            hdr_len: field(2),
            gso_size: field(4),
            csum_start: field(6),
            csum_offset: field(8),
        }
    }

    /// The header's bytes.
    #[inline]
    pub fn to_bytes(self) -> [u8; VNET_HEADER] {
        let mut bytes = [0; VNET_HEADER];
        bytes[0] = self.flags;
        bytes[1] = self.gso_type;
        let fields = [
            self.hdr_len,
            self.gso_size,
            self.csum_start,
            self.csum_offset,
        ];
        for (place, field) in bytes[2..].chunks_exact_mut(2).zip(fields) {
            place.copy_from_slice(&field.to_ne_bytes());
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fields_stand_where_the_kernel_has_them() {
        let mut bytes = [0; VNET_HEADER];
        bytes[0] = NEEDS_CSUM;
        bytes[1] = GSO_TCPV6 | GSO_ECN;
        bytes[2..4].copy_from_slice(&72u16.to_ne_bytes());
        bytes[4..6].copy_from_slice(&1348u16.to_ne_bytes());
        bytes[6..8].copy_from_slice(&40u16.to_ne_bytes());
        bytes[8..10].copy_from_slice(&16u16.to_ne_bytes());
        let header = VnetHeader::parse(&bytes);
        assert_eq!(
            (
                header.hdr_len,
                header.gso_size,
                header.csum_start,
                header.csum_offset
            ),
            (72, 1348, 40, 16)
        );
        assert_eq!(header.to_bytes(), bytes);
    }
}
