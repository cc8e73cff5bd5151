//! The first page of a segment: what it is and what it holds.

use super::{Geometry, SegmentError, SegmentKind};
use crate::{
    layout::{ABI_VERSION, LAYOUT_HASH, PAGE, Region, end, regions, shared},
    sync::{AtomicU64, Ordering},
};

/// "RINGWAY" and a byte that is no text.
const MAGIC: u64 = u64::from_le_bytes(*b"RINGWAY\xd7");

/// Room for regions in the header.
pub(crate) const REGIONS_MAX: usize = 16;

shared! {
    /// A region as the header has it.
    #[repr(C)]
    pub(super) struct RegionEntry {
        name: [AtomicU64; 2],
        offset: AtomicU64,
        stride: AtomicU64,
        count: AtomicU64,
        spare: AtomicU64,
    }
}

shared! {
    /// Written once, before the segment is handed to anybody.
    #[repr(C)]
    pub(super) struct Header {
        magic: AtomicU64,
        abi: AtomicU64,
        kind: AtomicU64,
        layout: AtomicU64,
        bytes: AtomicU64,
        shards: AtomicU64,
        peers: AtomicU64,
        lanes: AtomicU64,
        routes: AtomicU64,
        region_count: AtomicU64,
        regions: [RegionEntry; REGIONS_MAX],
    }
}

// What to do about a header that is not what it should be.
const NOT_OURS: &str = "this descriptor is no segment of Ringway";
const VERSION: &str = "use the tools and the daemon of one version";
const DAMAGED: &str = "the header is damaged, restart the gateway";

const _: () = assert!(size_of::<Header>() as u64 <= PAGE);

impl Header {
    pub(super) fn write(&self, kind: SegmentKind, geometry: &Geometry) {
        let regions = regions(kind, geometry);
        let store = |word: &AtomicU64, value: u64| word.store(value, Ordering::Relaxed);
        store(&self.abi, ABI_VERSION.into());
        store(&self.kind, kind as u64);
        store(&self.layout, LAYOUT_HASH);
        store(&self.bytes, end(&regions));
        store(&self.shards, geometry.shards.into());
        store(&self.peers, geometry.peers.into());
        store(&self.lanes, geometry.lanes.into());
        store(&self.routes, geometry.routes.into());
        store(&self.region_count, regions.len() as u64);
        for (entry, region) in self.regions.iter().zip(&regions) {
            let name = name_words(region);
            store(&entry.name[0], name[0]);
            store(&entry.name[1], name[1]);
            store(&entry.offset, region.offset);
            store(&entry.stride, region.stride);
            store(&entry.count, region.count);
        }
        self.magic.store(MAGIC, Ordering::Release);
    }

    /// Checks every word of the header, which may be anything; gives the geometry and regions, computed anew.
    pub(super) fn verify(
        &self,
        kind: SegmentKind,
        bytes: u64,
    ) -> Result<(Geometry, Vec<Region>), SegmentError> {
        let check = |what, word: &AtomicU64, expected, remedy| {
            let found = word.load(Ordering::Relaxed);
            if found == expected {
                return Ok(());
            }
            Err(SegmentError::Mismatch {
                segment: kind.as_str(),
                what,
                found,
                expected,
                remedy,
            })
        };
        check("the magic", &self.magic, MAGIC, NOT_OURS)?;
        check("the ABI version", &self.abi, ABI_VERSION.into(), VERSION)?;
        check("the layout hash", &self.layout, LAYOUT_HASH, VERSION)?;
        check(
            "the kind",
            &self.kind,
            kind as u64,
            "descriptors are mixed up",
        )?;
        check("the size", &self.bytes, bytes, DAMAGED)?;

        let number = |word: &AtomicU64| word.load(Ordering::Relaxed);
        let geometry = Geometry::new(
            number(&self.shards).try_into().unwrap_or(0),
            number(&self.peers).try_into().unwrap_or(0),
            number(&self.routes).try_into().unwrap_or(0),
        )?;
        let regions = regions(kind, &geometry);
        check(
            "the number of lanes",
            &self.lanes,
            geometry.lanes.into(),
            DAMAGED,
        )?;
        check(
            "the number of regions",
            &self.region_count,
            regions.len() as u64,
            DAMAGED,
        )?;
        check("the size", &self.bytes, end(&regions), DAMAGED)?;
        for (entry, region) in self.regions.iter().zip(&regions) {
            let name = name_words(region);
            check("a region's name", &entry.name[0], name[0], DAMAGED)?;
            check("a region's name", &entry.name[1], name[1], DAMAGED)?;
            check("a region's offset", &entry.offset, region.offset, DAMAGED)?;
            check("a region's stride", &entry.stride, region.stride, DAMAGED)?;
            check("a region's count", &entry.count, region.count, DAMAGED)?;
        }
        Ok((geometry, regions))
    }
}

fn name_words(region: &Region) -> [u64; 2] {
    let mut bytes = [0; 16];
    for (byte, letter) in bytes.iter_mut().zip(region.name.bytes()) {
        *byte = letter;
    }
    let word = |half: usize| {
        let mut word = [0; 8];
        word.copy_from_slice(&bytes[8 * half..8 * half + 8]);
        u64::from_le_bytes(word)
    };
    [word(0), word(1)]
}
