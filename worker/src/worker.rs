//! The loop: one turn after the other.
//!
//! A turn waits, reads the clock once, takes commands and handed-over datagrams, receives from
//! the sockets that are ready, reads the TUN queues that are, sends, and last shows what it
//! counted and wants to tell. Each source has a share of the turn.

use crate::clock::boot_time;
use crate::control::{self, FromWorker, GroupInfo, Received, ToWorker};
use crate::event::epoll::Epoll;
use crate::event::{Interest, Poller, Token};
use crate::inlets::{Inlets, Popped};
use crate::pace::Pace;
use crate::path::Context;
use crate::path::rx::{Filled, Ingress};
use crate::path::tx::{Drained, Egress};
use crate::run::WorkerError;
use crate::tun::Queue;
use crate::udp::group::Groups;
use crate::udp::outbox::Flushed;
use ringway_proto::config::PollMode;
use ringway_proto::time::Instant;
use ringway_shm::counters::{DropReason, add};
use ringway_shm::doorbell::Doorbell;
use ringway_shm::ids::ShardId;
use ringway_shm::messages::Command;
use ringway_shm::rings::Role;
use ringway_shm::sync::Ordering;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

/// The longest sleep: the heartbeat's interval.
const HEARTBEAT: Duration = Duration::from_millis(500);
/// How often retired keys are looked for and failing queues tried again.
const CHORES: Duration = Duration::from_secs(1);
/// How long to wait for a socket that is full, if it doesn't say sooner that it can be written.
const FULL_WAIT: Duration = Duration::from_millis(10);
/// How long to wait when the kernel is out of buffers, or meta's ring is full.
const SHORT_WAIT: Duration = Duration::from_millis(1);
/// Packets of all TUN queues a turn, shared out evenly.
const TUN_SHARE: usize = 256;
/// The least that a ready queue gets of that.
const TUN_LEAST: usize = 16;
/// Commands a turn.
const COMMANDS: usize = 256;
/// Batches read from each socket that is about to be closed.
const LAST_BATCHES: usize = 16;

/// Why a worker ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// It was told to.
    Stopped,
    /// The supervisor is gone.
    SupervisorGone,
    /// The interface was deleted.
    InterfaceGone,
}

/// What a worker is made of.
pub(crate) struct Parts {
    pub(crate) control: OwnedFd,
    pub(crate) doorbell: Doorbell,
    pub(crate) tuns: Vec<Queue>,
    pub(crate) inlets: Inlets,
    pub(crate) ctx: Context,
}

/// What a descriptor is to the loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Source {
    Control,
    Doorbell,
    Tun(ShardId),
    Udp(u8, ShardId),
}

/// Sockets on their way in, part by part.
struct Incoming {
    generation: u32,
    groups: Vec<GroupInfo>,
    fds: Vec<OwnedFd>,
    part: u16,
}

/// Why nothing is read from the TUN queues at the moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stall {
    Full(u8, ShardId),
    NoBuffers,
}

/// What a turn found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Turn {
    /// There was something to do.
    pub(crate) worked: bool,
    /// There is more.
    pub(crate) more: bool,
    end: Option<End>,
}

/// A worker.
pub(crate) struct Worker {
    parts: Parts,
    poller: Epoll<Source>,
    egress: Egress,
    ingress: Ingress,
    groups: Groups,
    udp_tokens: Vec<(Token, u8, ShardId)>,
    tun_tokens: Vec<(Token, ShardId)>,
    incoming: Option<Incoming>,
    /// TUN queues with something to read, by shard.
    readable: Vec<ShardId>,
    /// TUN queues that fail and are left alone until the next chores.
    failing: Vec<ShardId>,
    stall: Option<Stall>,
    chores_at: Instant,
    turns: usize,
}

