//! What the `state` segment tells, as values.

use crate::ids::LaneSlot;
use std::{
    fmt,
    net::{IpAddr, SocketAddr},
};

/// Where a peer is and which way packets to it leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Endpoint {
    /// The peer's address outside.
    pub remote: SocketAddr,
    /// The local address it spoke to, if known.
    pub local: Option<IpAddr>,
    /// The device it spoke through, 0: any.
    pub ifindex: u32,
}

/// What a worker needs of a peer for every packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerPath {
    /// Which user of the slot this is; changes when the slot gets another peer.
    pub incarnation: u32,
    /// Where to send, if known.
    pub endpoint: Option<Endpoint>,
    /// The lane to send on, if there is a session.
    pub lane: Option<LaneSlot>,
    /// The path's MTU outside in bytes, 0: unknown.
    pub path_mtu: u16,
    /// See [`Activity::armed`](crate::lanes::Activity::armed).
    pub arm_generation: u32,
}

/// What the tools show of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerRecord {
    /// Which user of the slot this is.
    pub incarnation: u32,
    /// The peer's public key.
    pub public_key: [u8; 32],
    /// Its name, perhaps empty.
    pub name: Name,
    /// Seconds between persistent keepalives, 0: off.
    pub keepalive_seconds: u16,
    /// When the last handshake was completed, Unix nanoseconds, 0: never.
    pub last_handshake_unix_ns: u64,
    /// Bytes of handshake messages from the peer.
    pub handshake_rx_bytes: u64,
    /// Bytes of handshake messages to the peer.
    pub handshake_tx_bytes: u64,
    /// Why the last handshake that failed did so.
    pub refusal: Option<Refusal>,
    /// Whether a preshared key is set.
    pub has_preshared_key: bool,
}

/// A handshake that came to nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Why.
    pub reason: RefusalReason,
    /// When, Unix nanoseconds.
    pub at_unix_ns: u64,
    /// From which address, or to which.
    pub from: SocketAddr,
}

/// Why a handshake came to nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum RefusalReason {
    /// MAC1 is wrong: the peer has another public key for this gateway.
    Mac1 = 1,
    /// No peer here has this public key.
    UnknownKey,
    /// The preshared keys differ.
    PresharedKey,
    /// The time stamp is not newer than the last.
    TimestampNotNewer,
    /// The message did not authenticate.
    Decrypt,
    /// Under load: the sender must come again with a cookie.
    CookieRequired,
    /// Nobody knows the peer's address.
    NoEndpoint,
    /// The peer did not answer.
    NoAnswer,
    /// The endpoint is routed into its own tunnel.
    Loop,
    /// The endpoint's name has no address.
    UnresolvedEndpoint,
    /// Too many handshakes from one source.
    RateLimited,
    /// A public key that gives no secret.
    LowOrderPoint,
}

impl RefusalReason {
    /// Every reason.
    pub const ALL: [RefusalReason; 12] = [
        RefusalReason::Mac1,
        RefusalReason::UnknownKey,
        RefusalReason::PresharedKey,
        RefusalReason::TimestampNotNewer,
        RefusalReason::Decrypt,
        RefusalReason::CookieRequired,
        RefusalReason::NoEndpoint,
        RefusalReason::NoAnswer,
        RefusalReason::Loop,
        RefusalReason::UnresolvedEndpoint,
        RefusalReason::RateLimited,
        RefusalReason::LowOrderPoint,
    ];

    /// The name in `snake_case`, as the tools print it.
    pub const fn as_str(self) -> &'static str {
        match self {
            RefusalReason::Mac1 => "mac1",
            RefusalReason::UnknownKey => "unknown_key",
            RefusalReason::PresharedKey => "preshared_key",
            RefusalReason::TimestampNotNewer => "timestamp_not_newer",
            RefusalReason::Decrypt => "decrypt",
            RefusalReason::CookieRequired => "cookie_required",
            RefusalReason::NoEndpoint => "no_endpoint",
            RefusalReason::NoAnswer => "no_answer",
            RefusalReason::Loop => "loop",
            RefusalReason::UnresolvedEndpoint => "unresolved_endpoint",
            RefusalReason::RateLimited => "rate_limited",
            RefusalReason::LowOrderPoint => "low_order_point",
        }
    }

    pub(super) fn from_u8(number: u8) -> Option<RefusalReason> {
        Self::ALL.into_iter().find(|reason| *reason as u8 == number)
    }
}

/// The gateway as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GatewayRecord {
    /// The interface's name.
    pub name: Name,
    /// The public key; zeros: none set.
    pub public_key: [u8; 32],
    /// The UDP port.
    pub listen_port: u16,
    /// The firewall mark, 0: none.
    pub fwmark: u32,
    /// The interface's MTU in bytes.
    pub mtu: u16,
    /// Whether the interface is up.
    pub link_up: bool,
    /// The last handshake that failed and was of no known peer.
    pub last_refusal: Option<Refusal>,
}

/// A short name: at most 64 bytes of UTF-8.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Name {
    pub(super) length: u8,
    pub(super) bytes: [u8; Name::MAX],
}

impl Name {
    /// The greatest length in bytes.
    pub const MAX: usize = 64;

    /// The name, cut at the last whole character that fits.
    pub fn new(name: &str) -> Name {
        let mut end = name.len().min(Self::MAX);
        while !name.is_char_boundary(end) {
            end -= 1;
        }
        let mut bytes = [0; Self::MAX];
        bytes[..end].copy_from_slice(&name.as_bytes()[..end]);
        Name {
            length: end as u8,
            bytes,
        }
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        let bytes = self.bytes.get(..self.length.into()).unwrap_or(&[]);
        std::str::from_utf8(bytes).unwrap_or("")
    }

    /// Whether there is no name.
    pub fn is_empty(&self) -> bool {
        self.as_str().is_empty()
    }
}

impl Default for Name {
    fn default() -> Name {
        Name::new("")
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_str().fmt(f)
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_cut_at_a_character() {
        let long = "x".repeat(63) + "ü";
        assert_eq!(Name::new(&long).as_str(), "x".repeat(63));
        assert_eq!(Name::new("gate").to_string(), "gate");
        assert!(Name::default().is_empty());
    }

    #[test]
    fn reasons_come_back() {
        for reason in RefusalReason::ALL {
            assert_eq!(RefusalReason::from_u8(reason as u8), Some(reason));
        }
        assert_eq!(RefusalReason::from_u8(0), None);
        assert_eq!(RefusalReason::from_u8(255), None);
    }
}
