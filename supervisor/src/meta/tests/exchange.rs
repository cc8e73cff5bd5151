//! Handshakes, sessions, roaming, timers.

use super::rig::{HERE, Rig, SECOND, Stock, THERE, answered, drops, initiated};
use crate::meta::source::HANDSHAKE_TOS;
use ringway_proto::keys::PresharedKey;
use ringway_proto::wire::{Message, MessageType};
use ringway_shm::counters::DropReason;
use ringway_shm::ids::LaneSlot;
use ringway_shm::messages::{Command, Event};
use ringway_shm::state::{Endpoint, RefusalReason};
use std::sync::atomic::Ordering;
use std::time::Duration;

#[test]
fn a_responder_sends_on_a_session_only_when_it_is_confirmed() {
    let mut rig = Rig::new(8, 64);
    let mut peer = Stock::new(&rig);
    peer.psk = PresharedKey::generate().unwrap();
    let slot = rig.add(&peer);
    let (mut handshake, message) = peer.initiate(&rig);
    rig.receive(&message, HERE);
    let sent = rig.sent_one();
    assert_eq!(
        (sent.to.remote, sent.tos),
        (HERE.parse().unwrap(), HANDSHAKE_TOS)
    );
    assert_eq!(
        sent.to.local,
        Some("198.51.100.1".parse().unwrap()),
        "it leaves by the address spoken to"
    );
    let Ok(Message::Response(response)) = Message::parse(sent.bytes()) else {
        panic!("no response")
    };
    let (theirs, index) = handshake.receive_response(&peer.psk, &response).unwrap();
    let path = rig.path(slot);
    assert_eq!(path.endpoint.unwrap().remote, HERE.parse().unwrap());
    assert_eq!(
        path.lane, None,
        "nothing proves yet that the peer has the keys"
    );
    let lane = LaneSlot(index & (rig.core.geometry.lanes - 1));
    let ours = rig.keys.read(lane).unwrap();
    assert_eq!(
        (ours.send_key, ours.receive_key),
        (theirs.receive, theirs.send)
    );
    assert_eq!(
        (ours.local_index, ours.peer, ours.initiator),
        (index, slot, false)
    );
    assert_eq!(lane.0 & 1, slot.0 & 1, "home shard");
    rig.confirm(slot);
    assert_eq!(rig.path(slot).lane, Some(lane));
    assert!(
        rig.commands()
            .contains(&Command::SessionReady { peer: slot })
    );
    assert_ne!(rig.record(slot).last_handshake_unix_ns, 0);
}

#[test]
fn an_initiator_uses_a_session_at_once_and_says_so() {
    let mut rig = Rig::new(8, 64);
    let mut peer = Stock::new(&rig);
    let slot = rig.add(&peer);
    rig.core.set_endpoint(slot, HERE.parse().unwrap());
    rig.core.event(Event::NeedHandshake {
        peer: slot,
        incarnation: rig.path(slot).incarnation,
    });
    let sent = rig.sent_one();
    assert_eq!(sent.tos, HANDSHAKE_TOS);
    let (response, theirs) = peer.respond(&rig, sent.bytes());
    // A forged one first: it must not end the handshake.
    let mut forged = response;
    forged[20] ^= 1;
    peer.macs.seal(&mut forged, rig.now());
    rig.receive(&forged, THERE);
    assert_eq!(rig.path(slot).lane, None);
    rig.receive(&response, THERE);
    let lane = rig.path(slot).lane.unwrap();
    let ours = rig.keys.read(lane).unwrap();
    assert_eq!(
        (ours.send_key, ours.receive_key),
        (theirs.receive, theirs.send)
    );
    assert!(ours.initiator);
    assert_eq!(
        rig.path(slot).endpoint.unwrap().remote,
        THERE.parse().unwrap(),
        "endpoint learned"
    );
    let keepalive = Command::Keepalive {
        lane,
        local_index: ours.local_index,
    };
    let commands = rig.commands();
    assert!(
        commands.contains(&Command::SessionReady { peer: slot }) && commands.contains(&keepalive)
    );
    rig.receive(&response, HERE);
    assert_eq!(
        rig.path(slot).endpoint.unwrap().remote,
        THERE.parse().unwrap(),
        "a replay moves nothing"
    );
}

