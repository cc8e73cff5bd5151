//! Control messages: what goes with a datagram besides its bytes.
//!
//! cmsg(3): a control buffer is a row of `struct cmsghdr`, each followed by its data, each padded
//! to the alignment of `size_t`. They are read and written here as bytes, without pointers.

use std::mem::size_of;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Room for what is sent or received with one datagram: packet information, traffic class,
/// the overflow count, and the length of its segments.
pub(super) const CONTROL_BYTES: usize = 128;

/// A control buffer, aligned as the kernel's headers are.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
pub(super) struct Control(pub(super) [u8; CONTROL_BYTES]);

/// What the kernel told with a datagram.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Told {
    /// The local address it came to.
    pub(super) local: Option<IpAddr>,
    /// The interface it came by; 0 unknown.
    pub(super) ifindex: u32,
    /// The ToS or traffic class byte.
    pub(super) traffic_class: u8,
    /// How many datagrams the socket's queue has lost so far (SO_RXQ_OVFL).
    pub(super) overflow: Option<u32>,
    /// How long each of the datagrams is that the kernel merged into this one (UDP_GRO); 0: it is
    /// one.
    pub(super) segment: usize,
}

const HEADER: usize = align(size_of::<libc::cmsghdr>());
const LENGTH_BYTES: usize = size_of::<usize>();

const fn align(length: usize) -> usize {
    (length + size_of::<usize>() - 1) & !(size_of::<usize>() - 1)
}

/// Calls `f` with level, type and data of each control message in `bytes`.
///
/// Stops at the first header that does not fit.
pub(super) fn each(mut bytes: &[u8], mut f: impl FnMut(i32, i32, &[u8])) {
    while bytes.len() >= HEADER {
        let length = usize::from_ne_bytes(array(&bytes[..LENGTH_BYTES]));
        let level = i32::from_ne_bytes(array(&bytes[LENGTH_BYTES..LENGTH_BYTES + 4]));
        let kind = i32::from_ne_bytes(array(&bytes[LENGTH_BYTES + 4..LENGTH_BYTES + 8]));
        if length < HEADER || length > bytes.len() {
            return;
        }
        f(level, kind, &bytes[HEADER..length]);
        bytes = bytes.get(align(length)..).unwrap_or(&[]);
    }
}

/// Reads what the kernel wrote beside a received datagram.
pub(super) fn read(bytes: &[u8]) -> Told {
    let mut told = Told::default();
    each(bytes, |level, kind, data| match (level, kind) {
        // struct in_pktinfo { int ifindex; in_addr spec_dst; in_addr addr; }: spec_dst is the
        // address to answer from, which for a unicast datagram is its destination.
        (libc::IPPROTO_IP, libc::IP_PKTINFO) if data.len() >= 12 => {
            told.ifindex = u32::from_ne_bytes(array(&data[..4]));
            told.local = Some(IpAddr::V4(Ipv4Addr::from(array::<4>(&data[4..8]))));
        }
        // struct in6_pktinfo { in6_addr addr; unsigned ifindex; }
        (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) if data.len() >= 20 => {
            told.local = Some(IpAddr::V6(Ipv6Addr::from(array::<16>(&data[..16]))));
            told.ifindex = u32::from_ne_bytes(array(&data[16..20]));
        }
        // ip(7): IP_RECVTOS passes one byte; ipv6(7): IPV6_TCLASS passes an int.
        (libc::IPPROTO_IP, libc::IP_TOS) if !data.is_empty() => told.traffic_class = data[0],
        (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) if data.len() >= 4 => {
            told.traffic_class = i32::from_ne_bytes(array(&data[..4])) as u8;
        }
        (libc::SOL_SOCKET, libc::SO_RXQ_OVFL) if data.len() >= 4 => {
            told.overflow = Some(u32::from_ne_bytes(array(&data[..4])));
        }
        // net/ipv4/udp.c, udp_cmsg_recv: an int.
        (libc::SOL_UDP, libc::UDP_GRO) if data.len() >= 4 => {
            told.segment = i32::from_ne_bytes(array(&data[..4])).max(0) as usize;
        }
        _ => {}
    });
    told
}

