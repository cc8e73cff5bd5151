//! What is encoded comes back; anything else is `None` or something that could have been encoded.

use super::*;
use proptest::prelude::*;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddrV6};

fn any_ip() -> impl Strategy<Value = IpAddr> {
    prop_oneof![
        any::<u32>().prop_map(|bits| Ipv4Addr::from(bits).into()),
        any::<u128>().prop_map(|bits| Ipv6Addr::from(bits).into()),
    ]
}

fn any_socket_address() -> impl Strategy<Value = SocketAddr> {
    (any_ip(), any::<u16>(), any::<u32>()).prop_map(|(ip, port, scope)| match ip {
        IpAddr::V4(v4) => (v4, port).into(),
        IpAddr::V6(v6) => SocketAddrV6::new(v6, port, 0, scope).into(),
    })
}

fn any_endpoint() -> impl Strategy<Value = Endpoint> {
    (
        any_socket_address(),
        proptest::option::of(any_ip()),
        any::<u32>(),
    )
        .prop_map(|(remote, local, ifindex)| Endpoint {
            remote,
            local,
            ifindex,
        })
}

fn any_event() -> impl Strategy<Value = Event> {
    let numbers = any::<(u32, u32)>();
    prop_oneof![
        numbers.prop_map(|(peer, incarnation)| Event::NeedHandshake {
            peer: PeerSlot(peer),
            incarnation
        }),
        numbers.prop_map(|(peer, incarnation)| Event::Armed {
            peer: PeerSlot(peer),
            incarnation
        }),
        numbers.prop_map(|(lane, local_index)| Event::Confirmed {
            lane: LaneSlot(lane),
            local_index
        }),
        (any::<(u32, u32, u64)>(), any_endpoint()).prop_map(
            |((lane, local_index, counter), endpoint)| Event::Roamed {
                lane: LaneSlot(lane),
                local_index,
                counter,
                endpoint,
            }
        ),
        any::<(u32, u32, bool)>().prop_map(|(lane, local_index, last_minute)| Event::RekeyDue {
            lane: LaneSlot(lane),
            local_index,
            last_minute,
        }),
        any::<u32>().prop_map(|lane| Event::LaneCleaned {
            lane: LaneSlot(lane)
        }),
        any::<(u32, u32, u16)>().prop_map(|(peer, incarnation, mtu)| Event::PathMtu {
            peer: PeerSlot(peer),
            incarnation,
            mtu,
        }),
        numbers.prop_map(|(peer, incarnation)| Event::Looped {
            peer: PeerSlot(peer),
            incarnation
        }),
    ]
}

fn any_command() -> impl Strategy<Value = Command> {
    prop_oneof![
        any::<u32>().prop_map(|peer| Command::SessionReady {
            peer: PeerSlot(peer)
        }),
        any::<u32>().prop_map(|peer| Command::DropStaged {
            peer: PeerSlot(peer)
        }),
        any::<(u32, u32)>().prop_map(|(lane, local_index)| Command::Keepalive {
            lane: LaneSlot(lane),
            local_index
        }),
        any::<u32>().prop_map(|lane| Command::CleanLane {
            lane: LaneSlot(lane)
        }),
    ]
}

proptest! {
    #[test]
    fn an_event_comes_back(event in any_event()) {
        let mut space = [0xaa; MESSAGE_MAX];
        let length = event.encode(&mut space);
        prop_assert_eq!(Event::decode(event.kind(), &space[..length]), Some(event));
        prop_assert_eq!(Event::decode(event.kind(), &space[..length - 1]), None);
        prop_assert_eq!(Event::decode(event.kind(), &space[..=length]), None);
        prop_assert_eq!(Command::decode(event.kind(), &space[..length]), None);
    }

    #[test]
    fn a_command_comes_back(command in any_command()) {
        let mut space = [0xaa; MESSAGE_MAX];
        let length = command.encode(&mut space);
        prop_assert_eq!(Command::decode(command.kind(), &space[..length]), Some(command));
        prop_assert_eq!(Command::decode(command.kind(), &space[..length - 1]), None);
        prop_assert_eq!(Event::decode(command.kind(), &space[..length]), None);
    }

    #[test]
    fn a_packet_header_comes_back(
        endpoint in any_endpoint(),
        numbers in any::<(u8, u8, u8, bool)>(),
        packet in proptest::collection::vec(any::<u8>(), 0..100),
    ) {
        let header = PacketHeader {
            remote: endpoint.remote,
            local: endpoint.local,
            ifindex: endpoint.ifindex,
            shard: numbers.0,
            group: numbers.1,
            ecn: numbers.2,
            inner: numbers.3,
        };
        let mut record = header.encode().to_vec();
        record.extend_from_slice(&packet);
        prop_assert_eq!(PacketHeader::decode(&record), Some((header, packet.as_slice())));
    }

    #[test]
    fn any_bytes_are_taken(kind in 0_u16..0x100, bytes in proptest::collection::vec(any::<u8>(), 0..130)) {
        let mut space = [0; MESSAGE_MAX];
        if let Some(event) = Event::decode(kind, &bytes) {
            let length = event.encode(&mut space);
            prop_assert_eq!(Event::decode(kind, &space[..length]), Some(event));
        }
        if let Some(command) = Command::decode(kind, &bytes) {
            let length = command.encode(&mut space);
            prop_assert_eq!(&space[..length], &bytes[..]);
        }
        let _ = PacketHeader::decode(&bytes);
    }
}

#[test]
fn a_short_packet_record_has_no_header() {
    assert_eq!(PacketHeader::decode(&[4; PacketHeader::LEN - 1]), None);
}
