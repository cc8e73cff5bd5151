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
    /// No such device.
    #[error("BindDevice {0}: there is no such interface: make it first, or correct the name")]
    NoDevice(String),
    /// An address of nobody here.
    #[error("ListenAddress {0}: no interface has this address: add it first, or correct it")]
    NotLocal(IpAddr),
    /// The privilege for marks and devices.
    #[error("{0}: not permitted: run it as root or with CAP_NET_ADMIN")]
    NotPermitted(&'static str),
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
            SocketError::NoDevice(_) => libc::ENODEV,
            SocketError::NotLocal(_) => libc::EADDRNOTAVAIL,
            SocketError::NotPermitted(_) => libc::EPERM,
            SocketError::NoFamily => libc::EAFNOSUPPORT,
        }
    }
}

/// Opens the groups that `listen` asks for; one in `present`, all that are open, that is right
/// already is kept.
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
    let mut kept = Groups::new();
    for address in addresses {
        let right = present
            .iter()
            .find(|group| port != 0 && group.info.port == port && group.is_at(*address, listen));
        if let Some(right) = right {
            groups.push(right.clone());
            kept.push(right.clone());
            continue;
        }
        let ours = present
            .iter()
            .any(|group| group.info.port == port && group.overlaps(*address, listen));
        match Group::open(*address, port, listen, shards, ours) {
            Ok(group) => {
                port = group.info.port;
                groups.push(Arc::new(group));
            }
            Err(SocketError::System { error, .. })
                if optional && error.raw_os_error() == Some(libc::EAFNOSUPPORT) =>
            {
                let family = if address.is_ipv4() { "IPv4" } else { "IPv6" };
                tracing::warn!("this host has no {family}: listening without it");
            }
            Err(SocketError::NotLocal(_)) if optional => {
                let family = if address.is_ipv4() { "IPv4" } else { "IPv6" };
                tracing::warn!("this host has no {family} address: listening without it");
            }
            Err(error) => return Err(error),
        }
    }
    if groups.is_empty() {
        return Err(SocketError::NoFamily);
    }
    // Last: a failure above leaves the sockets in use as they are.
    set_fwmark(&kept, listen.fwmark)?;
    Ok((groups, port))
}

