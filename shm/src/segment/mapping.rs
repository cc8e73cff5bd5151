//! A segment in this process's address space.

use super::{Access, Geometry, SegmentError, SegmentKind, View, header::Header};
use crate::layout::{PAGE, Region, Shared};
use nix::{
    fcntl::{FallocateFlags, FcntlArg, SealFlag, fallocate, fcntl},
    sys::{
        mman::{MapFlags, MmapAdvise, ProtFlags, madvise, mlock, mmap, munmap},
        stat::fstat,
    },
};
use std::{
    ffi::c_void,
    io,
    num::NonZeroUsize,
    os::fd::{BorrowedFd, OwnedFd},
    ptr::NonNull,
    sync::Arc,
};

/// A mapped segment. Clones share the mapping; the last one, views included, unmaps it.
#[derive(Clone, Debug)]
pub struct Segment {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    mapping: Mapping,
    kind: SegmentKind,
    geometry: Geometry,
    regions: Vec<Region>,
    access: Access,
    /// Kept where memory may have to be allocated later.
    fd: Option<OwnedFd>,
}

impl Segment {
    /// Maps a segment after checking that it is what it should be. The descriptor may be closed after that.
    pub fn attach(
        fd: BorrowedFd<'_>,
        kind: SegmentKind,
        access: Access,
    ) -> Result<Segment, SegmentError> {
        let bytes = sealed_size(fd, kind)?;
        let mapping = Mapping::new(fd, kind, bytes, access)?;
        let (geometry, regions) = mapping.header().verify(kind, bytes)?;
        if kind == SegmentKind::Keys {
            mapping.hide(kind)?;
        }
        let grows = regions.iter().any(|region| !region.from_start);
        let fd = if access == Access::ReadWrite && grows {
            Some(
                fd.try_clone_to_owned()
                    .map_err(|source| failed(kind, "dup", source))?,
            )
        } else {
            None
        };
        Ok(Segment {
            inner: Arc::new(Inner {
                mapping,
                kind,
                geometry,
                regions,
                access,
                fd,
            }),
        })
    }

    /// The sizes that were fixed at start.
    pub fn geometry(&self) -> Geometry {
        self.inner.geometry
    }

    /// Which segment it is.
    pub fn kind(&self) -> SegmentKind {
        self.inner.kind
    }

    /// The tables in it.
    pub fn regions(&self) -> &[Region] {
        &self.inner.regions
    }

    /// Its size in bytes; most of it may not be allocated.
    pub fn bytes(&self) -> u64 {
        self.inner.mapping.bytes as u64
    }

    pub(crate) fn expect_kind(&self, kind: SegmentKind) -> Result<(), SegmentError> {
        if self.inner.kind == kind {
            return Ok(());
        }
        Err(SegmentError::WrongKind {
            found: self.inner.kind.as_str(),
            expected: kind.as_str(),
        })
    }

    pub(crate) fn expect_writable(&self) -> Result<(), SegmentError> {
        if self.inner.access == Access::ReadWrite {
            return Ok(());
        }
        Err(SegmentError::ReadOnly {
            segment: self.inner.kind.as_str(),
        })
    }

    /// A whole region.
    pub(crate) fn table<T: Shared>(&self, name: &'static str) -> Result<View<[T]>, SegmentError> {
        let region = self.region(name)?;
        let stride = size_of::<T>() as u64;
        if region.stride != stride {
            return Err(SegmentError::Mismatch {
                segment: self.inner.kind.as_str(),
                what: "a region's stride",
                found: region.stride,
                expected: stride,
                remedy: "this is a bug",
            });
        }
        let (offset, count) = (region.offset as usize, region.count as usize);
        debug_assert!(offset + region.bytes() as usize <= self.inner.mapping.bytes);
        debug_assert!(PAGE as usize % align_of::<T>() == 0);
        // SAFETY: the regions were computed from the geometry and end within the mapping, whose size was checked
        // against them and is sealed.
        let start = unsafe { self.inner.mapping.start.byte_add(offset) }.cast::<T>();
        let target = NonNull::slice_from_raw_parts(start, count);
        // SAFETY: the region starts on a page, so it is aligned; `T: Shared` takes any bytes and may be changed by
        // others; the mapping lives as long as `inner`.
        Ok(unsafe { View::new(target, Arc::clone(&self.inner) as _) })
    }

    /// The first element of a region.
    pub(crate) fn one<T: Shared>(&self, name: &'static str) -> Result<View<T>, SegmentError> {
        self.table::<T>(name)?
            .project(<[T]>::first)
            .ok_or_else(|| self.no_region())
    }

    /// The last element of a region: the spare one that stands for every number beyond the table.
    pub(crate) fn last<T: Shared>(&self, name: &'static str) -> Result<View<T>, SegmentError> {
        self.table::<T>(name)?
            .project(<[T]>::last)
            .ok_or_else(|| self.no_region())
    }

