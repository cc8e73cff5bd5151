//! ChaCha20-Poly1305 (RFC 8439), in two implementations that check each other.
//!
//! The data path names only [`DefaultKey`]. The trait is the whole interface, so that another
//! cipher or another library is another `impl`.

use crate::sys::scrub::Scrubbed;
use chacha20poly1305::aead::{AeadInPlace, KeyInit};
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};

/// The length of the authentication tag in bytes.
pub const TAG: usize = 16;

/// The bytes did not come from the holder of the key, or were changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Forged;

/// One direction's key, its schedule computed.
pub trait Key {
    /// Prepares a key.
    fn new(key: &[u8; 32]) -> Self;

    /// Encrypts `buffer` in place but for its last [`TAG`] bytes, which receive the tag.
    ///
    /// A buffer too short for a tag is left as it is; the callers always make room.
    fn seal(&self, nonce: [u8; 12], data: &[u8], buffer: &mut [u8]);

    /// Verifies and decrypts `buffer` (ciphertext, then tag) in place; the plaintext is all of it
    /// but the last [`TAG`] bytes. What a forgery leaves in the buffer must not be used.
    fn open(&self, nonce: [u8; 12], data: &[u8], buffer: &mut [u8]) -> Result<(), Forged>;
}

/// WireGuard's nonce: four zero bytes, then the counter, little-endian (white paper, 5.4.6).
pub fn nonce(counter: u64) -> [u8; 12] {
    let mut nonce = [0; 12];
    nonce[4..].copy_from_slice(&counter.to_le_bytes());
    nonce
}

/// The implementation that the data path uses.
pub type DefaultKey = RingKey;

/// `ring`: hand-written assembly.
pub struct RingKey(Scrubbed<LessSafeKey>);

impl Key for RingKey {
    fn new(key: &[u8; 32]) -> RingKey {
        match UnboundKey::new(&CHACHA20_POLY1305, key) {
            Ok(key) => RingKey(Scrubbed::new(LessSafeKey::new(key))),
            // Its only error is a key of another length.
            Err(_) => unreachable!("a ChaCha20-Poly1305 key has 32 bytes"),
        }
    }

    fn seal(&self, nonce: [u8; 12], data: &[u8], buffer: &mut [u8]) {
        let Some(length) = buffer.len().checked_sub(TAG) else {
            return;
        };
        let (text, tag) = buffer.split_at_mut(length);
        let nonce = Nonce::assume_unique_for_key(nonce);
        match self
            .0
            .seal_in_place_separate_tag(nonce, Aad::from(data), text)
        {
            Ok(made) => tag.copy_from_slice(made.as_ref()),
            // Only for more than 256 GiB of text.
            Err(_) => buffer.fill(0),
        }
    }

    fn open(&self, nonce: [u8; 12], data: &[u8], buffer: &mut [u8]) -> Result<(), Forged> {
        let nonce = Nonce::assume_unique_for_key(nonce);
        self.0
            .open_in_place(nonce, Aad::from(data), buffer)
            .map(|_| ())
            .map_err(|_| Forged)
    }
}

/// The `chacha20poly1305` crate: portable.
pub struct PortableKey(chacha20poly1305::ChaCha20Poly1305);

impl Key for PortableKey {
    fn new(key: &[u8; 32]) -> PortableKey {
        PortableKey(chacha20poly1305::ChaCha20Poly1305::new(key.into()))
    }

    fn seal(&self, nonce: [u8; 12], data: &[u8], buffer: &mut [u8]) {
        let Some(length) = buffer.len().checked_sub(TAG) else {
            return;
        };
        let (text, tag) = buffer.split_at_mut(length);
        match self.0.encrypt_in_place_detached(&nonce.into(), data, text) {
            Ok(made) => tag.copy_from_slice(&made),
            // Only for more than 256 GiB of text.
            Err(_) => buffer.fill(0),
        }
    }

