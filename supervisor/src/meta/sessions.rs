//! A peer's sessions, and the lane slots they live in.
//!
//! A lane slot is given to a new session only when no worker can still hold the keys of the one
//! before: retired → every worker passed the epoch → its home worker zeroed counter and window →
//! clean. A slot whose keys were never published may be given away at once.

use super::core::Core;
use ringway_proto::time::Instant;
use ringway_shm::ids::{LaneSlot, PeerSlot};
use std::collections::VecDeque;

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

/// A peer's up to three sessions, moved as `noise.c` of the kernel moves its key pairs.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Sessions {
    /// What we send with.
    pub(crate) current: Option<Session>,
    /// What we answered a handshake with and nobody used yet.
    pub(crate) next: Option<Session>,
    /// What may still be received.
    pub(crate) previous: Option<Session>,
}

/// What is to be retired after a change.
pub(crate) type Retired = [Option<Session>; 3];

impl Sessions {
    /// A response came: its sender has the keys, so they may be used at once.
    pub(crate) fn install_initiated(&mut self, new: Session) -> Retired {
        let retired = if let Some(next) = self.next.take() {
            let old = [self.previous.replace(next), self.current, None];
            self.current = None;
            old
        } else {
            [
                std::mem::replace(&mut self.previous, self.current.take()),
                None,
                None,
            ]
        };
        self.current = Some(new);
        retired
    }

    /// We answered: the keys wait until something arrives that was sealed with them.
    pub(crate) fn install_answered(&mut self, new: Session) -> Retired {
        [self.next.replace(new), self.previous.take(), None]
    }

    /// Something arrived that was sealed with this lane's keys. `None`: it is no waiting session.
    pub(crate) fn confirm(&mut self, lane: LaneSlot, local_index: u32) -> Option<Retired> {
        let next = self
            .next
            .filter(|next| next.lane == lane && next.local_index == local_index)?;
        self.next = None;
        let old = std::mem::replace(&mut self.previous, self.current.replace(next));
        Some([old, None, None])
    }

    /// Takes out all of them.
    pub(crate) fn clear(&mut self) -> Retired {
        [self.current.take(), self.next.take(), self.previous.take()]
    }

