//! Meta's own UDP sockets, the last of each group: where handshakes arrive and leave.

use super::source::{Datagram, Source};
use nix::errno::Errno;
use nix::libc;
use nix::sys::socket::{
    ControlMessage, ControlMessageOwned, MsgFlags, MultiHeaders, SockaddrStorage, recvmmsg,
    recvmsg, sendmsg,
};
use ringway_shm::messages::PacketHeader;
use ringway_worker::control::GroupInfo;
use std::io::{IoSlice, IoSliceMut};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// Datagrams that one system call takes.
pub(crate) const BATCH: usize = 32;
/// The greatest datagram, and a little more: buffers a power of two apart would share cache sets.
const STRIDE: usize = 65_536 + 192;

/// One socket and its headers.
#[derive(Debug)]
pub(crate) struct Socket {
    fd: OwnedFd,
    info: GroupInfo,
    headers: MultiHeaders<SockaddrStorage>,
}

/// What became of a datagram that was to leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sent {
    /// It left.
    Yes,
    /// It left, but not from the address that was asked for: that is no longer ours.
    WithoutLocal,
    /// It did not leave.
    No(Errno),
}

impl Socket {
    /// Takes the socket of a group.
    pub(crate) fn new(fd: OwnedFd, info: GroupInfo) -> Self {
        Self {
            fd,
            info,
            headers: headers(),
        }
    }

    /// Whether it is an IPv6 one.
    pub(crate) fn is_v6(&self) -> bool {
        self.info.family_v6
    }

    /// The port it is bound to.
    pub(crate) fn port(&self) -> u16 {
        self.info.port
    }

