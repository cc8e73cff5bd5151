//! A super-packet taken apart into the packets that it stands for.
//!
//! The kernel does the same in software for a device that can't (net/ipv4/af_inet.c
//! `inet_gso_segment`, net/ipv4/tcp_offload.c `tcp_gso_segment`, net/ipv4/udp_offload.c
//! `__udp_gso_segment`, net/ipv6/ip6_offload.c); what each segment's headers say follows them. The
//! frame comes from whoever may send through the interface: nothing that it says of itself is taken
//! without a look, and `hdr_len` isn't read at all.

use super::checksum::{Sum, pseudo_header};
use super::headers::{Headers, TCP, UDP, UDP_HEADER, tcp};
use super::vnet::{
    GSO_ECN, GSO_NONE, GSO_TCPV4, GSO_TCPV6, GSO_UDP_L4, NEEDS_CSUM, VNET_HEADER, VnetHeader,
};
use ringway_proto::inner::{self, Inner, InnerError};

#[cfg(test)]
mod tests;

/// Why a frame makes no packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// It is no IP packet.
    #[error(transparent)]
    Inner(#[from] InnerError),
    /// Its header describes work that does not fit the packet.
    #[error("the frame's header does not fit its packet")]
    Header,
}

/// What is to be done about the transport checksum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Checksum {
    /// It is right, or nobody's business.
    Done,
    /// To be summed from the first place to the end and stored at the second. What stands there is
    /// the sum over the pseudo header.
    Left { from: usize, at: usize },
}

/// How a super-packet's segments come about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// It is one packet.
    Whole(Checksum),
    Tcp,
    Udp,
}

/// A frame's plan: how many packets, how long each.
#[derive(Debug, Clone, Copy)]
pub struct Split<'a> {
    packet: &'a [u8],
    /// What the packet's header says.
    pub inner: Inner,
    kind: Kind,
    /// Where the transport header starts.
    transport: usize,
    /// Bytes of all headers, which each segment has.
    headers: usize,
    /// Payload bytes a segment.
    size: usize,
    count: usize,
}

impl<'a> Split<'a> {
    /// Looks at a frame as it was read from a TUN queue.
    ///
    /// # Errors
    /// [`Refused`].
    #[inline]
    pub fn plan(frame: &'a [u8]) -> Result<Split<'a>, Refused> {
        let (header, packet) = frame
            .split_first_chunk::<VNET_HEADER>()
            .ok_or(Refused::Header)?;
        let header = VnetHeader::parse(header);
        let split = Split::whole(packet)?;
        match header.gso_type & !GSO_ECN {
            GSO_NONE => split.unfinished(&header),
            GSO_TCPV4 => split.segmented(&header, TCP, true),
            GSO_TCPV6 => split.segmented(&header, TCP, false),
            GSO_UDP_L4 => split.segmented(&header, UDP, split.inner.source.is_ipv4()),
            _ => Err(Refused::Header),
        }
    }

    /// A packet as it is. What follows it in the buffer is left out.
    ///
    /// # Errors
    /// [`Refused::Inner`].
    #[inline]
    pub fn whole(packet: &'a [u8]) -> Result<Split<'a>, Refused> {
        let inner = inner::parse(packet)?;
        Ok(Split {
            packet: &packet[..inner.length],
            inner,
            kind: Kind::Whole(Checksum::Done),
            transport: inner.header_length,
            headers: inner.header_length,
            size: 0,
            count: 1,
        })
    }

    /// One packet, whose checksum may be left to do.
    fn unfinished(mut self, header: &VnetHeader) -> Result<Split<'a>, Refused> {
        if header.flags & NEEDS_CSUM != 0 {
            let from = usize::from(header.csum_start);
            let at = from + usize::from(header.csum_offset);
            if from < self.inner.header_length || at + 2 > self.packet.len() {
                return Err(Refused::Header);
            }
            self.kind = Kind::Whole(Checksum::Left { from, at });
        }
        Ok(self)
    }

    /// A super-packet of this protocol and IP version.
    fn segmented(
        mut self,
        header: &VnetHeader,
        protocol: u8,
        v4: bool,
    ) -> Result<Split<'a>, Refused> {
        let found = Headers::find(self.packet, &self.inner).ok_or(Refused::Header)?;
        let checksum_at = if protocol == TCP {
            tcp::CHECKSUM
        } else {
            UDP_CHECKSUM
        };
        // A frame that leaves no checksum to do has one over all of it, which no segment can use.
        let fits = self.inner.source.is_ipv4() == v4
            && !self.inner.fragment
            && found.protocol == protocol
            && header.gso_size != 0
            && (header.flags & NEEDS_CSUM == 0
                || (usize::from(header.csum_start) == found.transport
                    && usize::from(header.csum_offset) == checksum_at));
        if !fits {
            return Err(Refused::Header);
        }
        self.kind = if protocol == TCP {
            Kind::Tcp
        } else {
            Kind::Udp
        };
        self.transport = found.transport;
        self.headers = found.end;
        self.size = header.gso_size.into();
        let payload = self.packet.len() - self.headers;
        self.count = payload.div_ceil(self.size).max(1);
        Ok(self)
    }

