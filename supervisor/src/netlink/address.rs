//! The interface's addresses.

use super::{NetlinkError, Rtnetlink};
use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE};
use netlink_packet_route::address::{AddressAttribute, AddressMessage};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use ringway_proto::prefix::Prefix;

impl Rtnetlink {
    /// Gives the link an address; one that it has already is no error.
    pub(crate) fn add_address(&mut self, index: u32, address: Prefix) -> Result<(), NetlinkError> {
        let message = message(index, address);
        let what = || format!("address {address} on interface number {index}");
        match self.change(
            RouteNetlinkMessage::NewAddress(message.clone()),
            NLM_F_CREATE | NLM_F_EXCL,
            &what,
        ) {
            Err(error) if error.errno() == nix::libc::EEXIST => self.change(
                RouteNetlinkMessage::NewAddress(message),
                NLM_F_REPLACE,
                &what,
            ),
            other => other,
        }
    }

    /// Takes an address away; one that is not there is no error.
    pub(crate) fn remove_address(
        &mut self,
        index: u32,
        address: Prefix,
    ) -> Result<(), NetlinkError> {
        let what = || format!("removal of address {address} from interface number {index}");
        match self.change(
            RouteNetlinkMessage::DelAddress(message(index, address)),
            0,
            &what,
        ) {
            Err(error) if error.errno() == nix::libc::EADDRNOTAVAIL => Ok(()),
            other => other,
        }
    }
}

fn message(index: u32, address: Prefix) -> AddressMessage {
    let mut message = AddressMessage::default();
    message.header.index = index;
    message.header.prefix_len = address.length();
    message.header.family = if address.is_ipv4() {
        AddressFamily::Inet
    } else {
        AddressFamily::Inet6
    };
    message
        .attributes
        .push(AddressAttribute::Local(address.address()));
    message
        .attributes
        .push(AddressAttribute::Address(address.address()));
    message
}
