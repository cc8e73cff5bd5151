//! The reading ends of a worker's rings.

use ringway_shm::ids::WorkerSlot;
use ringway_shm::ring::Consumer;
use ringway_shm::rings::{RingId, Rings};
use ringway_shm::segment::SegmentError;

/// What others tell a worker: meta's commands and datagrams, other workers' datagrams.
pub(crate) struct Inlets {
    pub(crate) commands: Inlet,
    /// Datagrams: from meta first, then from each other worker.
    pub(crate) packets: Vec<Inlet>,
}

/// One ring and whether it still makes sense.
pub(crate) struct Inlet {
    ring: Consumer,
    quarantined: bool,
}

impl Inlets {
    pub(crate) fn new(
        rings: &Rings,
        slot: WorkerSlot,
        workers: u8,
    ) -> Result<Inlets, SegmentError> {
        let mut packets = vec![Inlet::new(rings, RingId::FromMeta { to: slot })?];
        for from in (0..workers).map(WorkerSlot).filter(|from| *from != slot) {
            packets.push(Inlet::new(rings, RingId::Handover { from, to: slot })?);
        }
        Ok(Inlets {
            commands: Inlet::new(rings, RingId::Commands { to: slot })?,
            packets,
        })
    }

    /// Whether nothing waits in any of them, looked up afresh.
    pub(crate) fn are_empty(&self) -> bool {
        self.commands.is_empty() && self.packets.iter().all(Inlet::is_empty)
    }
}

/// What came out of an inlet.
pub(crate) enum Popped<R> {
    Record(R),
    Empty,
    /// Told once: the ring's records made no sense, and it is read no more.
    Corrupt,
}

impl Inlet {
    fn new(rings: &Rings, ring: RingId) -> Result<Inlet, SegmentError> {
        Ok(Inlet {
            ring: rings.consumer(ring)?,
            quarantined: false,
        })
    }

    /// Gives the next record to `f`.
    pub(crate) fn pop<R>(&mut self, f: impl FnOnce(u16, &[u8]) -> R) -> Popped<R> {
        if self.quarantined {
            return Popped::Empty;
        }
        match self.ring.pop_into(f) {
            Ok(Some(result)) => Popped::Record(result),
            Ok(None) => Popped::Empty,
            Err(_) => {
                self.quarantined = true;
                Popped::Corrupt
            }
        }
    }

    /// Gives the room of what was read back: once a batch.
    pub(crate) fn release(&mut self) {
        if !self.quarantined {
            self.ring.release();
        }
    }

    /// Whether nothing waits; a quarantined ring counts as empty, so that nobody stays awake for it.
    pub(crate) fn is_empty(&self) -> bool {
        self.quarantined || self.ring.is_empty()
    }
}
