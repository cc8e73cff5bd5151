//! A peer's sessions: which one is sent with, which may still be received.

use super::core::Core;
use ringway_proto::time::Instant;
use ringway_shm::ids::{LaneSlot, PeerSlot};

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

/// A peer's sessions, moved as `noise.c` of the kernel moves its key pairs, but for `older`.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Sessions {
    /// What we send with.
    pub(crate) current: Option<Session>,
    /// What we answered a handshake with and nobody used yet.
    pub(crate) next: Option<Session>,
    /// What may still be received.
    pub(crate) previous: Option<Session>,
    /// Received until the next change: where two handshakes cross, the peer may not yet know of the
    /// newer one and still send with this. The kernel drops it, and lets both handshakes fail.
    pub(crate) older: Option<Session>,
}

/// What is to be retired after a change.
pub(crate) type Retired = [Option<Session>; 4];

impl Sessions {
    /// A response came: its sender has the keys, so they may be used at once.
    pub(crate) fn install_initiated(&mut self, new: Session) -> Retired {
        let older = self.older.take();
        let previous = if let Some(next) = self.next.take() {
            self.older = self.current.take();
            self.previous.replace(next)
        } else {
            std::mem::replace(&mut self.previous, self.current.take())
        };
        self.current = Some(new);
        [older, previous, None, None]
    }

    /// We answered: the keys wait until something arrives that was sealed with them.
    pub(crate) fn install_answered(&mut self, new: Session) -> Retired {
        let older = std::mem::replace(&mut self.older, self.previous.take());
        [self.next.replace(new), older, None, None]
    }

    /// Something arrived that was sealed with this lane's keys. `None`: it is no waiting session.
    pub(crate) fn confirm(&mut self, lane: LaneSlot, local_index: u32) -> Option<Retired> {
        let next = self
            .next
            .filter(|next| next.lane == lane && next.local_index == local_index)?;
        self.next = None;
        let old = std::mem::replace(&mut self.previous, self.current.replace(next));
        Some([old, self.older.take(), None, None])
    }

    /// Takes out all of them.
    pub(crate) fn clear(&mut self) -> Retired {
        [
            self.current.take(),
            self.next.take(),
            self.previous.take(),
            self.older.take(),
        ]
    }

    /// The session in this lane.
    pub(crate) fn find(&self, lane: LaneSlot, local_index: u32) -> Option<Session> {
        [self.current, self.next, self.previous, self.older]
            .into_iter()
            .flatten()
            .find(|session| session.lane == lane && session.local_index == local_index)
    }
}

impl Core {
    /// Ends sessions: their keys are wiped now, their lanes come back when no worker holds them.
    pub(super) fn retire(&mut self, retired: Retired) {
        for session in retired.into_iter().flatten() {
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

    #[test]
    fn an_initiated_session_is_used_at_once() {
        let mut sessions = Sessions::default();
        sessions.install_initiated(session(1));
        assert_eq!(sessions.install_initiated(session(2)), [None; 4]);
        assert_eq!(sessions.previous, Some(session(1)));
        assert_eq!(
            sessions.install_initiated(session(3)),
            [None, Some(session(1)), None, None]
        );
        assert_eq!(
            (sessions.current, sessions.previous),
            (Some(session(3)), Some(session(2)))
        );
    }

    #[test]
    fn an_answered_session_waits_for_its_first_packet() {
        let mut sessions = Sessions::default();
        sessions.install_initiated(session(1));
        assert_eq!(sessions.install_answered(session(2)), [None; 4]);
        assert_eq!(sessions.current, Some(session(1)));
        assert_eq!(sessions.install_answered(session(3))[0], Some(session(2)));
        assert!(sessions.confirm(LaneSlot(2), 2).is_none());
        assert_eq!(sessions.confirm(LaneSlot(3), 3), Some([None; 4]));
        assert_eq!(
            (sessions.current, sessions.previous),
            (Some(session(3)), Some(session(1)))
        );
    }

    /// Our response came first: the peer sends with the old session until it hears the new one.
    #[test]
    fn answering_a_crossing_handshake_keeps_what_the_peer_sends_with() {
        let mut sessions = Sessions::default();
        sessions.install_initiated(session(1));
        sessions.install_initiated(session(2));
        assert_eq!(sessions.install_answered(session(3)), [None; 4]);
        assert_eq!(sessions.find(LaneSlot(1), 1), Some(session(1)));
        let retired = sessions.confirm(LaneSlot(3), 3);
        assert_eq!(retired, Some([None, Some(session(1)), None, None]));
    }

    #[test]
    fn of_two_handshakes_at_once_both_can_be_received() {
        let mut sessions = Sessions::default();
        sessions.install_initiated(session(1));
        sessions.install_answered(session(2));
        assert_eq!(sessions.install_initiated(session(3)), [None; 4]);
        assert_eq!(
            (sessions.current, sessions.previous),
            (Some(session(3)), Some(session(2)))
        );
        // What the peer sent before it knew of either is still under way.
        assert_eq!(sessions.find(LaneSlot(1), 1), Some(session(1)));
        assert!(
            sessions
                .install_answered(session(4))
                .contains(&Some(session(1)))
        );
    }
}
