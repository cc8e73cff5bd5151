//! The text protocol that wg speaks to a WireGuard daemon.
