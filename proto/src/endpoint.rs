//! An endpoint as a person writes it: an address or a host name, and a port.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The part of an endpoint before the port.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Host {
    /// An address.
    Address(IpAddr),
    /// A link-local IPv6 address with its interface, by name or index: `fe80::1%eth0`.
    Scoped(Ipv6Addr, String),
    /// A DNS name; resolved by the helper, never here.
    Name(String),
}

/// A host and a port: `192.0.2.1:51820`, `[2001:db8::1]:51820`, `[fe80::1%eth0]:51820` or `gw.example:51820`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct HostPort {
    /// Where to.
    pub host: Host,
    /// The UDP port, never 0 when it was parsed.
    pub port: u16,
}

impl HostPort {
    /// The socket address, where no look-up is needed for it.
    pub fn socket_addr(&self) -> Option<SocketAddr> {
        match &self.host {
            Host::Address(address) => Some(SocketAddr::new(*address, self.port)),
            Host::Scoped(address, scope) => {
                let scope = scope.parse().ok()?;
                Some(SocketAddr::V6(SocketAddrV6::new(
                    *address, self.port, 0, scope,
                )))
            }
            Host::Name(_) => None,
        }
    }

    /// What to hand to `getaddrinfo` as the node.
    pub fn lookup_name(&self) -> String {
        match &self.host {
            Host::Address(address) => address.to_string(),
            Host::Scoped(address, scope) => format!("{address}%{scope}"),
            Host::Name(name) => name.clone(),
        }
    }

    /// Whether a resolver must be asked again when the peer stays silent.
    pub fn is_name(&self) -> bool {
        matches!(self.host, Host::Name(_))
    }
}

impl From<SocketAddr> for HostPort {
    fn from(address: SocketAddr) -> HostPort {
        let host = match address {
            SocketAddr::V6(v6) if v6.scope_id() != 0 => {
                Host::Scoped(*v6.ip(), v6.scope_id().to_string())
            }
            other => Host::Address(other.ip()),
        };
        HostPort {
            host,
            port: address.port(),
        }
    }
}

impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.host {
            Host::Address(IpAddr::V6(address)) => write!(f, "[{address}]:{}", self.port),
            Host::Address(IpAddr::V4(address)) => write!(f, "{address}:{}", self.port),
            Host::Scoped(address, scope) => write!(f, "[{address}%{scope}]:{}", self.port),
            Host::Name(name) => write!(f, "{name}:{}", self.port),
        }
    }
}

/// Why a text is not an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EndpointError {
    /// There is no port, or it is not a number from 1 to 65535.
    #[error("no port from 1 to 65535 after the last colon")]
    Port,
    /// An IPv6 address without brackets, or brackets around something else.
    #[error("an IPv6 address needs brackets, and only that")]
    Brackets,
    /// Neither an address nor a host name.
    #[error("neither an address nor a host name")]
    Host,
}

impl FromStr for HostPort {
    type Err = EndpointError;

    fn from_str(text: &str) -> Result<HostPort, EndpointError> {
        if let Some(rest) = text.strip_prefix('[') {
            let (inside, port) = rest.split_once("]:").ok_or(if rest.ends_with(']') {
                EndpointError::Port
            } else {
                EndpointError::Brackets
            })?;
            return Ok(HostPort {
                host: bracketed(inside)?,
                port: parse_port(port)?,
            });
        }
        let (host, port) = text.rsplit_once(':').ok_or(EndpointError::Port)?;
        if host.contains(':') {
            return Err(EndpointError::Brackets);
        }
        let port = parse_port(port)?;
        if let Ok(address) = host.parse() {
            return Ok(HostPort {
                host: Host::Address(IpAddr::V4(address)),
                port,
            });
        }
        if !is_host_name(host) {
            return Err(EndpointError::Host);
        }
        Ok(HostPort {
            host: Host::Name(host.to_owned()),
            port,
        })
    }
}

