//! The handshake against vectors, and against everything that should end it.

use std::collections::HashMap;

use chacha20poly1305::aead::Aead;
use chacha20poly1305::{ChaCha20Poly1305, KeyInit};

use super::*;
use crate::cookie::{MacChecker, MacMaker, MacVerdict};
use crate::time::Instant;
use crate::wire::{CookieReply, Data};

/// Keys and two messages, all of which fit each other.
struct Pair {
    initiator: PrivateKey,
    responder: PrivateKey,
    psk: PresharedKey,
    handshake: InitiatorHandshake,
    initiation: Initiation,
}

impl Pair {
    fn new() -> Pair {
        let initiator = PrivateKey::generate().unwrap();
        let responder = PrivateKey::generate().unwrap();
        let psk = PresharedKey::generate().unwrap();
        let (handshake, initiation) =
            initiate(&initiator, &responder.public(), 7, stamp()).unwrap();
        Pair {
            initiator,
            responder,
            psk,
            handshake,
            initiation,
        }
    }

    fn respond(&self) -> (Response, SessionKeys) {
        let received = receive_initiation(&self.responder, &self.initiation).unwrap();
        assert_eq!(received.remote, self.initiator.public());
        assert_eq!(received.timestamp, stamp());
        assert_eq!(received.remote_index, 7);
        received.respond(&self.psk, 9).unwrap()
    }

    /// That the handshake is still alive, and ends in the right keys.
    fn assert_usable(mut self, response: &Response, keys: &SessionKeys) {
        let (own, index) = self
            .handshake
            .receive_response(&self.psk, response)
            .unwrap();
        assert_eq!(index, 9);
        assert_eq!(own.send, keys.receive);
        assert_eq!(own.receive, keys.send);
        assert_ne!(own.send, own.receive);
        let again = self.handshake.receive_response(&self.psk, response);
        assert_eq!(again.unwrap_err(), NoiseError::Ended);
    }
}

fn stamp() -> Tai64n {
    Tai64n::from_unix_ns(1_700_000_000_000_000_000)
}

#[test]
fn both_sides_get_the_same_keys() {
    let pair = Pair::new();
    let (response, keys) = pair.respond();
    pair.assert_usable(&response, &keys);
}

#[test]
fn forged_responses_leave_the_handshake_usable() {
    let mut pair = Pair::new();
    let (response, keys) = pair.respond();

    // Of another key pair, whose owner has seen the initiation.
    let impostor = PrivateKey::generate().unwrap();
    let (_, foreign) = initiate(&pair.initiator, &impostor.public(), 7, stamp()).unwrap();
    let (forged, _) = receive_initiation(&impostor, &foreign)
        .unwrap()
        .respond(&pair.psk, 9)
        .unwrap();
    let refused = pair.handshake.receive_response(&pair.psk, &forged);
    assert_eq!(refused.unwrap_err(), NoiseError::Decrypt);

    // With another preshared key, on either side.
    let other = PresharedKey::generate().unwrap();
    let received = receive_initiation(&pair.responder, &pair.initiation).unwrap();
    let (forged, _) = received.respond(&other, 9).unwrap();
    let refused = pair.handshake.receive_response(&pair.psk, &forged);
    assert_eq!(refused.unwrap_err(), NoiseError::Decrypt);
    let refused = pair.handshake.receive_response(&other, &response);
    assert_eq!(refused.unwrap_err(), NoiseError::Decrypt);

    // For another handshake of ours.
    let forged = Response {
        receiver: 8,
        ..response.clone()
    };
    let refused = pair.handshake.receive_response(&pair.psk, &forged);
    assert_eq!(refused.unwrap_err(), NoiseError::ForeignIndex(8));

    pair.assert_usable(&response, &keys);
}

#[test]
fn an_initiation_for_somebody_else_does_not_open() {
    let pair = Pair::new();
    let other = PrivateKey::generate().unwrap();
    assert_eq!(
        receive_initiation(&other, &pair.initiation).unwrap_err(),
        NoiseError::Decrypt
    );
}

/// Each byte of a message is covered by Noise or by a MAC.
#[test]
fn altered_messages_are_refused() {
    let mut pair = Pair::new();
    let from = "192.0.2.1:51820".parse().unwrap();
    let now = Instant(1);
    let (response, keys) = pair.respond();
    let mut to_responder = MacMaker::new(&pair.responder.public());
    let mut to_initiator = MacMaker::new(&pair.initiator.public());
    let mut responder = MacChecker::new(&pair.responder.public());
    let mut initiator = MacChecker::new(&pair.initiator.public());

    let mut sealed = pair.initiation.to_bytes();
    to_responder.seal(&mut sealed, now);
    assert_eq!(
        responder.check(&sealed, from, false, now),
        MacVerdict::Mac1Only
    );
    for position in 0..Initiation::LEN - MAC_LEN {
        let mut altered = sealed;
        altered[position] ^= 1 << (position % 8);
        assert_eq!(
            responder.check(&altered, from, false, now),
            MacVerdict::BadMac1
        );
        // Sender and MACs are not Noise's; the rest is refused by itself.
        if (8..116).contains(&position) {
            let altered = Initiation::parse(&altered).unwrap();
            assert!(
                receive_initiation(&pair.responder, &altered).is_err(),
                "byte {position}"
            );
        }
    }

    let mut sealed = response.to_bytes();
    to_initiator.seal(&mut sealed, now);
    assert_eq!(
        initiator.check(&sealed, from, false, now),
        MacVerdict::Mac1Only
    );
    for position in 0..Response::LEN - MAC_LEN {
        let mut altered = sealed;
        altered[position] ^= 1 << (position % 8);
        assert_eq!(
            initiator.check(&altered, from, false, now),
            MacVerdict::BadMac1
        );
        if (8..60).contains(&position) {
            let altered = Response::parse(&altered).unwrap();
            let refused = pair.handshake.receive_response(&pair.psk, &altered);
            assert!(refused.is_err(), "byte {position}");
        }
    }
    pair.assert_usable(&response, &keys);
}

