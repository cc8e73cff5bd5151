//! A queue of the TUN interface: a frame a read and a write.
//!
//! Called by `path`; it never looks into a frame. The queue was opened with `IFF_VNET_HDR`, so a
//! frame is a header of [`VNET_HEADER`] bytes, which says what is left to do, and a packet or a
//! super-packet; `offload` understands both.

use nix::errno::Errno;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

pub(crate) use crate::offload::vnet::VNET_HEADER;

/// The longest inner packet: what the 16-bit length field of IPv4 can say.
pub(crate) const GREATEST_PACKET: usize = 65_535;

/// Turns of one write that the kernel had no room for.
const WRITE_ATTEMPTS: usize = 3;

/// One queue.
pub(crate) struct Queue {
    fd: OwnedFd,
}

/// What a read gave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Read {
    /// A frame of this length, its header included.
    Frame(usize),
    /// Nothing waits.
    Empty,
    /// Less than a header.
    Short,
}

/// Why a read or write failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TunError {
    /// The interface was deleted.
    Gone,
    /// The interface is down.
    Down,
    /// There is no room just now.
    Full,
    /// The kernel refused this one.
    Refused(Errno),
}

impl Queue {
    pub(crate) fn new(fd: OwnedFd) -> Queue {
        Queue { fd }
    }

    /// Reads one frame.
    pub(crate) fn read(&self, buffer: &mut [u8]) -> Result<Read, TunError> {
        loop {
            match nix::unistd::read(&self.fd, buffer) {
                Ok(length) if length > VNET_HEADER => return Ok(Read::Frame(length)),
                // End of file: the other end of a test's socket pair, and how a queue whose
                // device is going away can end.
                Ok(0) => return Err(TunError::Gone),
                Ok(_) => return Ok(Read::Short),
                Err(Errno::EAGAIN) => return Ok(Read::Empty),
                Err(Errno::EINTR) => {}
                Err(error) => return Err(classify(error)),
            }
        }
    }

    /// Writes `frame`: a header of zeros, then one packet.
    pub(crate) fn write(&self, frame: &[u8]) -> Result<(), TunError> {
        let mut attempts = 0;
        loop {
            match nix::unistd::write(&self.fd, frame) {
                Ok(_) => return Ok(()),
                Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN) if attempts + 1 < WRITE_ATTEMPTS => attempts += 1,
                Err(error) => return Err(classify(error)),
            }
        }
    }
}

impl AsFd for Queue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// drivers/net/tun.c: EBADFD when the queue has no device any more, EIO while the device is down
/// (or, on a read, is being unregistered: its queue reports EPOLLERR then).
fn classify(error: Errno) -> TunError {
    match error {
        Errno::EBADFD | Errno::ECONNRESET | Errno::EPIPE => TunError::Gone,
        Errno::EIO => TunError::Down,
        Errno::EAGAIN | Errno::ENOBUFS => TunError::Full,
        other => TunError::Refused(other),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};

    /// A queue and the far end of the socket pair that stands in for the kernel.
    pub(crate) fn queue() -> (Queue, OwnedFd) {
        let (near, far) = socketpair(
            AddressFamily::Unix,
            SockType::SeqPacket,
            None,
            SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK,
        )
        .unwrap();
        (Queue::new(near), far)
    }

    #[test]
    fn a_frame_is_read_and_what_is_none_is_told() {
        let (queue, far) = queue();
        let mut buffer = [0; 100];
        assert_eq!(queue.read(&mut buffer), Ok(Read::Empty));
        nix::unistd::write(&far, &[0; VNET_HEADER + 20]).unwrap();
        assert_eq!(queue.read(&mut buffer), Ok(Read::Frame(VNET_HEADER + 20)));
        nix::unistd::write(&far, &[0; 4]).unwrap();
        assert_eq!(queue.read(&mut buffer), Ok(Read::Short));
    }

    #[test]
    fn a_closed_end_is_gone() {
        let (queue, far) = queue();
        drop(far);
        assert_eq!(queue.read(&mut [0; 100]), Err(TunError::Gone));
        assert_eq!(queue.write(&[0; 30]), Err(TunError::Gone));
    }
}
