//! The model that both file formats are read into.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::CpuList;
use crate::endpoint::HostPort;
use crate::keys::{PresharedKey, PrivateKey, PublicKey};
use crate::prefix::Prefix;

/// The longest name of a peer, in bytes of UTF-8: what its record in shared memory holds.
pub const MAX_NAME_BYTES: usize = 64;

/// The most shards that a gateway has.
pub const MAX_SHARDS: u8 = 64;

/// A whole configuration. Its keys are redacted in `Debug`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Config {
    /// The gateway itself.
    pub interface: Interface,
    /// Who may connect, in the order of the file.
    pub peers: Vec<Peer>,
}

/// The gateway's own settings.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interface {
    /// Who the gateway is; without one it answers nobody until `wg set` gives one.
    pub private_key: Option<PrivateKey>,
    /// The UDP port; none or 0: any that is free.
    pub listen_port: Option<u16>,
    /// The firewall mark of what the gateway sends; none: not set (`off` and 0 are read as none).
    pub fwmark: Option<u32>,
    /// The interface's addresses, host bits kept.
    pub addresses: Vec<Prefix>,
    /// The DNS servers that are set while the interface is up.
    pub dns: Vec<IpAddr>,
    /// The DNS search domains that are set while the interface is up.
    pub dns_search: Vec<String>,
    /// The interface's MTU; none: derived from the route to the peers.
    pub mtu: Option<u16>,
    /// Where the routes to the allowed IPs go.
    pub table: Table,
    /// Commands before the interface is up, `%i` not yet replaced.
    pub pre_up: Vec<String>,
    /// Commands after the interface is up.
    pub post_up: Vec<String>,
    /// Commands before the interface goes down.
    pub pre_down: Vec<String>,
    /// Commands after the interface went down.
    pub post_down: Vec<String>,
    /// Whether the running configuration is written back at the end.
    pub save_config: bool,
    /// The local addresses to listen on; none: all.
    pub listen_addresses: Vec<IpAddr>,
    /// The device that the UDP sockets are bound to.
    pub bind_device: Option<String>,
    /// How many workers.
    pub workers: Option<WorkersSetting>,
    /// How many shards: a power of two up to [`MAX_SHARDS`].
    pub shards: Option<u8>,
    /// The CPUs that the workers are pinned to, in turn.
    pub cpus: Option<CpuList>,
    /// How the workers wait for packets.
    pub poll: Option<PollMode>,
    /// What is reserved at the start.
    pub limits: Limits,
}

/// One peer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Peer {
    /// Who it is.
    pub public_key: PublicKey,
    /// What the tools call it.
    pub name: Option<String>,
    /// A secret that both sides know besides their keys; all zero is read as none.
    pub preshared_key: Option<PresharedKey>,
    /// Where it is expected, until it is heard from elsewhere.
    pub endpoint: Option<HostPort>,
    /// The inner addresses that are its own, host bits cleared, no duplicates.
    pub allowed_ips: Vec<Prefix>,
    /// Seconds between keepalives; none: off (`off` and 0 are read as none).
    pub persistent_keepalive: Option<u16>,
    /// A command to run when the peer's first session is there.
    pub peer_up: Option<String>,
    /// A command to run when the peer's last session has ended.
    pub peer_down: Option<String>,
}

impl Peer {
    /// A peer of which nothing but the key is known.
    pub fn new(public_key: PublicKey) -> Peer {
        Peer {
            public_key,
            name: None,
            preshared_key: None,
            endpoint: None,
            allowed_ips: Vec::new(),
            persistent_keepalive: None,
            peer_up: None,
            peer_down: None,
        }
    }

    /// The name, or where there is none the key, for a message.
    pub fn label(&self) -> String {
        self.name
            .clone()
            .unwrap_or_else(|| self.public_key.to_string())
    }
}

/// Where the routes to the allowed IPs go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Table {
    /// The main table; a default route goes to a table of its own with a rule by firewall mark.
    #[default]
    Auto,
    /// No routes are made.
    Off,
    /// This table, with no rules.
    Number(u32),
}

/// How many workers a gateway starts with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum WorkersSetting {
    /// One per CPU that the process may use.
    Auto,
    /// This many.
    Count(u16),
}

/// How a worker waits for packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum PollMode {
    /// Sleep until the kernel says something.
    Epoll,
    /// Never sleep.
    Busy,
    /// Spin while it pays, then sleep.
    #[default]
    Adaptive,
    /// Let the kernel busy-poll the network card.
    Napi,
}

/// What is reserved at the start and cannot grow until the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// The most peers.
    pub peers: u32,
    /// The most allowed IPs of all peers together.
    pub routes: u32,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            peers: 4096,
            routes: 262_144,
        }
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Table::Auto => f.write_str("auto"),
            Table::Off => f.write_str("off"),
            Table::Number(number) => write!(f, "{number}"),
        }
    }
}

impl fmt::Display for WorkersSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WorkersSetting::Auto => f.write_str("auto"),
            WorkersSetting::Count(count) => write!(f, "{count}"),
        }
    }
}

/// A text is neither `auto` nor a count from 1 to [`MAX_SHARDS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("give auto or a number from 1 to {MAX_SHARDS}")]
pub struct BadWorkers;

impl FromStr for WorkersSetting {
    type Err = BadWorkers;

    fn from_str(text: &str) -> Result<WorkersSetting, BadWorkers> {
        if text.eq_ignore_ascii_case("auto") {
            return Ok(WorkersSetting::Auto);
        }
        match text.parse::<u16>() {
            Ok(count) if (1..=u16::from(MAX_SHARDS)).contains(&count) => {
                Ok(WorkersSetting::Count(count))
            }
            _ => Err(BadWorkers),
        }
    }
}

impl PollMode {
    /// Every mode, in the order of the documentation.
    pub const ALL: [PollMode; 4] = [
        PollMode::Epoll,
        PollMode::Busy,
        PollMode::Adaptive,
        PollMode::Napi,
    ];

    /// The mode as files and flags write it.
    pub fn as_str(self) -> &'static str {
        match self {
            PollMode::Epoll => "epoll",
            PollMode::Busy => "busy",
            PollMode::Adaptive => "adaptive",
            PollMode::Napi => "napi",
        }
    }
}

impl fmt::Display for PollMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A text names no poll mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("give epoll, busy, adaptive or napi")]
pub struct UnknownPollMode;

impl FromStr for PollMode {
    type Err = UnknownPollMode;

    fn from_str(text: &str) -> Result<PollMode, UnknownPollMode> {
        PollMode::ALL
            .into_iter()
            .find(|mode| mode.as_str().eq_ignore_ascii_case(text))
            .ok_or(UnknownPollMode)
    }
}