/// Writes the control messages of one datagram to send; returns their length in bytes.
///
/// `v6` is the family of the socket; a source of the other family is left out. `segment`: cut the
/// bytes into datagrams of this length; 0: don't.
pub(super) fn write(
    control: &mut Control,
    v6: bool,
    source: Option<IpAddr>,
    ifindex: u32,
    traffic_class: u8,
    segment: u16,
) -> usize {
    let mut at = 0;
    match (v6, source) {
        (false, Some(IpAddr::V4(address))) => {
            let mut data = [0; 12];
            data[..4].copy_from_slice(&ifindex.to_ne_bytes());
            data[4..8].copy_from_slice(&address.octets());
            at = put(control, at, libc::IPPROTO_IP, libc::IP_PKTINFO, &data);
        }
        (true, Some(IpAddr::V6(address))) => {
            let mut data = [0; 20];
            data[..16].copy_from_slice(&address.octets());
            data[16..].copy_from_slice(&ifindex.to_ne_bytes());
            at = put(control, at, libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, &data);
        }
        _ => {}
    }
    if traffic_class != 0 {
        let data = i32::from(traffic_class).to_ne_bytes();
        at = if v6 {
            put(control, at, libc::IPPROTO_IPV6, libc::IPV6_TCLASS, &data)
        } else {
            put(control, at, libc::IPPROTO_IP, libc::IP_TOS, &data)
        };
    }
    if segment != 0 {
        let data = segment.to_ne_bytes();
        at = put(control, at, libc::SOL_UDP, libc::UDP_SEGMENT, &data);
    }
    at
}

fn put(control: &mut Control, at: usize, level: i32, kind: i32, data: &[u8]) -> usize {
    let length = HEADER + data.len();
    let end = at + align(length);
    let bytes = &mut control.0[at..end];
    bytes.fill(0);
    bytes[..LENGTH_BYTES].copy_from_slice(&length.to_ne_bytes());
    bytes[LENGTH_BYTES..LENGTH_BYTES + 4].copy_from_slice(&level.to_ne_bytes());
    bytes[LENGTH_BYTES + 4..LENGTH_BYTES + 8].copy_from_slice(&kind.to_ne_bytes());
    bytes[HEADER..length].copy_from_slice(data);
    end
}

/// The first N bytes; the callers checked the length.
fn array<const N: usize>(bytes: &[u8]) -> [u8; N] {
    let mut out = [0; N];
    out.copy_from_slice(&bytes[..N]);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_reads_the_same() {
        let cases: [(bool, IpAddr); 2] = [
            (false, "192.0.2.9".parse().unwrap()),
            (true, "2001:db8::9".parse().unwrap()),
        ];
        for (v6, address) in cases {
            let mut control = Control([0xaa; CONTROL_BYTES]);
            let length = write(&mut control, v6, Some(address), 5, 3, 1_400);
            let told = read(&control.0[..length]);
            assert_eq!(told.local, Some(address));
            assert_eq!(told.ifindex, 5);
            assert_eq!(told.traffic_class, 3);
        }
    }

    #[test]
    fn nothing_to_say_is_empty() {
        let mut control = Control([0; CONTROL_BYTES]);
        assert_eq!(write(&mut control, false, None, 7, 0, 0), 0);
        let other: IpAddr = "2001:db8::9".parse().unwrap();
        assert_eq!(write(&mut control, false, Some(other), 7, 0, 0), 0);
    }

    #[test]
    fn impossible_lengths_end_the_walk() {
        let mut control = Control([0; CONTROL_BYTES]);
        let length = write(&mut control, true, Some("::1".parse().unwrap()), 1, 1, 0);
        for bad in [0usize, 1, 15, 4096, usize::MAX] {
            let mut bytes = control;
            bytes.0[..LENGTH_BYTES].copy_from_slice(&bad.to_ne_bytes());
            assert_eq!(read(&bytes.0[..length]), Told::default());
        }
        for cut in 0..length {
            let _ = read(&control.0[..cut]);
        }
    }
}