impl Worker {
    pub(crate) fn new(parts: Parts) -> Result<Worker, WorkerError> {
        let mut poller = Epoll::new().map_err(system("create the event queue"))?;
        poller
            .add(parts.control.as_fd(), Interest::READ, Source::Control)
            .map_err(system("watch the control channel"))?;
        poller
            .add(parts.doorbell.as_fd(), Interest::READ, Source::Doorbell)
            .map_err(system("watch the doorbell"))?;
        let mut tun_tokens = Vec::new();
        for (i, queue) in parts.tuns.iter().enumerate() {
            let shard = ShardId(i as u8);
            if parts.ctx.tables.owns(shard) {
                let token = poller
                    .add(queue.as_fd(), Interest::READ, Source::Tun(shard))
                    .map_err(system("watch a TUN queue"))?;
                tun_tokens.push((token, shard));
            }
        }
        Ok(Worker {
            parts,
            poller,
            egress: Egress::new(),
            ingress: Ingress::new(),
            groups: Groups::default(),
            udp_tokens: Vec::new(),
            tun_tokens,
            incoming: None,
            readable: Vec::new(),
            failing: Vec::new(),
            stall: None,
            chores_at: Instant(0),
            turns: 0,
        })
    }

    /// Tells the supervisor something.
    pub(crate) fn say(&self, message: &FromWorker) -> Result<(), WorkerError> {
        control::send(self.parts.control.as_fd(), message, &[])
            .map_err(system("answer the supervisor"))
    }

    /// Turns until there is a reason to end.
    pub(crate) fn run(&mut self, mode: PollMode) -> Result<End, WorkerError> {
        let mut pace = Pace::new(mode);
        let mut wait = Duration::ZERO;
        loop {
            let before = self.parts.ctx.now;
            let slept = !wait.is_zero();
            let turn = self.turn(wait)?;
            if let Some(end) = turn.end {
                return Ok(end);
            }
            let now = self.parts.ctx.now;
            if slept && turn.worked {
                pace.slept(now.since(before));
            }
            wait = if turn.more || pace.look_again(turn.worked, now) {
                Duration::ZERO
            } else {
                self.longest_wait()
            };
        }
    }

    /// One turn, which begins with a sleep of at most `wait`.
    pub(crate) fn turn(&mut self, wait: Duration) -> Result<Turn, WorkerError> {
        self.rest(wait)?;
        self.parts.ctx.now = boot_time();
        let tables = &self.parts.ctx.tables;
        let process = tables.rings.process(Role::Worker(tables.slot));
        process.online(tables.state.epoch());
        let mut turn = Turn::default();
        self.take_commands(&mut turn);
        self.take_datagrams(&mut turn);
        self.take_events(&mut turn)?;
        self.read_tuns(&mut turn)?;
        self.send(&mut turn)?;
        self.chores()?;
        self.publish(turn);
        Ok(turn)
    }

    /// Waits for something to do. Before a sleep the rings are looked at once more, after the
    /// word that says so was stored: who writes into one afterwards sees it and rings.
    fn rest(&mut self, wait: Duration) -> Result<(), WorkerError> {
        let tables = &self.parts.ctx.tables;
        let process = tables.rings.process(Role::Worker(tables.slot));
        self.parts.ctx.tally.wait_calls += 1;
        if wait.is_zero() {
            return self
                .poller
                .wait(Some(Duration::ZERO))
                .map_err(system("wait for events"));
        }
        process.about_to_sleep();
        if !self.parts.inlets.are_empty() {
            process.awake();
            return self
                .poller
                .wait(Some(Duration::ZERO))
                .map_err(system("wait for events"));
        }
        add(&process.busy_ns, boot_time().0.saturating_sub(self.parts.ctx.now.0));
        process.offline();
        let result = self.poller.wait(Some(wait));
        process.awake();
        result.map_err(system("wait for events"))
    }

    /// How long a sleep may last.
    fn longest_wait(&self) -> Duration {
        if self.parts.ctx.reports.has_unsent() {
            return SHORT_WAIT;
        }
        match self.stall {
            Some(Stall::Full(..)) => FULL_WAIT,
            Some(Stall::NoBuffers) => SHORT_WAIT,
            None if self.egress.has_orders() => Duration::ZERO,
            None => HEARTBEAT,
        }
    }

