//! `peers`: who is connected, and why someone is not.

use std::collections::HashMap;

use ringway_proto::keys::PublicKey;
use ringway_shm::ids::PeerSlot;
use ringway_shm::state::{PeerPath, PeerRecord};
use serde::Serialize;

use super::refusal::Refusal;
use super::routes::prefix;
use super::sample::{Counts, Sample};
use super::{Human, rate};
use crate::attach::Gateway;
use crate::render::table::Table;
use crate::render::units;

/// A handshake of this age still carries traffic: REJECT_AFTER_TIME of the white paper.
const SESSION_SECONDS: f64 = 180.0;

/// All peers.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Peers {
    /// The peers, by slot.
    pub(crate) peers: Vec<Peer>,
    /// The last handshake that failed and was of no known peer.
    pub(crate) last_refusal: Option<Refusal>,
}

/// A peer.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Peer {
    /// Its name in the configuration.
    pub(crate) name: Option<String>,
    /// Its key in base64.
    pub(crate) public_key: String,
    /// Where it was last heard, or was configured to be.
    pub(crate) endpoint: Option<String>,
    /// Which inner addresses are its own.
    pub(crate) allowed_ips: Vec<String>,
    /// Seconds since the last handshake; null: never.
    pub(crate) last_handshake_seconds: Option<f64>,
    /// Whether there is a session to send on.
    pub(crate) connected: bool,
    /// Bytes from it, as `wg show transfer` counts.
    pub(crate) rx_bytes: u64,
    /// Bytes to it.
    pub(crate) tx_bytes: u64,
    /// Data messages from it.
    pub(crate) rx_packets: u64,
    /// Data messages to it.
    pub(crate) tx_packets: u64,
    /// Bits a second from and to it.
    #[serde(flatten)]
    pub(crate) rates: Option<Rates>,
    /// How many lanes there are to send on.
    pub(crate) lanes: u32,
    /// The cipher of its lanes.
    pub(crate) cipher: &'static str,
    /// Seconds between keepalives; null: off.
    pub(crate) persistent_keepalive_seconds: Option<u16>,
    /// Whether a preshared key is set.
    pub(crate) has_preshared_key: bool,
    /// The path's MTU outside in bytes; null: unknown.
    pub(crate) path_mtu_bytes: Option<u16>,
    /// The last handshake that came to nothing.
    pub(crate) last_refusal: Option<Refusal>,
}

/// Transfer each second.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Rates {
    /// Bits from the peer.
    pub(crate) rx_bits_per_second: f64,
    /// Bits to the peer.
    pub(crate) tx_bits_per_second: f64,
}

impl Peers {
    /// Reads all peers; rates since `before`.
    pub(crate) fn read(gateway: &Gateway, now: &Sample, before: Option<&Sample>) -> Peers {
        let mut allowed: HashMap<PeerSlot, Vec<String>> = HashMap::new();
        for route in gateway.state.routes().entries() {
            allowed.entry(route.peer).or_default().push(prefix(&route));
        }
        let seconds = before.map_or(0.0, |b| units::seconds_between(b.boot_ns, now.boot_ns));
        let slots = 0..gateway.state.peer_high_water();
        let peers = slots.map(PeerSlot).filter_map(|slot| {
            let record = gateway.state.peer(slot)?;
            let path = gateway.state.peer_path(slot);
            let at = |sample: &Sample| sample.peers.get(slot.index()).cloned().unwrap_or_default();
            let mut peer = Peer::new(&record, path.as_ref(), &at(now), now.unix_ns);
            peer.allowed_ips = allowed.remove(&slot).unwrap_or_default();
            peer.rates = before.map(|before| Rates::new(&at(before), &at(now), seconds));
            Some(peer)
        });
        let gateway_refusal = gateway
            .state
            .gateway()
            .and_then(|gateway| gateway.last_refusal);
        Peers {
            peers: peers.collect(),
            last_refusal: gateway_refusal.map(|record| Refusal::new(&record, now.unix_ns)),
        }
    }
}

