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
