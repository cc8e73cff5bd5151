//! Where a peer is: an address or a host name, and a port.
