//! The shared words that tell meta's timers what happened with a peer.
//!
//! Each is stored only when it says something new, so that an idle or one-way flow leaves its
//! cache line alone. The rules are those of `ringway_proto::timers`.

use super::Context;
use ringway_proto::time::Instant;
use ringway_shm::ids::PeerSlot;
use ringway_shm::messages::Event;
use ringway_shm::state::PeerPath;
use ringway_shm::sync::{AtomicU64, Ordering};

/// How far a time of last use may lag. The shortest interval that is measured with one is the
/// persistent keepalive's second.
const COARSE_NS: u64 = 20_000_000;

impl Context {
    /// Something was sealed for a peer, with a session that was born then.
    pub(super) fn sent(&mut self, peer: PeerSlot, path: &PeerPath, data: bool, born: Instant) {
        let now = self.now.0;
        let words = self.tables.lanes.activity(peer);
        touch(&words.last_sent, now);
        if data {
            touch(&words.last_data_sent, now);
            // An older word belongs to a session before this one, whose handshake was an answer.
            let since = words.first_unanswered.load(Ordering::Relaxed);
            if since == 0 || since < born.0 {
                words.first_unanswered.store(now, Ordering::Relaxed);
            }
        }
        forget(&words.first_unacknowledged);
        self.arm(peer, path);
    }

    /// Something authentic came from a peer.
    pub(super) fn received(&mut self, peer: PeerSlot, path: &PeerPath, data: bool) {
        let now = self.now.0;
        let words = self.tables.lanes.activity(peer);
        touch(&words.last_received, now);
        if data {
            touch(&words.last_data_received, now);
            if words.first_unacknowledged.load(Ordering::Relaxed) == 0 {
                words.first_unacknowledged.store(now, Ordering::Relaxed);
            }
        }
        forget(&words.first_unanswered);
        self.arm(peer, path);
    }

    /// Has meta look at the words, if no timer of its own will. A packet under way while meta
    /// disarms is covered by the look that meta takes after that.
    fn arm(&mut self, peer: PeerSlot, path: &PeerPath) {
        let armed = &self.tables.lanes.activity(peer).armed;
        if armed.load(Ordering::Relaxed) == path.arm_generation {
            return;
        }
        let event = Event::Armed {
            peer,
            incarnation: path.incarnation,
        };
        if self.reports.push(event, &mut self.tally) {
            armed.store(path.arm_generation, Ordering::Relaxed);
        }
    }
}

#[inline]
fn touch(word: &AtomicU64, now: u64) {
    if now.wrapping_sub(word.load(Ordering::Relaxed)) >= COARSE_NS {
        word.store(now, Ordering::Relaxed);
    }
}

#[inline]
fn forget(word: &AtomicU64) {
    if word.load(Ordering::Relaxed) != 0 {
        word.store(0, Ordering::Relaxed);
    }
}
