//! The cryptography that `snow` computes a handshake with.
//!
//! Its own would do, but for three things: keys are wiped here, a shared secret
//! of zero is an error (the white paper leaves it open, the kernel refuses it),
//! and the public key of the local static key is not computed anew each time.

use chacha20poly1305::aead::AeadInPlace;
use chacha20poly1305::{ChaCha20Poly1305, KeyInit, Nonce, Tag};
use snow::Error;
use snow::params::{CipherChoice, DHChoice, HashChoice};
use snow::resolvers::{CryptoResolver, DefaultResolver};
use snow::types::{Cipher, Dh, Hash, Random};
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use crate::keys::{KEY_LEN, PrivateKey};
use crate::wire::TAG_LEN;

/// Gives `snow` what it asks for.
pub(super) struct Primitives {
    local: PrivateKey,
}

impl Primitives {
    /// For the handshakes of this private key.
    pub(super) fn new(local: &PrivateKey) -> Primitives {
        Primitives {
            local: local.clone(),
        }
    }
}

impl CryptoResolver for Primitives {
    fn resolve_rng(&self) -> Option<Box<dyn Random>> {
        DefaultResolver.resolve_rng()
    }

    fn resolve_dh(&self, choice: &DHChoice) -> Option<Box<dyn Dh>> {
        if *choice != DHChoice::Curve25519 {
            return None;
        }
        Some(Box::new(Curve25519 {
            key: self.local.clone(),
        }))
    }

    fn resolve_hash(&self, choice: &HashChoice) -> Option<Box<dyn Hash>> {
        DefaultResolver.resolve_hash(choice)
    }

    fn resolve_cipher(&self, choice: &CipherChoice) -> Option<Box<dyn Cipher>> {
        if *choice != CipherChoice::ChaChaPoly {
            return None;
        }
        Some(Box::new(ChaChaPoly::default()))
    }
}

/// A key pair that starts as the local static one and becomes what `snow` sets.
struct Curve25519 {
    key: PrivateKey,
}

impl Dh for Curve25519 {
    fn name(&self) -> &'static str {
        "25519"
    }

    fn pub_len(&self) -> usize {
        KEY_LEN
    }

    fn priv_len(&self) -> usize {
        KEY_LEN
    }

    fn set(&mut self, secret: &[u8]) {
        let Ok(secret) = <&[u8; KEY_LEN]>::try_from(secret) else {
            unreachable!("every private key has {KEY_LEN} bytes");
        };
        if !bool::from(secret.ct_eq(self.key.as_bytes())) {
            self.key = PrivateKey::from_bytes(secret);
        }
    }

    fn generate(&mut self, random: &mut dyn Random) -> Result<(), Error> {
        let mut secret = Zeroizing::new([0; KEY_LEN]);
        random.try_fill_bytes(&mut secret[..])?;
        self.key = PrivateKey::from_bytes(&secret);
        Ok(())
    }

    fn pubkey(&self) -> &[u8] {
        self.key.public_bytes()
    }

    fn privkey(&self) -> &[u8] {
        self.key.as_bytes()
    }

    fn dh(&self, public: &[u8], out: &mut [u8]) -> Result<(), Error> {
        let public = public.first_chunk::<KEY_LEN>().ok_or(Error::Input)?;
        let out = out.first_chunk_mut::<KEY_LEN>().ok_or(Error::Input)?;
        let shared = Zeroizing::new(x25519_dalek::x25519(*self.key.as_bytes(), *public));
        if bool::from(shared.ct_eq(&[0; KEY_LEN])) {
            return Err(Error::Dh);
        }
        *out = *shared;
        Ok(())
    }
}

/// ChaCha20-Poly1305 with Noise's nonce: 32 zero bits, then the counter.
#[derive(Default)]
struct ChaChaPoly {
    key: Zeroizing<[u8; KEY_LEN]>,
}

impl ChaChaPoly {
    fn cipher(&self) -> ChaCha20Poly1305 {
        ChaCha20Poly1305::new((&*self.key).into())
    }
}

impl Cipher for ChaChaPoly {
    fn name(&self) -> &'static str {
        "ChaChaPoly"
    }

    fn set(&mut self, key: &[u8; KEY_LEN]) {
        *self.key = *key;
    }

    fn encrypt(&self, nonce: u64, associated: &[u8], plaintext: &[u8], out: &mut [u8]) -> usize {
        let (body, rest) = out.split_at_mut(plaintext.len());
        body.copy_from_slice(plaintext);
        match self
            .cipher()
            .encrypt_in_place_detached(&noise_nonce(nonce), associated, body)
        {
            Ok(tag) => rest[..TAG_LEN].copy_from_slice(&tag),
            Err(_) => unreachable!("a handshake message is far below the cipher's limit"),
        }
        plaintext.len() + TAG_LEN
    }

    fn decrypt(
        &self,
        nonce: u64,
        associated: &[u8],
        ciphertext: &[u8],
        out: &mut [u8],
    ) -> Result<usize, Error> {
        let length = ciphertext
            .len()
            .checked_sub(TAG_LEN)
            .ok_or(Error::Decrypt)?;
        let (body, tag) = ciphertext.split_at(length);
        let out = out.get_mut(..length).ok_or(Error::Decrypt)?;
        out.copy_from_slice(body);
        self.cipher()
            .decrypt_in_place_detached(&noise_nonce(nonce), associated, out, Tag::from_slice(tag))
            .map_err(|_| Error::Decrypt)?;
        Ok(length)
    }
}

fn noise_nonce(counter: u64) -> Nonce {
    let mut nonce = Nonce::default();
    nonce[4..].copy_from_slice(&counter.to_le_bytes());
    nonce
}
