//! The UDP sockets: a group of S + 1 a local address, one a shard and the last for meta.
//!
//! A group is never changed once it is made: no member is closed, added or connected, since the
//! last would move into its place (net/core/sock_reuseport.c). Another port means another group.

use crate::steering::group_program;
use crate::sys;
use nix::libc::{self, c_int};
use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, SockaddrIn, SockaddrIn6, SockaddrLike, bind, getsockname,
    setsockopt, socket, sockopt,
};
use ringway_worker::control::GroupInfo;
use std::ffi::OsString;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddrV4, SocketAddrV6};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// Bytes of buffer of a socket in either direction: 10 Gbit/s for 3 ms.
const BUFFER: usize = 4 << 20;

/// How often another free port is tried when it is taken in the other family.
const PORT_ATTEMPTS: usize = 32;

/// Where to listen, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Listen {
    /// The port; 0 chooses one that is free for every address.
    pub(crate) port: u16,
    /// The local addresses; empty means every address of both families.
    pub(crate) addresses: Vec<IpAddr>,
    /// The only device to send and receive by.
    pub(crate) device: Option<String>,
    /// The firewall mark; 0 is none.
    pub(crate) fwmark: u32,
}

/// The sockets of one local address.
#[derive(Debug)]
pub(crate) struct Group {
    /// What the processes are told of it.
    pub(crate) info: GroupInfo,
    /// The device it is bound to.
    pub(crate) device: Option<String>,
    /// The sockets by shard, and meta's at the end.
    pub(crate) sockets: Vec<OwnedFd>,
}

/// Groups that are in use; those kept over a change of port are shared with the former list.
pub(crate) type Groups = Vec<Arc<Group>>;

/// Why sockets could not be opened or changed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SocketError {
    /// Somebody else has it.
    #[error(
        "port {port} of {address} is taken: choose another ListenPort, or stop what has it (ss -lunp)"
    )]
    Taken {
        /// The local address.
        address: IpAddr,
        /// The port.
        port: u16,
    },
    /// Any other failure.
    #[error("UDP socket at {address} port {port}: {what}: {error}")]
    System {
        /// The local address.
        address: IpAddr,
        /// The port.
        port: u16,
        /// What was attempted.
        what: &'static str,
        /// The kernel's answer.
        error: io::Error,
    },
    /// Neither family is there.
    #[error("no UDP socket: this host has neither IPv4 nor IPv6")]
    NoFamily,
}

impl SocketError {
    /// The error number, for the UAPI.
    pub(crate) fn errno(&self) -> i32 {
        match self {
            SocketError::Taken { .. } => libc::EADDRINUSE,
            SocketError::System { error, .. } => error.raw_os_error().unwrap_or(libc::EIO),
            SocketError::NoFamily => libc::EAFNOSUPPORT,
        }
    }
}

/// Opens the groups that `listen` asks for; one in `present` that is right already is kept.
///
/// Returns the groups and the port.
pub(crate) fn open(
    listen: &Listen,
    shards: u8,
    present: &Groups,
) -> Result<(Groups, u16), SocketError> {
    let every = [
        IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    ];
    let optional = listen.addresses.is_empty();
    let addresses: &[IpAddr] = if optional { &every } else { &listen.addresses };
    for attempt in 1.. {
        match open_at(listen, addresses, optional, shards, present) {
            Err(SocketError::Taken { .. }) if listen.port == 0 && attempt < PORT_ATTEMPTS => {}
            other => return other,
        }
    }
    Err(SocketError::NoFamily)
}

/// Sets the firewall mark of every socket.
pub(crate) fn set_fwmark(groups: &Groups, fwmark: u32) -> Result<(), SocketError> {
    for group in groups {
        for socket in &group.sockets {
            setsockopt(socket, sockopt::Mark, &fwmark).map_err(|error| SocketError::System {
                address: group.info.address,
                port: group.info.port,
                what: "firewall mark",
                error: error.into(),
            })?;
        }
    }
    Ok(())
}

