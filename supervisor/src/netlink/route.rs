//! Routes through the interface, and which way a datagram would take.

use super::{NetlinkError, Rtnetlink};
use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteFlags, RouteHeader, RouteMessage, RouteMetric,
    RouteProtocol, RouteScope, RouteType,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use ringway_proto::prefix::Prefix;
use std::io;
use std::net::{IpAddr, SocketAddr};

/// The way that a datagram would take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Hop {
    /// The device's index.
    pub(crate) ifindex: u32,
    /// The route's MTU in bytes, where the route or a path discovery says one.
    pub(crate) mtu: Option<u32>,
    /// The source address that the kernel would choose.
    pub(crate) source: Option<IpAddr>,
}

impl Rtnetlink {
    /// Routes a prefix to the link, in this table (`None`: the main one).
    pub(crate) fn add_route(
        &mut self,
        index: u32,
        prefix: Prefix,
        table: Option<u32>,
    ) -> Result<(), NetlinkError> {
        let what = || {
            format!(
                "route {prefix} through interface number {index}{}",
                in_table(table)
            )
        };
        let message = RouteNetlinkMessage::NewRoute(message(index, prefix, table));
        self.change(message, NLM_F_CREATE | NLM_F_EXCL, &what)
    }

    /// Takes a route to the link away; one that is not there is no error.
    pub(crate) fn remove_route(
        &mut self,
        index: u32,
        prefix: Prefix,
        table: Option<u32>,
    ) -> Result<(), NetlinkError> {
        let what = || {
            format!(
                "removal of route {prefix} through interface number {index}{}",
                in_table(table)
            )
        };
        match self.change(
            RouteNetlinkMessage::DelRoute(message(index, prefix, table)),
            0,
            &what,
        ) {
            Err(error) if error.errno() == nix::libc::ESRCH => Ok(()),
            other => other,
        }
    }

