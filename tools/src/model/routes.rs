//! `routes`: which peer an inner address belongs to.

use std::net::IpAddr;

use ringway_proto::keys::PublicKey;
use ringway_shm::ids::PeerSlot;
use ringway_shm::routes::Route as Entry;
use serde::Serialize;

use super::Human;
use crate::attach::Gateway;
use crate::render::table::Table;

/// The routing table, or one look-up in it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Routes {
    /// The address that was asked for.
    #[serde(rename = "for", skip_serializing_if = "Option::is_none")]
    pub(crate) address: Option<IpAddr>,
    /// How many routes the gateway has.
    pub(crate) used: u64,
    /// How many it can have.
    pub(crate) capacity: u32,
    /// The routes; of a look-up the one that wins, or none.
    pub(crate) routes: Vec<Route>,
}

/// A route.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Route {
    /// The addresses.
    pub(crate) prefix: String,
    /// The peer's name in the configuration.
    pub(crate) peer: Option<String>,
    /// The peer's key in base64; null while the peer is being removed.
    pub(crate) public_key: Option<String>,
}

impl Routes {
    /// The whole table, or the route that `address` takes.
    pub(crate) fn read(gateway: &Gateway, address: Option<IpAddr>) -> Routes {
        let table = gateway.state.routes();
        let entries = table.entries();
        let used = entries.len() as u64;
        let shown = match address {
            None => entries,
            // What the workers would do decides; the entry only tells by which prefix.
            Some(address) => {
                let winner = table.lookup(address);
                let covering = entries
                    .into_iter()
                    .filter(|entry| Some(entry.peer) == winner && covers(entry, address));
                covering
                    .max_by_key(|entry| entry.length)
                    .into_iter()
                    .collect()
            }
        };
        Routes {
            address,
            used,
            capacity: gateway.geometry.routes,
            routes: shown
                .iter()
                .map(|entry| Route::new(gateway, entry))
                .collect(),
        }
    }
}

impl Route {
    fn new(gateway: &Gateway, entry: &Entry) -> Route {
        let record = gateway.state.peer(PeerSlot(entry.peer.0));
        Route {
            prefix: prefix(entry),
            peer: record
                .as_ref()
                .filter(|record| !record.name.is_empty())
                .map(|record| record.name.to_string()),
            public_key: record.map(|record| PublicKey::from_bytes(record.public_key).to_base64()),
        }
    }
}

impl Human for Routes {
    fn human(&self, _name: &str) -> String {
        let mut table = Table::new(&["PREFIX", "PEER", "PUBLIC KEY"]);
        for route in &self.routes {
            table.row([
                route.prefix.clone(),
                route.peer.clone().unwrap_or_else(|| "-".to_owned()),
                route.public_key.clone().unwrap_or_else(|| "-".to_owned()),
            ]);
        }
        if self.routes.is_empty() {
            table.note(&match self.address {
                Some(address) => format!(
                    "no peer's allowed IPs cover {address}: packets to it are dropped (no_route)"
                ),
                None => "no routes: give the peers AllowedIPs".to_owned(),
            });
        }
        table.render()
    }
}

/// `10.0.0.0/8`.
pub(crate) fn prefix(entry: &Entry) -> String {
    format!("{}/{}", entry.address, entry.length)
}

fn covers(entry: &Entry, address: IpAddr) -> bool {
    let (network, address, width) = match (entry.address, address) {
        (IpAddr::V4(network), IpAddr::V4(address)) => (
            u128::from(u32::from(network)),
            u128::from(u32::from(address)),
            32,
        ),
        (IpAddr::V6(network), IpAddr::V6(address)) => (network.into(), address.into(), 128),
        _ => return false,
    };
    let host_bits = u32::from(u8::saturating_sub(width, entry.length));
    let network: u128 = network;
    let address: u128 = address;
    network.checked_shr(host_bits).unwrap_or(0) == address.checked_shr(host_bits).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_cover_their_own_family() {
        let entry = |text: &str, length| Entry {
            address: text.parse().unwrap(),
            length,
            peer: PeerSlot(0),
        };
        let covers = |text: &str, length, address: &str| {
            super::covers(&entry(text, length), address.parse().unwrap())
        };
        assert!(covers("10.1.0.0", 16, "10.1.255.255"));
        assert!(!covers("10.1.0.0", 16, "10.2.0.0"));
        assert!(covers("0.0.0.0", 0, "255.255.255.255"));
        assert!(!covers("0.0.0.0", 0, "::"));
        assert!(covers("::", 0, "ffff::1"));
        assert!(covers("fd00::1", 128, "fd00::1"));
        assert!(!covers("fd00::1", 128, "fd00::2"));
    }
}
