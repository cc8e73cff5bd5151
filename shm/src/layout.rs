//! What a segment holds and where: the shared types' hash and the table of regions.
//!
//! Both sides compute the table from the geometry; the header repeats it for whoever looks from outside, and an
//! attaching process refuses a header that says anything else. So no offset is ever taken from shared memory.

use crate::{
    counters::{DropReason, MetaCounters, PeerTraffic, WorkerCounters},
    keys::{KeyRecord, TimestampRecord},
    lanes::{Activity, Lane},
    process::ProcessSlot,
    ring::RingControl,
    rings::{self, OwnerWord, RingsControl},
    routes,
    segment::{Geometry, SegmentKind},
    state::{PathWords, PeerWords, StateControl},
    sync::AtomicU64,
};

/// Changes when the meaning of anything shared changes though its layout does not: message encodings, the route trie,
/// the order of stores that a successor relies on.
pub const ABI_VERSION: u32 = 1;

/// A type that lives in shared memory.
///
/// # Safety
/// The type is `repr(C)`, made of atomics only (so any bytes are a value and `&T` may be written by others), and has
/// no padding that anybody reads.
pub unsafe trait Shared: Send + Sync + 'static {
    /// Hash of the names, types and offsets of the fields.
    const LAYOUT: u64;
}

// SAFETY: an atomic word.
unsafe impl Shared for AtomicU64 {
    const LAYOUT: u64 = hash(HASH_START, b"AtomicU64");
}

/// The hash of all shared types' layouts, in the header of every segment.
pub const LAYOUT_HASH: u64 = {
    let types = [
        StateControl::LAYOUT,
        PathWords::LAYOUT,
        PeerWords::LAYOUT,
        KeyRecord::LAYOUT,
        TimestampRecord::LAYOUT,
        Lane::LAYOUT,
        Activity::LAYOUT,
        RingsControl::LAYOUT,
        ProcessSlot::LAYOUT,
        WorkerCounters::LAYOUT,
        MetaCounters::LAYOUT,
        PeerTraffic::LAYOUT,
        OwnerWord::LAYOUT,
        RingControl::LAYOUT,
    ];
    let mut state = hash(HASH_START, DropReason::NAMES.as_bytes());
    let mut i = 0;
    while i < types.len() {
        state = hash(state, &types[i].to_le_bytes());
        i += 1;
    }
    state
};

/// Regions begin on pages of this size, whatever the machine's is.
pub const PAGE: u64 = 4096;

/// A table in a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// Its name, at most 16 bytes.
    pub name: &'static str,
    /// Where it begins, in bytes.
    pub offset: u64,
    /// The size of an element in bytes.
    pub stride: u64,
    /// How many elements.
    pub count: u64,
    /// Whether its memory is allocated when the segment is made.
    pub from_start: bool,
}

impl Region {
    /// The size in bytes.
    pub const fn bytes(&self) -> u64 {
        self.stride * self.count
    }
}

/// The regions of a segment, in order, the header not among them.
pub fn regions(kind: SegmentKind, geometry: &Geometry) -> Vec<Region> {
    let mut plan = Plan::default();
    let shards = u64::from(geometry.shards);
    let peers = u64::from(geometry.peers);
    let lanes = u64::from(geometry.lanes);
    match kind {
        SegmentKind::State => {
            plan.add::<StateControl>("control", 1);
            plan.add::<PathWords>("paths", peers);
            plan.add::<PeerWords>("peers", peers);
            let words = routes::arena_words(geometry.routes);
            plan.grows::<AtomicU64>("routes_0", words);
            plan.grows::<AtomicU64>("routes_1", words);
        }
        SegmentKind::Keys => {
            plan.add::<KeyRecord>("keys", lanes);
            plan.add::<TimestampRecord>("timestamps", peers);
        }
        SegmentKind::Lanes => {
            plan.add::<Lane>("lanes", lanes);
            plan.add::<Activity>("activity", peers + rings::SPARE);
        }
        SegmentKind::Rings => {
            plan.add::<RingsControl>("control", 1);
            plan.add::<ProcessSlot>("processes", rings::FIRST_WORKER + shards + rings::SPARE);
            plan.add::<WorkerCounters>("workers", shards + rings::SPARE);
            plan.add::<MetaCounters>("meta", 1);
            plan.add::<PeerTraffic>("traffic", peers + rings::SPARE);
            plan.add::<OwnerWord>("owners", shards + rings::SPARE);
            let messages = rings::message_rings(shards);
            let packets = rings::packet_rings(shards);
            plan.add::<RingControl>("ring_controls", messages + packets);
            plan.grows::<AtomicU64>("messages", messages * rings::MESSAGE_SHAPE.words());
            plan.grows::<AtomicU64>(
                "packets",
                packets * rings::packet_shape(geometry.shards).words(),
            );
        }
    }
    plan.regions
}

