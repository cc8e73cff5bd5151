//! A token bucket for each source of handshakes.
