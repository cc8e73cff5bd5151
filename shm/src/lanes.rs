//! The `lanes` segment: nonce counters, replay windows and activity words. Workers write, meta reads; the tools never
//! map it.

use crate::{
    ids::{LaneSlot, PeerSlot},
    layout::shared,
    segment::{Segment, SegmentError, SegmentKind, View},
    sync::{AtomicU32, AtomicU64, Ordering},
};

shared! {
    /// What a lane needs besides its key. The counter is taken from by all workers, the window is the home worker's.
    #[repr(C, align(64))]
    pub(crate) struct Lane {
        counter: AtomicU64,
        _counter_line: [AtomicU64; 7],
        top: AtomicU64,
        cleared: AtomicU64,
        _window_line: [AtomicU64; 6],
        bits: [AtomicU64; 128],
    }
}

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
pub struct Lanes {
    table: View<[Lane]>,
    activity: View<[Activity]>,
    /// What a number beyond its table gets; for activity that is a spare element that nobody reads.
    first: View<Lane>,
    spare: View<Activity>,
}

impl Lanes {
    /// The view of an attached `lanes` segment.
    pub fn attach(segment: &Segment) -> Result<Lanes, SegmentError> {
        segment.expect_kind(SegmentKind::Lanes)?;
        Ok(Lanes {
            table: segment.table("lanes")?,
            first: segment.one("lanes")?,
            spare: segment.last("activity")?,
            activity: segment.table("activity")?,
        })
    }

    /// Takes `n` nonces for one run and gives the first. Nobody else gets them, even if this process dies.
    #[inline]
    pub fn take_counters(&self, lane: LaneSlot, n: u64) -> u64 {
        self.lane(lane).counter.fetch_add(n, Ordering::Relaxed)
    }

    /// How many nonces were taken.
    #[inline]
    pub fn send_counter(&self, lane: LaneSlot) -> u64 {
        self.lane(lane).counter.load(Ordering::Relaxed)
    }

    /// The lane's replay window. Only the home shard's worker writes.
    #[inline]
    pub fn window(&self, lane: LaneSlot) -> WindowWords<'_> {
        let lane = self.lane(lane);
        WindowWords {
            top: &lane.top,
            cleared: &lane.cleared,
            bits: &lane.bits,
        }
    }

    /// Makes a lane as new. Only on [`Command::CleanLane`](crate::messages::Command::CleanLane), by the home shard's
    /// worker: the old key is gone by then, so no nonce is used twice.
    pub fn clean(&self, lane: LaneSlot) {
        let lane = self.lane(lane);
        for word in lane
            .bits
            .iter()
            .chain([&lane.cleared, &lane.top, &lane.counter])
        {
            word.store(0, Ordering::Relaxed);
        }
    }

    /// A peer's activity words; of a number beyond the limit, spare ones that nobody reads.
    #[inline]
    pub fn activity(&self, peer: PeerSlot) -> &Activity {
        self.activity.get(peer.index()).unwrap_or(&self.spare)
    }

    /// A lane slot is the low bits of a receiver index, so the higher ones mean nothing here.
    #[inline]
    fn lane(&self, lane: LaneSlot) -> &Lane {
        let mask = self.table.len().wrapping_sub(1);
        self.table.get(lane.index() & mask).unwrap_or(&self.first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::segment::{Access, Geometry, create};
    use std::os::fd::AsFd;

    #[test]
    fn lanes_are_apart_and_can_be_cleaned() -> Result<(), Box<dyn std::error::Error>> {
        let fds = create(SegmentKind::Lanes, Geometry::new(4, 8, 16)?)?;
        let segment = Segment::attach(fds.writable.as_fd(), SegmentKind::Lanes, Access::ReadWrite)?;
        let lanes = Lanes::attach(&segment)?;
        assert_eq!(lanes.take_counters(LaneSlot(1), 5), 0);
        assert_eq!(lanes.take_counters(LaneSlot(1), 1), 5);
        assert_eq!(lanes.send_counter(LaneSlot(1)), 6);
        assert_eq!(lanes.send_counter(LaneSlot(2)), 0);
        let window = lanes.window(LaneSlot(1));
        window.top.store(9, Ordering::Relaxed);
        window.cleared.store(9, Ordering::Relaxed);
        window.bits[127].store(9, Ordering::Relaxed);
        lanes.clean(LaneSlot(1));
        assert_eq!(lanes.send_counter(LaneSlot(1)), 0);
        let window = lanes.window(LaneSlot(1));
        for word in window.bits.iter().chain([window.top, window.cleared]) {
            assert_eq!(word.load(Ordering::Relaxed), 0);
        }
        Ok(())
    }

    #[test]
    fn numbers_beyond_the_tables_are_harmless() -> Result<(), Box<dyn std::error::Error>> {
        let fds = create(SegmentKind::Lanes, Geometry::new(4, 8, 16)?)?;
        let segment = Segment::attach(fds.writable.as_fd(), SegmentKind::Lanes, Access::ReadWrite)?;
        let lanes = Lanes::attach(&segment)?;
        lanes.take_counters(LaneSlot(u32::MAX), 1);
        let spare = lanes.activity(PeerSlot(u32::MAX));
        assert!(std::ptr::eq(spare, lanes.activity(PeerSlot(8))));
        assert!(!std::ptr::eq(spare, lanes.activity(PeerSlot(7))));
        Ok(())
    }
}
