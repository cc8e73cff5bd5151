//! Telling an inner sender that its packet is too big for the path to a peer: ICMP "fragmentation needed"
//! (RFC 792, RFC 1191) and ICMPv6 "packet too big" (RFC 4443), as the bytes to write to the TUN device.
//!
//! Who may be answered is RFC 1812, section 4.3.2.7, and RFC 4443, section 2.4 (e): an error never answers
//! an error, a fragment but the first, or a sender that is not one host.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use crate::fragment::checksum;
use crate::inner::{self, IPV4_HEADER, IPV6_HEADER, Inner, protocol};
use crate::time::Instant;

/// The longest answer: an ICMPv6 error fits the minimum MTU of IPv6.
pub const MAXIMUM_ANSWER: usize = 1280;
/// An ICMP error is at most this long (RFC 1812, section 4.3.2.3).
const MAXIMUM_ANSWER_V4: usize = 576;
const ICMP_HEADER: usize = 8;
/// What IPv6 demands of every link.
const MINIMUM_MTU_V6: u32 = 1280;

/// Why there is no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Silence {
    /// The packet is no IP packet.
    #[error("not an IP packet")]
    Broken,
    /// It fits, or it is IPv4 and may be cut ([`fragment`](crate::fragment)).
    #[error("it may be fragmented")]
    MayBeFragmented,
    /// It is an ICMP error itself, or something of which that can't be told.
    #[error("it is an ICMP error itself")]
    IcmpError,
    /// It is a fragment and not the first.
    #[error("a later fragment")]
    LaterFragment,
    /// Its source or its destination is not one host.
    #[error("no single host to answer")]
    NotUnicast,
    /// The buffer is too small.
    #[error("the buffer is too small")]
    NoRoom,
}

/// Writes the answer to `packet`, which met a path of `mtu` bytes (inner), to `out` and returns its length.
/// `out` of [`MAXIMUM_ANSWER`] bytes always suffices.
///
/// `source` is the address that the answer comes from, where the gateway knows one of that family; without,
/// the destination of the packet speaks for the path to it, so that the answer passes a reverse-path filter.
///
/// # Errors
/// [`Silence`]: nothing may be said.
pub fn answer(
    packet: &[u8],
    mtu: u16,
    source: Option<IpAddr>,
    out: &mut [u8],
) -> Result<usize, Silence> {
    let inner = inner::parse(packet).map_err(|_| Silence::Broken)?;
    let packet = &packet[..inner.length];
    if !inner.dont_fragment {
        return Err(Silence::MayBeFragmented);
    }
    match (inner.source, inner.destination) {
        (IpAddr::V4(to), IpAddr::V4(destination)) => {
            if !single_host_v4(to) || !single_host_v4(destination) {
                return Err(Silence::NotUnicast);
            }
            allowed_v4(packet, &inner)?;
            let from = match source {
                Some(IpAddr::V4(address)) => address,
                _ => destination,
            };
            write_v4(packet, mtu, from, to, out)
        }
        (IpAddr::V6(to), IpAddr::V6(destination)) => {
            let from = match source {
                Some(IpAddr::V6(address)) => address,
                _ => destination,
            };
            if !single_host_v6(to) || !single_host_v6(from) {
                return Err(Silence::NotUnicast);
            }
            allowed_v6(packet)?;
            write_v6(packet, mtu, from, to, out)
        }
        _ => Err(Silence::Broken),
    }
}

/// How fast answers may come: a bucket of `burst` tokens that fills at `rate` tokens a second. Pure.
#[derive(Debug, Clone)]
pub struct TokenBucket {
    interval: Duration,
    burst: u32,
    tokens: u32,
    filled: Instant,
}

impl TokenBucket {
    /// A full bucket. A `rate` of zero never refills.
    pub fn new(rate: u32, burst: u32) -> TokenBucket {
        let interval = Duration::from_secs(1)
            .checked_div(rate)
            .unwrap_or(Duration::MAX);
        TokenBucket {
            interval,
            burst,
            tokens: burst,
            filled: Instant(0),
        }
    }

    /// Takes a token; false if there is none at `now`.
    pub fn take(&mut self, now: Instant) -> bool {
        let passed = now.since(self.filled).as_nanos() / self.interval.as_nanos().max(1);
        if passed >= u128::from(self.burst - self.tokens) {
            self.tokens = self.burst;
            self.filled = self.filled.max(now);
        } else {
            self.tokens += passed as u32;
            self.filled = self.filled + self.interval * passed as u32;
        }
        let some = self.tokens > 0;
        self.tokens -= u32::from(some);
        some
    }
}

