//! UDP → TUN: datagrams in, inner packets out.
//!
//! A batch is received into one buffer, checked and opened in place, and then written. What the
//! kernel merged (UDP_GRO) is gone through datagram by datagram. The order of a datagram's checks goes from cheap to dear, and its bit in the replay window is set before
//! its packet is written: a crash loses packets and never accepts one twice.

use super::held::{Expected, Held};
use super::lanecache::window;
use super::{Context, HEADER, alive};
use crate::aead::{Key, TAG, nonce};
use crate::inlets::{Inlet, Popped};
use crate::reports::Throttled;
use crate::sys::mmsg::{Received, Receiver};
use crate::tun::{Queue, TunError, VNET_HEADER};
use crate::udp::group::Groups;
use ringway_proto::ecn::{self, Decapsulated};
use ringway_proto::inner::{self, InnerError};
use ringway_proto::wire::{Data, MessageType};
use ringway_shm::counters::DropReason;
use ringway_shm::ids::{LaneSlot, PeerSlot, ShardId};
use ringway_shm::messages::{Event, PacketHeader};
use ringway_shm::segment::SHARDS_MAX;
use ringway_shm::state::{Endpoint, PeerPath};
use ringway_shm::sync::Ordering;
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::BorrowedFd;

/// Datagrams a batch, at most and at least: room is prepared for each before the call, which a
/// socket with one datagram should not pay for.
const BATCH: usize = 64;
const SHORT_BATCH: usize = 4;
/// Bytes of a batch that a core's own cache holds along with what else a turn touches. Each
/// message may hold many datagrams: more than a few such would be opened from farther away.
const BATCH_BYTES: usize = 256 * 1024;
/// The most datagrams that the kernel merges: UDP_GRO_CNT_MAX of net/ipv4/udp_offload.c.
const MERGED: usize = 64;
/// The longest datagram: 65,535 bytes of IP packet hold a little less.
const ROOM: usize = 65_536;
/// From one datagram's place to the next. Not a power of two, or all places would share the same
/// few lines of the cache.
const STRIDE: usize = ROOM + 2_176;

/// A datagram in the buffer, or several that the kernel merged.
#[derive(Debug, Clone, Copy)]
struct Datagram {
    start: usize,
    length: usize,
    /// How long each of them is; the last may be shorter. Never 0.
    segment: usize,
    header: PacketHeader,
    /// It came through a ring: whoever passed it on believes that it is ours.
    passed_on: bool,
}

/// An inner packet, opened and checked.
#[derive(Debug, Clone, Copy)]
struct Opened {
    start: usize,
    length: usize,
    shard: ShardId,
    peer: PeerSlot,
    lane: LaneSlot,
    counter: u64,
}

/// What packets of one lane in a row add up to.
struct Run {
    lane: LaneSlot,
    local_index: u32,
    peer: PeerSlot,
    path: PeerPath,
    bytes: u64,
    packets: u64,
    empty: u64,
    /// The greatest counter, and where that packet came from.
    newest: u64,
    from: Endpoint,
    last_minute: bool,
}

/// What a batch came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Filled {
    /// The source is empty.
    All,
    /// There may be more.
    Part,
}

/// One direction's state: the buffer and what is in it.
pub(crate) struct Ingress {
    buffer: Box<[u8]>,
    receiver: Receiver,
    /// How many datagrams the next call asks for.
    batch: usize,
    datagrams: Vec<Datagram>,
    opened: Vec<Opened>,
    /// A packet came behind one with a higher number.
    disordered: bool,
    /// The last source address looked up in this turn and whose it is.
    source: Option<(IpAddr, Option<PeerSlot>)>,
    held: Held,
    /// The last count of lost datagrams that each socket told, by group and shard.
    lost: Vec<u32>,
}

impl Ingress {
    pub(crate) fn new() -> Ingress {
        Ingress {
            buffer: vec![0; BATCH * STRIDE].into_boxed_slice(),
            receiver: Receiver::new(BATCH),
            batch: SHORT_BATCH,
            datagrams: Vec::with_capacity(BATCH),
            opened: Vec::with_capacity(BATCH * MERGED),
            disordered: false,
            source: None,
            held: Held::default(),
            lost: Vec::new(),
        }
    }

