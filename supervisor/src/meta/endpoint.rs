//! Where a peer is: learned from what it sends, or told; and how the way there looks.

use super::core::Core;
use super::requests::Purpose;
use super::source::Source;
use crate::channel::{Granted, Privileged, Refused};
use ringway_shm::ids::{LaneSlot, PeerSlot};
use ringway_shm::state::{Endpoint, RefusalReason};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// A route is asked for again, when the peer shakes hands, at most this often.
const ROUTE_AGE: Duration = Duration::from_secs(60);

/// And of a peer that moves about at most this often.
const ROAM_AGE: Duration = Duration::from_secs(1);

impl Core {
    /// An authenticated handshake message came from here.
    pub(super) fn learn_endpoint(&mut self, slot: PeerSlot, source: Source) {
        let Some(peer) = self.peers.get_mut(slot) else {
            return;
        };
        let former = peer.endpoint;
        let moved = former.map(|former| former.remote) != Some(source.remote);
        if moved {
            peer.path.reset();
            peer.looped = false;
        }
        let mut endpoint = Endpoint::from(source);
        if endpoint.ifindex == peer.path.dead_end {
            // It is heard by one device and reached by another.
            endpoint.ifindex = 0;
        }
        peer.endpoint = Some(endpoint);
        if former == peer.endpoint {
            return;
        }
        let by_another = former.is_none_or(|former| former.ifindex != endpoint.ifindex);
        self.publish_path(slot);
        if moved || (by_another && endpoint.ifindex != 0) {
            self.ask_route_unless(slot, ROAM_AGE);
        }
    }

    /// An authenticated packet came from another address; an older packet moves nothing.
    pub(super) fn roam(
        &mut self,
        lane: LaneSlot,
        local_index: u32,
        counter: u64,
        endpoint: Endpoint,
    ) {
        let Some((slot, _)) = self
            .lanes
            .find(local_index)
            .filter(|(_, found)| *found == lane)
        else {
            return;
        };
        let Some(peer) = self.peers.get_mut(slot) else {
            return;
        };
        let Some(session) = peer.sessions.find(lane, local_index) else {
            return;
        };
        let order = (session.serial, counter.saturating_add(1));
        if order <= peer.roamed {
            return;
        }
        peer.roamed = order;
        self.learn_endpoint(slot, endpoint.into());
        self.reschedule(slot);
    }

    /// Somebody said where the peer is.
    pub(super) fn set_endpoint(&mut self, slot: PeerSlot, remote: SocketAddr) {
        let Some(peer) = self.peers.get_mut(slot) else {
            return;
        };
        let known = peer.endpoint.map(|endpoint| endpoint.remote);
        if known != Some(remote) {
            peer.endpoint = Some(Endpoint {
                remote,
                local: None,
                ifindex: 0,
            });
            peer.path.reset();
            peer.looped = false;
            self.publish_path(slot);
            self.ask_route(slot);
        }
        let Some(peer) = self.peers.get_mut(slot) else {
            return;
        };
        if known.is_none() && (std::mem::take(&mut peer.wanted) || peer.keepalive != 0) {
            self.want_session(slot);
        }
    }

    /// These addresses are no longer ours, so answers leave from another one; none named: any may
    /// be gone.
    pub(crate) fn addresses_gone(&mut self, gone: &[IpAddr]) {
        for slot in self.peers.slots() {
            let Some(peer) = self.peers.get_mut(slot) else {
                continue;
            };
            let Some(endpoint) = &mut peer.endpoint else {
                continue;
            };
            if endpoint
                .local
                .is_some_and(|local| gone.is_empty() || gone.contains(&local))
            {
                endpoint.local = None;
                endpoint.ifindex = 0;
                self.publish_path(slot);
                self.ask_route(slot);
            }
        }
    }

    /// A datagram could not leave from the address that the endpoint names.
    pub(crate) fn forget_local(&mut self, slot: PeerSlot) {
        let Some(peer) = self.peers.get_mut(slot) else {
            return;
        };
        if let Some(endpoint) = &mut peer.endpoint {
            endpoint.local = None;
            endpoint.ifindex = 0;
            self.publish_path(slot);
        }
    }

    /// Nothing that was learned of our own addresses holds any more (another port or mark).
    pub(super) fn forget_locals(&mut self) {
        for slot in self.peers.slots() {
            if let Some(peer) = self.peers.get_mut(slot) {
                peer.path.dead_end = 0;
            }
            self.forget_local(slot);
        }
    }

    /// Asks how datagrams to the peer leave: for its MTU, and lest they come back to ourselves.
    pub(super) fn ask_route(&mut self, slot: PeerSlot) {
        let now = self.now;
        let Some(peer) = self.peers.get_mut(slot) else {
            return;
        };
        if peer.endpoint.is_none() {
            return;
        }
        peer.path.asked_now(now);
        self.requests.want_route(slot);
        self.send_route_questions();
    }

