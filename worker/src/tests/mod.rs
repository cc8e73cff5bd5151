//! A whole worker in process: real segments, UDP on loopback, socket pairs in place of the TUN.

mod errors;
mod events;
mod harness;
mod hostile;
mod lifecycle;
mod super_packets;
mod traffic;