fn bracketed(inside: &str) -> Result<Host, EndpointError> {
    let (address, scope) = match inside.split_once('%') {
        Some((address, scope)) => (address, Some(scope)),
        None => (inside, None),
    };
    let address: Ipv6Addr = address.parse().map_err(|_| EndpointError::Brackets)?;
    match scope {
        None => Ok(Host::Address(IpAddr::V6(address))),
        Some(scope) if is_scope(scope) => Ok(Host::Scoped(address, scope.to_owned())),
        Some(_) => Err(EndpointError::Host),
    }
}

fn parse_port(text: &str) -> Result<u16, EndpointError> {
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(EndpointError::Port);
    }
    text.parse()
        .ok()
        .filter(|port| *port != 0)
        .ok_or(EndpointError::Port)
}

/// An interface name or index as the kernel takes it: no slash, no space, at most 15 bytes.
fn is_scope(text: &str) -> bool {
    (1..=15).contains(&text.len())
        && text
            .bytes()
            .all(|byte| byte.is_ascii_graphic() && !b"/%[]".contains(&byte))
}

/// RFC 1123 letters, digits and hyphens, plus the underscore that real zones hold; a name whose last label is
/// all digits is a mistyped address (RFC 3696, section 2).
fn is_host_name(text: &str) -> bool {
    let name = text.strip_suffix('.').unwrap_or(text);
    let label = |label: &str| {
        (1..=63).contains(&label.len())
            && label
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
    };
    name.len() <= 253
        && name.split('.').all(label)
        && name
            .rsplit('.')
            .next()
            .is_some_and(|last| !last.bytes().all(|byte| byte.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn every_form_reads_and_prints_alike() {
        for text in [
            "192.0.2.1:51820",
            "[2001:db8::1]:1",
            "[fe80::1%eth0]:65535",
            "[fe80::1%3]:51820",
            "gw.example.org:51820",
            "gw.example.org.:51820",
            "my_host:51820",
            "xn--bcher-kva.example:51820",
        ] {
            assert_eq!(text.parse::<HostPort>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn bad_texts_name_their_fault() {
        for (text, error) in [
            ("", EndpointError::Port),
            ("192.0.2.1", EndpointError::Port),
            ("192.0.2.1:", EndpointError::Port),
            ("192.0.2.1:0", EndpointError::Port),
            ("192.0.2.1:65536", EndpointError::Port),
            ("192.0.2.1:+1", EndpointError::Port),
            ("2001:db8::1:51820", EndpointError::Brackets),
            ("[2001:db8::1]", EndpointError::Port),
            ("[192.0.2.1]:1", EndpointError::Brackets),
            ("[gw]:1", EndpointError::Brackets),
            ("[fe80::1%]:1", EndpointError::Host),
            ("300.1.1.1:1", EndpointError::Host),
            (":1", EndpointError::Host),
            ("a b:1", EndpointError::Host),
            ("a..b:1", EndpointError::Host),
        ] {
            assert_eq!(text.parse::<HostPort>(), Err(error), "{text}");
        }
    }

    #[test]
    fn only_a_name_needs_a_resolver() {
        let address = |text: &str| text.parse::<HostPort>().unwrap().socket_addr();
        assert_eq!(address("192.0.2.1:5"), Some("192.0.2.1:5".parse().unwrap()));
        assert_eq!(
            address("[fe80::1%7]:5"),
            Some("[fe80::1%7]:5".parse().unwrap())
        );
        assert_eq!(address("[fe80::1%eth0]:5"), None);
        assert_eq!(address("gw.example:5"), None);
        assert!("gw.example:5".parse::<HostPort>().unwrap().is_name());
    }

    proptest! {
        #[test]
        fn never_panics(text in ".{0,80}") {
            if let Ok(parsed) = text.parse::<HostPort>() {
                prop_assert_eq!(parsed.to_string().parse::<HostPort>().unwrap(), parsed);
            }
        }
    }
}
