//! Into the background: the command returns when the gateway is ready, or with what stopped it.

use crate::sys::process::{Side, fork};
use crate::watch::{Asked, Signals};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::ExitCode;

/// What this process goes on as.
pub(crate) enum Detached {
    /// The command that was called: it ends with this code.
    Caller(ExitCode),
    /// The daemon: it tells the caller how the start went.
    Daemon(Report),
}

/// Where the outcome of the start is told.
///
/// The daemon's standard error is the caller's until [`Report::ready`], so that messages need no
/// way of their own; the pipe carries the exit code.
#[derive(Debug)]
pub(crate) struct Report(Option<OwnedFd>);

/// Forks; the caller's side waits for the report.
pub(crate) fn detach(signals: &mut Signals) -> io::Result<Detached> {
    let (reader, writer) = nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC)?;
    match fork()? {
        Side::Parent(daemon) => {
            drop(writer);
            pass_on_stops(signals, reader.as_fd(), daemon);
            let mut code = [1];
            if File::from(reader).read_exact(&mut code).is_err() {
                eprintln!(
                    "ringwayd: the daemon died before it was ready: try again with -f to see more"
                );
            }
            Ok(Detached::Caller(ExitCode::from(code[0])))
        }
        Side::Child => {
            drop(reader);
            nix::unistd::setsid()?;
            nix::unistd::chdir("/")?;
            Ok(Detached::Daemon(Report(Some(writer))))
        }
    }
}

/// Waits for the report, and has the daemon stop if this process is asked to: a terminal's Ctrl-C
/// reaches only the caller.
fn pass_on_stops(signals: &mut Signals, report: BorrowedFd<'_>, daemon: Pid) {
    loop {
        let mut fds = [report, signals.as_fd()].map(|fd| PollFd::new(fd, PollFlags::POLLIN));
        let _ = poll(&mut fds, PollTimeout::NONE);
        if fds[0].any().unwrap_or(true) {
            return;
        }
        while let Some(asked) = signals.next() {
            if let Asked::Stop(_) = asked {
                // It may have ended already: then the report has too.
                let _ = kill(daemon, Signal::SIGTERM);
            }
        }
    }
}

impl Report {
    /// In the foreground there is nobody to tell.
    pub(crate) fn none() -> Report {
        Report(None)
    }

    /// Whether this process is a daemon in its start.
    pub(crate) fn is_expected(&self) -> bool {
        self.0.is_some()
    }

    /// The gateway is ready: the caller returns, and what is printed goes to `log` from now on.
    pub(crate) fn ready(&mut self, log: Option<&File>) -> io::Result<()> {
        let Some(pipe) = self.0.take() else {
            return Ok(());
        };
        let null = File::options().read(true).write(true).open("/dev/null")?;
        nix::unistd::dup2_stdin(&null)?;
        nix::unistd::dup2_stdout(&null)?;
        nix::unistd::dup2_stderr(log.map_or(null.as_fd(), AsFd::as_fd))?;
        // A caller that was killed meanwhile is no reason to end.
        let _ = File::from(pipe).write_all(&[0]);
        Ok(())
    }

    /// The start failed, which has been printed: the caller returns this code.
    pub(crate) fn failed(&mut self, code: u8) {
        if let Some(pipe) = self.0.take() {
            let _ = File::from(pipe).write_all(&[code]);
        }
    }
}
