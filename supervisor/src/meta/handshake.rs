//! The handshake: messages in, sessions and datagrams out, as `receive.c`, `send.c` and `noise.c` of
//! the kernel do it.

use super::core::{Core, Identity};
use super::peer::{Peer, Pending};
use super::sessions::Session;
use super::source::{Datagram, HANDSHAKE_TOS, Source};
use ringway_proto::noise::{self, NoiseError, SessionKeys};
use ringway_proto::tai64n::{Stamper, Tai64n};
use ringway_proto::wire::{CookieReply, Initiation, Response, WireError};
use ringway_shm::counters::{DropReason, add};
use ringway_shm::ids::PeerSlot;
use ringway_shm::keys::LaneKeys;
use ringway_shm::messages::Command;
use ringway_shm::state::{Endpoint, RefusalReason};

/// After so many answers in a row that no session came of, the preshared keys are to blame: a
/// wrong one is all that a responder never hears of.
const UNCONFIRMED: u32 = 2;

/// After so many initiations without an answer the silence is told.
pub(super) const SILENT_ATTEMPTS: u32 = 2;

impl Core {
    /// Sends an initiation to a peer; where it can't be sent, the attempt counts all the same.
    pub(super) fn initiate(&mut self, slot: PeerSlot) {
        let random = self.random();
        let now = self.now;
        let Some(peer) = self.peers.get_mut(slot) else {
            return;
        };
        peer.timers.initiation_sent(now, random);
        let silence = peer.unanswered;
        peer.unanswered += 1;
        if silence >= SILENT_ATTEMPTS {
            let at = peer
                .endpoint
                .map_or(super::refusals::NOWHERE, |endpoint| endpoint.remote);
            self.refuse(slot, RefusalReason::NoAnswer, at);
        }
        if silence > 0 {
            self.doubt_endpoint(slot);
        }
        if let Some((endpoint, message)) = self.make_initiation(slot) {
            add(&self.rings.meta_counters().initiations_sent, 1);
            self.send(slot, endpoint, &message);
        }
        self.reschedule(slot);
    }

    fn make_initiation(&mut self, slot: PeerSlot) -> Option<(Endpoint, [u8; Initiation::LEN])> {
        let peer = self.peers.get(slot)?;
        let Some(endpoint) = peer.endpoint else {
            self.refuse_without_endpoint(slot);
            return None;
        };
        if peer.looped {
            self.refuse(slot, RefusalReason::Loop, endpoint.remote);
            self.ask_route(slot);
            return None;
        }
        let timestamp = self.stamper.stamp(self.unix_ns);
        let random = self.random();
        let private = &self.identity.as_ref()?.private;
        let peer = self.peers.get_mut(slot)?;
        // The former attempt's lane never had keys, so another index makes it as good as new.
        let (lane, index) = match peer.pending.take() {
            Some(pending) => (pending.lane, self.lanes.renew(pending.lane, random)?),
            None => self.lanes.allocate(slot, random)?,
        };
        let (handshake, message) =
            match noise::initiate(private, &peer.public_key, index, timestamp) {
                Ok(made) => made,
                Err(error) => {
                    self.lanes.retire(lane);
                    if error == NoiseError::LowOrderPoint {
                        self.refuse(slot, RefusalReason::LowOrderPoint, endpoint.remote);
                    }
                    return None;
                }
            };
        let mut bytes = message.to_bytes();
        peer.macs.seal(&mut bytes, self.now);
        peer.pending = Some(Pending { handshake, lane });
        Some((endpoint, bytes))
    }

