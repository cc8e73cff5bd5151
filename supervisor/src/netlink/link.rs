//! The interface itself: its state, its MTU, up and down, in whatever namespace it is.

use super::{NetlinkError, Rtnetlink};
use crate::sys;
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{LinkAttribute, LinkExtentMask, LinkFlags, LinkMessage};
use netlink_packet_route::nsid::{NsidAttribute, NsidMessage};
use netlink_packet_utils::nla::DefaultNla;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// `IFLA_TARGET_NETNSID` (linux/if_link.h, since 4.20): which namespace a link request is for.
const IFLA_TARGET_NETNSID: u16 = 46;

/// What is known of a link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LinkState {
    /// Its name, which others may change.
    pub(crate) name: String,
    /// Its index in the namespace where it is.
    pub(crate) index: u32,
    /// Its MTU in bytes.
    pub(crate) mtu: u32,
    /// Whether it is administratively up.
    pub(crate) up: bool,
}

/// Where a TUN interface is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Whereabouts {
    /// In the supervisor's namespace.
    Here,
    /// In the namespace that the supervisor's knows under this number.
    Elsewhere(i32),
}

impl Whereabouts {
    fn target(self) -> Option<i32> {
        match self {
            Whereabouts::Here => None,
            Whereabouts::Elsewhere(id) => Some(id),
        }
    }
}

impl Rtnetlink {
    /// The state of the link with this index, in the namespace with this number.
    pub(crate) fn link(
        &mut self,
        index: u32,
        namespace: Option<i32>,
    ) -> Result<LinkState, NetlinkError> {
        let mut request = asking(namespace);
        request.header.index = index;
        self.link_state(request, &|| format!("state of interface number {index}"))
    }

    /// The state of the link with this name.
    pub(crate) fn link_named(
        &mut self,
        name: &str,
        whereabouts: Whereabouts,
    ) -> Result<LinkState, NetlinkError> {
        let mut request = asking(whereabouts.target());
        request
            .attributes
            .push(LinkAttribute::IfName(name.to_owned()));
        self.link_state(request, &|| format!("state of interface {name}"))
    }

    fn link_state(
        &mut self,
        request: LinkMessage,
        what: &dyn Fn() -> String,
    ) -> Result<LinkState, NetlinkError> {
        let RouteNetlinkMessage::NewLink(link) =
            self.get(RouteNetlinkMessage::GetLink(request), what)?
        else {
            return Err(NetlinkError {
                what: what(),
                error: io::ErrorKind::InvalidData.into(),
            });
        };
        let mut state = LinkState {
            name: String::new(),
            index: link.header.index,
            mtu: 0,
            up: link.header.flags.contains(LinkFlags::Up),
        };
        for attribute in link.attributes {
            match attribute {
                LinkAttribute::IfName(name) => state.name = name,
                LinkAttribute::Mtu(mtu) => state.mtu = mtu,
                _ => {}
            }
        }
        Ok(state)
    }

    /// Sets the MTU of a link here and brings it up.
    pub(crate) fn set_link_up(&mut self, index: u32, mtu: u32) -> Result<(), NetlinkError> {
        let mut request = LinkMessage::default();
        request.header.index = index;
        request.header.flags = LinkFlags::Up;
        request.header.change_mask = LinkFlags::Up;
        request.attributes.push(LinkAttribute::Mtu(mtu));
        self.change(RouteNetlinkMessage::SetLink(request), 0, &|| {
            format!("interface number {index}: MTU {mtu} and up")
        })
    }

    /// Sets the MTU of a link here.
    ///
    /// Elsewhere is not possible: in this request `IFLA_TARGET_NETNSID` means where to move the link
    /// of that number here (net/core/rtnetlink.c, `do_setlink`).
    pub(crate) fn set_link_mtu(&mut self, index: u32, mtu: u32) -> Result<(), NetlinkError> {
        let mut request = LinkMessage::default();
        request.header.index = index;
        request.attributes.push(LinkAttribute::Mtu(mtu));
        self.change(RouteNetlinkMessage::SetLink(request), 0, &|| {
            format!("interface number {index}: MTU {mtu}")
        })
    }

    /// Deletes a link.
    #[cfg(test)]
    pub(crate) fn delete_link(&mut self, index: u32) -> Result<(), NetlinkError> {
        let mut request = LinkMessage::default();
        request.header.index = index;
        self.change(RouteNetlinkMessage::DelLink(request), 0, &|| {
            format!("deletion of interface number {index}")
        })
    }

    /// Where the interface of this TUN queue is; an error of `EBADFD` means that it was deleted.
    ///
    /// A namespace that has no number here yet is given one: without a number its events are not
    /// heard (af_netlink.c, `do_one_broadcast`).
    pub(crate) fn whereabouts(&mut self, queue: BorrowedFd<'_>) -> io::Result<Whereabouts> {
        let theirs = sys::tun::namespace(queue)?;
        if same_file(&theirs)? {
            return Ok(Whereabouts::Here);
        }
        let fd = theirs.as_raw_fd() as u32;
        if let Some(id) = self.namespace_number(fd).map_err(|error| error.error)? {
            return Ok(Whereabouts::Elsewhere(id));
        }
        let mut request = NsidMessage::default();
        request.attributes = vec![NsidAttribute::Id(-1), NsidAttribute::Fd(fd)];
        let given = self.change(RouteNetlinkMessage::NewNsId(request), 0, &|| {
            "number for the interface's namespace".to_owned()
        });
        match self.namespace_number(fd).map_err(|error| error.error)? {
            Some(id) => Ok(Whereabouts::Elsewhere(id)),
            None => Err(given
                .err()
                .map_or_else(|| io::ErrorKind::NotFound.into(), |error| error.error)),
        }
    }

    fn namespace_number(&mut self, fd: u32) -> Result<Option<i32>, NetlinkError> {
        let mut request = NsidMessage::default();
        request.attributes = vec![NsidAttribute::Fd(fd)];
        let what = || "number of the interface's namespace".to_owned();
        let RouteNetlinkMessage::NewNsId(answer) =
            self.get(RouteNetlinkMessage::GetNsId(request), &what)?
        else {
            return Ok(None);
        };
        Ok(answer
            .attributes
            .iter()
            .find_map(|attribute| match attribute {
                NsidAttribute::Id(id) if *id >= 0 => Some(*id),
                _ => None,
            }))
    }
}

fn asking(namespace: Option<i32>) -> LinkMessage {
    let mut request = LinkMessage::default();
    // Without statistics the answer is a third as long.
    request
        .attributes
        .push(LinkAttribute::ExtMask(vec![LinkExtentMask::SkipStats]));
    request.attributes.extend(namespace.map(target));
    request
}

fn target(namespace: i32) -> LinkAttribute {
    LinkAttribute::Other(DefaultNla::new(
        IFLA_TARGET_NETNSID,
        namespace.to_ne_bytes().to_vec(),
    ))
}

/// Whether this namespace descriptor is of the namespace that we are in.
fn same_file(theirs: &impl std::os::fd::AsFd) -> io::Result<bool> {
    let theirs = nix::sys::stat::fstat(theirs)?;
    let ours = nix::sys::stat::stat("/proc/thread-self/ns/net")?;
    Ok((theirs.st_dev, theirs.st_ino) == (ours.st_dev, ours.st_ino))
}
