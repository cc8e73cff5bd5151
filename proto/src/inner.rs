//! The packet inside the tunnel, as far as a gateway looks into it: addresses, lengths, ECN, what keeps a
//! flow together. RFC 791 and RFC 8200.
//!
//! The bytes are a peer's or an application's: nothing in them is trusted, every length is checked against
//! what is there.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Bytes of an IPv4 header without options.
pub const IPV4_HEADER: usize = 20;
/// Bytes of the IPv6 header.
pub const IPV6_HEADER: usize = 40;

pub(crate) mod protocol {
    pub(crate) const ICMP: u8 = 1;
    pub(crate) const TCP: u8 = 6;
    pub(crate) const UDP: u8 = 17;
    pub(crate) const ICMPV6: u8 = 58;
    pub(crate) const HOP_BY_HOP: u8 = 0;
    pub(crate) const ROUTING: u8 = 43;
    pub(crate) const FRAGMENT: u8 = 44;
    pub(crate) const DESTINATION_OPTIONS: u8 = 60;
}

/// What the header says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Inner {
    /// The source address.
    pub source: IpAddr,
    /// The destination address.
    pub destination: IpAddr,
    /// The ECN field, 0 to 3.
    pub ecn: u8,
    /// The packet's length by its header; what follows it in the buffer is padding.
    pub length: usize,
    /// The length of the IPv4 header with its options, or of the fixed IPv6 header.
    pub header_length: usize,
    /// The protocol that follows the header: for IPv6 the first next-header value.
    pub protocol: u8,
    /// Nobody may fragment it: the IPv4 flag, and always for IPv6.
    pub dont_fragment: bool,
    /// An IPv4 fragment (any piece, the first included); IPv6 tells by its protocol.
    pub fragment: bool,
}

/// Why a packet is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InnerError {
    /// Its version is neither 4 nor 6.
    #[error("neither IPv4 nor IPv6")]
    NotIp,
    /// It is shorter than its header or than its header says.
    #[error("shorter than its header says")]
    Truncated,
}

/// Reads the header of `packet`.
///
/// # Errors
/// [`InnerError`]; an empty slice is `Truncated`.
#[inline]
pub fn parse(packet: &[u8]) -> Result<Inner, InnerError> {
    match packet.first().ok_or(InnerError::Truncated)? >> 4 {
        4 => parse_v4(packet),
        6 => parse_v6(packet),
        _ => Err(InnerError::NotIp),
    }
}

#[inline]
fn parse_v4(packet: &[u8]) -> Result<Inner, InnerError> {
    let header: &[u8; IPV4_HEADER] = packet.first_chunk().ok_or(InnerError::Truncated)?;
    let header_length = usize::from(header[0] & 0xf) * 4;
    let length = usize::from(u16::from_be_bytes([header[2], header[3]]));
    if header_length < IPV4_HEADER || length < header_length || length > packet.len() {
        return Err(InnerError::Truncated);
    }
    let fragment = u16::from_be_bytes([header[6], header[7]]);
    Ok(Inner {
        source: Ipv4Addr::new(header[12], header[13], header[14], header[15]).into(),
        destination: Ipv4Addr::new(header[16], header[17], header[18], header[19]).into(),
        ecn: header[1] & 3,
        length,
        header_length,
        protocol: header[9],
        dont_fragment: fragment & 0x4000 != 0,
        fragment: fragment & 0x3fff != 0,
    })
}

#[inline]
fn parse_v6(packet: &[u8]) -> Result<Inner, InnerError> {
    let header: &[u8; IPV6_HEADER] = packet.first_chunk().ok_or(InnerError::Truncated)?;
    let length = IPV6_HEADER + usize::from(u16::from_be_bytes([header[4], header[5]]));
    if length > packet.len() {
        return Err(InnerError::Truncated);
    }
    Ok(Inner {
        source: address_v6(header, 8).into(),
        destination: address_v6(header, 24).into(),
        ecn: header[1] >> 4 & 3,
        length,
        header_length: IPV6_HEADER,
        protocol: header[6],
        dont_fragment: true,
        fragment: header[6] == protocol::FRAGMENT,
    })
}

fn address_v6(header: &[u8; IPV6_HEADER], at: usize) -> Ipv6Addr {
    let mut octets = [0; 16];
    octets.copy_from_slice(&header[at..at + 16]);
    Ipv6Addr::from(octets)
}

impl Inner {
    /// A hash that all packets of a flow share, in one direction: addresses, protocol and, where they are in
    /// plain sight (TCP or UDP, no fragment), ports. `secret` keeps others from choosing who shares a queue.
    #[inline]
    pub fn flow_hash(&self, packet: &[u8], secret: u64) -> u32 {
        let mut state = secret ^ u64::from(self.protocol);
        match (self.source, self.destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                state = mix(
                    state,
                    u64::from(source.to_bits()) << 32 | u64::from(destination.to_bits()),
                );
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                for address in [source.to_bits(), destination.to_bits()] {
                    state = mix(state, (address >> 64) as u64);
                    state = mix(state, address as u64);
                }
            }
            _ => {}
        }
        if !self.fragment && matches!(self.protocol, protocol::TCP | protocol::UDP) {
            if let Some(ports) = packet.get(self.header_length..self.header_length + 4) {
                state = mix(
                    state,
                    u64::from(u32::from_be_bytes([ports[0], ports[1], ports[2], ports[3]])),
                );
            }
        }
        (state >> 32) as u32
    }
}

/// One round of a multiply-and-fold hash: a 64 × 64 → 128 bit product, its halves combined.
#[inline]
fn mix(state: u64, word: u64) -> u64 {
    let product =
        u128::from(state ^ word ^ 0x9e37_79b9_7f4a_7c15) * u128::from(0xd6e8_feb8_6659_fd93_u64);
    (product >> 64) as u64 ^ product as u64
}