    /// Does what meta says.
    fn take_commands(&mut self, turn: &mut Turn) {
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
                Command::SessionReady { peer } => self.egress.session_ready(peer),
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

    /// Opens what others received for us.
    fn take_datagrams(&mut self, turn: &mut Turn) {
        let Parts {
            inlets, ctx, tuns, ..
        } = &mut self.parts;
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
    fn take_events(&mut self, turn: &mut Turn) -> Result<(), WorkerError> {
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
                    if ready.readable {
                        self.receive(group, shard, turn);
                    }
                }
            }
        }
        Ok(())
    }

    fn receive(&mut self, group: u8, shard: ShardId, turn: &mut Turn) {
        let Some((socket, _)) = self.groups.socket(group, shard) else {
            return;
        };
        let Parts { ctx, tuns, .. } = &mut self.parts;
        turn.more |= self.ingress.receive(ctx, socket, group, shard) == Filled::Part;
        if self.ingress.work(ctx, tuns) {
            turn.end = Some(End::InterfaceGone);
        }
    }

    /// Reads the queues that have something, the first of them another one each turn, and seals.
    fn read_tuns(&mut self, turn: &mut Turn) -> Result<(), WorkerError> {
        if !self.egress.is_idle() {
            return Ok(());
        }
        let count = self.readable.len();
        let share = (TUN_SHARE / count.max(1)).max(TUN_LEAST);
        self.turns = self.turns.wrapping_add(1);
        for i in 0..count {
            let shard = self.readable[(self.turns + i) % count];
            let Some(queue) = self.parts.tuns.get(shard.index()) else {
                continue;
            };
            match self.egress.read(&mut self.parts.ctx, queue, shard, share) {
                Drained::All => {}
                Drained::Part => turn.more = true,
                Drained::Gone => turn.end = Some(End::InterfaceGone),
                Drained::Failing => {
                    self.failing.push(shard);
                    self.watch_tuns()?;
                }
            }
        }
        if count > 0 || self.egress.has_orders() {
            turn.worked = true;
            let Parts { ctx, tuns, .. } = &mut self.parts;
            self.egress.work(ctx, &self.groups, tuns);
        }
        Ok(())
    }

    /// Sends what is sealed. While a socket is full the TUN queues are not read, and not watched
    /// either, since a level-triggered report that nobody acts on is a spin.
    fn send(&mut self, turn: &mut Turn) -> Result<(), WorkerError> {
        if self.egress.is_idle() {
            return Ok(());
        }
        turn.worked = true;
        let stall = match self.egress.flush(&mut self.parts.ctx, &self.groups) {
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

    /// What need not be done every turn.
    fn chores(&mut self) -> Result<(), WorkerError> {
        let now = self.parts.ctx.now;
        if now < self.chores_at {
            return Ok(());
        }
        self.chores_at = now + CHORES;
        self.parts.ctx.sweep();
        if !self.failing.is_empty() {
            self.failing.clear();
            self.watch_tuns()?;
        }
        Ok(())
    }

    /// Shows what was counted and wakes who was written to: once a turn.
    fn publish(&mut self, turn: Turn) {
        let ctx = &mut self.parts.ctx;
        ctx.reports.publish(&mut ctx.tally);
        ctx.tally.publish(ctx.tables.rings.counters(ctx.tables.slot));
        let process = ctx.tables.rings.process(Role::Worker(ctx.tables.slot));
        process.heartbeat_ns.store(ctx.now.0, Ordering::Relaxed);
        if turn.worked {
            add(&process.turns, 1);
        }
    }

    /// Hears the supervisor.
    fn take_control(&mut self, turn: &mut Turn) -> Result<(), WorkerError> {
        loop {
            match control::receive(self.parts.control.as_fd()) {
                Ok(Received::Message(ToWorker::Stop, _)) => {
                    turn.end = Some(End::Stopped);
                    return Ok(());
                }
                Ok(Received::Message(
                    ToWorker::Sockets {
                        generation,
                        groups,
                        part,
                        parts,
                    },
                    fds,
                )) => self.take_part(generation, groups, part, parts, fds)?,
                Ok(Received::Empty) => return Ok(()),
                Ok(Received::Closed) => {
                    turn.end = Some(End::SupervisorGone);
                    return Ok(());
                }
                Err(error) => return Err(system("hear the supervisor")(error)),
            }
        }
    }

    /// Collects the parts of a new set of sockets and takes it when it is whole.
    fn take_part(
        &mut self,
        generation: u32,
        groups: Vec<GroupInfo>,
        part: u16,
        parts: u16,
        fds: Vec<OwnedFd>,
    ) -> Result<(), WorkerError> {
        let mut incoming = match self.incoming.take() {
            Some(incoming) if incoming.generation == generation && incoming.part == part => incoming,
            _ if part == 0 => Incoming {
                generation,
                groups,
                fds: Vec::new(),
                part: 0,
            },
            _ => {
                return Err(WorkerError::Settings(format!(
                    "part {part} of sockets {generation} came out of order"
                )));
            }
        };
        incoming.fds.extend(fds);
        incoming.part += 1;
        if incoming.part < parts {
            self.incoming = Some(incoming);
            return Ok(());
        }
        let shards = self.parts.ctx.tables.geometry.shards;
        let count = incoming.fds.len();
        let Some(groups) = Groups::new(incoming.groups, incoming.fds, shards) else {
            return Err(WorkerError::Settings(format!(
                "{count} sockets of generation {generation}: expected {shards} a group"
            )));
        };
        self.replace_groups(groups)?;
        self.say(&FromWorker::SocketsTaken { generation })
    }

    /// Empties the former sockets, then uses the new ones.
    fn replace_groups(&mut self, groups: Groups) -> Result<(), WorkerError> {
        let _ = self.egress.flush(&mut self.parts.ctx, &self.groups);
        self.egress.give_up(&mut self.parts.ctx);
        for (token, group, shard) in std::mem::take(&mut self.udp_tokens) {
            let Some((socket, _)) = self.groups.socket(group, shard) else {
                continue;
            };
            self.poller
                .remove(token, socket)
                .map_err(system("leave a socket"))?;
            let mut turn = Turn::default();
            for _ in 0..LAST_BATCHES {
                turn.more = false;
                self.receive(group, shard, &mut turn);
                if !turn.more {
                    break;
                }
            }
        }
        self.groups = groups;
        self.ingress.forget_sockets();
        self.stall = None;
        self.watch_tuns()?;
        for group in 0..self.groups.len() {
            for shard in (0..self.parts.ctx.tables.geometry.shards).map(ShardId) {
                if !self.parts.ctx.tables.owns(shard) {
                    continue;
                }
                let Some((socket, _)) = self.groups.socket(group, shard) else {
                    continue;
                };
                let token = self
                    .poller
                    .add(socket, Interest::READ, Source::Udp(group, shard))
                    .map_err(system("watch a socket"))?;
                self.udp_tokens.push((token, group, shard));
            }
        }
        Ok(())
    }

    /// Waits for the TUN queues that may be read at the moment, and for no others.
    fn watch_tuns(&mut self) -> Result<(), WorkerError> {
        for (token, shard) in &self.tun_tokens {
            let Some(queue) = self.parts.tuns.get(shard.index()) else {
                continue;
            };
            let wanted = self.stall.is_none() && !self.failing.contains(shard);
            let interest = if wanted { Interest::READ } else { Interest::NONE };
            self.poller
                .change(*token, queue.as_fd(), interest)
                .map_err(system("watch a TUN queue"))?;
        }
        Ok(())
    }

    fn watch_socket(&mut self, group: u8, shard: ShardId, interest: Interest) -> Result<(), WorkerError> {
        let found = self
            .udp_tokens
            .iter()
            .find(|(_, of, at)| (*of, *at) == (group, shard));
        match (found, self.groups.socket(group, shard)) {
            (Some((token, _, _)), Some((socket, _))) => self
                .poller
                .change(*token, socket, interest)
                .map_err(system("watch a socket")),
            _ => Ok(()),
        }
    }
}

fn system(what: &'static str) -> impl FnOnce(io::Error) -> WorkerError {
    move |error| WorkerError::System { what, error }
}
