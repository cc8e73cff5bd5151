//! A doorbell: an eventfd that wakes a process which said that it sleeps.

use nix::sys::eventfd::{EfdFlags, EventFd};
use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

/// One process's doorbell. Others ring it; its owner has it in its event loop and clears it when awake.
#[derive(Debug)]
pub struct Doorbell {
    fd: OwnedFd,
}

impl Doorbell {
    /// Makes the descriptor of a new doorbell: non-blocking, close-on-exec.
    pub fn create() -> io::Result<OwnedFd> {
        let event =
            EventFd::from_value_and_flags(0, EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC)?;
        Ok(event.into())
    }

    /// Takes a descriptor that was made by [`create`](Self::create), perhaps in another process.
    pub fn from_fd(fd: OwnedFd) -> Doorbell {
        Doorbell { fd }
    }

    /// Wakes the owner. A doorbell that already rings (EAGAIN) is as good; nothing else can be done about an error.
    pub fn ring(&self) {
        let _ = nix::unistd::write(&self.fd, &1_u64.to_ne_bytes());
    }

    /// Stops the ringing. Only for the owner; whether it rang.
    pub fn clear(&self) -> bool {
        let mut value = [0; 8];
        nix::unistd::read(&self.fd, &mut value).is_ok()
    }
}

impl AsFd for Doorbell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
