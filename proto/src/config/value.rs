//! Reads single values. Each takes the key's name as the file writes it, for the message.

use std::fmt::Display;
use std::net::IpAddr;
use std::str::FromStr;

use super::error::Fault;
use super::{MAX_NAME_BYTES, MAX_SHARDS, Table};
use crate::endpoint::{EndpointError, HostPort};
use crate::keys::{KeyError, PresharedKey, PrivateKey, PublicKey};
use crate::prefix::{Prefix, PrefixError};

/// The least MTU of IPv4 (RFC 791).
const LEAST_MTU: u16 = 68;

/// 32 zero bytes in base64: what `wg` takes as "no key".
const ZERO_KEY: &str = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";

pub(super) fn private_key(name: &str, text: &str) -> Result<Option<PrivateKey>, Fault> {
    if text == ZERO_KEY {
        return Ok(None);
    }
    PrivateKey::from_base64(text)
        .map(Some)
        .map_err(|error| bad_key(name, error))
}

pub(super) fn public_key(name: &str, text: &str) -> Result<PublicKey, Fault> {
    let key = PublicKey::from_base64(text).map_err(|error| bad_key(name, error))?;
    if key.as_bytes() == &[0; 32] {
        return Err(Fault::new(
            format!("bad {name}"),
            "it is all zero: give the key that `wg pubkey` prints",
        ));
    }
    Ok(key)
}

pub(super) fn preshared_key(name: &str, text: &str) -> Result<Option<PresharedKey>, Fault> {
    let key = PresharedKey::from_base64(text).map_err(|error| bad_key(name, error))?;
    Ok((!key.is_zero()).then_some(key))
}

/// The text itself stays out: even where a public key belongs, somebody may have pasted the private one.
fn bad_key(name: &str, error: KeyError) -> Fault {
    Fault::new(format!("bad {name}"), error.to_string())
}

pub(super) fn port(name: &str, text: &str) -> Result<u16, Fault> {
    number(text).ok_or_else(|| {
        bad(
            name,
            text,
            "give a port from 0 to 65535; 0 is any that is free",
        )
    })
}

pub(super) fn fwmark(name: &str, text: &str) -> Result<Option<u32>, Fault> {
    if text.eq_ignore_ascii_case("off") {
        return Ok(None);
    }
    let mark = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(hex) if hex.bytes().all(|byte| byte.is_ascii_hexdigit()) => {
            u32::from_str_radix(hex, 16).ok()
        }
        Some(_) => None,
        None => number(text),
    };
    let mark = mark.ok_or_else(|| {
        bad(
            name,
            text,
            "give off, or a number of 32 bits such as 51820 or 0xca6c",
        )
    })?;
    Ok((mark != 0).then_some(mark))
}

pub(super) fn prefix(name: &str, text: &str) -> Result<Prefix, Fault> {
    text.parse().map_err(|error| match error {
        PrefixError::Address => bad(
            name,
            text,
            "give an IPv4 or IPv6 address, such as 10.9.0.1/24 or fd00::1/64",
        ),
        PrefixError::Length => bad(
            name,
            text,
            "give a prefix length of at most 32 for IPv4 or 128 for IPv6",
        ),
    })
}

pub(super) fn allowed_ip(name: &str, text: &str) -> Result<Prefix, Fault> {
    if text.starts_with('-') {
        return Err(bad(
            name,
            text,
            "only `wg set` can take an allowed IP away: remove it from the file",
        ));
    }
    // Newer `wg` writes a plus where one is added.
    Ok(prefix(name, text.strip_prefix('+').unwrap_or(text))?.masked())
}

pub(super) fn address(name: &str, text: &str) -> Result<IpAddr, Fault> {
    text.parse().map_err(|_| {
        bad(
            name,
            text,
            "give an IPv4 or IPv6 address of this host, without a port",
        )
    })
}

pub(super) fn search_domain(name: &str, text: &str) -> Result<String, Fault> {
    let domain = text.strip_prefix("~").unwrap_or(text);
    let letters = domain
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
    let looks_like_an_address = domain
        .bytes()
        .all(|byte| byte.is_ascii_digit() || byte == b'.')
        && domain != ".";
    if domain.is_empty() || domain.len() > 253 || !letters || looks_like_an_address {
        return Err(bad(
            name,
            text,
            "give the address of a DNS server, or a search domain",
        ));
    }
    Ok(text.to_owned())
}

pub(super) fn mtu(name: &str, text: &str) -> Result<u16, Fault> {
    number(text).filter(|mtu| *mtu >= LEAST_MTU).ok_or_else(|| {
        bad(
            name,
            text,
            "give a number of bytes from 68 to 65535; 1420 suits most links",
        )
    })
}