    /// A cookie for a message of ours. It moves no endpoint, whoever sent it.
    pub(super) fn cookie_reply(&mut self, datagram: &[u8]) {
        let reply = match CookieReply::parse(datagram) {
            Ok(reply) => reply,
            Err(WireError::Oversized { .. }) => return self.dropped(DropReason::Oversized),
            Err(_) => return self.dropped(DropReason::Truncated),
        };
        let peer = self
            .lanes
            .find(reply.receiver)
            .and_then(|(slot, _)| self.peers.get_mut(slot));
        let Some(peer) = peer else {
            return self.dropped(DropReason::BadCookie);
        };
        if peer.macs.receive_cookie_reply(&reply, self.now).is_err() {
            return self.dropped(DropReason::BadCookie);
        }
        let (slot, at) = (peer.slot, peer.endpoint.map(|endpoint| endpoint.remote));
        add(&self.rings.meta_counters().cookies_received, 1);
        if let Some(at) = at {
            self.refuse(slot, RefusalReason::CookieRequired, at);
        }
    }

    pub(super) fn initiation(&mut self, message: &Initiation, source: Source) {
        add(&self.rings.meta_counters().initiations_received, 1);
        let Some(Identity { private, .. }) = &self.identity else {
            return;
        };
        let received = match noise::receive_initiation(private, message) {
            Ok(received) => received,
            Err(NoiseError::LowOrderPoint) => {
                self.dropped(DropReason::LowOrderPoint);
                return self.refuse_unknown(RefusalReason::LowOrderPoint, source.remote);
            }
            Err(_) => {
                self.dropped(DropReason::BadHandshake);
                return self.refuse_unknown(RefusalReason::Decrypt, source.remote);
            }
        };
        let Some(slot) = self.peers.find(&received.remote) else {
            self.dropped(DropReason::UnknownPeer);
            return self.refuse_unknown(RefusalReason::UnknownKey, source.remote);
        };
        if received.timestamp <= Tai64n::from_bytes(self.keys.greatest_timestamp(slot)) {
            self.dropped(DropReason::TimestampReplay);
            return self.refuse(slot, RefusalReason::TimestampNotNewer, source.remote);
        }
        let (now, random) = (self.now, self.random());
        let Some(peer) = self.peers.get_mut(slot) else {
            return;
        };
        if peer
            .initiation_received
            .is_some_and(|last| now.since(last) < Stamper::MIN_INTERVAL)
        {
            self.dropped(DropReason::RateLimited);
            return self.refuse(slot, RefusalReason::RateLimited, source.remote);
        }
        let Some((lane, index)) = self.lanes.allocate(slot, random) else {
            return self.dropped(DropReason::UnderLoad);
        };
        let (timestamp, remote_index) = (received.timestamp, received.remote_index);
        let Ok((response, keys)) = received.respond(&peer.preshared_key, index) else {
            self.lanes.retire(lane);
            return self.dropped(DropReason::BadHandshake);
        };
        let unconfirmed = peer.sessions.next.is_some();
        peer.unconfirmed = if unconfirmed { peer.unconfirmed + 1 } else { 0 };
        let wrong_psk = peer.unconfirmed >= UNCONFIRMED;
        peer.initiation_received = Some(now);
        peer.unanswered = 0;
        peer.handshake_rx_bytes += Initiation::LEN as u64;
        peer.timers.response_sent(now);
        let session = next_session(peer, lane, index, now, false);
        let retired = peer.sessions.install_answered(session);
        let mut bytes = response.to_bytes();
        peer.macs.seal(&mut bytes, now);
        // Published before it is sent: the first packet may come back at once, to any worker.
        self.publish_keys(slot, session, remote_index, &keys);
        self.keys.set_greatest_timestamp(slot, timestamp.to_bytes());
        self.retire(retired);
        self.learn_endpoint(slot, source);
        if wrong_psk {
            self.refuse(slot, RefusalReason::PresharedKey, source.remote);
        }
        add(&self.rings.meta_counters().responses_sent, 1);
        if let Some(peer) = self.peers.get_mut(slot) {
            let to = peer.endpoint.unwrap_or(source.into());
            let answer = Datagram::new(to.into(), HANDSHAKE_TOS, Some(slot), &bytes);
            peer.answer = (to.ifindex != 0).then(|| Box::new(answer));
            self.send(slot, to, &bytes);
        }
        self.reschedule(slot);
    }

