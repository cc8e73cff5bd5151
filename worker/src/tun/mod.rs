//! A queue of the TUN interface: inner packets, one a read and one a write.
//!
//! Called by `path`; it never looks into a packet. The queue was opened with `IFF_VNET_HDR`, so a
//! header of [`VNET_HEADER`] bytes stands before each packet in both directions. Offloads are off
//! until they have a room of their own, so that header is zero: no segmentation, no checksum left
//! to do.

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
    /// A packet of this length.
    Packet(usize),
    /// Nothing waits.
    Empty,
    /// A packet with work left to do that was not asked for.
    Unfinished,
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

    /// Reads one packet into `buffer`, which begins with room for the header.
    pub(crate) fn read(&self, buffer: &mut [u8]) -> Result<Read, TunError> {
        loop {
            match nix::unistd::read(&self.fd, buffer) {
                Ok(length) if length > VNET_HEADER => {
                    // Bit 0 of flags: a checksum is left to do. gso_type 0: not a super-packet.
                    let unfinished = buffer[0] & 1 != 0 || buffer[1] != 0;
                    return Ok(if unfinished {
                        Read::Unfinished
                    } else {
                        Read::Packet(length - VNET_HEADER)
                    });
                }
                // End of file: the other end of a test's socket pair, and how a queue whose
                // device is going away can end.
                Ok(0) => return Err(TunError::Gone),
                Ok(_) => return Ok(Read::Unfinished),
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
    fn a_packet_loses_its_header_and_work_left_is_told() {
        let (queue, far) = queue();
        let mut buffer = [0; 100];
        assert_eq!(queue.read(&mut buffer), Ok(Read::Empty));
        nix::unistd::write(&far, &[0; VNET_HEADER + 20]).unwrap();
        assert_eq!(queue.read(&mut buffer), Ok(Read::Packet(20)));
        let mut frame = [0; VNET_HEADER + 20];
        frame[1] = 1;
        nix::unistd::write(&far, &frame).unwrap();
        assert_eq!(queue.read(&mut buffer), Ok(Read::Unfinished));
        nix::unistd::write(&far, &[0; 4]).unwrap();
        assert_eq!(queue.read(&mut buffer), Ok(Read::Unfinished));
    }

    #[test]
    fn a_closed_end_is_gone() {
        let (queue, far) = queue();
        drop(far);
        assert_eq!(queue.read(&mut [0; 100]), Err(TunError::Gone));
        assert_eq!(queue.write(&[0; 30]), Err(TunError::Gone));
    }
}
