//! Processes: forking into the background, starting a child with descriptors at fixed numbers,
//! noticing its end.

use nix::libc::{self, c_int, c_uint};
use nix::sys::prctl;
use nix::sys::signal::{SigSet, Signal};
use nix::unistd::Pid;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Which side of a fork this is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    /// The process that called, and who the new one is.
    Parent(Pid),
    /// The new one.
    Child,
}

/// Forks; to be called while the process has one thread.
pub(crate) fn fork() -> io::Result<Side> {
    // SAFETY: with one thread no lock can be held by a thread that the child lacks. That there is
    // one thread is so since `main` forks before anything starts another.
    match unsafe { nix::unistd::fork() }? {
        nix::unistd::ForkResult::Parent { child } => Ok(Side::Parent(child)),
        nix::unistd::ForkResult::Child => Ok(Side::Child),
    }
}

/// Closes every descriptor from this number on; to be called before the process has opened any.
pub(crate) fn close_from(first: RawFd) {
    // SAFETY: `main` calls this before it opens anything, so no owner of a descriptor exists.
    let result = unsafe { libc::syscall(libc::SYS_close_range, first as c_uint, c_uint::MAX, 0) };
    if result < 0 {
        tracing::debug!("close_range: {}", io::Error::last_os_error());
    }
}

/// Takes a descriptor that the supervisor put at this number before exec.
///
/// An error when there is none. To be called once a number.
pub(crate) fn inherited(number: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: F_GETFD and F_SETFD take no pointer.
    if unsafe { libc::fcntl(number, libc::F_GETFD) } < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: as above; what it starts (a peer's script) must not inherit it.
    unsafe { libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC) };
    // SAFETY: it is open, and by the caller's promise nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// A descriptor of this process that says when it ended; close-on-exec.
pub(crate) fn pidfd(pid: u32) -> io::Result<OwnedFd> {
    // SAFETY: pidfd_open takes two numbers and returns a new descriptor.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid as libc::pid_t, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just made this descriptor for us.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as c_int) })
}

/// Lets the command find `fds` at these numbers, die with this process, have no signal blocked, and
/// be in a process group of its own, so that a terminal's Ctrl-C reaches the supervisor alone.
///
/// The numbers must be reserved ([`super::reserve`]): no source has one of them.
pub(crate) fn hand_over(command: &mut Command, fds: &[(RawFd, BorrowedFd<'_>)]) {
    let moves: Vec<(RawFd, RawFd)> = fds
        .iter()
        .map(|(number, fd)| (*number, fd.as_raw_fd()))
        .collect();
    let parent = nix::unistd::getpid();
    command.process_group(0);
    // SAFETY: between fork and exec the closure only makes system calls that are
    // async-signal-safe; it allocates nothing and takes no lock.
    unsafe {
        command.pre_exec(move || {
            prctl::set_pdeathsig(Signal::SIGKILL)?;
            if nix::unistd::getppid() != parent {
                // It died before the call above: nobody would ever end this process.
                return Err(io::Error::from_raw_os_error(libc::ESRCH));
            }
            // The mask outlives exec, and here it holds what the supervisor reads from a descriptor.
            SigSet::empty().thread_set_mask()?;
            for (number, source) in &moves {
                // dup2 leaves close-on-exec off.
                if libc::dup2(*source, *number) < 0 {
                    return Err(io::Error::last_os_error());
                }
            }
            Ok(())
        });
    }
}

/// Makes the command lead a process group of its own, die with this process and block no signal.
pub(crate) fn own_group(command: &mut Command) {
    hand_over(command, &[]);
}
