//! Packets that should get through.

use super::harness::{Gateway, LEFT, RIGHT, ipv4, ipv6, path, payload, session_keys, two};
use ringway_shm::counters::DropReason;
use ringway_shm::ids::{LaneSlot, PeerSlot, WorkerSlot};
use ringway_shm::messages::{Command, Event};
use ringway_shm::sync::Ordering;

const PEER: PeerSlot = PeerSlot(2);

#[test]
fn packets_cross_two_gateways_in_both_directions() {
    let (mut left, mut right) = two();
    for length in [0, 1, 15, 16, 100, 1400, 9_000, 65_000] {
        let there = ipv4(LEFT, RIGHT, 1, true, &payload(length));
        let back = ipv6(
            "fd00::2".parse().unwrap(),
            "fd00::1".parse().unwrap(),
            &payload(length),
        );
        left.to_tun(0, &there);
        left.turns();
        right.to_tun(0, &back);
        right.turns();
        left.turns();
        assert_eq!(right.written(0), [there]);
        assert_eq!(left.written(0), [back]);
    }
    assert_eq!(left.all_drops() + right.all_drops(), 0);
    let (sent, received) = (left.rings.traffic(PEER), right.rings.traffic(PEER));
    assert_eq!(sent.tx_packets.load(Ordering::Relaxed), 8);
    assert_eq!(
        sent.tx_bytes.load(Ordering::Relaxed),
        received.rx_bytes.load(Ordering::Relaxed)
    );
    let counters = left.rings.counters(WorkerSlot(0));
    assert_eq!(counters.tun_rx_packets.load(Ordering::Relaxed), 8);
    assert_eq!(counters.rx_packets.load(Ordering::Relaxed), 8);
}

#[test]
fn many_packets_keep_their_order_over_several_turns() {
    let (mut left, mut right) = two();
    let mut expected = Vec::new();
    for round in 0..10_u8 {
        for i in 0..100_u8 {
            let packet = ipv4(LEFT, RIGHT, 17, true, &[round, i, 0, 0, 0, 0, 0, 0]);
            left.to_tun(0, &packet);
            expected.push(packet);
        }
        left.turns();
        right.turns();
    }
    assert_eq!(right.written(0), expected);
    assert_eq!(left.lanes.send_counter(LaneSlot(5)), 1_000);
}

#[test]
fn packets_wait_for_a_session_and_leave_in_order() {
    let (mut left, mut right) = two();
    let there = right.address(0);
    left.state.set_path(PEER, &path(Some(there), None));
    let packets: Vec<_> = (0..3)
        .map(|i| ipv4(LEFT, RIGHT, 1, true, &payload(100 + i)))
        .collect();
    for packet in &packets {
        left.to_tun(0, packet);
        left.turns();
    }
    right.turns();
    assert!(right.written(0).is_empty());
    let need = Event::NeedHandshake {
        peer: PEER,
        incarnation: 7,
    };
    assert_eq!(left.events(0), [need]);

    left.state
        .set_path(PEER, &path(Some(there), Some(LaneSlot(5))));
    left.command(0, Command::SessionReady { peer: PEER });
    left.turns();
    right.turns();
    assert_eq!(right.written(0), packets);
    assert_eq!(left.all_drops(), 0);
}

#[test]
fn a_newer_packet_does_not_overtake_those_that_wait() {
    let (mut left, mut right) = two();
    let there = right.address(0);
    left.state.set_path(PEER, &path(Some(there), None));
    let old = ipv4(LEFT, RIGHT, 1, true, b"old");
    let new = ipv4(LEFT, RIGHT, 1, true, b"new");
    left.to_tun(0, &old);
    left.turns();
    // The session is there, the command is not yet.
    left.state
        .set_path(PEER, &path(Some(there), Some(LaneSlot(5))));
    left.to_tun(0, &new);
    left.turns();
    right.turns();
    assert_eq!(right.written(0), [old, new]);
}

#[test]
fn what_waits_goes_when_meta_gives_up_or_too_much_waits() {
    let (mut left, right) = two();
    left.state
        .set_path(PEER, &path(Some(right.address(0)), None));
    for _ in 0..130 {
        left.to_tun(0, &ipv4(LEFT, RIGHT, 1, true, b"waits"));
    }
    left.turns();
    assert_eq!(left.drops(DropReason::StagedFull), 2);
    left.command(0, Command::DropStaged { peer: PEER });
    left.turns();
    assert_eq!(left.drops(DropReason::StagedPurged), 128);
}

