//! `workers`: the processes of a gateway and what each of them moves.

use std::fs;

use ringway_shm::process::ProcessState;
use serde::Serialize;

use super::Human;
use super::moved::Moved;
use super::sample::{self, Counts, Sample};
use crate::render::table::Table;
use crate::render::units;

/// The kernel's word for a process that is not there any more.
pub(crate) const DEAD: &str = "dead";

/// All processes.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Workers {
    /// The workers, by slot.
    pub(crate) workers: Vec<Worker>,
    /// All workers together.
    pub(crate) total: Moved,
    /// The writer of the tables.
    pub(crate) meta: Process,
    /// Does slow things for meta.
    pub(crate) helper: Process,
    /// Starts and watches the others.
    pub(crate) supervisor: Process,
}

/// A worker.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Worker {
    /// Its place.
    pub(crate) slot: u8,
    /// The process.
    #[serde(flatten)]
    pub(crate) process: Process,
    /// The shards that it owns.
    pub(crate) shards: Vec<u8>,
    /// What it moved.
    #[serde(flatten)]
    pub(crate) moved: Moved,
}

/// A process.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Process {
    /// Process id; null while there is none.
    pub(crate) pid: Option<u32>,
    /// The CPU that it is pinned to.
    pub(crate) cpu: Option<u32>,
    /// What the supervisor says: starting, running, draining, stuck, backoff, failed.
    pub(crate) state: &'static str,
    /// What the kernel says: running, stopped, dead; null while there is no process.
    pub(crate) kernel_state: Option<&'static str>,
    /// How often it was started again.
    pub(crate) restarts: u32,
    /// Seconds since its start.
    pub(crate) uptime_seconds: Option<f64>,
    /// Seconds since it last finished a turn; null where it never did.
    pub(crate) heartbeat_age_seconds: Option<f64>,
    /// Share of the last second that it was at work; null where only one sample was taken, and where a process
    /// does not count its work.
    pub(crate) busy_fraction: Option<f64>,
    /// Turns of its loop.
    pub(crate) turns: u64,
    /// Doorbells that woke it.
    pub(crate) wakeups: u64,
}

impl Workers {
    /// From one sample, or two: busy shares since `second_ago`, rates since `before`.
    pub(crate) fn new(
        now: &Sample,
        second_ago: Option<&Sample>,
        before: Option<&Sample>,
    ) -> Workers {
        let seconds = before.map_or(0.0, |b| units::seconds_between(b.boot_ns, now.boot_ns));
        let process = |of: fn(&Sample) -> &sample::Process| {
            Process::new(
                of(now),
                now,
                second_ago.map(|earlier| (of(earlier), earlier)),
            )
        };
        let workers = now.workers.iter().enumerate().map(|(slot, worker)| {
            let earlier =
                second_ago.and_then(|sample| Some((&sample.workers.get(slot)?.process, sample)));
            let counts_before = before.and_then(|sample| Some(&sample.workers.get(slot)?.counts));
            Worker {
                slot: slot as u8,
                process: Process::new(&worker.process, now, earlier),
                shards: worker.shards.clone(),
                moved: Moved::new(&worker.counts, counts_before, seconds),
            }
        });
        let sum = |sample: &Sample| {
            let drops = sample
                .workers
                .iter()
                .map(|worker| worker.counts.all_drops())
                .sum();
            Counts {
                drops: vec![drops],
                ..sample.total()
            }
        };
        Workers {
            workers: workers.collect(),
            total: Moved::new(&sum(now), before.map(sum).as_ref(), seconds),
            meta: process(|sample| &sample.meta),
            helper: process(|sample| &sample.helper),
            supervisor: process(|sample| &sample.supervisor),
        }
    }
}