#[test]
fn points_of_low_order_are_refused() {
    let mut pair = Pair::new();
    let (response, keys) = pair.respond();
    for first in [0, 1, 0xec] {
        let mut point = [if first < 2 { 0 } else { 0xff }; 32];
        point[0] = first;
        let low = PublicKey::from_bytes(point);
        let refused = initiate(&pair.initiator, &low, 1, stamp());
        assert_eq!(refused.unwrap_err(), NoiseError::LowOrderPoint);
        let forged = Initiation {
            ephemeral: point,
            ..pair.initiation.clone()
        };
        let refused = receive_initiation(&pair.responder, &forged);
        assert_eq!(refused.unwrap_err(), NoiseError::LowOrderPoint);
        let forged = Response {
            ephemeral: point,
            ..response.clone()
        };
        let refused = pair.handshake.receive_response(&pair.psk, &forged);
        assert_eq!(refused.unwrap_err(), NoiseError::LowOrderPoint);
    }
    pair.assert_usable(&response, &keys);
}

/// A static key of low order comes sealed, so only the multiplication can tell.
#[test]
fn an_initiator_of_low_order_is_refused() {
    use snow::types::Dh;

    /// Claims the point zero for its static key and computes what the other side would.
    struct Liar(Option<PrivateKey>);

    impl Dh for Liar {
        fn name(&self) -> &'static str {
            "25519"
        }
        fn pub_len(&self) -> usize {
            32
        }
        fn priv_len(&self) -> usize {
            32
        }
        fn set(&mut self, _: &[u8]) {}
        fn generate(&mut self, _: &mut dyn snow::types::Random) -> Result<(), snow::Error> {
            self.0 = PrivateKey::generate().ok();
            Ok(())
        }
        fn pubkey(&self) -> &[u8] {
            match &self.0 {
                Some(key) => key.public_bytes(),
                None => &[0; 32],
            }
        }
        fn privkey(&self) -> &[u8] {
            &[0; 32]
        }
        fn dh(&self, public: &[u8], out: &mut [u8]) -> Result<(), snow::Error> {
            let public = *public.first_chunk().unwrap();
            let shared = self
                .0
                .as_ref()
                .map(|key| x25519_dalek::x25519(*key.as_bytes(), public));
            out[..32].copy_from_slice(&shared.unwrap_or_default());
            Ok(())
        }
    }

    struct Resolver;

    impl snow::resolvers::CryptoResolver for Resolver {
        fn resolve_rng(&self) -> Option<Box<dyn snow::types::Random>> {
            DefaultResolver.resolve_rng()
        }
        fn resolve_dh(&self, _: &snow::params::DHChoice) -> Option<Box<dyn Dh>> {
            Some(Box::new(Liar(None)))
        }
        fn resolve_hash(
            &self,
            choice: &snow::params::HashChoice,
        ) -> Option<Box<dyn snow::types::Hash>> {
            DefaultResolver.resolve_hash(choice)
        }
        fn resolve_cipher(
            &self,
            choice: &snow::params::CipherChoice,
        ) -> Option<Box<dyn snow::types::Cipher>> {
            DefaultResolver.resolve_cipher(choice)
        }
    }

    let responder = PrivateKey::generate().unwrap();
    let mut liar = Builder::with_resolver(parameters(&WIREGUARD).unwrap(), Box::new(Resolver))
        .prologue(IDENTIFIER)
        .unwrap()
        .local_private_key(&[0; 32])
        .unwrap()
        .remote_public_key(responder.public_bytes())
        .unwrap()
        .build_initiator()
        .unwrap();
    let mut noise = [0; 108];
    liar.write_message(&[0; 12], &mut noise).unwrap();
    let message = Initiation {
        sender: 1,
        ephemeral: noise[..32].try_into().unwrap(),
        encrypted_static: noise[32..80].try_into().unwrap(),
        encrypted_timestamp: noise[80..].try_into().unwrap(),
        mac1: [0; 16],
        mac2: [0; 16],
    };
    let refused = receive_initiation(&responder, &message);
    assert_eq!(refused.unwrap_err(), NoiseError::LowOrderPoint);
}

