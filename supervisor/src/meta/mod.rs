//! The process that owns the state: handshakes, timers, peers, the UAPI.

use crate::channel::Packets;
use std::os::fd::OwnedFd;

/// The descriptors that meta is given.
#[derive(Debug)]
pub(crate) struct MetaFds {
    /// The channel to the supervisor.
    pub(crate) control: Packets,
    /// Segment `state`, writable.
    pub(crate) state: OwnedFd,
    /// Segment `keys`, writable.
    pub(crate) keys: OwnedFd,
    /// Segment `lanes`, read-only.
    pub(crate) lanes: OwnedFd,
    /// Segment `rings`, writable.
    pub(crate) rings: OwnedFd,
    /// The listening UAPI socket.
    pub(crate) uapi: OwnedFd,
    /// The stream to the helper.
    pub(crate) helper: OwnedFd,
    /// Doorbells: supervisor, meta, helper, then the workers by slot.
    pub(crate) doorbells: Vec<OwnedFd>,
}

/// What meta is told on its command line.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MetaSettings {
    /// How many workers there are.
    pub(crate) workers: u8,
    /// How many shards.
    pub(crate) shards: u8,
}

/// Why meta could not start or had to end.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MetaError {}

/// Runs meta until it is told to stop or its supervisor is gone.
pub(crate) fn run(fds: MetaFds, settings: MetaSettings) -> Result<(), MetaError> {
    let _ = (fds, settings);
    Ok(())
}
