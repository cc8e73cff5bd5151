//! Segments: sealed memfds with a header that describes them.
//!
//! The supervisor calls [`create`] once for each; every process, the supervisor too, calls [`Segment::attach`] on a
//! descriptor it was handed. The descriptor may be closed after that.

mod create;
mod error;
mod geometry;
mod header;
mod mapping;
#[cfg(all(test, not(loom)))]
mod tests;
mod view;

pub use create::{SegmentFds, create};
pub use error::SegmentError;
pub use geometry::{Geometry, PEERS_MAX, ROUTES_MAX, SHARDS_MAX};
#[cfg(test)]
pub(crate) use header::REGIONS_MAX;
pub use mapping::Segment;
pub(crate) use view::View;

/// Which segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum SegmentKind {
    /// Peers and routes. Meta writes, everybody reads.
    State = 1,
    /// Session keys. Meta writes, workers read; never the tools.
    Keys = 2,
    /// Nonce counters and replay windows. Workers write, meta reads; never the tools.
    Lanes = 3,
    /// Rings, counters, process slots. All write, each word its own; the tools read.
    Rings = 4,
}

impl SegmentKind {
    /// All segments.
    pub const ALL: [SegmentKind; 4] = [
        SegmentKind::State,
        SegmentKind::Keys,
        SegmentKind::Lanes,
        SegmentKind::Rings,
    ];

    /// The name, as the tools print it.
    pub const fn as_str(self) -> &'static str {
        match self {
            SegmentKind::State => "state",
            SegmentKind::Keys => "keys",
            SegmentKind::Lanes => "lanes",
            SegmentKind::Rings => "rings",
        }
    }
}

/// How a segment is mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Loads only; what stores anyway is killed by the kernel.
    ReadOnly,
    /// Loads and stores.
    ReadWrite,
}
