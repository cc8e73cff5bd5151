//! Making a segment.

use super::{
    Access, Geometry, Segment, SegmentError, SegmentKind,
    mapping::{Mapping, allocate, failed},
};
use crate::{
    epoch::OFFLINE,
    layout::{PAGE, end, regions},
    process::{NOT_PINNED, ProcessSlot},
    sync::Ordering,
};
use memfd::{FileSeal, MemfdOptions};
use nix::{
    fcntl::{OFlag, open},
    sys::stat::{Mode, fchmod},
};
use std::{
    io,
    os::fd::{AsFd, AsRawFd, OwnedFd},
};

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
    // Nothing may be taken from a geometry that was put together by hand and not by `Geometry::new`.
    let geometry = Geometry::new(geometry.shards, geometry.peers, geometry.routes)?;
    let regions = regions(kind, &geometry);
    let bytes = end(&regions);

    let memfd = MemfdOptions::default()
        .close_on_exec(true)
        .allow_sealing(true)
        .create(format!("ringway-{}", kind.as_str()))
        .map_err(|error| failed(kind, "memfd_create", sealing(error)))?;
    memfd
        .as_file()
        .set_len(bytes)
        .map_err(|source| failed(kind, "ftruncate", source))?;
    memfd
        .add_seals(&[FileSeal::SealShrink, FileSeal::SealGrow, FileSeal::SealSeal])
        .map_err(|error| failed(kind, "fcntl(F_ADD_SEALS)", sealing(error)))?;

    let writable: OwnedFd = memfd.into_file().into();
    allocate(&writable, kind, 0, PAGE)?;
    for region in regions.iter().filter(|region| region.from_start) {
        allocate(&writable, kind, region.offset, region.bytes())?;
    }
    Mapping::new(writable.as_fd(), kind, bytes, Access::ReadWrite)?
        .header()
        .write(kind, &geometry);
    if kind == SegmentKind::Rings {
        mark_absent(&Segment::attach(writable.as_fd(), kind, Access::ReadWrite)?)?;
    }

    // A memfd has no name to open, but /proc/self/fd gives a second, independent description of the same file.
    let path = format!("/proc/self/fd/{}", writable.as_raw_fd());
    let readable = open(
        path.as_str(),
        OFlag::O_RDONLY | OFlag::O_CLOEXEC,
        Mode::empty(),
    )
    .map_err(|error| failed(kind, "open of /proc/self/fd", error))?;
    // Born 0777: without this a child could open its read-only descriptor again for writing through /proc.
    fchmod(&writable, Mode::S_IRUSR).map_err(|error| failed(kind, "fchmod", error))?;
    Ok(SegmentFds { writable, readable })
}

/// Where zero would mean something, says that no process is there.
fn mark_absent(segment: &Segment) -> Result<(), SegmentError> {
    for slot in segment.table::<ProcessSlot>("processes")?.iter() {
        slot.epoch.store(OFFLINE, Ordering::Relaxed);
        slot.cpu.store(NOT_PINNED, Ordering::Relaxed);
    }
    Ok(())
}

fn sealing(error: memfd::Error) -> io::Error {
    match error {
        memfd::Error::Create(source)
        | memfd::Error::AddSeals(source)
        | memfd::Error::GetSeals(source) => source,
    }
}
