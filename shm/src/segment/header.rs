//! The header.
