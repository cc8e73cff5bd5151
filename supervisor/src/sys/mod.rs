//! The system calls of this crate that need `unsafe`, each behind a safe signature.

#[cfg(feature = "firewall")]
pub(crate) mod nft;
pub(crate) mod scm;

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use std::io;
use std::os::fd::BorrowedFd;

/// Makes reads and writes on this descriptor return `WouldBlock` instead of waiting.
pub(crate) fn set_nonblocking(fd: BorrowedFd<'_>) -> io::Result<()> {
    let flags = OFlag::from_bits_retain(fcntl(fd, FcntlArg::F_GETFL)?);
    fcntl(fd, FcntlArg::F_SETFL(flags | OFlag::O_NONBLOCK))?;
    Ok(())
}
