//! The TUN interface: one queue a shard.
//!
//! No queue is ever closed or detached while the gateway runs: packets would be lost and the last
//! queue would take the number of the closed one. A queue whose reader died keeps its packets for
//! the successor.

use crate::steering::queue_program;
use crate::sys;
use crate::sys::tun::{CSUM, TSO_ECN, TSO4, TSO6, USO4, USO6};
use nix::libc::{self, c_ulong};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// The bytes before every packet: `struct virtio_net_hdr` without its optional field.
const HEADER_LENGTH: i32 = 10;

/// What the workers take from the kernel unfinished, from all to nothing: USO came with Linux 6.2.
const OFFLOADS: [c_ulong; 5] = [
    CSUM | TSO4 | TSO6 | TSO_ECN | USO4 | USO6,
    CSUM | TSO4 | TSO6 | TSO_ECN,
    CSUM | TSO4 | TSO6,
    CSUM,
    0,
];

/// The interface's queues.
#[derive(Debug)]
pub(crate) struct Tun {
    queues: Vec<OwnedFd>,
}

/// Why the interface could not be made.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TunError {
    /// No such device file.
    #[error(
        "/dev/net/tun: {0}: load the tun module (modprobe tun), or in a container pass the device in"
    )]
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
            move |error: io::Error| TunError::System {
                name: name.to_owned(),
                what,
                error,
                remedy: "",
            }
        };
        let mut queues = Vec::new();
        for shard in 0..shards {
            let queue = sys::tun::open_queue(name, shard == 0).map_err(|error| {
                match error.raw_os_error() {
                    Some(libc::ENOENT | libc::ENODEV | libc::ENXIO) => TunError::NoDevice(error),
                    Some(libc::EBUSY) => TunError::Taken(name.to_owned()),
                    Some(libc::EPERM | libc::EACCES) => TunError::System {
                        name: name.to_owned(),
                        what: "open",
                        error,
                        remedy: ": run it as root or with CAP_NET_ADMIN",
                    },
                    _ => failed("open")(error),
                }
            })?;
            sys::tun::set_header_length(queue.as_fd(), HEADER_LENGTH)
                .map_err(failed("header length"))?;
            queues.push(queue);
        }
        let offloads = accepted(queues[0].as_fd()).map_err(failed("offloads"))?;
        // drivers/net/tun.c keeps them with the device; each queue hears of them all the same, since
        // that is the kernel's business.
        for queue in &queues[1..] {
            sys::tun::set_offloads(queue.as_fd(), offloads).map_err(failed("offloads"))?;
        }
        if offloads != OFFLOADS[0] {
            tracing::warn!(
                "the kernel refuses some offloads of the TUN interface (has {offloads:#x} of {:#x}): traffic costs more time",
                OFFLOADS[0]
            );
        }
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

/// Turns on the most offloads that the kernel takes.
fn accepted(queue: BorrowedFd<'_>) -> io::Result<c_ulong> {
    let mut answer = Err(io::Error::from_raw_os_error(libc::EINVAL));
    for offloads in OFFLOADS {
        answer = sys::tun::set_offloads(queue, offloads).map(|()| offloads);
        if !matches!(&answer, Err(error) if error.raw_os_error() == Some(libc::EINVAL)) {
            break;
        }
    }
    answer
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::{Rtnetlink, Whereabouts};
    use nix::sched::{CloneFlags, unshare};
    use std::collections::HashMap;
    use std::net::UdpSocket;

    /// Runs in a network namespace of its own; false: not root, not run.
    fn alone(test: fn()) -> bool {
        if !nix::unistd::geteuid().is_root() {
            return false;
        }
        std::thread::spawn(move || {
            unshare(CloneFlags::CLONE_NEWNET).unwrap();
            test();
        })
        .join()
        .unwrap();
        true
    }

    fn up(name: &str, mtu: u32) -> Rtnetlink {
        let mut netlink = Rtnetlink::open().unwrap();
        let index = netlink.link_named(name, Whereabouts::Here).unwrap().index;
        netlink
            .add_address(index, "10.99.0.1/24".parse().unwrap())
            .unwrap();
        netlink.set_link_up(index, mtu).unwrap();
        netlink
    }

    #[test]
    fn flows_without_a_hash_spread_over_the_queues_and_stay_there() {
        alone(|| {
            let tun = Tun::create("t0", 8).unwrap();
            tun.steer().unwrap();
            up("t0", 1420);
            // Unconnected, so that the kernel leaves no hash in the packets.
            let senders: Vec<UdpSocket> = (0..64)
                .map(|_| UdpSocket::bind("10.99.0.1:0").unwrap())
                .collect();
            let mut queue_of = HashMap::new();
            for _ in 0..3 {
                for sender in &senders {
                    sender.send_to(b"x", "10.99.0.2:9").unwrap();
                }
                let mut packet = [0; 2048];
                for (number, queue) in tun.queues().iter().enumerate() {
                    while let Ok(length) = nix::unistd::read(queue, &mut packet) {
                        let inner = &packet[HEADER_LENGTH as usize..length];
                        if inner[0] >> 4 == 4 && inner[9] == 17 && inner[16..20] == [10, 99, 0, 2] {
                            let port = u16::from_be_bytes([inner[20], inner[21]]);
                            assert_eq!(
                                *queue_of.entry(port).or_insert(number),
                                number,
                                "port {port} moved"
                            );
                        }
                    }
                }
            }
            assert_eq!(queue_of.len(), senders.len());
            let used: std::collections::HashSet<usize> = queue_of.values().copied().collect();
            assert!(
                used.len() >= 6,
                "64 flows use only {} of 8 queues",
                used.len()
            );
        });
    }

    #[test]
    fn the_name_is_taken_once_and_free_again() {
        alone(|| {
            let tun = Tun::create("t1", 2).unwrap();
            assert_eq!(tun.name().as_deref(), Some("t1"));
            assert!(matches!(Tun::create("t1", 2), Err(TunError::Taken(_))));
            drop(tun);
            Tun::create("t1", 2).unwrap();
        });
    }

    #[test]
    fn the_link_is_followed() {
        alone(|| {
            let tun = Tun::create("t2", 2).unwrap();
            let mut netlink = up("t2", 1400);
            assert_eq!(
                netlink.whereabouts(tun.any_queue()).unwrap(),
                Whereabouts::Here
            );
            let link = netlink.link_named("t2", Whereabouts::Here).unwrap();
            assert_eq!((link.mtu, link.up), (1400, true));
            netlink.delete_link(link.index).unwrap();
            assert_eq!(tun.name(), None);
            assert_eq!(
                netlink
                    .whereabouts(tun.any_queue())
                    .unwrap_err()
                    .raw_os_error(),
                Some(libc::EBADFD)
            );
        });
    }
}
