//! The incremental parser of requests.

use std::fmt;

use zeroize::Zeroize;

use super::{AllowedIpChange, PeerChange, SetItem, UapiError, errno};
use crate::endpoint::HostPort;
use crate::keys::{HEX_LEN, PresharedKey, PrivateKey, PublicKey};
use crate::prefix::Prefix;

/// The longest request; a set of a million allowed IPs takes less.
pub const MAX_REQUEST_BYTES: usize = 64 << 20;

/// The longest line that means something; what is longer is refused unread.
pub const MAX_LINE_BYTES: usize = 512;

/// The most lines about the device itself in one request. There are four keys; the rest is repetition, which
/// would otherwise cost many times its bytes in memory.
const MAX_DEVICE_ITEMS: usize = 64;

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
        /// What it asks, or why nothing of it is applied. A faulty request is still read to its blank line, so
        /// that its sender, which writes all before it reads, gets the answer.
        request: Result<Request, UapiError>,
    },
}

/// Reads requests from one connection, in whatever pieces they come.
///
/// Holds at most [`MAX_REQUEST_BYTES`] worth of a request.
pub struct Parser {
    limit: usize,
    line: Vec<u8>,
    overlong: bool,
    received: usize,
    state: State,
    items: Vec<SetItem>,
    fault: Option<UapiError>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Before `get=1` or `set=1`.
    Operation,
    Get,
    SetDevice,
    SetPeer,
}

impl Parser {
    /// A parser at the beginning of a connection.
    pub fn new() -> Parser {
        Parser {
            limit: MAX_REQUEST_BYTES,
            // Never grows, so that no copy of a key is left behind by a move.
            line: Vec::with_capacity(MAX_LINE_BYTES),
            overlong: false,
            received: 0,
            state: State::Operation,
            items: Vec::new(),
            fault: None,
        }
    }

    /// Takes requests of at most this many bytes.
    #[must_use]
    pub fn with_limit(mut self, bytes: usize) -> Parser {
        self.limit = bytes;
        self
    }

    /// Whether no request is under way: the connection may end here.
    pub fn is_idle(&self) -> bool {
        self.state == State::Operation && self.line.is_empty() && !self.overlong
    }

    /// Takes the next bytes of the stream.
    ///
    /// After [`Step::Complete`] push what was not consumed; the parser has begun anew.
    pub fn push(&mut self, bytes: &[u8]) -> Step {
        let mut consumed = 0;
        while consumed < bytes.len() {
            let rest = &bytes[consumed..];
            let end = rest.iter().position(|byte| *byte == b'\n');
            let taken = end.map_or(rest.len(), |end| end + 1);
            consumed += taken;
            self.received += taken;
            if self.received > self.limit {
                let message = format!(
                    "the request is longer than {} bytes: send it in parts",
                    self.limit
                );
                return self.complete(
                    consumed,
                    Err(UapiError {
                        errno: errno::ENOSPC,
                        message,
                        fatal: true,
                    }),
                );
            }
            let Some(end) = end else {
                self.keep(rest);
                continue;
            };
            if let Some(request) = self.end_line(&rest[..end]) {
                return self.complete(consumed, request);
            }
        }
        Step::More
    }

    fn complete(&mut self, consumed: usize, request: Result<Request, UapiError>) -> Step {
        self.line.zeroize();
        self.overlong = false;
        self.received = 0;
        self.state = State::Operation;
        self.items = Vec::new();
        self.fault = None;
        Step::Complete { consumed, request }
    }

    /// Stores the beginning of a line; of one that is too long nothing.
    fn keep(&mut self, part: &[u8]) {
        if self.overlong || self.line.len() + part.len() > MAX_LINE_BYTES {
            self.overlong = true;
            self.line.zeroize();
        } else {
            self.line.extend_from_slice(part);
        }
    }

