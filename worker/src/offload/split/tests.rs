use super::*;
use crate::offload::packets::{Make, frame, make};
use proptest::prelude::*;

fn all(frame: &[u8]) -> Vec<Vec<u8>> {
    let split = Split::plan(frame).unwrap();
    (0..split.count())
        .map(|number| {
            let mut packet = vec![0xa5; split.length(number)];
            split.write(number, &mut packet);
            packet
        })
        .collect()
}

fn refused(change: impl Fn(&mut VnetHeader, &mut Vec<u8>), make: &Make) {
    let (mut header, mut packet) = make.super_packet(100);
    change(&mut header, &mut packet);
    let result = Split::plan(&frame(header, &packet)).map(|split| split.count());
    assert_eq!(result, Err(Refused::Header));
}

#[test]
fn a_packet_without_work_left_is_itself() {
    let packet = Make {
        payload: vec![3; 99],
        ..Make::default()
    }
    .bytes();
    let mut padded = frame(VnetHeader::default(), &packet);
    padded.extend_from_slice(&[0; 5]);
    assert_eq!(all(&padded), [packet]);
}

#[test]
fn fin_psh_and_cwr_stay_where_they_belong() {
    let make = Make {
        flags: 0x80 | 0x40 | 0x10 | 0x08 | 0x01,
        payload: vec![1; 250],
        ..Make::default()
    };
    let (header, packet) = make.super_packet(100);
    let flags: Vec<u8> = all(&frame(header, &packet))
        .iter()
        .map(|packet| packet[33])
        .collect();
    assert_eq!(flags, [0x80 | 0x40 | 0x10, 0x40 | 0x10, 0x40 | 0x10 | 0x09]);
}

#[test]
fn hdr_len_is_not_believed() {
    let make = Make {
        payload: vec![1; 250],
        ..Make::default()
    };
    for hdr_len in [0, 1, 20, 39, 41, 1000, u16::MAX] {
        let (mut header, packet) = make.super_packet(100);
        header.hdr_len = hdr_len;
        assert_eq!(all(&frame(header, &packet)), make.segments(100));
    }
}

#[test]
fn a_header_that_does_not_fit_is_refused() {
    for (v6, udp) in [(false, false), (false, true), (true, false), (true, true)] {
        let make = Make {
            v6,
            udp,
            payload: vec![1; 250],
            ..Make::default()
        };
        refused(|header, _| header.gso_size = 0, &make);
        refused(|header, _| header.csum_start += 1, &make);
        refused(|header, _| header.csum_start = u16::MAX, &make);
        refused(|header, _| header.csum_offset = 8, &make);
        refused(|header, _| header.csum_offset = u16::MAX, &make);
        // UFO, which is not asked for, and what does not exist.
        refused(|header, _| header.gso_type = 3, &make);
        refused(|header, _| header.gso_type = 0x7f, &make);
        let other = if udp { GSO_TCPV4 } else { GSO_UDP_L4 };
        refused(|header, _| header.gso_type = other, &make);
        if !udp {
            let other = if v6 { GSO_TCPV4 } else { GSO_TCPV6 };
            refused(|header, _| header.gso_type = other, &make);
            // A TCP header longer than the packet, and one shorter than any.
            let length = make.transport() + tcp::LENGTH;
            refused(|_, packet| packet[length] = 0x40, &make);
        }
        if !v6 {
            // More fragments: no whole packet.
            refused(|_, packet| packet[6] = 0x20, &make);
        }
    }
    let tiny = Make {
        payload: vec![1; 10],
        ..Make::default()
    };
    refused(
        |header, packet| {
            packet[32] = 0xf0;
            header.gso_size = 4;
        },
        &tiny,
    );
}

#[test]
fn a_checksum_outside_the_packet_is_refused() {
    let (header, packet) = Make::default().super_packet(100);
    let whole = |csum_start, csum_offset| {
        let header = VnetHeader {
            gso_type: GSO_NONE,
            csum_start,
            csum_offset,
            ..header
        };
        Split::plan(&frame(header, &packet)).map(|split| split.count())
    };
    assert_eq!(whole(20, 16), Ok(1));
    assert_eq!(whole(20, 18), Ok(1));
    for (start, offset) in [(20, 19), (0, 10), (19, 16), (u16::MAX, u16::MAX), (40, 0)] {
        assert_eq!(whole(start, offset), Err(Refused::Header));
    }
}

#[test]
fn what_is_no_packet_is_refused() {
    for length in 0..VNET_HEADER {
        assert_eq!(Split::plan(&vec![0; length]).unwrap_err(), Refused::Header);
    }
    assert_eq!(
        Split::plan(&[0; VNET_HEADER]).unwrap_err(),
        Refused::Inner(InnerError::Truncated)
    );
    assert_eq!(
        Split::plan(&[0; 40]).unwrap_err(),
        Refused::Inner(InnerError::NotIp)
    );
}

#[test]
fn the_longest_frame_in_the_shortest_segments() {
    let make = Make {
        payload: (0..65_535 - 40).map(|i| (i % 251) as u8).collect(),
        ..Make::default()
    };
    let (header, packet) = make.super_packet(8);
    let packets = all(&frame(header, &packet));
    assert_eq!(packets.len(), 8_187);
    let payload: Vec<u8> = packets
        .iter()
        .flat_map(|packet| packet[40..].to_vec())
        .collect();
    assert_eq!(payload, make.payload);
}

proptest! {
    #[test]
    fn a_super_packet_makes_what_the_stack_would_have_sent(make in make(4_000), size in 1_u16..1_500) {
        let (header, packet) = make.super_packet(size);
        prop_assert_eq!(all(&frame(header, &packet)), make.segments(size.into()));
    }

    #[test]
    fn a_checksum_left_is_done(make in make(2_000)) {
        let (header, packet) = make.super_packet(1);
        let header = VnetHeader { gso_type: GSO_NONE, gso_size: 0, ..header };
        prop_assert_eq!(all(&frame(header, &packet)), [make.bytes()]);
    }

    #[test]
    fn hostile_frames_make_packets_that_add_up_or_none(
        make in make(300), header: [u8; VNET_HEADER], pick in 0..3_u8, at in 0..60_usize, byte: u8,
    ) {
        let (right, mut packet) = make.super_packet(u16::from(byte));
        if let Some(place) = packet.get_mut(at) {
            *place = byte;
        }
        let header = match pick {
            0 => VnetHeader::parse(&header),
            1 => VnetHeader { csum_start: header[0].into(), ..right },
            _ => right,
        };
        let frame = frame(header, &packet);
        if let Ok(split) = Split::plan(&frame) {
            let mut payload = 0;
            for number in 0..split.count() {
                let mut packet = vec![0; split.length(number)];
                split.write(number, &mut packet);
                let inner = inner::parse(&packet);
                prop_assert_eq!(inner.map(|inner| inner.length), Ok(packet.len()));
                payload += packet.len() - split.headers;
            }
            prop_assert_eq!(payload + split.headers, split.packet().len());
        }
    }
}
