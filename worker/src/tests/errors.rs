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

#[test]
fn no_socket_of_the_family_is_counted() {
    let (mut left, _right) = two();
    let endpoint = "[2001:db8::1]:51820".parse().unwrap();
    left.state.set_path(PEER, &path(Some(endpoint), Some(LANE)));
    left.to_tun(0, &ipv4(LEFT, RIGHT, 1, true, &payload(20)));
    left.turns();
    assert_eq!(left.drops(DropReason::SocketSend), 1);
}
