//! MACs and cookies between a sender and a receiver.

use std::net::SocketAddr;

use super::*;
use crate::keys::PrivateKey;
use crate::time::Instant;
use crate::wire::{CookieReply, Initiation};

struct Link {
    maker: MacMaker,
    checker: MacChecker,
    message: [u8; Initiation::LEN],
    from: SocketAddr,
}

impl Link {
    fn new() -> Link {
        let key = PrivateKey::generate().unwrap().public();
        Link {
            maker: MacMaker::new(&key),
            checker: MacChecker::new(&key),
            message: [3; Initiation::LEN],
            from: "198.51.100.7:4000".parse().unwrap(),
        }
    }

    fn seal(&mut self, now: Instant) {
        self.maker.seal(&mut self.message, now);
    }

    fn check(&mut self, under_load: bool, now: Instant) -> MacVerdict {
        self.checker
            .check(&self.message, self.from, under_load, now)
    }

    fn reply(&mut self, now: Instant) -> CookieReply {
        self.checker
            .cookie_reply(&self.message, 5, self.from, now)
            .unwrap()
    }

    /// With a cookie taken at this instant.
    fn with_cookie(now: Instant) -> Link {
        let mut link = Link::new();
        link.seal(now);
        assert_eq!(link.check(true, now), MacVerdict::Mac1Only);
        let reply = link.reply(now);
        assert_eq!(reply.receiver, 5);
        link.maker.receive_cookie_reply(&reply, now).unwrap();
        link.seal(now);
        link
    }
}

const START: Instant = Instant(1_000_000_000_000);

#[test]
fn a_cookie_makes_mac2_valid() {
    let mut link = Link::with_cookie(START);
    assert_eq!(link.check(true, START), MacVerdict::Mac2Valid);
    assert_eq!(link.check(false, START), MacVerdict::Mac1Only);
}

#[test]
fn without_a_cookie_mac2_is_zero() {
    let mut link = Link::new();
    link.seal(START);
    assert_eq!(link.message[132..], [0; 16]);
    assert_eq!(link.message[..116], [3; 116]);
    assert_eq!(link.check(false, START), MacVerdict::Mac1Only);
}

#[test]
fn a_cookie_is_bound_to_address_and_port() {
    for other in [
        "198.51.100.7:4001",
        "198.51.100.8:4000",
        "[2001:db8::1]:4000",
    ] {
        let mut link = Link::with_cookie(START);
        link.from = other.parse().unwrap();
        assert_eq!(link.check(true, START), MacVerdict::Mac1Only);
    }
}

#[test]
fn a_cookie_is_used_for_115_seconds_and_taken_for_120() {
    let mut link = Link::with_cookie(START);
    let last_use = START + COOKIE_LIFETIME - COOKIE_LATENCY;
    link.seal(Instant(last_use.0 - 1));
    assert_eq!(
        link.check(true, Instant((START + COOKIE_LIFETIME).0 - 1)),
        MacVerdict::Mac2Valid
    );
    link.seal(last_use);
    assert_eq!(link.message[132..], [0; 16]);

    let mut link = Link::with_cookie(START);
    assert_eq!(
        link.check(true, START + COOKIE_LIFETIME),
        MacVerdict::Mac1Only
    );
}

#[test]
fn only_the_answer_to_the_last_message_is_taken_and_once() {
    let mut link = Link::new();
    link.seal(START);
    let early = link.reply(START);
    link.message[10] ^= 1;
    link.seal(START);
    assert_eq!(
        link.maker.receive_cookie_reply(&early, START),
        Err(CookieError::Decrypt)
    );
    let reply = link.reply(START);
    assert_eq!(link.maker.receive_cookie_reply(&reply, START), Ok(()));
    assert_eq!(
        link.maker.receive_cookie_reply(&reply, START),
        Err(CookieError::Unasked)
    );
}

#[test]
fn an_altered_cookie_reply_is_refused_and_harmless() {
    let mut link = Link::new();
    link.seal(START);
    let reply = link.reply(START);
    let bytes = reply.to_bytes();
    // Receiver is for meta to find the peer by; a wrong one finds another MAC1.
    for position in 8..bytes.len() {
        let mut altered = bytes;
        altered[position] ^= 0x10;
        let altered = CookieReply::parse(&altered).unwrap();
        assert_eq!(
            link.maker.receive_cookie_reply(&altered, START),
            Err(CookieError::Decrypt)
        );
    }
    let mut stranger = MacChecker::new(&PrivateKey::generate().unwrap().public());
    let forged = stranger
        .cookie_reply(&link.message, 5, link.from, START)
        .unwrap();
    assert_eq!(
        link.maker.receive_cookie_reply(&forged, START),
        Err(CookieError::Decrypt)
    );
    assert_eq!(link.maker.receive_cookie_reply(&reply, START), Ok(()));
}

#[test]
fn each_bit_of_mac2_counts() {
    let mut link = Link::with_cookie(START);
    for bit in 0..128 {
        link.message[132 + bit / 8] ^= 1 << (bit % 8);
        assert_eq!(link.check(true, START), MacVerdict::Mac1Only);
        link.message[132 + bit / 8] ^= 1 << (bit % 8);
    }
    assert_eq!(link.check(true, START), MacVerdict::Mac2Valid);
}

#[test]
fn a_message_too_short_for_macs_has_none() {
    let mut link = Link::new();
    for length in 0..32 {
        let mut message = vec![0; length];
        link.maker.seal(&mut message, START);
        let verdict = link.checker.check(&message, link.from, true, START);
        assert_eq!(verdict, MacVerdict::BadMac1);
    }
}
