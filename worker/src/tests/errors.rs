//! What the kernel refuses costs no more than it must.

use super::harness::{LEFT, RIGHT, ipv4, path, payload, two};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{setsockopt, sockopt};
use ringway_shm::counters::DropReason;
use ringway_shm::ids::{LaneSlot, PeerSlot};
use std::net::UdpSocket;
use std::os::fd::AsFd;

const PEER: PeerSlot = PeerSlot(2);
const LANE: LaneSlot = LaneSlot(5);

#[test]
fn an_icmp_error_of_one_datagram_loses_no_other() {
    let (mut left, mut right) = two();
    let there = right.address(0);
    let nobody = {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.local_addr().unwrap()
    };
    for round in 0..5 {
        left.state.set_path(PEER, &path(Some(nobody), Some(LANE)));
        left.to_tun(0, &ipv4(LEFT, RIGHT, 1, true, &payload(10)));
        left.turns();
        left.state.set_path(PEER, &path(Some(there), Some(LANE)));
        let packet = ipv4(LEFT, RIGHT, 1, true, &payload(20 + round));
        left.to_tun(0, &packet);
        left.turns();
        right.turns();
        assert_eq!(right.written(0), [packet]);
    }
    assert_eq!(left.drops(DropReason::SocketSend), 0);
}

#[test]
fn a_source_address_that_went_away_is_left_out() {
    let (mut left, mut right) = two();
    let mut stale = path(Some(right.address(0)), Some(LANE));
    if let Some(endpoint) = &mut stale.endpoint {
        endpoint.local = Some("192.0.2.77".parse().unwrap());
        endpoint.ifindex = 1;
    }
    left.state.set_path(PEER, &stale);
    let packets: Vec<_> = (0..5)
        .map(|i| ipv4(LEFT, RIGHT, 1, true, &payload(20 + i)))
        .collect();
    for packet in &packets {
        left.to_tun(0, packet);
    }
    left.turns();
    right.turns();
    assert_eq!(right.written(0), packets);
    assert_eq!(left.all_drops(), 0);
}

/// The kernel keeps an error that its queue had no room for until the next call on the socket.
#[test]
fn an_error_that_is_in_no_queue_does_not_keep_the_worker_awake() {
    let (mut left, _right) = two();
    let nobody = {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.local_addr().unwrap()
    };
    let socket = &left.sockets[0];
    setsockopt(socket, sockopt::Ipv4RecvErr, &false).unwrap();
    socket.connect(nobody).unwrap();
    socket.send(b"x").unwrap();
    let mut fds = [PollFd::new(socket.as_fd(), PollFlags::empty())];
    assert_eq!(poll(&mut fds, PollTimeout::from(20_000_u16)).unwrap(), 1);
    assert_eq!(fds[0].revents(), Some(PollFlags::POLLERR));
    left.turns();
}

/// What one peer's datagrams meet changes nothing for another that shares the source address.
#[test]
fn a_refusal_of_one_peer_is_not_held_against_another() {
    let (mut left, right) = two();
    let other = PeerSlot(3);
    let lane = LaneSlot(7);
    let mut keys = left.keys.reader().read(LANE).unwrap();
    keys.peer = other;
    left.keys.publish(lane, &keys);
    let from = "127.0.0.2".parse().unwrap();
    let with_source = |remote, lane| {
        let mut path = path(Some(remote), Some(lane));
        if let Some(endpoint) = &mut path.endpoint {
            endpoint.local = Some(from);
        }
        path
    };
    // From a loopback address nothing can be sent to another machine.
    let nowhere = "192.0.2.1:9".parse().unwrap();
    let routes = [("10.0.0.2", 32, PEER), ("10.0.0.3", 32, other)];
    left.peer(PEER, &with_source(right.address(0), LANE), &routes);
    left.peer(other, &with_source(nowhere, lane), &routes);
    let packet = |to| ipv4(LEFT, to, 1, true, &payload(20));
    let mut buffer = [0; 2_000];
    for _ in 0..2 {
        left.to_tun(0, &packet("10.0.0.3".parse().unwrap()));
        left.to_tun(0, &packet(RIGHT));
        left.turns();
        let (_, source) = right.sockets[0].recv_from(&mut buffer).unwrap();
        assert_eq!(source.ip(), from);
    }
}

#[test]
fn no_socket_of_the_family_is_counted() {
    let (mut left, _right) = two();
    let endpoint = "[2001:db8::1]:51820".parse().unwrap();
    left.state.set_path(PEER, &path(Some(endpoint), Some(LANE)));
    left.to_tun(0, &ipv4(LEFT, RIGHT, 1, true, &payload(20)));
    left.turns();
    assert_eq!(left.drops(DropReason::SocketSend), 1);
}