#[test]
fn a_datagram_on_the_wrong_shard_is_handed_over() {
    let mut left = Gateway::simple();
    let mut right = Gateway::new(2, 2);
    right.listen();
    // Lane 5 lives on shard 1, which is worker 1's.
    let lane = LaneSlot(5);
    let (left_index, right_index) = (left.index(lane, 1), right.index(lane, 2));
    let (one, other) = session_keys((PEER, left_index), (PEER, right_index));
    left.keys.publish(lane, &one);
    right.keys.publish(lane, &other);
    let (here, there) = (left.address(0), right.address(0));
    left.peer(
        PEER,
        &path(Some(there), Some(lane)),
        &[("10.0.0.2", 32, PEER)],
    );
    right.peer(
        PEER,
        &path(Some(here), Some(lane)),
        &[("10.0.0.1", 32, PEER)],
    );

    let packets: Vec<_> = [10, 1400, 9_000]
        .map(|length| ipv4(LEFT, RIGHT, 1, true, &payload(length)))
        .into();
    for packet in &packets {
        left.to_tun(0, packet);
    }
    left.turns();
    right.turns();
    assert_eq!(right.written(1), packets);
    assert!(right.written(0).is_empty());
    let count = |slot| right.rings.counters(WorkerSlot(slot));
    assert_eq!(count(0).handed_over.load(Ordering::Relaxed), 3);
    assert_eq!(count(1).taken_over.load(Ordering::Relaxed), 3);
    assert_eq!(right.all_drops(), 0);
}

#[test]
fn a_keepalive_is_sealed_on_command() {
    let (mut left, mut right) = two();
    let lane = LaneSlot(5);
    let local_index = left.index(lane, 11);
    left.command(0, Command::Keepalive { lane, local_index });
    left.command(
        0,
        Command::Keepalive {
            lane,
            local_index: local_index ^ (1 << 20),
        },
    );
    left.turns();
    right.turns();
    let counters = right.rings.counters(WorkerSlot(0));
    assert_eq!(counters.keepalives_received.load(Ordering::Relaxed), 1);
    assert_eq!(left.lanes.send_counter(lane), 1);
    assert!(right.written(0).is_empty());
    let activity = right.lanes.activity(PEER);
    assert_ne!(activity.last_received.load(Ordering::Relaxed), 0);
    assert_eq!(activity.last_data_received.load(Ordering::Relaxed), 0);
}

#[test]
fn a_narrow_path_answers_or_cuts() {
    let (mut left, mut right) = two();
    let mut narrow = path(Some(right.address(0)), Some(LaneSlot(5)));
    narrow.path_mtu = 576;
    left.state.set_path(PEER, &narrow);
    left.to_tun(0, &ipv4(LEFT, RIGHT, 17, true, &payload(1000)));
    left.turns();
    let answers = left.written(0);
    assert_eq!(answers.len(), 1);
    // ICMP, destination unreachable, fragmentation needed; the MTU that fits: 576 - 60.
    assert_eq!((answers[0][9], answers[0][20], answers[0][21]), (1, 3, 4));
    assert_eq!(u16::from_be_bytes([answers[0][26], answers[0][27]]), 516);
    assert_eq!(left.drops(DropReason::TooBig), 1);

    left.to_tun(0, &ipv4(LEFT, RIGHT, 17, false, &payload(1000)));
    left.turns();
    right.turns();
    let pieces = right.written(0);
    assert!(pieces.len() >= 2);
    assert!(pieces.iter().all(|piece| piece.len() <= 516));
    let bytes: Vec<u8> = pieces
        .iter()
        .flat_map(|piece| piece[20..].to_vec())
        .collect();
    assert_eq!(bytes, payload(1000));
}

#[test]
fn a_full_turn_of_packets_can_be_cut() {
    let (mut left, right) = two();
    let mut narrow = path(Some(right.address(0)), Some(LaneSlot(5)));
    narrow.path_mtu = 1300;
    left.state.set_path(PEER, &narrow);
    let packet = ipv4(LEFT, RIGHT, 17, false, &payload(1380));
    for _ in 0..256 {
        left.to_tun(0, &packet);
    }
    left.turns();
    assert_eq!(left.drops(DropReason::TooBig), 0);
    assert_eq!(left.lanes.send_counter(LaneSlot(5)), 512);
}

/// Long packets fill the arena, and what meta ordered must find room in it all the same.
#[test]
fn orders_go_before_what_was_read() {
    let (mut left, _right) = two();
    let lane = LaneSlot(5);
    let local_index = left.index(lane, 11);
    for _ in 0..9 {
        left.to_tun(0, &ipv4(LEFT, RIGHT, 1, true, &payload(65_000)));
    }
    for _ in 0..200 {
        left.command(0, Command::Keepalive { lane, local_index });
    }
    left.turns();
    let counters = left.rings.counters(WorkerSlot(0));
    assert_eq!(counters.keepalives_sent.load(Ordering::Relaxed), 200);
}

#[test]
fn packets_that_go_nowhere_use_nothing_up() {
    let (mut left, mut right) = two();
    let lost = ipv4(LEFT, "192.0.2.1".parse().unwrap(), 1, true, &payload(9_000));
    for _ in 0..20 {
        for _ in 0..10 {
            left.to_tun(0, &lost);
        }
        left.turns();
    }
    assert_eq!(left.drops(DropReason::NoRoute), 200);
    let packet = ipv4(LEFT, RIGHT, 1, true, &payload(9_000));
    left.to_tun(0, &packet);
    left.turns();
    right.turns();
    assert_eq!(right.written(0), [packet]);
}