fn open_at(
    listen: &Listen,
    addresses: &[IpAddr],
    optional: bool,
    shards: u8,
    present: &Groups,
) -> Result<(Groups, u16), SocketError> {
    let mut port = listen.port;
    let mut groups = Groups::new();
    for address in addresses {
        let kept = present.iter().find(|group| {
            group.info.address == *address
                && port != 0
                && group.info.port == port
                && group.device == listen.device
        });
        if let Some(kept) = kept {
            set_fwmark(&vec![kept.clone()], listen.fwmark)?;
            groups.push(kept.clone());
            continue;
        }
        match Group::open(*address, port, listen, shards) {
            Ok(group) => {
                port = group.info.port;
                groups.push(Arc::new(group));
            }
            Err(SocketError::System { error, .. })
                if optional
                    && matches!(
                        error.raw_os_error(),
                        Some(libc::EAFNOSUPPORT | libc::EADDRNOTAVAIL)
                    ) =>
            {
                let family = if address.is_ipv4() { "IPv4" } else { "IPv6" };
                tracing::warn!(%error, "this host has no {family}: listening without it");
            }
            Err(error) => return Err(error),
        }
    }
    if groups.is_empty() {
        Err(SocketError::NoFamily)
    } else {
        Ok((groups, port))
    }
}

impl Group {
    fn open(address: IpAddr, port: u16, listen: &Listen, shards: u8) -> Result<Group, SocketError> {
        let failed = |port: u16, what: &'static str| {
            move |error: io::Error| {
                if error.raw_os_error() == Some(libc::EADDRINUSE) {
                    SocketError::Taken { address, port }
                } else {
                    SocketError::System {
                        address,
                        port,
                        what,
                        error,
                    }
                }
            }
        };
        // The first is bound alone: with SO_REUSEPORT it would silently join whoever has the port.
        // Set afterwards, the option lets the others in (net/ipv4/udp.c, `udp_reuseport_add_sock`).
        let first = prepare(address, listen).map_err(failed(port, "options"))?;
        bind_to(&first, address, port).map_err(failed(port, "bind"))?;
        let port = bound_port(&first, address).map_err(failed(port, "name"))?;
        setsockopt(&first, sockopt::ReusePort, &true)
            .map_err(|error| failed(port, "SO_REUSEPORT")(error.into()))?;
        let mut sockets = vec![first];
        for _ in 0..shards {
            let member = prepare(address, listen).map_err(failed(port, "options"))?;
            setsockopt(&member, sockopt::ReusePort, &true)
                .map_err(|error| failed(port, "SO_REUSEPORT")(error.into()))?;
            bind_to(&member, address, port).map_err(failed(port, "bind"))?;
            sockets.push(member);
        }
        sys::bpf::attach_group(sockets[0].as_fd(), &group_program(shards))
            .map_err(failed(port, "steering program"))?;
        Ok(Group {
            info: GroupInfo {
                family_v6: address.is_ipv6(),
                address,
                port,
            },
            device: listen.device.clone(),
            sockets,
        })
    }

    /// The shards' sockets.
    pub(crate) fn shards(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.sockets[..self.sockets.len() - 1]
            .iter()
            .map(AsFd::as_fd)
    }

    /// Meta's socket.
    pub(crate) fn meta(&self) -> BorrowedFd<'_> {
        self.sockets[self.sockets.len() - 1].as_fd()
    }
}

/// A socket with all its options, not bound yet.
fn prepare(address: IpAddr, listen: &Listen) -> io::Result<OwnedFd> {
    let family = if address.is_ipv4() {
        AddressFamily::Inet
    } else {
        AddressFamily::Inet6
    };
    let fd = socket(
        family,
        SockType::Datagram,
        SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK,
        None,
    )?;
    let set = |level: c_int, option: c_int, value: c_int| {
        sys::socket::set(fd.as_fd(), level, option, value)
    };
    if address.is_ipv4() {
        set(libc::IPPROTO_IP, libc::IP_PKTINFO, 1)?;
        set(libc::IPPROTO_IP, libc::IP_RECVTOS, 1)?;
        set(
            libc::IPPROTO_IP,
            libc::IP_MTU_DISCOVER,
            libc::IP_PMTUDISC_DO,
        )?;
        set(libc::IPPROTO_IP, libc::IP_RECVERR, 1)?;
    } else {
        set(libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, 1)?;
        set(libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO, 1)?;
        set(libc::IPPROTO_IPV6, libc::IPV6_RECVTCLASS, 1)?;
        set(
            libc::IPPROTO_IPV6,
            libc::IPV6_MTU_DISCOVER,
            libc::IPV6_PMTUDISC_DO,
        )?;
        set(libc::IPPROTO_IPV6, libc::IPV6_RECVERR, 1)?;
    }
    set(libc::SOL_SOCKET, libc::SO_RXQ_OVFL, 1)?;
    // Beyond net.core.rmem_max with CAP_NET_ADMIN; without it, as much as is allowed.
    if setsockopt(&fd, sockopt::RcvBufForce, &BUFFER).is_err() {
        setsockopt(&fd, sockopt::RcvBuf, &BUFFER)?;
    }
    if setsockopt(&fd, sockopt::SndBufForce, &BUFFER).is_err() {
        setsockopt(&fd, sockopt::SndBuf, &BUFFER)?;
    }
    if listen.fwmark != 0 {
        setsockopt(&fd, sockopt::Mark, &listen.fwmark)?;
    }
    if let Some(device) = &listen.device {
        setsockopt(&fd, sockopt::BindToDevice, &OsString::from(device))?;
    }
    Ok(fd)
}

