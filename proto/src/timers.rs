//! The timers of a peer's sessions.
