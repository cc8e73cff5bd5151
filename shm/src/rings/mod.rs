//! The `rings` segment: rings between the processes, counters, and a slot for each process.

mod id;
#[cfg(all(test, not(loom)))]
mod tests;

pub use crate::process::Role;
pub use id::RingId;

pub(crate) use id::{MESSAGE_SHAPE, message_rings, packet_rings, packet_shape};

use crate::{
    counters::{MetaCounters, PeerTraffic, WorkerCounters},
    epoch,
    ids::{PeerSlot, ShardId, WorkerSlot},
    layout::shared,
    process::ProcessSlot,
    ring::{Consumer, Producer, RingControl, Shape},
    segment::{Segment, SegmentError, SegmentKind, View},
    sync::{AtomicU32, AtomicU64, Ordering},
};

/// The process slots before the workers': supervisor, meta, helper.
pub(crate) const FIRST_WORKER: u64 = 3;
/// Tables that are reached by a number from elsewhere have one element more, which stands for every number beyond
/// them: a wrong number is harmless, and the fast path has no error to handle.
pub(crate) const SPARE: u64 = 1;

shared! {
    /// Words of the supervisor.
    #[repr(C, align(64))]
    pub(crate) struct RingsControl {
        workers: AtomicU32,
    }
}

shared! {
    /// A shard's owner: alone on its line, since it changes hands while others look.
    #[repr(C, align(64))]
    pub(crate) struct OwnerWord {
        worker: AtomicU32,
    }
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
pub struct Rings {
    segment: Segment,
    control: View<RingsControl>,
    processes: View<[ProcessSlot]>,
    spare_process: View<ProcessSlot>,
    workers: View<[WorkerCounters]>,
    spare_worker: View<WorkerCounters>,
    meta: View<MetaCounters>,
    traffic: View<[PeerTraffic]>,
    spare_traffic: View<PeerTraffic>,
    owners: View<[OwnerWord]>,
    spare_owner: View<OwnerWord>,
    ring_controls: View<[RingControl]>,
    messages: View<[AtomicU64]>,
    packets: View<[AtomicU64]>,
}

impl Rings {
    /// The view of an attached `rings` segment. On one that is mapped for reading, only look: a store into one of the
    /// words ends the process.
    pub fn attach(segment: &Segment) -> Result<Rings, SegmentError> {
        segment.expect_kind(SegmentKind::Rings)?;
        Ok(Rings {
            control: segment.one("control")?,
            processes: segment.table("processes")?,
            spare_process: segment.last("processes")?,
            workers: segment.table("workers")?,
            spare_worker: segment.last("workers")?,
            meta: segment.one("meta")?,
            traffic: segment.table("traffic")?,
            spare_traffic: segment.last("traffic")?,
            owners: segment.table("owners")?,
            spare_owner: segment.last("owners")?,
            ring_controls: segment.table("ring_controls")?,
            messages: segment.table("messages")?,
            packets: segment.table("packets")?,
            segment: segment.clone(),
        })
    }

    /// Allocates the memory of a worker's rings, to and from meta and each of `workers` workers, and makes `workers`
    /// the number of workers. Only for the supervisor, before the worker starts.
    pub fn prepare_slot(&self, slot: WorkerSlot, workers: u8) -> Result<(), SegmentError> {
        let shards = self.segment.geometry().shards;
        if workers > shards || slot.0 >= workers {
            return Err(SegmentError::Geometry {
                field: "workers",
                value: workers.max(slot.0.saturating_add(1)).into(),
                allowed: "at most the number of shards",
            });
        }
        let worker = Role::Worker(slot);
        for ring in RingId::all(workers)
            .filter(|ring| ring.producer() == worker || ring.consumer() == worker)
        {
            let (region, _, shape, number) = self.place(ring, workers)?;
            let bytes = shape.words() * size_of::<u64>() as u64;
            self.segment.allocate(region, number * bytes, bytes)?;
        }
        self.control
            .workers
            .store(workers.into(), Ordering::Release);
        Ok(())
    }

    /// The writing end of a ring. There must be no other in the system.
    pub fn producer(&self, ring: RingId) -> Result<Producer, SegmentError> {
        let (control, words, shape) = self.parts(ring)?;
        let consumer = self
            .processes
            .project(|table| table.get(process_index(ring.consumer())));
        let consumer = consumer.unwrap_or_else(|| self.spare_process.clone());
        Ok(Producer::new(control, words, consumer, shape))
    }

    /// The reading end of a ring. There must be no other in the system.
    pub fn consumer(&self, ring: RingId) -> Result<Consumer, SegmentError> {
        let (control, words, shape) = self.parts(ring)?;
        Ok(Consumer::new(control, words, shape))
    }

    /// All rings between the processes that there are.
    pub fn list(&self) -> Vec<RingStat> {
        let workers = self.workers();
        RingId::all(workers)
            .filter_map(|ring| {
                let (_, control, shape, _) = self.place(ring, workers).ok()?;
                let figures = self.ring_controls.get(control)?.figures(shape);
                Some(RingStat {
                    id: ring,
                    name: ring.to_string(),
                    producer: ring.producer(),
                    consumer: ring.consumer(),
                    size: shape.slots(),
                    used: figures.used,
                    high_water: figures.high_water,
                    enqueued: figures.enqueued,
                    dequeued: figures.dequeued,
                    full_drops: figures.full_drops,
                    wakeups: figures.wakeups,
                })
            })
            .collect()
    }

    /// A process's slot; of a worker beyond the shards, a spare one that nobody reads.
    pub fn process(&self, role: Role) -> &ProcessSlot {
        self.processes
            .get(process_index(role))
            .unwrap_or(&self.spare_process)
    }

    /// A worker's counters; of a worker beyond the shards, spare ones that nobody reads.
    pub fn counters(&self, worker: WorkerSlot) -> &WorkerCounters {
        self.workers
            .get(worker.index())
            .unwrap_or(&self.spare_worker)
    }

    /// Meta's counters.
    pub fn meta_counters(&self) -> &MetaCounters {
        &self.meta
    }

    /// A peer's transfer; of a number beyond the limit, a spare one that nobody reads.
    #[inline]
    pub fn traffic(&self, peer: PeerSlot) -> &PeerTraffic {
        self.traffic
            .get(peer.index())
            .unwrap_or(&self.spare_traffic)
    }

    /// The slot of the worker that owns a shard. The supervisor writes.
    pub fn shard_owner(&self, shard: ShardId) -> &AtomicU32 {
        &self
            .owners
            .get(shard.index())
            .unwrap_or(&self.spare_owner)
            .worker
    }

    /// The number of workers.
    pub fn workers(&self) -> u8 {
        let shards = self.segment.geometry().shards;
        self.control
            .workers
            .load(Ordering::Acquire)
            .min(shards.into()) as u8
    }

    /// The number of shards.
    pub fn shards(&self) -> u8 {
        self.segment.geometry().shards
    }

    /// Whether every worker is offline or in this epoch or a later one. A worker that died in mid-turn counts until
    /// the supervisor, after waitpid, takes it [`offline`](ProcessSlot::offline).
    pub fn workers_passed(&self, epoch: u64) -> bool {
        epoch::fence_before_check();
        self.processes
            .iter()
            .skip(FIRST_WORKER as usize)
            .all(|process| process.passed(epoch))
    }

    /// Region, index of the control block, sizes and number of a ring.
    fn place(
        &self,
        ring: RingId,
        workers: u8,
    ) -> Result<(&'static str, usize, Shape, u64), SegmentError> {
        let shards = self.shards();
        let exists = [ring.producer(), ring.consumer()]
            .into_iter()
            .all(|role| match role {
                Role::Worker(slot) => slot.0 < workers,
                _ => true,
            });
        let place = ring.place(shards.into()).filter(|_| exists);
        let place = place.ok_or_else(|| SegmentError::NoRing {
            name: ring.to_string(),
            workers,
        })?;
        let (region, shape) = if place.packets {
            ("packets", packet_shape(shards))
        } else {
            ("messages", MESSAGE_SHAPE)
        };
        Ok((region, place.control(shards.into()), shape, place.number))
    }

    fn parts(&self, ring: RingId) -> Result<Parts, SegmentError> {
        self.segment.expect_writable()?;
        let workers = self.workers();
        let (region, control, shape, number) = self.place(ring, workers)?;
        let table = if region == "packets" {
            &self.packets
        } else {
            &self.messages
        };
        let start = (number * shape.words()) as usize;
        let control = self.ring_controls.project(|table| table.get(control));
        let words = table.project(|table| table.get(start..start + shape.words() as usize));
        match (control, words) {
            (Some(control), Some(words)) => Ok((control, words, shape)),
            _ => Err(SegmentError::NoRing {
                name: ring.to_string(),
                workers,
            }),
        }
    }
}

/// What an end of a ring is made of.
type Parts = (View<RingControl>, View<[AtomicU64]>, Shape);

fn process_index(role: Role) -> usize {
    match role {
        Role::Supervisor => 0,
        Role::Meta => 1,
        Role::Helper => 2,
        Role::Worker(slot) => FIRST_WORKER as usize + slot.index(),
    }
}
