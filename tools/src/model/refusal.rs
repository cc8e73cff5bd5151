//! Why a handshake came to nothing, in words: the question asked most.

use ringway_shm::state::{Refusal as Record, RefusalReason};
use serde::Serialize;

use crate::render::units;

/// A refusal as the look-ups show it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Refusal {
    /// Why, in `snake_case`.
    pub(crate) reason: &'static str,
    /// Seconds since then.
    pub(crate) age_seconds: f64,
    /// When, RFC 3339, UTC.
    pub(crate) at: String,
    /// The address that the handshake came from or went to; null where there was none.
    pub(crate) from: Option<String>,
    /// What it means and what to do.
    pub(crate) hint: &'static str,
}

impl Refusal {
    /// From the record, at this Unix time.
    pub(crate) fn new(record: &Record, unix_ns: u64) -> Refusal {
        let known = !record.from.ip().is_unspecified();
        Refusal {
            reason: record.reason.as_str(),
            age_seconds: units::rounded(units::seconds_between(record.at_unix_ns, unix_ns)),
            at: units::rfc3339(record.at_unix_ns),
            from: known.then(|| record.from.to_string()),
            hint: hint(record.reason),
        }
    }

    /// `preshared_key, 12 s ago, 192.0.2.1:51820`.
    pub(crate) fn summary(&self) -> String {
        let from = self
            .from
            .as_ref()
            .map_or_else(String::new, |from| format!(", {from}"));
        format!(
            "{}, {} ago{from}",
            self.reason,
            units::age(self.age_seconds)
        )
    }
}

fn hint(reason: RefusalReason) -> &'static str {
    match reason {
        RefusalReason::Mac1 => {
            "the handshake was made for another public key: the peer's PublicKey for this gateway is wrong"
        }
        RefusalReason::UnknownKey => {
            "no peer here has this public key: add it, or correct the peer's PrivateKey"
        }
        RefusalReason::PresharedKey => {
            "the preshared keys differ: set the same PresharedKey on both sides, or on neither"
        }
        RefusalReason::TimestampNotNewer => {
            "a time stamp that is not newer: a replay, the peer's clock went back, or two hosts use one private key"
        }
        RefusalReason::Decrypt => {
            "the handshake did not authenticate: check PublicKey on both sides, or somebody forges packets"
        }
        RefusalReason::CookieRequired => {
            "too many handshakes came in: the sender was asked to come again with a cookie"
        }
        RefusalReason::NoEndpoint => {
            "nobody knows where the peer is: it has no Endpoint, or its host name is not resolved yet: set one, or wait until the peer speaks first"
        }
        RefusalReason::NoAnswer => {
            "the peer does not answer: check its Endpoint, that it runs, and UDP through the firewalls between"
        }
        RefusalReason::Loop => {
            "the endpoint is routed into this very tunnel: give it a route of its own, or use FwMark"
        }
        RefusalReason::UnresolvedEndpoint => {
            "the endpoint's host name has no address: check the name and the resolver"
        }
        RefusalReason::RateLimited => {
            "one source sent more handshakes than a source may while the gateway is under load"
        }
        RefusalReason::LowOrderPoint => {
            "the key gives no shared secret: an attack, or a broken peer"
        }
    }
}
