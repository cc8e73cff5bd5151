//! Datagrams on their way out, in order, through whatever the kernel answers.
//!
//! The bytes lie sealed in the sender's arena and are sent again as they are when the kernel had
//! no room: nothing is sealed twice. An error never costs more than the datagram that met it.
//!
//! Datagrams of one length to one destination that lie one behind the other go as a row: one
//! message, which the kernel or the network card cuts (UDP_SEGMENT, udp(7)).

#[cfg(test)]
mod tests;

use super::group::Groups;
use crate::sys::errqueue::{self, QueuedError};
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
/// Errors taken off a queue for one datagram.
const ERRORS: usize = 4_096;
/// Narrow paths remembered until they are taken.
const NARROW: usize = 64;
/// The most datagrams of a row: UDP_MAX_SEGMENTS of include/linux/udp.h, less one for the header that
/// net/ipv4/udp.c counts along. It was 64 before Linux 6.10.
const ROW: usize = 127;
const FORMER_ROW: usize = 63;
/// The most bytes of a row: what the length field of IPv4 leaves, and that of UDP over IPv6.
const ROW_BYTES_V4: usize = 65_507;
const ROW_BYTES_V6: usize = 65_527;
/// How long a source address that was refused is left out.
const REFUSED_FOR: Duration = Duration::from_secs(1);
/// Peers whose source address is left out at a time.
const REFUSED: usize = 16;

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

/// A source address that one peer's datagrams can't be sent from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Source {
    peer: PeerSlot,
    incarnation: u32,
    local: IpAddr,
    ifindex: u32,
}

impl Source {
    fn of(datagram: &Outgoing, via: &Via) -> Option<Source> {
        Some(Source {
            peer: via.peer,
            incarnation: via.incarnation,
            local: datagram.local?,
            ifindex: datagram.ifindex,
        })
    }
}