impl Peer {
    fn new(record: &PeerRecord, path: Option<&PeerPath>, traffic: &Counts, unix_ns: u64) -> Peer {
        let since = |ns: u64| units::rounded(units::seconds_between(ns, unix_ns));
        let lanes = u32::from(path.is_some_and(|path| path.lane.is_some()));
        Peer {
            name: (!record.name.is_empty()).then(|| record.name.to_string()),
            public_key: PublicKey::from_bytes(record.public_key).to_base64(),
            endpoint: path.and_then(|path| Some(path.endpoint?.remote.to_string())),
            allowed_ips: Vec::new(),
            last_handshake_seconds: (record.last_handshake_unix_ns != 0)
                .then(|| since(record.last_handshake_unix_ns)),
            connected: lanes > 0
                && record.last_handshake_unix_ns != 0
                && since(record.last_handshake_unix_ns) < SESSION_SECONDS,
            rx_bytes: traffic.rx_bytes.saturating_add(record.handshake_rx_bytes),
            tx_bytes: traffic.tx_bytes.saturating_add(record.handshake_tx_bytes),
            rx_packets: traffic.rx_packets,
            tx_packets: traffic.tx_packets,
            rates: None,
            lanes,
            cipher: "chacha20poly1305",
            persistent_keepalive_seconds: (record.keepalive_seconds != 0)
                .then_some(record.keepalive_seconds),
            has_preshared_key: record.has_preshared_key,
            path_mtu_bytes: path.map(|path| path.path_mtu).filter(|&mtu| mtu != 0),
            last_refusal: record
                .refusal
                .as_ref()
                .map(|refusal| Refusal::new(refusal, unix_ns)),
        }
    }

    /// The name, or where there is none the key.
    fn label(&self) -> &str {
        self.name.as_deref().unwrap_or(&self.public_key)
    }

    /// What a person should know of the last refusal; a handshake since then settles it.
    fn refusal_text(&self) -> Option<String> {
        let refusal = self.last_refusal.as_ref()?;
        let settled = self
            .last_handshake_seconds
            .is_some_and(|age| age < refusal.age_seconds);
        Some(if settled {
            format!(
                "last refusal: {} (a handshake succeeded since)",
                refusal.summary()
            )
        } else {
            format!("! last refusal: {}: {}", refusal.summary(), refusal.hint)
        })
    }
}

impl Rates {
    fn new(before: &Counts, now: &Counts, seconds: f64) -> Rates {
        Rates {
            rx_bits_per_second: rate(before.rx_bytes, now.rx_bytes, seconds / 8.0),
            tx_bits_per_second: rate(before.tx_bytes, now.tx_bytes, seconds / 8.0),
        }
    }
}

impl Human for Peers {
    fn human(&self, _name: &str) -> String {
        let with_rates = self.peers.iter().any(|peer| peer.rates.is_some());
        let mut heads = vec!["PEER", "ENDPOINT", ">HANDSHAKE", ">RX", ">TX"];
        if with_rates {
            heads.extend([">RX RATE", ">TX RATE"]);
        }
        heads.extend([">LANES", "CIPHER", "ALLOWED IPS"]);
        let mut table = Table::new(&heads);
        for peer in &self.peers {
            let mut cells = vec![
                peer.label().to_owned(),
                peer.endpoint.clone().unwrap_or_else(|| "-".to_owned()),
                peer.last_handshake_seconds.map_or_else(
                    || "never".to_owned(),
                    |age| format!("{} ago", units::age(age)),
                ),
                units::bytes(peer.rx_bytes),
                units::bytes(peer.tx_bytes),
            ];
            if with_rates {
                let rates = peer.rates.as_ref();
                let cell =
                    |rate: Option<f64>| rate.map_or_else(String::new, units::bits_per_second);
                cells.push(cell(rates.map(|rates| rates.rx_bits_per_second)));
                cells.push(cell(rates.map(|rates| rates.tx_bits_per_second)));
            }
            cells.push(peer.lanes.to_string());
            cells.push(peer.cipher.to_owned());
            cells.push(some_of(&peer.allowed_ips));
            table.row(cells);
            if let Some(text) = peer.refusal_text() {
                table.note(&text);
            }
        }
        if self.peers.is_empty() {
            table.note("no peers: add some to the configuration, or with `wg set`");
        }
        if let Some(refusal) = &self.last_refusal {
            table.note(&format!(
                "! last handshake of nobody known: {}: {}",
                refusal.summary(),
                refusal.hint
            ));
        }
        table.render()
    }
}

/// A few prefixes, and how many more there are: JSON has them all, and so has `ringway routes`.
fn some_of(prefixes: &[String]) -> String {
    const SHOWN: usize = 4;
    match prefixes.len() {
        0 => "(none)".to_owned(),
        count if count <= SHOWN => prefixes.join(", "),
        count => format!("{}, … {} more", prefixes[..SHOWN].join(", "), count - SHOWN),
    }
}
