//! Keys: parsed, printed and forgotten.
//!
//! Three types, so that no key can take another's place. The secret ones are
//! zeroized when dropped, compared in constant time and never shown by `Debug`.
//! Text forms are those of `wg`: base64 in files and on the command line, hex in
//! the UAPI. In serde a key is base64 text for people and bytes for machines.

use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::de::{Deserialize, Deserializer, Error as _, Visitor};
use serde::ser::{Serialize, Serializer};
use subtle::ConstantTimeEq;
use zeroize::{Zeroize, ZeroizeOnDrop, Zeroizing};

/// Length of every key, in bytes.
pub const KEY_LEN: usize = 32;
/// Length of a key in base64, with its one `=`.
pub const BASE64_LEN: usize = 44;
/// Length of a key in hex.
pub const HEX_LEN: usize = 64;

/// Why a text is no key. Says nothing of the text, since it may be a secret.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum KeyError {
    /// Not 44 characters of base64.
    #[error(
        "a key is {BASE64_LEN} characters of base64, this has {0}: copy it whole, as `wg genkey` prints it"
    )]
    Base64Length(usize),
    /// A character that is not base64, or stray bits in the last one.
    #[error(
        "a key is {BASE64_LEN} characters of base64, this is not base64: copy it as `wg genkey` prints it"
    )]
    Base64,
    /// Not 64 hexadecimal digits.
    #[error("a key is {HEX_LEN} hexadecimal digits, this has {0}: copy it whole")]
    HexLength(usize),
    /// A character that is not a hexadecimal digit.
    #[error("a key is {HEX_LEN} hexadecimal digits, this has another character")]
    Hex,
    /// The system gave no random bytes.
    #[error("the system gave no random bytes for a new key: try again later")]
    Random,
}

/// A peer's public key: a point on Curve25519, or what claims to be one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PublicKey([u8; KEY_LEN]);

/// A gateway's private key, clamped, and the public key that belongs to it.
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub struct PrivateKey {
    secret: [u8; KEY_LEN],
    /// Kept, since each handshake needs it and computing it costs a point multiplication.
    #[zeroize(skip)]
    public: PublicKey,
}

/// A secret that two peers share beside their key pairs. All zero means none.
#[derive(Clone, Default, Zeroize, ZeroizeOnDrop)]
pub struct PresharedKey([u8; KEY_LEN]);

impl PublicKey {
    /// The key in these bytes, whatever they are.
    pub const fn from_bytes(bytes: [u8; KEY_LEN]) -> PublicKey {
        PublicKey(bytes)
    }

    /// The bytes of the key.
    pub const fn as_bytes(&self) -> &[u8; KEY_LEN] {
        &self.0
    }

    /// The key in base64, as `wg` prints it.
    pub fn to_base64(&self) -> String {
        STANDARD.encode(self.0)
    }

    /// The key in hex, as the UAPI has it.
    pub fn to_hex(&self) -> String {
        hex_encode(&self.0)
    }

    /// Reads the 44 characters that `wg` prints.
    pub fn from_base64(text: &str) -> Result<PublicKey, KeyError> {
        Ok(PublicKey(*base64_decode(text)?))
    }

    /// Reads 64 hexadecimal digits.
    pub fn from_hex(text: &str) -> Result<PublicKey, KeyError> {
        Ok(PublicKey(*hex_decode(text)?))
    }
}

impl PrivateKey {
    /// A new key from the system's random numbers.
    pub fn generate() -> Result<PrivateKey, KeyError> {
        let mut bytes = Zeroizing::new([0; KEY_LEN]);
        getrandom::fill(&mut bytes[..]).map_err(|_| KeyError::Random)?;
        Ok(PrivateKey::from_bytes(&bytes))
    }

    /// The key in these bytes, clamped as the kernel does when it takes one.
    pub fn from_bytes(bytes: &[u8; KEY_LEN]) -> PrivateKey {
        let mut key = PrivateKey {
            secret: *bytes,
            public: PublicKey([0; KEY_LEN]),
        };
        key.secret[0] &= 0b1111_1000;
        key.secret[31] &= 0b0111_1111;
        key.secret[31] |= 0b0100_0000;
        let secret = x25519_dalek::StaticSecret::from(key.secret);
        key.public = PublicKey(*x25519_dalek::PublicKey::from(&secret).as_bytes());
        key
    }

    /// The secret bytes.
    pub const fn as_bytes(&self) -> &[u8; KEY_LEN] {
        &self.secret
    }

    /// The public key that belongs to this one.
    pub const fn public(&self) -> PublicKey {
        self.public
    }

    /// The bytes of the public key, as long-lived as this key.
    pub(crate) const fn public_bytes(&self) -> &[u8; KEY_LEN] {
        self.public.as_bytes()
    }

    /// The key in base64, as `wg` prints it.
    pub fn to_base64(&self) -> Zeroizing<String> {
        Zeroizing::new(STANDARD.encode(self.secret))
    }

