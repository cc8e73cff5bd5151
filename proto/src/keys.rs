//! Keys: parsed, printed and forgotten.
//!
//! Three types, so that no key can take another's place. The secret ones are
//! zeroized when dropped, compared in constant time and never shown by `Debug`.
//! Text forms are those of `wg`: base64 in files and on the command line, hex in
//! the UAPI. In serde a key is base64 text for people and bytes for machines.

mod text;

use std::fmt;
use std::str::FromStr;

use subtle::ConstantTimeEq;
use zeroize::{Zeroize, ZeroizeOnDrop, Zeroizing};

use text::{base64_decode, base64_encode, hex_decode, hex_encode};

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
        base64_encode(&self.0)
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
        Zeroizing::new(base64_encode(&self.secret))
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
        Zeroizing::new(base64_encode(&self.0))
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

#[cfg(test)]
mod tests;
