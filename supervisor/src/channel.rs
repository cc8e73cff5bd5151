//! What the supervisor and meta say to each other.
//!
//! One `SOCK_SEQPACKET` pair, one bincode message a datagram, descriptors beside it by
//! `SCM_RIGHTS`. What may be large, the configuration, goes as a memfd beside
//! [`ToMeta::Start`]. End of file on meta's side means that the supervisor is gone, and meta ends.

pub(crate) use crate::sys::scm::Packets;

use nix::sys::memfd::MFdFlags;
use ringway_proto::codec;
use ringway_proto::config::{Config, Interface, Table};
use ringway_proto::prefix::Prefix;
use ringway_worker::control::GroupInfo;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::PathBuf;
use zeroize::Zeroizing;

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
    /// A new helper took the place of one that died: its stream, one descriptor. What the old one
    /// had not answered is to be asked again.
    Helper,
    /// The interface's state changed (also sent once after start).
    Link {
        /// The interface's MTU in bytes.
        mtu: u32,
        /// Whether it is up.
        up: bool,
    },
    /// The interface was deleted; [`ToMeta::Stop`] follows.
    LinkGone,
    /// Local addresses went away: a source address remembered for an endpoint may be void.
    AddressesChanged {
        /// The addresses that are gone; empty when that is not known, and any may be.
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
        /// The device to leave by; 0: any, or the one that the sockets are bound to.
        ifindex: u32,
    },
}

/// What a reload wants of the interface.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct InterfaceChange {
    /// Its addresses.
    pub(crate) addresses: Vec<Prefix>,
    /// Its MTU; `None` leaves it as it is.
    pub(crate) mtu: Option<u16>,
    /// Where its routes go.
    pub(crate) table: Table,
    /// The name servers.
    pub(crate) dns: Vec<IpAddr>,
    /// The search domains.
    pub(crate) dns_search: Vec<String>,
    /// The commands before it goes down.
    pub(crate) pre_down: Vec<String>,
    /// The commands after it went down.
    pub(crate) post_down: Vec<String>,
    /// Whether the running configuration is saved at the end.
    pub(crate) save_config: bool,
    // The routes are not here, since 130,000 of them fit no message: they are those of the `state`
    // segment, which meta has published before it asks.
}

impl InterfaceChange {
    /// What this configuration wants.
    pub(crate) fn of(interface: &Interface) -> InterfaceChange {
        InterfaceChange {
            addresses: interface.addresses.clone(),
            mtu: interface.mtu,
            table: interface.table,
            dns: interface.dns.clone(),
            dns_search: interface.dns_search.clone(),
            pre_down: interface.pre_down.clone(),
            post_down: interface.post_down.clone(),
            save_config: interface.save_config,
        }
    }

    /// Whether it fits a message.
    pub(crate) fn fits(&self) -> bool {
        codec::encode(self).is_ok_and(|bytes| bytes.len() < MESSAGE_LIMIT - 64)
    }
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

impl Refused {
    /// With the error's own words.
    pub(crate) fn new(errno: i32, error: &dyn std::fmt::Display) -> Refused {
        Refused {
            errno,
            message: error.to_string(),
        }
    }
}

/// Puts a configuration into a memfd, to go beside [`ToMeta::Start`].
pub(crate) fn write_config(config: &Config) -> Result<OwnedFd, ChannelError> {
    let bytes = Zeroizing::new(codec::encode(config)?);
    let mut file = File::from(nix::sys::memfd::memfd_create(
        c"ringway-config",
        MFdFlags::MFD_CLOEXEC,
    )?);
    file.write_all(&bytes)?;
    Ok(file.into())
}

/// Reads what [`write_config`] wrote.
pub(crate) fn read_config(memfd: OwnedFd) -> Result<Config, ChannelError> {
    let mut file = File::from(memfd);
    let mut bytes = Zeroizing::new(Vec::new());
    file.seek(SeekFrom::Start(0))?;
    file.read_to_end(&mut bytes)?;
    Ok(codec::decode(&bytes, CONFIG_LIMIT)?)
}

/// Why a message could not be sent or read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ChannelError {
    /// The socket or the memfd failed.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// A system call failed.
    #[error("{0}")]
    System(#[from] nix::errno::Errno),
    /// The bytes are no such message.
    #[error("{0}")]
    Codec(#[from] codec::CodecError),
}

/// Sends one message with its descriptors.
pub(crate) fn send<T: Serialize>(
    to: &Packets,
    message: &T,
    fds: &[BorrowedFd<'_>],
) -> Result<(), ChannelError> {
    Ok(to.send(&codec::encode(message)?, fds)?)
}

/// Receives one message with its descriptors; `None` is end of file.
pub(crate) fn receive<T: DeserializeOwned>(
    from: &Packets,
) -> Result<Option<(T, Vec<OwnedFd>)>, ChannelError> {
    let Some(received) = from.receive(MESSAGE_LIMIT)? else {
        return Ok(None);
    };
    Ok(Some((
        codec::decode(&received.bytes, MESSAGE_LIMIT)?,
        received.fds,
    )))
}