#[test]
fn every_replay_and_every_bit_flip_is_dropped() {
    let mut rig = Rig::new(8, 64);
    let mut peer = Stock::new(&rig);
    let slot = rig.add(&peer);
    let (_, message) = peer.initiate(&rig);
    rig.receive(&message, HERE);
    rig.sent();
    rig.pass(Duration::from_secs(1));
    rig.receive(&message, THERE);
    assert!(rig.sent().is_empty());
    assert_eq!(drops(&rig, DropReason::TimestampReplay), 1);
    assert_eq!(
        rig.record(slot).refusal.unwrap().reason,
        RefusalReason::TimestampNotNewer
    );
    assert_eq!(
        rig.path(slot).endpoint.unwrap().remote,
        HERE.parse().unwrap()
    );
    let (_, fresh) = peer.initiate(&rig);
    for bit in (0..fresh.len() * 8).step_by(11) {
        let mut flipped = fresh;
        flipped[bit / 8] ^= 1 << (bit % 8);
        if bit / 8 < 116 {
            // Also with a MAC1 that fits, as an insider could make it.
            rig.receive(&flipped, THERE);
            peer.macs.seal(&mut flipped, rig.now());
        } else if bit / 8 >= 132 {
            continue;
        }
        rig.receive(&flipped, THERE);
        let sent = rig.sent();
        // The sender's index is authenticated by nothing but MAC1.
        assert!(sent.is_empty() || (4..8).contains(&(bit / 8)), "bit {bit}");
        if !sent.is_empty() {
            return;
        }
    }
}

#[test]
fn initiations_of_a_peer_are_limited() {
    let mut rig = Rig::new(8, 64);
    let mut peer = Stock::new(&rig);
    let slot = rig.add(&peer);
    let (_, first) = peer.initiate(&rig);
    rig.receive(&first, HERE);
    // The next tick of its time stamps comes after 16.8 ms.
    rig.pass(Duration::from_millis(18));
    let (_, second) = peer.initiate(&rig);
    rig.receive(&second, HERE);
    assert_eq!(rig.sent().len(), 1);
    assert_eq!(
        rig.record(slot).refusal.unwrap().reason,
        RefusalReason::RateLimited
    );
    rig.pass(Duration::from_millis(20));
    let (_, third) = peer.initiate(&rig);
    rig.receive(&third, HERE);
    assert_eq!(rig.sent().len(), 1);
}

#[test]
fn strangers_are_told_apart() {
    let mut rig = Rig::new(8, 64);
    let mut stranger = Stock::new(&rig);
    let (_, message) = stranger.initiate(&rig);
    rig.receive(&message, HERE);
    assert_eq!(
        rig.state.gateway().unwrap().last_refusal.unwrap().reason,
        RefusalReason::UnknownKey
    );
    assert_eq!(drops(&rig, DropReason::UnknownPeer), 1);
    let mut noise = [0; 148];
    noise[0] = 1;
    rig.receive(&noise, THERE);
    let refusal = rig.state.gateway().unwrap().last_refusal.unwrap();
    assert_eq!(
        (refusal.reason, refusal.from),
        (RefusalReason::Mac1, THERE.parse().unwrap())
    );
    for garbage in [
        &[][..],
        &[1, 0],
        &[9; 40],
        &[1, 0, 0, 0],
        &[1; 200],
        &[4, 0, 0, 0],
    ] {
        rig.receive(garbage, HERE);
    }
    assert!(rig.sent().is_empty());
}

