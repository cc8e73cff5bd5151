//! `status`: the gateway at a glance.

use std::path::PathBuf;

use ringway_proto::control::Info;
use ringway_proto::keys::PublicKey;
use serde::Serialize;

use super::Human;
use super::moved::Moved;
use super::peers::Peers;
use super::refusal::Refusal;
use super::sample::Sample;
use super::sockets::mark;
use crate::attach::Gateway;
use crate::render::table::pairs;
use crate::render::units;

/// A gateway.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Status {
    /// The supervisor's version; null while it does not answer.
    pub(crate) version: Option<String>,
    /// The supervisor's process id.
    pub(crate) pid: Option<u32>,
    /// Whether the supervisor answers.
    pub(crate) supervisor_answers: bool,
    /// Seconds since the start.
    pub(crate) uptime_seconds: Option<f64>,
    /// The configuration file; null where `wg` configures it, or the supervisor does not answer.
    pub(crate) config_path: Option<PathBuf>,
    /// The gateway's public key; null: none is set.
    pub(crate) public_key: Option<String>,
    /// The UDP port; null: it does not listen.
    pub(crate) listen_port: Option<u16>,
    /// The firewall mark; 0: none.
    pub(crate) fwmark: u32,
    /// The interface's MTU.
    pub(crate) mtu_bytes: u16,
    /// Whether the interface is up.
    pub(crate) link_up: bool,
    /// How the workers wait; null while the supervisor does not answer.
    pub(crate) poll: Option<String>,
    /// Workers.
    pub(crate) workers: u64,
    /// Workers that run, by the supervisor's word.
    pub(crate) workers_running: u64,
    /// Shards.
    pub(crate) shards: u8,
    /// Peers.
    pub(crate) peers: u64,
    /// Peers with a session.
    pub(crate) peers_connected: u64,
    /// Routes.
    pub(crate) routes: u64,
    /// What all workers moved.
    #[serde(flatten)]
    pub(crate) moved: Moved,
    /// The last handshake that failed and was of no known peer.
    pub(crate) last_refusal: Option<Refusal>,
}

impl Status {
    /// Reads the state; `info` is what the supervisor says, where it answers; rates since `before`.
    pub(crate) fn read(
        gateway: &Gateway,
        info: Option<&Info>,
        now: &Sample,
        before: Option<&Sample>,
    ) -> Status {
        let record = gateway.state.gateway();
        let key = record
            .as_ref()
            .map(|record| record.public_key)
            .filter(|key| *key != [0; 32]);
        let peers = Peers::read(gateway, now, None);
        let seconds = before.map_or(0.0, |b| units::seconds_between(b.boot_ns, now.boot_ns));
        let sum = |sample: &Sample| {
            let mut sum = sample.total();
            sum.drops = vec![sample.drops()];
            sum
        };
        let running = now
            .workers
            .iter()
            .filter(|worker| worker.process.state == ringway_shm::process::ProcessState::Running);
        Status {
            version: info.map(|info| info.version.clone()),
            pid: now.supervisor.pid.or(info.map(|info| info.pid)),
            supervisor_answers: info.is_some(),
            uptime_seconds: uptime(info, now),
            config_path: info.and_then(|info| info.config_path.clone()),
            public_key: key.map(|key| PublicKey::from_bytes(key).to_base64()),
            listen_port: record
                .as_ref()
                .map(|record| record.listen_port)
                .filter(|&port| port != 0),
            fwmark: record.as_ref().map_or(0, |record| record.fwmark),
            mtu_bytes: record.as_ref().map_or(0, |record| record.mtu),
            link_up: record.as_ref().is_some_and(|record| record.link_up),
            poll: info.map(|info| info.poll.to_string()),
            workers: now.workers.len() as u64,
            workers_running: running.count() as u64,
            shards: gateway.geometry.shards,
            peers: peers.peers.len() as u64,
            peers_connected: peers.peers.iter().filter(|peer| peer.connected).count() as u64,
            routes: gateway.state.routes().len() as u64,
            moved: Moved::new(&sum(now), before.map(sum).as_ref(), seconds),
            last_refusal: peers.last_refusal,
        }
    }
}

impl Human for Status {
    fn human(&self, name: &str) -> String {
        let up = if self.link_up { "up" } else { "down" };
        let supervisor = match (self.pid, &self.version) {
            (Some(pid), Some(version)) => format!("pid {pid}, version {version}"),
            (Some(pid), None) => format!("pid {pid}, does not answer"),
            (None, _) => "gone".to_owned(),
        };
        let none = || "(none)".to_owned();
        let mut lines = vec![
            ("interface", format!("{name}, {up}, MTU {}", self.mtu_bytes)),
            ("public key", self.public_key.clone().unwrap_or_else(none)),
            (
                "listening port",
                self.listen_port.map_or_else(none, |port| port.to_string()),
            ),
            ("fwmark", mark(self.fwmark)),
            ("supervisor", supervisor),
        ];
        if let Some(seconds) = self.uptime_seconds {
            lines.push(("running since", format!("{} ago", units::age(seconds))));
        }
        if self.supervisor_answers {
            let path = self.config_path.as_ref();
            let path = path.map_or_else(
                || "(configured by wg)".to_owned(),
                |p| p.display().to_string(),
            );
            lines.push(("configuration", path));
        }
        let poll = self
            .poll
            .as_ref()
            .map_or_else(String::new, |poll| format!(", poll {poll}"));
        lines.extend([
            (
                "workers",
                format!(
                    "{} of {} running, {} shards{poll}",
                    self.workers_running, self.workers, self.shards
                ),
            ),
            (
                "peers",
                format!("{}, {} connected", self.peers, self.peers_connected),
            ),
            ("routes", self.routes.to_string()),
            (
                "received",
                format!(
                    "{} in {} packets",
                    units::bytes(self.moved.rx_bytes),
                    self.moved.rx_packets
                ),
            ),
            (
                "sent",
                format!(
                    "{} in {} packets",
                    units::bytes(self.moved.tx_bytes),
                    self.moved.tx_packets
                ),
            ),
        ]);
        if let Some(rates) = &self.moved.rates {
            let rate = |packets: f64, bits: f64| {
                format!(
                    "{}, {} packets/s",
                    units::bits_per_second(bits),
                    units::count(packets)
                )
            };
            lines.push((
                "receiving",
                rate(rates.rx_packets_per_second, rates.rx_bits_per_second),
            ));
            lines.push((
                "sending",
                rate(rates.tx_packets_per_second, rates.tx_bits_per_second),
            ));
        }
        lines.push(("dropped", self.moved.drops.to_string()));
        if let Some(refusal) = &self.last_refusal {
            lines.push((
                "last refusal",
                format!("{}: {}", refusal.summary(), refusal.hint),
            ));
        }
        pairs(&lines)
    }
}

/// By the supervisor's slot, which is there while it is stopped too.
fn uptime(info: Option<&Info>, now: &Sample) -> Option<f64> {
    let seconds = match (now.supervisor.started_ns, info) {
        (0, None) => return None,
        (0, Some(info)) => units::seconds_between(info.started_unix_ns, now.unix_ns),
        (started, _) => units::seconds_between(started, now.boot_ns),
    };
    Some(units::rounded(seconds))
}
