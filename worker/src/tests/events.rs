//! What meta is told, and how often.

use super::harness::{LEFT, RIGHT, ipv4, path, payload, two};
use ringway_shm::counters::DropReason;
use ringway_shm::ids::{LaneSlot, PeerSlot};
use ringway_shm::messages::{Command, Event};
use ringway_shm::sync::Ordering;

const PEER: PeerSlot = PeerSlot(2);
const LANE: LaneSlot = LaneSlot(5);

#[test]
fn the_responder_reports_confirmation_once_and_the_new_address() {
    let (mut left, mut right) = two();
    // The responder does not send on the session yet, and knows no address.
    right.state.set_path(PEER, &path(None, None));
    for _ in 0..3 {
        left.to_tun(0, &ipv4(LEFT, RIGHT, 1, true, &payload(20)));
        left.turns();
        right.turns();
    }
    let local_index = right.index(LANE, 12);
    let events = right.events(0);
    let confirmed = Event::Confirmed {
        lane: LANE,
        local_index,
    };
    assert_eq!(
        events.iter().filter(|event| **event == confirmed).count(),
        1
    );
    let roamed = events.iter().find_map(|event| match event {
        Event::Roamed { endpoint, .. } => Some(*endpoint),
        _ => None,
    });
    let roamed = roamed.expect("the address is new");
    assert_eq!(roamed.remote, left.address(0));
    assert_eq!(roamed.local, Some("127.0.0.1".parse().unwrap()));
    assert_ne!(roamed.ifindex, 0);

    // Once meta has stored it, nothing more is told.
    let mut known = path(None, Some(LANE));
    known.endpoint = Some(roamed);
    right.state.set_path(PEER, &known);
    left.to_tun(0, &ipv4(LEFT, RIGHT, 1, true, &payload(20)));
    left.turns();
    right.turns();
    assert!(right.events(0).is_empty());
    // And answers leave from the address that was spoken to.
    right.to_tun(0, &ipv4(RIGHT, LEFT, 1, true, &payload(20)));
    right.turns();
    left.turns();
    assert_eq!(left.written(0).len(), 1);
}

/// What is throttled is throttled for one user of a slot, and until meta has answered.
#[test]
fn another_need_for_a_handshake_is_told_at_once() {
    let (mut left, right) = two();
    let there = Some(right.address(0));
    let need = |incarnation| Event::NeedHandshake {
        peer: PEER,
        incarnation,
    };
    let packet = ipv4(LEFT, RIGHT, 1, true, &payload(20));
    left.state.set_path(PEER, &path(there, None));
    for _ in 0..3 {
        left.to_tun(0, &packet);
        left.turns();
    }
    assert_eq!(left.events(0), [need(7)]);
    left.command(0, Command::DropStaged { peer: PEER });
    left.turns();
    left.to_tun(0, &packet);
    left.turns();
    assert_eq!(left.events(0), [need(7)]);
    // A session came and was gone before anything could use it.
    left.command(0, Command::SessionReady { peer: PEER });
    left.turns();
    assert_eq!(left.events(0), [need(7)]);
    let mut next = path(there, None);
    next.incarnation = 8;
    left.state.set_path(PEER, &next);
    left.to_tun(0, &packet);
    left.turns();
    assert_eq!(left.events(0), [need(8)]);
}

#[test]
fn a_packet_that_waits_untold_is_told_of_later() {
    let (mut left, right) = two();
    let need = Event::NeedHandshake {
        peer: PEER,
        incarnation: 7,
    };
    let packet = ipv4(LEFT, RIGHT, 1, true, &payload(20));
    left.state.set_path(PEER, &path(None, None));
    left.to_tun(0, &packet);
    left.turns();
    assert_eq!(left.events(0), [need]);
    // The first packet that waits comes too soon after that event.
    left.state
        .set_path(PEER, &path(Some(right.address(0)), None));
    left.to_tun(0, &packet);
    left.turns();
    for told in [&[need][..], &[]] {
        left.workers[0].remind();
        left.turns();
        assert_eq!(left.events(0), told);
    }
    left.command(0, Command::DropStaged { peer: PEER });
    left.turns();
    left.workers[0].remind();
    left.turns();
    assert_eq!(left.events(0), []);
}

