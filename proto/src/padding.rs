//! Padding of inner packets.
