//! TAI64N time stamps: each handshake newer than the last.
