//! What goes through the rings: events from workers to meta, commands from meta to workers, and the header in front of
//! a packet. Decoding takes any bytes.

mod codec;

use crate::{
    ids::{LaneSlot, PeerSlot},
    state::Endpoint,
};
use codec::{Reader, Writer};
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
        let mut writer = Writer::new(out);
        match *self {
            Event::NeedHandshake { peer, incarnation }
            | Event::Armed { peer, incarnation }
            | Event::Looped { peer, incarnation } => {
                writer.u32(peer.0);
                writer.u32(incarnation);
            }
            Event::Confirmed { lane, local_index } => {
                writer.u32(lane.0);
                writer.u32(local_index);
            }
            Event::Roamed {
                lane,
                local_index,
                counter,
                endpoint,
            } => {
                writer.u32(lane.0);
                writer.u32(local_index);
                writer.u64(counter);
                writer.socket_address(endpoint.remote);
                writer.ip(endpoint.local);
                writer.u32(endpoint.ifindex);
            }
            Event::RekeyDue {
                lane,
                local_index,
                last_minute,
            } => {
                writer.u32(lane.0);
                writer.u32(local_index);
                writer.u8(last_minute.into());
            }
            Event::LaneCleaned { lane } => writer.u32(lane.0),
            Event::PathMtu {
                peer,
                incarnation,
                mtu,
            } => {
                writer.u32(peer.0);
                writer.u32(incarnation);
                writer.u16(mtu);
            }
        }
        writer.length()
    }

    /// The record's kind.
    pub fn kind(&self) -> u16 {
        match self {
            Event::NeedHandshake { .. } => 1,
            Event::Armed { .. } => 2,
            Event::Confirmed { .. } => 3,
            Event::Roamed { .. } => 4,
            Event::RekeyDue { .. } => 5,
            Event::LaneCleaned { .. } => 6,
            Event::PathMtu { .. } => 7,
            Event::Looped { .. } => 8,
        }
    }

    /// The event in a record; `None`: it is none.
    pub fn decode(kind: u16, bytes: &[u8]) -> Option<Event> {
        let mut reader = Reader::new(bytes);
        let number = reader.u32()?;
        let (peer, lane) = (PeerSlot(number), LaneSlot(number));
        let event = match kind {
            1 => Event::NeedHandshake {
                peer,
                incarnation: reader.u32()?,
            },
            2 => Event::Armed {
                peer,
                incarnation: reader.u32()?,
            },
            3 => Event::Confirmed {
                lane,
                local_index: reader.u32()?,
            },
            4 => Event::Roamed {
                lane,
                local_index: reader.u32()?,
                counter: reader.u64()?,
                endpoint: Endpoint {
                    remote: reader.socket_address()?,
                    local: reader.ip()?,
                    ifindex: reader.u32()?,
                },
            },
            5 => Event::RekeyDue {
                lane,
                local_index: reader.u32()?,
                last_minute: reader.bool()?,
            },
            6 => Event::LaneCleaned { lane },
            7 => Event::PathMtu {
                peer,
                incarnation: reader.u32()?,
                mtu: reader.u16()?,
            },
            8 => Event::Looped {
                peer,
                incarnation: reader.u32()?,
            },
            _ => return None,
        };
        reader.end(event)
    }
}

impl Command {
    /// Writes the command, gives its length.
    pub fn encode(&self, out: &mut [u8; MESSAGE_MAX]) -> usize {
        let mut writer = Writer::new(out);
        match *self {
            Command::SessionReady { peer } | Command::DropStaged { peer } => writer.u32(peer.0),
            Command::Keepalive { lane, local_index } => {
                writer.u32(lane.0);
                writer.u32(local_index);
            }
            Command::CleanLane { lane } => writer.u32(lane.0),
        }
        writer.length()
    }

    /// The record's kind.
    pub fn kind(&self) -> u16 {
        match self {
            Command::SessionReady { .. } => 0x41,
            Command::DropStaged { .. } => 0x42,
            Command::Keepalive { .. } => 0x43,
            Command::CleanLane { .. } => 0x44,
        }
    }

    /// The command in a record; `None`: it is none.
    pub fn decode(kind: u16, bytes: &[u8]) -> Option<Command> {
        let mut reader = Reader::new(bytes);
        let number = reader.u32()?;
        let (peer, lane) = (PeerSlot(number), LaneSlot(number));
        let command = match kind {
            0x41 => Command::SessionReady { peer },
            0x42 => Command::DropStaged { peer },
            0x43 => Command::Keepalive {
                lane,
                local_index: reader.u32()?,
            },
            0x44 => Command::CleanLane { lane },
            _ => return None,
        };
        reader.end(command)
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
        let mut bytes = [0; Self::LEN];
        let mut writer = Writer::new(&mut bytes);
        writer.socket_address(self.remote);
        writer.ip(self.local);
        writer.u32(self.ifindex);
        writer.u8(self.shard);
        writer.u8(self.group);
        writer.u8(self.ecn);
        writer.u8(self.inner.into());
        bytes
    }

    /// The header at the front of a record and the packet behind it; `None`: there is no header.
    pub fn decode(bytes: &[u8]) -> Option<(PacketHeader, &[u8])> {
        let mut reader = Reader::new(bytes);
        let header = PacketHeader {
            remote: reader.socket_address()?,
            local: reader.ip()?,
            ifindex: reader.u32()?,
            shard: reader.u8()?,
            group: reader.u8()?,
            ecn: reader.u8()?,
            inner: reader.bool()?,
        };
        Some((header, reader.rest()))
    }
}

#[cfg(test)]
mod tests;