    /// Receives one batch from a socket.
    pub(crate) fn receive(
        &mut self,
        ctx: &mut Context,
        socket: BorrowedFd<'_>,
        group: u8,
        shard: ShardId,
    ) -> Filled {
        self.datagrams.clear();
        let datagrams = &mut self.datagrams;
        let place = place(group, shard);
        if self.lost.len() <= place {
            self.lost.resize(place + 1, 0);
        }
        let lost = &mut self.lost[place];
        let tally = &mut ctx.tally;
        tally.receive_calls += 1;
        let mut bytes = 0;
        let note = |i: usize, received: Received| {
            if let Some(count) = received.overflow {
                tally.drops(DropReason::ReceiveFull, count.wrapping_sub(*lost).into());
                *lost = count;
            }
            let Some(remote) = received.source else {
                return tally.drop(DropReason::Truncated);
            };
            if received.truncated {
                return tally.drop(DropReason::Oversized);
            }
            bytes += received.length;
            datagrams.push(Datagram {
                start: i * STRIDE,
                length: received.length,
                segment: received.segment,
                header: PacketHeader {
                    remote,
                    local: received.local,
                    ifindex: received.ifindex,
                    shard: shard.0,
                    group,
                    ecn: received.traffic_class & 3,
                    inner: false,
                },
                passed_on: false,
            });
        };
        let result =
            self.receiver
                .receive(socket, &mut self.buffer, STRIDE, ROOM, self.batch, note);
        match result {
            Ok(count) => {
                let filled = if count == self.batch {
                    Filled::Part
                } else {
                    Filled::All
                };
                if bytes > BATCH_BYTES || count < self.batch / 4 {
                    self.batch = (self.batch / 2).max(SHORT_BATCH);
                } else if filled == Filled::Part && bytes <= BATCH_BYTES / 2 {
                    self.batch = (2 * self.batch).min(BATCH);
                }
                filled
            }
            // An error of an earlier datagram (ICMP), told once and then gone: what waits behind
            // it is reported again.
            Err(_) => Filled::All,
        }
    }

    /// Other sockets take the places of the former ones; those that are the same count on.
    pub(crate) fn sockets_changed(&mut self, former: &Groups, new: &Groups) {
        let told = std::mem::take(&mut self.lost);
        let lost: HashMap<u64, u32> = former
            .identities()
            .filter_map(|(group, shard, id)| Some((id, *told.get(place(group, shard))?)))
            .collect();
        for (group, shard, id) in new.identities() {
            let at = place(group, shard);
            self.lost.resize(self.lost.len().max(at + 1), 0);
            self.lost[at] = lost.get(&id).copied().unwrap_or(0);
        }
    }

    /// Takes one batch from a ring of datagrams that others received.
    pub(crate) fn take(&mut self, ctx: &mut Context, inlet: &mut Inlet) -> Filled {
        self.datagrams.clear();
        for i in 0..BATCH {
            let place = &mut self.buffer[i * STRIDE..i * STRIDE + ROOM];
            let copied = inlet.pop(|kind, record| {
                if kind != PacketHeader::KIND {
                    return None;
                }
                let (header, bytes) = PacketHeader::decode(record)?;
                place.get_mut(..bytes.len())?.copy_from_slice(bytes);
                Some((header, bytes.len()))
            });
            match copied {
                Popped::Record(Some((header, length))) if !header.inner => {
                    ctx.tally.taken_over += 1;
                    self.datagrams.push(Datagram {
                        start: i * STRIDE,
                        length,
                        segment: length.max(1),
                        header,
                        passed_on: true,
                    });
                }
                Popped::Record(_) | Popped::Corrupt => ctx.tally.drop(DropReason::RingCorrupt),
                Popped::Empty => {
                    inlet.release();
                    return Filled::All;
                }
            }
        }
        inlet.release();
        Filled::Part
    }

