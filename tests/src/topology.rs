//! Two hosts and the wire between them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::names;
use crate::namespace::Namespace;

/// The family of an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

/// One end of a wire.
#[derive(Debug, Clone)]
pub struct Port {
    /// The interface.
    pub interface: String,
    /// Its IPv4 address.
    pub v4: Ipv4Addr,
    /// Its IPv6 address.
    pub v6: Ipv6Addr,
}

impl Port {
    /// Its address of a family.
    pub fn address(&self, family: Family) -> IpAddr {
        match family {
            Family::V4 => self.v4.into(),
            Family::V6 => self.v6.into(),
        }
    }
}

/// Lays a veth pair between two namespaces: 192.0.`net`.1 and .2, 2001:db8:`net`::1 and ::2. The ends are
/// up.
pub fn wire(a: &Namespace, b: &Namespace, net: u8) -> (Port, Port) {
    let (left, right) = (names::interface(), names::interface());
    a.ip(&format!(
        "link add {left} type veth peer name {right} netns {}",
        b.name()
    ));
    let port = |namespace: &Namespace, interface: String, host: u8| {
        let v4 = Ipv4Addr::new(192, 0, net, host);
        let v6 = Ipv6Addr::new(0x2001, 0xdb8, u16::from(net), 0, 0, 0, 0, u16::from(host));
        namespace.ip(&format!("address add {v4}/24 dev {interface}"));
        namespace.ip(&format!("address add {v6}/64 dev {interface} nodad"));
        namespace.ip(&format!("link set {interface} up"));
        Port { interface, v4, v6 }
    };
    (port(a, left, 1), port(b, right, 2))
}

/// Two hosts with one wire.
#[derive(Debug)]
pub struct Pair {
    /// The first host.
    pub a: Namespace,
    /// The second host.
    pub b: Namespace,
    /// The wire's end at `a`.
    pub at_a: Port,
    /// The wire's end at `b`.
    pub at_b: Port,
}

impl Pair {
    /// Two new namespaces, wired.
    pub fn new() -> Pair {
        let (a, b) = (Namespace::new(), Namespace::new());
        let (at_a, at_b) = wire(&a, &b, 2);
        Pair { a, b, at_a, at_b }
    }
}

impl Default for Pair {
    fn default() -> Pair {
        Pair::new()
    }
}
