//! One reading of all counters, so that two of them make rates.

use std::sync::atomic::{AtomicU64, Ordering};

use nix::time::{ClockId, clock_gettime};
use ringway_shm::counters::DropReason;
use ringway_shm::ids::{PeerSlot, ShardId, WorkerSlot};
use ringway_shm::process::{NOT_PINNED, ProcessSlot, ProcessState, Role};
use ringway_shm::rings::RingStat;

use super::interface::queue_drops as queue_drops_seen_by;
use crate::attach::Gateway;

/// What was read at one moment.
#[derive(Debug, Clone)]
pub(crate) struct Sample {
    /// CLOCK_BOOTTIME, nanoseconds.
    pub(crate) boot_ns: u64,
    /// Nanoseconds since the Unix epoch.
    pub(crate) unix_ns: u64,
    /// The supervisor.
    pub(crate) supervisor: Process,
    /// Meta.
    pub(crate) meta: Process,
    /// The helper.
    pub(crate) helper: Process,
    /// Meta's counters.
    pub(crate) meta_counts: Counts,
    /// The workers, by slot.
    pub(crate) workers: Vec<Worker>,
    /// Transfer by peer slot.
    pub(crate) peers: Vec<Counts>,
    /// The rings.
    pub(crate) rings: Vec<RingStat>,
    /// Packets that the kernel dropped since the TUN queue was full; `None` where that can't be seen.
    pub(crate) queue_drops: Option<u64>,
}

/// A process's slot.
#[derive(Debug, Clone)]
pub(crate) struct Process {
    /// Process id, `None` while there is no process.
    pub(crate) pid: Option<u32>,
    /// What the supervisor says of it.
    pub(crate) state: ProcessState,
    /// The CPU it is pinned to.
    pub(crate) cpu: Option<u32>,
    /// How often it was started again.
    pub(crate) restarts: u32,
    /// When it was started.
    pub(crate) started_ns: u64,
    /// When it last finished a turn.
    pub(crate) heartbeat_ns: u64,
    /// Time at work in all.
    pub(crate) busy_ns: u64,
    /// Turns in all.
    pub(crate) turns: u64,
    /// Doorbells that woke it.
    pub(crate) wakeups: u64,
}

/// A worker's slot and counters.
#[derive(Debug, Clone)]
pub(crate) struct Worker {
    /// Its process.
    pub(crate) process: Process,
    /// The shards that it owns.
    pub(crate) shards: Vec<u8>,
    /// What it counted.
    pub(crate) counts: Counts,
}

/// Counters that processes and peers share.
#[derive(Debug, Clone, Default)]
pub(crate) struct Counts {
    /// Messages from the network.
    pub(crate) rx_packets: u64,
    /// Their bytes.
    pub(crate) rx_bytes: u64,
    /// Messages to the network.
    pub(crate) tx_packets: u64,
    /// Their bytes.
    pub(crate) tx_bytes: u64,
    /// Drops by reason; empty where there are none to count.
    pub(crate) drops: Vec<u64>,
}

impl Sample {
    /// Reads everything now.
    pub(crate) fn take(gateway: &Gateway) -> Sample {
        let rings = &gateway.rings;
        let slots = (0..rings.workers()).map(WorkerSlot);
        let meta = rings.meta_counters();
        Sample {
            boot_ns: now(ClockId::CLOCK_BOOTTIME),
            unix_ns: now(ClockId::CLOCK_REALTIME),
            supervisor: Process::read(rings.process(Role::Supervisor)),
            meta: Process::read(rings.process(Role::Meta)),
            helper: Process::read(rings.process(Role::Helper)),
            meta_counts: Counts {
                rx_packets: get(&meta.rx_packets),
                rx_bytes: get(&meta.rx_bytes),
                tx_packets: get(&meta.tx_packets),
                tx_bytes: get(&meta.tx_bytes),
                drops: meta.drops.iter().map(get).collect(),
            },
            workers: slots.map(|slot| Worker::read(gateway, slot)).collect(),
            peers: (0..gateway.state.peer_high_water())
                .map(|slot| Counts::of_peer(gateway, PeerSlot(slot)))
                .collect(),
            rings: rings.list(),
            queue_drops: queue_drops(gateway),
        }
    }

