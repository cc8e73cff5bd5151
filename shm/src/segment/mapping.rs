//! A segment in this process's address space.

use super::{Access, Geometry, SegmentError, SegmentKind};
use std::os::fd::BorrowedFd;

/// A mapped segment. Clones share the mapping; the last one, views included, unmaps it.
#[derive(Clone, Debug)]
pub struct Segment {
    geometry: Geometry,
}

impl Segment {
    /// Maps a segment after checking that it is what it should be. The descriptor may be closed after that.
    pub fn attach(fd: BorrowedFd<'_>, kind: SegmentKind, access: Access) -> Result<Segment, SegmentError> {
        let _ = (fd, kind, access);
        todo!()
    }

    /// The sizes that were fixed at start.
    pub fn geometry(&self) -> Geometry {
        self.geometry
    }
}
