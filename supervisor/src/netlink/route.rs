//! Routes through the interface, and which way a datagram would take.

use super::{NetlinkError, Rtnetlink};
use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteFlags, RouteHeader, RouteMessage, RouteMetric, RouteProtocol, RouteScope,
    RouteType,
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
    pub(crate) fn add_route(&mut self, index: u32, prefix: Prefix, table: Option<u32>) -> Result<(), NetlinkError> {
        let what = || format!("route {prefix} through interface number {index}{}", in_table(table));
        let message = RouteNetlinkMessage::NewRoute(message(index, prefix, table));
        self.change(message, NLM_F_CREATE | NLM_F_EXCL, &what)
    }

    /// Takes a route to the link away; one that is not there is no error.
    pub(crate) fn remove_route(&mut self, index: u32, prefix: Prefix, table: Option<u32>) -> Result<(), NetlinkError> {
        let what = || format!("removal of route {prefix} through interface number {index}{}", in_table(table));
        match self.change(RouteNetlinkMessage::DelRoute(message(index, prefix, table)), 0, &what) {
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
                Err(error) if matches!(error.errno(), nix::libc::ENOENT | nix::libc::EAFNOSUPPORT | nix::libc::EOPNOTSUPP) => continue,
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
            let found = self.dump(RouteNetlinkMessage::GetRoute(request), &|| "default routes".to_owned());
            for message in found.unwrap_or_default() {
                let RouteNetlinkMessage::NewRoute(route) = message else { continue };
                if route.header.destination_prefix_length == 0
                    && route.header.kind == RouteType::Unicast
                    && route.attributes.contains(&RouteAttribute::Table(main))
                {
                    devices.extend(route.attributes.iter().find_map(|attribute| match attribute {
                        RouteAttribute::Oif(index) => Some(*index),
                        _ => None,
                    }));
                }
            }
        }
        devices
    }

    /// Which way a datagram to this address would take.
    pub(crate) fn route_of(&mut self, destination: SocketAddr, fwmark: u32) -> Result<Hop, NetlinkError> {
        let mut request = RouteMessage::default();
        let address = destination.ip();
        request.header.address_family = family(address);
        request.header.destination_prefix_length = if address.is_ipv4() { 32 } else { 128 };
        request.attributes.push(RouteAttribute::Destination(address.into()));
        if fwmark != 0 {
            request.attributes.push(RouteAttribute::Mark(fwmark));
        }
        if let SocketAddr::V6(v6) = destination {
            if v6.scope_id() != 0 {
                request.attributes.push(RouteAttribute::Oif(v6.scope_id()));
            }
        }
        let what = || format!("route to {address}");
        let RouteNetlinkMessage::NewRoute(route) = self.get(RouteNetlinkMessage::GetRoute(request), &what)? else {
            return Err(NetlinkError { what: what(), error: io::ErrorKind::InvalidData.into() });
        };
        let mut hop = Hop { ifindex: 0, mtu: None, source: None };
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
    header.scope = if prefix.is_ipv4() { RouteScope::Link } else { RouteScope::Universe };
    header.kind = RouteType::Unicast;
    header.flags = RouteFlags::empty();
    // The header's field is a byte; every table fits into the attribute.
    header.table = if table.is_none() { RouteHeader::RT_TABLE_MAIN } else { RouteHeader::RT_TABLE_UNSPEC };
    if !prefix.is_default() {
        message.attributes.push(RouteAttribute::Destination(prefix.address().into()));
    }
    message.attributes.push(RouteAttribute::Oif(index));
    message.attributes.extend(table.map(RouteAttribute::Table));
    message
}

fn family(address: IpAddr) -> AddressFamily {
    if address.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 }
}

fn in_table(table: Option<u32>) -> String {
    table.map_or_else(String::new, |table| format!(" in table {table}"))
}