#[test]
fn activity_words_and_the_arming_event() {
    let (mut left, mut right) = two();
    let mut armed = path(Some(right.address(0)), Some(LANE));
    armed.arm_generation = 3;
    left.state.set_path(PEER, &armed);
    left.to_tun(0, &ipv4(LEFT, RIGHT, 1, true, &payload(20)));
    left.turns();
    left.to_tun(0, &ipv4(LEFT, RIGHT, 1, true, &payload(20)));
    left.turns();
    let event = Event::Armed {
        peer: PEER,
        incarnation: 7,
    };
    assert_eq!(left.events(0), [event]);
    let word = |word: &ringway_shm::sync::AtomicU64| word.load(Ordering::Relaxed);
    let words = left.lanes.activity(PEER);
    assert_eq!(words.armed.load(Ordering::Relaxed), 3);
    assert_ne!(word(&words.first_unanswered), 0);
    assert_ne!(word(&words.last_data_sent), 0);
    right.turns();
    let words = right.lanes.activity(PEER);
    assert_ne!(word(&words.first_unacknowledged), 0);
    right.to_tun(0, &ipv4(RIGHT, LEFT, 1, true, &payload(20)));
    right.turns();
    assert_eq!(word(&right.lanes.activity(PEER).first_unacknowledged), 0);
    left.turns();
    assert_eq!(word(&left.lanes.activity(PEER).first_unanswered), 0);
}

#[test]
fn a_lane_is_cleaned_on_command_and_that_is_told() {
    let (mut left, mut right) = two();
    left.to_tun(0, &ipv4(LEFT, RIGHT, 1, true, &payload(20)));
    left.turns();
    right.turns();
    assert_eq!(left.lanes.send_counter(LANE), 1);
    left.keys.retire(LANE);
    left.command(0, Command::CleanLane { lane: LANE });
    left.turns();
    assert_eq!(left.lanes.send_counter(LANE), 0);
    assert_eq!(left.events(0), [Event::LaneCleaned { lane: LANE }]);
}

#[test]
fn an_old_session_is_told_and_then_refused() {
    let (mut left, mut right) = two();
    let age = |seconds: u64| {
        crate::clock::boot_time()
            .0
            .saturating_sub(seconds * 1_000_000_000)
    };
    let republish = |gateway: &mut super::harness::Gateway, born_ns| {
        let mut keys = gateway.keys.reader().read(LANE).unwrap();
        keys.born_ns = born_ns;
        gateway.keys.publish(LANE, &keys);
    };
    let local_index = left.index(LANE, 11);
    let packet = ipv4(LEFT, RIGHT, 1, true, &payload(20));
    if age(181) == 0 {
        // The machine came up less than three minutes ago: no session can be that old.
        return;
    }
    republish(&mut left, age(121));
    left.to_tun(0, &packet);
    left.turns();
    let due = Event::RekeyDue {
        lane: LANE,
        local_index,
        last_minute: false,
    };
    assert_eq!(left.events(0), [due]);
    right.turns();
    assert_eq!(right.written(0).len(), 1);

    republish(&mut left, age(181));
    left.to_tun(0, &packet);
    left.turns();
    let need = Event::NeedHandshake {
        peer: PEER,
        incarnation: 7,
    };
    assert_eq!(left.events(0), [need]);
    republish(&mut right, age(181));
    republish(&mut left, age(0));
    left.command(0, Command::SessionReady { peer: PEER });
    left.turns();
    right.turns();
    assert!(right.written(0).is_empty());
    assert_eq!(right.drops(DropReason::KeyExpired), 1);
}

