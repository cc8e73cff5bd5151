//! What goes through the rings: events from workers to meta, commands from meta to workers, and the header in front of
//! a packet. Decoding takes any bytes.

use crate::{
    ids::{LaneSlot, PeerSlot},
    state::Endpoint,
};
use std::net::{IpAddr, SocketAddr};

/// The greatest length of an encoded event or command.
pub const MESSAGE_MAX: usize = 112;

/// What a worker tells meta.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// Packets wait for a session with this peer.
    NeedHandshake {
        /// The peer.
        peer: PeerSlot,
        /// Which user of the slot.
        incarnation: u32,
    },
    /// There was traffic while no timer ran for this peer.
    Armed {
        /// The peer.
        peer: PeerSlot,
        /// Which user of the slot.
        incarnation: u32,
    },
    /// The first packet of a session authenticated: the responder may send on it.
    Confirmed {
        /// The lane.
        lane: LaneSlot,
        /// The session's receiver index.
        local_index: u32,
    },
    /// An authenticated packet came from another address than the peer's.
    Roamed {
        /// The lane it came on.
        lane: LaneSlot,
        /// The session's receiver index.
        local_index: u32,
        /// The packet's counter: a newer one wins.
        counter: u64,
        /// The new address.
        endpoint: Endpoint,
    },
    /// A session should be renewed.
    RekeyDue {
        /// The lane.
        lane: LaneSlot,
        /// The session's receiver index.
        local_index: u32,
        /// A packet came in the last seconds before the key dies (the initiator's receive rule).
        last_minute: bool,
    },
    /// The lane's counter and window are as new.
    LaneCleaned {
        /// The lane.
        lane: LaneSlot,
    },
    /// The path to a peer takes no more than this.
    PathMtu {
        /// The peer.
        peer: PeerSlot,
        /// Which user of the slot.
        incarnation: u32,
        /// Bytes outside.
        mtu: u16,
    },
    /// The peer's endpoint is routed into its own tunnel.
    Looped {
        /// The peer.
        peer: PeerSlot,
        /// Which user of the slot.
        incarnation: u32,
    },
}

/// What meta tells a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// There is a session: send what waits.
    SessionReady {
        /// The peer.
        peer: PeerSlot,
    },
    /// There will be no session: drop what waits.
    DropStaged {
        /// The peer.
        peer: PeerSlot,
    },
    /// Send a keepalive.
    Keepalive {
        /// The lane.
        lane: LaneSlot,
        /// The session's receiver index.
        local_index: u32,
    },
    /// Make the lane's counter and window as new, then answer [`Event::LaneCleaned`].
    CleanLane {
        /// The lane.
        lane: LaneSlot,
    },
}

impl Event {
    /// Writes the event, gives its length.
    pub fn encode(&self, out: &mut [u8; MESSAGE_MAX]) -> usize {
        let _ = out;
        todo!()
    }

    /// The record's kind.
    pub fn kind(&self) -> u16 {
        todo!()
    }

    /// The event in a record; `None`: it is none.
    pub fn decode(kind: u16, bytes: &[u8]) -> Option<Event> {
        let _ = (kind, bytes);
        todo!()
    }
}

impl Command {
    /// Writes the command, gives its length.
    pub fn encode(&self, out: &mut [u8; MESSAGE_MAX]) -> usize {
        let _ = out;
        todo!()
    }

    /// The record's kind.
    pub fn kind(&self) -> u16 {
        todo!()
    }

    /// The command in a record; `None`: it is none.
    pub fn decode(kind: u16, bytes: &[u8]) -> Option<Command> {
        let _ = (kind, bytes);
        todo!()
    }
}

/// What goes before the datagram in a packet record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketHeader {
    /// Where the datagram came from; for an inner packet unspecified.
    pub remote: SocketAddr,
    /// Which local address it came to.
    pub local: Option<IpAddr>,
    /// Through which device, 0: unknown.
    pub ifindex: u32,
    /// On which shard it came in.
    pub shard: u8,
    /// On which socket group.
    pub group: u8,
    /// The outer header's ECN bits.
    pub ecn: u8,
    /// Whether it is an inner packet from the TUN and not a datagram.
    pub inner: bool,
}

impl PacketHeader {
    /// The length of the encoded header.
    pub const LEN: usize = 48;
    /// The record's kind.
    pub const KIND: u16 = 0x80;

    /// The header's bytes.
    pub fn encode(&self) -> [u8; Self::LEN] {
        todo!()
    }

    /// The header at the front of a record and the packet behind it.
    pub fn decode(bytes: &[u8]) -> Option<(PacketHeader, &[u8])> {
        let _ = bytes;
        todo!()
    }
}
