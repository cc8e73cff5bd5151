//! Handshake messages that are altered, cut and mixed: only the true ones are
//! taken, and no false response ends a handshake.
//!
//! Input: a byte that chooses, then pairs of a position and what to change there.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ringway_proto::keys::{PresharedKey, PrivateKey};
use ringway_proto::noise::{initiate, receive_initiation};
use ringway_proto::tai64n::Tai64n;
use ringway_proto::wire::{Initiation, Response};

fuzz_target!(|input: &[u8]| {
    let Some((&choice, changes)) = input.split_first() else {
        return;
    };
    let initiator = PrivateKey::from_bytes(&[1; 32]);
    let responder = PrivateKey::from_bytes(&[2; 32]);
    let psk = PresharedKey::from_bytes([3; 32]);
    let stamp = Tai64n::from_unix_ns(1 << 60);
    let Ok((mut handshake, initiation)) = initiate(&initiator, &responder.public(), 5, stamp)
    else {
        panic!("a handshake begins with good keys");
    };

    if choice & 1 == 0 {
        let altered = alter(initiation.to_bytes(), changes);
        let Ok(message) = Initiation::parse(&altered) else {
            return;
        };
        let taken = receive_initiation(&responder, &message).is_ok();
        // Index and MACs are not covered by Noise.
        assert_eq!(taken, altered[8..116] == initiation.to_bytes()[8..116]);
    } else {
        let received = receive_initiation(&responder, &initiation);
        let Ok((response, keys)) = received.and_then(|received| received.respond(&psk, 6)) else {
            panic!("an initiation that nobody altered opens");
        };
        let altered = alter(response.to_bytes(), changes);
        if altered[8..60] != response.to_bytes()[8..60] {
            if let Ok(message) = Response::parse(&altered) {
                assert!(handshake.receive_response(&psk, &message).is_err());
            }
        }
        let ended = handshake.receive_response(&psk, &response);
        assert!(ended.is_ok_and(|(own, index)| own.send == keys.receive && index == 6));
    }
});

fn alter<const N: usize>(mut bytes: [u8; N], changes: &[u8]) -> [u8; N] {
    for change in changes.chunks_exact(2) {
        bytes[usize::from(change[0]) % N] ^= change[1];
    }
    bytes
}
