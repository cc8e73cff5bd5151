//! Receiving bytes and the descriptors beside them.

use std::io::{self, IoSliceMut};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;

use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg};

/// More than any answer carries.
const MOST_FDS: usize = 16;

/// Reads into `buffer` and appends what descriptors came along; 0 is end of file.
///
/// recvmsg(2): "If SCM_RIGHTS do not fit, the excess descriptors are closed and MSG_CTRUNC is set."
pub(crate) fn receive(
    socket: &UnixStream,
    buffer: &mut [u8],
    fds: &mut Vec<OwnedFd>,
) -> io::Result<usize> {
    let mut space = nix::cmsg_space!([RawFd; MOST_FDS]);
    let mut parts = [IoSliceMut::new(buffer)];
    let flags = MsgFlags::MSG_CMSG_CLOEXEC;
    let message = recvmsg::<()>(socket.as_raw_fd(), &mut parts, Some(&mut space), flags)?;
    for control in message.cmsgs()? {
        if let ControlMessageOwned::ScmRights(raw) = control {
            for fd in raw {
                // SAFETY: the kernel has just made this descriptor for us; nobody else knows its number.
                fds.push(unsafe { OwnedFd::from_raw_fd(fd) });
            }
        }
    }
    if message.flags.contains(MsgFlags::MSG_CTRUNC) {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "descriptors were cut off",
        ));
    }
    Ok(message.bytes)
}

#[cfg(test)]
mod tests {
    use std::io::{IoSlice, Read, Write};

    use nix::sys::socket::{ControlMessage, sendmsg};

    use super::*;

    #[test]
    fn descriptors_arrive_with_their_bytes() {
        let (one, other) = UnixStream::pair().unwrap();
        let (reader, writer) = nix::unistd::pipe().unwrap();
        let mut reader = std::fs::File::from(reader);
        let raw = [writer.as_raw_fd()];
        sendmsg::<()>(
            one.as_raw_fd(),
            &[IoSlice::new(b"hello")],
            &[ControlMessage::ScmRights(&raw)],
            MsgFlags::empty(),
            None,
        )
        .unwrap();
        drop(writer);
        let mut buffer = [0; 16];
        let mut fds = Vec::new();
        assert_eq!(receive(&other, &mut buffer, &mut fds).unwrap(), 5);
        assert_eq!(&buffer[..5], b"hello");
        let mut file = std::fs::File::from(fds.pop().unwrap());
        file.write_all(b"x").unwrap();
        drop(file);
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        assert_eq!(text, "x");
        drop(one);
        assert_eq!(receive(&other, &mut buffer, &mut fds).unwrap(), 0);
    }
}
