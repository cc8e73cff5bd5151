//! What becomes of each packet: dropped, kept for a session, answered, cut, or put in the row to
//! be sealed.

use super::{Egress, ORDERS, Planned, Way};
use crate::offload::split::Split;
use crate::path::Context;
use crate::path::narrow::{Fit, fit};
use crate::tun::{Queue, VNET_HEADER};
use crate::udp::group::Groups;
use ringway_proto::{ecn, fragment, too_big};
use ringway_shm::counters::DropReason;
use ringway_shm::ids::{LaneSlot, PeerSlot, ShardId};

/// The packets of a frame and the queue that it came from.
type Packets<'a> = (&'a Split<'a>, ShardId);

impl Egress {
    /// Does what meta ordered: keepalives, and packets that waited for a session. Before anything
    /// else, which may fill the arena.
    pub(crate) fn order(&mut self, ctx: &mut Context, groups: &Groups, tuns: &[Queue]) {
        while self.used < ORDERS {
            let Some(keepalive) = self.keepalives.pop() else {
                break;
            };
            self.plan_keepalive(ctx, groups, keepalive);
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
        (lane, local_index): (LaneSlot, u32),
    ) {
        let peer = match ctx.cache.get(&ctx.tables, lane) {
            Some(session) if session.local_index == local_index => session.peer,
            _ => return,
        };
        let Some(way) = self.way(ctx, groups, peer) else {
            return;
        };
        if let Some(start) = self.place(0) {
            self.planned.push(Planned {
                start,
                length: 0,
                padded: 0,
                shard: ctx.tables.home(lane),
                ecn: 0,
                fragment: false,
                lane,
                way,
            });
        }
    }

    /// Finds out what is to become of a frame's packets from number `from` on. Returns the first
    /// that found no room, or their count.
    pub(super) fn consider(
        &mut self,
        ctx: &mut Context,
        groups: &Groups,
        tuns: &[Queue],
        packets: Packets<'_>,
        from: usize,
    ) -> usize {
        let (split, _) = packets;
        let count = split.count();
        let drop = |ctx: &mut Context, reason| {
            ctx.tally.drops(reason, (count - from) as u64);
            count
        };
        let Some(peer) = ctx.tables.route(split.inner.destination) else {
            return drop(ctx, DropReason::NoRoute);
        };
        let Some(number) = self.way(ctx, groups, peer) else {
            return drop(ctx, DropReason::NoRoute);
        };
        let way = &self.ways[number];
        if ctx.is_looped(&split.inner, split.packet(), (peer, &way.path), groups) {
            return drop(ctx, DropReason::Loop);
        }
        if way.path.endpoint.is_none() {
            ctx.need_handshake(peer, way.path.incarnation);
            return drop(ctx, DropReason::NoEndpoint);
        }
        if way.lane.is_some() && !self.staging.is_empty() {
            self.unstage(ctx, tuns, number);
        }
        if self.ways[number].lane.is_none() || self.staging.waits(peer) {
            self.stage(ctx, number, packets, from);
            return count;
        }
        self.plan(ctx, tuns, number, packets, from)
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

    /// Keeps packets until there is a session, and asks for one.
    fn stage(&mut self, ctx: &mut Context, way: usize, (split, shard): Packets<'_>, from: usize) {
        let way = &self.ways[way];
        let incarnation = way.path.incarnation;
        for number in from..split.count() {
            let packet = &mut self.scratch[..split.length(number)];
            split.write(number, packet);
            let dropped = self.staging.push(way.peer, incarnation, packet, shard);
            if dropped > 0 {
                ctx.tally.drops(DropReason::StagedFull, dropped);
            }
        }
        if way.lane.is_none() && ctx.need_handshake(way.peer, incarnation) {
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
        loop {
            if self.used >= ORDERS {
                if self.staging.waits(peer) && !self.ready.contains(&peer) {
                    self.ready.push(peer);
                }
                return;
            }
            let Some(staged) = self.staging.pop(peer, incarnation) else {
                break;
            };
            if let Ok(split) = Split::whole(&staged.bytes) {
                if self.plan(ctx, tuns, number, (&split, staged.shard), 0) == 0 {
                    ctx.tally.drop(DropReason::TooBig);
                }
            }
            self.staging.give_back(staged.bytes);
        }
        // What is left was for a former peer of this slot.
        let old = self.staging.purge(peer);
        if old > 0 {
            ctx.tally.drops(DropReason::StagedPurged, old);
        }
    }

    /// Puts packets, from number `from` on, in the row to be sealed, if they fit the path. Returns
    /// the first that found no room, or their count.
    fn plan(
        &mut self,
        ctx: &mut Context,
        tuns: &[Queue],
        number: usize,
        (split, shard): Packets<'_>,
        from: usize,
    ) -> usize {
        let way = &self.ways[number];
        let (count, path) = (split.count(), way.path);
        let Some(lane) = way.lane else {
            return count;
        };
        let mtu = usize::from(ctx.tables.state.interface_mtu());
        let mut planned = Planned {
            start: 0,
            length: 0,
            padded: 0,
            shard,
            ecn: ecn::encapsulate(split.inner.ecn),
            fragment: false,
            lane,
            way: number,
        };
        let mut how = None;
        for packet in from..count {
            let length = split.length(packet);
            // All but the last are equally long.
            if planned.length != length || how.is_none() {
                planned.length = length;
                how = Some(fit(length, Some(&split.inner), &path, mtu));
            }
            let room = match how {
                Some(Fit::Padded(padded)) => self.put(split, packet, Planned { padded, ..planned }),
                Some(Fit::Outside(padded)) => {
                    let fragment = true;
                    self.put(
                        split,
                        packet,
                        Planned {
                            padded,
                            fragment,
                            ..planned
                        },
                    )
                }
                Some(Fit::Cut(limit)) => self.cut(ctx, split, packet, planned, limit),
                Some(Fit::Refuse(limit)) => {
                    ctx.tally.drop(DropReason::TooBig);
                    // One answer says it for all that are as long.
                    if packet == from || packet + 1 == count {
                        self.refuse(ctx, tuns, (split, shard), packet, limit);
                    }
                    true
                }
                None => true,
            };
            if !room {
                return packet;
            }
        }
        count
    }

    /// Writes a packet into the arena. False: there is no room.
    fn put(&mut self, split: &Split<'_>, number: usize, planned: Planned) -> bool {
        let Some(start) = self.place(planned.padded) else {
            return false;
        };
        split.write(number, &mut self.arena[start..start + planned.length]);
        self.planned.push(Planned { start, ..planned });
        true
    }

    /// Cuts an IPv4 packet into fragments, each of which is sealed on its own. False: there is no
    /// room for all of them.
    fn cut(
        &mut self,
        ctx: &mut Context,
        split: &Split<'_>,
        number: usize,
        whole: Planned,
        limit: usize,
    ) -> bool {
        let mut scratch = std::mem::take(&mut self.scratch);
        let packet = &mut scratch[..whole.length];
        split.write(number, packet);
        let room = self.put_pieces(ctx, packet, whole, limit);
        self.scratch = scratch;
        room
    }

    fn put_pieces(
        &mut self,
        ctx: &mut Context,
        packet: &[u8],
        whole: Planned,
        limit: usize,
    ) -> bool {
        let Ok(mut pieces) = fragment::fragment(packet, limit) else {
            ctx.tally.drop(DropReason::TooBig);
            return true;
        };
        let before = (self.used, self.planned.len());
        loop {
            let used = self.used;
            let Some(start) = self.place(limit) else {
                // Half a packet is of no use to anybody.
                self.used = before.0;
                self.planned.truncate(before.1);
                if before.0 > 0 {
                    return false;
                }
                ctx.tally.drop(DropReason::TooBig);
                return true;
            };
            self.used = used;
            let Some(length) = pieces.next_into(&mut self.arena[start..start + limit]) else {
                return true;
            };
            let padded = length.next_multiple_of(16).min(limit).max(length);
            self.place(padded);
            self.planned.push(Planned {
                start,
                length,
                padded,
                ..whole
            });
        }
    }

    /// Tells the sender of a packet how long one may be.
    fn refuse(
        &mut self,
        ctx: &mut Context,
        tuns: &[Queue],
        (split, shard): Packets<'_>,
        number: usize,
        limit: u16,
    ) {
        let Some(queue) = tuns.get(shard.index()) else {
            return;
        };
        if !ctx.too_big.take(ctx.now) {
            return;
        }
        let packet = &mut self.scratch[..split.length(number)];
        split.write(number, packet);
        let (header, room) = self.answer.split_at_mut(VNET_HEADER);
        header.fill(0);
        if let Ok(length) = too_big::answer(packet, limit, None, room) {
            ctx.tally.tun_write_calls += 1;
            if queue.write(&self.answer[..VNET_HEADER + length]).is_ok() {
                ctx.tally.tun_tx_packets += 1;
            }
        }
    }
}
