//! `sockets`: where the gateway listens.

use ringway_proto::control::Info;
use serde::Serialize;

use super::Human;
use crate::render::table::Table;

/// All groups of sockets.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Sockets {
    /// The groups.
    pub(crate) sockets: Vec<Socket>,
}

/// A group: one address and port, a socket for each shard and one for meta.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Socket {
    /// The local address; unspecified: all of its family.
    pub(crate) address: String,
    /// The local port.
    pub(crate) port: u16,
    /// `ipv4` or `ipv6`.
    pub(crate) family: &'static str,
    /// The device that it is bound to.
    pub(crate) device: Option<String>,
    /// The firewall mark; 0: none.
    pub(crate) fwmark: u32,
    /// How many of its sockets belong to shards; one more belongs to meta.
    pub(crate) shards: u8,
}

impl Sockets {
    /// From what the supervisor says.
    pub(crate) fn new(info: &Info) -> Sockets {
        let sockets = info.sockets.iter().map(|group| Socket {
            address: group.address.to_string(),
            port: group.port,
            family: if group.address.is_ipv6() {
                "ipv6"
            } else {
                "ipv4"
            },
            device: group.device.clone(),
            fwmark: group.fwmark,
            shards: info.shards,
        });
        Sockets {
            sockets: sockets.collect(),
        }
    }
}

impl Human for Sockets {
    fn human(&self, _name: &str) -> String {
        let mut table = Table::new(&["FAMILY", "ADDRESS", ">PORT", "DEVICE", ">FWMARK", ">SHARDS"]);
        for socket in &self.sockets {
            table.row([
                socket.family.to_owned(),
                socket.address.clone(),
                socket.port.to_string(),
                socket.device.clone().unwrap_or_else(|| "-".to_owned()),
                mark(socket.fwmark),
                socket.shards.to_string(),
            ]);
        }
        if self.sockets.is_empty() {
            table.note("it does not listen: no private key is set yet");
        }
        table.render()
    }
}

/// A firewall mark as `wg` prints it.
pub(crate) fn mark(fwmark: u32) -> String {
    if fwmark == 0 {
        "off".to_owned()
    } else {
        format!("{fwmark:#x}")
    }
}
