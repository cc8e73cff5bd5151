//! Fragmentation of inner IPv4 packets that allow it.