    fn end_line(&mut self, part: &[u8]) -> Option<Result<Request, UapiError>> {
        if self.line.is_empty() && part.len() <= MAX_LINE_BYTES && !self.overlong {
            return self.take_line(part);
        }
        self.keep(part);
        if std::mem::take(&mut self.overlong) {
            return self.take_fault(invalid(format!(
                "a line is longer than {MAX_LINE_BYTES} bytes: no key needs so many"
            )));
        }
        let mut line = std::mem::take(&mut self.line);
        let request = self.take_line(&line);
        line.zeroize();
        self.line = line;
        request
    }

    fn take_line(&mut self, line: &[u8]) -> Option<Result<Request, UapiError>> {
        if line.is_empty() {
            return self.end_request();
        }
        if self.fault.is_some() {
            return None;
        }
        match self.read_line(line) {
            Ok(()) => None,
            Err(fault) => self.take_fault(fault),
        }
    }

    /// Remembers the first fault; one before the request began ends the connection, since nobody knows where
    /// the next request would start.
    fn take_fault(&mut self, fault: UapiError) -> Option<Result<Request, UapiError>> {
        if self.state == State::Operation {
            return Some(Err(UapiError {
                fatal: true,
                ..fault
            }));
        }
        self.items = Vec::new();
        self.fault.get_or_insert(fault);
        None
    }

    fn end_request(&mut self) -> Option<Result<Request, UapiError>> {
        if let Some(fault) = self.fault.take() {
            return Some(Err(fault));
        }
        match self.state {
            State::Operation => {
                self.received = 0;
                None
            }
            State::Get => Some(Ok(Request::Get)),
            State::SetDevice | State::SetPeer => {
                Some(Ok(Request::Set(std::mem::take(&mut self.items))))
            }
        }
    }

    fn read_line(&mut self, line: &[u8]) -> Result<(), UapiError> {
        let text = std::str::from_utf8(line).map_err(|_| invalid("a line is not UTF-8"))?;
        let (key, value) = text.split_once('=').ok_or_else(|| UapiError {
            errno: errno::EPROTO,
            message: "a line is not key=value".to_owned(),
            fatal: false,
        })?;
        match self.state {
            State::Operation => self.begin(key, value),
            State::Get => Err(invalid(format!("get takes no keys: {}", Shown(key)))),
            State::SetDevice if key != "public_key" => self.device_line(key, value),
            State::SetDevice | State::SetPeer => self.peer_line(key, value),
        }
    }

    fn begin(&mut self, key: &str, value: &str) -> Result<(), UapiError> {
        self.state = match (key, value) {
            ("get", "1") => State::Get,
            ("set", "1") => State::SetDevice,
            _ => {
                return Err(UapiError {
                    errno: errno::EPROTO,
                    message: format!(
                        "unknown operation: {}: only get=1 and set=1 are known",
                        Shown(key)
                    ),
                    fatal: true,
                });
            }
        };
        Ok(())
    }

    fn device_line(&mut self, key: &str, value: &str) -> Result<(), UapiError> {
        if self.items.len() >= MAX_DEVICE_ITEMS {
            return Err(invalid("the device's keys are repeated too often"));
        }
        let item = match key {
            "private_key" if is_zero_hex(value) => SetItem::PrivateKey(None),
            "private_key" => {
                SetItem::PrivateKey(Some(PrivateKey::from_hex(value).map_err(|_| bad(key, ""))?))
            }
            "listen_port" => SetItem::ListenPort(number(key, value)?),
            "fwmark" => SetItem::Fwmark(number(key, value)?),
            "replace_peers" => {
                require_true(key, value)?;
                SetItem::ReplacePeers
            }
            _ => {
                return Err(invalid(format!(
                    "unknown key of the device: {}",
                    Shown(key)
                )));
            }
        };
        self.items.push(item);
        Ok(())
    }

