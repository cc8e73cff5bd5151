//! MAC1, MAC2 and cookies: who may make us work.
//!
//! MAC1 proves that a sender knows whom it speaks to, which costs us one hash.
//! Under load we also want MAC2: a MAC under a cookie that we sent to the very
//! address and port that the message claims to come from, so that nobody makes us
//! work from an address that is not his. White paper, sections 5.3 and 5.4.4 to
//! 5.4.7; kernel, drivers/net/wireguard/cookie.c.

mod checker;
mod maker;

pub use checker::{MacChecker, MacVerdict};
pub use maker::{CookieError, MacMaker};

use std::time::Duration;

use blake2::digest::consts::U16;
use blake2::digest::{FixedOutput, KeyInit, Mac};
use blake2::{Blake2s256, Blake2sMac, Digest};
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use crate::keys::{KEY_LEN, PublicKey};
use crate::wire::MAC_LEN;

/// How long a cookie secret is used, and so a cookie taken.
pub const COOKIE_LIFETIME: Duration = Duration::from_secs(120);
/// How much earlier a cookie's holder stops to use it: it may have been made with
/// a secret that was this old already, and has a way to travel.
pub const COOKIE_LATENCY: Duration = Duration::from_secs(5);

/// A cookie, and anything else that is a MAC of 16 bytes.
type Cookie = [u8; MAC_LEN];
type DerivedKey = Zeroizing<[u8; KEY_LEN]>;

/// The key of every MAC1 of messages to the owner of a public key.
fn mac1_key(receiver: &PublicKey) -> DerivedKey {
    derive(*b"mac1----", receiver)
}

/// The key that seals the cookies which the owner of a public key gives out.
fn cookie_key(giver: &PublicKey) -> DerivedKey {
    derive(*b"cookie--", giver)
}

fn derive(label: [u8; 8], key: &PublicKey) -> DerivedKey {
    let digest = Blake2s256::new()
        .chain_update(label)
        .chain_update(key.as_bytes())
        .finalize();
    Zeroizing::new(digest.into())
}

/// BLAKE2s with key and an output of 16 bytes, over the parts one after the other.
fn mac(key: &[u8], parts: &[&[u8]]) -> Cookie {
    let Ok(mut state) = <Blake2sMac<U16> as KeyInit>::new_from_slice(key) else {
        unreachable!("a key of 16 or 32 bytes fits BLAKE2s");
    };
    for part in parts {
        Mac::update(&mut state, part);
    }
    state.finalize_fixed().into()
}

/// A message cut into what MAC1 covers, MAC1, and MAC2. None if it is too short for MACs.
fn cut(message: &[u8]) -> Option<(&[u8], &Cookie, &Cookie)> {
    let (rest, mac2) = message.split_last_chunk::<MAC_LEN>()?;
    let (body, mac1) = rest.split_last_chunk::<MAC_LEN>()?;
    Some((body, mac1, mac2))
}

fn equal(a: &Cookie, b: &Cookie) -> bool {
    a.ct_eq(b).into()
}

#[cfg(test)]
mod tests;
