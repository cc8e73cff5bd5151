//! Making a segment.

use super::{Geometry, SegmentError, SegmentKind};
use std::os::fd::OwnedFd;

/// The two descriptors of a segment.
#[derive(Debug)]
pub struct SegmentFds {
    /// For those that write.
    pub writable: OwnedFd,
    /// Opened for reading only, for those that may not write: it can't be made writable again.
    pub readable: OwnedFd,
}

/// Creates a segment: sized, header written, sealed, and the memory that is used from the start allocated.
pub fn create(kind: SegmentKind, geometry: Geometry) -> Result<SegmentFds, SegmentError> {
    let _ = (kind, geometry);
    todo!()
}