    /// Takes one batch and gives each datagram to `take`, or `None` for one that was cut. Returns
    /// how many there were; fewer than [`BATCH`] means that no more wait.
    pub(crate) fn receive(
        &mut self,
        group: u8,
        buffers: &mut Buffers,
        mut take: impl FnMut(Option<&[u8]>, Source, &PacketHeader),
    ) -> usize {
        let mut slices: [[IoSliceMut<'_>; 1]; BATCH] = {
            let mut parts = buffers.bytes.chunks_exact_mut(STRIDE);
            std::array::from_fn(|_| [IoSliceMut::new(parts.next().unwrap_or_default())])
        };
        let flags = MsgFlags::MSG_DONTWAIT;
        let mut damaged = false;
        // An error is one that a former datagram met (ICMP): the next call gives what waits.
        let Ok(messages) = recvmmsg(
            self.fd.as_raw_fd(),
            &mut self.headers,
            slices.iter_mut(),
            flags,
            None,
        ) else {
            return 0;
        };
        let mut count = 0;
        for message in messages {
            count += 1;
            let Some(remote) = message.address.as_ref().and_then(socket_address) else {
                continue;
            };
            let mut source = Source {
                remote,
                local: None,
                ifindex: 0,
            };
            let mut ecn = 0;
            if let Ok(controls) = message.cmsgs() {
                controls.for_each(|control| note(&control, &mut source, &mut ecn));
            }
            damaged |= source.local.is_none();
            let header = PacketHeader {
                remote,
                local: source.local,
                ifindex: source.ifindex,
                shard: 0,
                group,
                ecn,
                inner: false,
            };
            let whole = !message.flags.contains(MsgFlags::MSG_TRUNC);
            take(
                whole.then(|| message.iovs().next().unwrap_or_default()),
                source,
                &header,
            );
        }
        if damaged {
            // A datagram from before the socket's options were set leaves headers without room
            // for control messages.
            self.headers = headers();
        }
        count
    }

    /// Takes the errors that wait beside the datagrams; as long as one does, the socket is ready.
    pub(crate) fn drain_errors(&self) {
        let mut byte = [0; 1];
        for _ in 0..1024 {
            let mut parts = [IoSliceMut::new(&mut byte)];
            let flags = MsgFlags::MSG_ERRQUEUE | MsgFlags::MSG_DONTWAIT;
            if recvmsg::<SockaddrStorage>(self.fd.as_raw_fd(), &mut parts, None, flags).is_err() {
                return;
            }
        }
    }

    fn send(&self, datagram: &Datagram) -> Sent {
        match self.send_from(datagram, datagram.to.local, datagram.to.ifindex) {
            Ok(()) => Sent::Yes,
            Err(Errno::EAGAIN) => Sent::No(Errno::EAGAIN),
            // Either an error that a former datagram met, which is told only once, or an address
            // or a device that is gone.
            Err(_) => match self.send_from(datagram, datagram.to.local, datagram.to.ifindex) {
                Ok(()) => Sent::Yes,
                Err(error) if datagram.to.local.is_none() => Sent::No(error),
                Err(_) => match self.send_from(datagram, None, 0) {
                    Ok(()) => Sent::WithoutLocal,
                    Err(error) => Sent::No(error),
                },
            },
        }
    }

    fn send_from(
        &self,
        datagram: &Datagram,
        local: Option<IpAddr>,
        ifindex: u32,
    ) -> Result<(), Errno> {
        let (v4, v6);
        let (tos, class);
        let mut controls = Vec::with_capacity(2);
        match local {
            Some(IpAddr::V4(local)) if !self.info.family_v6 => {
                v4 = libc::in_pktinfo {
                    ipi_ifindex: ifindex as i32,
                    ipi_spec_dst: libc::in_addr {
                        s_addr: u32::from(local).to_be(),
                    },
                    ipi_addr: libc::in_addr { s_addr: 0 },
                };
                controls.push(ControlMessage::Ipv4PacketInfo(&v4));
            }
            Some(IpAddr::V6(local)) if self.info.family_v6 => {
                v6 = libc::in6_pktinfo {
                    ipi6_addr: libc::in6_addr {
                        s6_addr: local.octets(),
                    },
                    ipi6_ifindex: ifindex,
                };
                controls.push(ControlMessage::Ipv6PacketInfo(&v6));
            }
            _ => {}
        }
        if self.info.family_v6 {
            class = i32::from(datagram.tos);
            controls.push(ControlMessage::Ipv6TClass(&class));
        } else {
            tos = datagram.tos;
            controls.push(ControlMessage::Ipv4Tos(&tos));
        }
        let parts = [IoSlice::new(datagram.bytes())];
        let to = SockaddrStorage::from(datagram.to.remote);
        sendmsg(
            self.fd.as_raw_fd(),
            &parts,
            &controls,
            MsgFlags::MSG_DONTWAIT,
            Some(&to),
        )
        .map(drop)
    }

    /// How well this socket suits: the greater the better, `None` not at all.
    fn suits(&self, datagram: &Datagram) -> Option<u8> {
        if datagram.to.remote.is_ipv6() != self.info.family_v6 {
            return None;
        }
        Some(match datagram.to.local {
            Some(local) if local == self.info.address => 2,
            _ if self.info.address.is_unspecified() => 1,
            _ => 0,
        })
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Sends a datagram by the socket that suits it best.
pub(crate) fn send(sockets: &[Socket], datagram: &Datagram) -> Sent {
    let best = sockets
        .iter()
        .filter_map(|socket| Some((socket.suits(datagram)?, socket)))
        .max_by_key(|(suits, _)| *suits);
    match best {
        Some((_, socket)) => socket.send(datagram),
        None => Sent::No(Errno::EAFNOSUPPORT),
    }
}

/// The memory that a batch is received into. Untouched pages of it cost nothing.
#[derive(Debug)]
pub(crate) struct Buffers {
    bytes: Vec<u8>,
}

impl Buffers {
    /// Room for a batch.
    pub(crate) fn new() -> Self {
        Self {
            bytes: vec![0; STRIDE * BATCH],
        }
    }
}

fn headers() -> MultiHeaders<SockaddrStorage> {
    let space = nix::cmsg_space!(libc::in6_pktinfo, libc::in_pktinfo, i32, i32);
    MultiHeaders::preallocate(BATCH, Some(space))
}

fn note(control: &ControlMessageOwned, source: &mut Source, ecn: &mut u8) {
    match control {
        ControlMessageOwned::Ipv4PacketInfo(info) => {
            // `ipi_addr` is the header's destination; `ipi_spec_dst` also serves as a source.
            source.local = Some(Ipv4Addr::from(u32::from_be(info.ipi_spec_dst.s_addr)).into());
            source.ifindex = info.ipi_ifindex as u32;
        }
        ControlMessageOwned::Ipv6PacketInfo(info) => {
            source.local = Some(Ipv6Addr::from(info.ipi6_addr.s6_addr).into());
            source.ifindex = info.ipi6_ifindex;
        }
        ControlMessageOwned::Ipv4Tos(tos) => *ecn = tos & 3,
        ControlMessageOwned::Ipv6TClass(class) => *ecn = (class & 3) as u8,
        _ => {}
    }
}

fn socket_address(storage: &SockaddrStorage) -> Option<SocketAddr> {
    if let Some(v4) = storage.as_sockaddr_in() {
        return Some(SocketAddrV4::from(*v4).into());
    }
    storage
        .as_sockaddr_in6()
        .map(|v6| SocketAddrV6::from(*v6).into())
}