/// What waits to be sent.
pub(crate) struct Outbox {
    sender: Sender,
    datagrams: Vec<Outgoing>,
    via: Vec<Via>,
    next: usize,
    /// Since when the datagram at `next` has met a full socket.
    full_since: Option<Instant>,
    /// How often it has met an error of its own.
    attempts: u8,
    /// How many errors of others were taken off the queue for it.
    others: usize,
    /// The source address that it was given and is tried without.
    without: Option<Source>,
    /// The last call failed: messages go one by one until one is sent.
    singly: bool,
    /// How many datagrams a row may have on this kernel.
    row: usize,
    /// The row at `next` was taken apart since the kernel answered this to it. If its first
    /// datagram goes alone, the row was the cause.
    apart: Option<Errno>,
    /// Source addresses that are left out, and until when.
    refused: Vec<(Source, Instant)>,
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
            others: 0,
            without: None,
            singly: false,
            row: ROW,
            apart: None,
            refused: Vec::with_capacity(REFUSED),
            narrow: Vec::with_capacity(NARROW),
        }
    }

    /// Whether everything went.
    pub(crate) fn is_empty(&self) -> bool {
        self.next == self.datagrams.len()
    }

    /// Puts a datagram behind the others, in the last one's row if `rows` allows it and it can go
    /// there.
    pub(crate) fn push(&mut self, mut datagram: Outgoing, via: Via, rows: bool, now: Instant) {
        if !self.refused.is_empty() {
            let source = Source::of(&datagram, &via);
            let refused = |(of, until): &(Source, Instant)| Some(*of) == source && now < *until;
            if self.refused.iter().any(refused) {
                datagram.local = None;
            }
        }
        if rows && self.join(&datagram, &via) {
            return;
        }
        self.datagrams.push(datagram);
        self.via.push(via);
    }

    /// Puts a datagram in the row that ends where it begins; true: it is there.
    fn join(&mut self, datagram: &Outgoing, via: &Via) -> bool {
        // What is being sent is left as it is.
        if self.datagrams.len() <= self.next || via.fragment || self.via.last() != Some(via) {
            return false;
        }
        let Some(row) = self.datagrams.last_mut() else {
            return false;
        };
        let each = match row.segment {
            0 => row.length,
            each => each.into(),
        };
        let most = if datagram.remote.is_ipv6() {
            ROW_BYTES_V6
        } else {
            ROW_BYTES_V4
        };
        let fits = row.start + row.length == datagram.start
            && row.remote == datagram.remote
            && row.local == datagram.local
            && row.ifindex == datagram.ifindex
            && row.traffic_class == datagram.traffic_class
            && row.length % each == 0
            && datagram.length <= each
            && row.length + datagram.length <= most
            && row.length < self.row * each;
        if fits {
            row.segment = each as u16;
            row.length += datagram.length;
        }
        fits
    }

    /// Sends as much as the kernel takes. The datagrams' ranges lie in `arena`.
    pub(crate) fn flush(
        &mut self,
        arena: &[u8],
        groups: &mut Groups,
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
            let last = if self.singly { self.next + 1 } else { end };
            let result = self
                .sender
                .send(socket, v6, arena, &self.datagrams[self.next..last]);
            if via.fragment {
                let _ = sockopt::allow_fragments(socket, v6, false);
            }
            tally.send_calls += 1;
            match result {
                Ok(count) => {
                    if let Some(source) = self.without.take() {
                        self.leave_out(source, now);
                    } else if let Some(errno) = self.apart.take() {
                        groups.refuse_rows(via.group, via.shard, errno);
                        self.take_all_apart(via.group, via.shard);
                    }
                    self.singly = false;
                    self.go_to(self.next + count.max(1));
                }
                Err(error) => {
                    self.singly = true;
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
        self.others = 0;
        self.drain_errors(socket, None, None);
        self.others = 0;
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
        if self.drain_errors(socket, Some(via), Some(errno)) {
            // An earlier datagram's, told now: this one has not been tried.
            return None;
        }
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
            Errno::EIO | Errno::EINVAL | Errno::EMSGSIZE if self.is_row() => self.shorten(errno),
            // It was sealed for a wider path: it goes in fragments, as the kernel's WireGuard lets
            // all of its datagrams (ignore_df in drivers/net/wireguard/socket.c); later ones are
            // made to fit.
            Errno::EMSGSIZE if !via.fragment => {
                self.apart = None;
                self.via[self.next].fragment = true;
            }
            Errno::EMSGSIZE => {
                self.skip_to(self.next + 1, DropReason::TooBig, tally);
            }
            // A firewall's answer; asking again would not change it.
            Errno::EPERM | Errno::EACCES => {
                self.skip_to(self.next + 1, DropReason::SocketSend, tally);
            }
            _ => self.retry(errno, tally),
        }
        None
    }

    fn is_row(&self) -> bool {
        self.datagrams[self.next].segment != 0
    }

    /// The kernel refused the row at `next`: perhaps since it is too long for this kernel, since
    /// the path takes no such datagrams, or since this socket takes no rows at all (net/ipv4/udp.c,
    /// udp_send_skb).
    fn shorten(&mut self, errno: Errno) {
        let most = if errno == Errno::EINVAL && self.datagrams[self.next].count() > FORMER_ROW {
            self.row = FORMER_ROW;
            FORMER_ROW
        } else {
            self.apart = Some(errno);
            1
        };
        let (row, via) = (self.datagrams[self.next], self.via[self.next]);
        let pieces: Vec<Outgoing> = pieces(row, most).collect();
        let vias = std::iter::repeat_n(via, pieces.len());
        self.via.splice(self.next..=self.next, vias);
        self.datagrams.splice(self.next..=self.next, pieces);
    }

    /// Takes the rows apart that would go through this socket.
    fn take_all_apart(&mut self, group: u8, shard: ShardId) {
        let rest = self.datagrams.split_off(self.next);
        let vias = self.via.split_off(self.next);
        for (row, via) in rest.into_iter().zip(vias) {
            let most = if (via.group, via.shard) == (group, shard) {
                1
            } else {
                ROW
            };
            for piece in pieces(row, most) {
                self.datagrams.push(piece);
                self.via.push(via);
            }
        }
    }

    /// An error may come of a source address that went away, or of the datagram: tried in that
    /// order. What one peer's datagrams meet says nothing of those of another.
    fn retry(&mut self, errno: Errno, tally: &mut Tally) {
        self.attempts += 1;
        let datagram = &mut self.datagrams[self.next];
        let about_source = matches!(
            errno,
            Errno::EINVAL | Errno::EADDRNOTAVAIL | Errno::ENODEV | Errno::ENXIO
        );
        if about_source || self.attempts == 2 {
            if let Some(source) = Source::of(datagram, &self.via[self.next]) {
                datagram.local = None;
                self.without = Some(source);
                return;
            }
        }
        if self.attempts >= 2 {
            self.skip_to(self.next + 1, DropReason::SocketSend, tally);
        }
    }

    /// A datagram went without its source address: its peer's others go without it too.
    fn leave_out(&mut self, source: Source, now: Instant) {
        let rest = self.datagrams[self.next..].iter_mut();
        for (datagram, via) in rest.zip(&self.via[self.next..]) {
            if Source::of(datagram, via) == Some(source) {
                datagram.local = None;
            }
        }
        self.refused
            .retain(|(other, until)| now < *until && *other != source);
        if self.refused.len() == REFUSED {
            self.refused.remove(0);
        }
        self.refused.push((source, now + REFUSED_FOR));
    }

    /// Takes the errors off a socket's queue and keeps the MTUs among them. `about`: who the
    /// datagram was for that the kernel just answered with `errno`. True: that was an earlier
    /// datagram's error, told by this call.
    fn drain_errors(
        &mut self,
        socket: BorrowedFd<'_>,
        about: Option<Via>,
        errno: Option<Errno>,
    ) -> bool {
        if matches!(errno, Some(Errno::EAGAIN | Errno::EINTR)) {
            return false;
        }
        let mut earlier = false;
        while self.others < ERRORS {
            let Ok(Some(error)) = errqueue::take(socket) else {
                break;
            };
            self.others += 1;
            earlier |= error.icmp && errno == Some(Errno::from_raw(error.errno));
            if error.errno == Errno::EMSGSIZE as i32 && error.info != 0 {
                self.note_narrow(&error, about);
            }
        }
        earlier
    }

    fn note_narrow(&mut self, error: &QueuedError, about: Option<Via>) {
        let mtu = error.info.min(u32::from(u16::MAX)) as u16;
        let remote = self
            .datagrams
            .get(self.next)
            .map(|datagram| datagram.remote);
        let own = about.filter(|_| match (remote, error.destination) {
            // The kernel's own refusals name no port.
            (Some(remote), Some(named)) => {
                remote.ip() == named.ip() && (!error.icmp || remote.port() == named.port())
            }
            (_, None) => true,
            (None, Some(_)) => false,
        });
        let narrow = match (own, error.destination) {
            (Some(via), _) => Narrow::Peer(via.peer, via.incarnation, mtu),
            (None, Some(address)) => Narrow::Address(address, mtu),
            (None, None) => return,
        };
        if self.narrow.len() < NARROW && !self.narrow.contains(&narrow) {
            self.narrow.push(narrow);
        }
    }

    fn skip_to(&mut self, end: usize, reason: DropReason, tally: &mut Tally) {
        let count: usize = self.datagrams[self.next..end]
            .iter()
            .map(Outgoing::count)
            .sum();
        tally.drops(reason, count as u64);
        self.go_to(end);
    }

    fn clear(&mut self) {
        self.datagrams.clear();
        self.via.clear();
        self.singly = false;
        self.go_to(0);
    }

    fn go_to(&mut self, next: usize) {
        self.next = next;
        self.full_since = None;
        self.attempts = 0;
        self.others = 0;
        self.without = None;
        self.apart = None;
    }
}

/// A row in rows of at most `most` datagrams.
fn pieces(row: Outgoing, most: usize) -> impl Iterator<Item = Outgoing> {
    let each = match row.segment {
        0 => row.length.max(1),
        each => usize::from(each),
    };
    let step = most * each;
    (0..row.length).step_by(step).map(move |at| {
        let length = step.min(row.length - at);
        Outgoing {
            start: row.start + at,
            length,
            segment: if length > each { row.segment } else { 0 },
            ..row
        }
    })
}
