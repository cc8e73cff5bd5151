//! The loop: one turn after the other.
//!
//! A turn waits, reads the clock once, takes commands and handed-over datagrams, receives from
//! the sockets that are ready, reads the TUN queues that are, sends, and last shows what it
//! counted and wants to tell. Each source has a share of the turn.

mod sources;
mod supervisor;

use crate::clock::boot_time;
use crate::control::{self, FromWorker, GroupInfo};
use crate::event::epoll::Epoll;
use crate::event::{Interest, Poller, Token};
use crate::inlets::Inlets;
use crate::pace::Pace;
use crate::path::Context;
use crate::path::backlog::Backlog;
use crate::path::rx::Ingress;
use crate::path::tx::Egress;
use crate::run::WorkerError;
use crate::tun::Queue;
use crate::udp::group::Groups;
use ringway_proto::config::PollMode;
use ringway_proto::time::Instant;
use ringway_shm::counters::add;
use ringway_shm::doorbell::Doorbell;
use ringway_shm::ids::ShardId;
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
/// How often to look whether meta has stored what held packets wait for.
const HELD_WAIT: Duration = Duration::from_micros(100);
/// How long to wait when the kernel is out of buffers, or meta's ring is full.
const SHORT_WAIT: Duration = Duration::from_millis(1);

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
    backlog: Backlog,
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
    /// Which TUN queue is first in turn.
    rotation: usize,
    /// The last turn found work: its time counts as busy.
    busy: bool,
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
            backlog: Backlog::new(),
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
            rotation: 0,
            busy: false,
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
        let slept = self.rest(wait)?;
        let now = boot_time();
        if self.busy && !slept {
            self.count_busy(now);
        }
        self.parts.ctx.now = now;
        if slept && self.stall.is_none() {
            self.backlog.rested(now);
        }
        let tables = &self.parts.ctx.tables;
        let process = tables.rings.process(Role::Worker(tables.slot));
        process.online(tables.state.epoch());
        let mut turn = Turn::default();
        self.take_commands(&mut turn);
        self.take_datagrams(&mut turn);
        self.take_events(&mut turn)?;
        self.read_tuns(&mut turn)?;
        self.send(&mut turn)?;
        turn.more |= self.egress.is_idle() && !self.backlog.is_empty();
        self.chores()?;
        self.publish(turn);
        self.busy = turn.worked;
        Ok(turn)
    }

    /// Counts the time since the last turn began.
    fn count_busy(&self, now: Instant) {
        let tables = &self.parts.ctx.tables;
        let process = tables.rings.process(Role::Worker(tables.slot));
        let time = now.since(self.parts.ctx.now);
        add(&process.busy_ns, time.as_nanos() as u64);
    }

    /// Waits for something to do; true: it slept. Before a sleep the rings are looked at once more,
    /// after the word that says so was stored: who writes into one afterwards sees it and rings.
    fn rest(&mut self, wait: Duration) -> Result<bool, WorkerError> {
        let tables = &self.parts.ctx.tables;
        let process = tables.rings.process(Role::Worker(tables.slot));
        self.parts.ctx.tally.wait_calls += 1;
        let mut sleeps = !wait.is_zero();
        if sleeps {
            process.about_to_sleep();
            sleeps = self.parts.inlets.are_empty();
        }
        if sleeps {
            if self.busy {
                self.count_busy(boot_time());
            }
            process.offline();
        }
        let result = self
            .poller
            .wait(Some(if sleeps { wait } else { Duration::ZERO }));
        process.awake();
        result.map_err(system("wait for events"))?;
        Ok(sleeps)
    }

    /// Whether packets wait for what meta does.
    pub(crate) fn holds(&self) -> bool {
        self.ingress.holds()
    }

    /// How long a sleep may last.
    fn longest_wait(&self) -> Duration {
        if self.holds() {
            return HELD_WAIT;
        }
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

    /// What need not be done every turn.
    fn chores(&mut self) -> Result<(), WorkerError> {
        let now = self.parts.ctx.now;
        if now < self.chores_at {
            return Ok(());
        }
        self.chores_at = now + CHORES;
        self.parts.ctx.sweep();
        self.remind();
        if !self.failing.is_empty() {
            self.failing.clear();
            self.watch_tuns()?;
        }
        Ok(())
    }

    /// Tells meta again what it may have missed.
    pub(crate) fn remind(&mut self) {
        self.egress.remind(&mut self.parts.ctx);
    }

    /// Shows what was counted and wakes who was written to: once a turn.
    fn publish(&mut self, turn: Turn) {
        let ctx = &mut self.parts.ctx;
        ctx.reports.publish(&mut ctx.tally);
        ctx.tally
            .publish(ctx.tables.rings.counters(ctx.tables.slot));
        let process = ctx.tables.rings.process(Role::Worker(ctx.tables.slot));
        process.heartbeat_ns.store(ctx.now.0, Ordering::Relaxed);
        if turn.worked {
            add(&process.turns, 1);
        }
    }
}

fn system(what: &'static str) -> impl FnOnce(io::Error) -> WorkerError {
    move |error| WorkerError::System { what, error }
}