    /// Checks, opens and writes the batch. True: the interface is gone.
    pub(crate) fn work(&mut self, ctx: &mut Context, tuns: &[Queue]) -> bool {
        let mut run: Option<Run> = None;
        self.opened.clear();
        self.disordered = false;
        self.source = None;
        for i in 0..self.datagrams.len() {
            let merged = self.datagrams[i];
            let mut at = 0;
            // At least once: a datagram without a byte is counted, too.
            while at < merged.length || at == 0 {
                let datagram = Datagram {
                    start: merged.start + at,
                    length: merged.segment.min(merged.length - at),
                    ..merged
                };
                self.consider(ctx, datagram, &mut run);
                at += merged.segment;
            }
        }
        if let Some(run) = run {
            self.settle(ctx, &run);
        }
        self.deliver(ctx, tuns)
    }

    /// Writes the packets that waited long enough. True: the interface is gone.
    pub(crate) fn release(&mut self, ctx: &mut Context, tuns: &[Queue]) -> bool {
        if self.held.is_empty() {
            return false;
        }
        let free = self.held.release(ctx);
        free.into_iter()
            .any(|packet| write(ctx, tuns, packet.shard, &packet.frame))
    }

    /// Whether packets wait for what meta does.
    pub(crate) fn holds(&self) -> bool {
        !self.held.is_empty()
    }

    /// Ends a run: what it showed of its peer may have to reach the tables first.
    fn settle(&mut self, ctx: &mut Context, run: &Run) {
        if let Some(expected) = ctx.settle(run) {
            self.held.expect(expected, ctx.now);
        }
    }

    /// Sorts a datagram by its type.
    fn consider(&mut self, ctx: &mut Context, datagram: Datagram, run: &mut Option<Run>) {
        let bytes = &self.buffer[datagram.start..datagram.start + datagram.length];
        if datagram.header.remote.port() == 0 {
            // Nothing can be sent there: a peer that seemed to have moved would be lost.
            return ctx.tally.drop(DropReason::NoPort);
        }
        match MessageType::of(bytes) {
            Some(MessageType::Data) => self.data(ctx, datagram, run),
            Some(_) if !datagram.passed_on => {
                ctx.reports
                    .pass_to_meta(&datagram.header, bytes, &mut ctx.tally);
            }
            None if bytes.len() < 4 => ctx.tally.drop(DropReason::Truncated),
            // Meta passes on data only; back and forth would never end.
            _ => ctx.tally.drop(DropReason::BadType),
        }
    }

