//! What each process does between exec and its loop: takes its descriptors from their numbers.

use crate::channel::Packets;
use crate::cli::{Cli, RoleName};
use crate::meta::{self, MetaFds, MetaSettings};
use crate::sys::process::inherited;
use crate::{fds, helper};
use nix::sys::prctl;
use nix::sys::resource::{Resource, setrlimit};
use ringway_proto::config::{PollMode, WorkersSetting};
use ringway_shm::ids::WorkerSlot;
use ringway_worker::{WorkerFds, WorkerSettings};
use std::ffi::CString;
use std::io;
use std::os::fd::{OwnedFd, RawFd};

/// Why a process could not do its part.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RoleError {
    /// It was not started by the supervisor.
    #[error("descriptor {number}: {error}: this process is started by the supervisor, not by hand")]
    Descriptor {
        /// The missing one.
        number: RawFd,
        /// The kernel's answer.
        error: io::Error,
    },
    /// Meta failed.
    #[error("meta: {0}")]
    Meta(#[from] meta::MetaError),
    /// The helper failed.
    #[error("helper: {0}")]
    Helper(#[from] helper::HelperError),
    /// The worker failed.
    #[error("worker {slot}: {error}")]
    Worker {
        /// Which.
        slot: u8,
        /// Why.
        error: ringway_worker::WorkerError,
    },
}

/// Runs the role to its end.
pub(crate) fn run(role: RoleName, cli: &Cli) -> Result<(), RoleError> {
    name_process(role, cli);
    let workers = match cli.workers {
        Some(WorkersSetting::Count(count)) => count as u8,
        _ => 1,
    };
    let shards = cli.shards.unwrap_or(1);
    match role {
        RoleName::Helper => {
            // Held and never read; close-on-exec, so that no script has it.
            let _control = take(fds::CONTROL)?;
            Ok(helper::run(take(fds::HELPER)?)?)
        }
        RoleName::Meta => {
            no_core_dumps();
            let fds = MetaFds {
                control: Packets::from_fd(take(fds::CONTROL)?),
                state: take(fds::STATE)?,
                keys: take(fds::KEYS)?,
                lanes: take(fds::LANES)?,
                rings: take(fds::RINGS)?,
                uapi: take(fds::UAPI)?,
                helper: take(fds::HELPER)?,
                doorbells: take_many(fds::DOORBELLS, fds::doorbells(workers))?,
            };
            Ok(meta::run(fds, MetaSettings { workers, shards })?)
        }
        RoleName::Worker => {
            no_core_dumps();
            let fds = WorkerFds {
                control: take(fds::CONTROL)?,
                state: take(fds::STATE)?,
                keys: take(fds::KEYS)?,
                lanes: take(fds::LANES)?,
                rings: take(fds::RINGS)?,
                tun: take_many(fds::tun(workers), usize::from(shards))?,
                doorbells: take_many(fds::DOORBELLS, fds::doorbells(workers))?,
            };
            let settings = WorkerSettings {
                slot: WorkerSlot(cli.slot),
                workers,
                poll: poll_mode(cli.poll.unwrap_or_default()),
                cpu: cli.cpu,
            };
            ringway_worker::run(fds, settings).map_err(|error| RoleError::Worker {
                slot: cli.slot,
                error,
            })
        }
    }
}

fn take(number: RawFd) -> Result<OwnedFd, RoleError> {
    inherited(number).map_err(|error| RoleError::Descriptor { number, error })
}

fn take_many(first: RawFd, count: usize) -> Result<Vec<OwnedFd>, RoleError> {
    (first..).take(count).map(take).collect()
}

fn poll_mode(mode: PollMode) -> ringway_worker::PollMode {
    match mode {
        PollMode::Epoll => ringway_worker::PollMode::Epoll,
        PollMode::Busy => ringway_worker::PollMode::Busy,
        PollMode::Adaptive => ringway_worker::PollMode::Adaptive,
        PollMode::Napi => ringway_worker::PollMode::Napi,
    }
}

/// A dump of a process that maps keys would hold them.
fn no_core_dumps() {
    let _ = setrlimit(Resource::RLIMIT_CORE, 0, 0);
}

/// What `ps` and `top` show; the kernel takes 15 bytes.
fn name_process(role: RoleName, cli: &Cli) {
    let name = match role {
        RoleName::Worker => format!("ringway-w{}", cli.slot),
        other => format!("ringway-{}", other.as_str()),
    };
    if let Ok(name) = CString::new(name) {
        let _ = prctl::set_name(&name);
    }
}
