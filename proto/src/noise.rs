//! The WireGuard handshake.
