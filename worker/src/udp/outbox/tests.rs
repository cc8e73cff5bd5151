//! Errors on their way back, without a worker that takes them off the queue first.

use super::*;
use crate::control::GroupInfo;
use nix::sys::socket::{setsockopt, sockopt};
use std::net::{Ipv4Addr, UdpSocket};

#[test]
fn errors_of_others_cost_a_datagram_nothing() {
    let from = UdpSocket::bind("127.0.0.1:0").unwrap();
    from.set_nonblocking(true).unwrap();
    setsockopt(&from, sockopt::Ipv4RecvErr, &true).unwrap();
    let to = UdpSocket::bind("127.0.0.1:0").unwrap();
    to.set_nonblocking(true).unwrap();
    let closed = {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.local_addr().unwrap()
    };
    // Each second call is answered with the error that the one before it brought.
    for _ in 0..201 {
        let _ = from.send_to(b"x", closed);
    }
    let info = GroupInfo {
        family_v6: false,
        address: Ipv4Addr::UNSPECIFIED.into(),
        port: 0,
    };
    let groups = Groups::new(vec![info], vec![from.into()], 1).unwrap();
    let mut outbox = Outbox::new(8);
    let mut tally = Tally::default();
    let datagram = Outgoing {
        start: 0,
        length: 3,
        remote: to.local_addr().unwrap(),
        local: None,
        ifindex: 0,
        traffic_class: 0,
    };
    let via = Via {
        group: 0,
        shard: ShardId(0),
        fragment: false,
        peer: PeerSlot(1),
        incarnation: 1,
    };
    outbox.push(datagram, via, Instant(1));
    let flushed = outbox.flush(b"abc", &groups, Instant(1), &mut tally);
    assert_eq!(flushed, Flushed::Done);
    let mut buffer = [0; 8];
    assert_eq!(to.recv(&mut buffer).unwrap(), 3);
}
