//! What the supervisor and meta say to each other.
//!
//! One `SOCK_SEQPACKET` pair, one bincode message a datagram, descriptors beside it by
//! `SCM_RIGHTS`. What may be large, the configuration, goes as a sealed-off memfd beside
//! [`ToMeta::Start`]. End of file on meta's side means that the supervisor is gone, and meta ends.

use ringway_proto::config::model::Config;
use ringway_proto::prefix::Prefix;
use ringway_worker::control::GroupInfo;
use serde::{Deserialize, Serialize};
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

/// The greatest encoded message in bytes.
pub(crate) const MESSAGE_LIMIT: usize = 64 * 1024;

/// The greatest encoded configuration in bytes (130,000 allowed IPs take about 3 MiB).
pub(crate) const CONFIG_LIMIT: usize = 64 * 1024 * 1024;

/// From the supervisor to meta.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum ToMeta {
    /// The first message. One descriptor: a memfd with the encoded [`Config`]; read it with
    /// [`read_config`].
    Start(Start),
    /// Meta's own socket (number S) of every group, one descriptor a group, in order; they
    /// replace all former ones. Answered by [`FromMeta::SocketsTaken`].
    Sockets {
        /// Counts the changes of the groups.
        generation: u32,
        /// The groups.
        groups: Vec<GroupInfo>,
    },
    /// The answer to [`FromMeta::Request`] of the same number.
    Answer {
        /// The request's number.
        id: u32,
        /// What came of it.
        result: Result<Granted, Refused>,
    },
    /// The interface's state changed (also sent once after start).
    Link {
        /// The interface's MTU in bytes.
        mtu: u32,
        /// Whether it is up.
        up: bool,
    },
    /// The interface was deleted; [`ToMeta::Stop`] follows.
    LinkGone,
    /// A local address went away: source addresses remembered for endpoints may be void.
    AddressesChanged {
        /// The addresses that are gone.
        gone: Vec<IpAddr>,
    },
    /// Read the configuration file again and apply it. Answered by [`FromMeta::Done`].
    Reload {
        /// Repeated in the answer.
        id: u32,
        /// Whether peers that were made at run time stay.
        keep_runtime: bool,
    },
    /// Write the configuration file. Answered by [`FromMeta::Done`].
    Save {
        /// Repeated in the answer.
        id: u32,
    },
    /// End: zero the keys, return.
    Stop,
}

/// What meta is told at its start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Start {
    /// The interface's name at start.
    pub(crate) name: String,
    /// The configuration file (absolute), where there is one.
    pub(crate) config_path: Option<PathBuf>,
    /// The interface's MTU at start.
    pub(crate) mtu: u32,
}

/// From meta to the supervisor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum FromMeta {
    /// The configuration is applied and the loop runs.
    Ready,
    /// The sockets of this generation are in use.
    SocketsTaken {
        /// The generation that [`ToMeta::Sockets`] named.
        generation: u32,
    },
    /// Something that needs privileges. Answered by [`ToMeta::Answer`].
    Request {
        /// Repeated in the answer.
        id: u32,
        /// What is wanted.
        what: Privileged,
    },
    /// The answer to [`ToMeta::Reload`] or [`ToMeta::Save`].
    Done {
        /// The request's number.
        id: u32,
        /// A remark for the caller (may be empty), or why it failed in one line.
        result: Result<String, String>,
    },
}

/// What the supervisor does for meta.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Privileged {
    /// Listen here from now on. The new sockets go to all processes
    /// ([`ToMeta::Sockets`]) before the answer.
    Listen {
        /// The port; 0 chooses one that is free for both families.
        port: u16,
        /// The local addresses; empty means every address of both families.
        addresses: Vec<IpAddr>,
        /// Send and receive only by this device.
        device: Option<String>,
        /// The firewall mark; 0 is none.
        fwmark: u32,
    },
    /// Change the firewall mark of all sockets; 0 is none.
    Fwmark(u32),
    /// Bring the interface to what the configuration says (a reload).
    Interface(InterfaceChange),
    /// How a datagram to this address would leave.
    RouteOf {
        /// The endpoint.
        destination: SocketAddr,
        /// The firewall mark to ask with.
        fwmark: u32,
    },
}

/// What a reload wants of the interface.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct InterfaceChange {
    /// Its addresses.
    pub(crate) addresses: Vec<Prefix>,
    /// Its MTU; `None` leaves it as it is.
    pub(crate) mtu: Option<u16>,
    /// The routes: every allowed IP of every peer.
    pub(crate) routes: Vec<Prefix>,
}

/// A privileged request that was done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Granted {
    /// Done.
    Done,
    /// Listening on this port.
    Listening {
        /// The port.
        port: u16,
    },
    /// The interface is as wanted.
    Interface {
        /// The firewall mark that a default route needed, when the configuration has none.
        fwmark: Option<u32>,
    },
    /// The route.
    Route {
        /// The device's index.
        ifindex: u32,
        /// The route's or else the device's MTU in bytes.
        mtu: u32,
        /// The source address that the kernel would choose.
        source: Option<IpAddr>,
        /// Whether the device is this gateway's own interface.
        own: bool,
    },
}

/// A privileged request that failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Refused {
    /// The kernel's error number (positive), for the UAPI.
    pub(crate) errno: i32,
    /// One line: what, why, what to do.
    pub(crate) message: String,
}

pub(crate) use crate::sys::scm::{Packets, Received};