fn bind_to(fd: &OwnedFd, address: IpAddr, port: u16) -> io::Result<()> {
    match address {
        IpAddr::V4(v4) => bind(
            fd.as_raw_fd(),
            &SockaddrIn::from(SocketAddrV4::new(v4, port)),
        )?,
        IpAddr::V6(v6) => bind(
            fd.as_raw_fd(),
            &SockaddrIn6::from(SocketAddrV6::new(v6, port, 0, 0)),
        )?,
    }
    Ok(())
}

fn bound_port(fd: &OwnedFd, address: IpAddr) -> io::Result<u16> {
    fn name<T: SockaddrLike>(fd: &OwnedFd) -> io::Result<T> {
        Ok(getsockname::<T>(fd.as_raw_fd())?)
    }
    Ok(if address.is_ipv4() {
        name::<SockaddrIn>(fd)?.port()
    } else {
        name::<SockaddrIn6>(fd)?.port()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;
    use std::time::Duration;

    fn loopback(port: u16) -> Listen {
        Listen {
            port,
            addresses: vec![Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()],
            device: None,
            fwmark: 0,
        }
    }

    /// The one socket of the group that got the datagram.
    fn receiver(sockets: &[UdpSocket]) -> usize {
        let mut buffer = [0; 64];
        for _ in 0..200 {
            for (number, socket) in sockets.iter().enumerate() {
                if socket.recv_from(&mut buffer).is_ok() {
                    return number;
                }
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        panic!("the datagram reached no socket");
    }

    #[test]
    fn datagrams_are_steered_by_type_and_index() {
        for shards in [1_u8, 8, 64] {
            let (groups, port) = open(&loopback(0), shards, &Groups::new()).unwrap();
            assert_eq!(groups.len(), 2);
            for group in &groups {
                assert_eq!(group.info.port, port);
                assert_eq!(group.sockets.len(), usize::from(shards) + 1);
                let sockets: Vec<UdpSocket> = group
                    .sockets
                    .iter()
                    .map(|fd| UdpSocket::from(fd.try_clone().unwrap()))
                    .collect();
                let sender = UdpSocket::bind((group.info.address, 0)).unwrap();
                let arrives = |payload: &[u8]| {
                    sender.send_to(payload, (group.info.address, port)).unwrap();
                    receiver(&sockets)
                };
                for index in [0_u32, 1, 5, 63, 64, 0x0102_0304, 0xffff_ffff, 0x8000_0000] {
                    let mut data = [0_u8; 32];
                    data[0] = 4;
                    data[4..8].copy_from_slice(&index.to_le_bytes());
                    assert_eq!(
                        arrives(&data),
                        (index & (u32::from(shards) - 1)) as usize,
                        "index {index:#x}"
                    );
                }
                for kind in [0_u8, 1, 2, 3, 5, 255] {
                    let mut message = [7_u8; 148];
                    message[0] = kind;
                    assert_eq!(arrives(&message), usize::from(shards), "type {kind}");
                }
                assert_eq!(arrives(&[4]), 0, "too short for an index");
                assert_eq!(arrives(&[4, 0, 0, 0]), 0, "too short for an index");
            }
        }
    }

    #[test]
    fn a_taken_port_is_told_even_when_its_owner_shares_it() {
        let (groups, port) = open(&loopback(0), 2, &Groups::new()).unwrap();
        let error = open(&loopback(port), 2, &Groups::new()).unwrap_err();
        assert_eq!(error.errno(), libc::EADDRINUSE);
        assert!(
            error
                .to_string()
                .contains(&format!("port {port} of 127.0.0.1 is taken")),
            "{error}"
        );
        drop(groups);
        open(&loopback(port), 2, &Groups::new()).unwrap();
    }

    #[test]
    fn what_is_right_already_is_kept() {
        let (groups, port) = open(&loopback(0), 2, &Groups::new()).unwrap();
        let one = Listen {
            addresses: vec![Ipv4Addr::LOCALHOST.into()],
            ..loopback(port)
        };
        let (fewer, same) = open(&one, 2, &groups).unwrap();
        assert_eq!(same, port);
        assert!(Arc::ptr_eq(&fewer[0], &groups[0]));
    }
}
