//! A command that the supervisor runs as root and waits for with a limit of time: a hook,
//! `resolvconf`.

use crate::sys::process;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long a command may take.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

/// A command that runs.
#[derive(Debug)]
pub(crate) struct Job {
    what: String,
    child: Child,
    pidfd: OwnedFd,
    deadline: Instant,
}

/// Why a command did not do its work.
#[derive(Debug, thiserror::Error)]
pub(crate) enum JobError {
    /// It could not be started.
    #[error("{what}: cannot be run: {error}")]
    Start {
        /// The command.
        what: String,
        /// The kernel's answer.
        error: io::Error,
    },
    /// It said no.
    #[error("{what}: failed ({status})")]
    Failed {
        /// The command.
        what: String,
        /// How it ended.
        status: std::process::ExitStatus,
    },
    /// Somebody did not want to wait for it.
    #[error("{what}: cut short by a signal")]
    CutShort {
        /// The command.
        what: String,
    },
    /// It did not end.
    #[error("{what}: ended after {} s without an end", LIMIT.as_secs())]
    TimedOut {
        /// The command.
        what: String,
    },
}

impl Job {
    /// Starts a command; `input` is what it reads.
    pub(crate) fn start(what: String, mut command: Command, input: &str) -> Result<Job, JobError> {
        let failed = |error| JobError::Start {
            what: what.clone(),
            error,
        };
        command.stdin(if input.is_empty() {
            Stdio::null()
        } else {
            Stdio::piped()
        });
        process::own_group(&mut command);
        let mut child = command.spawn().map_err(failed)?;
        if let Some(mut stdin) = child.stdin.take() {
            // Short enough for the pipe's buffer; a command that reads nothing says so itself.
            let _ = stdin.write_all(input.as_bytes());
        }
        let pidfd = process::pidfd(child.id()).map_err(failed)?;
        Ok(Job {
            what,
            child,
            pidfd,
            deadline: Instant::now() + LIMIT,
        })
    }

    /// Its process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// How long to wait for it at most.
    pub(crate) fn remaining(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }

    /// Its outcome, once it ended or its time is over.
    pub(crate) fn outcome(&mut self) -> Option<Result<(), JobError>> {
        let what = || self.what.clone();
        match self.child.try_wait() {
            Ok(Some(status)) if status.success() => Some(Ok(())),
            Ok(Some(status)) => Some(Err(JobError::Failed {
                what: what(),
                status,
            })),
            Ok(None) if self.remaining().is_zero() => {
                self.kill();
                Some(Err(JobError::TimedOut {
                    what: self.what.clone(),
                }))
            }
            Ok(None) => None,
            Err(error) => Some(Err(JobError::Start {
                what: what(),
                error,
            })),
        }
    }

    /// Kills it and all of its process group.
    pub(crate) fn cut_short(&mut self) -> JobError {
        self.kill();
        JobError::CutShort {
            what: self.what.clone(),
        }
    }

    fn kill(&mut self) {
        let _ = killpg(Pid::from_raw(self.child.id() as i32), Signal::SIGKILL);
        let _ = self.child.wait();
    }
}

impl AsFd for Job {
    /// Readable when the command ended.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            self.kill();
        }
    }
}
