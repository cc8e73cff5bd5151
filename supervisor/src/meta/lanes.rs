//! The lane slots that sessions live in.
//!
//! A lane slot is given to a new session only when no worker can still hold the keys of the one
//! before: retired → every worker passed the epoch → its home worker zeroed counter and window →
//! clean. A slot whose keys were never published may be given away at once.

use ringway_shm::ids::{LaneSlot, PeerSlot};
use std::collections::VecDeque;

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

#[cfg(test)]
mod tests {
    use super::*;

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
