//! TUN → UDP: inner packets in, sealed datagrams out.
//!
//! A turn's packets lie one behind the other in one arena, each with room for the message header
//! before it and for padding and tag behind it, so that each is sealed where it was read. Nothing
//! is read while datagrams of the turn before still wait for a full socket.
//!
//! `plan` finds out what becomes of each packet, `seal` seals those that go.

mod plan;
mod seal;

use super::staging::Staging;
use super::{Context, HEADER};
use crate::aead::TAG;
use crate::reports::Throttled;
use crate::tun::{GREATEST_PACKET, Queue, Read, TunError, VNET_HEADER};
use crate::udp::group::Groups;
use crate::udp::outbox::{Flushed, Outbox};
use ringway_proto::too_big;
use ringway_shm::counters::DropReason;
use ringway_shm::ids::{LaneSlot, PeerSlot, ShardId};
use ringway_shm::messages::Event;
use ringway_shm::state::PeerPath;
use std::net::IpAddr;

/// Packets a turn. Short, so that the other direction is never far.
const PACKETS: usize = 256;
/// Bytes read a turn: many packets of usual length, or a few of the longest.
const ARENA: usize = 512 * 1024;
/// Up to here orders may fill the arena. What is behind is for the fragments of packets that are cut,
/// which are longer than these.
const ORDERS: usize = 2 * ARENA;
/// Where packets may start.
const ALIGN: usize = 16;
/// Room behind a packet: padding and tag.
const TAILROOM: usize = ALIGN + TAG;
/// Keepalives that may wait for a full socket.
const KEEPALIVES: usize = 4_096;

/// An inner packet in the arena.
#[derive(Debug, Clone, Copy)]
struct Packet {
    start: usize,
    length: usize,
    shard: ShardId,
}

/// A packet that will be sealed.
#[derive(Debug, Clone, Copy)]
struct Planned {
    packet: Packet,
    padded: usize,
    ecn: u8,
    /// See [`Via::fragment`](crate::udp::outbox::Via::fragment).
    fragment: bool,
    lane: LaneSlot,
    /// Index into the turn's ways.
    way: usize,
}

/// The way to one peer, as it was found in this turn.
struct Way {
    peer: PeerSlot,
    path: PeerPath,
    /// The lane to send on, if it can be used.
    lane: Option<LaneSlot>,
    group: Option<u8>,
    local: Option<IpAddr>,
}

/// What a reading of a queue came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Drained {
    /// The queue is empty.
    All,
    /// The turn's share is used up.
    Part,
    /// The interface is gone.
    Gone,
    /// The queue fails and should be left alone for a while.
    Failing,
}

/// One direction's state: the arena and what is in it.
pub(crate) struct Egress {
    arena: Box<[u8]>,
    used: usize,
    packets: Vec<Packet>,
    planned: Vec<Planned>,
    ways: Vec<Way>,
    outbox: Outbox,
    staging: Staging,
    /// Peers whose waiting packets may go.
    ready: Vec<PeerSlot>,
    keepalives: Vec<(LaneSlot, u32)>,
    answer: Box<[u8]>,
}

impl Egress {
    pub(crate) fn new() -> Egress {
        let room = 3 * ARENA + HEADER + GREATEST_PACKET + TAILROOM;
        Egress {
            arena: vec![0; room].into_boxed_slice(),
            used: 0,
            packets: Vec::with_capacity(PACKETS),
            planned: Vec::with_capacity(2 * PACKETS),
            ways: Vec::with_capacity(PACKETS),
            outbox: Outbox::new(2 * PACKETS),
            staging: Staging::default(),
            ready: Vec::new(),
            keepalives: Vec::new(),
            answer: vec![0; VNET_HEADER + too_big::MAXIMUM_ANSWER].into_boxed_slice(),
        }
    }

    /// Whether everything of the last turn went, so that more can be read.
    pub(crate) fn is_idle(&self) -> bool {
        self.outbox.is_empty()
    }

    /// Whether commands still wait for the arena.
    pub(crate) fn has_orders(&self) -> bool {
        !self.ready.is_empty() || !self.keepalives.is_empty()
    }

    /// A session was made: what waits for this peer may go.
    pub(crate) fn session_ready(&mut self, ctx: &mut Context, peer: PeerSlot) {
        ctx.reports.answered(Throttled::NeedHandshake, peer);
        if self.staging.waits(peer) && !self.ready.contains(&peer) {
            self.ready.push(peer);
        }
    }

