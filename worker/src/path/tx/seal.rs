//! Sealing in place, in runs of one lane.

use super::{Egress, Planned};
use crate::aead::{Key, TAG, nonce};
use crate::path::{Context, HEADER, alive};
use crate::reports::Throttled;
use crate::sys::mmsg::Outgoing;
use crate::udp::group::Groups;
use crate::udp::outbox::Via;
use ringway_proto::wire::DataHeader;
use ringway_shm::counters::DropReason;
use ringway_shm::ids::{LaneSlot, PeerSlot};
use ringway_shm::messages::Event;
use ringway_shm::state::PeerPath;
use ringway_shm::sync::Ordering;

impl Egress {
    /// Seals what is planned, in runs of one lane, and queues it for sending.
    pub(super) fn seal(&mut self, ctx: &mut Context, groups: &Groups) {
        let mut next = 0;
        while next < self.planned.len() {
            let first = self.planned[next];
            let same = |planned: &&Planned| planned.lane == first.lane && planned.way == first.way;
            let run = self.planned[next..].iter().take_while(same).count();
            self.seal_run(ctx, groups, next, next + run);
            next += run;
        }
        self.planned.clear();
        self.ways.clear();
    }

    fn seal_run(&mut self, ctx: &mut Context, groups: &Groups, from: usize, to: usize) {
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
            let &Planned {
                start,
                length,
                shard,
                ..
            } = planned;
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
                segment: 0,
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
            let rows = groups.takes_rows(group, shard);
            self.outbox.push(datagram, via, rows, ctx.now);
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
            ctx.rekey_due((peer, path.incarnation), lane, local_index, false);
        }
    }
}

impl Context {
    /// Whether a lane can seal for this peer: its session is there, is the peer's, and is neither
    /// too old nor used up.
    pub(super) fn can_send(&mut self, lane: LaneSlot, peer: PeerSlot, path: &PeerPath) -> bool {
        let Some(session) = self.cache.get(&self.tables, lane) else {
            return false;
        };
        session.peer == peer
            && session.incarnation == path.incarnation
            && alive(session, &self.constants, self.now)
            && self.tables.lanes.send_counter(lane) < self.constants.reject_after_messages
    }

    /// Tells meta that a session should be renewed.
    pub(in crate::path) fn rekey_due(
        &mut self,
        peer: (PeerSlot, u32),
        lane: LaneSlot,
        local_index: u32,
        last_minute: bool,
    ) {
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
