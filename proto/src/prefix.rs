//! An IP prefix: an address and a length, with the host bits kept until somebody masks them.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use serde::de::{Deserialize, Deserializer, Error as _};
use serde::ser::{Serialize, Serializer};

/// An address with a prefix length, such as `10.9.0.1/24` or `fd00::/64`.
///
/// An interface address keeps its host bits; an allowed IP is [`masked`](Prefix::masked) where it is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Prefix {
    address: IpAddr,
    length: u8,
}

impl Prefix {
    /// A prefix, unless `length` exceeds the 32 or 128 bits of the address.
    pub fn new(address: IpAddr, length: u8) -> Result<Prefix, PrefixError> {
        if length > width(address) {
            return Err(PrefixError::Length);
        }
        Ok(Prefix { address, length })
    }

    /// The prefix that holds this one address: /32 or /128.
    pub fn host(address: IpAddr) -> Prefix {
        Prefix {
            address,
            length: width(address),
        }
    }

    /// The address, host bits included.
    pub fn address(&self) -> IpAddr {
        self.address
    }

    /// The prefix length in bits.
    pub fn length(&self) -> u8 {
        self.length
    }

    /// Whether this is an IPv4 prefix.
    pub fn is_ipv4(&self) -> bool {
        self.address.is_ipv4()
    }

    /// Whether this is a default route: length 0.
    pub fn is_default(&self) -> bool {
        self.length == 0
    }

    /// Whether this is a single address.
    pub fn is_host(&self) -> bool {
        self.length == width(self.address)
    }

    /// The same prefix with its host bits cleared.
    #[must_use]
    pub fn masked(&self) -> Prefix {
        let address = match self.address {
            IpAddr::V4(v4) => {
                let mask = u32::MAX
                    .checked_shl(32 - u32::from(self.length))
                    .unwrap_or(0);
                IpAddr::V4(Ipv4Addr::from(u32::from(v4) & mask))
            }
            IpAddr::V6(v6) => {
                let mask = u128::MAX
                    .checked_shl(128 - u32::from(self.length))
                    .unwrap_or(0);
                IpAddr::V6(Ipv6Addr::from(u128::from(v6) & mask))
            }
        };
        Prefix {
            address,
            length: self.length,
        }
    }

    /// Whether `address` lies in this prefix; never for an address of the other family.
    pub fn contains(&self, address: IpAddr) -> bool {
        self.address.is_ipv4() == address.is_ipv4()
            && Prefix {
                address,
                length: self.length,
            }
            .masked()
                == self.masked()
    }

    /// Whether the two prefixes share an address.
    pub fn overlaps(&self, other: &Prefix) -> bool {
        if self.length <= other.length {
            self.contains(other.address)
        } else {
            other.contains(self.address)
        }
    }
}

fn width(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

/// Why a text is not a prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PrefixError {
    /// The part before the slash is no IPv4 or IPv6 address.
    #[error("not an IPv4 or IPv6 address")]
    Address,
    /// The part after the slash is no number, or too great for the family.
    #[error("prefix length out of range")]
    Length,
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.length)
    }
}

impl FromStr for Prefix {
    type Err = PrefixError;

    /// Reads `ADDRESS` (a host) or `ADDRESS/LENGTH`.
    fn from_str(text: &str) -> Result<Prefix, PrefixError> {
        let Some((address, length)) = text.split_once('/') else {
            return Ok(Prefix::host(
                text.parse().map_err(|_| PrefixError::Address)?,
            ));
        };
        let address = address.parse().map_err(|_| PrefixError::Address)?;
        if length.is_empty() || !length.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(PrefixError::Length);
        }
        Prefix::new(address, length.parse().map_err(|_| PrefixError::Length)?)
    }
}

impl Serialize for Prefix {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if serializer.is_human_readable() {
            serializer.collect_str(self)
        } else {
            (self.address, self.length).serialize(serializer)
        }
    }
}

impl<'de> Deserialize<'de> for Prefix {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Prefix, D::Error> {
        if deserializer.is_human_readable() {
            String::deserialize(deserializer)?
                .parse()
                .map_err(D::Error::custom)
        } else {
            let (address, length) = <(IpAddr, u8)>::deserialize(deserializer)?;
            Prefix::new(address, length).map_err(D::Error::custom)
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn prefix(text: &str) -> Prefix {
        text.parse().unwrap()
    }

    #[test]
    fn a_bare_address_is_a_host() {
        assert_eq!(prefix("10.0.0.1").to_string(), "10.0.0.1/32");
        assert_eq!(prefix("fd00::1").to_string(), "fd00::1/128");
        assert!(prefix("fd00::1").is_host());
    }

    #[test]
    fn bad_texts_are_refused() {
        for text in [
            "",
            "/",
            "10.0.0.1/",
            "10.0.0.1/33",
            "fd00::/129",
            "10.0.0/8",
            "10.0.0.1/+8",
            "1.2.3.4/8/9",
            "a/8",
        ] {
            assert!(text.parse::<Prefix>().is_err(), "{text}");
        }
    }

    #[test]
    fn host_bits_stay_until_masked() {
        let kept = prefix("10.9.8.7/20");
        assert_eq!(kept.address().to_string(), "10.9.8.7");
        assert_eq!(kept.masked().to_string(), "10.9.0.0/20");
        assert_eq!(prefix("1.2.3.4/0").masked().to_string(), "0.0.0.0/0");
        assert_eq!(prefix("fd00::7/0").masked().to_string(), "::/0");
        assert_eq!(prefix("fd00::7/128").masked().to_string(), "fd00::7/128");
    }

    #[test]
    fn families_never_mix() {
        assert!(!prefix("0.0.0.0/0").contains("::1".parse().unwrap()));
        assert!(!prefix("::/0").contains("1.2.3.4".parse().unwrap()));
        assert!(!prefix("::/0").overlaps(&prefix("0.0.0.0/0")));
        assert!(prefix("10.0.0.0/8").overlaps(&prefix("10.1.0.0/16")));
        assert!(prefix("10.1.0.0/16").overlaps(&prefix("10.0.0.0/8")));
        assert!(!prefix("10.1.0.0/16").overlaps(&prefix("10.2.0.0/16")));
    }

    proptest! {
        #[test]
        fn text_and_binary_round_trip(bits: u128, v4: bool, length in 0u8..=128) {
            let address = if v4 { IpAddr::V4(Ipv4Addr::from(bits as u32)) } else { IpAddr::V6(Ipv6Addr::from(bits)) };
            let prefix = Prefix::new(address, length.min(width(address))).unwrap();
            prop_assert_eq!(prefix.to_string().parse::<Prefix>().unwrap(), prefix);
            let bytes = crate::codec::encode(&prefix).unwrap();
            prop_assert_eq!(crate::codec::decode::<Prefix>(&bytes, 64).unwrap(), prefix);
            prop_assert!(prefix.contains(address));
            prop_assert!(prefix.masked().contains(address));
            prop_assert_eq!(prefix.masked().masked(), prefix.masked());
        }
    }
}
