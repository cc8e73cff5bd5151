//! The four messages of WireGuard on the wire.