    /// The session in this lane.
    pub(crate) fn find(&self, lane: LaneSlot, local_index: u32) -> Option<Session> {
        [self.current, self.next, self.previous]
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

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LaneState {
    Clean,
    /// Given to a peer; `published` once its keys were visible to a worker.
    Used {
        peer: PeerSlot,
        index: u32,
        published: bool,
    },
    /// Waits until every worker has passed the epoch.
    Retired,
    /// Its home worker was told to zero it.
    Cleaning,
}

/// All lane slots.
#[derive(Debug)]
pub(crate) struct LaneTable {
    states: Vec<LaneState>,
    generations: Vec<u32>,
    bits: u32,
    shards: u32,
    /// Clean slots by home shard. The longest unused is taken first, so that an index comes back
    /// as late as it can.
    clean: Vec<VecDeque<LaneSlot>>,
    /// Retired since the epoch last advanced.
    fresh: Vec<LaneSlot>,
    waiting: VecDeque<(u64, LaneSlot)>,
    /// May be cleaned, and the command did not fit into its ring yet.
    passed: VecDeque<LaneSlot>,
}

impl LaneTable {
    /// All slots of a new segment, which are clean. Both numbers are powers of two.
    pub(crate) fn new(lanes: u32, shards: u8) -> Self {
        let shards = u32::from(shards);
        let mut clean = vec![VecDeque::new(); shards as usize];
        for lane in 0..lanes {
            clean[(lane & (shards - 1)) as usize].push_back(LaneSlot(lane));
        }
        Self {
            states: vec![LaneState::Clean; lanes as usize],
            generations: vec![0; lanes as usize],
            bits: lanes.trailing_zeros(),
            shards,
            clean,
            fresh: Vec::new(),
            waiting: VecDeque::new(),
            passed: VecDeque::new(),
        }
    }

    /// A clean lane of the peer's home shard and an index that names it; `random` makes the
    /// generation.
    pub(crate) fn allocate(&mut self, peer: PeerSlot, random: u32) -> Option<(LaneSlot, u32)> {
        let lane = self.clean[(peer.0 & (self.shards - 1)) as usize].pop_front()?;
        let index = self.draw(lane, random);
        self.states[lane.0 as usize] = LaneState::Used {
            peer,
            index,
            published: false,
        };
        Some((lane, index))
    }

    /// A new index for a lane whose keys were not published: for the next attempt of a handshake.
    pub(crate) fn renew(&mut self, lane: LaneSlot, random: u32) -> Option<u32> {
        let LaneState::Used {
            peer,
            published: false,
            ..
        } = self.states[lane.0 as usize]
        else {
            return None;
        };
        let index = self.draw(lane, random);
        self.states[lane.0 as usize] = LaneState::Used {
            peer,
            index,
            published: false,
        };
        Some(index)
    }

    /// Whose lane this index names, if that lane was given out under it.
    pub(crate) fn find(&self, index: u32) -> Option<(PeerSlot, LaneSlot)> {
        let lane = index & (self.states.len() as u32 - 1);
        match self.states[lane as usize] {
            LaneState::Used {
                peer, index: used, ..
            } if used == index => Some((peer, LaneSlot(lane))),
            _ => None,
        }
    }

    /// Notes that workers may see the lane's keys from now on.
    pub(crate) fn published(&mut self, lane: LaneSlot) {
        if let LaneState::Used { published, .. } = &mut self.states[lane.0 as usize] {
            *published = true;
        }
    }

    /// Takes the lane back; whoever calls has made its keys invalid.
    pub(crate) fn retire(&mut self, lane: LaneSlot) {
        match self.states[lane.0 as usize] {
            LaneState::Used {
                published: false, ..
            } => self.make_clean(lane),
            LaneState::Used {
                published: true, ..
            } => {
                self.states[lane.0 as usize] = LaneState::Retired;
                self.fresh.push(lane);
            }
            _ => {}
        }
    }

    /// Whether lanes were retired since the last [`LaneTable::seal`].
    pub(crate) fn has_fresh(&self) -> bool {
        !self.fresh.is_empty()
    }

    /// The epoch advanced to `epoch` after the retirements so far.
    pub(crate) fn seal(&mut self, epoch: u64) {
        self.waiting
            .extend(self.fresh.drain(..).map(|lane| (epoch, lane)));
    }

    /// Moves on what every worker has passed and hands it to `clean` until that says that it can't
    /// take more.
    pub(crate) fn advance(
        &mut self,
        passed: impl Fn(u64) -> bool,
        mut clean: impl FnMut(LaneSlot) -> bool,
    ) {
        while let Some((epoch, lane)) = self.waiting.front().copied() {
            if !passed(epoch) {
                break;
            }
            self.waiting.pop_front();
            self.passed.push_back(lane);
        }
        while let Some(lane) = self.passed.front().copied() {
            if !clean(lane) {
                break;
            }
            self.passed.pop_front();
            self.states[lane.0 as usize] = LaneState::Cleaning;
        }
    }

    /// The home worker has zeroed counter and window.
    pub(crate) fn cleaned(&mut self, lane: LaneSlot) {
        if self.states.get(lane.0 as usize) == Some(&LaneState::Cleaning) {
            self.make_clean(lane);
        }
    }

    /// Whether something waits that only time or the workers move on.
    pub(crate) fn is_waiting(&self) -> bool {
        !self.waiting.is_empty() || !self.passed.is_empty()
    }

    fn make_clean(&mut self, lane: LaneSlot) {
        self.states[lane.0 as usize] = LaneState::Clean;
        self.clean[(lane.0 & (self.shards - 1)) as usize].push_back(lane);
    }

    /// A generation that is not the last one of this slot and makes no index 0.
    fn draw(&mut self, lane: LaneSlot, random: u32) -> u32 {
        let mask = u32::MAX.checked_shr(self.bits).unwrap_or(0);
        let last = &mut self.generations[lane.0 as usize];
        let mut generation = random & mask;
        while generation == *last || generation == 0 {
            generation = generation.wrapping_add(1) & mask;
        }
        *last = generation;
        (generation << self.bits) | lane.0
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
        assert_eq!(sessions.install_initiated(session(2)), [None; 3]);
        assert_eq!(sessions.previous, Some(session(1)));
        assert_eq!(sessions.install_initiated(session(3))[0], Some(session(1)));
        assert_eq!(
            (sessions.current, sessions.previous),
            (Some(session(3)), Some(session(2)))
        );
    }

    #[test]
    fn an_answered_session_waits_for_its_first_packet() {
        let mut sessions = Sessions::default();
        sessions.install_initiated(session(1));
        assert_eq!(sessions.install_answered(session(2)), [None; 3]);
        assert_eq!(sessions.current, Some(session(1)));
        assert_eq!(sessions.install_answered(session(3))[0], Some(session(2)));
        assert!(sessions.confirm(LaneSlot(2), 2).is_none());
        assert_eq!(sessions.confirm(LaneSlot(3), 3), Some([None; 3]));
        assert_eq!(
            (sessions.current, sessions.previous),
            (Some(session(3)), Some(session(1)))
        );
    }

    #[test]
    fn of_two_handshakes_at_once_both_can_be_received() {
        let mut sessions = Sessions::default();
        sessions.install_answered(session(1));
        sessions.install_initiated(session(2));
        assert_eq!(
            (sessions.current, sessions.previous),
            (Some(session(2)), Some(session(1)))
        );
    }

    #[test]
    fn a_lane_comes_back_only_clean() {
        let mut table = LaneTable::new(8, 4);
        let peer = PeerSlot(5);
        let (first, index) = table.allocate(peer, 7).unwrap();
        assert_eq!(first.0 & 3, 1);
        assert_eq!(table.find(index), Some((peer, first)));
        table.published(first);
        let (second, _) = table.allocate(peer, 7).unwrap();
        assert!(
            table.allocate(peer, 7).is_none(),
            "the home shard has two lanes"
        );
        table.retire(first);
        assert_eq!(table.find(index), None);
        assert!(table.allocate(peer, 7).is_none());
        table.seal(3);
        table.advance(|epoch| epoch < 3, |_| true);
        table.cleaned(first);
        assert!(table.allocate(peer, 7).is_none(), "nobody passed the epoch");
        table.advance(|_| true, |_| false);
        assert!(table.is_waiting(), "the ring was full");
        table.advance(|_| true, |lane| lane == first);
        assert!(table.allocate(peer, 7).is_none(), "not cleaned yet");
        table.cleaned(first);
        let (again, other) = table.allocate(peer, 7).unwrap();
        assert_eq!(again, first);
        assert_ne!(other, index, "another generation");
        table.retire(second);
        assert_eq!(
            table.allocate(peer, 0).unwrap().0,
            second,
            "it was never published"
        );
    }

    #[test]
    fn index_zero_is_never_drawn() {
        let mut table = LaneTable::new(4, 1);
        for random in [0, 1, u32::MAX] {
            let (lane, index) = table.allocate(PeerSlot(0), random).unwrap();
            assert_ne!(index, 0);
            assert_eq!(index & 3, lane.0);
        }
    }
}
