//! What the workers report.

use super::core::Core;
use ringway_shm::counters::add;
use ringway_shm::ids::{LaneSlot, PeerSlot};
use ringway_shm::messages::Event;

impl Core {
    /// Takes one event. It may be late: whoever it names is looked for, never assumed.
    pub(crate) fn event(&mut self, event: Event) {
        add(&self.rings.meta_counters().events, 1);
        match event {
            Event::NeedHandshake { peer, incarnation } => {
                if self.peers.same(peer, incarnation).is_some() && !self.has_good_session(peer) {
                    self.want_session(peer);
                }
            }
            Event::Armed { peer, incarnation } => {
                if let Some(known) = self.peers.same(peer, incarnation) {
                    known.timers.armed();
                    self.look(peer);
                }
            }
            Event::Confirmed { lane, local_index } => self.confirmed(lane, local_index),
            Event::Roamed {
                lane,
                local_index,
                counter,
                endpoint,
            } => {
                self.roam(lane, local_index, counter, endpoint);
            }
            Event::RekeyDue {
                lane,
                local_index,
                last_minute,
            } => {
                self.rekey_due(lane, local_index, last_minute);
            }
            Event::LaneCleaned { lane } => self.lanes.cleaned(lane),
            Event::PathMtu {
                peer,
                incarnation,
                mtu,
            } => {
                let now = self.now;
                if self
                    .peers
                    .same(peer, incarnation)
                    .is_some_and(|known| known.lower_path(mtu, now))
                {
                    self.publish_path(peer);
                    self.reschedule(peer);
                }
            }
            Event::Looped { peer, incarnation } => {
                if self.peers.same(peer, incarnation).is_some() {
                    self.doubt_route(peer);
                }
            }
        }
    }

    /// Whether a session serves that is so young that a worker may not have known of it yet when it
    /// asked.
    fn has_good_session(&self, slot: PeerSlot) -> bool {
        let current = self.peers.get(slot).and_then(|peer| peer.sessions.current);
        current.is_some_and(|session| {
            self.now.since(session.born) < self.constants.rekey_after
                && self.activities.send_counter(session.lane) < self.constants.rekey_after_messages
        })
    }

    fn confirmed(&mut self, lane: LaneSlot, local_index: u32) {
        let now = self.now;
        let Some(slot) = self.owner(lane, local_index) else {
            return;
        };
        let Some(peer) = self.peers.get_mut(slot) else {
            return;
        };
        let Some(retired) = peer.sessions.confirm(lane, local_index) else {
            return;
        };
        peer.timers.session_confirmed(now);
        self.publish_path(slot);
        self.retire(retired);
        self.completed(slot);
        self.reschedule(slot);
    }

    fn rekey_due(&mut self, lane: LaneSlot, local_index: u32, last_minute: bool) {
        let now = self.now;
        let Some(slot) = self.owner(lane, local_index) else {
            return;
        };
        let Some(peer) = self.peers.get_mut(slot) else {
            return;
        };
        // Of a session that was replaced already nothing is due.
        let current = peer
            .sessions
            .current
            .is_some_and(|session| session.lane == lane);
        if !current {
            return;
        }
        if peer.timers.rekey_due(last_minute, now) {
            self.initiate(slot);
        } else {
            self.reschedule(slot);
        }
    }

    fn owner(&self, lane: LaneSlot, local_index: u32) -> Option<PeerSlot> {
        let (slot, found) = self.lanes.find(local_index)?;
        (found == lane).then_some(slot)
    }
}
