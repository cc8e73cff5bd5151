//! Grace periods: when nobody can hold what was read from a table any more (quiescent-state-based reclamation).
//!
//! A worker says at the start of each turn which epoch it has seen, and goes offline before it sleeps; between two
//! turns it holds nothing. What meta takes away in epoch *e* may be given to something new as soon as every worker is
//! offline or at *e* or later: see [`Rings::workers_passed`](crate::rings::Rings::workers_passed).

use crate::{
    process::ProcessSlot,
    sync::{Ordering, fence},
};

/// The epoch of a process that sleeps or does not run: it holds nothing.
pub const OFFLINE: u64 = u64::MAX;

impl ProcessSlot {
    /// Begins a turn in the epoch `current`, as [`State::epoch`](crate::state::State::epoch) gave it just before.
    /// Nothing read from the tables in an earlier turn may be used any more.
    ///
    /// The fence orders the word before every load from a table that follows: a meta that still saw this process
    /// offline has made its change before those loads.
    #[inline]
    pub fn online(&self, current: u64) {
        self.epoch.store(current, Ordering::Release);
        fence(Ordering::SeqCst);
    }

    /// Ends a turn: the process holds nothing and is about to sleep.
    #[inline]
    pub fn offline(&self) {
        self.epoch.store(OFFLINE, Ordering::Release);
    }

    /// Whether the process can hold nothing from before `epoch`. Only after [`fence_before_check`].
    pub(crate) fn passed(&self, epoch: u64) -> bool {
        self.epoch.load(Ordering::Acquire) >= epoch
    }
}

/// Orders everything that was taken away before the check of the processes' epochs.
pub(crate) fn fence_before_check() {
    fence(Ordering::SeqCst);
}