#[test]
fn a_wrong_preshared_key_is_named_in_both_roles() {
    let mut rig = Rig::new(8, 64);
    let mut peer = Stock::new(&rig);
    let slot = rig.add(&peer);
    rig.core
        .set_preshared_key(slot, PresharedKey::generate().unwrap());
    rig.core.set_endpoint(slot, HERE.parse().unwrap());
    rig.core.want_session(slot);
    let sent = rig.sent_one();
    let (response, _) = peer.respond(&rig, sent.bytes());
    rig.receive(&response, HERE);
    assert_eq!(
        rig.record(slot).refusal.unwrap().reason,
        RefusalReason::PresharedKey
    );
    assert_eq!(rig.path(slot).lane, None);

    let mut rig = Rig::new(8, 64);
    let mut peer = Stock::new(&rig);
    let slot = rig.add(&peer);
    rig.core
        .set_preshared_key(slot, PresharedKey::generate().unwrap());
    for _ in 0..3 {
        let (_, message) = peer.initiate(&rig);
        rig.receive(&message, HERE);
        rig.pass(Duration::from_secs(5));
    }
    assert_eq!(
        rig.record(slot).refusal.unwrap().reason,
        RefusalReason::PresharedKey
    );
}

#[test]
fn of_simultaneous_initiations_a_session_comes() {
    let mut rig = Rig::new(8, 64);
    let mut peer = Stock::new(&rig);
    let slot = rig.add(&peer);
    rig.core.set_endpoint(slot, HERE.parse().unwrap());
    rig.core.want_session(slot);
    let ours = rig.sent_one();
    let (_, theirs) = peer.initiate(&rig);
    rig.receive(&theirs, HERE);
    let next = rig.core.peers.get(slot).unwrap().sessions.next.unwrap();
    let (response, _) = peer.respond(&rig, ours.bytes());
    rig.receive(&response, HERE);
    assert!(rig.path(slot).lane.is_some());
    assert_eq!(
        rig.core.peers.get(slot).unwrap().sessions.previous,
        Some(next),
        "theirs is received still"
    );
}

#[test]
fn only_a_newer_packet_moves_the_endpoint() {
    let mut rig = Rig::new(8, 64);
    let mut peer = Stock::new(&rig);
    let slot = rig.add(&peer);
    let lane = answered(&mut rig, &mut peer, slot);
    let local_index = rig.keys.read(lane).unwrap().local_index;
    let at = |port: u16| Endpoint {
        remote: format!("203.0.113.9:{port}").parse().unwrap(),
        local: Some("198.51.100.2".parse().unwrap()),
        ifindex: 4,
    };
    let roam = |rig: &mut Rig, counter, port| {
        rig.core.event(Event::Roamed {
            lane,
            local_index,
            counter,
            endpoint: at(port),
        });
        rig.path(slot).endpoint.unwrap()
    };
    assert_eq!(roam(&mut rig, 5, 1), at(1));
    assert_eq!(roam(&mut rig, 4, 2), at(1), "reordered");
    assert_eq!(roam(&mut rig, 5, 2), at(1), "replayed");
    assert_eq!(roam(&mut rig, 6, 3), at(3));
    rig.core.event(Event::Roamed {
        lane,
        local_index: local_index ^ (1 << 20),
        counter: 9,
        endpoint: at(4),
    });
    assert_eq!(rig.path(slot).endpoint.unwrap(), at(3), "not that session");
    rig.core.addresses_gone(&["198.51.100.2".parse().unwrap()]);
    assert_eq!(rig.path(slot).endpoint.unwrap().local, None);
}

#[test]
fn a_cookie_reply_moves_no_endpoint_and_is_taken_once() {
    let mut rig = Rig::new(8, 64);
    let mut peer = Stock::new(&rig);
    let slot = rig.add(&peer);
    rig.core.set_endpoint(slot, HERE.parse().unwrap());
    rig.core.want_session(slot);
    let first = rig.sent_one();
    let cookie = peer.cookie(&rig, first.bytes());
    rig.receive(&cookie, THERE);
    assert_eq!(
        rig.path(slot).endpoint.unwrap().remote,
        HERE.parse().unwrap()
    );
    rig.receive(&cookie, THERE);
    assert_eq!(drops(&rig, DropReason::BadCookie), 1);
    rig.pass(Duration::from_secs(6));
    let second = rig.sent_one();
    assert_ne!(second.bytes()[132..], [0; 16], "the next attempt has MAC2");
    assert_eq!(second.to.remote, HERE.parse().unwrap());
}

