//! Input that must be dropped, counted, and nothing else.

use super::harness::{Gateway, LEFT, RIGHT, ipv4, path, payload, two};
use crate::aead::{DefaultKey, Key, TAG, nonce};
use ringway_proto::wire::DataHeader;
use ringway_shm::counters::DropReason;
use ringway_shm::ids::{LaneSlot, PeerSlot};
use ringway_shm::messages::PacketHeader;
use std::net::UdpSocket;

const PEER: PeerSlot = PeerSlot(2);
const LANE: LaneSlot = LaneSlot(5);

/// The right gateway of a pair, and a socket that plays its peer.
fn right() -> (Gateway, UdpSocket) {
    let (_, mut right) = two();
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let from = socket.local_addr().unwrap();
    right.state.set_path(PEER, &path(Some(from), Some(LANE)));
    (right, socket)
}

/// A message as the peer would seal it.
fn sealed(right: &Gateway, counter: u64, inner: &[u8]) -> Vec<u8> {
    let header = DataHeader {
        receiver: right.index(LANE, 12),
        counter,
    };
    let mut body = inner.to_vec();
    body.resize(inner.len().next_multiple_of(16) + TAG, 0);
    DefaultKey::new(&[3; 32]).seal(nonce(counter), &[], &mut body);
    let mut message = header.to_bytes().to_vec();
    message.extend(body);
    message
}

#[test]
fn a_replay_and_a_flipped_bit_are_dropped() {
    let (mut right, socket) = right();
    let to = right.address(0);
    let packet = ipv4(LEFT, RIGHT, 1, true, &payload(50));
    let message = sealed(&right, 0, &packet);
    let mut broken = sealed(&right, 1, &packet);
    broken[30] ^= 4;
    for bytes in [&message, &message, &broken, &message] {
        socket.send_to(bytes, to).unwrap();
    }
    right.turns();
    assert_eq!(right.written(0), std::slice::from_ref(&packet));
    assert_eq!(right.drops(DropReason::Replay), 2);
    assert_eq!(right.drops(DropReason::Decrypt), 1);
    // A forgery does not use up its counter.
    socket.send_to(&sealed(&right, 1, &packet), to).unwrap();
    right.turns();
    assert_eq!(right.written(0), [packet]);
}

#[test]
fn a_forged_source_and_no_ip_are_dropped() {
    let (mut right, socket) = right();
    let to = right.address(0);
    let forged = ipv4(RIGHT, LEFT, 1, true, &payload(8));
    let stranger = ipv4("192.0.2.1".parse().unwrap(), RIGHT, 1, true, &payload(8));
    let mut long = ipv4(LEFT, RIGHT, 1, true, &payload(8));
    long[2] = 0x40;
    for (counter, inner) in [&forged[..], &stranger, &[0x20; 40], &long, &[0x45; 16]]
        .into_iter()
        .enumerate()
    {
        socket
            .send_to(&sealed(&right, counter as u64, inner), to)
            .unwrap();
    }
    right.turns();
    assert!(right.written(0).is_empty());
    assert_eq!(right.drops(DropReason::ForgedSource), 2);
    assert_eq!(right.drops(DropReason::NotIp), 1);
    assert_eq!(right.drops(DropReason::InnerTruncated), 2);
}

#[test]
fn garbage_is_counted_and_handshakes_go_to_meta() {
    let (mut right, socket) = right();
    let to = right.address(0);
    let mut unknown = sealed(&right, 0, b"");
    unknown[7] ^= 0x40;
    let lane_without_keys = {
        let mut message = sealed(&right, 0, b"");
        message[4..8].copy_from_slice(&right.index(LaneSlot(6), 12).to_le_bytes());
        message
    };
    socket.send_to(&[], to).unwrap();
    socket.send_to(&[4], to).unwrap();
    socket.send_to(&[4, 0, 0, 0, 1, 2], to).unwrap();
    socket.send_to(&[9; 200], to).unwrap();
    socket.send_to(&[4, 1, 0, 0, 0, 0, 0, 0], to).unwrap();
    socket.send_to(&unknown, to).unwrap();
    socket.send_to(&lane_without_keys, to).unwrap();
    let mut initiation = vec![1, 0, 0, 0];
    initiation.resize(148, 7);
    socket.send_to(&initiation, to).unwrap();
    right.turns();
    assert_eq!(right.drops(DropReason::Truncated), 3);
    assert_eq!(right.drops(DropReason::BadType), 2);
    assert_eq!(right.drops(DropReason::UnknownIndex), 2);
    let passed = right.handshakes(0);
    assert_eq!(passed.len(), 1);
    assert_eq!(passed[0].1, initiation);
    assert_eq!(passed[0].0.remote, socket.local_addr().unwrap());
    assert_eq!(passed[0].0.local, Some(to.ip()));
}

