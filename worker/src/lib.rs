//! The data plane of Ringway: one process, one event loop over TUN queues and UDP sockets.
//!
//! The supervisor calls [`run()`] in a process of its own; everything the worker needs arrives
//! as file descriptors. A worker opens no file and no socket, performs no handshake and writes no
//! table: it moves packets, and tells meta what it saw by small events in a ring.
//!
//! The path of a packet: `tun` reads → `path::tx` looks up and seals → `udp` sends; and
//! `path::rx` receives, opens and checks → `tun` writes. `worker` is the loop around both.

#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod aead;
mod clock;
pub mod control;
mod event;
mod inlets;
pub mod offload;
mod pace;
mod path;
mod reports;
mod run;
mod sys;
mod tables;
mod tally;
#[cfg(test)]
mod tests;
mod tun;
mod udp;
mod worker;

pub use ringway_proto::config::PollMode;
pub use run::{WorkerError, WorkerFds, WorkerSettings, run};
