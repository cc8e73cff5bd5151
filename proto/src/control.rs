//! What the tool says to the supervisor of a running gateway, and what it answers.
//!
//! Messages travel over the stream socket `/run/ringway/NAME/control.sock`, framed by [`crate::codec`]. The
//! supervisor serves it, so that it answers even while meta is dead. It reads the peer's credentials: root may
//! ask everything, the group `ringway` only what [`Request::changes`] denies.

use std::net::IpAddr;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::config::PollMode;

/// The longest request; nothing in one is of unbounded size.
pub const REQUEST_LIMIT: usize = 4096;
/// The longest response.
pub const RESPONSE_LIMIT: usize = 1 << 20;

/// What the tool asks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Request {
    /// The descriptors of the readable segments; they come with [`Response::Segments`].
    Segments,
    /// End the gateway; answered when everything is gone, or never when the socket closes first.
    Stop,
    /// Read the configuration file again: the file wins.
    Reload {
        /// Keep the peers that were made at run time and are not in the file.
        keep_runtime: bool,
    },
    /// Write the running configuration into its file.
    SaveConfig,
    /// Who is there.
    Info,
}

impl Request {
    /// Whether this needs root.
    pub fn changes(&self) -> bool {
        match self {
            Request::Stop | Request::Reload { .. } | Request::SaveConfig => true,
            Request::Segments | Request::Info => false,
        }
    }
}

/// What the supervisor answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Response {
    /// Done.
    Ok,
    /// SCM_RIGHTS of the same message holds one read-only descriptor per entry, in this order.
    Segments {
        /// Which segments came along.
        segments: Vec<ReadableSegment>,
    },
    /// The answer to [`Request::Info`].
    Info(Box<Info>),
    /// Not done; one line for a person.
    Error {
        /// What failed, with which value, and what to do.
        message: String,
    },
    /// Done, but for something that a person should know.
    Noted {
        /// One line.
        remark: String,
    },
}

/// A segment that a tool may map; those with keys are never among them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ReadableSegment {
    /// Peers, routes and the gateway's record.
    State,
    /// Rings, counters and process slots.
    Rings,
}

/// A running gateway.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Info {
    /// The interface's name at the start.
    pub name: String,
    /// The version of the supervisor's binary.
    pub version: String,
    /// The supervisor.
    pub pid: u32,
    /// Meta, 0 while there is none.
    pub meta_pid: u32,
    /// The helper, 0 while there is none.
    pub helper_pid: u32,
    /// The workers by slot, 0 where there is none.
    pub worker_pids: Vec<u32>,
    /// When the gateway started: nanoseconds since the Unix epoch.
    pub started_unix_ns: u64,
    /// The file it was started from; none when `wg` configures it.
    pub config_path: Option<PathBuf>,
    /// How the workers wait.
    pub poll: PollMode,
    /// How many shards there are.
    pub shards: u8,
    /// Where it listens.
    pub sockets: Vec<SocketInfo>,
}

/// One group of sockets: an address, a port, a socket per shard and one for meta.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SocketInfo {
    /// The local address; unspecified: all of that family.
    pub address: IpAddr,
    /// The local port.
    pub port: u16,
    /// The device that the group is bound to.
    pub device: Option<String>,
    /// The firewall mark, 0: none.
    pub fwmark: u32,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::{frame, unframe};

    #[test]
    fn only_looking_needs_no_root() {
        assert!(!Request::Info.changes());
        assert!(!Request::Segments.changes());
        assert!(Request::Stop.changes());
        assert!(Request::Reload { keep_runtime: true }.changes());
        assert!(Request::SaveConfig.changes());
    }

    #[test]
    fn messages_cross_a_stream() {
        let info = Info {
            name: "wg0".to_owned(),
            version: "0.1.0".to_owned(),
            pid: 1,
            meta_pid: 2,
            helper_pid: 3,
            worker_pids: vec![4, 0],
            started_unix_ns: 5,
            config_path: Some(PathBuf::from("/etc/ringway/wg0.conf")),
            poll: PollMode::Adaptive,
            shards: 8,
            sockets: vec![SocketInfo {
                address: "::".parse().unwrap(),
                port: 51820,
                device: None,
                fwmark: 0,
            }],
        };
        let response = Response::Info(Box::new(info));
        let bytes = frame(&response, RESPONSE_LIMIT).unwrap();
        assert_eq!(
            unframe::<Response>(&bytes, RESPONSE_LIMIT).unwrap(),
            Some((response, bytes.len()))
        );
        let request = Request::Reload { keep_runtime: true };
        let bytes = frame(&request, REQUEST_LIMIT).unwrap();
        assert_eq!(
            unframe::<Request>(&bytes, REQUEST_LIMIT).unwrap(),
            Some((request, bytes.len()))
        );
    }
}