fn single_host_v4(address: Ipv4Addr) -> bool {
    !(address.is_unspecified()
        || address.is_multicast()
        || address.is_broadcast()
        || address.is_loopback()
        || address.octets()[0] == 0
        || address.octets()[0] >= 240)
}

fn single_host_v6(address: Ipv6Addr) -> bool {
    !(address.is_unspecified() || address.is_multicast() || address.is_loopback())
}

fn allowed_v4(packet: &[u8], inner: &Inner) -> Result<(), Silence> {
    if u16::from_be_bytes([packet[6], packet[7]]) & 0x1fff != 0 {
        return Err(Silence::LaterFragment);
    }
    if inner.protocol == protocol::ICMP {
        match packet.get(inner.header_length) {
            // Queries and their answers: echo, router discovery, time stamp, information, mask.
            Some(0 | 8..=10 | 13..=18 | 42 | 43) => {}
            _ => return Err(Silence::IcmpError),
        }
    }
    Ok(())
}

/// Follows the extension headers to what the packet carries.
fn allowed_v6(packet: &[u8]) -> Result<(), Silence> {
    let mut next = packet[6];
    let mut at = IPV6_HEADER;
    loop {
        match next {
            protocol::ICMPV6 => {
                // Errors have the high bit clear. What is cut off cannot be told from one.
                return match packet.get(at) {
                    Some(kind) if kind & 0x80 != 0 => Ok(()),
                    _ => Err(Silence::IcmpError),
                };
            }
            protocol::FRAGMENT => {
                let Some(header) = packet.get(at..at + 8) else {
                    return Ok(());
                };
                if u16::from_be_bytes([header[2], header[3]]) & 0xfff8 != 0 {
                    return Err(Silence::LaterFragment);
                }
                next = header[0];
                at += 8;
            }
            protocol::HOP_BY_HOP | protocol::ROUTING | protocol::DESTINATION_OPTIONS => {
                let Some(header) = packet.get(at..at + 2) else {
                    return Ok(());
                };
                next = header[0];
                at += 8 + usize::from(header[1]) * 8;
            }
            _ => return Ok(()),
        }
    }
}

fn write_v4(
    packet: &[u8],
    mtu: u16,
    from: Ipv4Addr,
    to: Ipv4Addr,
    out: &mut [u8],
) -> Result<usize, Silence> {
    let quoted = packet
        .len()
        .min(MAXIMUM_ANSWER_V4 - IPV4_HEADER - ICMP_HEADER);
    let length = IPV4_HEADER + ICMP_HEADER + quoted;
    let out = out.get_mut(..length).ok_or(Silence::NoRoom)?;
    out[..IPV4_HEADER + ICMP_HEADER].fill(0);
    out[0] = 0x45;
    // Precedence 6, internetwork control (RFC 1812, section 4.3.2.5).
    out[1] = 0xc0;
    out[2..4].copy_from_slice(&(length as u16).to_be_bytes());
    out[8] = 64;
    out[9] = protocol::ICMP;
    out[12..16].copy_from_slice(&from.octets());
    out[16..20].copy_from_slice(&to.octets());
    let sum = checksum(&[&out[..IPV4_HEADER]]);
    out[10..12].copy_from_slice(&sum.to_be_bytes());

    let (_, icmp) = out.split_at_mut(IPV4_HEADER);
    icmp[0] = 3;
    icmp[1] = 4;
    icmp[6..8].copy_from_slice(&mtu.to_be_bytes());
    icmp[ICMP_HEADER..].copy_from_slice(&packet[..quoted]);
    let sum = checksum(&[icmp]);
    icmp[2..4].copy_from_slice(&sum.to_be_bytes());
    Ok(length)
}