    /// The sum over all workers.
    pub(crate) fn total(&self) -> Counts {
        let mut sum = Counts::default();
        for worker in &self.workers {
            sum.rx_packets += worker.counts.rx_packets;
            sum.rx_bytes += worker.counts.rx_bytes;
            sum.tx_packets += worker.counts.tx_packets;
            sum.tx_bytes += worker.counts.tx_bytes;
        }
        sum
    }

    /// All drops, of workers and meta; not the kernel's.
    pub(crate) fn drops(&self) -> u64 {
        let workers: u64 = self
            .workers
            .iter()
            .map(|worker| worker.counts.all_drops())
            .sum();
        workers + self.meta_counts.all_drops()
    }

    /// Who dropped: each process with drop counters and its name.
    pub(crate) fn droppers(&self) -> impl Iterator<Item = (String, &Counts)> {
        let workers = self.workers.iter().enumerate();
        let workers = workers.map(|(slot, worker)| (format!("worker{slot}"), &worker.counts));
        workers.chain([("meta".to_owned(), &self.meta_counts)])
    }
}

impl Process {
    fn read(slot: &ProcessSlot) -> Process {
        let pid = slot.pid.load(Ordering::Relaxed);
        let cpu = slot.cpu.load(Ordering::Relaxed);
        Process {
            pid: (pid != 0).then_some(pid),
            state: slot.state(),
            cpu: (cpu != NOT_PINNED).then_some(cpu),
            restarts: slot.restarts.load(Ordering::Relaxed),
            started_ns: get(&slot.started_ns),
            heartbeat_ns: get(&slot.heartbeat_ns),
            busy_ns: get(&slot.busy_ns),
            turns: get(&slot.turns),
            wakeups: get(&slot.wakeups),
        }
    }
}

impl Worker {
    fn read(gateway: &Gateway, slot: WorkerSlot) -> Worker {
        let counters = gateway.rings.counters(slot);
        let shards = (0..gateway.geometry.shards).filter(|&shard| {
            let owner = gateway
                .rings
                .shard_owner(ShardId(shard))
                .load(Ordering::Relaxed);
            owner == u32::from(slot.0)
        });
        Worker {
            process: Process::read(gateway.rings.process(Role::Worker(slot))),
            shards: shards.collect(),
            counts: Counts {
                rx_packets: get(&counters.rx_packets),
                rx_bytes: get(&counters.rx_bytes),
                tx_packets: get(&counters.tx_packets),
                tx_bytes: get(&counters.tx_bytes),
                drops: counters.drops.iter().map(get).collect(),
            },
        }
    }
}

impl Counts {
    fn of_peer(gateway: &Gateway, slot: PeerSlot) -> Counts {
        let traffic = gateway.rings.traffic(slot);
        Counts {
            rx_packets: get(&traffic.rx_packets),
            rx_bytes: get(&traffic.rx_bytes),
            tx_packets: get(&traffic.tx_packets),
            tx_bytes: get(&traffic.tx_bytes),
            drops: Vec::new(),
        }
    }

    /// Drops for any reason.
    pub(crate) fn all_drops(&self) -> u64 {
        self.drops.iter().sum()
    }

    /// Drops for one reason.
    pub(crate) fn drops_for(&self, reason: DropReason) -> u64 {
        self.drops.get(reason as usize).copied().unwrap_or(0)
    }
}

/// Any process of the gateway that lives is in the namespace that it was started in.
fn queue_drops(gateway: &Gateway) -> Option<u64> {
    let workers = (0..gateway.rings.workers()).map(|slot| Role::Worker(WorkerSlot(slot)));
    let mut roles = [Role::Supervisor, Role::Meta].into_iter().chain(workers);
    roles.find_map(|role| {
        let pid = gateway.rings.process(role).pid.load(Ordering::Relaxed);
        queue_drops_seen_by(pid, &gateway.name)
    })
}

fn get(word: &AtomicU64) -> u64 {
    word.load(Ordering::Relaxed)
}

fn now(clock: ClockId) -> u64 {
    clock_gettime(clock).map_or(0, |time| {
        time.tv_sec() as u64 * 1_000_000_000 + time.tv_nsec() as u64
    })
}
