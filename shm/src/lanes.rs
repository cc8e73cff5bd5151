//! The `lanes` segment: nonce counters, replay windows and activity words. Workers write, meta reads; the tools never
//! map it.

use crate::{
    ids::{LaneSlot, PeerSlot},
    layout::shared,
    segment::{Segment, SegmentError},
    sync::{AtomicU32, AtomicU64},
};

shared! {
    /// What happened with a peer and when: boot nanoseconds, 0 = never or none. Every worker stores into these words,
    /// each only when it changes; losing such a race is harmless.
    #[repr(C, align(64))]
    pub struct Activity {
        /// Data was sent at this time and nothing authenticated has come since.
        pub first_unanswered: AtomicU64,
        /// Data has come at this time and nothing was sent since.
        pub first_unacknowledged: AtomicU64,
        /// Anything authenticated was sent.
        pub last_sent: AtomicU64,
        /// Anything authenticated was received.
        pub last_received: AtomicU64,
        /// Data was sent.
        pub last_data_sent: AtomicU64,
        /// Data was received.
        pub last_data_received: AtomicU64,
        /// Equal to [`PeerPath::arm_generation`](crate::state::PeerPath::arm_generation): meta has a timer running;
        /// else the next packet raises [`Event::Armed`](crate::messages::Event::Armed).
        pub armed: AtomicU32,
        _spare: AtomicU32,
    }
}

/// A lane's replay window.
#[derive(Clone, Copy, Debug)]
pub struct WindowWords<'a> {
    /// One more than the greatest counter accepted.
    pub top: &'a AtomicU64,
    /// Up to where skipped words were cleared.
    pub cleared: &'a AtomicU64,
    /// The bits.
    pub bits: &'a [AtomicU64; 128],
}

/// The `lanes` segment.
#[derive(Clone, Debug)]
pub struct Lanes {}

impl Lanes {
    /// The view of an attached `lanes` segment.
    pub fn attach(segment: &Segment) -> Result<Lanes, SegmentError> {
        let _ = segment;
        todo!()
    }

    /// Takes `n` nonces for one run and gives the first. Nobody else gets them, even if this process dies.
    #[inline]
    pub fn take_counters(&self, lane: LaneSlot, n: u64) -> u64 {
        let _ = (lane, n);
        todo!()
    }

    /// How many nonces were taken.
    #[inline]
    pub fn send_counter(&self, lane: LaneSlot) -> u64 {
        let _ = lane;
        todo!()
    }

    /// The lane's replay window. Only the home shard's worker writes.
    #[inline]
    pub fn window(&self, lane: LaneSlot) -> WindowWords<'_> {
        let _ = lane;
        todo!()
    }

    /// Makes a lane as new. Only on [`Command::CleanLane`](crate::messages::Command::CleanLane), by the home shard's
    /// worker: the old key is gone by then, so no nonce is used twice.
    pub fn clean(&self, lane: LaneSlot) {
        let _ = lane;
        todo!()
    }

    /// A peer's activity words.
    #[inline]
    pub fn activity(&self, peer: PeerSlot) -> &Activity {
        let _ = peer;
        todo!()
    }
}
