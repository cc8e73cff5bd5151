//! The packet inside the tunnel, and all that is done with it.
//!
//! Input: two bytes that are an MTU, then the packet.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ringway_proto::ecn::{self, Decapsulated};
use ringway_proto::fragment::fragment;
use ringway_proto::inner;
use ringway_proto::too_big::{MAXIMUM_ANSWER, answer};

fuzz_target!(|input: &[u8]| {
    let Some((mtu, packet)) = input.split_first_chunk::<2>() else {
        return;
    };
    let mtu = u16::from_le_bytes(*mtu);

    let mut out = [0; MAXIMUM_ANSWER];
    if let Ok(length) = answer(packet, mtu, None, &mut out) {
        assert!(inner::parse(&out[..length]).is_ok_and(|inner| inner.length == length));
    }

    let mut pieces = 0;
    if let Ok(mut fragments) = fragment(packet, usize::from(mtu)) {
        let mut out = vec![0; usize::from(mtu)];
        while let Some(length) = fragments.next_into(&mut out) {
            pieces += 1;
            assert!(length <= usize::from(mtu) && pieces <= packet.len());
            assert!(inner::parse(&out[..length]).is_ok_and(|inner| inner.length == length));
        }
        assert!(pieces > 0);
    }

    let Ok(header) = inner::parse(packet) else {
        let mut other = packet.to_vec();
        ecn::set(&mut other, 3);
        return;
    };
    assert!(header.header_length <= header.length && header.length <= packet.len());
    assert_eq!(header.flow_hash(packet, 7), header.flow_hash(packet, 7));
    if let Decapsulated::Set(mark) = ecn::decapsulate(header.ecn, mtu as u8) {
        let mut marked = packet.to_vec();
        ecn::set(&mut marked, mark);
        let expected = inner::Inner {
            ecn: mark,
            ..header
        };
        assert!(inner::parse(&marked).is_ok_and(|inner| inner == expected));
    }
});