    /// Asks for the routes whose turn it is; those of removed peers are forgotten.
    fn send_route_questions(&mut self) {
        while let Some(slot) = self.requests.next_route() {
            self.send_route_question(slot);
        }
    }

    fn send_route_question(&mut self, slot: PeerSlot) {
        let fwmark = self.gateway.fwmark;
        let Some(peer) = self.peers.get(slot) else {
            return;
        };
        let Some(endpoint) = peer.endpoint else {
            return;
        };
        let (incarnation, destination, ifindex) =
            (peer.incarnation, endpoint.remote, endpoint.ifindex);
        self.request(
            Purpose::Route {
                peer: slot,
                incarnation,
                destination,
                ifindex,
            },
            Privileged::RouteOf {
                destination,
                fwmark,
                ifindex,
            },
        );
    }

    /// Asks again when the last answer is old.
    pub(super) fn refresh_route(&mut self, slot: PeerSlot) {
        if self.route_is_older(slot, ROUTE_AGE) {
            self.ask_route(slot);
        }
    }

    /// Asks now, or as soon as the last question is so old: nobody who moves about, or says that the
    /// way is wrong, makes more questions than that.
    fn ask_route_unless(&mut self, slot: PeerSlot, age: Duration) {
        if self.route_is_older(slot, age) {
            self.ask_route(slot);
        } else if let Some(peer) = self.peers.get_mut(slot) {
            peer.path.ask_later(age);
        }
    }

    fn route_is_older(&self, slot: PeerSlot, age: Duration) -> bool {
        self.peers.get(slot).is_some_and(|peer| {
            peer.path
                .asked
                .is_none_or(|asked| self.now.since(asked) >= age)
        })
    }

    /// The answer to [`Core::ask_route`]; others may be asked for now.
    pub(super) fn route_answer(
        &mut self,
        slot: PeerSlot,
        incarnation: u32,
        destination: SocketAddr,
        ifindex: u32,
        answer: &Result<Granted, Refused>,
    ) {
        self.take_route(slot, incarnation, destination, ifindex, answer);
        self.send_route_questions();
    }

    fn take_route(
        &mut self,
        slot: PeerSlot,
        incarnation: u32,
        destination: SocketAddr,
        ifindex: u32,
        answer: &Result<Granted, Refused>,
    ) {
        let Some(peer) = self.peers.same(slot, incarnation) else {
            return;
        };
        if peer.endpoint.map(|endpoint| endpoint.remote) != Some(destination) {
            return;
        }
        if ifindex != 0 && answer.is_err() {
            return self.leave_device(slot, ifindex);
        }
        peer.answer = None;
        // No route: the datagrams themselves will tell.
        let Ok(Granted::Route { mtu, own, .. }) = *answer else {
            return;
        };
        let was_looped = std::mem::replace(&mut peer.looped, own);
        let changed = if own { false } else { peer.path.set_route(mtu) };
        if changed {
            self.publish_path(slot);
        }
        if own && !was_looped {
            self.tell_loop(slot);
        }
        if !own && was_looped {
            self.want_session(slot);
        }
    }

    /// A peer is heard by a device that no route back to it uses: answers leave as the routes say,
    /// from the same address.
    fn leave_device(&mut self, slot: PeerSlot, ifindex: u32) {
        let Some(peer) = self.peers.get_mut(slot) else {
            return;
        };
        peer.path.dead_end = ifindex;
        let answer = peer.answer.take();
        match &mut peer.endpoint {
            Some(endpoint) if endpoint.ifindex == ifindex => endpoint.ifindex = 0,
            _ => return,
        }
        self.publish_path(slot);
        self.ask_route(slot);
        if let Some(mut answer) = answer {
            // The first one went nowhere.
            answer.to.ifindex = 0;
            self.out.datagrams.push(*answer);
        }
    }

    /// A worker saw in its own tunnel what looks like a datagram to the peer's endpoint. Anybody
    /// inside can send such a packet, so only the table says whether it is a loop.
    pub(super) fn doubt_route(&mut self, slot: PeerSlot) {
        self.ask_route_unless(slot, ROAM_AGE);
        self.reschedule(slot);
    }

    fn tell_loop(&mut self, slot: PeerSlot) {
        let Some(peer) = self.peers.get(slot) else {
            return;
        };
        let Some(endpoint) = peer.endpoint else {
            return;
        };
        tracing::warn!(
            peer = %peer.label(),
            endpoint = %endpoint.remote,
            "loop: the endpoint is routed into its own tunnel: give it a route of its own or use FwMark"
        );
        self.refuse(slot, RefusalReason::Loop, endpoint.remote);
    }
}
