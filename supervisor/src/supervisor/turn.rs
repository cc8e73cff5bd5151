//! One turn of the loop: wait, then look at everything that may have changed.

use super::change::Change;
use super::{End, Phase, Supervisor};
use crate::channel::{FromMeta, ToMeta};
use crate::job::{Job, JobError};
use crate::netlink::watch::Gone;
use crate::watch;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use ringway_shm::process::{ProcessState, Role};
use ringway_worker::control::FromWorker;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// The longest wait: heartbeats are looked at as often.
pub(super) const PERIOD: Duration = Duration::from_secs(1);

/// What a process said.
enum Said {
    Meta(FromMeta),
    Worker(FromWorker),
}

impl Supervisor<'_> {
    /// Waits at most this long for something, also of `extra`, and deals with all there is.
    pub(super) fn turn(&mut self, extra: Option<BorrowedFd<'_>>, limit: Duration) {
        let limit = match &self.change {
            Some(change) => limit.min(change.remaining()),
            None => limit,
        };
        let limit = limit.min(self.helper.remaining().unwrap_or(limit));
        self.wait(extra, limit.min(PERIOD));
        while let Some(asked) = self.signals.next() {
            match asked {
                watch::Asked::Stop(signal) if self.phase == Phase::Stopping => {
                    tracing::info!("{signal}: the command that runs is cut short");
                    self.asked_again = true;
                }
                watch::Asked::Stop(signal) => {
                    tracing::info!("{signal}: the gateway stops");
                    self.end(End::Asked);
                }
                watch::Asked::Reload if self.phase == Phase::Running => self.reload(false, None),
                watch::Asked::Reload => {}
            }
        }
        self.listen_to_children();
        self.listen_delayed();
        self.flush_children();
        self.reap();
        self.revive_helper();
        self.reap_orphans();
        self.go_on_with_change();
        if self.links.drain() || self.tun_is_gone() {
            self.refresh_link();
        }
        self.pass_on_lost_addresses();
        for (token, request) in self.control.requests() {
            self.handle_request(token, &request);
        }
        self.check_heartbeats();
    }

    /// Turns until `done` or the time is over or something ends the gateway; whether it was done.
    pub(super) fn turn_until(&mut self, limit: Duration, done: impl Fn(&Self) -> bool) -> bool {
        let deadline = Instant::now() + limit;
        loop {
            if done(self) {
                return true;
            }
            let remaining = deadline.saturating_duration_since(Instant::now());
            if remaining.is_zero() || (self.phase != Phase::Stopping && self.end.is_some()) {
                return false;
            }
            self.turn(None, remaining);
        }
    }

    /// Turns until a command ended: it may itself need the gateway (`wg set` in a hook). In a stop a
    /// signal cuts it short.
    pub(super) fn finish(&mut self, mut job: Job) -> Result<(), JobError> {
        self.job = Some(job.pid());
        self.asked_again = false;
        let outcome = self.outcome(&mut job);
        drop(job);
        self.job = None;
        outcome
    }

    fn outcome(&mut self, job: &mut Job) -> Result<(), JobError> {
        loop {
            if let Some(outcome) = job.outcome() {
                return outcome;
            }
            // What ends a start ends its hooks too.
            if self.phase == Phase::Starting && self.end.is_some() {
                return Ok(());
            }
            if self.asked_again {
                return Err(job.cut_short());
            }
            self.turn(Some(job.as_fd()), job.remaining());
        }
    }

    fn wait(&self, extra: Option<BorrowedFd<'_>>, limit: Duration) {
        let readable = |fd| PollFd::new(fd, PollFlags::POLLIN);
        let mut fds = vec![
            readable(self.signals.as_fd()),
            readable(self.links.as_fd()),
            readable(self.addresses.as_fd()),
        ];
        for child in &self.children {
            let mut flags = PollFlags::POLLIN;
            flags.set(PollFlags::POLLOUT, child.waits());
            fds.push(PollFd::new(child.channel(), flags));
            fds.push(readable(child.end()));
        }
        fds.extend(self.control.fds().map(readable));
        fds.extend(extra.map(readable));
        fds.extend(self.change.as_ref().and_then(Change::wakes).map(readable));
        if let (Some(tun), None) = (&self.tun, &self.end) {
            // No events asked for: only the error that follows from deletion.
            fds.push(PollFd::new(tun.any_queue(), PollFlags::empty()));
        }
        // Rounded up, or the last millisecond would be spent spinning.
        let milliseconds =
            limit.as_millis() as u16 + u16::from(limit.subsec_nanos() % 1_000_000 != 0);
        let _ = poll(&mut fds, PollTimeout::from(milliseconds));
    }

    fn listen_to_children(&mut self) {
        let mut heard = Vec::new();
        for child in &self.children {
            loop {
                let said = match child.role {
                    Role::Meta => child.receive().map(|said| said.map(Said::Meta)),
                    Role::Worker(_) => child.receive().map(|said| said.map(Said::Worker)),
                    _ => Ok(None),
                };
                match said {
                    Ok(Some(said)) => heard.push((child.role, Ok(said))),
                    Ok(None) => break,
                    Err(error) => {
                        heard.push((child.role, Err(error)));
                        break;
                    }
                }
            }
        }
        for (role, said) in heard {
            match said {
                Ok(Said::Meta(FromMeta::Ready) | Said::Worker(FromWorker::Ready)) => {
                    self.note_ready(role);
                }
                Ok(
                    Said::Meta(FromMeta::SocketsTaken { generation })
                    | Said::Worker(FromWorker::SocketsTaken { generation }),
                ) => self.note_generation(role, generation),
                Ok(Said::Meta(FromMeta::Request { id, what })) => self.grant(id, what),
                Ok(Said::Meta(FromMeta::Done { id, result })) => self.finish_asked(id, result),
                Ok(Said::Worker(FromWorker::InterfaceGone)) => self.refresh_link(),
                Err(error) => self.end(End::Failed(format!(
                    "{role} sent what is no message: {error}"
                ))),
            }
        }
    }

    fn note_ready(&mut self, role: Role) {
        if let Some(child) = self.children.iter_mut().find(|child| child.role == role) {
            child.ready = true;
            self.segments
                .view
                .process(role)
                .set_state(ProcessState::Running);
        }
    }

    /// Lets go of the groups that nobody uses any more.
    fn note_generation(&mut self, role: Role, generation: u32) {
        if let Some(child) = self.children.iter_mut().find(|child| child.role == role) {
            child.generation = child.generation.max(generation);
        }
        let users = self
            .children
            .iter()
            .filter(|child| child.role != Role::Helper);
        let oldest = users.map(|child| child.generation).min().unwrap_or(0);
        self.retiring.retain(|(successor, _)| *successor > oldest);
    }

    fn tun_is_gone(&self) -> bool {
        self.end.is_none() && self.tun.as_ref().is_some_and(|tun| tun.name().is_none())
    }

    /// Looks where the interface is and how it is, and tells meta what changed.
    pub(super) fn refresh_link(&mut self) {
        let Some(tun) = &self.tun else {
            return;
        };
        let Some(name) = tun.name() else {
            if self.end.is_none() {
                self.tell_meta(&ToMeta::LinkGone);
                self.end(End::Deleted);
            }
            return;
        };
        let found = self
            .netlink
            .whereabouts(tun.any_queue())
            .map_err(|error| error.to_string())
            .and_then(|whereabouts| {
                let link = self
                    .netlink
                    .link_named(&name, whereabouts)
                    .map_err(|error| error.to_string())?;
                Ok((whereabouts, link))
            });
        match found {
            Ok((whereabouts, link)) => {
                if whereabouts != self.whereabouts {
                    tracing::info!(
                        interface = name,
                        "the interface is in another network namespace now"
                    );
                    self.whereabouts = whereabouts;
                }
                if link != self.link {
                    tracing::debug!(?link, "the interface changed");
                    self.link = link;
                    self.tell_meta(&ToMeta::Link {
                        mtu: self.link.mtu,
                        up: self.link.up,
                    });
                }
            }
            // Between two namespaces it is in none; the arrival is another event.
            Err(error) => tracing::debug!("{error}"),
        }
    }

    fn pass_on_lost_addresses(&mut self) {
        match self.addresses.drain() {
            Gone::Nothing => {}
            Gone::These(gone) => self.tell_meta(&ToMeta::AddressesChanged { gone }),
            Gone::Unknown => self.tell_meta(&ToMeta::AddressesChanged { gone: Vec::new() }),
        }
    }

    /// The process id of a role, 0: none.
    pub(super) fn pid_of(&self, role: Role) -> u32 {
        self.segments.view.process(role).pid.load(Ordering::Relaxed)
    }
}
