//! What the kernel answers, and how rows of datagrams are made and taken apart.

use super::*;
use crate::control::GroupInfo;
use nix::sched::{CloneFlags, unshare};
use nix::sys::socket::setsockopt;
use nix::sys::socket::sockopt as option;
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd};
use std::process::Command;

/// Two sockets, the first in a group, and an outbox.
struct Rig {
    groups: Groups,
    to: UdpSocket,
    outbox: Outbox,
    tally: Tally,
}

const VIA: Via = Via {
    group: 0,
    shard: ShardId(0),
    fragment: false,
    peer: PeerSlot(1),
    incarnation: 1,
};

fn rig(change: impl FnOnce(&UdpSocket)) -> Rig {
    let from = UdpSocket::bind("127.0.0.1:0").unwrap();
    from.set_nonblocking(true).unwrap();
    setsockopt(&from, option::Ipv4RecvErr, &true).unwrap();
    let to = UdpSocket::bind("127.0.0.1:0").unwrap();
    to.set_nonblocking(true).unwrap();
    change(&from);
    let info = GroupInfo {
        family_v6: false,
        address: Ipv4Addr::UNSPECIFIED.into(),
        port: 0,
    };
    Rig {
        groups: Groups::new(vec![info], vec![from.into()], 1).unwrap(),
        to,
        outbox: Outbox::new(64),
        tally: Tally::default(),
    }
}

impl Rig {
    /// Pushes datagrams of these lengths, one behind the other.
    fn push(&mut self, lengths: &[usize]) -> usize {
        let mut start = 0;
        for &length in lengths {
            let datagram = Outgoing {
                start,
                length,
                segment: 0,
                remote: self.to.local_addr().unwrap(),
                local: None,
                ifindex: 0,
                traffic_class: 0,
            };
            let rows = self.groups.takes_rows(0, ShardId(0));
            self.outbox.push(datagram, VIA, rows, Instant(1));
            start += length;
        }
        start
    }

    /// Pushes and sends datagrams of these lengths and sees them arrive.
    fn carries(&mut self, lengths: &[usize]) {
        let length = self.push(lengths);
        let arena: Vec<u8> = (0..length).map(|i| (i % 251) as u8).collect();
        let flushed = self
            .outbox
            .flush(&arena, &mut self.groups, Instant(1), &mut self.tally);
        assert_eq!(flushed, Flushed::Done);
        let mut buffer = vec![0; 70_000];
        let mut start = 0;
        for &length in lengths {
            assert_eq!(self.to.recv(&mut buffer).unwrap(), length);
            assert_eq!(buffer[..length], arena[start..start + length]);
            start += length;
        }
        assert!(self.to.recv(&mut buffer).is_err(), "more than was sent");
    }

    fn rows(&self) -> Vec<usize> {
        self.outbox.datagrams.iter().map(Outgoing::count).collect()
    }
}

#[test]
fn errors_of_others_cost_a_datagram_nothing() {
    let closed = {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.local_addr().unwrap()
    };
    // Each second call is answered with the error that the one before it brought.
    let mut rig = rig(|from| {
        for _ in 0..201 {
            let _ = from.send_to(b"x", closed);
        }
    });
    rig.carries(&[3]);
    assert_eq!(rig.tally, sent(rig.tally.send_calls));
}

fn sent(send_calls: u64) -> Tally {
    Tally {
        send_calls,
        ..Tally::default()
    }
}

#[test]
fn datagrams_of_one_length_go_in_one_call() {
    let mut rig = rig(|_| ());
    rig.carries(&[100; 50]);
    assert_eq!(rig.tally, sent(1));
    // A shorter one ends the row, a longer one begins another.
    rig.push(&[100, 100, 60, 60, 60, 70, 32, 32]);
    assert_eq!(rig.rows(), [3, 2, 2, 1]);
}

#[test]
fn a_row_is_bounded_in_datagrams_and_bytes() {
    let mut rig = rig(|_| ());
    rig.push(&[32; 300]);
    assert_eq!(rig.rows(), [ROW, ROW, 300 - 2 * ROW]);
    rig.outbox.give_up(&mut rig.tally);
    rig.push(&[1_452; 100]);
    assert_eq!(rig.rows(), [45, 45, 10]);
    rig.outbox.give_up(&mut rig.tally);
    assert_eq!(rig.tally.drop_count(DropReason::SocketFull), 400);
    rig.carries(&[1_452; 91]);
}

