//! Which rings there are, and where each lies in the segment.

use crate::{ids::WorkerSlot, process::Role, ring::Shape};
use std::fmt;

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

impl RingId {
    /// All rings between meta and this many workers.
    pub fn all(workers: u8) -> impl Iterator<Item = RingId> {
        let slots = move || (0..workers).map(WorkerSlot);
        let handovers = slots().flat_map(move |from| {
            let others = slots().filter(move |to| *to != from);
            others.map(move |to| RingId::Handover { from, to })
        });
        slots()
            .map(|from| RingId::Events { from })
            .chain(slots().map(|to| RingId::Commands { to }))
            .chain(slots().map(|from| RingId::ToMeta { from }))
            .chain(slots().map(|to| RingId::FromMeta { to }))
            .chain(handovers)
    }

    /// Who writes.
    pub const fn producer(self) -> Role {
        match self {
            RingId::Events { from } | RingId::Handover { from, .. } | RingId::ToMeta { from } => {
                Role::Worker(from)
            }
            RingId::Commands { .. } | RingId::FromMeta { .. } => Role::Meta,
        }
    }

    /// Who reads.
    pub const fn consumer(self) -> Role {
        match self {
            RingId::Commands { to } | RingId::Handover { to, .. } | RingId::FromMeta { to } => {
                Role::Worker(to)
            }
            RingId::Events { .. } | RingId::ToMeta { .. } => Role::Meta,
        }
    }

    /// Where it lies with this many shards; `None`: there is no such ring.
    pub(super) fn place(self, shards: u64) -> Option<Place> {
        let slot = |slot: WorkerSlot| Some(u64::from(slot.0)).filter(|slot| *slot < shards);
        let (packets, number) = match self {
            RingId::Events { from } => (false, slot(from)?),
            RingId::Commands { to } => (false, shards + slot(to)?),
            RingId::ToMeta { from } => (true, slot(from)?),
            RingId::FromMeta { to } => (true, shards + slot(to)?),
            RingId::Handover { from, to } if from != to => {
                (true, (2 + slot(from)?) * shards + slot(to)?)
            }
            RingId::Handover { .. } => return None,
        };
        Some(Place { packets, number })
    }
}

impl fmt::Display for RingId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RingId::Events { from } => write!(f, "events-{from}"),
            RingId::Commands { to } => write!(f, "commands-{to}"),
            RingId::Handover { from, to } => write!(f, "handover-{from}-{to}"),
            RingId::ToMeta { from } => write!(f, "to-meta-{from}"),
            RingId::FromMeta { to } => write!(f, "from-meta-{to}"),
        }
    }
}

/// Where a ring lies: in the region of messages or of packets, and the how manieth there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Place {
    pub(super) packets: bool,
    pub(super) number: u64,
}

impl Place {
    /// The index of its control block: message rings first.
    pub(super) fn control(self, shards: u64) -> usize {
        let before = if self.packets {
            message_rings(shards)
        } else {
            0
        };
        (before + self.number) as usize
    }
}

/// How many rings of messages there can be.
pub(crate) const fn message_rings(shards: u64) -> u64 {
    2 * shards
}

/// How many rings of packets there can be.
pub(crate) const fn packet_rings(shards: u64) -> u64 {
    (2 + shards) * shards
}

/// Rings of events and commands: 128-byte slots, one a message.
pub(crate) const MESSAGE_SHAPE: Shape = Shape::new(10, 7, 120);

/// The greatest datagram with the header before it.
const PACKET_RECORD_MAX: usize = 65_535 + crate::messages::PacketHeader::LEN;

/// Rings of packets: 2 KiB slots. The number of rings grows with the square of the workers, so with many shards they
/// are shorter: 512 KiB each, or 256 KiB.
pub(crate) const fn packet_shape(shards: u8) -> Shape {
    Shape::new(if shards <= 8 { 8 } else { 7 }, 11, PACKET_RECORD_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn every_ring_has_a_place_and_a_name_of_its_own() {
        for shards in [1_u8, 4, 64] {
            let rings: Vec<_> = RingId::all(shards).collect();
            let shards = u64::from(shards);
            let places: HashSet<_> = rings.iter().filter_map(|ring| ring.place(shards)).collect();
            let names: HashSet<_> = rings.iter().map(ToString::to_string).collect();
            assert_eq!(places.len(), rings.len());
            assert_eq!(names.len(), rings.len());
            for place in places {
                let rings = if place.packets {
                    packet_rings(shards)
                } else {
                    message_rings(shards)
                };
                assert!(place.number < rings);
            }
        }
    }

    #[test]
    fn there_is_no_ring_to_oneself_or_beyond_the_shards() {
        let worker = WorkerSlot(1);
        assert_eq!(
            RingId::Handover {
                from: worker,
                to: worker
            }
            .place(4),
            None
        );
        assert_eq!(
            RingId::Events {
                from: WorkerSlot(4)
            }
            .place(4),
            None
        );
        assert_eq!(
            RingId::Handover {
                from: worker,
                to: WorkerSlot(4)
            }
            .place(4),
            None
        );
    }
}
