//! TUN → UDP: inner packets in, sealed datagrams out.
//!
//! A turn's packets lie one behind the other in one arena, each with room for the message header
//! before it and for padding and tag behind it, so that each is sealed where it was read. Nothing
//! is read while datagrams of the turn before still wait for a full socket.

use super::narrow::{Fit, fit};
use super::staging::Staging;
use super::{Context, HEADER, alive};
use crate::aead::{Key, TAG, nonce};
use crate::reports::Throttled;
use crate::sys::mmsg::Outgoing;
use crate::tun::{GREATEST_PACKET, Queue, Read, TunError, VNET_HEADER};
use crate::udp::group::Groups;
use crate::udp::outbox::{Flushed, Outbox, Via};
use ringway_proto::inner::{self, Inner, InnerError};
use ringway_proto::wire::DataHeader;
use ringway_proto::{ecn, fragment, too_big};
use ringway_shm::counters::DropReason;
use ringway_shm::ids::{LaneSlot, PeerSlot, ShardId};
use ringway_shm::messages::Event;
use ringway_shm::state::PeerPath;
use ringway_shm::sync::Ordering;
use std::net::IpAddr;

/// Packets a turn. Short, so that the other direction is never far.
const PACKETS: usize = 256;
/// Bytes a turn: many packets of usual length, or a few of the longest.
const ARENA: usize = 512 * 1024;
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
    /// See [`Via::fragment`].
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
        let room = ARENA + HEADER + GREATEST_PACKET + TAILROOM;
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
    pub(crate) fn session_ready(&mut self, peer: PeerSlot) {
        if self.staging.waits(peer) && !self.ready.contains(&peer) {
            self.ready.push(peer);
        }
    }

    /// There will be no session: what waits for this peer is dropped.
    pub(crate) fn drop_staged(&mut self, ctx: &mut Context, peer: PeerSlot) {
        ctx.tally
            .drops(DropReason::StagedPurged, self.staging.purge(peer));
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
            if self.packets.len() == PACKETS {
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
        self.order(ctx, groups, tuns);
        for i in 0..self.packets.len() {
            self.consider(ctx, groups, tuns, self.packets[i]);
        }
        self.packets.clear();
        self.seal(ctx);
    }

    /// Sends what is sealed.
    pub(crate) fn flush(&mut self, ctx: &mut Context, groups: &Groups) -> Flushed {
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

    /// Does what meta ordered: keepalives, and packets that waited for a session.
    fn order(&mut self, ctx: &mut Context, groups: &Groups, tuns: &[Queue]) {
        while let Some((lane, local_index)) = self.keepalives.pop() {
            self.plan_keepalive(ctx, groups, lane, local_index);
        }
        for _ in 0..self.ready.len() {
            let peer = self.ready.swap_remove(0);
            if let Some(way) = self.way(ctx, groups, peer) {
                self.unstage(ctx, tuns, way);
            } else {
                self.drop_staged(ctx, peer);
            }
        }
    }

    fn plan_keepalive(&mut self, ctx: &mut Context, groups: &Groups, lane: LaneSlot, local_index: u32) {
        let peer = match ctx.cache.get(&ctx.tables, lane) {
            Some(session) if session.local_index == local_index => session.peer,
            _ => return,
        };
        let Some(start) = self.place(0) else {
            return;
        };
        let Some(way) = self.way(ctx, groups, peer) else {
            return;
        };
        let packet = Packet {
            start,
            length: 0,
            shard: ctx.tables.home(lane),
        };
        self.reserve(packet);
        self.planned.push(Planned {
            packet,
            padded: 0,
            ecn: 0,
            fragment: false,
            lane,
            way,
        });
    }

    /// Finds out what is to become of one inner packet.
    fn consider(&mut self, ctx: &mut Context, groups: &Groups, tuns: &[Queue], packet: Packet) {
        let bytes = &self.arena[packet.start..packet.start + packet.length];
        let inner = match inner::parse(bytes) {
            Ok(inner) => inner,
            Err(InnerError::NotIp) => return ctx.tally.drop(DropReason::NotIp),
            Err(InnerError::Truncated) => return ctx.tally.drop(DropReason::InnerTruncated),
        };
        let Some(peer) = ctx.tables.route(inner.destination) else {
            return ctx.tally.drop(DropReason::NoRoute);
        };
        let Some(number) = self.way(ctx, groups, peer) else {
            return ctx.tally.drop(DropReason::NoRoute);
        };
        let way = &self.ways[number];
        let bytes = &self.arena[packet.start..packet.start + packet.length];
        if ctx.is_looped(&inner, bytes, (peer, &way.path), groups) {
            return ctx.tally.drop(DropReason::Loop);
        }
        if way.path.endpoint.is_none() {
            ctx.need_handshake(peer, way.path.incarnation);
            return ctx.tally.drop(DropReason::NoEndpoint);
        }
        if way.lane.is_some() && !self.staging.is_empty() {
            self.unstage(ctx, tuns, number);
        }
        if self.ways[number].lane.is_none() || self.staging.waits(peer) {
            return self.stage(ctx, number, packet);
        }
        self.plan(ctx, tuns, number, packet, &inner);
    }

    /// The way to a peer, looked up once for packets in a row. `None`: there is no such peer.
    fn way(&mut self, ctx: &mut Context, groups: &Groups, peer: PeerSlot) -> Option<usize> {
        if let Some(last) = self.ways.last() {
            if last.peer == peer {
                return Some(self.ways.len() - 1);
            }
        }
        let path = ctx.tables.path(peer)?;
        let group = path.endpoint.as_ref().and_then(|e| groups.choose(e));
        let local = match (group, path.endpoint.and_then(|endpoint| endpoint.local)) {
            (Some(group), Some(local)) if groups.may_send_from(group, local) => Some(local),
            _ => None,
        };
        let lane = path.lane.filter(|lane| ctx.can_send(*lane, peer, &path));
        self.ways.push(Way {
            peer,
            path,
            lane,
            group,
            local,
        });
        Some(self.ways.len() - 1)
    }

    /// Keeps a packet until there is a session, and asks for one.
    fn stage(&mut self, ctx: &mut Context, way: usize, packet: Packet) {
        let way = &self.ways[way];
        let bytes = &self.arena[packet.start..packet.start + packet.length];
        let dropped = self
            .staging
            .push(way.peer, way.path.incarnation, bytes, packet.shard);
        if dropped > 0 {
            ctx.tally.drops(DropReason::StagedFull, dropped);
        }
        if way.lane.is_none() {
            ctx.need_handshake(way.peer, way.path.incarnation);
        }
    }

    /// Plans the packets that waited for this way's peer, before any newer one.
    fn unstage(&mut self, ctx: &mut Context, tuns: &[Queue], number: usize) {
        let (peer, incarnation) = (self.ways[number].peer, self.ways[number].path.incarnation);
        if self.ways[number].lane.is_none() {
            if self.staging.waits(peer) {
                ctx.need_handshake(peer, incarnation);
            }
            return;
        }
        while let Some(staged) = self.staging.front(peer, incarnation) {
            let length = staged.bytes.len();
            let Some(start) = self.place(length) else {
                if !self.ready.contains(&peer) {
                    self.ready.push(peer);
                }
                return;
            };
            let packet = Packet {
                start,
                length,
                shard: staged.shard,
            };
            self.arena[start..start + length].copy_from_slice(&staged.bytes);
            self.staging.pop(peer);
            self.reserve(packet);
            if let Ok(inner) = inner::parse(&self.arena[start..start + length]) {
                self.plan(ctx, tuns, number, packet, &inner);
            }
        }
        // What is left was for a former peer of this slot.
        let old = self.staging.purge(peer);
        if old > 0 {
            ctx.tally.drops(DropReason::StagedPurged, old);
        }
    }

    /// Puts a packet in the row to be sealed, if it fits the path.
    fn plan(&mut self, ctx: &mut Context, tuns: &[Queue], number: usize, packet: Packet, inner: &Inner) {
        let way = &self.ways[number];
        let Some(lane) = way.lane else {
            return;
        };
        let mtu = usize::from(ctx.tables.state.interface_mtu());
        let mut planned = Planned {
            packet,
            padded: packet.length,
            ecn: ecn::encapsulate(inner.ecn),
            fragment: false,
            lane,
            way: number,
        };
        match fit(packet.length, Some(inner), &way.path, mtu) {
            Fit::Padded(padded) => planned.padded = padded,
            Fit::Outside(padded) => {
                planned.padded = padded;
                planned.fragment = true;
            }
            Fit::Cut(limit) => return self.cut(ctx, planned, limit),
            Fit::Refuse(limit) => return self.refuse(ctx, tuns, packet, limit),
        }
        self.planned.push(planned);
    }

    /// Cuts an IPv4 packet into fragments, each of which is sealed on its own.
    fn cut(&mut self, ctx: &mut Context, whole: Planned, limit: usize) {
        let mut used = self.used;
        let end = self.arena.len();
        let (low, high) = self.arena.split_at_mut(used);
        let base = low.len();
        let packet = &low[whole.packet.start..whole.packet.start + whole.packet.length];
        let Ok(mut pieces) = fragment::fragment(packet, limit) else {
            return ctx.tally.drop(DropReason::TooBig);
        };
        let before = self.planned.len();
        loop {
            let start = used.next_multiple_of(ALIGN) + HEADER;
            if start + limit + TAILROOM > end {
                // Half a packet is of no use to anybody.
                self.planned.truncate(before);
                return ctx.tally.drop(DropReason::TooBig);
            }
            let room = &mut high[start - base..start - base + limit];
            let Some(length) = pieces.next_into(room) else {
                break;
            };
            used = start + length + TAILROOM;
            let padded = length.next_multiple_of(ALIGN).min(limit).max(length);
            self.planned.push(Planned {
                packet: Packet {
                    start,
                    length,
                    shard: whole.packet.shard,
                },
                padded,
                ..whole
            });
        }
        self.used = used;
    }

    /// Tells the sender of a packet how long one may be.
    fn refuse(&mut self, ctx: &mut Context, tuns: &[Queue], packet: Packet, limit: u16) {
        ctx.tally.drop(DropReason::TooBig);
        let Some(queue) = tuns.get(packet.shard.index()) else {
            return;
        };
        if !ctx.too_big.take(ctx.now) {
            return;
        }
        let bytes = &self.arena[packet.start..packet.start + packet.length];
        let (header, room) = self.answer.split_at_mut(VNET_HEADER);
        header.fill(0);
        if let Ok(length) = too_big::answer(bytes, limit, None, room) {
            ctx.tally.tun_write_calls += 1;
            if queue.write(&self.answer[..VNET_HEADER + length]).is_ok() {
                ctx.tally.tun_tx_packets += 1;
            }
        }
    }

    /// Seals what is planned, in runs of one lane, and queues it for sending.
    fn seal(&mut self, ctx: &mut Context) {
        let mut next = 0;
        while next < self.planned.len() {
            let first = self.planned[next];
            let same = |planned: &&Planned| planned.lane == first.lane && planned.way == first.way;
            let run = self.planned[next..].iter().take_while(same).count();
            self.seal_run(ctx, next, next + run);
            next += run;
        }
        self.planned.clear();
        self.ways.clear();
    }

    fn seal_run(&mut self, ctx: &mut Context, from: usize, to: usize) {
        let run = &self.planned[from..to];
        let (lane, way) = (run[0].lane, &self.ways[run[0].way]);
        let (Some(endpoint), Some(group)) = (way.path.endpoint, way.group) else {
            return ctx.tally.drops(DropReason::SocketSend, run.len() as u64);
        };
        if !ctx.can_send(lane, way.peer, &way.path) {
            return ctx.tally.drops(DropReason::KeyExpired, run.len() as u64);
        }
        let Some(session) = ctx.cache.get(&ctx.tables, lane) else {
            return ctx.tally.drops(DropReason::NoSession, run.len() as u64);
        };
        // Before any ciphertext can leave: whoever dies now takes these numbers along.
        let counter = ctx.tables.lanes.take_counters(lane, run.len() as u64);
        let (mut bytes, mut packets, mut empty) = (0, 0, 0);
        for (planned, counter) in run.iter().zip(counter..) {
            if counter >= ctx.constants.reject_after_messages {
                ctx.tally.drop(DropReason::NonceExhausted);
                continue;
            }
            let Packet { start, length, shard } = planned.packet;
            let end = start + planned.padded + TAG;
            let message = &mut self.arena[start - HEADER..end];
            let header = DataHeader {
                receiver: session.remote_index,
                counter,
            };
            message[..HEADER].copy_from_slice(&header.to_bytes());
            message[HEADER + length..HEADER + planned.padded].fill(0);
            session
                .sealing
                .seal(nonce(counter), &[], &mut message[HEADER..]);
            bytes += message.len() as u64;
            packets += 1;
            empty += u64::from(length == 0);
            let datagram = Outgoing {
                start: start - HEADER,
                length: message.len(),
                remote: endpoint.remote,
                local: way.local,
                ifindex: endpoint.ifindex,
                traffic_class: planned.ecn,
            };
            let via = Via {
                group,
                shard,
                fragment: planned.fragment,
                peer: way.peer,
                incarnation: way.path.incarnation,
            };
            self.outbox.push(datagram, via, ctx.now);
        }
        if packets == 0 {
            return;
        }
        let age = ctx.now.since(session.born);
        let due = (session.initiator && age >= ctx.constants.rekey_after)
            || counter + packets > ctx.constants.rekey_after_messages;
        let (born, local_index) = (session.born, session.local_index);
        let traffic = ctx.tables.rings.traffic(way.peer);
        traffic.tx_bytes.fetch_add(bytes, Ordering::Relaxed);
        traffic.tx_packets.fetch_add(packets, Ordering::Relaxed);
        ctx.tally.tx_bytes += bytes;
        ctx.tally.tx_packets += packets;
        ctx.tally.keepalives_sent += empty;
        let (peer, path) = (way.peer, way.path);
        ctx.sent(peer, &path, packets > empty, born);
        if due {
            ctx.rekey_due(peer, lane, local_index, false);
        }
    }
}

impl Context {
    /// Whether a lane can seal for this peer: its session is there, is the peer's, and is neither
    /// too old nor used up.
    fn can_send(&mut self, lane: LaneSlot, peer: PeerSlot, path: &PeerPath) -> bool {
        let Some(session) = self.cache.get(&self.tables, lane) else {
            return false;
        };
        session.peer == peer
            && session.incarnation == path.incarnation
            && alive(session, &self.constants, self.now)
            && self.tables.lanes.send_counter(lane) < self.constants.reject_after_messages
    }

    /// Tells meta that a session should be renewed.
    pub(super) fn rekey_due(&mut self, peer: PeerSlot, lane: LaneSlot, local_index: u32, last_minute: bool) {
        self.reports.raise(
            Throttled::RekeyDue,
            peer,
            Event::RekeyDue {
                lane,
                local_index,
                last_minute,
            },
            self.now,
            &mut self.tally,
        );
    }
}
