//! Where a turn's work comes from: rings, sockets, TUN queues; each with its share.

use super::{End, Parts, Source, Stall, Turn, Worker};
use crate::event::{Interest, Poller};
use crate::inlets::Popped;
use crate::path::backlog::Drained;
use crate::path::rx::Filled;
use crate::run::WorkerError;
use crate::udp::outbox::Flushed;
use ringway_shm::counters::{DropReason, add};
use ringway_shm::ids::ShardId;
use ringway_shm::messages::Command;
use ringway_shm::rings::Role;

/// Commands a turn.
const COMMANDS: usize = 256;

impl Worker {
    /// Does what meta says.
    pub(super) fn take_commands(&mut self, turn: &mut Turn) {
        let commands = &mut self.parts.inlets.commands;
        let mut taken = 0;
        while taken < COMMANDS {
            let popped = commands.pop(Command::decode);
            if matches!(popped, Popped::Empty) {
                break;
            }
            taken += 1;
            let Popped::Record(Some(command)) = popped else {
                self.parts.ctx.tally.drop(DropReason::RingCorrupt);
                continue;
            };
            match command {
                Command::SessionReady { peer } => {
                    self.egress.session_ready(&mut self.parts.ctx, peer);
                }
                Command::DropStaged { peer } => self.egress.drop_staged(&mut self.parts.ctx, peer),
                Command::Keepalive { lane, local_index } => {
                    self.egress.keepalive(lane, local_index);
                }
                Command::CleanLane { lane } => self.parts.ctx.clean_lane(lane),
            }
        }
        if taken > 0 {
            commands.release();
            turn.worked = true;
            turn.more |= taken == COMMANDS;
        }
    }

    /// Opens what others received for us, after what was held back.
    pub(super) fn take_datagrams(&mut self, turn: &mut Turn) {
        let Parts {
            inlets, ctx, tuns, ..
        } = &mut self.parts;
        if self.ingress.release(ctx, tuns) {
            turn.end = Some(End::InterfaceGone);
        }
        for inlet in &mut inlets.packets {
            if inlet.is_empty() {
                continue;
            }
            turn.worked = true;
            turn.more |= self.ingress.take(ctx, inlet) == Filled::Part;
            if self.ingress.work(ctx, tuns) {
                turn.end = Some(End::InterfaceGone);
            }
        }
    }

    /// Goes through what the kernel says is ready.
    pub(super) fn take_events(&mut self, turn: &mut Turn) -> Result<(), WorkerError> {
        self.readable.clear();
        while let Some(ready) = self.poller.next() {
            turn.worked = true;
            match ready.source {
                Source::Control => self.take_control(turn)?,
                Source::Doorbell => {
                    self.parts.doorbell.clear();
                    let tables = &self.parts.ctx.tables;
                    add(&tables.rings.process(Role::Worker(tables.slot)).wakeups, 1);
                    // What it announced may have come after this turn's look at the rings.
                    turn.more |= !self.parts.inlets.are_empty();
                }
                // drivers/net/tun.c reports EPOLLERR for a queue without a device only.
                Source::Tun(_) if ready.failed => turn.end = Some(End::InterfaceGone),
                Source::Tun(shard) => self.readable.push(shard),
                Source::Udp(group, shard) => {
                    if ready.failed {
                        if let Some((socket, _)) = self.groups.socket(group, shard) {
                            self.egress.read_errors(&mut self.parts.ctx, socket);
                        }
                    }
                    // An error that found no room in the queue is told by the next call only.
                    if ready.readable || ready.failed {
                        self.receive(group, shard, turn);
                    }
                }
            }
        }
        Ok(())
    }

    pub(super) fn receive(&mut self, group: u8, shard: ShardId, turn: &mut Turn) {
        let Some((socket, _)) = self.groups.socket(group, shard) else {
            return;
        };
        let Parts { ctx, tuns, .. } = &mut self.parts;
        turn.more |= self.ingress.receive(ctx, socket, group, shard) == Filled::Part;
        if self.ingress.work(ctx, tuns) {
            turn.end = Some(End::InterfaceGone);
        }
    }

    /// Empties the queues that have something, the first of them another one each turn, and seals.
    pub(super) fn read_tuns(&mut self, turn: &mut Turn) -> Result<(), WorkerError> {
        if !self.egress.is_idle() {
            return Ok(());
        }
        let ordered = self.egress.has_orders();
        if ordered {
            let Parts { ctx, tuns, .. } = &mut self.parts;
            self.egress.order(ctx, &self.groups, tuns);
        }
        let count = self.readable.len();
        self.rotation = self.rotation.wrapping_add(1);
        for i in 0..count {
            let shard = self.readable[(self.rotation + i) % count];
            let Some(queue) = self.parts.tuns.get(shard.index()) else {
                continue;
            };
            match self.backlog.fill(&mut self.parts.ctx, queue, shard, count) {
                Drained::All => {}
                Drained::Part => turn.more = true,
                Drained::Gone => turn.end = Some(End::InterfaceGone),
                Drained::Failing => {
                    self.failing.push(shard);
                    self.watch_tuns()?;
                }
            }
        }
        if count > 0 || ordered || !self.backlog.is_empty() {
            turn.worked = true;
            let Parts { ctx, tuns, .. } = &mut self.parts;
            self.egress.work(ctx, &self.groups, tuns, &mut self.backlog);
        }
        Ok(())
    }

    /// Sends what is sealed. While a socket is full the TUN queues are not read, and not watched
    /// either, since a level-triggered report that nobody acts on is a spin.
    pub(super) fn send(&mut self, turn: &mut Turn) -> Result<(), WorkerError> {
        if self.egress.is_idle() {
            return Ok(());
        }
        turn.worked = true;
        let stall = match self.egress.flush(&mut self.parts.ctx, &mut self.groups) {
            Flushed::Done => None,
            Flushed::Full { group, shard } => Some(Stall::Full(group, shard)),
            Flushed::NoBuffers => Some(Stall::NoBuffers),
        };
        if stall == self.stall {
            return Ok(());
        }
        if let Some(Stall::Full(group, shard)) = self.stall {
            self.watch_socket(group, shard, Interest::READ)?;
        }
        if let Some(Stall::Full(group, shard)) = stall {
            self.watch_socket(group, shard, Interest::BOTH)?;
        }
        let changed = self.stall.is_some() != stall.is_some();
        self.stall = stall;
        if changed {
            self.watch_tuns()?;
            turn.more |= stall.is_none();
        }
        Ok(())
    }
}
