//! Starting the processes of the gateway, and what is known of each.

use crate::channel::{self, ChannelError, Packets};
use crate::cli::{Cli, RoleName};
use crate::fds;
use crate::outbox::Outbox;
use crate::sys::process;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use ringway_shm::process::Role;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::{self as std_process, Command, ExitStatus, Stdio};

/// A process of the gateway.
#[derive(Debug)]
pub(crate) struct Child {
    /// Who it is.
    pub(crate) role: Role,
    /// It said that it runs.
    pub(crate) ready: bool,
    /// The generation of sockets that it uses.
    pub(crate) generation: u32,
    /// It was reported as stuck.
    pub(crate) stuck: bool,
    process: std_process::Child,
    pidfd: OwnedFd,
    control: Outbox,
}

/// What all processes of a gateway are started with.
#[derive(Debug)]
pub(crate) struct Spawner<'a> {
    /// The command line that the supervisor was started with.
    pub(crate) cli: &'a Cli,
    /// How many workers.
    pub(crate) workers: u8,
    /// How many shards.
    pub(crate) shards: u8,
    /// Where children write their messages; `None`: where the supervisor does.
    pub(crate) log: Option<&'a File>,
}

impl Spawner<'_> {
    /// Starts a process with `fds` at their numbers, and its channel at [`fds::CONTROL`].
    pub(crate) fn spawn(
        &self,
        role: Role,
        extra: &[String],
        fds: &[(RawFd, BorrowedFd<'_>)],
    ) -> io::Result<Child> {
        let (control, theirs) = Packets::pair()?;
        let control = Outbox::new(control)?;
        let mut command = Command::new("/proc/self/exe");
        command
            .arg0("ringwayd")
            .args(["--role", role_name(role)])
            .args(["--workers", &self.workers.to_string()])
            .args(["--shards", &self.shards.to_string()])
            .args(["--log-level", &self.cli.log_level.to_string()])
            .args(["--log-format", self.cli.log_format.as_str()])
            .args(extra)
            .arg(self.cli.name())
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        if let Some(log) = self.log {
            command.stderr(log.try_clone()?);
        }
        let mut all = vec![(fds::CONTROL, theirs.as_fd())];
        all.extend_from_slice(fds);
        process::hand_over(&mut command, &all);
        let mut child = command.spawn()?;
        let pidfd = process::pidfd(child.id()).inspect_err(|_| {
            let _ = child.kill();
            let _ = child.wait();
        })?;
        tracing::debug!(role = describe(role), pid = child.id(), "started");
        Ok(Child {
            role,
            ready: false,
            generation: 0,
            stuck: false,
            process: child,
            pidfd,
            control,
        })
    }
}

impl Child {
    /// Its process id.
    pub(crate) fn pid(&self) -> u32 {
        self.process.id()
    }

    /// What a person calls it.
    pub(crate) fn name(&self) -> String {
        describe(self.role)
    }

    /// Sends it a message, now or when there is room.
    pub(crate) fn send<T: Serialize>(
        &mut self,
        message: &T,
        fds: &[BorrowedFd<'_>],
    ) -> Result<(), ChannelError> {
        self.control.send(message, fds)
    }

    /// The next message from it, if one waits; end of file is none.
    pub(crate) fn receive<T: DeserializeOwned>(&self) -> Result<Option<T>, ChannelError> {
        match channel::receive(self.control.packets()) {
            Ok(message) => Ok(message.map(|(message, _)| message)),
            Err(ChannelError::Io(error)) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            // It ended with messages of ours unread; its end is told by the pidfd.
            Err(ChannelError::Io(error)) if error.kind() == io::ErrorKind::ConnectionReset => {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// How it ended, once it has.
    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        self.process.try_wait().ok().flatten()
    }

    /// Ends it at once.
    pub(crate) fn kill(&self) {
        // Not reaped yet, so the number is still its own.
        let _ = kill(Pid::from_raw(self.pid() as i32), Signal::SIGKILL);
    }

    /// Readable when it ended.
    pub(crate) fn end(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }

    /// Sends what had to wait.
    pub(crate) fn flush(&mut self) -> Result<(), ChannelError> {
        self.control.flush()
    }

    /// Whether a message waits for room in the channel.
    pub(crate) fn waits(&self) -> bool {
        self.control.waits()
    }

    /// Readable when it said something.
    pub(crate) fn channel(&self) -> BorrowedFd<'_> {
        self.control.as_fd()
    }
}

/// What a person calls a process.
pub(crate) fn describe(role: Role) -> String {
    match role {
        Role::Supervisor => "supervisor".to_owned(),
        Role::Meta => "meta".to_owned(),
        Role::Helper => "helper".to_owned(),
        Role::Worker(slot) => format!("worker {}", slot.0),
    }
}

fn role_name(role: Role) -> &'static str {
    match role {
        Role::Meta => RoleName::Meta,
        Role::Helper | Role::Supervisor => RoleName::Helper,
        Role::Worker(_) => RoleName::Worker,
    }
    .as_str()
}