impl Group {
    /// Opens the sockets of one address. `shared`: sockets of our own have the port already, and
    /// stay until the new ones are in use.
    fn open(
        address: IpAddr,
        port: u16,
        listen: &Listen,
        shards: u8,
        shared: bool,
    ) -> Result<Group, SocketError> {
        let failed = |port: u16, what: &'static str| {
            move |error: io::Error| match (error.raw_os_error(), &listen.device) {
                (Some(libc::EADDRINUSE), _) => SocketError::Taken { address, port },
                (Some(libc::EADDRNOTAVAIL), _) if what == "bind" => SocketError::NotLocal(address),
                (Some(libc::ENODEV), Some(device)) => SocketError::NoDevice(device.clone()),
                (Some(libc::EPERM), _) if what == "options" => {
                    SocketError::NotPermitted("firewall mark or BindDevice of the UDP sockets")
                }
                _ => SocketError::System {
                    address,
                    port,
                    what,
                    error,
                },
            }
        };
        let share = |socket: &OwnedFd| {
            setsockopt(socket, sockopt::ReusePort, &true)
                .map_err(|error| failed(port, "SO_REUSEPORT")(error.into()))
        };
        // The first is bound alone: with SO_REUSEPORT it would silently join whoever has the port.
        // Set afterwards, the option lets the others in (net/ipv4/udp.c, `udp_reuseport_add_sock`).
        // Where the port is ours, nobody else can have it; the option does not join what has
        // another address or device.
        let first = prepare(address, listen).map_err(failed(port, "options"))?;
        if shared {
            share(&first)?;
        }
        bind_to(&first, address, port).map_err(failed(port, "bind"))?;
        let port = bound_port(&first, address).map_err(failed(port, "name"))?;
        if !shared {
            share(&first)?;
        }
        let mut sockets = vec![first];
        for _ in 0..shards {
            let member = prepare(address, listen).map_err(failed(port, "options"))?;
            share(&member)?;
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

    /// Whether this is the group of the address.
    fn is_at(&self, address: IpAddr, listen: &Listen) -> bool {
        self.info.address == address && self.device == listen.device
    }

    /// Whether, on the same port, this group would be in the way of one at the address
    /// (net/ipv4/udp.c, `udp_lib_lport_inuse`).
    fn overlaps(&self, address: IpAddr, listen: &Listen) -> bool {
        let present = self.info.address;
        let same_devices =
            self.device.is_none() || listen.device.is_none() || self.device == listen.device;
        present.is_ipv4() == address.is_ipv4()
            && (present == address || present.is_unspecified() || address.is_unspecified())
            && same_devices
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
    fn a_port_of_ones_own_can_be_listened_on_otherwise() {
        let every = Listen {
            addresses: vec![Ipv4Addr::UNSPECIFIED.into()],
            ..loopback(0)
        };
        let (groups, port) = open(&every, 2, &Groups::new()).unwrap();
        let one = Listen {
            addresses: vec![Ipv4Addr::LOCALHOST.into()],
            ..loopback(port)
        };
        assert!(open(&one, 2, &Groups::new()).is_err(), "somebody else's");
        let (narrow, _) = open(&one, 2, &groups).unwrap();
        drop(groups);
        let sockets: Vec<UdpSocket> = narrow[0]
            .sockets
            .iter()
            .map(|fd| UdpSocket::from(fd.try_clone().unwrap()))
            .collect();
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        sender.send_to(&[1; 148], ("127.0.0.1", port)).unwrap();
        assert_eq!(receiver(&sockets), 2);
        let (wide, _) = open(&Listen { port, ..every }, 2, &narrow).unwrap();
        assert!(wide[0].info.address.is_unspecified());
        if nix::unistd::geteuid().is_root() {
            let bound = Listen {
                port,
                addresses: vec![Ipv4Addr::UNSPECIFIED.into()],
                device: Some("lo".to_owned()),
                fwmark: 0,
            };
            open(&bound, 2, &wide).unwrap();
        }
    }

    #[test]
    fn a_failure_leaves_the_marks_as_they_are() {
        if !nix::unistd::geteuid().is_root() {
            return;
        }
        let one = Listen {
            addresses: vec![Ipv4Addr::LOCALHOST.into()],
            ..loopback(0)
        };
        let (groups, port) = open(&one, 2, &Groups::new()).unwrap();
        let more = Listen {
            addresses: vec![Ipv4Addr::LOCALHOST.into(), "192.0.2.77".parse().unwrap()],
            fwmark: 7,
            ..loopback(port)
        };
        let error = open(&more, 2, &groups).unwrap_err();
        assert!(
            error.to_string().starts_with("ListenAddress 192.0.2.77"),
            "{error}"
        );
        let mark = nix::sys::socket::getsockopt(&groups[0].sockets[0], sockopt::Mark).unwrap();
        assert_eq!(mark, 0);
        let nowhere = Listen {
            device: Some("nosuch0".to_owned()),
            ..loopback(0)
        };
        let error = open(&nowhere, 2, &Groups::new()).unwrap_err();
        assert!(
            error.to_string().starts_with("BindDevice nosuch0"),
            "{error}"
        );
    }

    #[test]
    fn a_port_that_was_just_left_is_taken_back() {
        let (first, port) = open(&loopback(0), 2, &Groups::new()).unwrap();
        let (second, other) = open(&loopback(0), 2, &first).unwrap();
        assert_ne!(port, other);
        let all: Groups = second.iter().chain(&first).cloned().collect();
        let (back, same) = open(&loopback(port), 2, &all).unwrap();
        assert_eq!(same, port);
        assert!(
            back.iter()
                .zip(&first)
                .all(|(new, old)| Arc::ptr_eq(new, old))
        );
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
