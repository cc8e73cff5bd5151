//! Meta's loop: one turn takes a bounded part of everything that waits, then sends what came of it.

mod arrivals;
mod attach;
pub(super) mod clients;
mod inbox;
mod watched;

use super::change::LimitReached;
use super::core::Core;
use super::flood::Flood;
use super::link::{Helper, Supervisor};
use super::reload::Reload;
use super::sockets::{self, Buffers, Sent, Socket};
use super::uapi::Server;
use super::{MetaError, MetaFds, MetaSettings};
use crate::channel::FromMeta;
use crate::helper::protocol::{HelperAnswer, Work};
use clients::Clients;
use nix::sys::epoll::{Epoll, EpollEvent, EpollFlags, EpollTimeout};
use nix::time::{ClockId, clock_gettime};
use ringway_proto::time::Instant;
use ringway_shm::counters::{DropReason, add};
use ringway_shm::doorbell::Doorbell;
use ringway_shm::ring::Consumer;
use ringway_shm::rings::{Rings, Role};
use ringway_shm::routes::PublishError;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Batches that one socket gives in a turn.
const BATCHES: usize = 8;
/// And while it pours: a turn takes all that came during the rest before it.
const FLOOD_BATCHES: usize = 64;
/// Events that one worker's ring gives in a turn.
const EVENTS: usize = 1024;
/// Datagrams that one worker's ring gives in a turn.
const DATAGRAMS: usize = 256;
/// Timers that fire in a turn.
const TIMERS: usize = 512;
/// Messages of the supervisor in a turn.
const MESSAGES: usize = 64;
/// How long handshakes are worked on in a turn.
const HANDSHAKES: Duration = Duration::from_millis(3);
/// The longest sleep: the heartbeat shows that meta is alive.
const SLEEP: Duration = Duration::from_secs(1);
/// How soon to look again at what only workers move on.
const SOON: Duration = Duration::from_millis(5);
/// How long the last commands may take: the supervisor waits 3 s for meta and the helper to end.
const LAST_COMMANDS: Duration = Duration::from_millis(1500);

const CONTROL: u64 = 0;
const DOORBELL: u64 = 1;
const HELPER: u64 = 2;
const UAPI: u64 = 3;
const SOCKETS: u64 = 1 << 16;
const CONNECTIONS: u64 = 1 << 32;

/// Runs meta until it is told to stop or its supervisor is gone.
pub(crate) fn run(fds: MetaFds, settings: MetaSettings) -> Result<(), MetaError> {
    let mut this = Loop::attach(fds, settings)?;
    while !this.stopping {
        this.turn()?;
    }
    this.end()
}

struct Loop {
    core: Core,
    epoll: Epoll,
    supervisor: Supervisor,
    helper: Helper,
    server: Server,
    sockets: Vec<Socket>,
    buffers: Buffers,
    doorbell: Doorbell,
    events: Vec<Consumer>,
    datagrams: Vec<Consumer>,
    rings: Rings,
    reload: Option<Reload>,
    /// The first configuration is applied and Ready not yet said.
    ready_due: bool,
    started: bool,
    stopping: bool,
    /// Whether to look again at once, or soon.
    again: bool,
    soon: bool,
    clients: Clients,
    helper_watched: EpollFlags,
    tidied: Instant,
    /// The workers' table has no room; not tried again before.
    full_until: Option<Instant>,
    flood: Flood,
    /// How long the last turn was at work.
    busy: Duration,
}

impl Loop {
    fn turn(&mut self) -> Result<(), MetaError> {
        let mut ready = [EpollEvent::empty(); 64];
        let count = self.wait(&mut ready)?;
        let (began, unix_ns) = clocks()?;
        self.core.set_time(began, unix_ns);
        self.again = false;
        self.soon = false;

        self.take_events();
        for event in &ready[..count] {
            self.serve(event.data(), event.events())?;
        }
        self.take_handed_over();
        self.work_off()?;
        self.fire();
        if self.server.apply(&mut self.core) {
            self.again = true;
        }
        self.tidy();
        self.publish()?;
        self.flush()?;
        self.heartbeat(began)
    }

    fn wait(&mut self, ready: &mut [EpollEvent]) -> Result<usize, MetaError> {
        let received = self
            .rings
            .meta_counters()
            .rx_packets
            .load(Ordering::Relaxed);
        if let Some(rest) = self.flood.rest(self.core.now, received, self.busy) {
            std::thread::sleep(rest);
        }
        let slot = self.rings.process(Role::Meta);
        slot.about_to_sleep();
        let waits = self.again
            || self
                .events
                .iter()
                .chain(&self.datagrams)
                .any(|ring| !ring.is_empty());
        let timeout = if waits {
            Duration::ZERO
        } else {
            let longest = if self.soon { SOON } else { SLEEP };
            self.core
                .timeout()
                .map_or(longest, |timeout| timeout.min(longest))
        };
        // Rounded up: woken a moment too early, nothing would be due.
        let milliseconds = timeout.as_nanos().div_ceil(1_000_000) as u16;
        let waited = self.epoll.wait(ready, EpollTimeout::from(milliseconds));
        slot.awake();
        match waited {
            Ok(count) => Ok(count),
            Err(nix::errno::Errno::EINTR) => Ok(0),
            Err(error) => Err(error.into()),
        }
    }

