//! Signals and the ends of children, as descriptors for the loop.

use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

/// The signals that the supervisor handles.
#[derive(Debug)]
pub(crate) struct Signals(SignalFd);

/// What a signal asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Asked {
    /// SIGTERM or SIGINT: stop.
    Stop(Signal),
    /// SIGHUP: read the configuration again.
    Reload,
}

impl Signals {
    /// Blocks the signals and takes them as readable events; children are started with none
    /// blocked ([`crate::sys::process::hand_over`]).
    pub(crate) fn take() -> io::Result<Signals> {
        let mut set = SigSet::empty();
        for signal in [
            Signal::SIGTERM,
            Signal::SIGINT,
            Signal::SIGHUP,
            Signal::SIGCHLD,
        ] {
            set.add(signal);
        }
        set.thread_block()?;
        Ok(Signals(SignalFd::with_flags(
            &set,
            SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK,
        )?))
    }

    /// The next signal that asks for something.
    ///
    /// SIGCHLD only wakes the loop: ends are read from the children's pidfds.
    pub(crate) fn next(&mut self) -> Option<Asked> {
        while let Ok(Some(info)) = self.0.read_signal() {
            match Signal::try_from(info.ssi_signo as i32) {
                Ok(signal @ (Signal::SIGTERM | Signal::SIGINT)) => {
                    return Some(Asked::Stop(signal));
                }
                Ok(Signal::SIGHUP) => return Some(Asked::Reload),
                _ => {}
            }
        }
        None
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
