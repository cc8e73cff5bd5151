//! An IP address with a prefix length.
