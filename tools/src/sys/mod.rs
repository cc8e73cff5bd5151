//! Raw calls: descriptors that come over a socket, signals, the terminal.
//!
//! The only unsafe code of the tools. Everything else sees owned descriptors and flags.

pub(crate) mod scm;
pub(crate) mod signals;
pub(crate) mod terminal;