    /// The key in hex, as the UAPI has it.
    pub fn to_hex(&self) -> Zeroizing<String> {
        Zeroizing::new(hex_encode(&self.secret))
    }

    /// Reads the 44 characters that `wg genkey` prints.
    pub fn from_base64(text: &str) -> Result<PrivateKey, KeyError> {
        Ok(PrivateKey::from_bytes(&*base64_decode(text)?))
    }

    /// Reads 64 hexadecimal digits.
    pub fn from_hex(text: &str) -> Result<PrivateKey, KeyError> {
        Ok(PrivateKey::from_bytes(&*hex_decode(text)?))
    }
}

impl From<&PrivateKey> for PublicKey {
    fn from(key: &PrivateKey) -> PublicKey {
        key.public
    }
}

impl PresharedKey {
    /// A new key from the system's random numbers.
    pub fn generate() -> Result<PresharedKey, KeyError> {
        let mut key = PresharedKey::default();
        getrandom::fill(&mut key.0).map_err(|_| KeyError::Random)?;
        Ok(key)
    }

    /// The key in these bytes.
    pub const fn from_bytes(bytes: [u8; KEY_LEN]) -> PresharedKey {
        PresharedKey(bytes)
    }

    /// The secret bytes.
    pub const fn as_bytes(&self) -> &[u8; KEY_LEN] {
        &self.0
    }

    /// Whether this is the key of peers that agreed on none.
    pub fn is_zero(&self) -> bool {
        self.0.ct_eq(&[0; KEY_LEN]).into()
    }

    /// The key in base64, as `wg` prints it.
    pub fn to_base64(&self) -> Zeroizing<String> {
        Zeroizing::new(STANDARD.encode(self.0))
    }

    /// The key in hex, as the UAPI has it.
    pub fn to_hex(&self) -> Zeroizing<String> {
        Zeroizing::new(hex_encode(&self.0))
    }

    /// Reads the 44 characters that `wg genpsk` prints.
    pub fn from_base64(text: &str) -> Result<PresharedKey, KeyError> {
        Ok(PresharedKey(*base64_decode(text)?))
    }

    /// Reads 64 hexadecimal digits.
    pub fn from_hex(text: &str) -> Result<PresharedKey, KeyError> {
        Ok(PresharedKey(*hex_decode(text)?))
    }
}

impl PartialEq for PrivateKey {
    fn eq(&self, other: &PrivateKey) -> bool {
        self.secret.ct_eq(&other.secret).into()
    }
}

impl Eq for PrivateKey {}

impl PartialEq for PresharedKey {
    fn eq(&self, other: &PresharedKey) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

impl Eq for PresharedKey {}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.to_base64())
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PublicKey({self})")
    }
}

impl fmt::Debug for PrivateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PrivateKey(redacted)")
    }
}

impl fmt::Debug for PresharedKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PresharedKey(redacted)")
    }
}

impl FromStr for PublicKey {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<PublicKey, KeyError> {
        PublicKey::from_base64(text)
    }
}

impl FromStr for PrivateKey {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<PrivateKey, KeyError> {
        PrivateKey::from_base64(text)
    }
}

impl FromStr for PresharedKey {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<PresharedKey, KeyError> {
        PresharedKey::from_base64(text)
    }
}

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
type Bytes = Zeroizing<[u8; KEY_LEN]>;

