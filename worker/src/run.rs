//! The worker's entry: what it is given, and how it starts.

use crate::control::FromWorker;
use crate::inlets::Inlets;
use crate::path::Context;
use crate::reports::Reports;
use crate::tables::Tables;
use crate::tun::Queue;
use crate::worker::{End, Parts, Worker};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;
use ringway_proto::config::PollMode;
use ringway_proto::timers::Constants;
use ringway_shm::doorbell::Doorbell;
use ringway_shm::ids::WorkerSlot;
use ringway_shm::keys::Keys;
use ringway_shm::lanes::Lanes;
use ringway_shm::rings::Rings;
use ringway_shm::segment::{Access, Segment, SegmentError, SegmentKind};
use ringway_shm::state::State;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Doorbells before those of the workers: supervisor, meta, helper.
const BELLS_BEFORE_WORKERS: usize = 3;

/// The descriptors that a worker is given.
#[derive(Debug)]
pub struct WorkerFds {
    /// `SOCK_SEQPACKET` to the supervisor (see [`crate::control`]).
    pub control: OwnedFd,
    /// Segment `state`, read-only.
    pub state: OwnedFd,
    /// Segment `keys`, read-only.
    pub keys: OwnedFd,
    /// Segment `lanes`, writable.
    pub lanes: OwnedFd,
    /// Segment `rings`, writable.
    pub rings: OwnedFd,
    /// The TUN queue of every shard, in order, non-blocking.
    pub tun: Vec<OwnedFd>,
    /// Doorbells: supervisor, meta, helper, then the workers by slot.
    pub doorbells: Vec<OwnedFd>,
}

/// What a worker is told at its start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WorkerSettings {
    /// Which worker this is.
    pub slot: WorkerSlot,
    /// How many workers there are. Which of them has a shard, the owner words say.
    pub workers: u8,
    /// How it waits.
    pub poll: PollMode,
    /// The CPU to stay on.
    pub cpu: Option<u16>,
}

/// Why a worker could not start or had to end.
#[derive(Debug, thiserror::Error)]
pub enum WorkerError {
    /// A system call failed in a way that the loop can't go on from.
    #[error("{what}: {error}")]
    System {
        /// What was attempted.
        what: &'static str,
        /// The kernel's answer.
        error: std::io::Error,
    },
    /// A segment could not be mapped, or lacks a ring.
    #[error("segment {segment}: {error}")]
    Segment {
        /// Its name.
        segment: &'static str,
        /// What was wrong with it.
        error: SegmentError,
    },
    /// The settings and the descriptors don't fit each other.
    #[error("worker settings: {0}")]
    Settings(String),
}

/// Runs a worker until it is told to stop, its supervisor is gone or the interface is deleted.
///
/// Blocks the calling thread; call it once, in a process of its own.
pub fn run(fds: WorkerFds, settings: WorkerSettings) -> Result<(), WorkerError> {
    if let Some(cpu) = settings.cpu {
        pin(cpu);
    }
    if settings.poll == PollMode::Napi {
        tracing::warn!("poll mode napi is not there yet: waiting as with epoll");
    }
    let mut worker = assemble(fds, settings)?;
    worker.say(&FromWorker::Ready)?;
    let end = worker.run(settings.poll)?;
    if end == End::InterfaceGone {
        // A supervisor that is gone too needs no telling.
        let _ = worker.say(&FromWorker::InterfaceGone);
    }
    tracing::debug!(worker = settings.slot.0, ?end, "worker ends");
    Ok(())
}

/// Maps the segments, takes the rings' ends and registers everything with the loop.
pub(crate) fn assemble(fds: WorkerFds, settings: WorkerSettings) -> Result<Worker, WorkerError> {
    let WorkerSettings { slot, workers, .. } = settings;
    let constants = Constants::from_env().map_err(WorkerError::Settings)?;
    let state = attach(fds.state.as_fd(), SegmentKind::State, Access::ReadOnly)?;
    let keys = attach(fds.keys.as_fd(), SegmentKind::Keys, Access::ReadOnly)?;
    let lanes = attach(fds.lanes.as_fd(), SegmentKind::Lanes, Access::ReadWrite)?;
    let rings = attach(fds.rings.as_fd(), SegmentKind::Rings, Access::ReadWrite)?;
    let geometry = state.geometry();
    check(settings, &fds, geometry.shards)?;
    let tables = Tables {
        state: State::attach(&state).map_err(named("state"))?,
        keys: Keys::attach(&keys).map_err(named("keys"))?,
        lanes: Lanes::attach(&lanes).map_err(named("lanes"))?,
        rings: Rings::attach(&rings).map_err(named("rings"))?,
        geometry,
        slot,
    };
    let mut bells = fds.doorbells.into_iter().map(Doorbell::from_fd).skip(1);
    let (Some(meta_bell), Some(_)) = (bells.next(), bells.next()) else {
        return Err(WorkerError::Settings("a doorbell is missing".to_owned()));
    };
    let worker_bells: Vec<Doorbell> = bells.take(workers.into()).collect();
    let doorbell = match worker_bells.get(slot.index()) {
        Some(bell) => Doorbell::from_fd(bell.as_fd().try_clone_to_owned().map_err(|error| {
            WorkerError::System {
                what: "duplicate the doorbell",
                error,
            }
        })?),
        None => return Err(WorkerError::Settings("a doorbell is missing".to_owned())),
    };
    let inlets = Inlets::new(&tables.rings, slot, workers).map_err(named("rings"))?;
    let reports = Reports::new(&tables.rings, slot, geometry.peers, meta_bell, worker_bells)
        .map_err(named("rings"))?;
    Worker::new(Parts {
        control: fds.control,
        doorbell,
        tuns: fds.tun.into_iter().map(Queue::new).collect(),
        inlets,
        ctx: Context::new(tables, reports, constants),
    })
}

fn check(settings: WorkerSettings, fds: &WorkerFds, shards: u8) -> Result<(), WorkerError> {
    let WorkerSettings { slot, workers, .. } = settings;
    let wrong = |what: String| Err(WorkerError::Settings(what));
    if workers == 0 || workers > shards || slot.0 >= workers {
        return wrong(format!(
            "slot {slot} of {workers} workers on {shards} shards: expected slot < workers <= shards"
        ));
    }
    if fds.tun.len() != usize::from(shards) {
        return wrong(format!(
            "{} TUN queues for {shards} shards: expected one each",
            fds.tun.len()
        ));
    }
    let bells = BELLS_BEFORE_WORKERS + usize::from(workers);
    if fds.doorbells.len() < bells {
        return wrong(format!(
            "{} doorbells: expected {bells}",
            fds.doorbells.len()
        ));
    }
    Ok(())
}

fn attach(fd: BorrowedFd<'_>, kind: SegmentKind, access: Access) -> Result<Segment, WorkerError> {
    Segment::attach(fd, kind, access).map_err(named(kind.as_str()))
}

fn named(segment: &'static str) -> impl FnOnce(SegmentError) -> WorkerError {
    move |error| WorkerError::Segment { segment, error }
}

/// Stays on one CPU, so that caches stay warm. A CPU that can't be had costs speed only.
fn pin(cpu: u16) {
    let mut set = CpuSet::new();
    let result = set
        .set(cpu.into())
        .and_then(|()| sched_setaffinity(Pid::from_raw(0), &set));
    if let Err(error) = result {
        tracing::warn!(cpu, %error, "can't stay on this CPU: running on any");
    }
}