    fn peer_line(&mut self, key: &str, value: &str) -> Result<(), UapiError> {
        if key == "public_key" {
            let public_key = PublicKey::from_hex(value).map_err(|_| bad(key, ""))?;
            self.items.push(SetItem::Peer(PeerChange::new(public_key)));
            self.state = State::SetPeer;
            return Ok(());
        }
        let Some(SetItem::Peer(peer)) = self.items.last_mut() else {
            return Err(invalid(format!("no peer for this key: {}", Shown(key))));
        };
        match key {
            "remove" => {
                require_true(key, value)?;
                peer.remove = true;
            }
            "update_only" => {
                require_true(key, value)?;
                peer.update_only = true;
            }
            "preshared_key" => {
                peer.preshared_key = Some(PresharedKey::from_hex(value).map_err(|_| bad(key, ""))?);
            }
            "endpoint" => {
                let endpoint: HostPort = value.parse().map_err(|_| bad(key, value))?;
                if endpoint.is_name() {
                    return Err(bad(key, value));
                }
                peer.endpoint = endpoint.socket_addr();
                peer.lookup = peer.endpoint.is_none().then_some(endpoint);
            }
            "persistent_keepalive_interval" => peer.keepalive = Some(number(key, value)?),
            "replace_allowed_ips" => {
                require_true(key, value)?;
                // What the same request gave before is replaced with the rest.
                peer.allowed_ips.clear();
                peer.replace_allowed_ips = true;
            }
            "allowed_ip" => peer
                .allowed_ips
                .push(allowed_ip(value).ok_or_else(|| bad(key, value))?),
            "protocol_version" if value == "1" => {}
            "protocol_version" => return Err(bad(key, value)),
            _ => return Err(invalid(format!("unknown key of a peer: {}", Shown(key)))),
        }
        Ok(())
    }
}

impl Default for Parser {
    fn default() -> Parser {
        Parser::new()
    }
}

impl Drop for Parser {
    fn drop(&mut self) {
        self.line.zeroize();
    }
}

impl fmt::Debug for Parser {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Parser")
            .field("state", &self.state)
            .field("received", &self.received)
            .finish_non_exhaustive()
    }
}

/// What a message may show of bytes from outside: a short word, since anything else may be a key.
struct Shown<'a>(&'a str);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let harmless = self.0.len() <= 40 && self.0.bytes().all(|byte| byte.is_ascii_graphic());
        f.write_str(if harmless && !self.0.is_empty() {
            self.0
        } else {
            "(not shown)"
        })
    }
}

fn invalid(message: impl Into<String>) -> UapiError {
    UapiError {
        errno: errno::EINVAL,
        message: message.into(),
        fatal: false,
    }
}

fn bad(key: &str, value: &str) -> UapiError {
    invalid(format!("bad {key}: {}", Shown(value)))
}

fn require_true(key: &str, value: &str) -> Result<(), UapiError> {
    if value == "true" {
        Ok(())
    } else {
        Err(invalid(format!(
            "bad {key}: {}: only true is allowed",
            Shown(value)
        )))
    }
}

/// A decimal number without a sign.
fn number<T: std::str::FromStr>(key: &str, value: &str) -> Result<T, UapiError> {
    if value.is_empty() || !value.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(bad(key, value));
    }
    value.parse().map_err(|_| bad(key, value))
}

fn is_zero_hex(value: &str) -> bool {
    value.len() == HEX_LEN && value.bytes().all(|byte| byte == b'0')
}

fn allowed_ip(value: &str) -> Option<AllowedIpChange> {
    let (text, remove) = match value.strip_prefix('-') {
        Some(text) => (text, true),
        None => (value.strip_prefix('+').unwrap_or(value), false),
    };
    // Without the length it is no prefix here, though it is one in a configuration file.
    let prefix: Prefix = text.contains('/').then(|| text.parse().ok())??;
    Some(AllowedIpChange {
        prefix: prefix.masked(),
        remove,
    })
}

#[cfg(test)]
mod tests;