    pub(super) fn response(&mut self, message: &Response, source: Source) {
        add(&self.rings.meta_counters().responses_received, 1);
        let now = self.now;
        let found = self.lanes.find(message.receiver);
        let Some((slot, lane, peer)) =
            found.and_then(|(slot, lane)| Some((slot, lane, self.peers.get_mut(slot)?)))
        else {
            return self.dropped(DropReason::UnknownIndex);
        };
        let Some(pending) = peer.pending.as_mut().filter(|pending| pending.lane == lane) else {
            return self.dropped(DropReason::UnknownIndex);
        };
        let (keys, remote_index) = match pending
            .handshake
            .receive_response(&peer.preshared_key, message)
        {
            Ok(made) => made,
            Err(NoiseError::LowOrderPoint) => {
                self.dropped(DropReason::LowOrderPoint);
                return self.refuse(slot, RefusalReason::LowOrderPoint, source.remote);
            }
            Err(_) => {
                // Whoever answers has read our initiation, so its keys are right but for one.
                self.dropped(DropReason::BadHandshake);
                return self.refuse(slot, RefusalReason::PresharedKey, source.remote);
            }
        };
        peer.pending = None;
        peer.handshake_rx_bytes += Response::LEN as u64;
        peer.timers.session_established(now);
        peer.unanswered = 0;
        let session = next_session(peer, lane, message.receiver, now, true);
        let retired = peer.sessions.install_initiated(session);
        self.publish_keys(slot, session, remote_index, &keys);
        self.learn_endpoint(slot, source);
        self.publish_path(slot);
        self.retire(retired);
        self.completed(slot);
        // The responder may send only after it has heard something under the new keys.
        let keepalive = Command::Keepalive {
            lane,
            local_index: session.local_index,
        };
        self.workers.tell_home(&self.rings, lane, keepalive);
        self.reschedule(slot);
    }

    /// A session may be used from now on, in either role.
    pub(super) fn completed(&mut self, slot: PeerSlot) {
        let unix_ns = self.unix_ns;
        let Some(peer) = self.peers.get_mut(slot) else {
            return;
        };
        peer.last_handshake_unix_ns = unix_ns;
        peer.unconfirmed = 0;
        peer.unanswered = 0;
        peer.answer = None;
        peer.resolving.answered();
        let first = !std::mem::replace(&mut peer.up, true);
        add(&self.rings.meta_counters().sessions, 1);
        self.forgive(slot);
        self.publish_peer(slot);
        self.workers.broadcast(Command::SessionReady { peer: slot });
        self.refresh_route(slot);
        if first {
            self.run_peer_up(slot);
        }
    }

    fn publish_keys(
        &mut self,
        slot: PeerSlot,
        session: Session,
        remote_index: u32,
        keys: &SessionKeys,
    ) {
        let Some(peer) = self.peers.get(slot) else {
            return;
        };
        self.keys.publish(
            session.lane,
            &LaneKeys {
                peer: slot,
                incarnation: peer.incarnation,
                local_index: session.local_index,
                remote_index,
                send_key: keys.send,
                receive_key: keys.receive,
                born_ns: session.born.0,
                initiator: session.initiator,
            },
        );
        self.lanes.published(session.lane);
    }

    fn send(&mut self, slot: PeerSlot, to: Endpoint, message: &[u8]) {
        if let Some(peer) = self.peers.get_mut(slot) {
            peer.handshake_tx_bytes += message.len() as u64;
        }
        self.publish_peer(slot);
        self.out
            .datagrams
            .push(Datagram::new(to.into(), HANDSHAKE_TOS, Some(slot), message));
    }
}

fn next_session(
    peer: &mut Peer,
    lane: ringway_shm::ids::LaneSlot,
    local_index: u32,
    born: ringway_proto::time::Instant,
    initiator: bool,
) -> Session {
    peer.serial += 1;
    Session {
        lane,
        local_index,
        born,
        initiator,
        serial: peer.serial,
    }
}
