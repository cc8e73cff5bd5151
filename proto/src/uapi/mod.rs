//! The WireGuard cross-platform user-space API: what `wg` says over `/var/run/wireguard/NAME.sock`.
//!
//! A request is lines of `key=value` up to a blank line. [`Parser`] takes a stream in any pieces; [`Device`]
//! writes the answer to `get=1`, [`result`] that to `set=1`. Called by meta; it never reads a descriptor and
//! never looks a name up. Specification: <https://www.wireguard.com/xplatform/>.

mod parse;
mod set;
mod write;

pub use parse::{MAX_LINE_BYTES, MAX_REQUEST_BYTES, Parser, Request, Step};
pub use set::{AllowedIpChange, PeerChange, SetItem};
pub use write::{Device, PeerStatus, result};

/// The numbers that UAPI answers carry, with the values that Linux, FreeBSD and OpenBSD share unless said
/// otherwise.
pub mod errno {
    /// Done.
    pub const OK: i32 = 0;
    /// The device cannot be read or written.
    pub const EIO: i32 = 5;
    /// A key or a value that is not understood.
    pub const EINVAL: i32 = 22;
    /// A limit of the gateway is reached.
    pub const ENOSPC: i32 = 28;
    /// The request is no lines of `key=value`.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    pub const EPROTO: i32 = 71;
    /// The request is no lines of `key=value`.
    #[cfg(target_os = "freebsd")]
    pub const EPROTO: i32 = 92;
    /// The request is no lines of `key=value`.
    #[cfg(target_os = "openbsd")]
    pub const EPROTO: i32 = 95;
    /// The request is no lines of `key=value`.
    #[cfg(target_os = "netbsd")]
    pub const EPROTO: i32 = 96;
    /// The request is no lines of `key=value`.
    #[cfg(any(target_os = "macos", target_os = "ios"))]
    pub const EPROTO: i32 = 100;
    /// The port is taken.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    pub const EADDRINUSE: i32 = 98;
    /// The port is taken.
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    pub const EADDRINUSE: i32 = 48;
}

/// Why a request is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct UapiError {
    /// The number for the answer, positive as in `errno.h`.
    pub errno: i32,
    /// One line for the log; holds no key.
    pub message: String,
    /// The stream cannot be followed any further: answer, then close it.
    pub fatal: bool,
}