    /// A data message: finds its session, or the worker that has it.
    fn data(&mut self, ctx: &mut Context, datagram: Datagram, run: &mut Option<Run>) {
        let bytes = &mut self.buffer[datagram.start..datagram.start + datagram.length];
        let header = match Data::parse(&*bytes) {
            Ok(data) => data.header(),
            Err(_) => return ctx.tally.drop(DropReason::Truncated),
        };
        let lane = ctx.tables.lane_of(header.receiver);
        let shard = ctx.tables.home(lane);
        let owner = ctx.tables.owner(shard);
        if owner != ctx.tables.slot {
            if datagram.passed_on {
                return ctx.tally.drop(DropReason::ForeignIndex);
            }
            return ctx
                .reports
                .hand_over(owner, &datagram.header, bytes, &mut ctx.tally);
        }
        let Some(session) = ctx.cache.get(&ctx.tables, lane) else {
            return ctx.tally.drop(DropReason::UnknownIndex);
        };
        if session.local_index != header.receiver {
            return ctx.tally.drop(DropReason::UnknownIndex);
        }
        if !alive(session, &ctx.constants, ctx.now)
            || header.counter >= ctx.constants.reject_after_messages
        {
            return ctx.tally.drop(DropReason::KeyExpired);
        }
        let window = window(&ctx.tables.lanes, lane);
        if !window.check(header.counter) {
            return ctx.tally.drop(DropReason::Replay);
        }
        let opened = session
            .opening
            .open(nonce(header.counter), &[], &mut bytes[HEADER..]);
        if opened.is_err() {
            return ctx.tally.drop(DropReason::Decrypt);
        }
        if !window.accept(header.counter) {
            return ctx.tally.drop(DropReason::Replay);
        }
        let same =
            matches!(run, Some(run) if run.lane == lane && run.local_index == header.receiver);
        if !same {
            let begun = Run {
                lane,
                local_index: header.receiver,
                peer: session.peer,
                path: match ctx.tables.path(session.peer) {
                    Some(path) if path.incarnation == session.incarnation => path,
                    _ => return ctx.tally.drop(DropReason::UnknownIndex),
                },
                bytes: 0,
                packets: 0,
                empty: 0,
                newest: header.counter,
                from: endpoint(&datagram.header),
                last_minute: session.initiator
                    && ctx.now.since(session.born) >= ctx.constants.last_minute(),
            };
            if let Some(ended) = run.replace(begun) {
                if let Some(expected) = ctx.settle(&ended) {
                    self.held.expect(expected, ctx.now);
                }
            }
        }
        let Some(run) = run else {
            return;
        };
        run.bytes += datagram.length as u64;
        run.packets += 1;
        self.disordered |= header.counter < run.newest;
        if header.counter >= run.newest {
            run.newest = header.counter;
            run.from = endpoint(&datagram.header);
        }
        let length = datagram.length - HEADER - TAG;
        if length == 0 {
            run.empty += 1;
            return;
        }
        let peer = run.peer;
        let start = datagram.start + HEADER;
        let packet = &mut self.buffer[start..start + length];
        match admit(ctx, &mut self.source, peer, packet, datagram.header.ecn) {
            Ok(length) => self.opened.push(Opened {
                start,
                length,
                shard,
                peer,
                lane,
                counter: header.counter,
            }),
            Err(reason) => ctx.tally.drop(reason),
        }
    }

    /// Puts each lane's packets in the order of their numbers; the lanes stay in the order in which
    /// they came up, since a peer's next session follows its last.
    fn sort(&mut self) {
        let mut lanes: Vec<LaneSlot> = Vec::new();
        for opened in &self.opened {
            if !lanes.contains(&opened.lane) {
                lanes.push(opened.lane);
            }
        }
        self.opened.sort_by_key(|opened| {
            let lane = lanes.iter().position(|lane| *lane == opened.lane);
            (lane, opened.counter)
        });
    }

    /// Writes what was opened. True: the interface is gone.
    fn deliver(&mut self, ctx: &mut Context, tuns: &[Queue]) -> bool {
        if self.disordered {
            self.sort();
        }
        let holds = self.holds();
        for opened in &self.opened {
            let (start, end) = (opened.start, opened.start + opened.length);
            let packet = &self.buffer[start..end];
            if holds && self.held.hold(opened.peer, opened.shard, packet) {
                continue;
            }
            // The header of the interface takes the place of the message's.
            let frame = &mut self.buffer[start - VNET_HEADER..end];
            frame[..VNET_HEADER].fill(0);
            if write(ctx, tuns, opened.shard, frame) {
                return true;
            }
        }
        self.opened.clear();
        false
    }
}

/// Writes one frame to its shard's queue. True: the interface is gone.
fn write(ctx: &mut Context, tuns: &[Queue], shard: ShardId, frame: &[u8]) -> bool {
    let Some(queue) = tuns.get(shard.index()) else {
        ctx.tally.drop(DropReason::TunWrite);
        return false;
    };
    ctx.tally.tun_write_calls += 1;
    match queue.write(frame) {
        Ok(()) => ctx.tally.tun_tx_packets += 1,
        Err(TunError::Gone) => return true,
        Err(TunError::Down) => ctx.tally.drop(DropReason::LinkDown),
        Err(TunError::Full | TunError::Refused(_)) => ctx.tally.drop(DropReason::TunWrite),
    }
    false
}

/// Where what is known of a socket stands.
fn place(group: u8, shard: ShardId) -> usize {
    usize::from(group) * usize::from(SHARDS_MAX) + shard.index()
}

