//! A peer's sessions: which one is sent with, which may still be received.

use super::core::Core;
use ringway_proto::time::Instant;
use ringway_shm::ids::{LaneSlot, PeerSlot};
use std::time::Duration;

/// One result of a handshake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Session {
    /// Where its keys, counter and window are.
    pub(crate) lane: LaneSlot,
    /// What the peer addresses it by.
    pub(crate) local_index: u32,
    /// When its keys were made.
    pub(crate) born: Instant,
    /// Whether we began the handshake.
    pub(crate) initiator: bool,
    /// Counts the sessions of a peer: of two, the greater is the newer.
    pub(crate) serial: u64,
}

/// How long a session that was displaced can be received: the peer may not know of the newer one yet.
const LINGER: Duration = Duration::from_secs(5);
/// How many such sessions at most.
const LINGERING: usize = 2;

/// A peer's sessions, moved as `noise.c` of the kernel moves its key pairs, but for those that linger.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Sessions {
    /// What we send with.
    pub(crate) current: Option<Session>,
    /// What we answered a handshake with and nobody used yet.
    pub(crate) next: Option<Session>,
    /// What may still be received.
    pub(crate) previous: Option<Session>,
    /// What was displaced, and when, the oldest first. Where two handshakes cross, each side may
    /// send with a session that the other has replaced twice; the kernel lets both fail instead.
    lingering: [Option<(Session, Instant)>; LINGERING],
}

/// What is to be retired after a change.
pub(crate) type Retired = Vec<Session>;

impl Sessions {
    /// A response came: its sender has the keys, so they may be used at once.
    pub(crate) fn install_initiated(&mut self, new: Session) -> Retired {
        let former = self.current.replace(new);
        let displaced = if let Some(next) = self.next.take() {
            [self.previous.replace(next), former]
        } else {
            [std::mem::replace(&mut self.previous, former), None]
        };
        self.linger(displaced, new.born)
    }

    /// We answered: the keys wait until something arrives that was sealed with them.
    pub(crate) fn install_answered(&mut self, new: Session) -> Retired {
        let unused = self.next.replace(new);
        let displaced = self.previous.take();
        let mut retired = self.linger([displaced, None], new.born);
        retired.extend(unused);
        retired
    }

    /// Something arrived that was sealed with this lane's keys. `None`: it is no waiting session.
    pub(crate) fn confirm(&mut self, lane: LaneSlot, local_index: u32) -> Option<Retired> {
        let next = self
            .next
            .filter(|next| next.lane == lane && next.local_index == local_index)?;
        self.next = None;
        let old = std::mem::replace(&mut self.previous, self.current.replace(next));
        Some(self.linger([old, None], next.born))
    }

    /// Takes out all of them.
    pub(crate) fn clear(&mut self) -> Retired {
        let all = self.all().collect();
        *self = Sessions::default();
        all
    }

    /// The session in this lane.
    pub(crate) fn find(&self, lane: LaneSlot, local_index: u32) -> Option<Session> {
        self.all()
            .find(|session| session.lane == lane && session.local_index == local_index)
    }

    fn all(&self) -> impl Iterator<Item = Session> {
        let lingering = self
            .lingering
            .map(|entry| entry.map(|(session, _)| session));
        [self.current, self.next, self.previous]
            .into_iter()
            .chain(lingering)
            .flatten()
    }

    /// Keeps what was displaced for a while; what has to go for it, or has been there long enough.
    fn linger(&mut self, displaced: [Option<Session>; 2], now: Instant) -> Retired {
        let mut kept: Vec<(Session, Instant)> = self.lingering.into_iter().flatten().collect();
        let mut retired = Vec::new();
        kept.retain(|(session, since)| {
            let stays = now.since(*since) < LINGER;
            if !stays {
                retired.push(*session);
            }
            stays
        });
        kept.extend(
            displaced
                .into_iter()
                .flatten()
                .map(|session| (session, now)),
        );
        let surplus = kept.len().saturating_sub(LINGERING);
        retired.extend(kept.drain(..surplus).map(|(session, _)| session));
        self.lingering = [kept.first().copied(), kept.get(1).copied()];
        retired
    }
}

