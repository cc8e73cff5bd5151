//! The peers' commands: run when a peer's first session is there and when its keys are gone.
//!
//! Of one peer one command runs at a time and in order; a peer that comes and goes faster than its
//! commands end is run only as it is at last.

use super::core::Core;
use super::jobs::JobPurpose;
use crate::helper::RUNNERS;
use crate::helper::protocol::{Outcome, Work};
use ringway_proto::keys::PublicKey;
use ringway_shm::ids::PeerSlot;
use std::collections::{HashMap, HashSet, VecDeque};
use std::time::Duration;

/// A command's time.
const LIMIT: Duration = Duration::from_secs(30);
/// And how much later its answer may come.
const ANSWER: Duration = Duration::from_secs(10);

/// Commands that run and that wait.
#[derive(Debug, Default)]
pub(crate) struct Scripts {
    running: HashSet<PublicKey>,
    waiting: HashMap<PublicKey, Run>,
    order: VecDeque<PublicKey>,
}

#[derive(Debug, Clone)]
struct Run {
    up: bool,
    command: String,
    environment: Vec<(String, String)>,
}

impl Core {
    /// A peer's first session is there.
    pub(super) fn run_peer_up(&mut self, slot: PeerSlot) {
        self.run(slot, true);
    }

    /// A peer's last session is gone.
    pub(super) fn run_peer_down(&mut self, slot: PeerSlot) {
        self.run(slot, false);
    }

    /// Whether a command runs or waits.
    pub(crate) fn scripts_under_way(&self) -> bool {
        !(self.scripts.running.is_empty() && self.scripts.order.is_empty())
    }

    /// A command has ended.
    pub(super) fn script_done(&mut self, public_key: PublicKey, result: Result<Outcome, String>) {
        if let Err(error) = result {
            tracing::warn!(peer = %public_key, "{error}");
        }
        self.scripts.running.remove(&public_key);
        self.start_scripts();
    }

    fn run(&mut self, slot: PeerSlot, up: bool) {
        let Some(peer) = self.peers.get(slot) else {
            return;
        };
        let Some(command) = (if up {
            &peer.up_command
        } else {
            &peer.down_command
        }) else {
            return;
        };
        let allowed: Vec<String> = self
            .allowed
            .of(slot, None)
            .map(|prefix| prefix.to_string())
            .collect();
        let endpoint = peer.endpoint.map(|endpoint| endpoint.remote.to_string());
        let environment = vec![
            (
                "RINGWAY_INTERFACE".to_owned(),
                self.gateway.name.to_string(),
            ),
            (
                "RINGWAY_PEER".to_owned(),
                peer.name.clone().unwrap_or_default(),
            ),
            ("RINGWAY_PUBLIC_KEY".to_owned(), peer.public_key.to_base64()),
            ("RINGWAY_ENDPOINT".to_owned(), endpoint.unwrap_or_default()),
            ("RINGWAY_ALLOWED_IPS".to_owned(), allowed.join(", ")),
        ];
        let key = peer.public_key;
        let run = Run {
            up,
            command: command.clone(),
            environment,
        };
        if self.scripts.waiting.insert(key, run).is_none() {
            self.scripts.order.push_back(key);
        }
        self.start_scripts();
    }

    fn start_scripts(&mut self) {
        for _ in 0..self.scripts.order.len() {
            if self.scripts.running.len() >= RUNNERS {
                return;
            }
            let Some(key) = self.scripts.order.pop_front() else {
                return;
            };
            if self.scripts.running.contains(&key) {
                self.scripts.order.push_back(key);
                continue;
            }
            let Some(run) = self.scripts.waiting.remove(&key) else {
                continue;
            };
            tracing::debug!(peer = %key, up = run.up, "peer's command");
            self.scripts.running.insert(key);
            let work = Work::Script {
                command: run.command,
                environment: run.environment,
                timeout_ms: LIMIT.as_millis() as u32,
            };
            self.job(JobPurpose::Script { public_key: key }, work, LIMIT + ANSWER);
        }
    }
}