#[test]
fn our_own_datagram_out_of_the_tun_is_a_loop() {
    let (mut left, right) = two();
    let endpoint = right.address(0);
    let mut udp = Vec::new();
    udp.extend_from_slice(&left.address(0).port().to_be_bytes());
    udp.extend_from_slice(&endpoint.port().to_be_bytes());
    udp.extend_from_slice(&[0, 40, 0, 0, 4, 0, 0, 0]);
    udp.extend_from_slice(&payload(28));
    let std::net::IpAddr::V4(to) = endpoint.ip() else {
        panic!("an IPv4 endpoint");
    };
    // The endpoint's own address is among the peer's allowed IPs.
    let routes = [("0.0.0.0", 0, PEER)];
    left.peer(PEER, &path(Some(endpoint), Some(LANE)), &routes);
    for _ in 0..3 {
        left.to_tun(0, &ipv4(LEFT, to, 17, true, &udp));
    }
    left.turns();
    assert_eq!(left.drops(DropReason::Loop), 3);
    assert_eq!(
        left.events(0),
        [Event::Looped {
            peer: PEER,
            incarnation: 7
        }]
    );
    // The same from another port is somebody else's tunnel.
    udp[0] ^= 1;
    left.to_tun(0, &ipv4(LEFT, to, 17, true, &udp));
    left.turns();
    assert_eq!(left.drops(DropReason::Loop), 3);
    assert_eq!(left.lanes.send_counter(LANE), 1);

    // And so is one from our port, but not from the address that we send from.
    udp[0] ^= 1;
    let mut known = path(Some(endpoint), Some(LANE));
    known.incarnation = 8;
    if let Some(endpoint) = &mut known.endpoint {
        endpoint.local = Some("10.0.0.77".parse().unwrap());
    }
    let mut keys = left.keys.reader().read(LANE).unwrap();
    keys.incarnation = 8;
    left.keys.publish(LANE, &keys);
    left.state.set_path(PEER, &known);
    left.to_tun(0, &ipv4(LEFT, to, 17, true, &udp));
    left.turns();
    assert_eq!(left.drops(DropReason::Loop), 3);
    assert_eq!(left.events(0), []);
    left.to_tun(0, &ipv4("10.0.0.77".parse().unwrap(), to, 17, true, &udp));
    left.turns();
    assert_eq!(left.drops(DropReason::Loop), 4);
}

/// An answer must not leave for where the peer was before: the packet waits until meta has stored where it is.
#[test]
fn a_packet_that_shows_a_move_waits_for_the_path() {
    let (mut left, mut right) = two();
    right.state.set_path(PEER, &path(None, Some(LANE)));
    for _ in 0..3 {
        left.to_tun(0, &ipv4(LEFT, RIGHT, 1, true, &payload(20)));
        left.turns();
    }
    right.turn_once();
    assert!(
        right.written(0).is_empty(),
        "nothing is known of the peer's address yet"
    );
    let endpoint = right.events(0).iter().find_map(|event| match event {
        Event::Roamed { endpoint, .. } => Some(*endpoint),
        _ => None,
    });
    let mut known = path(None, Some(LANE));
    known.endpoint = endpoint;
    right.state.set_path(PEER, &known);
    right.turn_once();
    assert_eq!(right.written(0).len(), 3, "in order, once it is known");
}

/// Meta may know better, or be dead: a packet is delayed, never lost.
#[test]
fn a_packet_is_held_for_a_bounded_time() {
    let (mut left, mut right) = two();
    right.state.set_path(PEER, &path(None, None));
    left.to_tun(0, &ipv4(LEFT, RIGHT, 1, true, &payload(20)));
    left.turns();
    let began = std::time::Instant::now();
    let mut written = Vec::new();
    while written.is_empty() && began.elapsed() < std::time::Duration::from_secs(5) {
        right.turn_once();
        written = right.written(0);
    }
    assert_eq!(written.len(), 1);
}
