//! TUN → UDP: inner packets in, sealed datagrams out.
//!
//! A turn's packets are written one behind the other into one arena, each with room for the message
//! header before it and for padding and tag behind it, so that each is sealed where it lies and equal
//! ones in a row can leave as one. Nothing is written while datagrams of the turn before still wait
//! for a full socket.
//!
//! `plan` finds out what becomes of each packet, `seal` seals those that go.

mod plan;
mod seal;

use super::backlog::{Backlog, reason};
use super::staging::Staging;
use super::{Context, HEADER};
use crate::aead::TAG;
use crate::reports::Throttled;
use crate::tun::{GREATEST_PACKET, Queue, VNET_HEADER};
use crate::udp::group::Groups;
use crate::udp::outbox::{Flushed, Outbox};
use ringway_proto::too_big;
use ringway_shm::counters::DropReason;
use ringway_shm::ids::{LaneSlot, PeerSlot, ShardId};
use ringway_shm::messages::Event;
use ringway_shm::state::PeerPath;
use std::net::IpAddr;

/// Bytes a turn: what fits a core's own cache. Short, so that the other direction is never far.
const TURN: usize = 256 * 1024;
/// Up to here what meta orders may fill the arena.
const ORDERS: usize = 512 * 1024;
/// What is behind the former two is for the packets of the last frame, which may be cut.
const ARENA: usize = 1024 * 1024;
/// Datagrams a turn, usually.
const DATAGRAMS: usize = 512;
/// Keepalives that may wait for a full socket.
const KEEPALIVES: usize = 4_096;

/// A packet in the arena that will be sealed.
#[derive(Debug, Clone, Copy)]
struct Planned {
    start: usize,
    length: usize,
    padded: usize,
    shard: ShardId,
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

/// One direction's state: the arena and what is in it.
pub(crate) struct Egress {
    arena: Box<[u8]>,
    used: usize,
    planned: Vec<Planned>,
    ways: Vec<Way>,
    outbox: Outbox,
    staging: Staging,
    /// Peers whose waiting packets may go.
    ready: Vec<PeerSlot>,
    keepalives: Vec<(LaneSlot, u32)>,
    /// For a packet that doesn't go to the arena as it is.
    scratch: Box<[u8]>,
    answer: Box<[u8]>,
}

impl Egress {
    pub(crate) fn new() -> Egress {
        Egress {
            arena: vec![0; ARENA].into_boxed_slice(),
            used: 0,
            planned: Vec::with_capacity(DATAGRAMS),
            ways: Vec::with_capacity(DATAGRAMS),
            outbox: Outbox::new(DATAGRAMS),
            staging: Staging::default(),
            ready: Vec::new(),
            keepalives: Vec::new(),
            scratch: vec![0; GREATEST_PACKET].into_boxed_slice(),
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

    /// Looks up, plans and seals what was ordered and a turn's share of what waits.
    pub(crate) fn work(
        &mut self,
        ctx: &mut Context,
        groups: &Groups,
        tuns: &[Queue],
        backlog: &mut Backlog,
    ) {
        while self.used < TURN {
            let Some(mut waiting) = backlog.next(ctx) else {
                break;
            };
            let count = match backlog.split(&waiting) {
                Ok(split) => {
                    let (shard, from) = (waiting.shard, waiting.next);
                    waiting.next = self.consider(ctx, groups, tuns, (&split, shard), from);
                    split.count()
                }
                Err(refused) => {
                    ctx.tally.drop(reason(refused));
                    0
                }
            };
            if waiting.next < count {
                backlog.resume(waiting);
                break;
            }
            backlog.done(waiting);
        }
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

    /// Takes room for a message with this much in it. Returns where that starts.
    fn place(&mut self, padded: usize) -> Option<usize> {
        let start = self.used + HEADER;
        let end = start + padded + TAG;
        if end > self.arena.len() {
            return None;
        }
        self.used = end;
        Some(start)
    }
}
