//! `drops`: what was dropped, by whom, where on the path, and why.

use ringway_shm::counters::DropReason;
use serde::Serialize;

use super::sample::Sample;
use super::{Human, rate};
use crate::render::table::Table;
use crate::render::units;

/// All drops.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Drops {
    /// Dropped packets of all processes and reasons, and of the TUN queue.
    pub(crate) total: u64,
    /// By process and reason, the most first; what never happened is left out.
    pub(crate) drops: Vec<Drop>,
}

/// What one process dropped for one reason.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Drop {
    /// Why, in `snake_case`.
    pub(crate) reason: &'static str,
    /// Where on the path: tun, udp, crypto, policy, ring, handshake.
    pub(crate) stage: &'static str,
    /// Which process: `worker0`, …, `meta`, or `kernel` for what no process saw.
    pub(crate) process: String,
    /// How many packets.
    pub(crate) count: u64,
    /// How many each second; null where only one sample was taken.
    pub(crate) per_second: Option<f64>,
    /// What it means and what to do.
    pub(crate) hint: &'static str,
}

impl Drops {
    /// From one sample, with rates since `before`.
    pub(crate) fn new(now: &Sample, before: Option<&Sample>) -> Drops {
        let seconds = before.map_or(0.0, |b| units::seconds_between(b.boot_ns, now.boot_ns));
        let earlier = |process: &str, reason| {
            let mut droppers = before?.droppers();
            droppers
                .find(|(name, _)| name == process)
                .map(|(_, counts)| counts.drops_for(reason))
        };
        let mut drops = Vec::new();
        for (process, counts) in now.droppers() {
            for &reason in DropReason::ALL {
                let count = counts.drops_for(reason);
                if count > 0 {
                    drops.push(Drop {
                        reason: reason.as_str(),
                        stage: reason.stage(),
                        process: process.clone(),
                        count,
                        per_second: earlier(&process, reason).map(|was| rate(was, count, seconds)),
                        hint: reason.hint(),
                    });
                }
            }
        }
        if let Some(count) = now.queue_drops.filter(|&count| count > 0) {
            let earlier = before.and_then(|before| before.queue_drops);
            drops.push(Drop {
                reason: "tun_queue_full",
                stage: "tun",
                process: "kernel".to_owned(),
                count,
                per_second: earlier.map(|was| rate(was, count, seconds)),
                hint: "Packets came into the interface faster than the workers read them, which is how a sender learns its pace; steady growth with busy workers means more cores are needed.",
            });
        }
        drops.sort_by_key(|drop| std::cmp::Reverse(drop.count));
        Drops {
            total: now.drops() + now.queue_drops.unwrap_or(0),
            drops,
        }
    }
}

impl Human for Drops {
    fn human(&self, _name: &str) -> String {
        if self.drops.is_empty() {
            return "nothing was dropped\n".to_owned();
        }
        let mut table = Table::new(&[">COUNT", ">PER SECOND", "PROCESS", "STAGE", "REASON"]);
        for drop in &self.drops {
            table.row([
                drop.count.to_string(),
                drop.per_second.map_or_else(String::new, units::count),
                drop.process.clone(),
                drop.stage.to_owned(),
                drop.reason.to_owned(),
            ]);
            table.note(&format!("{:>5}  {}", "", drop.hint));
        }
        table.render()
    }
}
