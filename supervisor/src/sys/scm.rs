//! Messages with descriptors over `SOCK_SEQPACKET` pairs.

use nix::sys::socket::{
    AddressFamily, ControlMessage, ControlMessageOwned, MsgFlags, SockFlag, SockType, recvmsg,
    sendmsg, socketpair,
};
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

/// The kernel's `SCM_MAX_FD`.
const MAX_FDS: usize = 253;

/// A datagram and the descriptors that came with it.
#[derive(Debug)]
pub(crate) struct Received {
    /// The datagram.
    pub(crate) bytes: Vec<u8>,
    /// Its descriptors, in order.
    pub(crate) fds: Vec<OwnedFd>,
}

/// One end of a `SOCK_SEQPACKET` pair.
#[derive(Debug)]
pub(crate) struct Packets(OwnedFd);

impl Packets {
    /// Both ends of a new pair, close-on-exec, blocking.
    pub(crate) fn pair() -> io::Result<(Packets, Packets)> {
        let (one, other) = socketpair(
            AddressFamily::Unix,
            SockType::SeqPacket,
            None,
            SockFlag::SOCK_CLOEXEC,
        )?;
        Ok((Packets(one), Packets(other)))
    }

    /// Takes a descriptor that is such an end.
    pub(crate) fn from_fd(fd: OwnedFd) -> Packets {
        Packets(fd)
    }

    /// Makes sends and receives return `WouldBlock` instead of waiting.
    pub(crate) fn set_nonblocking(&self) -> io::Result<()> {
        super::set_nonblocking(self.0.as_fd())
    }

    /// Sends one datagram with these descriptors.
    pub(crate) fn send(&self, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        send(self.0.as_fd(), bytes, fds).map(drop)
    }

    /// Receives one datagram of at most `limit` bytes; `None` is end of file.
    ///
    /// A longer one is an error (`InvalidData`); its descriptors are closed.
    pub(crate) fn receive(&self, limit: usize) -> io::Result<Option<Received>> {
        let mut bytes = vec![0_u8; limit];
        let mut space = nix::cmsg_space!([RawFd; MAX_FDS]);
        let (length, fds, flags) = loop {
            let mut parts = [IoSliceMut::new(&mut bytes)];
            let message = match recvmsg::<()>(
                self.0.as_raw_fd(),
                &mut parts,
                Some(&mut space),
                MsgFlags::MSG_CMSG_CLOEXEC,
            ) {
                Ok(message) => message,
                Err(nix::errno::Errno::EINTR) => continue,
                Err(error) => return Err(error.into()),
            };
            let mut fds = Vec::new();
            for control in message.cmsgs()? {
                if let ControlMessageOwned::ScmRights(raw) = control {
                    for fd in raw {
                        // SAFETY: the kernel has just made this descriptor for us; nobody else
                        // knows its number.
                        fds.push(unsafe { OwnedFd::from_raw_fd(fd) });
                    }
                }
            }
            break (message.bytes, fds, message.flags);
        };
        if flags.intersects(MsgFlags::MSG_TRUNC | MsgFlags::MSG_CTRUNC) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!("a message of more than {limit} bytes or {MAX_FDS} descriptors"),
            ));
        }
        if length == 0 && fds.is_empty() {
            return Ok(None);
        }
        bytes.truncate(length);
        Ok(Some(Received { bytes, fds }))
    }
}

/// Sends all these bytes with these descriptors on a stream; one that takes fewer is an error.
pub(crate) fn send_stream(
    stream: BorrowedFd<'_>,
    bytes: &[u8],
    fds: &[BorrowedFd<'_>],
) -> io::Result<()> {
    if send(stream, bytes, fds)? < bytes.len() {
        return Err(io::ErrorKind::WouldBlock.into());
    }
    Ok(())
}

fn send(socket: BorrowedFd<'_>, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<usize> {
    let raw: Vec<RawFd> = fds.iter().map(AsRawFd::as_raw_fd).collect();
    let rights = [ControlMessage::ScmRights(&raw)];
    let control: &[ControlMessage<'_>] = if raw.is_empty() { &[] } else { &rights };
    loop {
        match sendmsg::<()>(
            socket.as_raw_fd(),
            &[IoSlice::new(bytes)],
            control,
            MsgFlags::MSG_NOSIGNAL,
            None,
        ) {
            Err(nix::errno::Errno::EINTR) => {}
            other => return Ok(other?),
        }
    }
}

impl AsFd for Packets {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    #[test]
    fn datagrams_keep_their_bounds_and_descriptors() {
        let (one, other) = Packets::pair().unwrap();
        let (reader, writer) = nix::unistd::pipe().unwrap();
        one.send(b"first", &[writer.as_fd()]).unwrap();
        one.send(b"second", &[]).unwrap();
        drop(writer);
        let first = other.receive(64).unwrap().unwrap();
        assert_eq!(first.bytes, b"first");
        assert_eq!(first.fds.len(), 1);
        let second = other.receive(64).unwrap().unwrap();
        assert_eq!(second.bytes, b"second");
        assert!(second.fds.is_empty());
        nix::unistd::write(&first.fds[0], b"x").unwrap();
        drop(first);
        let mut text = String::new();
        std::fs::File::from(reader)
            .read_to_string(&mut text)
            .unwrap();
        assert_eq!(text, "x");
        drop(one);
        assert!(other.receive(64).unwrap().is_none());
    }

    #[test]
    fn a_datagram_that_is_too_long_is_an_error() {
        let (one, other) = Packets::pair().unwrap();
        one.send(&[7; 65], &[]).unwrap();
        assert_eq!(
            other.receive(64).unwrap_err().kind(),
            io::ErrorKind::InvalidData
        );
        one.send(&[7; 64], &[]).unwrap();
        assert_eq!(other.receive(64).unwrap().unwrap().bytes.len(), 64);
    }

    #[test]
    fn as_many_descriptors_as_the_kernel_takes() {
        let (one, other) = Packets::pair().unwrap();
        let null = std::fs::File::open("/dev/null").unwrap();
        let fds = vec![null.as_fd(); MAX_FDS];
        one.send(b"many", &fds).unwrap();
        assert_eq!(other.receive(16).unwrap().unwrap().fds.len(), MAX_FDS);
    }
}