/// Against a second implementation, see tests/vectors/handshake.py.
#[test]
fn messages_and_keys_are_those_of_the_white_paper() {
    let v = Vectors::read(include_str!("../../tests/vectors/handshake.txt"));
    let initiator = PrivateKey::from_bytes(&v.array("initiator_private"));
    let responder = PrivateKey::from_bytes(&v.array("responder_private"));
    let psk = PresharedKey::from_bytes(v.array("preshared_key"));
    assert_eq!(*initiator.public().as_bytes(), v.array("initiator_public"));
    assert_eq!(*responder.public().as_bytes(), v.array("responder_public"));

    let (index_i, index_r) = (0x0102_0304, 0xa0b0_c0d0);
    let timestamp = Tai64n::from_bytes(v.array("timestamp"));
    let ephemeral = v.array("initiator_ephemeral");
    let remote = responder.public();
    let (mut handshake, message) =
        initiate_with(&initiator, &remote, index_i, timestamp, Some(&ephemeral)).unwrap();
    let mut initiation = message.to_bytes();
    let mut macs = MacMaker::new(&responder.public());
    macs.seal(&mut initiation, Instant(1));
    assert_eq!(initiation, v.array("initiation"));

    let ephemeral = v.array("responder_ephemeral");
    let received = receive_initiation_with(&responder, &message, Some(&ephemeral)).unwrap();
    assert_eq!(received.timestamp, timestamp);
    let (message, keys) = received.respond(&psk, index_r).unwrap();
    let mut response = message.to_bytes();
    MacMaker::new(&initiator.public()).seal(&mut response, Instant(1));
    assert_eq!(response, v.array("response"));
    assert_eq!(keys.send, v.array("responder_sends"));
    assert_eq!(keys.receive, v.array("initiator_sends"));
    let (keys, _) = handshake.receive_response(&psk, &message).unwrap();
    assert_eq!(keys.send, v.array("initiator_sends"));
    assert_eq!(keys.receive, v.array("responder_sends"));

    let reply = CookieReply::parse(&v.0["cookie_reply"]).unwrap();
    macs.receive_cookie_reply(&reply, Instant(1)).unwrap();
    macs.seal(&mut initiation, Instant(1));
    assert_eq!(initiation[..132], v.0["initiation"][..132]);
    assert_eq!(initiation[132..], v.0["initiation_mac2"]);
}

/// Against messages that wireguard-go sent.
#[test]
fn recorded_messages_open() {
    let v = Vectors::read(include_str!("../../tests/vectors/handshake.txt"));
    let recorded = Vectors::read(include_str!("../../tests/vectors/recorded.txt"));
    let initiator = PrivateKey::from_bytes(&v.array("initiator_private"));
    let responder = PrivateKey::from_bytes(&v.array("responder_private"));
    let psk = PresharedKey::from_bytes(v.array("preshared_key"));
    let from = "192.0.2.1:51820".parse().unwrap();

    let initiation = &recorded.0["initiation"];
    let mut checker = MacChecker::new(&responder.public());
    assert_eq!(
        checker.check(initiation, from, false, Instant(1)),
        MacVerdict::Mac1Only
    );
    let received = receive_initiation(&responder, &Initiation::parse(initiation).unwrap()).unwrap();
    assert_eq!(received.remote, initiator.public());
    assert!(received.timestamp > Tai64n::from_unix_ns(1_700_000_000_000_000_000));

    let timestamp = Tai64n::from_bytes(v.array("timestamp"));
    let ephemeral = v.array("initiator_ephemeral");
    let remote = responder.public();
    let (mut handshake, _) = initiate_with(
        &initiator,
        &remote,
        0x0102_0304,
        timestamp,
        Some(&ephemeral),
    )
    .unwrap();
    let response = &recorded.0["response"];
    let mut checker = MacChecker::new(&initiator.public());
    assert_eq!(
        checker.check(response, from, false, Instant(1)),
        MacVerdict::Mac1Only
    );
    let response = Response::parse(response).unwrap();
    let (keys, index) = handshake.receive_response(&psk, &response).unwrap();
    assert_eq!(index, response.sender);

    let keepalive = Data::parse(&recorded.0["keepalive"][..]).unwrap();
    assert_eq!(keepalive.header().receiver, 0x0102_0304);
    let mut nonce = [0; 12];
    nonce[4..].copy_from_slice(&keepalive.header().counter.to_le_bytes());
    let cipher = ChaCha20Poly1305::new(&keys.receive.into());
    assert_eq!(
        cipher.decrypt(&nonce.into(), keepalive.body()).unwrap(),
        b""
    );
}

/// Lines of `name = hex`.
struct Vectors(HashMap<&'static str, Vec<u8>>);

impl Vectors {
    fn read(text: &'static str) -> Vectors {
        let lines = text.lines().filter_map(|line| line.split_once(" = "));
        let byte =
            |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
        Vectors(
            lines
                .map(|(name, hex)| (name, hex.as_bytes().chunks(2).map(byte).collect()))
                .collect(),
        )
    }

    fn array<const N: usize>(&self, name: &str) -> [u8; N] {
        self.0[name][..].try_into().unwrap()
    }
}