#[test]
fn only_what_goes_the_same_way_shares_a_row() {
    let mut rig = rig(|_| ());
    rig.push(&[50]);
    let second = Outgoing {
        start: 50,
        ..rig.outbox.datagrams[0]
    };
    let others = [
        Outgoing {
            start: 51,
            ..second
        },
        Outgoing {
            remote: "127.0.0.1:9".parse().unwrap(),
            ..second
        },
        Outgoing {
            local: Some(Ipv4Addr::LOCALHOST.into()),
            ..second
        },
        Outgoing {
            traffic_class: 1,
            ..second
        },
    ];
    for other in others {
        assert!(!rig.outbox.join(&other, &VIA), "{other:?}");
    }
    let other_peer = Via {
        peer: PeerSlot(2),
        ..VIA
    };
    assert!(!rig.outbox.join(&second, &other_peer));
    assert!(rig.outbox.join(&second, &VIA));
}

/// net/ipv4/udp.c, udp_send_skb: EINVAL for a socket without checksums.
#[test]
fn a_socket_that_takes_no_rows_loses_none_and_gets_none_any_more() {
    let mut rig = rig(no_checksums);
    rig.carries(&[&[200; 20][..], &[300; 20]].concat());
    assert!(!rig.groups.takes_rows(0, ShardId(0)));
    // The refused row, its first datagram, the other 39.
    assert_eq!(rig.tally, sent(3));
    rig.push(&[200; 20]);
    assert_eq!(rig.rows(), [1; 20]);
}

fn no_checksums(socket: &UdpSocket) {
    let on: libc::c_int = 1;
    // SAFETY: setsockopt(2) reads an int that outlives the call.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_NO_CHECK,
            (&raw const on).cast(),
            size_of_val(&on) as _,
        )
    };
    assert_eq!(result, 0);
}

#[test]
fn a_row_too_long_for_the_kernel_is_halved_and_rows_stay() {
    let mut rig = rig(|_| ());
    rig.push(&[40; 127]);
    rig.outbox.shorten(Errno::EINVAL);
    assert_eq!(rig.rows(), [63, 63, 1]);
    assert_eq!(rig.outbox.apart, None);
    rig.outbox.give_up(&mut rig.tally);
    rig.push(&[40; 100]);
    assert_eq!(rig.rows(), [63, 37]);
}

#[test]
fn a_stale_source_is_not_held_against_rows() {
    let mut rig = rig(|_| ());
    rig.push(&[40; 30]);
    rig.outbox.datagrams[0].local = Some("192.0.2.77".parse().unwrap());
    let arena = [7; 1_200];
    let flushed = rig
        .outbox
        .flush(&arena, &mut rig.groups, Instant(1), &mut rig.tally);
    assert_eq!(flushed, Flushed::Done);
    assert!(rig.groups.takes_rows(0, ShardId(0)));
    let mut buffer = [0; 100];
    let received = std::iter::from_fn(|| rig.to.recv(&mut buffer).ok());
    assert_eq!(received.collect::<Vec<_>>(), [40; 30]);
}

/// The datagrams that were sealed before anybody knew that the path is narrow.
#[test]
fn what_a_path_proves_too_narrow_for_goes_in_fragments() {
    if !nix::unistd::geteuid().is_root() {
        return;
    }
    let narrow = || {
        unshare(CloneFlags::CLONE_NEWNET).unwrap();
        let lo = ["link", "set", "lo", "up", "mtu", "1500"];
        assert!(Command::new("ip").args(lo).status().unwrap().success());
        let mut rig = rig(|from| {
            sockopt::allow_fragments(from.as_fd(), false, false).unwrap();
        });
        rig.carries(&[2_000; 10]);
        assert!(rig.groups.takes_rows(0, ShardId(0)));
        assert!(!rig.tally.any_drops);
        let told: Vec<Narrow> = rig.outbox.take_narrow().collect();
        assert_eq!(told, [Narrow::Peer(PeerSlot(1), 1, 1_500)]);
        rig.carries(&[1_400; 10]);
    };
    std::thread::spawn(narrow).join().unwrap();
}
