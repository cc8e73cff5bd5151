//! What a `set=1` request asks for.

use std::net::SocketAddr;

use crate::endpoint::HostPort;
use crate::keys::{PresharedKey, PrivateKey, PublicKey};
use crate::prefix::Prefix;

/// One thing to change, in the order of the request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SetItem {
    /// Become this; none: have no key.
    PrivateKey(Option<PrivateKey>),
    /// Listen there; 0: any port that is free.
    ListenPort(u16),
    /// Mark what is sent; 0: do not.
    Fwmark(u32),
    /// Remove every peer before those that follow are made.
    ReplacePeers,
    /// Make, change or remove a peer.
    Peer(PeerChange),
}

/// What shall become of one peer. What is `None` stays as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerChange {
    /// Which one.
    pub public_key: PublicKey,
    /// Remove it; nothing is wrong when it is not there.
    pub remove: bool,
    /// Do not make it when it is not there: then ignore this change.
    pub update_only: bool,
    /// The new preshared key; all zero: have none.
    pub preshared_key: Option<PresharedKey>,
    /// The new endpoint.
    pub endpoint: Option<SocketAddr>,
    /// The new endpoint where its scope is the name of an interface, `[fe80::1%eth0]:51820`, as `wg` sends it:
    /// whoever may look that up must. Then `endpoint` is none.
    pub lookup: Option<HostPort>,
    /// Seconds between keepalives; 0: none.
    pub keepalive: Option<u16>,
    /// Take all allowed IPs away before those that follow are given.
    pub replace_allowed_ips: bool,
    /// In the order of the request.
    pub allowed_ips: Vec<AllowedIpChange>,
}

/// One allowed IP to give to a peer (away from whoever has it) or to take from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AllowedIpChange {
    /// Host bits cleared.
    pub prefix: Prefix,
    /// `allowed_ip=-…`: take it from this peer, if it is this peer's.
    pub remove: bool,
}

impl PeerChange {
    /// A change that changes nothing but makes the peer.
    pub fn new(public_key: PublicKey) -> PeerChange {
        PeerChange {
            public_key,
            remove: false,
            update_only: false,
            preshared_key: None,
            endpoint: None,
            lookup: None,
            keepalive: None,
            replace_allowed_ips: false,
            allowed_ips: Vec::new(),
        }
    }
}
