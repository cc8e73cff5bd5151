//! The `rings` segment: rings between the processes, counters, and a slot for each process.

use crate::{
    counters::{MetaCounters, PeerTraffic, WorkerCounters},
    ids::{PeerSlot, ShardId, WorkerSlot},
    process::ProcessSlot,
    ring::{Consumer, Producer},
    segment::{Segment, SegmentError},
    sync::AtomicU32,
};

pub use crate::process::Role;

/// Which ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RingId {
    /// A worker's [`Event`](crate::messages::Event)s for meta.
    Events {
        /// The worker.
        from: WorkerSlot,
    },
    /// Meta's [`Command`](crate::messages::Command)s for a worker.
    Commands {
        /// The worker.
        to: WorkerSlot,
    },
    /// Packets that came to one worker and are another's.
    Handover {
        /// Who received them.
        from: WorkerSlot,
        /// Whose they are.
        to: WorkerSlot,
    },
    /// Handshake datagrams that came to a worker.
    ToMeta {
        /// The worker.
        from: WorkerSlot,
    },
    /// Data datagrams that came to meta.
    FromMeta {
        /// The worker.
        to: WorkerSlot,
    },
}

/// What the tools show of a ring. Sizes are in slots, `enqueued` and `dequeued` in records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RingStat {
    /// Which ring.
    pub id: RingId,
    /// Its name.
    pub name: String,
    /// Who writes.
    pub producer: Role,
    /// Who reads.
    pub consumer: Role,
    /// Slots.
    pub size: u64,
    /// Slots in use.
    pub used: u64,
    /// The most slots that were in use.
    pub high_water: u64,
    /// Records put in.
    pub enqueued: u64,
    /// Records taken out.
    pub dequeued: u64,
    /// Records dropped since the ring was full.
    pub full_drops: u64,
    /// How often the consumer had to be woken.
    pub wakeups: u64,
}

/// The `rings` segment.
#[derive(Clone, Debug)]
pub struct Rings {}

impl Rings {
    /// The view of an attached `rings` segment.
    pub fn attach(segment: &Segment) -> Result<Rings, SegmentError> {
        let _ = segment;
        todo!()
    }

    /// Allocates the memory of a worker's rings, towards meta and each of `workers` workers, and makes `workers` the
    /// number of workers. Only for the supervisor, before the worker starts.
    pub fn prepare_slot(&self, slot: WorkerSlot, workers: u8) -> Result<(), SegmentError> {
        let _ = (slot, workers);
        todo!()
    }

    /// The writing end of a ring. There must be no other in the system.
    pub fn producer(&self, ring: RingId) -> Result<Producer, SegmentError> {
        let _ = ring;
        todo!()
    }

    /// The reading end of a ring. There must be no other in the system.
    pub fn consumer(&self, ring: RingId) -> Result<Consumer, SegmentError> {
        let _ = ring;
        todo!()
    }

    /// All rings between the processes that there are.
    pub fn list(&self) -> Vec<RingStat> {
        todo!()
    }

    /// A process's slot.
    pub fn process(&self, role: Role) -> &ProcessSlot {
        let _ = role;
        todo!()
    }

    /// A worker's counters.
    pub fn counters(&self, worker: WorkerSlot) -> &WorkerCounters {
        let _ = worker;
        todo!()
    }

    /// Meta's counters.
    pub fn meta_counters(&self) -> &MetaCounters {
        todo!()
    }

    /// A peer's transfer.
    #[inline]
    pub fn traffic(&self, peer: PeerSlot) -> &PeerTraffic {
        let _ = peer;
        todo!()
    }

    /// The slot of the worker that owns a shard. The supervisor writes.
    pub fn shard_owner(&self, shard: ShardId) -> &AtomicU32 {
        let _ = shard;
        todo!()
    }

    /// The number of workers.
    pub fn workers(&self) -> u8 {
        todo!()
    }

    /// Whether every worker is offline or in this epoch or a later one.
    pub fn workers_passed(&self, epoch: u64) -> bool {
        let _ = epoch;
        todo!()
    }
}
