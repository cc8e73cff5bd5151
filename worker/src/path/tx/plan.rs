//! What becomes of each packet: dropped, kept for a session, answered, cut, or put in the row to
//! be sealed.

use super::{ALIGN, Egress, ORDERS, Packet, Planned, TAILROOM, Way};
use crate::path::narrow::{Fit, fit};
use crate::path::{Context, HEADER};
use crate::tun::{Queue, VNET_HEADER};
use crate::udp::group::Groups;
use ringway_proto::inner::{self, Inner, InnerError};
use ringway_proto::{ecn, fragment, too_big};
use ringway_shm::counters::DropReason;
use ringway_shm::ids::{LaneSlot, PeerSlot};

impl Egress {
    /// Does what meta ordered: keepalives, and packets that waited for a session. Before anything is
    /// read, which may fill the arena.
    pub(crate) fn order(&mut self, ctx: &mut Context, groups: &Groups, tuns: &[Queue]) {
        while let Some((lane, local_index)) = self.keepalives.pop() {
            let Some(start) = self.place(0) else {
                self.keepalives.push((lane, local_index));
                break;
            };
            self.plan_keepalive(ctx, groups, start, (lane, local_index));
        }
        for peer in std::mem::take(&mut self.ready) {
            if let Some(way) = self.way(ctx, groups, peer) {
                self.unstage(ctx, tuns, way);
            } else {
                self.drop_staged(ctx, peer);
            }
        }
    }

    fn plan_keepalive(
        &mut self,
        ctx: &mut Context,
        groups: &Groups,
        start: usize,
        (lane, local_index): (LaneSlot, u32),
    ) {
        let peer = match ctx.cache.get(&ctx.tables, lane) {
            Some(session) if session.local_index == local_index => session.peer,
            _ => return,
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
    pub(super) fn consider(
        &mut self,
        ctx: &mut Context,
        groups: &Groups,
        tuns: &[Queue],
        packet: Packet,
    ) {
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
        if way.lane.is_none() && ctx.need_handshake(way.peer, way.path.incarnation) {
            self.staging.told(way.peer);
        }
    }

    /// Plans the packets that waited for this way's peer, before any newer one.
    fn unstage(&mut self, ctx: &mut Context, tuns: &[Queue], number: usize) {
        let (peer, incarnation) = (self.ways[number].peer, self.ways[number].path.incarnation);
        if self.ways[number].lane.is_none() {
            if self.staging.waits(peer) && ctx.need_handshake(peer, incarnation) {
                self.staging.told(peer);
            }
            return;
        }
        while let Some(staged) = self.staging.front(peer, incarnation) {
            let length = staged.bytes.len();
            let Some(start) = self.place(length).filter(|_| self.used < ORDERS) else {
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
    fn plan(
        &mut self,
        ctx: &mut Context,
        tuns: &[Queue],
        number: usize,
        packet: Packet,
        inner: &Inner,
    ) {
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
}
