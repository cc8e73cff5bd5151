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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn v4() -> Vec<u8> {
        let mut packet = vec![0; 28];
        packet[0] = 0x45;
        packet[1] = 0b1010_1010;
        packet[3] = 28;
        packet[6] = 0x40;
        packet[9] = protocol::UDP;
        packet[12..20].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
        packet[20..24].copy_from_slice(&[1, 2, 3, 4]);
        packet
    }

    fn v6() -> Vec<u8> {
        let mut packet = vec![0; 48];
        packet[0] = 0x6a;
        packet[1] = 0xb0;
        packet[5] = 8;
        packet[6] = protocol::UDP;
        packet[23] = 1;
        packet[39] = 2;
        packet
    }

    #[test]
    fn reads_both_families() {
        let inner = parse(&v4()).unwrap();
        assert_eq!(inner.source, "10.0.0.1".parse::<IpAddr>().unwrap());
        assert_eq!(inner.destination, "10.0.0.2".parse::<IpAddr>().unwrap());
        assert_eq!((inner.ecn, inner.length, inner.header_length), (2, 28, 20));
        assert!(inner.dont_fragment && !inner.fragment);

        let inner = parse(&v6()).unwrap();
        assert_eq!(inner.source, "::1".parse::<IpAddr>().unwrap());
        assert_eq!(inner.destination, "::2".parse::<IpAddr>().unwrap());
        assert_eq!((inner.ecn, inner.length, inner.protocol), (3, 48, 17));
    }

    #[test]
    fn padding_after_the_packet_is_not_part_of_it() {
        let mut packet = v4();
        packet.resize(32, 0);
        assert_eq!(parse(&packet).unwrap().length, 28);
    }

    #[test]
    fn what_is_short_or_no_ip_is_told_apart() {
        assert_eq!(parse(&[]), Err(InnerError::Truncated));
        assert_eq!(parse(&[0x45]), Err(InnerError::Truncated));
        assert_eq!(parse(&[0x60; 39]), Err(InnerError::Truncated));
        assert_eq!(parse(&[0; 40]), Err(InnerError::NotIp));
        assert_eq!(parse(&[0x55; 40]), Err(InnerError::NotIp));
        assert_eq!(parse(&v4()[..27]), Err(InnerError::Truncated));
        assert_eq!(parse(&v6()[..47]), Err(InnerError::Truncated));
        for (at, value) in [(0, 0x44), (0, 0x4f), (3, 19)] {
            let mut packet = v4();
            packet[at] = value;
            assert_eq!(
                parse(&packet),
                Err(InnerError::Truncated),
                "byte {at} = {value}"
            );
        }
    }

    #[test]
    fn a_flow_keeps_its_hash_and_ports_tell_flows_apart() {
        let packet = v4();
        let hash = parse(&packet).unwrap().flow_hash(&packet, 7);
        let mut same = packet.clone();
        same[27] = 9;
        same[1] = 0;
        assert_eq!(parse(&same).unwrap().flow_hash(&same, 7), hash);
        assert_ne!(parse(&packet).unwrap().flow_hash(&packet, 8), hash);
        let mut other = packet.clone();
        other[21] = 9;
        assert_ne!(parse(&other).unwrap().flow_hash(&other, 7), hash);
    }

    #[test]
    fn all_fragments_of_a_packet_share_a_hash() {
        let mut first = v4();
        first[6] = 0x20;
        let mut second = first.clone();
        second[6..8].copy_from_slice(&[0, 2]);
        second[20] = 99;
        let hashes = [first, second].map(|packet| parse(&packet).unwrap().flow_hash(&packet, 1));
        assert_eq!(hashes[0], hashes[1]);
    }

    #[test]
    fn flows_spread_over_queues() {
        let mut queues = [0; 64];
        for port in 0..6400_u16 {
            let mut packet = v6();
            packet[40..42].copy_from_slice(&port.to_be_bytes());
            queues[(parse(&packet).unwrap().flow_hash(&packet, 3) % 64) as usize] += 1;
        }
        assert!(
            queues.iter().all(|&count| (50..170).contains(&count)),
            "{queues:?}"
        );
    }

    proptest! {
        #[test]
        fn hostile_bytes_cause_no_panic(mut packet in prop::collection::vec(any::<u8>(), 0..120), six: bool) {
            if let Some(first) = packet.first_mut() {
                *first = *first & 0xf | if six { 0x60 } else { 0x40 };
            }
            if let Ok(inner) = parse(&packet) {
                prop_assert!(inner.length <= packet.len() && inner.header_length <= inner.length);
                inner.flow_hash(&packet[..inner.length], 5);
            }
        }
    }
}