fn serialize<S: Serializer>(key: &[u8; KEY_LEN], serializer: S) -> Result<S::Ok, S::Error> {
    if serializer.is_human_readable() {
        serializer.serialize_str(&Zeroizing::new(STANDARD.encode(key)))
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

/// Strict: one text for each key, so `=` must be there and stray bits must not.
fn base64_decode(text: &str) -> Result<Bytes, KeyError> {
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

fn hex_encode(key: &[u8; KEY_LEN]) -> String {
    let digit = |nibble: u8| char::from_digit(u32::from(nibble), 16).unwrap_or('0');
    let mut text = String::with_capacity(HEX_LEN);
    for byte in key {
        text.push(digit(byte >> 4));
        text.push(digit(byte & 15));
    }
    text
}

fn hex_decode(text: &str) -> Result<Bytes, KeyError> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PRIVATE: &str = "yAnz5TF+lXXJte14tji3zlMNq+hd2rYUIgJBgB3fBmk=";
    const PUBLIC: &str = "HIgo9xNzJMWLKASShiTqIybxZ0U3wGLiUeJ1PKf8ykw=";

    #[test]
    fn a_private_key_has_the_public_key_that_wg_says() {
        // echo $PRIVATE | wg pubkey
        let key: PrivateKey = PRIVATE.parse().unwrap();
        assert_eq!(key.to_base64().as_str(), PRIVATE);
        assert_eq!(PublicKey::from(&key).to_string(), PUBLIC);
    }

    #[test]
    fn base64_is_strict() {
        let good = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";
        assert!(PublicKey::from_base64(good).is_ok());
        for (bad, error) in [
            ("", KeyError::Base64Length(0)),
            (&good[..43], KeyError::Base64Length(43)),
            (
                "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\n",
                KeyError::Base64Length(45),
            ),
            // Stray bits, no padding, too much of it, other alphabets.
            (
                "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAB=",
                KeyError::Base64,
            ),
            (
                "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
                KeyError::Base64,
            ),
            (
                "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA==",
                KeyError::Base64,
            ),
            (
                "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA-=",
                KeyError::Base64,
            ),
            (
                "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAé",
                KeyError::Base64Length(44),
            ),
        ] {
            match PublicKey::from_base64(bad) {
                Err(found) => assert!(found == error || bad.contains('é'), "{bad:?}: {found:?}"),
                Ok(_) => panic!("{bad:?} is no key"),
            }
        }
    }

    #[test]
    fn hex_is_64_digits_of_either_case() {
        let text = "00ff".repeat(16);
        let key = PublicKey::from_hex(&text).unwrap();
        assert_eq!(key.to_hex(), text);
        assert_eq!(PublicKey::from_hex(&text.to_uppercase()).unwrap(), key);
        assert_eq!(
            PublicKey::from_hex(&text[1..]).unwrap_err(),
            KeyError::HexLength(63)
        );
        assert_eq!(
            PublicKey::from_hex(&text.replace('0', "g")).unwrap_err(),
            KeyError::Hex
        );
        assert_eq!(
            PublicKey::from_hex(&text.replace("00", "+1")).unwrap_err(),
            KeyError::Hex
        );
    }

    #[test]
    fn secrets_are_not_shown() {
        let private: PrivateKey = PRIVATE.parse().unwrap();
        assert_eq!(format!("{private:?}"), "PrivateKey(redacted)");
        assert_eq!(
            format!("{:?}", PresharedKey::default()),
            "PresharedKey(redacted)"
        );
        for error in [KeyError::Base64, KeyError::Hex, KeyError::Base64Length(3)] {
            assert!(!error.to_string().contains(PRIVATE));
        }
    }

    #[test]
    fn generated_keys_are_clamped_and_differ() {
        let (a, b) = (
            PrivateKey::generate().unwrap(),
            PrivateKey::generate().unwrap(),
        );
        assert_ne!(a, b);
        assert_eq!(a.as_bytes()[0] & 7, 0);
        assert_eq!(a.as_bytes()[31] & 0xc0, 0x40);
        assert!(PresharedKey::default().is_zero());
        assert!(!PresharedKey::generate().unwrap().is_zero());
    }

    #[test]
    fn serde_has_text_for_people_and_bytes_for_machines() {
        #[derive(serde::Serialize, serde::Deserialize, PartialEq, Debug)]
        struct Keys {
            private: PrivateKey,
            public: PublicKey,
            preshared: PresharedKey,
        }
        let private: PrivateKey = PRIVATE.parse().unwrap();
        let public = private.public();
        let keys = Keys {
            private,
            public,
            preshared: PresharedKey::from_bytes([9; 32]),
        };
        let text = toml::to_string(&keys).unwrap();
        assert!(text.contains(PRIVATE) && text.contains(PUBLIC));
        assert_eq!(toml::from_str::<Keys>(&text).unwrap(), keys);
        assert!(toml::from_str::<Keys>(&text.replace(PUBLIC, "short")).is_err());
        let settings = bincode::config::standard();
        let bytes = bincode::serde::encode_to_vec(&keys, settings).unwrap();
        assert_eq!(bytes.len(), 96);
        let (read, _) = bincode::serde::decode_from_slice::<Keys, _>(&bytes, settings).unwrap();
        assert_eq!(read, keys);
    }

    proptest! {
        #[test]
        fn every_key_survives_its_text(bytes: [u8; 32]) {
            let key = PublicKey::from_bytes(bytes);
            prop_assert_eq!(PublicKey::from_base64(&key.to_base64()).unwrap(), key);
            prop_assert_eq!(PublicKey::from_hex(&key.to_hex()).unwrap(), key);
            let key = PresharedKey::from_bytes(bytes);
            prop_assert_eq!(PresharedKey::from_base64(&key.to_base64()).unwrap(), key.clone());
            prop_assert_eq!(PresharedKey::from_hex(&key.to_hex()).unwrap(), key);
        }

        #[test]
        fn no_text_panics(text in ".{0,70}") {
            let _ = PublicKey::from_base64(&text);
            let _ = PrivateKey::from_hex(&text);
        }

        #[test]
        fn text_that_is_read_is_the_text_that_is_written(text in "[A-Za-z0-9+/]{43}=") {
            if let Ok(key) = PublicKey::from_base64(&text) {
                prop_assert_eq!(key.to_base64(), text);
            }
        }
    }
}
