//! Datagrams on their way out, in order, through whatever the kernel answers.
//!
//! The bytes lie sealed in the sender's arena and are sent again as they are when the kernel had
//! no room: nothing is sealed twice. An error never costs more than the datagram that met it.

use super::group::Groups;
use crate::sys::errqueue;
use crate::sys::mmsg::{Outgoing, Sender};
use crate::sys::sockopt;
use crate::tally::Tally;
use nix::errno::Errno;
use ringway_proto::time::Instant;
use ringway_shm::counters::DropReason;
use ringway_shm::ids::{PeerSlot, ShardId};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// How long a full socket may hold a batch before the rest of it is dropped.
const FULL_FOR: Duration = Duration::from_millis(100);
/// How often the kernel may be out of buffers (ENOBUFS) for one datagram, one turn each.
const NO_BUFFERS: u8 = 4;
/// Errors taken off a queue at a time.
const ERRORS: usize = 64;
/// How long a source address that was refused is left out.
const REFUSED_FOR: Duration = Duration::from_secs(1);

/// Which way a datagram goes and whose it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Via {
    pub(crate) group: u8,
    pub(crate) shard: ShardId,
    /// It may be fragmented outside: it carries what no inner sender can make smaller.
    pub(crate) fragment: bool,
    pub(crate) peer: PeerSlot,
    pub(crate) incarnation: u32,
}

/// A path that takes less than was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Narrow {
    /// On the way to this peer.
    Peer(PeerSlot, u32, u16),
    /// On the way to this address.
    Address(SocketAddr, u16),
}

/// What became of a flush.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flushed {
    /// Everything went or was dropped.
    Done,
    /// This socket is full; it says when it can be written.
    Full { group: u8, shard: ShardId },
    /// The kernel is out of buffers; try again soon.
    NoBuffers,
}

/// What waits to be sent.
pub(crate) struct Outbox {
    sender: Sender,
    datagrams: Vec<Outgoing>,
    via: Vec<Via>,
    next: usize,
    /// Since when the datagram at `next` has met a full socket.
    full_since: Option<Instant>,
    /// How often it has met an error.
    attempts: u8,
    refused: Option<(IpAddr, u32, Instant)>,
    narrow: Vec<Narrow>,
}

impl Outbox {
    pub(crate) fn new(messages: usize) -> Outbox {
        Outbox {
            sender: Sender::new(messages.min(1024)),
            datagrams: Vec::with_capacity(messages),
            via: Vec::with_capacity(messages),
            next: 0,
            full_since: None,
            attempts: 0,
            refused: None,
            narrow: Vec::with_capacity(ERRORS),
        }
    }

    /// Whether everything went.
    pub(crate) fn is_empty(&self) -> bool {
        self.next == self.datagrams.len()
    }

    /// Puts a datagram behind the others.
    pub(crate) fn push(&mut self, mut datagram: Outgoing, via: Via, now: Instant) {
        if let (Some((address, ifindex, until)), Some(local)) = (self.refused, datagram.local) {
            if now < until && local == address && datagram.ifindex == ifindex {
                datagram.local = None;
            }
        }
        self.datagrams.push(datagram);
        self.via.push(via);
    }

    /// Sends as much as the kernel takes. The datagrams' ranges lie in `arena`.
    pub(crate) fn flush(
        &mut self,
        arena: &[u8],
        groups: &Groups,
        now: Instant,
        tally: &mut Tally,
    ) -> Flushed {
        while self.next < self.datagrams.len() {
            let via = self.via[self.next];
            let end = self.end_of_run();
            let Some((socket, v6)) = groups.socket(via.group, via.shard) else {
                self.skip_to(end, DropReason::SocketSend, tally);
                continue;
            };
            if via.fragment {
                // A refusal only means that the datagram is told to be too long, below.
                let _ = sockopt::allow_fragments(socket, v6, true);
            }
            let result = self
                .sender
                .send(socket, v6, arena, &self.datagrams[self.next..end]);
            if via.fragment {
                let _ = sockopt::allow_fragments(socket, v6, false);
            }
            tally.send_calls += 1;
            match result {
                Ok(count) => {
                    self.next += count.max(1);
                    self.full_since = None;
                    self.attempts = 0;
                }
                Err(error) => {
                    let errno = Errno::from_raw(error.raw_os_error().unwrap_or(0));
                    if let Some(stop) = self.failed(errno, socket, end, now, tally) {
                        return stop;
                    }
                }
            }
        }
        self.clear();
        Flushed::Done
    }

    /// Drops what could not be sent.
    pub(crate) fn give_up(&mut self, tally: &mut Tally) {
        let end = self.datagrams.len();
        self.skip_to(end, DropReason::SocketFull, tally);
        self.clear();
    }