/// Where the last region ends: the segment's size.
pub fn end(regions: &[Region]) -> u64 {
    regions.last().map_or(PAGE, |last| {
        (last.offset + last.bytes()).next_multiple_of(PAGE)
    })
}

#[derive(Default)]
struct Plan {
    regions: Vec<Region>,
}

impl Plan {
    fn add<T: Shared>(&mut self, name: &'static str, count: u64) {
        self.push::<T>(name, count, true);
    }

    /// A region whose memory is allocated piece by piece when it is needed.
    fn grows<T: Shared>(&mut self, name: &'static str, count: u64) {
        self.push::<T>(name, count, false);
    }

    fn push<T: Shared>(&mut self, name: &'static str, count: u64, from_start: bool) {
        self.regions.push(Region {
            name,
            offset: end(&self.regions),
            stride: size_of::<T>() as u64,
            count,
            from_start,
        });
    }
}

/// Where FNV-1a begins.
pub(crate) const HASH_START: u64 = 0xcbf2_9ce4_8422_2325;

/// FNV-1a, chained: part of the layout hash.
pub(crate) const fn hash(mut state: u64, bytes: &[u8]) -> u64 {
    let mut i = 0;
    while i < bytes.len() {
        state = (state ^ bytes[i] as u64).wrapping_mul(0x0000_0100_0000_01b3);
        i += 1;
    }
    state
}

/// [`hash`] of a number.
pub(crate) const fn hash_number(state: u64, number: usize) -> u64 {
    hash(state, &(number as u64).to_le_bytes())
}

/// Defines a type of shared memory: the struct as written, and its layout for the hash in the header.
macro_rules! shared {
    ($(#[$attribute:meta])* $scope:vis struct $name:ident {
        $($(#[$field_attribute:meta])* $visibility:vis $field:ident: $type:ty,)*
    }) => {
        $(#[$attribute])*
        #[derive(Debug)]
        $scope struct $name { $($(#[$field_attribute])* $visibility $field: $type,)* }

        // SAFETY: the macro is only given `repr(C)` structs whose fields are atomics, arrays of atomics or other
        // shared types; padding is never read.
        unsafe impl $crate::layout::Shared for $name {
            const LAYOUT: u64 = {
                let mut state = $crate::layout::HASH_START;
                state = $crate::layout::hash(state, stringify!($name).as_bytes());
                state = $crate::layout::hash_number(state, size_of::<$name>());
                state = $crate::layout::hash_number(state, align_of::<$name>());
                $(
                    state = $crate::layout::hash(state, stringify!($field).as_bytes());
                    state = $crate::layout::hash(state, stringify!($type).as_bytes());
                    state = $crate::layout::hash_number(state, core::mem::offset_of!($name, $field));
                    state = $crate::layout::hash_number(state, size_of::<$type>());
                )*
                state
            };
        }
    };
}
pub(crate) use shared;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regions_follow_each_other_on_pages() -> Result<(), Box<dyn std::error::Error>> {
        for (shards, peers, routes) in [(1, 1, 1), (4, 4096, 262_144), (64, 1 << 20, 1 << 24)] {
            let geometry = Geometry::new(shards, peers, routes)?;
            for kind in SegmentKind::ALL {
                let regions = regions(kind, &geometry);
                let mut last = PAGE;
                for region in &regions {
                    assert_eq!(region.offset % PAGE, 0, "{region:?}");
                    assert!(region.offset >= last, "{region:?}");
                    assert!(region.name.len() <= 16 && region.count > 0);
                    last = region.offset + region.bytes();
                }
                assert!(end(&regions) >= last);
                assert!(regions.len() <= crate::segment::REGIONS_MAX);
            }
        }
        Ok(())
    }
}
