//! Packets to put inside a tunnel.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

const ICMP: u8 = 1;
const UDP: u8 = 17;
const ICMPV6: u8 = 58;

/// An echo request.
pub fn ping(source: IpAddr, destination: IpAddr, sequence: u16, payload: &[u8]) -> Vec<u8> {
    let v6 = source.is_ipv6();
    let mut body = vec![if v6 { 128 } else { 8 }, 0, 0, 0, 0x52, 0x57];
    body.extend_from_slice(&sequence.to_be_bytes());
    body.extend_from_slice(payload);
    finish(source, destination, if v6 { ICMPV6 } else { ICMP }, body, 2)
}

/// The sequence number of an echo reply, if the packet is one.
pub fn is_pong(packet: &[u8]) -> Option<u16> {
    let (header, kind) = match packet.first()? >> 4 {
        4 if packet.get(9) == Some(&ICMP) => (20, 0),
        6 if packet.get(6) == Some(&ICMPV6) => (40, 129),
        _ => return None,
    };
    let body = packet.get(header..header + 8)?;
    (body[0] == kind).then(|| u16::from_be_bytes([body[6], body[7]]))
}

/// A UDP datagram.
pub fn udp(source: IpAddr, destination: IpAddr, ports: (u16, u16), payload: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    body.extend_from_slice(&ports.0.to_be_bytes());
    body.extend_from_slice(&ports.1.to_be_bytes());
    body.extend_from_slice(&((payload.len() + 8) as u16).to_be_bytes());
    body.extend_from_slice(&[0, 0]);
    body.extend_from_slice(payload);
    finish(source, destination, UDP, body, 6)
}

/// Puts an IP header before `body`, whose checksum is at `at`.
fn finish(
    source: IpAddr,
    destination: IpAddr,
    protocol: u8,
    mut body: Vec<u8>,
    at: usize,
) -> Vec<u8> {
    let length = body.len() as u16;
    let mut packet;
    let mut pseudo = Vec::new();
    match (source, destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            packet = header_v4(source, destination, protocol, 20 + length);
            if protocol != ICMP {
                pseudo.extend_from_slice(&packet[12..20]);
            }
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            packet = header_v6(source, destination, protocol, length);
            pseudo.extend_from_slice(&packet[8..40]);
        }
        _ => panic!("{source} and {destination} are of two families"),
    }
    if !pseudo.is_empty() {
        pseudo.extend_from_slice(&[0, protocol]);
        pseudo.extend_from_slice(&length.to_be_bytes());
    }
    let sum = checksum(&[&pseudo, &body]);
    body[at..at + 2].copy_from_slice(&sum.to_be_bytes());
    packet.extend_from_slice(&body);
    packet
}

fn header_v4(source: Ipv4Addr, destination: Ipv4Addr, protocol: u8, length: u16) -> Vec<u8> {
    let mut header = vec![0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, protocol, 0, 0];
    header[2..4].copy_from_slice(&length.to_be_bytes());
    header.extend_from_slice(&source.octets());
    header.extend_from_slice(&destination.octets());
    let sum = checksum(&[&header]);
    header[10..12].copy_from_slice(&sum.to_be_bytes());
    header
}

fn header_v6(source: Ipv6Addr, destination: Ipv6Addr, protocol: u8, length: u16) -> Vec<u8> {
    let mut header = vec![0x60, 0, 0, 0, 0, 0, protocol, 64];
    header[4..6].copy_from_slice(&length.to_be_bytes());
    header.extend_from_slice(&source.octets());
    header.extend_from_slice(&destination.octets());
    header
}

/// The Internet checksum; every part but the last has an even length.
fn checksum(parts: &[&[u8]]) -> u16 {
    let mut total = 0_u64;
    for part in parts {
        for pair in part.chunks(2) {
            total += u64::from(u16::from_be_bytes([
                pair[0],
                pair.get(1).copied().unwrap_or(0),
            ]));
        }
    }
    while total > 0xffff {
        total = (total & 0xffff) + (total >> 16);
    }
    !(total as u16)
}