    fn serve(&mut self, what: u64, events: EpollFlags) -> Result<(), MetaError> {
        match what {
            CONTROL => self.take_messages(),
            DOORBELL => {
                self.doorbell.clear();
                add(&self.rings.process(Role::Meta).wakeups, 1);
                Ok(())
            }
            HELPER => self.take_answers(),
            UAPI => {
                self.clients
                    .accept(&self.epoll, &mut self.server, self.core.now);
                Ok(())
            }
            socket if socket < CONNECTIONS => {
                self.receive((socket - SOCKETS) as usize, events);
                Ok(())
            }
            connection => {
                let number = (connection - CONNECTIONS) as usize;
                self.server.ready(&mut self.core, number);
                self.clients.watch(&self.epoll, &mut self.server, number);
                Ok(())
            }
        }
    }

    fn fire(&mut self) {
        for fired in 0.. {
            if fired == TIMERS {
                self.again = true;
                break;
            }
            if !self.core.fire() {
                break;
            }
        }
    }

    /// What needs to be looked at only about once a second.
    fn tidy(&mut self) {
        if self.core.now.since(self.tidied) < SLEEP {
            return;
        }
        self.tidied = self.core.now;
        self.server.tidy(&mut self.core);
        for id in self.core.jobs.overdue(self.core.now) {
            self.answer(HelperAnswer {
                id,
                result: Err("the helper did not answer in time".into()),
            });
        }
    }

    fn publish(&mut self) -> Result<(), MetaError> {
        self.reload(Reload::go_on);
        // A transaction publishes at its end: half of it is nothing to go by.
        if !self.server.is_busy() && self.full_until.is_none_or(|until| until <= self.core.now) {
            self.full_until = None;
            match self.core.publish_routes() {
                Ok(()) => {}
                Err(PublishError::Busy) => self.soon = true,
                Err(PublishError::Full) if self.ready_due => {
                    return Err(MetaError::Routes(PublishError::Full));
                }
                Err(error @ PublishError::Full) => {
                    tracing::error!("the workers keep the former routes: {error}");
                    self.full_until = Some(self.core.now + SLEEP);
                }
            }
        }
        if self.core.grace() {
            self.soon = true;
        }
        self.soon |= self.server.is_busy();
        if self.ready_due && !self.core.routes_dirty() {
            self.ready_due = false;
            self.supervisor.queue([FromMeta::Ready]);
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), MetaError> {
        self.soon |= self.core.workers.flush();
        let outbox = std::mem::take(self.core.outbox());
        let counters = self.rings.meta_counters();
        for datagram in &outbox.datagrams {
            match sockets::send(&self.sockets, datagram) {
                Sent::No(error) => {
                    tracing::debug!(to = %datagram.to.remote, %error, "handshake message not sent");
                    counters.dropped(DropReason::SocketSend, 1);
                    continue;
                }
                Sent::WithoutLocal => {
                    if let Some(peer) = datagram.peer {
                        self.core.forget_local(peer);
                    }
                }
                Sent::Yes => {}
            }
            add(&counters.tx_packets, 1);
            add(&counters.tx_bytes, datagram.bytes().len() as u64);
        }
        self.helper.send(outbox.jobs);
        self.watch_helper()?;
        self.supervisor.queue(outbox.supervisor);
        self.soon |= self.supervisor.flush().map_err(MetaError::Channel)?;
        self.clients.watch_all(&self.epoll, &mut self.server);
        self.clients
            .resume(&self.epoll, &self.server, self.core.now);
        Ok(())
    }

    fn heartbeat(&mut self, began: Instant) -> Result<(), MetaError> {
        let now = boot_clock()?;
        let slot = self.rings.process(Role::Meta);
        slot.heartbeat_ns.store(now.0, Ordering::Relaxed);
        self.busy = now.since(began);
        add(&slot.busy_ns, self.busy.as_nanos() as u64);
        add(&slot.turns, 1);
        Ok(())
    }

    /// Told to stop: every key is wiped, and the peers' commands run, as far as the time goes.
    fn end(&mut self) -> Result<(), MetaError> {
        self.core.shut_down();
        self.core.workers.flush();
        let end = boot_clock()? + LAST_COMMANDS;
        loop {
            let mut outbox = std::mem::take(self.core.outbox());
            outbox
                .jobs
                .retain(|job| matches!(job.work, Work::Script { .. }));
            self.helper.send(outbox.jobs);
            if !self.core.scripts_under_way() || self.helper.has_ended() {
                return Ok(());
            }
            let now = boot_clock()?;
            if now >= end {
                tracing::warn!(
                    "not every PeerDown command has ended: the gateway stops all the same"
                );
                return Ok(());
            }
            self.helper.wait(end.since(now))?;
            for answer in self.helper.receive() {
                self.answer(answer);
            }
        }
    }
}

fn boot_clock() -> Result<Instant, MetaError> {
    let time = clock_gettime(ClockId::CLOCK_BOOTTIME)?;
    Ok(Instant(Duration::from(time).as_nanos() as u64))
}

fn clocks() -> Result<(Instant, u64), MetaError> {
    let unix = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    Ok((boot_clock()?, unix.as_nanos() as u64))
}

impl From<LimitReached> for MetaError {
    fn from(error: LimitReached) -> Self {
        MetaError::Limit(error.to_string())
    }
}
