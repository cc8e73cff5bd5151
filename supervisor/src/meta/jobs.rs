//! Jobs that the helper has not answered yet, and what each is for.

use super::core::Core;
use crate::helper::protocol::{HelperJob, Work};
use ringway_proto::keys::PublicKey;
use ringway_proto::time::Instant;
use ringway_shm::ids::PeerSlot;
use std::collections::BTreeMap;
use std::time::Duration;

/// A file is read within this time or not at all.
pub(super) const FILE_LIMIT: Duration = Duration::from_secs(30);

/// What an answer is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum JobPurpose {
    /// The address of a peer's endpoint.
    Resolve {
        /// The peer.
        peer: PeerSlot,
        /// Which user of the slot.
        incarnation: u32,
    },
    /// A peer's command.
    Script {
        /// The peer's key; the peer itself may be gone.
        public_key: PublicKey,
    },
    /// The file of a reload.
    Reload,
    /// The answer to the supervisor's request to save.
    Save {
        /// The supervisor's number.
        id: u32,
    },
}

/// The open jobs.
#[derive(Debug, Default)]
pub(crate) struct Jobs {
    last: u64,
    open: BTreeMap<u64, Open>,
}

#[derive(Debug)]
struct Open {
    purpose: JobPurpose,
    until: Instant,
    /// Kept for a helper that takes the place of this one. A file's text is not: it holds keys.
    work: Option<Work>,
}

impl Jobs {
    /// Takes the purpose of an answer out; `None`: it came too late, or nobody asked.
    pub(super) fn take(&mut self, id: u64) -> Option<JobPurpose> {
        self.open.remove(&id).map(|open| open.purpose)
    }

    /// The jobs whose time is over: the helper died, or lost them.
    pub(super) fn overdue(&self, now: Instant) -> Vec<u64> {
        self.open
            .iter()
            .filter(|(_, open)| open.until <= now)
            .map(|(id, _)| *id)
            .collect()
    }
}

impl Core {
    /// Gives the helper something to do; when no answer comes within `limit`, the job has failed.
    pub(super) fn job(&mut self, purpose: JobPurpose, work: Work, limit: Duration) -> u64 {
        self.jobs.last += 1;
        let id = self.jobs.last;
        let kept = (!matches!(work, Work::WriteConfig { .. })).then(|| work.clone());
        self.jobs.open.insert(
            id,
            Open {
                purpose,
                until: self.now + limit,
                work: kept,
            },
        );
        self.out.jobs.push(HelperJob { id, work });
        id
    }

    /// A new helper knows of nothing: it is asked everything again that is open, and what can't be
    /// asked again has failed. Returns the numbers of those.
    pub(crate) fn ask_again(&mut self) -> Vec<u64> {
        self.out.jobs.clear();
        let mut lost = Vec::new();
        for (id, open) in &self.jobs.open {
            match &open.work {
                Some(work) => self.out.jobs.push(HelperJob {
                    id: *id,
                    work: work.clone(),
                }),
                None => lost.push(*id),
            }
        }
        lost
    }
}
