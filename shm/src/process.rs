//! One slot a process: what the supervisor knows of it and what it says of itself.

use crate::{
    ids::WorkerSlot,
    layout::shared,
    sync::{AtomicU32, AtomicU64, Ordering, fence},
};
use std::fmt;

/// Which process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// Forks, watches and replaces the others.
    Supervisor,
    /// The writer of all state tables.
    Meta,
    /// Does slow things for meta.
    Helper,
    /// Moves packets.
    Worker(WorkerSlot),
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Role::Supervisor => f.write_str("supervisor"),
            Role::Meta => f.write_str("meta"),
            Role::Helper => f.write_str("helper"),
            Role::Worker(slot) => write!(f, "worker{slot}"),
        }
    }
}

/// What a process is doing, as the supervisor sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum ProcessState {
    /// No process has this slot.
    Empty,
    /// Forked, not yet ready.
    Starting,
    /// At work.
    Running,
    /// Giving its shards away.
    Draining,
    /// Alive, but its heartbeat stopped.
    Stuck,
    /// Died; waits for its restart.
    Backoff,
    /// Died too often.
    Failed,
}

impl ProcessState {
    /// The state of a stored number; an unknown one is `Failed`.
    pub const fn from_u32(number: u32) -> ProcessState {
        match number {
            0 => ProcessState::Empty,
            1 => ProcessState::Starting,
            2 => ProcessState::Running,
            3 => ProcessState::Draining,
            4 => ProcessState::Stuck,
            5 => ProcessState::Backoff,
            _ => ProcessState::Failed,
        }
    }

    /// The name in `snake_case`, as the tools print it.
    pub const fn as_str(self) -> &'static str {
        match self {
            ProcessState::Empty => "empty",
            ProcessState::Starting => "starting",
            ProcessState::Running => "running",
            ProcessState::Draining => "draining",
            ProcessState::Stuck => "stuck",
            ProcessState::Backoff => "backoff",
            ProcessState::Failed => "failed",
        }
    }
}

/// [`ProcessSlot::cpu`] of a process that is not pinned.
pub const NOT_PINNED: u32 = u32::MAX;

shared! {
    /// One process. The first line is written by the supervisor, the others by the process itself.
    #[derive(Default)]
    #[repr(C, align(64))]
    pub struct ProcessSlot {
        /// Process id, 0: none.
        pub pid: AtomicU32,
        /// A [`ProcessState`].
        pub state: AtomicU32,
        /// The CPU it is pinned to, or [`NOT_PINNED`].
        pub cpu: AtomicU32,
        /// How often it was started again.
        pub restarts: AtomicU32,
        /// When it was started, boot nanoseconds.
        pub started_ns: AtomicU64,
        _supervisor_line: [AtomicU64; 5],
        /// When it last finished a turn, boot nanoseconds.
        pub heartbeat_ns: AtomicU64,
        /// Time spent outside of waiting, nanoseconds in all.
        pub busy_ns: AtomicU64,
        /// Turns of its loop.
        pub turns: AtomicU64,
        /// Times that a doorbell woke it.
        pub wakeups: AtomicU64,
        _process_line: [AtomicU64; 4],
        /// The epoch it runs in, or [`OFFLINE`](crate::epoch::OFFLINE).
        pub epoch: AtomicU64,
        /// Not 0: it sleeps or is about to, and wants its doorbell rung.
        pub sleeping: AtomicU32,
        _spare: AtomicU32,
        _shared_line: [AtomicU64; 6],
    }
}

impl ProcessSlot {
    /// What [`state`](Self::state) says.
    pub fn state(&self) -> ProcessState {
        ProcessState::from_u32(self.state.load(Ordering::Relaxed))
    }

    /// Sets the state. Only for the supervisor.
    pub fn set_state(&self, state: ProcessState) {
        self.state.store(state as u32, Ordering::Relaxed);
    }

    /// Says that the process is about to sleep. After this it must look at every ring it consumes once more, and
    /// sleep only if all are empty; then [`awake`](Self::awake).
    ///
    /// Together with the fence in [`Producer::publish`](crate::ring::Producer::publish) no wake-up is lost: either
    /// the producer sees the word, or this process sees the record.
    pub fn about_to_sleep(&self) {
        self.sleeping.store(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// Says that the process is awake and needs no doorbell.
    pub fn awake(&self) {
        self.sleeping.store(0, Ordering::Relaxed);
    }
}
