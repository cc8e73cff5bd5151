//! Where the headers of a TCP or UDP packet are.

use ringway_proto::inner::Inner;

/// Protocol number of TCP.
pub const TCP: u8 = 6;
/// Protocol number of UDP.
pub const UDP: u8 = 17;
/// Bytes of the UDP header (RFC 768).
pub const UDP_HEADER: usize = 8;

/// The TCP header (RFC 9293, section 3.1).
pub mod tcp {
    /// Bytes without options.
    pub const HEADER: usize = 20;
    /// Where the sequence number is.
    pub const SEQUENCE: usize = 4;
    /// Where the acknowledgement number is.
    pub const ACKNOWLEDGEMENT: usize = 8;
    /// Where the header's length is, in words of four bytes, in the upper half of a byte.
    pub const LENGTH: usize = 12;
    /// Where the flags are.
    pub const FLAGS: usize = 13;
    /// Where the window is.
    pub const WINDOW: usize = 14;
    /// Where the checksum is.
    pub const CHECKSUM: usize = 16;
    /// No more data comes.
    pub const FIN: u8 = 0x01;
    /// The sender pushed.
    pub const PSH: u8 = 0x08;
    /// The acknowledgement number counts.
    pub const ACK: u8 = 0x10;
    /// The congestion window was reduced (RFC 3168).
    pub const CWR: u8 = 0x80;
}

const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const DESTINATION_OPTIONS: u8 = 60;
/// More extension headers than any sender uses.
const EXTENSIONS: usize = 8;

/// What lies before the payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Headers {
    /// [`TCP`] or [`UDP`].
    pub protocol: u8,
    /// Where the transport header starts: behind IPv4 options and IPv6 extension headers.
    pub transport: usize,
    /// Where the payload starts.
    pub end: usize,
}

impl Headers {
    /// Finds the transport header of a packet that `inner` was read from. `None`: it is no whole TCP
    /// or UDP header, or that of a fragment.
    #[inline]
    pub fn find(packet: &[u8], inner: &Inner) -> Option<Headers> {
        if inner.fragment {
            return None;
        }
        let packet = &packet[..inner.length];
        let (mut protocol, mut transport) = (inner.protocol, inner.header_length);
        if inner.source.is_ipv6() {
            for _ in 0..EXTENSIONS {
                if !matches!(protocol, HOP_BY_HOP | ROUTING | DESTINATION_OPTIONS) {
                    break;
                }
                // RFC 8200, section 4.3: next header, then the length in units of 8 bytes beyond the
                // first.
                let header = packet.get(transport..transport + 2)?;
                protocol = header[0];
                transport += 8 * (usize::from(header[1]) + 1);
            }
        }
        let header = packet.get(transport..)?;
        let length = match protocol {
            TCP => usize::from(*header.get(tcp::LENGTH)? >> 4) * 4,
            UDP => UDP_HEADER,
            _ => return None,
        };
        let least = if protocol == TCP {
            tcp::HEADER
        } else {
            UDP_HEADER
        };
        (length >= least && header.len() >= length).then_some(Headers {
            protocol,
            transport,
            end: transport + length,
        })
    }
}
