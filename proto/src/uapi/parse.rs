//! The incremental parser of requests.

use super::{SetItem, UapiError};

/// The longest request: a set of a million allowed IPs takes less.
pub const MAX_REQUEST_BYTES: usize = 64 << 20;

/// The longest line that means something; a longer one is refused unread.
pub const MAX_LINE_BYTES: usize = 512;

/// A complete request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Tell the device and its peers.
    Get,
    /// Change these, in this order.
    Set(Vec<SetItem>),
}

/// What [`Parser::push`] found.
#[derive(Debug, PartialEq, Eq)]
pub enum Step {
    /// All bytes are taken and the request goes on.
    More,
    /// The request ended, or cannot be followed any further.
    Complete {
        /// How many of the bytes belong to it; the rest is the next request's.
        consumed: usize,
        /// What it asks, or the answer that it gets: nothing of a faulty request is applied.
        request: Result<Request, UapiError>,
    },
}

/// Reads requests from one connection.
#[derive(Default)]
pub struct Parser {}

impl Parser {
    /// A parser that takes IPv6 scopes only as numbers.
    pub fn new() -> Parser {
        Parser::default()
    }

    /// Takes the next bytes of the stream.
    pub fn push(&mut self, _bytes: &[u8]) -> Step {
        Step::More
    }
}
