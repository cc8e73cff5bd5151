//! The shared memory of a gateway, as the supervisor holds it.

use ringway_shm::ids::{ShardId, WorkerSlot};
use ringway_shm::rings::Rings;
use ringway_shm::segment::{
    Access, Geometry, Segment, SegmentError, SegmentFds, SegmentKind, create,
};
use std::os::fd::AsFd;
use std::sync::atomic::Ordering;

/// The segments, and the view of the one that the supervisor writes to.
#[derive(Debug)]
pub(crate) struct Segments {
    /// Tables.
    pub(crate) state: SegmentFds,
    /// Session keys.
    pub(crate) keys: SegmentFds,
    /// Counters and windows.
    pub(crate) lanes: SegmentFds,
    /// Rings and process slots.
    pub(crate) rings: SegmentFds,
    /// The rings, mapped.
    pub(crate) view: Rings,
}

impl Segments {
    /// Makes all segments, with the rings of this many workers.
    pub(crate) fn create(geometry: Geometry, workers: u8) -> Result<Segments, SegmentError> {
        let rings = create(SegmentKind::Rings, geometry)?;
        let segment = Segment::attach(
            rings.writable.as_fd(),
            SegmentKind::Rings,
            Access::ReadWrite,
        )?;
        let view = Rings::attach(&segment)?;
        for slot in 0..workers {
            view.prepare_slot(WorkerSlot(slot), workers)?;
        }
        for shard in 0..geometry.shards {
            view.shard_owner(ShardId(shard))
                .store(u32::from(shard % workers), Ordering::Release);
        }
        Ok(Segments {
            state: create(SegmentKind::State, geometry)?,
            keys: create(SegmentKind::Keys, geometry)?,
            lanes: create(SegmentKind::Lanes, geometry)?,
            rings,
            view,
        })
    }
}