pub(super) fn table(name: &str, text: &str) -> Result<Table, Fault> {
    match text.to_ascii_lowercase().as_str() {
        "auto" => return Ok(Table::Auto),
        "off" => return Ok(Table::Off),
        // The names that the kernel itself gives, linux/rtnetlink.h; others stand in a file of iproute2.
        "default" => return Ok(Table::Number(253)),
        "main" => return Ok(Table::Number(254)),
        "local" => return Ok(Table::Number(255)),
        _ => {}
    }
    let table = match text.strip_prefix("0x") {
        Some(hex) => u32::from_str_radix(hex, 16).ok(),
        None => number(text),
    };
    table
        .filter(|table| *table != 0)
        .map(Table::Number)
        .ok_or_else(|| {
            bad(
                name,
                text,
                "give auto, off, main or a table's number; names of /etc/iproute2 are not read",
            )
        })
}

pub(super) fn command(name: &str, text: &str) -> Result<String, Fault> {
    let text = text.trim();
    if text.is_empty() {
        return Err(Fault::new(
            format!("empty {name}"),
            "give a shell command, or remove the line",
        ));
    }
    if text.contains('\0') {
        return Err(Fault::new(
            format!("bad {name}"),
            "a command cannot hold a zero byte: remove it",
        ));
    }
    Ok(text.to_owned())
}

pub(super) fn boolean(name: &str, text: &str) -> Result<bool, Fault> {
    match text.to_ascii_lowercase().as_str() {
        "true" => Ok(true),
        "false" => Ok(false),
        _ => Err(bad(name, text, "give true or false")),
    }
}

pub(super) fn device(name: &str, text: &str) -> Result<String, Fault> {
    // What the kernel takes as a name (dev_valid_name), and no comment sign.
    let good = |byte: u8| byte.is_ascii_graphic() && !b"/:#\"".contains(&byte);
    if (1..=15).contains(&text.len()) && text.bytes().all(good) && text != "." && text != ".." {
        return Ok(text.to_owned());
    }
    Err(bad(
        name,
        text,
        "give the name of a network device, at most 15 bytes, such as eth0",
    ))
}

pub(super) fn shards(name: &str, text: &str) -> Result<u8, Fault> {
    number(text)
        .filter(|shards: &u8| shards.is_power_of_two() && *shards <= MAX_SHARDS)
        .ok_or_else(|| bad(name, text, "give a power of two from 1 to 64"))
}

pub(super) fn limit(name: &str, text: &str, most: u32) -> Result<u32, Fault> {
    number(text)
        .filter(|limit| (1..=most).contains(limit))
        .ok_or_else(|| bad(name, text, &format!("give a number from 1 to {most}")))
}

pub(super) fn peer_name(name: &str, text: &str) -> Result<String, Fault> {
    let text = text.trim();
    let remedy = format!("give 1 to {MAX_NAME_BYTES} bytes without control characters");
    if text.is_empty() || text.len() > MAX_NAME_BYTES || text.chars().any(char::is_control) {
        return Err(bad(name, text, &remedy));
    }
    Ok(text.to_owned())
}

pub(super) fn endpoint(name: &str, text: &str) -> Result<HostPort, Fault> {
    text.parse().map_err(|error| {
        let remedy = match error {
            EndpointError::Port => {
                "end it with a colon and a port from 1 to 65535, such as gw.example.org:51820"
            }
            EndpointError::Brackets => {
                "put an IPv6 address in brackets, such as [2001:db8::1]:51820"
            }
            EndpointError::Host => {
                "give an address or a host name before the port, such as gw.example.org:51820"
            }
        };
        bad(name, text, remedy)
    })
}

pub(super) fn keepalive(name: &str, text: &str) -> Result<Option<u16>, Fault> {
    if text.eq_ignore_ascii_case("off") {
        return Ok(None);
    }
    let seconds = number(text).ok_or_else(|| {
        bad(
            name,
            text,
            "give off, or seconds from 1 to 65535; 25 suits most NATs",
        )
    })?;
    Ok((seconds != 0).then_some(seconds))
}

/// A value whose type says itself what it takes.
pub(super) fn parsed<T: FromStr<Err: Display>>(name: &str, text: &str) -> Result<T, Fault> {
    text.parse()
        .map_err(|error: T::Err| bad(name, text, &error.to_string()))
}

/// A decimal number without a sign.
fn number<T: FromStr>(text: &str) -> Option<T> {
    text.bytes()
        .all(|byte| byte.is_ascii_digit())
        .then(|| text.parse().ok())?
}

fn bad(name: &str, text: &str, remedy: &str) -> Fault {
    // 44 characters with an equals sign may be a key in the wrong place.
    let secret = text.len() >= 40 && text.ends_with('=');
    let fault = Fault::new(format!("bad {name}"), remedy);
    if secret {
        fault
    } else {
        fault.value(if text.is_empty() { "(empty)" } else { text })
    }
}
