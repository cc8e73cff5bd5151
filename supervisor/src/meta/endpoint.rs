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

/// And of a peer that moves about at most this often; its next handshake asks for the last place.
const ROAM_AGE: Duration = Duration::from_secs(1);

impl Core {
    /// An authenticated handshake message came from here.
    pub(super) fn learn_endpoint(&mut self, slot: PeerSlot, source: Source) {
        let Some(peer) = self.peers.get_mut(slot) else {
            return;
        };
        let former = peer.endpoint.replace(source.into());
        if former == peer.endpoint {
            return;
        }
        let moved = former.map(|former| former.remote) != Some(source.remote);
        if moved {
            peer.path.reset();
            peer.looped = false;
        }
        self.publish_path(slot);
        if moved {
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
        let wanted = std::mem::take(&mut peer.wanted) || peer.keepalive != 0;
        if wanted && known.is_none() {
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
            self.forget_local(slot);
        }
    }

    /// Asks how datagrams to the peer leave: for its MTU, and lest they come back to ourselves.
    pub(super) fn ask_route(&mut self, slot: PeerSlot) {
        let (now, fwmark) = (self.now, self.gateway.fwmark);
        let Some(peer) = self.peers.get_mut(slot) else {
            return;
        };
        let Some(endpoint) = peer.endpoint else {
            return;
        };
        peer.path.asked = Some(now);
        let (incarnation, destination) = (peer.incarnation, endpoint.remote);
        self.request(
            Purpose::Route {
                peer: slot,
                incarnation,
                destination,
            },
            Privileged::RouteOf {
                destination,
                fwmark,
            },
        );
    }

    /// Asks again when the last answer is old.
    pub(super) fn refresh_route(&mut self, slot: PeerSlot) {
        self.ask_route_unless(slot, ROUTE_AGE);
    }

    /// Asks unless that was done within `age`.
    fn ask_route_unless(&mut self, slot: PeerSlot, age: Duration) {
        let now = self.now;
        let old = self
            .peers
            .get(slot)
            .is_some_and(|peer| peer.path.asked.is_none_or(|asked| now.since(asked) >= age));
        if old {
            self.ask_route(slot);
        }
    }

    /// The answer to [`Core::ask_route`].
    pub(super) fn route_answer(
        &mut self,
        slot: PeerSlot,
        incarnation: u32,
        destination: SocketAddr,
        answer: &Result<Granted, Refused>,
    ) {
        let Some(peer) = self.peers.same(slot, incarnation) else {
            return;
        };
        if peer.endpoint.map(|endpoint| endpoint.remote) != Some(destination) {
            return;
        }
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

    /// A peer's endpoint turned out to lie behind its own tunnel.
    pub(super) fn looped(&mut self, slot: PeerSlot) {
        let Some(peer) = self.peers.get_mut(slot) else {
            return;
        };
        if !std::mem::replace(&mut peer.looped, true) {
            self.tell_loop(slot);
        }
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
