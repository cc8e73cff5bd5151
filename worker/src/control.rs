//! What supervisor and worker say to each other.
//!
//! One `SOCK_SEQPACKET` pair a worker; one bincode message a datagram, file descriptors beside it
//! by `SCM_RIGHTS`. End of file on the worker's side means that the supervisor is gone, and the
//! worker ends.

use serde::{Deserialize, Serialize};
use std::net::IpAddr;

/// The greatest number of descriptors that one message carries (the kernel's limit,
/// `SCM_MAX_FD`, is 253).
pub const FDS_PER_MESSAGE: usize = 200;

/// The greatest encoded message in bytes.
pub const MESSAGE_LIMIT: usize = 16 * 1024;

/// One group of `SO_REUSEPORT` sockets: the S shards of one local address.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupInfo {
    /// Whether the sockets are IPv6 ones.
    pub family_v6: bool,
    /// The address they are bound to; unspecified means every address.
    pub address: IpAddr,
    /// The port they are bound to.
    pub port: u16,
}

/// From the supervisor to a worker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToWorker {
    /// The sockets to use from now on, in place of all former ones.
    ///
    /// The descriptors of all parts, put in a row, are `groups[0]`'s sockets of shards 0 to S-1,
    /// then `groups[1]`'s, and so on. At most [`FDS_PER_MESSAGE`] go with one part; the parts of
    /// one generation come in order, and `groups` is the same in each. The worker answers with
    /// [`FromWorker::SocketsTaken`] after the last part.
    Sockets {
        /// Counts the changes of the groups.
        generation: u32,
        /// The groups.
        groups: Vec<GroupInfo>,
        /// This message's number, from 0.
        part: u16,
        /// How many messages there are; at least 1.
        parts: u16,
    },
    /// End: drain what was read, close, return.
    Stop,
}

/// From a worker to the supervisor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum FromWorker {
    /// The segments are mapped and the loop runs.
    Ready,
    /// The sockets of this generation are in use and the former ones are closed here.
    SocketsTaken {
        /// The generation that [`ToWorker::Sockets`] named.
        generation: u32,
    },
    /// The TUN interface was deleted; the worker ends.
    InterfaceGone,
}
