//! Notices what others change: the link's state in any namespace, local addresses in ours.

use super::messages;
use netlink_packet_core::{NetlinkMessage, NetlinkPayload};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::address::AddressAttribute;
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};

/// `RTNLGRP_LINK`, `RTNLGRP_IPV4_IFADDR` and `RTNLGRP_IPV6_IFADDR` (linux/rtnetlink.h).
const GROUP_LINK: u32 = 1;
const GROUP_IPV4_ADDRESS: u32 = 5;
const GROUP_IPV6_ADDRESS: u32 = 9;

/// Hears that some link changed, here or in a namespace that has a number here.
///
/// What changed is asked afresh ([`super::Rtnetlink::link_named`]): that is right even when
/// messages were lost, and a message of another namespace need not be told apart.
pub(crate) struct LinkWatch(Socket);

impl LinkWatch {
    /// Listens from now on.
    pub(crate) fn open() -> io::Result<LinkWatch> {
        let socket = listen(&[GROUP_LINK])?;
        socket.set_listen_all_namespaces(true)?;
        Ok(LinkWatch(socket))
    }

    /// Reads all that waits; whether there was anything.
    pub(crate) fn drain(&self) -> bool {
        let mut any = false;
        while receive(&self.0).is_some() {
            any = true;
        }
        any
    }
}

impl AsFd for LinkWatch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Hears that addresses of this namespace went away.
pub(crate) struct AddressWatch(Socket);

/// What an [`AddressWatch`] heard.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Gone {
    /// Nothing went.
    Nothing,
    /// These went.
    These(Vec<IpAddr>),
    /// Messages were lost: any may have gone.
    Unknown,
}

impl AddressWatch {
    /// Listens from now on.
    pub(crate) fn open() -> io::Result<AddressWatch> {
        Ok(AddressWatch(listen(&[
            GROUP_IPV4_ADDRESS,
            GROUP_IPV6_ADDRESS,
        ])?))
    }

    /// Reads all that waits.
    pub(crate) fn drain(&self) -> Gone {
        let mut gone = Vec::new();
        let mut lost = false;
        while let Some(received) = receive(&self.0) {
            match received {
                Ok(datagram) => messages(&datagram).for_each(|bytes| gone.extend(removed(bytes))),
                Err(_) => lost = true,
            }
        }
        if lost {
            Gone::Unknown
        } else if gone.is_empty() {
            Gone::Nothing
        } else {
            Gone::These(gone)
        }
    }
}

impl AsFd for AddressWatch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

fn listen(groups: &[u32]) -> io::Result<Socket> {
    let mut socket = Socket::new(NETLINK_ROUTE)?;
    socket.bind(&SocketAddr::new(0, 0))?;
    for group in groups {
        socket.add_membership(*group)?;
    }
    socket.set_non_blocking(true)?;
    Ok(socket)
}

/// The next datagram; `None` when there is none, an error when some were lost.
fn receive(socket: &Socket) -> Option<io::Result<Vec<u8>>> {
    let mut datagram = Vec::with_capacity(32 * 1024);
    match socket.recv(&mut datagram, 0) {
        Ok(_) => Some(Ok(datagram)),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => None,
        Err(error) if error.raw_os_error() == Some(nix::libc::ENOBUFS) => Some(Err(error)),
        Err(error) if error.kind() == io::ErrorKind::Interrupted => Some(Err(error)),
        Err(_) => None,
    }
}

fn removed(bytes: &[u8]) -> Option<IpAddr> {
    let message = NetlinkMessage::<RouteNetlinkMessage>::deserialize(bytes).ok()?;
    let NetlinkPayload::InnerMessage(RouteNetlinkMessage::DelAddress(address)) = message.payload
    else {
        return None;
    };
    // With IPv4 point-to-point addresses, IFA_LOCAL is ours and IFA_ADDRESS the peer's.
    let local = address
        .attributes
        .iter()
        .find_map(|attribute| match attribute {
            AddressAttribute::Local(local) => Some(*local),
            _ => None,
        });
    local.or_else(|| {
        address
            .attributes
            .iter()
            .find_map(|attribute| match attribute {
                AddressAttribute::Address(address) => Some(*address),
                _ => None,
            })
    })
}
