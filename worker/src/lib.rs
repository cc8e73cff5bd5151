//! The data plane of Ringway: one process, one event loop over TUN queues and UDP sockets.
//!
//! The supervisor calls [`run()`] in a process of its own; everything the worker needs arrives
//! as file descriptors. A worker opens no file and no socket, performs no handshake and writes no
//! table: it moves packets, and tells meta what it saw by small events in a ring.
//!
//! The path of a packet: `tun` reads → `path::tx` looks up, seals → `udp` sends, and
//! `udp` receives → `path::rx` opens, checks → `tun` writes.

pub mod control;
mod run;

pub use run::{PollMode, WorkerError, WorkerFds, WorkerSettings, run};
