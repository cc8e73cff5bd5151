//! Packets for tests, made field by field and without the code that is under test.

use super::vnet::{GSO_TCPV4, GSO_TCPV6, GSO_UDP_L4, NEEDS_CSUM, VnetHeader};
use proptest::prelude::*;

/// What a packet is made of.
#[derive(Debug, Clone)]
pub(crate) struct Make {
    pub(crate) v6: bool,
    pub(crate) udp: bool,
    /// The last byte of the destination address.
    pub(crate) host: u8,
    pub(crate) port: u16,
    pub(crate) traffic_class: u8,
    pub(crate) ttl: u8,
    pub(crate) id: u16,
    pub(crate) dont_fragment: bool,
    pub(crate) flow_label: u16,
    pub(crate) sequence: u32,
    pub(crate) acknowledgement: u32,
    pub(crate) flags: u8,
    pub(crate) window: u16,
    /// TCP options, a multiple of 4.
    pub(crate) options: Vec<u8>,
    /// IPv4 options, a multiple of 4; for IPv6 a destination options header of 8 bytes if not empty.
    pub(crate) ip_options: Vec<u8>,
    pub(crate) payload: Vec<u8>,
}

impl Default for Make {
    fn default() -> Make {
        Make {
            v6: false,
            udp: false,
            host: 2,
            port: 5201,
            traffic_class: 0,
            ttl: 64,
            id: 0x1234,
            dont_fragment: true,
            flow_label: 0,
            sequence: 1_000,
            acknowledgement: 77,
            flags: 0x10,
            window: 501,
            options: Vec::new(),
            ip_options: Vec::new(),
            payload: Vec::new(),
        }
    }
}

