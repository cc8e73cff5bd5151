//! The text and byte forms of keys, alike for all of them.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::de::{Deserialize, Deserializer, Error as _, Visitor};
use serde::ser::{Serialize, Serializer};
use zeroize::Zeroizing;

use super::{BASE64_LEN, HEX_LEN, KEY_LEN, KeyError, PresharedKey, PrivateKey, PublicKey};

impl Serialize for PublicKey {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serialize(&self.0, serializer)
    }
}

impl Serialize for PrivateKey {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serialize(&self.secret, serializer)
    }
}

impl Serialize for PresharedKey {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serialize(&self.0, serializer)
    }
}

impl<'de> Deserialize<'de> for PublicKey {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<PublicKey, D::Error> {
        Ok(PublicKey(*deserialize(deserializer)?))
    }
}

impl<'de> Deserialize<'de> for PrivateKey {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<PrivateKey, D::Error> {
        Ok(PrivateKey::from_bytes(&*deserialize(deserializer)?))
    }
}

impl<'de> Deserialize<'de> for PresharedKey {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<PresharedKey, D::Error> {
        Ok(PresharedKey(*deserialize(deserializer)?))
    }
}

/// A key on its way from text into its type, wiped when it arrived.
pub(super) type Bytes = Zeroizing<[u8; KEY_LEN]>;

fn serialize<S: Serializer>(key: &[u8; KEY_LEN], serializer: S) -> Result<S::Ok, S::Error> {
    if serializer.is_human_readable() {
        serializer.serialize_str(&Zeroizing::new(base64_encode(key)))
    } else {
        key.serialize(serializer)
    }
}

fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Bytes, D::Error> {
    struct Base64;

    impl Visitor<'_> for Base64 {
        type Value = Bytes;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "a key in base64")
        }

        fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Bytes, E> {
            base64_decode(text).map_err(E::custom)
        }
    }

    if deserializer.is_human_readable() {
        deserializer.deserialize_str(Base64)
    } else {
        <[u8; KEY_LEN]>::deserialize(deserializer)
            .map(Zeroizing::new)
            .map_err(D::Error::custom)
    }
}

pub(super) fn base64_encode(key: &[u8; KEY_LEN]) -> String {
    STANDARD.encode(key)
}

/// Strict: one text for each key, so `=` must be there and stray bits must not.
pub(super) fn base64_decode(text: &str) -> Result<Bytes, KeyError> {
    if text.len() != BASE64_LEN {
        return Err(KeyError::Base64Length(text.chars().count()));
    }
    // The decoder wants room for what 44 characters could hold: one byte more than a key.
    let mut decoded = Zeroizing::new([0; KEY_LEN + 1]);
    let length = STANDARD
        .decode_slice(text, &mut decoded[..])
        .map_err(|_| KeyError::Base64)?;
    if length != KEY_LEN {
        return Err(KeyError::Base64);
    }
    let mut key = Bytes::default();
    key.copy_from_slice(&decoded[..KEY_LEN]);
    Ok(key)
}

pub(super) fn hex_encode(key: &[u8; KEY_LEN]) -> String {
    let digit = |nibble: u8| char::from_digit(u32::from(nibble), 16).unwrap_or('0');
    let mut text = String::with_capacity(HEX_LEN);
    for byte in key {
        text.push(digit(byte >> 4));
        text.push(digit(byte & 15));
    }
    text
}

pub(super) fn hex_decode(text: &str) -> Result<Bytes, KeyError> {
    if text.len() != HEX_LEN {
        return Err(KeyError::HexLength(text.chars().count()));
    }
    let digit = |byte: u8| char::from(byte).to_digit(16).ok_or(KeyError::Hex);
    let mut key = Bytes::default();
    for (byte, pair) in key.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
        *byte = (digit(pair[0])? << 4 | digit(pair[1])?) as u8;
    }
    Ok(key)
}