    /// Allocates the memory of a piece of a region, in bytes from its start, so that using it can't fail.
    pub(crate) fn allocate(
        &self,
        name: &'static str,
        offset: u64,
        bytes: u64,
    ) -> Result<(), SegmentError> {
        let region = self.region(name)?;
        let within = offset
            .checked_add(bytes)
            .is_some_and(|end| end <= region.bytes());
        let (Some(fd), true) = (&self.inner.fd, within) else {
            return Err(SegmentError::ReadOnly {
                segment: self.inner.kind.as_str(),
            });
        };
        allocate(fd, self.inner.kind, region.offset + offset, bytes)
    }

    fn region(&self, name: &'static str) -> Result<Region, SegmentError> {
        let found = self.inner.regions.iter().find(|region| region.name == name);
        found.copied().ok_or_else(|| self.no_region())
    }

    fn no_region(&self) -> SegmentError {
        SegmentError::Mismatch {
            segment: self.inner.kind.as_str(),
            what: "a region's count",
            found: 0,
            expected: 1,
            remedy: "this is a bug",
        }
    }
}

/// Allocates memory behind a piece of a segment.
pub(super) fn allocate(
    fd: &OwnedFd,
    kind: SegmentKind,
    offset: u64,
    bytes: u64,
) -> Result<(), SegmentError> {
    if bytes == 0 {
        return Ok(());
    }
    loop {
        match fallocate(fd, FallocateFlags::empty(), offset as i64, bytes as i64) {
            Err(nix::Error::EINTR) => {}
            Ok(()) => return Ok(()),
            Err(error) => {
                return Err(SegmentError::NoMemory {
                    segment: kind.as_str(),
                    bytes,
                    source: error.into(),
                });
            }
        }
    }
}

pub(super) fn failed(
    kind: SegmentKind,
    call: &'static str,
    source: impl Into<io::Error>,
) -> SegmentError {
    SegmentError::System {
        segment: kind.as_str(),
        call,
        source: source.into(),
    }
}

/// The size of a memfd that can't change its size any more: only then does no access within it raise SIGBUS.
fn sealed_size(fd: BorrowedFd<'_>, kind: SegmentKind) -> Result<u64, SegmentError> {
    let not_ours = |what, found, expected| SegmentError::Mismatch {
        segment: kind.as_str(),
        what,
        found,
        expected,
        remedy: "this descriptor is no segment of Ringway",
    };
    let wanted = SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_SEAL;
    // A descriptor that knows no seals has none.
    let seals = fcntl(fd, FcntlArg::F_GET_SEALS).unwrap_or(0);
    if !SealFlag::from_bits_truncate(seals).contains(wanted) {
        return Err(not_ours(
            "the set of seals",
            seals as u64,
            wanted.bits() as u64,
        ));
    }
    let size = fstat(fd)
        .map_err(|error| failed(kind, "fstat", error))?
        .st_size;
    let bytes = u64::try_from(size).unwrap_or(0);
    if bytes < PAGE {
        return Err(not_ours("the size", bytes, PAGE));
    }
    Ok(bytes)
}

/// Mapped memory, unmapped when dropped.
#[derive(Debug)]
pub(super) struct Mapping {
    start: NonNull<c_void>,
    bytes: usize,
}

impl Mapping {
    pub(super) fn new(
        fd: BorrowedFd<'_>,
        kind: SegmentKind,
        bytes: u64,
        access: Access,
    ) -> Result<Mapping, SegmentError> {
        let length = usize::try_from(bytes).ok().and_then(NonZeroUsize::new);
        let length = length.ok_or_else(|| failed(kind, "mmap", io::ErrorKind::OutOfMemory))?;
        let protection = match access {
            Access::ReadOnly => ProtFlags::PROT_READ,
            Access::ReadWrite => ProtFlags::PROT_READ | ProtFlags::PROT_WRITE,
        };
        // SAFETY: a new mapping at an address of the kernel's choice; nothing that exists is touched.
        let start = unsafe { mmap(None, length, protection, MapFlags::MAP_SHARED, fd, 0) };
        Ok(Mapping {
            start: start.map_err(|error| failed(kind, "mmap", error))?,
            bytes: length.get(),
        })
    }

    pub(super) fn header(&self) -> &Header {
        // SAFETY: every mapping has at least a page, which the header fits (checked at compile time) and which is
        // aligned; it holds atomics only.
        unsafe { self.start.cast::<Header>().as_ref() }
    }

    /// Keeps the contents out of core dumps and, where the limit allows, out of swap.
    fn hide(&self, kind: SegmentKind) -> Result<(), SegmentError> {
        // SAFETY: the range is this mapping; the advice changes no contents.
        unsafe { madvise(self.start, self.bytes, MmapAdvise::MADV_DONTDUMP) }
            .map_err(|error| failed(kind, "madvise", error))?;
        // SAFETY: the range is this mapping.
        let _ = unsafe { mlock(self.start, self.bytes) };
        Ok(())
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range is this mapping; all views hold the owner that is being dropped, so there is none.
        let _ = unsafe { munmap(self.start, self.bytes) };
    }
}

// SAFETY: the mapping may be used and unmapped by any thread; what is in it is only reached through `Shared` types.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}