/// The Internet checksum, word by word.
pub(crate) fn checksum(parts: &[&[u8]]) -> u16 {
    let bytes = parts.concat();
    let mut sum: u32 = 0;
    for pair in bytes.chunks(2) {
        sum += u32::from(pair[0]) << 8 | pair.get(1).map_or(0, |byte| u32::from(*byte));
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

impl Make {
    /// Where the transport header starts.
    pub(crate) fn transport(&self) -> usize {
        match (self.v6, self.ip_options.is_empty()) {
            (true, true) => 40,
            (true, false) => 48,
            (false, _) => 20 + self.ip_options.len(),
        }
    }

    /// How long all headers are.
    pub(crate) fn headers(&self) -> usize {
        self.transport() + if self.udp { 8 } else { 20 + self.options.len() }
    }

    fn protocol(&self) -> u8 {
        if self.udp { 17 } else { 6 }
    }

    /// The packet with all its checksums.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut packet = self.without_checksum();
        let at = self.transport();
        let pseudo = self.pseudo_header(&packet);
        let sum = checksum(&[&pseudo, &packet[at..]]);
        let sum = if sum == 0 { 0xffff } else { sum };
        let place = at + if self.udp { 6 } else { 16 };
        packet[place..place + 2].copy_from_slice(&sum.to_be_bytes());
        packet
    }

    /// The frame that the kernel would hand over for segments of `size` bytes of payload: the
    /// checksum is the pseudo header's sum.
    pub(crate) fn super_packet(&self, size: u16) -> (VnetHeader, Vec<u8>) {
        let mut packet = self.without_checksum();
        let at = self.transport();
        let sum = !checksum(&[&self.pseudo_header(&packet)]);
        let offset = if self.udp { 6 } else { 16 };
        packet[at + offset..at + offset + 2].copy_from_slice(&sum.to_be_bytes());
        let header = VnetHeader {
            flags: NEEDS_CSUM,
            gso_type: match (self.udp, self.v6) {
                (true, _) => GSO_UDP_L4,
                (false, true) => GSO_TCPV6,
                (false, false) => GSO_TCPV4,
            },
            hdr_len: self.headers() as u16,
            gso_size: size,
            csum_start: at as u16,
            csum_offset: offset as u16,
        };
        (header, packet)
    }

    /// The packets that the sender's stack would have made instead of it.
    pub(crate) fn segments(&self, size: usize) -> Vec<Vec<u8>> {
        let pieces: Vec<&[u8]> = if self.payload.is_empty() {
            vec![&[]]
        } else {
            self.payload.chunks(size).collect()
        };
        let last = pieces.len() - 1;
        let segment = |(number, piece): (usize, &&[u8])| {
            let mut flags = self.flags;
            if number < last {
                flags &= !0x09;
            }
            if number > 0 {
                flags &= !0x80;
            }
            let make = Make {
                id: self.id.wrapping_add(number as u16),
                sequence: self.sequence.wrapping_add((number * size) as u32),
                flags,
                payload: piece.to_vec(),
                ..self.clone()
            };
            make.bytes()
        };
        pieces.iter().enumerate().map(segment).collect()
    }

    fn pseudo_header(&self, packet: &[u8]) -> Vec<u8> {
        let addresses = if self.v6 {
            &packet[8..40]
        } else {
            &packet[12..20]
        };
        let length = (packet.len() - self.transport()) as u32;
        [
            addresses,
            &length.to_be_bytes(),
            &[0, 0, 0, self.protocol()],
        ]
        .concat()
    }

    fn without_checksum(&self) -> Vec<u8> {
        let mut packet = if self.v6 {
            self.ipv6_header()
        } else {
            self.ipv4_header()
        };
        packet.extend_from_slice(&5001_u16.to_be_bytes());
        packet.extend_from_slice(&self.port.to_be_bytes());
        if self.udp {
            packet.extend_from_slice(&(8 + self.payload.len() as u16).to_be_bytes());
            packet.extend_from_slice(&[0, 0]);
        } else {
            packet.extend_from_slice(&self.sequence.to_be_bytes());
            packet.extend_from_slice(&self.acknowledgement.to_be_bytes());
            packet.push((((20 + self.options.len()) / 4) << 4) as u8);
            packet.push(self.flags);
            packet.extend_from_slice(&self.window.to_be_bytes());
            packet.extend_from_slice(&[0, 0, 0, 0]);
            packet.extend_from_slice(&self.options);
        }
        packet.extend_from_slice(&self.payload);
        packet
    }

    fn ipv4_header(&self) -> Vec<u8> {
        let length = self.headers() + self.payload.len();
        let mut header = vec![
            0x40 | ((20 + self.ip_options.len()) / 4) as u8,
            self.traffic_class,
        ];
        header.extend_from_slice(&(length as u16).to_be_bytes());
        header.extend_from_slice(&self.id.to_be_bytes());
        let flags = if self.dont_fragment { 0x40 } else { 0 };
        header.extend_from_slice(&[flags, 0, self.ttl, self.protocol(), 0, 0]);
        header.extend_from_slice(&[10, 0, 0, 1, 10, 0, 0, self.host]);
        header.extend_from_slice(&self.ip_options);
        let sum = checksum(&[&header]);
        header[10..12].copy_from_slice(&sum.to_be_bytes());
        header
    }

    fn ipv6_header(&self) -> Vec<u8> {
        let length = self.headers() - 40 + self.payload.len();
        let class = self.traffic_class;
        let label = self.flow_label.to_be_bytes();
        let mut header = vec![0x60 | (class >> 4), class << 4, label[0], label[1]];
        header.extend_from_slice(&(length as u16).to_be_bytes());
        let extended = !self.ip_options.is_empty();
        header.push(if extended { 60 } else { self.protocol() });
        header.push(self.ttl);
        for last in [1, self.host] {
            header.extend_from_slice(&[0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last]);
        }
        if extended {
            // Destination options: six bytes of padding (PadN).
            header.extend_from_slice(&[self.protocol(), 0, 1, 4, 0, 0, 0, 0]);
        }
        header
    }
}

/// A frame as it lies in a TUN queue.
pub(crate) fn frame(header: VnetHeader, packet: &[u8]) -> Vec<u8> {
    [&header.to_bytes()[..], packet].concat()
}

/// Packets with up to `longest` bytes of payload.
pub(crate) fn make(longest: usize) -> impl Strategy<Value = Make> {
    let header = (any::<bool>(), any::<bool>(), any::<u8>(), any::<bool>());
    let numbers = (any::<u16>(), any::<u32>(), any::<u32>(), any::<u16>());
    let options = (0..=10_usize, 0..=2_usize, any::<u8>());
    let payload = prop::collection::vec(any::<u8>(), 0..longest);
    (header, numbers, options, payload).prop_map(|(header, numbers, options, payload)| {
        let (v6, udp, traffic_class, dont_fragment) = header;
        let (id, sequence, acknowledgement, window) = numbers;
        let (words, ip_words, flags) = options;
        Make {
            v6,
            udp,
            traffic_class,
            dont_fragment,
            flow_label: id,
            id,
            sequence,
            acknowledgement,
            window,
            // No urgent pointer, no SYN, no RST: nothing that is ever segmented.
            flags: 0x10 | flags & 0xc9,
            options: vec![1; 4 * words],
            ip_options: vec![1; 4 * ip_words],
            payload,
            ..Make::default()
        }
    })
}
