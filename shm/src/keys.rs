//! The `keys` segment: session keys by lane, and each peer's greatest time stamp. Meta writes, workers read; the tools
//! never map it.

use crate::{
    ids::{LaneSlot, PeerSlot},
    segment::{Segment, SegmentError},
};
use std::fmt;

/// What a lane needs to seal and open. Wiped when dropped.
pub struct LaneKeys {
    /// Whose lane it is.
    pub peer: PeerSlot,
    /// Which user of that slot.
    pub incarnation: u32,
    /// The receiver index that the peer puts into its messages.
    pub local_index: u32,
    /// The receiver index that goes into messages to the peer.
    pub remote_index: u32,
    /// The key to send with.
    pub send_key: [u8; 32],
    /// The key to receive with.
    pub receive_key: [u8; 32],
    /// When the session was made, boot nanoseconds.
    pub born_ns: u64,
    /// Whether this side began the handshake.
    pub initiator: bool,
}

impl fmt::Debug for LaneKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LaneKeys")
            .field("peer", &self.peer)
            .field("incarnation", &self.incarnation)
            .field("local_index", &self.local_index)
            .field("remote_index", &self.remote_index)
            .field("born_ns", &self.born_ns)
            .field("initiator", &self.initiator)
            .finish_non_exhaustive()
    }
}

/// The `keys` segment for readers.
#[derive(Clone, Debug)]
pub struct Keys {}

impl Keys {
    /// The view of an attached `keys` segment.
    pub fn attach(segment: &Segment) -> Result<Keys, SegmentError> {
        let _ = segment;
        todo!()
    }

    /// A lane's keys; `None`: the lane is not in use.
    pub fn read(&self, lane: LaneSlot) -> Option<LaneKeys> {
        let _ = lane;
        todo!()
    }

    /// Changes whenever the lane's keys do. Take it before [`read`](Self::read); as long as it stays the same, what
    /// was read is current.
    #[inline]
    pub fn generation(&self, lane: LaneSlot) -> u32 {
        let _ = lane;
        todo!()
    }
}

/// The `keys` segment for its one writer, meta.
#[derive(Debug)]
pub struct KeysWriter {
    reader: Keys,
}

impl KeysWriter {
    /// Takes the segment over; a key that a dead meta left half written is retired.
    pub fn attach(segment: &Segment) -> Result<KeysWriter, SegmentError> {
        let _ = segment;
        todo!()
    }

    /// Publishes a lane's keys.
    pub fn publish(&mut self, lane: LaneSlot, keys: &LaneKeys) {
        let _ = (lane, keys);
        todo!()
    }

    /// Takes a lane's keys away and wipes them.
    pub fn retire(&mut self, lane: LaneSlot) {
        let _ = lane;
        todo!()
    }

    /// The greatest TAI64N time stamp that a peer has shown.
    pub fn greatest_timestamp(&self, peer: PeerSlot) -> [u8; 12] {
        let _ = peer;
        todo!()
    }

    /// Remembers a peer's time stamp, also beyond the life of this meta.
    pub fn set_greatest_timestamp(&mut self, peer: PeerSlot, timestamp: [u8; 12]) {
        let _ = (peer, timestamp);
        todo!()
    }

    /// The same segment for reading.
    pub fn reader(&self) -> Keys {
        self.reader.clone()
    }
}
