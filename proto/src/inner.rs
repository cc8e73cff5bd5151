//! The packet inside the tunnel: what its IP header says.
