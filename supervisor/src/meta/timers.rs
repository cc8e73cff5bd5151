//! A peer's deadlines: looked at when the wheel says so, armed again as late as can be.

use super::core::Core;
use ringway_proto::timers::Action;
use ringway_shm::ids::PeerSlot;
use ringway_shm::messages::Command;
use ringway_shm::state::RefusalReason;
use std::time::Duration;

impl Core {
    /// Fires one timer that is due. `false`: none is.
    pub(crate) fn fire(&mut self) -> bool {
        let Some(key) = self.wheel.pop(self.now) else {
            return false;
        };
        self.look(PeerSlot(key));
        true
    }

    /// How long the loop may sleep without being late for a timer.
    pub(crate) fn timeout(&self) -> Option<Duration> {
        self.wheel.timeout(self.now)
    }

    /// Does what is due for a peer and sets its timer anew.
    pub(super) fn look(&mut self, slot: PeerSlot) {
        let activity = self.activity(slot);
        let (now, random) = (self.now, self.random());
        let link_up = self.gateway.link_up;
        let Some(peer) = self.peers.get_mut(slot) else {
            return;
        };
        let keepalive = peer
            .keepalive()
            .filter(|_| link_up && peer.endpoint.is_some());
        let wider = peer.path.expire(now);
        let ask = wider || peer.path.asks_at().is_some_and(|at| at <= now);
        let actions = peer.timers.expire(&activity, keepalive, now, random);
        if wider {
            self.publish_path(slot);
        }
        if ask {
            self.ask_route(slot);
        }
        self.resolve_when_due(slot);
        for action in actions {
            match action {
                Action::GiveUp => self.give_up(slot),
                Action::ZeroKeys => self.zero_keys(slot),
                Action::Initiate => {
                    self.doubt_endpoint(slot);
                    self.initiate(slot);
                }
                Action::SendKeepalive => self.send_keepalive(slot),
            }
        }
        self.reschedule(slot);
    }

    /// Sets a peer's timer to its next deadline. With none that a packet could not start, the peer
    /// is disarmed: its next packet raises an event, and until then it costs nothing.
    pub(super) fn reschedule(&mut self, slot: PeerSlot) {
        let activity = self.activity(slot);
        let link_up = self.gateway.link_up;
        let now = self.now;
        let Some(peer) = self.peers.get_mut(slot) else {
            self.wheel.cancel(slot.0);
            return;
        };
        let keepalive = peer
            .keepalive()
            .filter(|_| link_up && peer.endpoint.is_some());
        let mut schedule = peer.timers.schedule(&activity, keepalive, now);
        if schedule.disarm {
            peer.arm_generation = peer.arm_generation.wrapping_add(1).max(1);
            self.publish_path(slot);
            // A packet that was under way meanwhile may have compared with the old generation.
            let again = self.activity(slot);
            if let Some(peer) = self.peers.get_mut(slot) {
                schedule = peer.timers.schedule(&again, keepalive, now);
            }
        }
        let Some(peer) = self.peers.get(slot) else {
            return;
        };
        let wake = [
            schedule.wake,
            peer.path.deadline(),
            peer.path.asks_at(),
            peer.resolving.deadline(),
        ]
        .into_iter()
        .flatten()
        .min();
        match wake {
            Some(at) => self.wheel.set(slot.0, at),
            None => self.wheel.cancel(slot.0),
        }
    }

    /// Sends a keepalive over the current session, or gets a session.
    pub(super) fn send_keepalive(&mut self, slot: PeerSlot) {
        let (now, lifetime) = (self.now, self.constants.reject_after);
        let Some(peer) = self.peers.get_mut(slot) else {
            return;
        };
        match peer
            .sessions
            .current
            .filter(|session| now.since(session.born) < lifetime)
        {
            Some(session) => {
                let command = Command::Keepalive {
                    lane: session.lane,
                    local_index: session.local_index,
                };
                self.workers.tell_home(&self.rings, session.lane, command);
            }
            None => self.want_session(slot),
        }
    }

    /// Begins a handshake, now or as soon as the last one is old enough.
    pub(super) fn want_session(&mut self, slot: PeerSlot) {
        let (now, link_up) = (self.now, self.gateway.link_up);
        let Some(peer) = self.peers.get_mut(slot) else {
            return;
        };
        if !link_up {
            // Granted when it comes up.
            peer.wanted = true;
            return;
        }
        if peer.endpoint.is_none() {
            // No attempt is spent on it, so that the first one leaves when the endpoint is known.
            peer.wanted = true;
            return self.refuse_without_endpoint(slot);
        }
        if peer.timers.need_handshake(now) {
            self.initiate(slot);
        } else {
            self.reschedule(slot);
        }
    }

    fn give_up(&mut self, slot: PeerSlot) {
        self.workers.broadcast(Command::DropStaged { peer: slot });
        let Some(peer) = self.peers.get(slot) else {
            return;
        };
        if let Some(endpoint) = peer.endpoint {
            tracing::info!(peer = %peer.label(), endpoint = %endpoint.remote, "no answer to any handshake: gave up");
            self.refuse(slot, RefusalReason::NoAnswer, endpoint.remote);
        }
    }

    fn zero_keys(&mut self, slot: PeerSlot) {
        tracing::debug!(peer = slot.0, "keys are too old: zeroed");
        self.drop_keys(slot);
    }

    /// Before another initiation: our own address may be the trouble, or the peer's.
    pub(super) fn doubt_endpoint(&mut self, slot: PeerSlot) {
        let Some(peer) = self.peers.get_mut(slot) else {
            return;
        };
        if let Some(endpoint) = &mut peer.endpoint {
            endpoint.local = None;
            endpoint.ifindex = 0;
            self.publish_path(slot);
        }
        self.resolve_again(slot);
    }
}
