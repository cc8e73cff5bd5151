//! Super-packets from the TUN queue.

use super::harness::{path, two};
use crate::offload::packets::Make;
use crate::offload::vnet::VnetHeader;
use ringway_shm::counters::DropReason;
use ringway_shm::ids::{LaneSlot, PeerSlot, WorkerSlot};
use ringway_shm::sync::Ordering;

const PEER: PeerSlot = PeerSlot(2);

fn payload(length: usize) -> Vec<u8> {
    (0..length).map(|i| (i * 7 + i / 251) as u8).collect()
}

fn all_kinds(length: usize) -> impl Iterator<Item = Make> {
    [(false, false), (false, true), (true, false), (true, true)]
        .into_iter()
        .map(move |(v6, udp)| Make {
            v6,
            udp,
            flags: 0x18,
            payload: payload(length),
            ..Make::default()
        })
}

#[test]
fn a_super_packet_arrives_as_the_packets_that_it_stands_for() {
    let (mut left, mut right) = two();
    let mut expected = Vec::new();
    for make in all_kinds(60_000) {
        let (header, packet) = make.super_packet(1_348);
        left.frame_to_tun(0, header, &packet);
        expected.extend(make.segments(1_348));
        left.turns();
        right.turns();
    }
    assert_eq!(right.written(0), expected);
    assert_eq!(left.all_drops() + right.all_drops(), 0);
    let counters = left.rings.counters(WorkerSlot(0));
    let count = |counter: &ringway_shm::sync::AtomicU64| counter.load(Ordering::Relaxed);
    assert_eq!(count(&counters.tun_rx_packets), 4 * 45);
    assert_eq!(count(&counters.tx_packets), 4 * 45);
}

#[test]
fn a_checksum_that_is_left_is_done() {
    let (mut left, mut right) = two();
    let mut expected = Vec::new();
    for make in all_kinds(1_000) {
        let (header, packet) = make.super_packet(1);
        let header = VnetHeader {
            gso_type: 0,
            gso_size: 0,
            ..header
        };
        left.frame_to_tun(0, header, &packet);
        left.turns();
        expected.push(make.bytes());
    }
    right.turns();
    assert_eq!(right.written(0), expected);
}

/// More segments than the arena holds: the rest goes in later turns, and in order.
#[test]
fn a_super_packet_of_tiny_segments_takes_several_turns() {
    let (mut left, mut right) = two();
    let make = Make {
        options: vec![1; 40],
        payload: payload(65_000),
        ..Make::default()
    };
    let (header, packet) = make.super_packet(8);
    left.frame_to_tun(0, header, &packet);
    let mut written = Vec::new();
    for _ in 0..1_000 {
        left.turn_once();
        right.turn_once();
        written.extend(right.written(0));
    }
    // The receiving socket's buffer is too small for all of it; what it holds is in order.
    assert_eq!(left.lanes.send_counter(LaneSlot(5)), 8_125);
    assert_eq!(left.all_drops(), 0);
    let mut segments = make.segments(8).into_iter();
    assert!(written.len() > 500);
    assert!(
        written
            .iter()
            .all(|packet| segments.any(|segment| segment == *packet))
    );
}

#[test]
fn a_broken_super_packet_is_counted_and_the_next_passes() {
    let (mut left, mut right) = two();
    let make = Make {
        payload: payload(4_000),
        ..Make::default()
    };
    let (header, packet) = make.super_packet(1_000);
    let broken = [
        VnetHeader {
            gso_size: 0,
            ..header
        },
        VnetHeader {
            csum_start: 19,
            ..header
        },
        VnetHeader {
            gso_type: 4,
            ..header
        },
    ];
    for header in broken {
        left.frame_to_tun(0, header, &packet);
    }
    left.frame_to_tun(0, header, &packet);
    left.turns();
    right.turns();
    assert_eq!(right.written(0), make.segments(1_000));
    assert_eq!(left.drops(DropReason::BadSuperPacket), 3);
}

#[test]
fn a_super_packet_waits_for_a_session_packet_by_packet() {
    let (mut left, mut right) = two();
    let there = right.address(0);
    left.state.set_path(PEER, &path(Some(there), None));
    let make = Make {
        payload: payload(60_000),
        ..Make::default()
    };
    let (header, packet) = make.super_packet(1_000);
    left.frame_to_tun(0, header, &packet);
    left.turns();
    left.state
        .set_path(PEER, &path(Some(there), Some(LaneSlot(5))));
    left.command(
        0,
        ringway_shm::messages::Command::SessionReady { peer: PEER },
    );
    left.turns();
    right.turns();
    assert_eq!(right.written(0), make.segments(1_000));
}

#[test]
fn a_super_packet_too_long_for_the_path_is_answered_once_or_cut() {
    let (mut left, mut right) = two();
    let mut narrow = path(Some(right.address(0)), Some(LaneSlot(5)));
    narrow.path_mtu = 1_300;
    left.state.set_path(PEER, &narrow);
    let mut make = Make {
        payload: payload(10_000),
        ..Make::default()
    };
    let (header, packet) = make.super_packet(1_300);
    left.frame_to_tun(0, header, &packet);
    left.turns();
    let answers = left.written(0);
    assert_eq!(answers.len(), 1);
    assert_eq!((answers[0][9], answers[0][20], answers[0][21]), (1, 3, 4));
    // The last one is short enough.
    assert_eq!(left.drops(DropReason::TooBig), 7);
    right.turns();
    assert_eq!(right.written(0), make.segments(1_300)[7..]);

    make.dont_fragment = false;
    let (header, packet) = make.super_packet(1_300);
    left.frame_to_tun(0, header, &packet);
    left.turns();
    right.turns();
    let pieces = right.written(0);
    assert_eq!(pieces.len(), 15);
    let bytes: Vec<u8> = pieces
        .iter()
        .flat_map(|piece| piece[20..].to_vec())
        .collect();
    let expected: Vec<u8> = make
        .segments(1_300)
        .iter()
        .flat_map(|segment| segment[20..].to_vec())
        .collect();
    assert_eq!(bytes, expected);
}
