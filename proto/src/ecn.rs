//! Congestion marks carried through the tunnel (RFC 6040).
