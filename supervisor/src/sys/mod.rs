//! The system calls of this crate that need `unsafe`, each behind a safe signature.

pub(crate) mod bpf;
#[cfg(feature = "firewall")]
pub(crate) mod nft;
pub(crate) mod process;
pub(crate) mod scm;
pub(crate) mod socket;
pub(crate) mod tun;

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};

/// Makes reads and writes on this descriptor return `WouldBlock` instead of waiting.
pub(crate) fn set_nonblocking(fd: BorrowedFd<'_>) -> io::Result<()> {
    let flags = OFlag::from_bits_retain(fcntl(fd, FcntlArg::F_GETFL)?);
    fcntl(fd, FcntlArg::F_SETFL(flags | OFlag::O_NONBLOCK))?;
    Ok(())
}

/// Occupies every free number below `end`, so that no descriptor opened while the result lives has
/// one of them.
///
/// A child's descriptors can then be put at those numbers with `dup2` in any order, and the pipe
/// by which the standard library reports a failed exec is never overwritten.
pub(crate) fn reserve(end: RawFd) -> io::Result<Vec<OwnedFd>> {
    let mut held: Vec<OwnedFd> = Vec::new();
    loop {
        let fd: OwnedFd = File::open("/dev/null")?.into();
        if fd.as_raw_fd() >= end {
            return Ok(held);
        }
        held.push(fd);
    }
}
