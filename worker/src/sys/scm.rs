//! File descriptors beside a message (unix(7), SCM_RIGHTS).

use nix::sys::socket::{ControlMessage, ControlMessageOwned, MsgFlags, UnixAddr, recvmsg, sendmsg};
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

/// The kernel's greatest number of descriptors a message (`SCM_MAX_FD`).
const GREATEST: usize = 253;

/// Sends one message with descriptors.
pub(crate) fn send(fd: BorrowedFd<'_>, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    let raw: Vec<RawFd> = fds.iter().map(AsRawFd::as_raw_fd).collect();
    let rights = [ControlMessage::ScmRights(&raw)];
    let control: &[ControlMessage<'_>] = if raw.is_empty() { &[] } else { &rights };
    let sent = sendmsg::<UnixAddr>(
        fd.as_raw_fd(),
        &[IoSlice::new(bytes)],
        control,
        MsgFlags::MSG_NOSIGNAL,
        None,
    )?;
    if sent == bytes.len() {
        Ok(())
    } else {
        Err(io::Error::from(io::ErrorKind::WriteZero))
    }
}

/// Receives one message into `buffer`; returns its length (0: the other end is closed) and the
/// descriptors that came with it, close-on-exec.
pub(crate) fn receive(fd: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>)> {
    let mut control = nix::cmsg_space!([RawFd; GREATEST]);
    let mut vectors = [IoSliceMut::new(buffer)];
    let message = recvmsg::<UnixAddr>(
        fd.as_raw_fd(),
        &mut vectors,
        Some(&mut control),
        MsgFlags::MSG_CMSG_CLOEXEC | MsgFlags::MSG_DONTWAIT,
    )?;
    let mut fds = Vec::new();
    for control in message.cmsgs()? {
        if let ControlMessageOwned::ScmRights(raw) = control {
            // SAFETY: recvmsg installed these descriptors in this process just now; nobody else
            // knows them.
            fds.extend(
                raw.into_iter()
                    .map(|fd| unsafe { OwnedFd::from_raw_fd(fd) }),
            );
        }
    }
    let cut = message
        .flags
        .intersects(MsgFlags::MSG_TRUNC | MsgFlags::MSG_CTRUNC);
    if cut {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "message or descriptors were cut off",
        ));
    }
    Ok((message.bytes, fds))
}
