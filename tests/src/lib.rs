//! What the end-to-end tests share: network namespaces, processes, real WireGuard peers and traffic.
//!
//! Everything is named after the test process (its pid and a counter), ends with the value that owns it, also
//! on a panic, and is waited for by condition with a deadline ([`wait`]), never by time. Needs root; see
//! `README.md` beside this crate.

#![allow(clippy::unwrap_used, clippy::missing_panics_doc)]

pub mod binaries;
pub mod client;
pub mod command;
pub mod config;
pub mod gateway;
pub mod inner;
pub mod names;
pub mod namespace;
pub mod process;
pub mod topology;
pub mod traffic;
pub mod tunnel;
pub mod uapi;
pub mod wait;