    /// Whether this table holds no route of either family.
    pub(crate) fn table_is_empty(&mut self, table: u32) -> Result<bool, NetlinkError> {
        for family in [AddressFamily::Inet, AddressFamily::Inet6] {
            let mut request = RouteMessage::default();
            request.header.address_family = family;
            request.attributes.push(RouteAttribute::Table(table));
            let what = || format!("routes of table {table}");
            let found = match self.dump(RouteNetlinkMessage::GetRoute(request), &what) {
                Ok(found) => found,
                // A table that was never used, or a family that this host has not.
                Err(error)
                    if matches!(
                        error.errno(),
                        nix::libc::ENOENT | nix::libc::EAFNOSUPPORT | nix::libc::EOPNOTSUPP
                    ) =>
                {
                    continue;
                }
                Err(error) => return Err(error),
            };
            let here = |message: &RouteNetlinkMessage| {
                matches!(message, RouteNetlinkMessage::NewRoute(route)
                    if route.attributes.contains(&RouteAttribute::Table(table)))
            };
            if found.iter().any(here) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The devices of the main table's default routes, IPv4 before IPv6.
    pub(crate) fn default_devices(&mut self) -> Vec<u32> {
        let main = u32::from(RouteHeader::RT_TABLE_MAIN);
        let mut devices = Vec::new();
        for family in [AddressFamily::Inet, AddressFamily::Inet6] {
            let mut request = RouteMessage::default();
            request.header.address_family = family;
            request.attributes.push(RouteAttribute::Table(main));
            let found = self.dump(RouteNetlinkMessage::GetRoute(request), &|| {
                "default routes".to_owned()
            });
            for message in found.unwrap_or_default() {
                let RouteNetlinkMessage::NewRoute(route) = message else {
                    continue;
                };
                if route.header.destination_prefix_length == 0
                    && route.header.kind == RouteType::Unicast
                    && route.attributes.contains(&RouteAttribute::Table(main))
                {
                    devices.extend(
                        route
                            .attributes
                            .iter()
                            .find_map(|attribute| match attribute {
                                RouteAttribute::Oif(index) => Some(*index),
                                _ => None,
                            }),
                    );
                }
            }
        }
        devices
    }

    /// Which way a datagram to this address would take.
    pub(crate) fn route_of(
        &mut self,
        destination: SocketAddr,
        fwmark: u32,
    ) -> Result<Hop, NetlinkError> {
        self.route_by(destination, fwmark, 0)
    }

    /// The same, where it must leave by the device `by` (0: any).
    pub(crate) fn route_by(
        &mut self,
        destination: SocketAddr,
        fwmark: u32,
        by: u32,
    ) -> Result<Hop, NetlinkError> {
        let mut request = RouteMessage::default();
        let address = destination.ip();
        request.header.address_family = family(address);
        request.header.destination_prefix_length = if address.is_ipv4() { 32 } else { 128 };
        request
            .attributes
            .push(RouteAttribute::Destination(address.into()));
        if fwmark != 0 {
            request.attributes.push(RouteAttribute::Mark(fwmark));
        }
        let scope = match destination {
            SocketAddr::V6(v6) => v6.scope_id(),
            SocketAddr::V4(_) => 0,
        };
        let by = if scope == 0 { by } else { scope };
        if by != 0 {
            request.attributes.push(RouteAttribute::Oif(by));
            if address.is_ipv4() {
                request.header.flags = RouteFlags::LookupTable;
            }
        }
        let what = || format!("route to {address}");
        let RouteNetlinkMessage::NewRoute(route) =
            self.get(RouteNetlinkMessage::GetRoute(request), &what)?
        else {
            return Err(NetlinkError {
                what: what(),
                error: io::ErrorKind::InvalidData.into(),
            });
        };
        // Where a device is named and no route uses it, IPv4 takes the destination for a neighbour
        // (net/ipv4/route.c, `ip_route_output_key_hash_rcu`): an answer of no table.
        if by != 0 && address.is_ipv4() && route.header.table == RouteHeader::RT_TABLE_UNSPEC {
            return Err(NetlinkError {
                what: what(),
                error: io::Error::from_raw_os_error(nix::libc::ENETUNREACH),
            });
        }
        let mut hop = Hop {
            ifindex: 0,
            mtu: None,
            source: None,
        };
        for attribute in route.attributes {
            match attribute {
                RouteAttribute::Oif(index) => hop.ifindex = index,
                RouteAttribute::PrefSource(RouteAddress::Inet(v4)) => hop.source = Some(v4.into()),
                RouteAttribute::PrefSource(RouteAddress::Inet6(v6)) => hop.source = Some(v6.into()),
                RouteAttribute::Metrics(metrics) => {
                    hop.mtu = metrics.iter().find_map(|metric| match metric {
                        RouteMetric::Mtu(mtu) if *mtu > 0 => Some(*mtu),
                        _ => None,
                    });
                }
                _ => {}
            }
        }
        Ok(hop)
    }
}

fn message(index: u32, prefix: Prefix, table: Option<u32>) -> RouteMessage {
    let mut message = RouteMessage::default();
    let header = &mut message.header;
    header.address_family = family(prefix.address());
    header.destination_prefix_length = prefix.length();
    header.protocol = RouteProtocol::Boot;
    header.scope = if prefix.is_ipv4() {
        RouteScope::Link
    } else {
        RouteScope::Universe
    };
    header.kind = RouteType::Unicast;
    header.flags = RouteFlags::empty();
    // The header's field is a byte; every table fits into the attribute.
    header.table = if table.is_none() {
        RouteHeader::RT_TABLE_MAIN
    } else {
        RouteHeader::RT_TABLE_UNSPEC
    };
    if !prefix.is_default() {
        message
            .attributes
            .push(RouteAttribute::Destination(prefix.address().into()));
    }
    message.attributes.push(RouteAttribute::Oif(index));
    message.attributes.extend(table.map(RouteAttribute::Table));
    message
}

fn family(address: IpAddr) -> AddressFamily {
    if address.is_ipv4() {
        AddressFamily::Inet
    } else {
        AddressFamily::Inet6
    }
}

fn in_table(table: Option<u32>) -> String {
    table.map_or_else(String::new, |table| format!(" in table {table}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    fn ip(words: &str) {
        let words = words.split_whitespace();
        assert!(Command::new("ip").args(words).status().unwrap().success());
    }

    #[test]
    fn a_device_without_a_route_is_no_way() {
        if !nix::unistd::geteuid().is_root() {
            return;
        }
        std::thread::spawn(|| {
            nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET).unwrap();
            let _tuns = ["t1", "t2"].map(|name| crate::tun::Tun::create(name, 1).unwrap());
            for (device, number) in [("t1", 1), ("t2", 2)] {
                ip(&format!("link set {device} up"));
                ip(&format!("address add 10.{number}.0.1/24 dev {device}"));
                ip(&format!("address add fd0{number}::1/64 dev {device} nodad"));
            }
            ip("route add 203.0.113.0/24 dev t2");
            ip("route add 2001:db8::/64 dev t2");
            let mut netlink = Rtnetlink::open().unwrap();
            let [one, two] = ["t1", "t2"].map(|name| {
                let link = netlink.link_named(name, crate::netlink::Whereabouts::Here);
                link.unwrap().index
            });
            for to in ["203.0.113.5:1", "[2001:db8::5]:1"] {
                let to = to.parse().unwrap();
                assert_eq!(netlink.route_of(to, 0).unwrap().ifindex, two);
                assert_eq!(netlink.route_by(to, 0, two).unwrap().ifindex, two);
                netlink.route_by(to, 0, one).unwrap_err();
            }
        })
        .join()
        .unwrap();
    }
}
