//! Keys, prefixes and endpoints: what is read is read again from its own text.
#![no_main]

use std::fmt::Display;
use std::str::FromStr;

use libfuzzer_sys::fuzz_target;
use ringway_proto::endpoint::HostPort;
use ringway_proto::keys::{PresharedKey, PrivateKey, PublicKey};
use ringway_proto::prefix::Prefix;

fuzz_target!(|text: &str| {
    if let Ok(key) = PublicKey::from_base64(text) {
        assert_eq!(key.to_base64(), text);
    }
    if let Ok(key) = PublicKey::from_hex(text) {
        assert!(key.to_hex().eq_ignore_ascii_case(text));
    }
    if let Ok(key) = PresharedKey::from_base64(text) {
        assert_eq!(*key.to_base64(), text);
    }
    if let Ok(key) = PrivateKey::from_hex(text) {
        assert_eq!(PrivateKey::from_hex(&key.to_hex()), Ok(key));
    }
    same_again::<Prefix>(text);
    same_again::<HostPort>(text);
});

fn same_again<T: FromStr + Display + PartialEq>(text: &str) {
    if let Ok(value) = text.parse::<T>() {
        let again = value.to_string();
        assert!(
            again.parse::<T>().is_ok_and(|read| read == value),
            "{text:?} became {again:?}"
        );
    }
}