    /// How many packets it makes; at least one.
    #[inline]
    #[must_use]
    pub fn count(&self) -> usize {
        self.count
    }

    /// How long packet `number` is.
    #[inline]
    #[must_use]
    pub fn length(&self, number: usize) -> usize {
        if self.count == 1 {
            return self.packet.len();
        }
        self.headers + self.payload(number).len()
    }

    fn payload(&self, number: usize) -> &'a [u8] {
        if self.count == 1 {
            return &self.packet[self.headers..];
        }
        let start = self.headers + number * self.size;
        &self.packet[start..self.packet.len().min(start + self.size)]
    }

    /// The frame's packet, before anything is done to it.
    #[inline]
    #[must_use]
    pub fn packet(&self) -> &'a [u8] {
        self.packet
    }

    /// Writes packet `number`, whose [`length`](Split::length) `to` has.
    #[inline]
    pub fn write(&self, number: usize, to: &mut [u8]) {
        match self.kind {
            Kind::Whole(Checksum::Done) => to.copy_from_slice(self.packet),
            Kind::Whole(Checksum::Left { from, at }) => {
                to[..from].copy_from_slice(&self.packet[..from]);
                let sum = Sum::default().copied(&mut to[from..], &self.packet[from..]);
                to[at..at + 2].copy_from_slice(&sum.nonzero_checksum());
            }
            Kind::Tcp | Kind::Udp => self.write_segment(number, to),
        }
    }

    fn write_segment(&self, number: usize, to: &mut [u8]) {
        let (headers, room) = to.split_at_mut(self.headers);
        let payload = self.payload(number);
        headers.copy_from_slice(&self.packet[..self.headers]);
        let sum = Sum::default().copied(room, payload);
        let (ip, transport) = headers.split_at_mut(self.transport);
        let length = transport.len() + payload.len();
        let addresses = if self.inner.source.is_ipv4() {
            let total = (ip.len() + length) as u16;
            ip[2..4].copy_from_slice(&total.to_be_bytes());
            let id = u16::from_be_bytes([ip[4], ip[5]]).wrapping_add(number as u16);
            ip[4..6].copy_from_slice(&id.to_be_bytes());
            ip[10..12].fill(0);
            let sum = Sum::default().bytes(ip).checksum();
            ip[10..12].copy_from_slice(&sum);
            &ip[12..20]
        } else {
            let total = (ip.len() + length - inner::IPV6_HEADER) as u16;
            ip[4..6].copy_from_slice(&total.to_be_bytes());
            &ip[8..40]
        };
        let (protocol, checksum) = if self.kind == Kind::Tcp {
            self.number_tcp(number, transport);
            (TCP, tcp::CHECKSUM)
        } else {
            transport[4..6].copy_from_slice(&(length as u16).to_be_bytes());
            (UDP, UDP_CHECKSUM)
        };
        transport[checksum..checksum + 2].fill(0);
        // The header is first and even in length: it doesn't matter in which order they are added.
        let sum = sum
            .and(pseudo_header(addresses, protocol, length))
            .bytes(transport);
        transport[checksum..checksum + 2].copy_from_slice(&sum.nonzero_checksum());
    }

    fn number_tcp(&self, number: usize, header: &mut [u8]) {
        let place = &mut header[tcp::SEQUENCE..tcp::SEQUENCE + 4];
        let first = u32::from_be_bytes([place[0], place[1], place[2], place[3]]);
        let sequence = first.wrapping_add((number * self.size) as u32);
        place.copy_from_slice(&sequence.to_be_bytes());
        if number + 1 < self.count {
            header[tcp::FLAGS] &= !(tcp::FIN | tcp::PSH);
        }
        if number > 0 {
            header[tcp::FLAGS] &= !tcp::CWR;
        }
    }
}

/// Where UDP's checksum is in its header.
const UDP_CHECKSUM: usize = UDP_HEADER - 2;