    /// There will be no session: what waits for this peer is dropped.
    pub(crate) fn drop_staged(&mut self, ctx: &mut Context, peer: PeerSlot) {
        ctx.reports.answered(Throttled::NeedHandshake, peer);
        ctx.tally
            .drops(DropReason::StagedPurged, self.staging.purge(peer));
    }

    /// Tells meta of packets that wait and that it may not have been told of: their event came too
    /// soon after another, or found the ring full. Not more often than the events are throttled.
    pub(crate) fn remind(&mut self, ctx: &mut Context) {
        for (peer, incarnation) in self.staging.untold() {
            let event = Event::NeedHandshake { peer, incarnation };
            if !ctx.reports.push(event, &mut ctx.tally) {
                return;
            }
            self.staging.told(peer);
        }
    }

    /// Seals an empty message in this turn or, if a socket is full, in a later one.
    pub(crate) fn keepalive(&mut self, lane: LaneSlot, local_index: u32) {
        if self.keepalives.len() < KEEPALIVES {
            self.keepalives.push((lane, local_index));
        }
    }

    /// Reads up to `budget` packets of a queue into the arena.
    pub(crate) fn read(
        &mut self,
        ctx: &mut Context,
        queue: &Queue,
        shard: ShardId,
        budget: usize,
    ) -> Drained {
        for _ in 0..budget {
            if self.packets.len() == PACKETS || self.used >= ARENA {
                return Drained::Part;
            }
            let Some(start) = self.place(GREATEST_PACKET) else {
                return Drained::Part;
            };
            let room = &mut self.arena[start - VNET_HEADER..start + GREATEST_PACKET];
            ctx.tally.tun_read_calls += 1;
            match queue.read(room) {
                Ok(Read::Packet(length)) => {
                    ctx.tally.tun_rx_packets += 1;
                    self.take(Packet {
                        start,
                        length,
                        shard,
                    });
                }
                Ok(Read::Empty) => return Drained::All,
                Ok(Read::Unfinished) => ctx.tally.drop(DropReason::TunRead),
                Err(TunError::Gone) => return Drained::Gone,
                Err(TunError::Down) => {
                    ctx.tally.drop(DropReason::LinkDown);
                    return Drained::Failing;
                }
                Err(TunError::Full | TunError::Refused(_)) => {
                    ctx.tally.drop(DropReason::TunRead);
                    return Drained::Failing;
                }
            }
        }
        Drained::Part
    }

    /// Looks up, plans and seals what was read and ordered.
    pub(crate) fn work(&mut self, ctx: &mut Context, groups: &Groups, tuns: &[Queue]) {
        for i in 0..self.packets.len() {
            self.consider(ctx, groups, tuns, self.packets[i]);
        }
        self.packets.clear();
        self.seal(ctx, groups);
        if self.outbox.is_empty() {
            self.used = 0;
        }
    }

    /// Sends what is sealed.
    pub(crate) fn flush(&mut self, ctx: &mut Context, groups: &mut Groups) -> Flushed {
        let flushed = self
            .outbox
            .flush(&self.arena, groups, ctx.now, &mut ctx.tally);
        for narrow in self.outbox.take_narrow() {
            ctx.narrowed(narrow);
        }
        if flushed == Flushed::Done {
            self.used = 0;
        }
        flushed
    }

    /// Drops what is sealed and not sent: its sockets are about to be closed.
    pub(crate) fn give_up(&mut self, ctx: &mut Context) {
        self.outbox.give_up(&mut ctx.tally);
        self.used = 0;
    }

    /// Empties a socket's error queue and tells meta of narrow paths.
    pub(crate) fn read_errors(&mut self, ctx: &mut Context, socket: std::os::fd::BorrowedFd<'_>) {
        self.outbox.read_errors(socket);
        for narrow in self.outbox.take_narrow() {
            ctx.narrowed(narrow);
        }
    }

    /// Where a packet of up to `length` bytes would start.
    fn place(&self, length: usize) -> Option<usize> {
        let start = self.used.next_multiple_of(ALIGN) + HEADER;
        (start + length + TAILROOM <= self.arena.len()).then_some(start)
    }

    /// Makes the room of a packet its own.
    fn reserve(&mut self, packet: Packet) {
        self.used = packet.start + packet.length + TAILROOM;
    }

    fn take(&mut self, packet: Packet) {
        self.reserve(packet);
        self.packets.push(packet);
    }
}
