//! The sender's side: puts MACs on handshake messages to one peer.

use chacha20poly1305::aead::AeadInPlace;
use chacha20poly1305::{KeyInit, Tag, XChaCha20Poly1305, XNonce};
use zeroize::Zeroizing;

use super::{COOKIE_LATENCY, COOKIE_LIFETIME, Cookie, DerivedKey, cookie_key, mac, mac1_key};
use crate::keys::PublicKey;
use crate::time::Instant;
use crate::wire::{CookieReply, MAC_LEN};

/// Why a cookie reply is not taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CookieError {
    /// Nothing that a cookie reply could answer was sent since the last one.
    #[error("cookie reply answers no message that was sent")]
    Unasked,
    /// It was sealed by somebody else, or for another message.
    #[error("cookie reply does not decrypt: it is forged or answers an older message")]
    Decrypt,
}

/// Puts MACs on handshake messages to one peer, and keeps the peer's cookie.
pub struct MacMaker {
    mac1_key: DerivedKey,
    cookie_key: DerivedKey,
    cookie: Option<(Zeroizing<Cookie>, Instant)>,
    /// Of the last message sealed, until a cookie reply has answered it.
    last_mac1: Option<Cookie>,
}

impl MacMaker {
    /// For messages to the owner of this key.
    pub fn new(remote: &PublicKey) -> MacMaker {
        MacMaker {
            mac1_key: mac1_key(remote),
            cookie_key: cookie_key(remote),
            cookie: None,
            last_mac1: None,
        }
    }

    /// Writes MAC1 and MAC2 into the last 32 bytes of an initiation or a response.
    ///
    /// MAC2 is zero without a cookie that is still good.
    pub fn seal(&mut self, message: &mut [u8], now: Instant) {
        let Some((rest, mac2)) = message.split_last_chunk_mut::<MAC_LEN>() else {
            return;
        };
        let Some((body, mac1)) = rest.split_last_chunk_mut::<MAC_LEN>() else {
            return;
        };
        *mac1 = mac(&self.mac1_key[..], &[body]);
        self.last_mac1 = Some(*mac1);
        *mac2 = match self.cookie(now) {
            Some(cookie) => mac(cookie, &[body, mac1]),
            None => [0; MAC_LEN],
        };
    }

    /// Takes the cookie out of a reply to the last message that was sealed here.
    ///
    /// Taking one forgets the MAC1, so that a replay of the reply changes nothing.
    pub fn receive_cookie_reply(
        &mut self,
        reply: &CookieReply,
        now: Instant,
    ) -> Result<(), CookieError> {
        let mac1 = self.last_mac1.ok_or(CookieError::Unasked)?;
        let (sealed, tag) = reply.encrypted_cookie.split_at(MAC_LEN);
        let mut cookie = Zeroizing::new(Cookie::default());
        cookie.copy_from_slice(sealed);
        XChaCha20Poly1305::new((&*self.cookie_key).into())
            .decrypt_in_place_detached(
                XNonce::from_slice(&reply.nonce),
                &mac1,
                &mut cookie[..],
                Tag::from_slice(tag),
            )
            .map_err(|_| CookieError::Decrypt)?;
        self.cookie = Some((cookie, now));
        self.last_mac1 = None;
        Ok(())
    }

    fn cookie(&mut self, now: Instant) -> Option<&Cookie> {
        let good_for = COOKIE_LIFETIME.saturating_sub(COOKIE_LATENCY);
        self.cookie
            .take_if(|(_, since)| now.since(*since) >= good_for);
        self.cookie.as_ref().map(|(cookie, _)| &**cookie)
    }
}

impl std::fmt::Debug for MacMaker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MacMaker")
            .field("has_cookie", &self.cookie.is_some())
            .finish_non_exhaustive()
    }
}