fn write_v6(
    packet: &[u8],
    mtu: u16,
    from: Ipv6Addr,
    to: Ipv6Addr,
    out: &mut [u8],
) -> Result<usize, Silence> {
    let quoted = packet.len().min(MAXIMUM_ANSWER - IPV6_HEADER - ICMP_HEADER);
    let length = IPV6_HEADER + ICMP_HEADER + quoted;
    let out = out.get_mut(..length).ok_or(Silence::NoRoom)?;
    out[..IPV6_HEADER + ICMP_HEADER].fill(0);
    let payload = (ICMP_HEADER + quoted) as u16;
    out[0] = 0x60;
    out[4..6].copy_from_slice(&payload.to_be_bytes());
    out[6] = protocol::ICMPV6;
    out[7] = 64;
    out[8..24].copy_from_slice(&from.octets());
    out[24..40].copy_from_slice(&to.octets());

    let (header, icmp) = out.split_at_mut(IPV6_HEADER);
    icmp[0] = 2;
    icmp[4..8].copy_from_slice(&u32::from(mtu).max(MINIMUM_MTU_V6).to_be_bytes());
    icmp[ICMP_HEADER..].copy_from_slice(&packet[..quoted]);
    let pseudo = [
        0,
        0,
        payload.to_be_bytes()[0],
        payload.to_be_bytes()[1],
        0,
        0,
        0,
        protocol::ICMPV6,
    ];
    let sum = checksum(&[&header[8..40], &pseudo, icmp]);
    icmp[2..4].copy_from_slice(&sum.to_be_bytes());
    Ok(length)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn v4(protocol: u8, payload: &[u8]) -> Vec<u8> {
        let mut packet = vec![0; 20];
        packet[0] = 0x45;
        packet[6] = 0x40;
        packet[9] = protocol;
        packet[12..20].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
        packet.extend_from_slice(payload);
        let length = packet.len() as u16;
        packet[2..4].copy_from_slice(&length.to_be_bytes());
        packet
    }

    fn v6(next: u8, payload: &[u8]) -> Vec<u8> {
        let mut packet = vec![0; 40];
        packet[0] = 0x60;
        packet[6] = next;
        packet[8] = 0xfd;
        packet[23] = 1;
        packet[24] = 0xfd;
        packet[39] = 2;
        packet.extend_from_slice(payload);
        packet[4..6].copy_from_slice(&(payload.len() as u16).to_be_bytes());
        packet
    }

    fn answer_to(packet: &[u8]) -> Result<Vec<u8>, Silence> {
        let mut out = [0xaa; MAXIMUM_ANSWER];
        answer(packet, 1300, None, &mut out).map(|length| out[..length].to_vec())
    }

    #[test]
    fn tells_an_ipv4_sender() {
        let packet = v4(protocol::TCP, &[5; 1400]);
        let answer = answer_to(&packet).unwrap();
        assert_eq!(answer.len(), 576);
        assert_eq!(checksum(&[&answer[..20]]), 0);
        assert_eq!(checksum(&[&answer[20..]]), 0);
        let inner = inner::parse(&answer).unwrap();
        assert_eq!(inner.source, "10.0.0.2".parse::<IpAddr>().unwrap());
        assert_eq!(inner.destination, "10.0.0.1".parse::<IpAddr>().unwrap());
        assert_eq!(answer[20..22], [3, 4]);
        assert_eq!(answer[26..28], 1300_u16.to_be_bytes());
        assert_eq!(answer[28..], packet[..548]);
    }

    #[test]
    fn tells_an_ipv6_sender() {
        let packet = v6(protocol::UDP, &[5; 1460]);
        let answer = answer_to(&packet).unwrap();
        assert_eq!(answer.len(), 1280);
        assert_eq!(answer[40..42], [2, 0]);
        assert_eq!(answer[44..48], 1300_u32.to_be_bytes());
        assert_eq!(answer[48..], packet[..1232]);
        let pseudo = [0, 0, answer[4], answer[5], 0, 0, 0, protocol::ICMPV6];
        assert_eq!(checksum(&[&answer[8..40], &pseudo, &answer[40..]]), 0);
        let inner = inner::parse(&answer).unwrap();
        assert_eq!(inner.source, "fd00::2".parse::<IpAddr>().unwrap());
        assert_eq!(inner.length, answer.len());
    }

    #[test]
    fn never_claims_less_than_ipv6_demands() {
        let mut out = [0; MAXIMUM_ANSWER];
        answer(&v6(protocol::UDP, &[0; 1400]), 1000, None, &mut out).unwrap();
        assert_eq!(out[44..48], 1280_u32.to_be_bytes());
    }

    #[test]
    fn speaks_from_the_gateways_address_where_it_has_one() {
        let mut out = [0; MAXIMUM_ANSWER];
        let ours = Some("192.0.2.9".parse().unwrap());
        answer(&v4(protocol::UDP, &[0; 1400]), 1300, ours, &mut out).unwrap();
        assert_eq!(out[12..16], [192, 0, 2, 9]);
        answer(&v6(protocol::UDP, &[0; 1400]), 1300, ours, &mut out).unwrap();
        assert_eq!(out[8..24], v6(0, &[])[24..40]);
    }

    #[test]
    fn an_error_never_answers_an_error() {
        for kind in [3, 4, 5, 11, 12, 40] {
            assert_eq!(
                answer_to(&v4(protocol::ICMP, &[kind; 9])),
                Err(Silence::IcmpError)
            );
        }
        assert_eq!(answer_to(&v4(protocol::ICMP, &[])), Err(Silence::IcmpError));
        assert!(answer_to(&v4(protocol::ICMP, &[8; 1400])).is_ok());
        for kind in [1, 2, 3, 4, 100] {
            assert_eq!(
                answer_to(&v6(protocol::ICMPV6, &[kind; 9])),
                Err(Silence::IcmpError)
            );
        }
        assert!(answer_to(&v6(protocol::ICMPV6, &[128; 1400])).is_ok());
        // An error behind extension headers: hop-by-hop of 8 bytes, destination options of 16.
        let mut hidden = vec![
            protocol::DESTINATION_OPTIONS,
            0,
            0,
            0,
            0,
            0,
            0,
            0,
            protocol::ICMPV6,
            1,
        ];
        hidden.resize(24, 0);
        hidden.push(3);
        assert_eq!(
            answer_to(&v6(protocol::HOP_BY_HOP, &hidden)),
            Err(Silence::IcmpError)
        );
    }

    #[test]
    fn of_fragments_only_the_first_is_answered() {
        let mut packet = v4(protocol::UDP, &[0; 1400]);
        packet[6] = 0x60;
        assert!(answer_to(&packet).is_ok());
        packet[7] = 1;
        assert_eq!(answer_to(&packet), Err(Silence::LaterFragment));
        let mut fragment = vec![protocol::UDP, 0, 0, 1, 0, 0, 0, 1];
        fragment.resize(1400, 0);
        assert!(answer_to(&v6(protocol::FRAGMENT, &fragment)).is_ok());
        fragment[3] = 8;
        assert_eq!(
            answer_to(&v6(protocol::FRAGMENT, &fragment)),
            Err(Silence::LaterFragment)
        );
    }

    #[test]
    fn only_a_single_host_is_answered() {
        for source in [
            [0, 0, 0, 0],
            [255; 4],
            [224, 0, 0, 1],
            [127, 0, 0, 1],
            [240, 0, 0, 1],
        ] {
            let mut packet = v4(protocol::UDP, &[0; 1400]);
            packet[12..16].copy_from_slice(&source);
            assert_eq!(
                answer_to(&packet),
                Err(Silence::NotUnicast),
                "from {source:?}"
            );
            packet.copy_within(12..16, 16);
            packet[12..16].copy_from_slice(&[10, 0, 0, 1]);
            assert_eq!(
                answer_to(&packet),
                Err(Silence::NotUnicast),
                "to {source:?}"
            );
        }
        for source in ["::", "ff02::1", "::1"] {
            let mut packet = v6(protocol::UDP, &[0; 1400]);
            packet[8..24].copy_from_slice(&source.parse::<Ipv6Addr>().unwrap().octets());
            assert_eq!(
                answer_to(&packet),
                Err(Silence::NotUnicast),
                "from {source}"
            );
        }
    }

    #[test]
    fn what_may_be_cut_is_not_complained_about() {
        let mut packet = v4(protocol::UDP, &[0; 1400]);
        packet[6] = 0;
        assert_eq!(answer_to(&packet), Err(Silence::MayBeFragmented));
    }

    #[test]
    fn answers_are_rationed() {
        let start = Instant(1_000_000_000_000);
        let mut bucket = TokenBucket::new(10, 3);
        assert_eq!((0..5).filter(|_| bucket.take(start)).count(), 3);
        assert!(!bucket.take(start + Duration::from_millis(99)));
        assert!(bucket.take(start + Duration::from_millis(101)));
        assert!(!bucket.take(start + Duration::from_millis(102)));
        assert!(!bucket.take(start), "a clock that went back gives nothing");
        let later = start + Duration::from_secs(3600);
        assert_eq!((0..9).filter(|_| bucket.take(later)).count(), 3);
        // At ten a second, ten a second.
        let taken = (0..10_000)
            .filter(|ms| bucket.take(later + Duration::from_millis(*ms)))
            .count();
        assert_eq!(taken, 99);
        let mut never = TokenBucket::new(0, 1);
        assert!(never.take(start) && !never.take(later));
    }

    proptest! {
        #[test]
        fn hostile_packets_cause_no_panic(
            mut packet in prop::collection::vec(any::<u8>(), 1..200),
            six: bool,
            next in prop_oneof![Just(0_u8), Just(43), Just(44), Just(60), Just(58)],
            room in 0_usize..1280,
        ) {
            let length = packet.len() as u16;
            packet[0] = if six { 0x60 } else { 0x45 };
            if six && length >= 40 {
                packet[4..6].copy_from_slice(&(length - 40).to_be_bytes());
                packet[6] = next;
            } else if length >= 20 {
                packet[2..4].copy_from_slice(&length.to_be_bytes());
            }
            let mut out = vec![0; room];
            if let Ok(length) = answer(&packet, 1280, None, &mut out) {
                prop_assert!(inner::parse(&out[..length]).is_ok());
            }
        }
    }
}
