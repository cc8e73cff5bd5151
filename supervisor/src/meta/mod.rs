//! The process that owns the state: handshakes, timers, peers, the UAPI.
//!
//! Meta is the only writer of every table: peers, routes, session keys. Workers tell it by small
//! events what they see and obey its commands; the supervisor does for it what needs privileges,
//! the helper what blocks or needs a file. It opens no file and no socket and seals no transport
//! data. One thread, one loop ([`run`]), and a core without descriptors ([`core`]) that can be
//! tested without processes.

mod allowed;
mod apply;
mod change;
mod cookies;
mod core;
mod endpoint;
mod events;
mod flood;
mod gate;
mod handshake;
mod interface;
mod jobs;
mod lanes;
mod link;
mod listening;
mod path;
mod peer;
mod peers;
mod queue;
mod refusals;
mod reload;
mod requests;
mod resolve;
mod run;
mod scripts;
mod sessions;
mod sockets;
mod source;
#[cfg(test)]
mod tests;
mod timers;
mod transaction;
mod uapi;
mod wheel;
mod workers;

pub(crate) use run::run;

use crate::channel::{ChannelError, Packets};
use ringway_shm::routes::PublishError;
use std::io;
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
pub(crate) enum MetaError {
    /// A segment does not fit.
    #[error("{0}")]
    Segment(String),
    /// A setting of a test build is wrong.
    #[error("{0}")]
    Settings(String),
    /// The configuration has more than the limits allow.
    #[error("{0}")]
    Limit(String),
    /// The same, found when the table was written.
    #[error("{0}")]
    Routes(PublishError),
    /// The supervisor can't be spoken to.
    #[error("channel to the supervisor: {0}")]
    Channel(ChannelError),
    /// The first message came without its configuration.
    #[error("the supervisor sent no configuration")]
    NoConfig,
    /// A new helper was announced without its stream.
    #[error("the supervisor sent no stream to the new helper")]
    NoHelper,
    /// A system call failed in a way that the loop can't go on from.
    #[error("event loop: {0}")]
    System(#[from] io::Error),
}

impl From<nix::errno::Errno> for MetaError {
    fn from(error: nix::errno::Errno) -> Self {
        MetaError::System(error.into())
    }
}
