//! Allowed IPs: which peer an address belongs to, by the longest prefix.

use crate::ids::PeerSlot;
use std::net::IpAddr;

/// One prefix of one peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Route {
    /// The address; bits behind the prefix are ignored.
    pub address: IpAddr,
    /// The prefix length: up to 32 or 128.
    pub length: u8,
    /// Whose it is.
    pub peer: PeerSlot,
}

/// The route tables, for reading.
#[derive(Clone, Debug)]
pub struct Routes {}

impl Routes {
    /// The peer with the longest prefix that covers an IPv4 address.
    #[inline]
    pub fn lookup_v4(&self, address: u32) -> Option<PeerSlot> {
        let _ = address;
        todo!()
    }

    /// The peer with the longest prefix that covers an IPv6 address.
    #[inline]
    pub fn lookup_v6(&self, address: u128) -> Option<PeerSlot> {
        let _ = address;
        todo!()
    }

    /// The peer with the longest prefix that covers an address.
    pub fn lookup(&self, address: IpAddr) -> Option<PeerSlot> {
        match address {
            IpAddr::V4(v4) => self.lookup_v4(v4.into()),
            IpAddr::V6(v6) => self.lookup_v6(v6.into()),
        }
    }

    /// All routes, IPv4 first, each by address and length. For the tools.
    pub fn entries(&self) -> Vec<Route> {
        todo!()
    }

    /// How many routes there are.
    pub fn len(&self) -> usize {
        todo!()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Why routes were not published; the old ones stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PublishError {
    /// A worker may still read the arena that is written next: try again next turn.
    #[error("a worker still reads the former routes: try again")]
    Busy,
    /// More routes than the limit, or no memory for them.
    #[error("the route table is full: raise `routes` in [limits] and start again")]
    Full,
}
