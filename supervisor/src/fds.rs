//! The numbers under which a role finds its descriptors.
//!
//! The supervisor puts them there between fork and exec; everything else is close-on-exec.

use std::os::fd::RawFd;

/// The process's own channel to the supervisor (`SOCK_SEQPACKET`).
pub(crate) const CONTROL: RawFd = 3;
/// Segment `state`.
pub(crate) const STATE: RawFd = 4;
/// Segment `keys`.
pub(crate) const KEYS: RawFd = 5;
/// Segment `lanes`.
pub(crate) const LANES: RawFd = 6;
/// Segment `rings`.
pub(crate) const RINGS: RawFd = 7;
/// The listening UAPI socket (meta only).
pub(crate) const UAPI: RawFd = 8;
/// The stream between meta and helper (in both of them).
pub(crate) const HELPER: RawFd = 9;
/// The first of the doorbells: supervisor, meta, helper, then the workers by slot. In a worker
/// the TUN queues follow, by shard.
pub(crate) const DOORBELLS: RawFd = 16;

/// How many doorbells there are for this number of workers.
pub(crate) fn doorbells(workers: u8) -> usize {
    3 + usize::from(workers)
}

/// The first TUN queue's number in a worker.
pub(crate) fn tun(workers: u8) -> RawFd {
    DOORBELLS + doorbells(workers) as RawFd
}