    /// The paths that proved narrow since the last call.
    pub(crate) fn take_narrow(&mut self) -> impl Iterator<Item = Narrow> + '_ {
        self.narrow.drain(..)
    }

    /// Empties a socket's error queue, as EPOLLERR asks for.
    pub(crate) fn read_errors(&mut self, socket: BorrowedFd<'_>) {
        self.drain_errors(socket, None);
    }

    /// What goes through the same socket in the same manner can go with one call.
    fn end_of_run(&self) -> usize {
        let first = self.via[self.next];
        let same = |via: &&Via| {
            via.group == first.group && via.shard == first.shard && via.fragment == first.fragment
        };
        self.next + self.via[self.next..].iter().take_while(same).count()
    }

    /// Decides about the datagram at `next`, which the kernel answered with `errno`. `Some`: stop
    /// here for now.
    fn failed(
        &mut self,
        errno: Errno,
        socket: BorrowedFd<'_>,
        end: usize,
        now: Instant,
        tally: &mut Tally,
    ) -> Option<Flushed> {
        let via = self.via[self.next];
        match errno {
            Errno::EINTR => {}
            Errno::EAGAIN => {
                let since = *self.full_since.get_or_insert(now);
                if now.since(since) < FULL_FOR {
                    return Some(Flushed::Full {
                        group: via.group,
                        shard: via.shard,
                    });
                }
                self.skip_to(end, DropReason::SocketFull, tally);
            }
            Errno::ENOBUFS | Errno::ENOMEM => {
                self.attempts += 1;
                if self.attempts < NO_BUFFERS {
                    return Some(Flushed::NoBuffers);
                }
                self.skip_to(self.next + 1, DropReason::SocketFull, tally);
            }
            Errno::EMSGSIZE => {
                self.drain_errors(socket, Some(via));
                self.skip_to(self.next + 1, DropReason::TooBig, tally);
            }
            // A firewall's answer; asking again would not change it.
            Errno::EPERM | Errno::EACCES => {
                self.skip_to(self.next + 1, DropReason::SocketSend, tally);
            }
            _ => self.retry(errno, socket, now, tally),
        }
        None
    }

    /// An error may belong to an earlier datagram (ICMP, reported on the next call), or to a
    /// source address that went away, or to this datagram: tried in that order.
    fn retry(&mut self, errno: Errno, socket: BorrowedFd<'_>, now: Instant, tally: &mut Tally) {
        self.attempts += 1;
        let datagram = self.datagrams[self.next];
        let about_source = matches!(
            errno,
            Errno::EINVAL | Errno::EADDRNOTAVAIL | Errno::ENODEV | Errno::ENXIO
        );
        if let (true, Some(local)) = (about_source || self.attempts == 2, datagram.local) {
            self.refused = Some((local, datagram.ifindex, now + REFUSED_FOR));
            for later in &mut self.datagrams[self.next..] {
                if later.local == Some(local) && later.ifindex == datagram.ifindex {
                    later.local = None;
                }
            }
            return;
        }
        if self.attempts >= 2 {
            self.skip_to(self.next + 1, DropReason::SocketSend, tally);
            return;
        }
        self.drain_errors(socket, None);
    }

    /// Takes the errors off a socket's queue and keeps the MTUs among them. `about`: who the
    /// datagram was for that the kernel just refused.
    fn drain_errors(&mut self, socket: BorrowedFd<'_>, about: Option<Via>) {
        for _ in 0..ERRORS {
            let Ok(Some(error)) = errqueue::take(socket) else {
                return;
            };
            if error.errno != Errno::EMSGSIZE as i32 || error.info == 0 {
                continue;
            }
            let mtu = error.info.min(u32::from(u16::MAX)) as u16;
            let remote = self
                .datagrams
                .get(self.next)
                .map(|datagram| datagram.remote);
            let own = match (about, remote, error.destination) {
                // The kernel's own refusals name no port.
                (Some(via), Some(remote), Some(named)) if remote.ip() == named.ip() => Some(via),
                (Some(via), _, None) => Some(via),
                _ => None,
            };
            let narrow = match (own, error.destination) {
                (Some(via), _) => Narrow::Peer(via.peer, via.incarnation, mtu),
                (None, Some(address)) => Narrow::Address(address, mtu),
                (None, None) => continue,
            };
            if self.narrow.len() < ERRORS && !self.narrow.contains(&narrow) {
                self.narrow.push(narrow);
            }
        }
    }

    fn skip_to(&mut self, end: usize, reason: DropReason, tally: &mut Tally) {
        tally.drops(reason, (end - self.next) as u64);
        self.next = end;
        self.full_since = None;
        self.attempts = 0;
    }

    fn clear(&mut self) {
        self.datagrams.clear();
        self.via.clear();
        self.next = 0;
        self.full_since = None;
        self.attempts = 0;
    }
}
