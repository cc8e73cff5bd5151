//! Messages of any length under MACs, and cookie replies of any content.
#![no_main]

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use ringway_proto::cookie::{MacChecker, MacMaker, MacVerdict};
use ringway_proto::keys::{PrivateKey, PublicKey};
use ringway_proto::time::Instant;
use ringway_proto::wire::CookieReply;

static KEY: LazyLock<PublicKey> = LazyLock::new(|| PrivateKey::from_bytes(&[1; 32]).public());

fuzz_target!(|input: &[u8]| {
    let from = SocketAddr::from((Ipv4Addr::LOCALHOST, 9));
    let now = Instant(1);
    let mut checker = MacChecker::new(&KEY);
    let mut maker = MacMaker::new(&KEY);

    assert_eq!(checker.check(input, from, true, now), MacVerdict::BadMac1);

    let mut message = input.to_vec();
    maker.seal(&mut message, now);
    let verdict = checker.check(&message, from, true, now);
    if message.len() < 32 {
        assert_eq!(verdict, MacVerdict::BadMac1);
        return;
    }
    assert_eq!(verdict, MacVerdict::Mac1Only);
    if let Ok(forged) = CookieReply::parse(input) {
        assert!(maker.receive_cookie_reply(&forged, now).is_err());
    }
    let Ok(reply) = checker.cookie_reply(&message, 1, from, now) else {
        return;
    };
    assert_eq!(maker.receive_cookie_reply(&reply, now), Ok(()));
    maker.seal(&mut message, now);
    assert_eq!(
        checker.check(&message, from, true, now),
        MacVerdict::Mac2Valid
    );
});
