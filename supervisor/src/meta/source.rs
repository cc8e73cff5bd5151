//! Where a datagram came from, and datagrams that are to leave.

use ringway_proto::wire::Initiation;
use ringway_shm::ids::PeerSlot;
use ringway_shm::state::Endpoint;
use std::net::{IpAddr, SocketAddr};

/// The sender of a datagram and the address of ours that it was sent to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Source {
    /// The sender.
    pub(crate) remote: SocketAddr,
    /// Our address.
    pub(crate) local: Option<IpAddr>,
    /// The device it came by; 0: unknown.
    pub(crate) ifindex: u32,
}

impl From<Source> for Endpoint {
    fn from(source: Source) -> Endpoint {
        Endpoint {
            remote: source.remote,
            local: source.local,
            ifindex: source.ifindex,
        }
    }
}

impl From<Endpoint> for Source {
    fn from(endpoint: Endpoint) -> Source {
        Source {
            remote: endpoint.remote,
            local: endpoint.local,
            ifindex: endpoint.ifindex,
        }
    }
}

/// The traffic class of a handshake message: AF41, as the kernel's `HANDSHAKE_DSCP`.
pub(crate) const HANDSHAKE_TOS: u8 = 0x88;

/// A handshake message that is to leave at the end of the turn.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Datagram {
    /// To whom, and from which address of ours.
    pub(crate) to: Source,
    /// The traffic class.
    pub(crate) tos: u8,
    /// Whose endpoint loses its local address when that is no longer ours.
    pub(crate) peer: Option<PeerSlot>,
    bytes: [u8; Initiation::LEN],
    length: u8,
}

impl Datagram {
    /// A datagram with these bytes, at most an initiation's.
    pub(crate) fn new(to: Source, tos: u8, peer: Option<PeerSlot>, message: &[u8]) -> Self {
        let mut bytes = [0; Initiation::LEN];
        let length = message.len().min(bytes.len());
        bytes[..length].copy_from_slice(&message[..length]);
        Self {
            to,
            tos,
            peer,
            bytes,
            length: length as u8,
        }
    }

    /// The message.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }
}
