//! The worker's entry: what it is given, and its loop.

use ringway_shm::ids::WorkerSlot;
use std::os::fd::OwnedFd;

/// How a worker waits for its next packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PollMode {
    /// Sleep in the kernel.
    Epoll,
    /// Spin for as long as recent turns paid off, then sleep.
    Adaptive,
    /// Never sleep.
    Busy,
    /// Let the kernel busy-poll the network card.
    Napi,
}

/// The descriptors that a worker is given.
#[derive(Debug)]
pub struct WorkerFds {
    /// `SOCK_SEQPACKET` to the supervisor (see [`crate::control`]).
    pub control: OwnedFd,
    /// Segment `state`, read-only.
    pub state: OwnedFd,
    /// Segment `keys`, read-only.
    pub keys: OwnedFd,
    /// Segment `lanes`, writable.
    pub lanes: OwnedFd,
    /// Segment `rings`, writable.
    pub rings: OwnedFd,
    /// The TUN queue of every shard, in order.
    pub tun: Vec<OwnedFd>,
    /// Doorbells: supervisor, meta, helper, then the workers by slot.
    pub doorbells: Vec<OwnedFd>,
}

/// What a worker is told at its start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WorkerSettings {
    /// Which worker this is.
    pub slot: WorkerSlot,
    /// How many workers there are; shard i belongs to worker i % workers.
    pub workers: u8,
    /// How it waits.
    pub poll: PollMode,
    /// The CPU to stay on.
    pub cpu: Option<u16>,
}

/// Why a worker could not start or had to end.
#[derive(Debug, thiserror::Error)]
pub enum WorkerError {
    /// A system call failed in a way that the loop can't go on from.
    #[error("{what}: {error}")]
    System {
        /// What was attempted.
        what: &'static str,
        /// The kernel's answer.
        error: std::io::Error,
    },
    /// A segment could not be mapped.
    #[error("segment {segment}: {error}")]
    Segment {
        /// Its name.
        segment: &'static str,
        /// What was wrong with it.
        error: String,
    },
    /// The settings and the descriptors don't fit each other.
    #[error("worker settings: {0}")]
    Settings(String),
}

/// Runs a worker until it is told to stop, its supervisor is gone or the interface is deleted.
///
/// Blocks the calling thread; call it once, in a process of its own.
pub fn run(fds: WorkerFds, settings: WorkerSettings) -> Result<(), WorkerError> {
    let _ = (fds, settings);
    todo!("filled within minutes")
}