impl Process {
    fn new(
        process: &sample::Process,
        now: &Sample,
        earlier: Option<(&sample::Process, &Sample)>,
    ) -> Process {
        let since =
            |ns: u64| (ns != 0).then(|| units::rounded(units::seconds_between(ns, now.boot_ns)));
        // A process without turns does not say when it works.
        let earlier = earlier.filter(|(before, _)| before.pid == process.pid && process.turns > 0);
        let busy = earlier.map(|(before, sample)| {
            let busy = units::seconds_between(before.busy_ns, process.busy_ns);
            let all = units::seconds_between(sample.boot_ns, now.boot_ns);
            if all > 0.0 {
                units::rounded((busy / all).min(1.0))
            } else {
                0.0
            }
        });
        Process {
            pid: process.pid,
            cpu: process.cpu,
            state: process.state.as_str(),
            kernel_state: process.pid.map(kernel_state),
            restarts: process.restarts,
            uptime_seconds: process.pid.and_then(|_| since(process.started_ns)),
            heartbeat_age_seconds: since(process.heartbeat_ns),
            busy_fraction: busy,
            turns: process.turns,
            wakeups: process.wakeups,
        }
    }

    /// The state for a person: the supervisor's word, and the kernel's where that says more.
    fn state_text(&self) -> String {
        match self.kernel_state {
            Some(state @ ("stopped" | DEAD)) => format!("{} ({state})", self.state),
            _ if self.state == ProcessState::Empty.as_str() => "-".to_owned(),
            _ => self.state.to_owned(),
        }
    }
}

impl Human for Workers {
    fn human(&self, _name: &str) -> String {
        let mut heads = vec!["PROCESS", ">PID", ">CPU", "SHARDS", "STATE", ">BUSY"];
        heads.extend(self.total.heads());
        let mut table = Table::new(&heads);
        for worker in &self.workers {
            let mut cells = vec![format!("worker {}", worker.slot)];
            cells.extend(fixed(&worker.process, &runs(&worker.shards)));
            cells.extend(worker.moved.cells());
            table.row(cells);
        }
        if self.workers.len() > 1 {
            let mut cells = vec!["all workers".to_owned()];
            cells.resize(6, String::new());
            cells.extend(self.total.cells());
            table.row(cells);
        }
        let others = [
            ("meta", &self.meta),
            ("helper", &self.helper),
            ("supervisor", &self.supervisor),
        ];
        for (role, process) in others {
            let mut cells = vec![role.to_owned()];
            cells.extend(fixed(process, ""));
            table.row(cells);
        }
        table.render()
    }
}

fn fixed(process: &Process, shards: &str) -> [String; 5] {
    [
        process
            .pid
            .map_or_else(|| "-".to_owned(), |pid| pid.to_string()),
        process
            .cpu
            .map_or_else(|| "-".to_owned(), |cpu| cpu.to_string()),
        shards.to_owned(),
        process.state_text(),
        process
            .busy_fraction
            .map_or_else(String::new, units::percent),
    ]
}

/// `0-3,6` of 0, 1, 2, 3, 6; `0,2,4` stays.
fn runs(shards: &[u8]) -> String {
    let mut text = String::new();
    let mut at = 0;
    while at < shards.len() {
        let mut end = at;
        while end + 1 < shards.len() && shards[end + 1] == shards[end] + 1 {
            end += 1;
        }
        if !text.is_empty() {
            text.push(',');
        }
        text.push_str(&shards[at].to_string());
        if end > at {
            text.push(if end == at + 1 { ',' } else { '-' });
            text.push_str(&shards[end].to_string());
        }
        at = end + 1;
    }
    text
}

/// proc(5): the state is the first field behind the parenthesis that closes the command's name.
pub(crate) fn kernel_state(pid: u32) -> &'static str {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat
        .rsplit_once(") ")
        .and_then(|(_, rest)| rest.chars().next());
    match state {
        None | Some('Z' | 'X') => DEAD,
        Some('T' | 't') => "stopped",
        Some(_) => "running",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_are_written_as_runs() {
        assert_eq!(runs(&[]), "");
        assert_eq!(runs(&[0, 2, 4]), "0,2,4");
        assert_eq!(runs(&[0, 1, 2, 3, 6, 7]), "0-3,6,7");
    }

    #[test]
    fn the_kernel_knows_who_lives() {
        assert_eq!(kernel_state(std::process::id()), "running");
        assert_eq!(kernel_state(u32::MAX), "dead");
    }
}
