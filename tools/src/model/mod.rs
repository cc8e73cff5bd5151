//! What the look-ups show: plain figures, made once and then written as a table or as JSON.
//!
//! Field names are a contract with scripts: `snake_case`, units in the names, none renamed or dropped within a major
//! version. A rate is there only where two samples were taken.

// Units and directions are in the names, for those who read the JSON.
#![allow(clippy::struct_field_names)]

pub(crate) mod drops;
pub(crate) mod interface;
pub(crate) mod moved;
pub(crate) mod peers;
pub(crate) mod refusal;
pub(crate) mod rings;
pub(crate) mod routes;
pub(crate) mod sample;
pub(crate) mod shm;
pub(crate) mod sockets;
pub(crate) mod status;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
pub(crate) mod workers;

use serde::Serialize;

use crate::render::units;

/// One answer of a look-up.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Document<T> {
    /// The gateway.
    pub(crate) name: String,
    /// When the figures were read, RFC 3339, UTC.
    pub(crate) at: String,
    /// The figures.
    #[serde(flatten)]
    pub(crate) body: T,
}

impl<T> Document<T> {
    /// The document of the gateway `name` at this Unix time.
    pub(crate) fn new(name: &str, unix_ns: u64, body: T) -> Document<T> {
        Document {
            name: name.to_owned(),
            at: units::rfc3339(unix_ns),
            body,
        }
    }
}

/// Figures that a person can read.
pub(crate) trait Human {
    /// The figures of the gateway `name` as text, each line ended.
    fn human(&self, name: &str) -> String;
}

/// The difference of a counter over a time, each second.
pub(crate) fn rate(earlier: u64, later: u64, seconds: f64) -> f64 {
    if seconds <= 0.0 {
        return 0.0;
    }
    units::rounded(later.saturating_sub(earlier) as f64 / seconds)
}
