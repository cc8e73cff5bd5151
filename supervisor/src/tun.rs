//! The TUN interface: one queue a shard.
//!
//! No queue is ever closed or detached while the gateway runs: packets would be lost and the last
//! queue would take the number of the closed one. A queue whose reader died keeps its packets for
//! the successor.

use crate::steering::queue_program;
use crate::sys;
use nix::libc;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// The bytes before every packet: `struct virtio_net_hdr` without its optional field.
const HEADER_LENGTH: i32 = 10;

/// The interface's queues.
#[derive(Debug)]
pub(crate) struct Tun {
    queues: Vec<OwnedFd>,
}

/// Why the interface could not be made.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TunError {
    /// No such device file.
    #[error("/dev/net/tun: {0}: load the tun module (modprobe tun), or in a container pass the device in")]
    NoDevice(io::Error),
    /// The name is in use.
    #[error("interface {0} exists already: choose another name, or remove it (ip link delete {0})")]
    Taken(String),
    /// The kernel refused.
    #[error("interface {name}: {what}: {error}{remedy}")]
    System {
        /// The interface.
        name: String,
        /// What was attempted.
        what: &'static str,
        /// The kernel's answer.
        error: io::Error,
        /// What to do, where there is something.
        remedy: &'static str,
    },
}

impl Tun {
    /// Makes the interface with a queue a shard; it is down and has no address.
    pub(crate) fn create(name: &str, shards: u8) -> Result<Tun, TunError> {
        let failed = |what| {
            move |error: io::Error| TunError::System { name: name.to_owned(), what, error, remedy: "" }
        };
        let mut queues = Vec::new();
        for shard in 0..shards {
            let queue = sys::tun::open_queue(name, shard == 0).map_err(|error| match error.raw_os_error() {
                Some(libc::ENOENT | libc::ENODEV | libc::ENXIO) => TunError::NoDevice(error),
                Some(libc::EBUSY) => TunError::Taken(name.to_owned()),
                Some(libc::EPERM | libc::EACCES) => TunError::System {
                    name: name.to_owned(),
                    what: "open",
                    error,
                    remedy: ": run it as root or with CAP_NET_ADMIN",
                },
                _ => failed("open")(error),
            })?;
            sys::tun::set_header_length(queue.as_fd(), HEADER_LENGTH).map_err(failed("header length"))?;
            queues.push(queue);
        }
        // The offloads belong to the device, not to a queue.
        sys::tun::set_offloads(queues[0].as_fd(), 0).map_err(failed("offloads"))?;
        let tun = Tun { queues };
        if shards > 1 {
            if let Err(error) = tun.steer() {
                tracing::warn!(
                    %error,
                    "the kernel refuses the program that spreads packets over the queues: its own rule stays"
                );
            }
        }
        Ok(tun)
    }

    fn steer(&self) -> io::Result<()> {
        let program = sys::bpf::load(&queue_program())?;
        // The device keeps the program; the descriptor need not stay.
        sys::tun::set_steering(self.queues[0].as_fd(), program.as_fd())
    }

    /// The queues by shard.
    pub(crate) fn queues(&self) -> &[OwnedFd] {
        &self.queues
    }

    /// A queue to ask about the interface.
    pub(crate) fn any_queue(&self) -> BorrowedFd<'_> {
        self.queues[0].as_fd()
    }

    /// The interface's name of today; `None` when it was deleted.
    pub(crate) fn name(&self) -> Option<String> {
        sys::tun::name(self.any_queue()).ok()
    }
}
