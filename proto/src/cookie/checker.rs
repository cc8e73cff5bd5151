//! The receiver's side: checks MACs and gives out cookies.

use std::net::{IpAddr, SocketAddr};

use chacha20poly1305::aead::AeadInPlace;
use chacha20poly1305::{KeyInit, XChaCha20Poly1305, XNonce};
use zeroize::Zeroizing;

use super::{COOKIE_LIFETIME, Cookie, DerivedKey, cookie_key, cut, equal, mac, mac1_key};
use crate::keys::{KEY_LEN, PublicKey};
use crate::time::Instant;
use crate::wire::{CookieReply, MAC_LEN, TAG_LEN};

/// What the MACs of a handshake message are worth.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum MacVerdict {
    /// The sender does not know our public key, or the message was altered: drop it.
    BadMac1,
    /// The sender knows our public key, and may claim to be anywhere. Under load:
    /// answer with a cookie, else go on.
    Mac1Only,
    /// The sender also has our cookie and so is where it claims to be. Only said
    /// under load, since MAC2 is not looked at otherwise.
    Mac2Valid,
}

/// Checks the MACs of handshake messages to one gateway, and gives out its cookies.
pub struct MacChecker {
    mac1_key: DerivedKey,
    cookie_key: DerivedKey,
    /// What cookies are made with, and since when. None before the first.
    secret: Option<(Zeroizing<[u8; KEY_LEN]>, Instant)>,
}

impl MacChecker {
    /// For messages to the owner of this key.
    pub fn new(local: &PublicKey) -> MacChecker {
        MacChecker {
            mac1_key: mac1_key(local),
            cookie_key: cookie_key(local),
            secret: None,
        }
    }

    /// Judges an initiation or a response by its last 32 bytes.
    pub fn check(
        &mut self,
        message: &[u8],
        from: SocketAddr,
        under_load: bool,
        now: Instant,
    ) -> MacVerdict {
        let Some((body, mac1, mac2)) = cut(message) else {
            return MacVerdict::BadMac1;
        };
        if !equal(&mac(&self.mac1_key[..], &[body]), mac1) {
            return MacVerdict::BadMac1;
        }
        if !under_load {
            return MacVerdict::Mac1Only;
        }
        match self.cookie(from, now) {
            Ok(cookie) if equal(&mac(&cookie[..], &[body, mac1]), mac2) => MacVerdict::Mac2Valid,
            _ => MacVerdict::Mac1Only,
        }
    }

    /// The cookie for the sender of `message`, whose MAC1 was found right, sealed
    /// so that only who saw that message can open it.
    ///
    /// An error means that the system gave no random bytes: send nothing.
    pub fn cookie_reply(
        &mut self,
        message: &[u8],
        sender_index: u32,
        from: SocketAddr,
        now: Instant,
    ) -> Result<CookieReply, getrandom::Error> {
        let mac1 = cut(message).map_or(&[0; MAC_LEN], |(_, mac1, _)| mac1);
        let mut cookie = self.cookie(from, now)?;
        let mut nonce = [0; CookieReply::NONCE_LEN];
        getrandom::fill(&mut nonce)?;
        let sealing = XChaCha20Poly1305::new((&*self.cookie_key).into()).encrypt_in_place_detached(
            XNonce::from_slice(&nonce),
            mac1,
            &mut cookie[..],
        );
        let Ok(tag) = sealing else {
            unreachable!("a cookie is far below the cipher's limit");
        };
        let mut encrypted_cookie = [0; MAC_LEN + TAG_LEN];
        encrypted_cookie[..MAC_LEN].copy_from_slice(&cookie[..]);
        encrypted_cookie[MAC_LEN..].copy_from_slice(&tag);
        Ok(CookieReply {
            receiver: sender_index,
            nonce,
            encrypted_cookie,
        })
    }

    /// The cookie of an address and port, under a secret that is renewed when old.
    /// Old cookies end with it: their holders get a new one for the asking.
    fn cookie(
        &mut self,
        from: SocketAddr,
        now: Instant,
    ) -> Result<Zeroizing<Cookie>, getrandom::Error> {
        self.secret
            .take_if(|(_, since)| now.since(*since) >= COOKIE_LIFETIME);
        let secret = match &self.secret {
            Some((secret, _)) => secret,
            None => &self.secret.insert((new_secret()?, now)).0,
        };
        let port = from.port().to_be_bytes();
        Ok(Zeroizing::new(match from.ip() {
            IpAddr::V4(address) => mac(&secret[..], &[&address.octets(), &port]),
            IpAddr::V6(address) => mac(&secret[..], &[&address.octets(), &port]),
        }))
    }
}

impl std::fmt::Debug for MacChecker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("MacChecker(redacted)")
    }
}

fn new_secret() -> Result<Zeroizing<[u8; KEY_LEN]>, getrandom::Error> {
    let mut secret = Zeroizing::new([0; KEY_LEN]);
    getrandom::fill(&mut secret[..])?;
    Ok(secret)
}
