//! What a segment is made of, and what is no segment.

use super::*;
use crate::layout::{PAGE, end, regions};
use memfd::{FileSeal, MemfdOptions};
use std::{
    fs::File,
    os::{
        fd::{AsFd, AsRawFd, OwnedFd},
        unix::fs::{FileExt, MetadataExt},
    },
};

type Result = std::result::Result<(), Box<dyn std::error::Error>>;

fn geometry() -> Geometry {
    Geometry {
        shards: 2,
        peers: 8,
        lanes: 32,
        routes: 16,
    }
}

#[test]
fn a_geometry_has_limits() {
    for (shards, peers, routes) in [
        (0, 1, 1),
        (3, 1, 1),
        (128, 1, 1),
        (1, 0, 1),
        (1, PEERS_MAX + 1, 1),
        (1, 1, 0),
    ] {
        assert!(Geometry::new(shards, peers, routes).is_err());
    }
    assert!(Geometry::new(1, 1, ROUTES_MAX + 1).is_err());
    for (peers, shards) in [(1, 64), (5, 4), (4096, 8), (PEERS_MAX, 64)] {
        let geometry = Geometry::new(shards, peers, 1).ok();
        let lanes = geometry.map_or(0, |geometry| geometry.lanes);
        assert!(lanes.is_power_of_two());
        assert_eq!(
            geometry.map(|geometry| 1 << geometry.lane_bits()),
            Some(lanes)
        );
        // Peer slot and lane slot have the home shard in common: each shard needs four lanes for each of its peers.
        assert!(lanes / u32::from(shards) >= 4 * peers.div_ceil(shards.into()));
    }
}

#[test]
fn both_descriptors_attach_as_what_they_are() -> Result {
    for kind in SegmentKind::ALL {
        let fds = create(kind, geometry())?;
        let writer = Segment::attach(fds.writable.as_fd(), kind, Access::ReadWrite)?;
        let reader = Segment::attach(fds.readable.as_fd(), kind, Access::ReadOnly)?;
        assert_eq!(
            (writer.geometry(), reader.geometry()),
            (geometry(), geometry())
        );
        assert_eq!(writer.bytes(), end(&regions(kind, &geometry())));
        let refused = Segment::attach(fds.readable.as_fd(), kind, Access::ReadWrite);
        assert!(
            refused.is_err(),
            "a descriptor for reading gives no writable mapping"
        );

        let file = File::from(fds.writable);
        assert_eq!(file.metadata()?.mode() & 0o777, 0o400);
        assert!(file.set_len(PAGE).is_err(), "sealed");
        assert!(file.set_len(writer.bytes() + PAGE).is_err(), "sealed");
        let from_start: u64 = regions(kind, &geometry())
            .iter()
            .filter(|region| region.from_start)
            .map(crate::layout::Region::bytes)
            .sum();
        assert!(file.metadata()?.blocks() * 512 >= from_start, "allocated");
    }
    Ok(())
}

#[test]
fn a_mapping_outlives_its_descriptors_and_its_segment() -> Result {
    let fds = create(SegmentKind::Rings, geometry())?;
    let segment = Segment::attach(fds.readable.as_fd(), SegmentKind::Rings, Access::ReadOnly)?;
    let rings = crate::rings::Rings::attach(&segment)?;
    drop((fds, segment));
    assert_eq!(rings.workers(), 0);
    Ok(())
}

#[test]
fn what_is_no_segment_is_refused() -> Result {
    let devices = File::open("/dev/null")?;
    assert!(Segment::attach(devices.as_fd(), SegmentKind::State, Access::ReadOnly).is_err());
    let fds = create(SegmentKind::State, geometry())?;
    let error = Segment::attach(fds.readable.as_fd(), SegmentKind::Keys, Access::ReadOnly);
    let line = error
        .err()
        .map(|error| error.to_string())
        .unwrap_or_default();
    assert!(
        line.contains("keys segment: the kind is 0x1, not 0x2"),
        "{line}"
    );
    for size in [0, 100, PAGE, 1 << 20] {
        let fd = forged(size, &[])?;
        assert!(Segment::attach(fd.as_fd(), SegmentKind::State, Access::ReadOnly).is_err());
    }
    Ok(())
}

/// A sealed memfd with any contents.
fn forged(size: u64, contents: &[u8]) -> std::result::Result<OwnedFd, Box<dyn std::error::Error>> {
    let memfd = MemfdOptions::default()
        .allow_sealing(true)
        .create("forged")?;
    memfd.as_file().set_len(size)?;
    memfd.as_file().write_all_at(contents, 0)?;
    memfd.add_seals(&[FileSeal::SealShrink, FileSeal::SealGrow, FileSeal::SealSeal])?;
    Ok(memfd.into_file().into())
}

#[test]
fn every_word_of_the_header_is_checked() -> Result {
    // Of all segments this one has regions for every field of the geometry.
    let kind = SegmentKind::State;
    let fds = create(kind, geometry())?;
    let size = Segment::attach(fds.readable.as_fd(), kind, Access::ReadOnly)?.bytes();
    let mut page = vec![0; PAGE as usize];
    File::from(fds.readable).read_exact_at(&mut page, 0)?;
    assert!(Segment::attach(forged(size, &page)?.as_fd(), kind, Access::ReadOnly).is_ok());
    let used = 8 * (10 + 6 * regions(kind, &geometry()).len());
    for at in (0..used).step_by(8) {
        // The sixth word of each region says nothing.
        if at >= 80 && (at - 80) % 48 == 40 {
            continue;
        }
        for change in [1_u64, 1 << 20, u64::MAX] {
            let mut spoiled = page.clone();
            for (byte, flip) in spoiled[at..at + 8].iter_mut().zip(change.to_le_bytes()) {
                *byte ^= flip;
            }
            let fd = forged(size, &spoiled)?;
            let result = Segment::attach(fd.as_fd(), kind, Access::ReadOnly);
            let line = result.err().map(|error| error.to_string());
            assert!(
                line.as_ref().is_some_and(|line| !line.contains('\n')),
                "word {}: {line:?}",
                at / 8
            );
        }
    }
    Ok(())
}

#[test]
fn an_unsealed_file_is_refused() -> Result {
    let fds = create(SegmentKind::State, geometry())?;
    let mut contents = vec![0; PAGE as usize];
    let reader = File::from(fds.readable);
    reader.read_exact_at(&mut contents, 0)?;
    let memfd = MemfdOptions::default()
        .allow_sealing(true)
        .create("unsealed")?;
    memfd
        .as_file()
        .set_len(end(&regions(SegmentKind::State, &geometry())))?;
    memfd.as_file().write_all_at(&contents, 0)?;
    let result = Segment::attach(
        memfd.as_file().as_fd(),
        SegmentKind::State,
        Access::ReadOnly,
    );
    let line = result
        .err()
        .map(|error| error.to_string())
        .unwrap_or_default();
    assert!(line.contains("seals"), "{line}");
    Ok(())
}

#[test]
fn the_readable_descriptor_can_not_be_written() -> Result {
    let fds = create(SegmentKind::State, geometry())?;
    let path = format!("/proc/self/fd/{}", fds.readable.as_raw_fd());
    assert!(
        File::from(fds.readable.try_clone()?)
            .write_at(&[1], 0)
            .is_err()
    );
    if !nix::unistd::geteuid().is_root() {
        assert!(File::options().write(true).open(path).is_err());
    }
    Ok(())
}