#[test]
fn random_datagrams_never_panic() {
    let (mut right, socket) = right();
    let to = right.address(0);
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let template = sealed(&right, 9, &ipv4(LEFT, RIGHT, 1, true, &payload(60)));
    for round in 0..2_000 {
        let mut bytes = template.clone();
        for _ in 0..random() % 4 {
            let at = (random() as usize) % bytes.len();
            bytes[at] = random() as u8;
        }
        bytes.truncate((random() as usize) % (bytes.len() + 1));
        socket.send_to(&bytes, to).unwrap();
        let packet: Vec<u8> = (0..random() % 90).map(|_| random() as u8).collect();
        right.to_tun(0, &packet);
        if round % 20 == 0 {
            right.turns();
        }
    }
    right.turns();
    assert!(right.written(0).len() <= 1);
}

#[test]
fn congestion_outside_is_carried_inside_or_drops() {
    let (mut right, _socket) = right();
    let mut capable = ipv4(LEFT, RIGHT, 1, true, &payload(8));
    ringway_proto::ecn::set(&mut capable, 2);
    let incapable = ipv4(LEFT, RIGHT, 1, true, &payload(8));
    let header = PacketHeader {
        remote: "127.0.0.1:9".parse().unwrap(),
        local: None,
        ifindex: 0,
        shard: 0,
        group: 0,
        ecn: 3,
        inner: false,
    };
    let messages = [sealed(&right, 0, &capable), sealed(&right, 1, &incapable)];
    for message in &messages {
        right.hand(0, &header, message);
    }
    right.turns();
    let mut marked = capable;
    ringway_proto::ecn::set(&mut marked, 3);
    assert_eq!(right.written(0), [marked]);
    assert_eq!(right.drops(DropReason::EcnDrop), 1);
}

/// Nothing can be sent to port 0: a peer that seems to be there could not be answered.
#[test]
fn a_datagram_from_port_0_moves_nobody() {
    let (mut right, _socket) = right();
    let header = PacketHeader {
        remote: "127.0.0.1:0".parse().unwrap(),
        local: None,
        ifindex: 0,
        shard: 0,
        group: 0,
        ecn: 0,
        inner: false,
    };
    let message = sealed(&right, 0, &ipv4(LEFT, RIGHT, 1, true, &payload(8)));
    right.hand(0, &header, &message);
    right.turns();
    assert!(right.written(0).is_empty());
    assert_eq!(right.events(0), []);
    assert_eq!(right.drops(DropReason::NoPort), 1);
}

#[test]
fn bad_inner_packets_from_the_tun_are_counted() {
    let (mut left, right) = two();
    left.to_tun(0, &[0x20; 40]);
    left.to_tun(0, &[0x45; 10]);
    left.to_tun(0, &ipv4(LEFT, "192.0.2.1".parse().unwrap(), 1, true, b""));
    left.state.set_path(PEER, &path(None, None));
    left.turns();
    left.to_tun(0, &ipv4(LEFT, RIGHT, 1, true, b""));
    left.turns();
    assert_eq!(left.drops(DropReason::NotIp), 1);
    assert_eq!(left.drops(DropReason::InnerTruncated), 1);
    assert_eq!(left.drops(DropReason::NoRoute), 1);
    assert_eq!(left.drops(DropReason::NoEndpoint), 1);
    drop(right);
}

#[test]
fn a_peer_that_was_removed_is_forgotten() {
    let (mut right, socket) = right();
    let to = right.address(0);
    let packet = ipv4(LEFT, RIGHT, 1, true, &payload(8));
    right.state.clear_peer(PEER);
    socket.send_to(&sealed(&right, 0, &packet), to).unwrap();
    right.turns();
    assert!(right.written(0).is_empty());
    assert_eq!(right.drops(DropReason::UnknownIndex), 1);
    right.keys.retire(LANE);
    socket.send_to(&sealed(&right, 1, &packet), to).unwrap();
    right.turns();
    assert_eq!(right.drops(DropReason::UnknownIndex), 2);
}