#[test]
fn a_lane_is_recycled_only_after_grace_and_cleaning() {
    let mut rig = Rig::new(2, 16);
    let mut peer = Stock::new(&rig);
    let slot = rig.add(&peer);
    let worker = rig.rings.process(ringway_shm::rings::Role::Worker(
        ringway_shm::ids::WorkerSlot(0),
    ));
    worker.online(rig.state.epoch());
    let first = answered(&mut rig, &mut peer, slot);
    let index = rig.keys.read(first).unwrap().local_index;
    rig.core.drop_sessions(slot);
    assert!(rig.keys.read(first).is_none(), "wiped at once");
    assert_eq!(rig.path(slot).lane, None);
    assert!(rig.core.grace(), "the worker may still hold the key");
    assert!(!rig.commands().contains(&Command::CleanLane { lane: first }));
    let rings = rig.rings.clone();
    rings
        .process(ringway_shm::rings::Role::Worker(
            ringway_shm::ids::WorkerSlot(0),
        ))
        .online(rig.state.epoch());
    rig.core.grace();
    assert!(rig.commands().contains(&Command::CleanLane { lane: first }));
    let free = std::iter::from_fn(|| rig.core.lanes.allocate(slot, 1)).collect::<Vec<_>>();
    assert!(
        free.iter().all(|(lane, _)| *lane != first),
        "not before it was cleaned"
    );
    rig.core.event(Event::LaneCleaned { lane: first });
    let (again, other) = rig
        .core
        .lanes
        .allocate(slot, index >> rig.core.geometry.lane_bits())
        .unwrap();
    assert_eq!(again, first);
    assert_ne!(other, index);
}

#[test]
fn a_rekey_keeps_the_former_session_for_receiving() {
    let mut rig = Rig::new(8, 64);
    let mut peer = Stock::new(&rig);
    let slot = rig.add(&peer);
    rig.core.set_endpoint(slot, HERE.parse().unwrap());
    let first = initiated(&mut rig, &mut peer, slot);
    let local_index = rig.keys.read(first).unwrap().local_index;
    rig.pass(Duration::from_secs(121));
    rig.sent();
    rig.core.event(Event::RekeyDue {
        lane: first,
        local_index,
        last_minute: false,
    });
    let sent = rig.sent_one();
    assert_eq!(MessageType::of(sent.bytes()), Some(MessageType::Initiation));
    rig.core.event(Event::RekeyDue {
        lane: first,
        local_index,
        last_minute: false,
    });
    assert!(rig.sent().is_empty(), "one initiation in five seconds");
    let (response, _) = peer.respond(&rig, sent.bytes());
    rig.receive(&response, HERE);
    let second = rig.path(slot).lane.unwrap();
    assert_ne!(first, second);
    assert!(
        rig.keys.read(first).is_some(),
        "what is under way still arrives"
    );
    rig.core.event(Event::RekeyDue {
        lane: first,
        local_index,
        last_minute: false,
    });
    assert!(
        rig.sent().is_empty(),
        "of the former session nothing is due"
    );
}

#[test]
fn silence_is_retried_told_and_given_up() {
    let mut rig = Rig::new(8, 64);
    let peer = Stock::new(&rig);
    let slot = rig.add(&peer);
    rig.core.set_endpoint(slot, HERE.parse().unwrap());
    rig.core.want_session(slot);
    assert_eq!(rig.sent().len(), 1);
    rig.pass(Duration::from_secs(21));
    let retries = rig.sent().len();
    assert!((3..=4).contains(&retries), "{retries}");
    assert_eq!(
        rig.record(slot).refusal.unwrap().reason,
        RefusalReason::NoAnswer
    );
    rig.commands();
    rig.pass(Duration::from_secs(120));
    assert!(rig.commands().contains(&Command::DropStaged { peer: slot }));
    rig.sent();
    rig.pass(Duration::from_secs(60));
    assert!(rig.sent().is_empty());
}