    fn open(&self, nonce: [u8; 12], data: &[u8], buffer: &mut [u8]) -> Result<(), Forged> {
        let length = buffer.len().checked_sub(TAG).ok_or(Forged)?;
        let (text, tag) = buffer.split_at_mut(length);
        let mut expected = [0; TAG];
        expected.copy_from_slice(tag);
        self.0
            .decrypt_in_place_detached(&nonce.into(), data, text, &expected.into())
            .map_err(|_| Forged)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// RFC 8439, section 2.8.2.
    fn vector<K: Key>() {
        let key: [u8; 32] = std::array::from_fn(|i| 0x80 + i as u8);
        let nonce = [7, 0, 0, 0, 0x40, 0x41, 0x42, 0x43, 0x44, 0x45, 0x46, 0x47];
        let data = [
            0x50, 0x51, 0x52, 0x53, 0xc0, 0xc1, 0xc2, 0xc3, 0xc4, 0xc5, 0xc6, 0xc7,
        ];
        let text = b"Ladies and Gentlemen of the class of '99: If I could offer you only one tip \
                     for the future, sunscreen would be it.";
        let expected_start = [
            0xd3, 0x1a, 0x8d, 0x34, 0x64, 0x8e, 0x60, 0xdb, 0x7b, 0x86, 0xaf, 0xbc, 0x53, 0xef,
            0x7e, 0xc2,
        ];
        let expected_end = [0x61, 0x16];
        let expected_tag = [
            0x1a, 0xe1, 0x0b, 0x59, 0x4f, 0x09, 0xe2, 0x6a, 0x7e, 0x90, 0x2e, 0xcb, 0xd0, 0x60,
            0x06, 0x91,
        ];
        let mut buffer = text.to_vec();
        buffer.extend([0; TAG]);
        let key = K::new(&key);
        key.seal(nonce, &data, &mut buffer);
        assert_eq!(buffer[..16], expected_start);
        assert_eq!(buffer[text.len() - 2..text.len()], expected_end);
        assert_eq!(buffer[text.len()..], expected_tag);
        key.open(nonce, &data, &mut buffer).unwrap();
        assert_eq!(&buffer[..text.len()], text);
    }

    #[test]
    fn ring_gives_the_vector_of_the_rfc() {
        vector::<RingKey>();
    }

    #[test]
    fn portable_gives_the_vector_of_the_rfc() {
        vector::<PortableKey>();
    }

    #[test]
    fn a_buffer_without_room_for_a_tag_is_a_forgery() {
        for length in 0..TAG {
            let mut buffer = vec![0; length];
            assert_eq!(
                RingKey::new(&[1; 32]).open(nonce(0), &[], &mut buffer),
                Err(Forged)
            );
            assert_eq!(
                PortableKey::new(&[1; 32]).open(nonce(0), &[], &mut buffer),
                Err(Forged)
            );
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn each_opens_what_the_other_sealed(
            key in any::<[u8; 32]>(),
            counter in any::<u64>(),
            length in 0usize..65_536,
            seed in any::<u8>(),
            flip in any::<prop::sample::Index>(),
        ) {
            let text: Vec<u8> = (0..length).map(|i| (i as u8).wrapping_mul(31) ^ seed).collect();
            let (ring, portable) = (RingKey::new(&key), PortableKey::new(&key));
            let mut one = text.clone();
            one.extend([0; TAG]);
            let mut two = one.clone();
            ring.seal(nonce(counter), &[], &mut one);
            portable.seal(nonce(counter), &[], &mut two);
            prop_assert_eq!(&one, &two);

            let at = flip.index(one.len());
            let mut broken = one.clone();
            broken[at] ^= 1;
            let mut again = broken.clone();
            prop_assert!(ring.open(nonce(counter), &[], &mut broken).is_err());
            prop_assert!(portable.open(nonce(counter), &[], &mut again).is_err());

            prop_assert!(ring.open(nonce(counter), &[], &mut two).is_ok());
            prop_assert_eq!(&two[..length], &text[..]);
            prop_assert!(portable.open(nonce(counter), &[], &mut one).is_ok());
            prop_assert_eq!(&one[..length], &text[..]);
        }
    }
}
