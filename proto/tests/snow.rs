//! Our handshake on one side, plain `snow` with its own cryptography on the other.

#![allow(clippy::unwrap_used)]

use ringway_proto::keys::{PresharedKey, PrivateKey};
use ringway_proto::noise::{initiate, receive_initiation};
use ringway_proto::tai64n::Tai64n;
use ringway_proto::wire::{Initiation, Response};
use snow::{Builder, HandshakeState, TransportState};

fn builder<'a>(local: &'a PrivateKey, psk: &'a PresharedKey) -> Builder<'a> {
    Builder::new("Noise_IKpsk2_25519_ChaChaPoly_BLAKE2s".parse().unwrap())
        .prologue(b"WireGuard v1 zx2c4 Jason@zx2c4.com")
        .unwrap()
        .local_private_key(local.as_bytes())
        .unwrap()
        .psk(2, psk.as_bytes())
        .unwrap()
}

/// What `snow` seals opens with the key, under its first nonce.
fn assert_opens(snow: &mut TransportState, key: [u8; 32]) {
    use chacha20poly1305::aead::Aead;
    use chacha20poly1305::{ChaCha20Poly1305, KeyInit};
    let mut sealed = [0; 21];
    snow.write_message(b"hello", &mut sealed).unwrap();
    let opened = ChaCha20Poly1305::new(&key.into()).decrypt(&[0; 12].into(), &sealed[..]);
    assert_eq!(opened.unwrap(), b"hello");
}

/// What is sealed with the key under its first nonce opens with `snow`.
fn assert_seals(snow: &mut TransportState, key: [u8; 32]) {
    use chacha20poly1305::aead::Aead;
    use chacha20poly1305::{ChaCha20Poly1305, KeyInit};
    let cipher = ChaCha20Poly1305::new(&key.into());
    let sealed = cipher.encrypt(&[0; 12].into(), &b"hello"[..]).unwrap();
    let mut opened = [0; 5];
    assert_eq!(snow.read_message(&sealed, &mut opened).unwrap(), 5);
    assert_eq!(&opened, b"hello");
}

#[test]
fn as_initiator() {
    let local = PrivateKey::generate().unwrap();
    let remote = PrivateKey::generate().unwrap();
    let psk = PresharedKey::generate().unwrap();
    let stamp = Tai64n::from_unix_ns(1_700_000_000_000_000_000);
    let (mut handshake, initiation) = initiate(&local, &remote.public(), 1, stamp).unwrap();

    let mut snow: HandshakeState = builder(&remote, &psk).build_responder().unwrap();
    let mut payload = [0; 12];
    snow.read_message(&initiation.to_bytes()[8..116], &mut payload)
        .unwrap();
    assert_eq!(payload, stamp.to_bytes());
    assert_eq!(
        snow.get_remote_static(),
        Some(&local.public().as_bytes()[..])
    );
    let mut response = [0; Response::LEN];
    response[..12].copy_from_slice(&[2, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0]);
    assert_eq!(snow.write_message(&[], &mut response[12..60]).unwrap(), 48);

    let response = Response::parse(&response).unwrap();
    let (keys, index) = handshake.receive_response(&psk, &response).unwrap();
    assert_eq!(index, 2);
    let mut snow = snow.into_transport_mode().unwrap();
    assert_opens(&mut snow, keys.receive);
    assert_seals(&mut snow, keys.send);
}

#[test]
fn as_responder() {
    let local = PrivateKey::generate().unwrap();
    let remote = PrivateKey::generate().unwrap();
    let psk = PresharedKey::generate().unwrap();
    let mut snow: HandshakeState = builder(&remote, &psk)
        .remote_public_key(local.public().as_bytes())
        .unwrap()
        .build_initiator()
        .unwrap();
    let mut initiation = [0; Initiation::LEN];
    initiation[..8].copy_from_slice(&[1, 0, 0, 0, 2, 0, 0, 0]);
    assert_eq!(
        snow.write_message(&[7; 12], &mut initiation[8..116])
            .unwrap(),
        108
    );

    let received = receive_initiation(&local, &Initiation::parse(&initiation).unwrap()).unwrap();
    assert_eq!(received.remote, remote.public());
    assert_eq!(received.remote_index, 2);
    assert_eq!(received.timestamp, Tai64n::from_bytes([7; 12]));
    let (response, keys) = received.respond(&psk, 1).unwrap();
    assert_eq!((response.sender, response.receiver), (1, 2));
    assert_eq!(
        snow.read_message(&response.to_bytes()[12..60], &mut [])
            .unwrap(),
        0
    );
    let mut snow = snow.into_transport_mode().unwrap();
    assert_opens(&mut snow, keys.receive);
    assert_seals(&mut snow, keys.send);
}
