//! What can be wrong with a segment.

use std::io;

/// Why a segment was not created or not attached. Each is one line.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SegmentError {
    /// A limit or the number of shards is out of range.
    #[error("{field} = {value}: must be {allowed}")]
    Geometry {
        /// Which field.
        field: &'static str,
        /// Its value.
        value: u64,
        /// What it may be.
        allowed: &'static str,
    },
    /// A system call failed.
    #[error("{segment} segment: {call}: {source}")]
    System {
        /// The segment's name.
        segment: &'static str,
        /// The system call.
        call: &'static str,
        /// Its error.
        source: io::Error,
    },
    /// There is too little memory for what the segment needs from the start.
    #[error(
        "{segment} segment: no memory for {bytes} bytes ({source}): lower the limits or raise the memory limit"
    )]
    NoMemory {
        /// The segment's name.
        segment: &'static str,
        /// How much was asked for.
        bytes: u64,
        /// The error.
        source: io::Error,
    },
    /// The descriptor is no segment of Ringway, or one of another kind or version.
    #[error("{segment} segment: {what} is {found:#x}, not {expected:#x}: {remedy}")]
    Mismatch {
        /// The segment's name.
        segment: &'static str,
        /// Which field of the header.
        what: &'static str,
        /// Its value.
        found: u64,
        /// What was expected.
        expected: u64,
        /// What to do.
        remedy: &'static str,
    },
    /// A view that belongs to another segment was asked for.
    #[error("this is the {found} segment, not {expected}")]
    WrongKind {
        /// What it is.
        found: &'static str,
        /// What it should be.
        expected: &'static str,
    },
    /// A writer was asked for on a segment that is mapped for reading.
    #[error("{segment} segment is mapped read-only: attach it with Access::ReadWrite to write")]
    ReadOnly {
        /// The segment's name.
        segment: &'static str,
    },
    /// There is no such ring.
    #[error("ring {name}: no such ring: {workers} workers are prepared")]
    NoRing {
        /// The ring's name.
        name: String,
        /// The prepared workers.
        workers: u8,
    },
}
