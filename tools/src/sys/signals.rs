//! SIGINT, SIGTERM and SIGHUP as a flag, so that a command cleans up before it ends.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};

static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// From now on the three signals only set the flag that [`interrupted`] reads; a sleeping call returns early.
pub(crate) fn catch() -> io::Result<()> {
    let action = SigAction::new(SigHandler::Handler(note), SaFlags::empty(), SigSet::empty());
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
        // SAFETY: the handler only stores to an atomic, which is async-signal-safe.
        unsafe { sigaction(signal, &action) }?;
    }
    Ok(())
}

/// Whether one of the signals came since [`catch`].
pub(crate) fn interrupted() -> bool {
    INTERRUPTED.load(Ordering::Relaxed)
}

/// Gives SIGPIPE its default back, so that `ringway workers --watch | head -1` ends quietly.
pub(crate) fn end_on_broken_pipe() {
    // SAFETY: SIG_DFL runs no code of ours.
    let _ = unsafe { nix::sys::signal::signal(Signal::SIGPIPE, SigHandler::SigDfl) };
}

extern "C" fn note(_: libc::c_int) {
    INTERRUPTED.store(true, Ordering::Relaxed);
}