/// Whether an opened packet may pass, and its length without padding.
fn admit(
    ctx: &Context,
    source: &mut Option<(IpAddr, Option<PeerSlot>)>,
    peer: PeerSlot,
    packet: &mut [u8],
    outer_ecn: u8,
) -> Result<usize, DropReason> {
    let inner = inner::parse(packet).map_err(|error| match error {
        InnerError::NotIp => DropReason::NotIp,
        InnerError::Truncated => DropReason::InnerTruncated,
    })?;
    let owner = match *source {
        Some((address, owner)) if address == inner.source => owner,
        _ => {
            let owner = ctx.tables.route(inner.source);
            *source = Some((inner.source, owner));
            owner
        }
    };
    if owner != Some(peer) {
        return Err(DropReason::ForgedSource);
    }
    match ecn::decapsulate(inner.ecn, outer_ecn) {
        Decapsulated::Keep => {}
        Decapsulated::Set(field) => ecn::set(packet, field),
        Decapsulated::Drop => return Err(DropReason::EcnDrop),
    }
    Ok(inner.length)
}

fn endpoint(header: &PacketHeader) -> Endpoint {
    Endpoint {
        remote: header.remote,
        local: header.local,
        ifindex: header.ifindex,
    }
}

/// Whether two endpoints are one. An address of the kernel's choice carries no flow label, and one
/// without a device stands for any: no route back uses the one that the peer is heard by.
pub(super) fn same_endpoint(known: &Endpoint, seen: &Endpoint) -> bool {
    let remote = match (known.remote, seen.remote) {
        (SocketAddr::V6(one), SocketAddr::V6(other)) => {
            one.ip() == other.ip()
                && one.port() == other.port()
                && one.scope_id() == other.scope_id()
        }
        (one, other) => one == other,
    };
    remote && known.local == seen.local && (known.ifindex == seen.ifindex || known.ifindex == 0)
}

impl Context {
    /// Counts a run and tells meta what it showed; what meta will change by it, if anything.
    fn settle(&mut self, run: &Run) -> Option<Expected> {
        let &Run {
            lane,
            local_index,
            peer,
            path,
            ..
        } = run;
        let traffic = self.tables.rings.traffic(peer);
        traffic.rx_bytes.fetch_add(run.bytes, Ordering::Relaxed);
        traffic.rx_packets.fetch_add(run.packets, Ordering::Relaxed);
        self.tally.rx_bytes += run.bytes;
        self.tally.rx_packets += run.packets;
        self.tally.keepalives_received += run.empty;
        self.received(peer, &path, run.packets > run.empty);
        let confirmed = self.confirm(lane, local_index, &path);
        let mut moved = false;
        if !path
            .endpoint
            .is_some_and(|known| same_endpoint(&known, &run.from))
        {
            let event = Event::Roamed {
                lane,
                local_index,
                counter: run.newest,
                endpoint: run.from,
            };
            let (user, now) = ((peer, path.incarnation), self.now);
            moved = self
                .reports
                .raise(Throttled::Roamed, user, event, now, &mut self.tally);
        }
        if run.last_minute {
            self.rekey_due((peer, path.incarnation), lane, local_index, true);
        }
        (confirmed || moved).then_some(Expected {
            peer,
            incarnation: path.incarnation,
            lane: confirmed.then_some(lane),
            endpoint: moved.then_some(run.from),
        })
    }

    /// The first message on a session that the peer began shows that it has the key too. True:
    /// meta is told now.
    fn confirm(&mut self, lane: LaneSlot, local_index: u32, path: &PeerPath) -> bool {
        let Some(session) = self.cache.get(&self.tables, lane) else {
            return false;
        };
        if session.initiator || session.confirmed || session.local_index != local_index {
            return false;
        }
        if path.lane == Some(lane) {
            session.confirmed = true;
            return false;
        }
        let event = Event::Confirmed { lane, local_index };
        session.confirmed = self.reports.push(event, &mut self.tally);
        session.confirmed
    }
}