#[test]
fn keys_are_zeroed_when_no_new_ones_came() {
    let mut rig = Rig::new(8, 64);
    let mut peer = Stock::new(&rig);
    let slot = rig.add(&peer);
    let lane = answered(&mut rig, &mut peer, slot);
    rig.pass(Duration::from_secs(535));
    assert!(rig.keys.read(lane).is_some());
    rig.pass(Duration::from_secs(10));
    assert!(rig.keys.read(lane).is_none());
    assert_eq!(rig.path(slot).lane, None);
    assert_eq!(rig.core.timeout(), None, "an idle peer costs nothing");
}

#[test]
fn unanswered_data_asks_for_a_new_session() {
    let mut rig = Rig::new(8, 64);
    let mut peer = Stock::new(&rig);
    let slot = rig.add(&peer);
    answered(&mut rig, &mut peer, slot);
    let path = rig.path(slot);
    rig.pass(Duration::from_secs(1));
    // What a worker does with the first data it sends.
    let words = rig.lanes.activity(slot);
    for word in [
        &words.first_unanswered,
        &words.last_sent,
        &words.last_data_sent,
    ] {
        word.store(rig.now().0, Ordering::Relaxed);
    }
    words.armed.store(path.arm_generation, Ordering::Relaxed);
    rig.core.event(Event::Armed {
        peer: slot,
        incarnation: path.incarnation,
    });
    rig.pass(Duration::from_secs(14));
    assert!(rig.sent().is_empty());
    rig.pass(Duration::from_secs(2));
    assert_eq!(
        MessageType::of(rig.sent_one().bytes()),
        Some(MessageType::Initiation)
    );
    assert_eq!(
        rig.path(slot).endpoint.unwrap().local,
        None,
        "our own address may be the trouble"
    );
}

#[test]
fn received_data_is_acknowledged_by_a_keepalive() {
    let mut rig = Rig::new(8, 64);
    let mut peer = Stock::new(&rig);
    let slot = rig.add(&peer);
    let lane = answered(&mut rig, &mut peer, slot);
    rig.commands();
    rig.pass(Duration::from_secs(1));
    let words = rig.lanes.activity(slot);
    for word in [
        &words.first_unacknowledged,
        &words.last_received,
        &words.last_data_received,
    ] {
        word.store(rig.now().0, Ordering::Relaxed);
    }
    let incarnation = rig.path(slot).incarnation;
    rig.core.event(Event::Armed {
        peer: slot,
        incarnation,
    });
    rig.pass(Duration::from_secs(9));
    assert!(rig.commands().is_empty());
    rig.pass(Duration::from_millis(1100));
    let local_index = rig.keys.read(lane).unwrap().local_index;
    assert_eq!(rig.commands(), [Command::Keepalive { lane, local_index }]);
}

#[test]
fn a_gateway_that_is_down_is_silent() {
    let mut rig = Rig::new(8, 64);
    let mut peer = Stock::new(&rig);
    let slot = rig.add(&peer);
    let lane = answered(&mut rig, &mut peer, slot);
    rig.core.link(1420, false);
    assert!(rig.keys.read(lane).is_none());
    rig.pass(Duration::from_secs(1));
    let (_, message) = peer.initiate(&rig);
    rig.receive(&message, HERE);
    assert!(rig.sent().is_empty());
    rig.core.set_keepalive(slot, 25);
    rig.core.link(1420, true);
    assert_eq!(
        rig.sent().len(),
        1,
        "up again, it speaks to whom it keeps alive"
    );
    let refresh = 25 * SECOND;
    assert!(rig.core.timeout().unwrap() < Duration::from_nanos(refresh));
}