impl Core {
    /// Ends sessions: their keys are wiped now, their lanes come back when no worker holds them.
    pub(super) fn retire(&mut self, retired: Retired) {
        for session in retired {
            self.keys.retire(session.lane);
            self.lanes.retire(session.lane);
        }
    }

    /// Ends every session of a peer and the handshake under way.
    pub(super) fn drop_sessions(&mut self, slot: PeerSlot) {
        let now = self.now;
        let Some(peer) = self.peers.get_mut(slot) else {
            return;
        };
        let pending = peer.pending.take();
        peer.unanswered = 0;
        peer.timers.reset(now);
        if let Some(pending) = pending {
            self.lanes.retire(pending.lane);
        }
        self.drop_keys(slot);
    }

    /// Ends every session of a peer; a handshake under way goes on.
    pub(super) fn drop_keys(&mut self, slot: PeerSlot) {
        let Some(peer) = self.peers.get_mut(slot) else {
            return;
        };
        let retired = peer.sessions.clear();
        let was_up = std::mem::take(&mut peer.up);
        peer.unconfirmed = 0;
        peer.answer = None;
        // The path names no lane before its keys go.
        self.publish_path(slot);
        self.retire(retired);
        if was_up {
            self.run_peer_down(slot);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session(lane: u32) -> Session {
        Session {
            lane: LaneSlot(lane),
            local_index: lane,
            born: Instant(0),
            initiator: true,
            serial: 0,
        }
    }

    fn later(lane: u32) -> Session {
        Session {
            born: Instant(0) + 2 * LINGER * lane,
            ..session(lane)
        }
    }

    #[test]
    fn an_initiated_session_is_used_at_once() {
        let mut sessions = Sessions::default();
        for lane in 1..=3 {
            assert_eq!(sessions.install_initiated(later(lane)), []);
        }
        assert_eq!(
            (sessions.current, sessions.previous),
            (Some(later(3)), Some(later(2)))
        );
        // What was displaced long ago goes with the next change.
        assert_eq!(sessions.install_initiated(later(4)), [later(1)]);
    }

    #[test]
    fn an_answered_session_waits_for_its_first_packet() {
        let mut sessions = Sessions::default();
        sessions.install_initiated(session(1));
        assert_eq!(sessions.install_answered(session(2)), []);
        assert_eq!(sessions.current, Some(session(1)));
        assert_eq!(sessions.install_answered(session(3)), [session(2)]);
        assert!(sessions.confirm(LaneSlot(2), 2).is_none());
        assert_eq!(sessions.confirm(LaneSlot(3), 3), Some(vec![]));
        assert_eq!(
            (sessions.current, sessions.previous),
            (Some(session(3)), Some(session(1)))
        );
    }

    /// Each side's handshake succeeds, twice in a row: whatever the other still sends with is known.
    #[test]
    fn of_handshakes_that_cross_everything_under_way_can_be_received() {
        let mut sessions = Sessions::default();
        sessions.install_initiated(session(1));
        assert_eq!(sessions.install_answered(session(2)), []);
        assert_eq!(sessions.install_initiated(session(3)), []);
        assert_eq!(sessions.install_answered(session(4)), []);
        assert_eq!(sessions.install_initiated(session(5)), [session(1)]);
        for lane in 2..=5 {
            assert_eq!(sessions.find(LaneSlot(lane), lane), Some(session(lane)));
        }
    }

    /// However often a peer begins anew, it has a bounded number of lanes.
    #[test]
    fn few_sessions_linger() {
        let mut sessions = Sessions::default();
        let mut held = 0;
        for lane in 1..100 {
            let retired = if lane % 3 == 0 {
                sessions.install_initiated(session(lane))
            } else {
                sessions.install_answered(session(lane))
            };
            held = held + 1 - retired.len();
            assert!(held <= 3 + LINGERING);
            assert_eq!(held, sessions.all().count());
        }
        assert_eq!(sessions.clear().len(), held);
    }
}
