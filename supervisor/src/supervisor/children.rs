//! Starting each process with what it is given, and what follows from its end.

use super::{End, Phase, Supervisor, SupervisorError};
use crate::channel::ToMeta;
use crate::fds;
use crate::spawn::{Child, Spawner};
use nix::time::{ClockId, clock_gettime};
use ringway_shm::ids::WorkerSlot;
use ringway_shm::process::{NOT_PINNED, ProcessState, Role};
use ringway_worker::control::{FDS_PER_MESSAGE, GroupInfo, ToWorker};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::process::ExitStatus;
use std::sync::atomic::Ordering;
use std::time::Duration;

impl Supervisor<'_> {
    pub(super) fn spawn_helper(&mut self, stream: BorrowedFd<'_>) -> Result<(), SupervisorError> {
        self.spawn(Role::Helper, &[], &[(fds::HELPER, stream)], NOT_PINNED)
    }

    pub(super) fn spawn_meta(
        &mut self,
        uapi: BorrowedFd<'_>,
        helper: BorrowedFd<'_>,
    ) -> Result<(), SupervisorError> {
        let segments = &self.segments;
        let mut all = duplicates(&[
            (fds::STATE, segments.state.writable.as_fd()),
            (fds::KEYS, segments.keys.writable.as_fd()),
            (fds::LANES, segments.lanes.readable.as_fd()),
            (fds::RINGS, segments.rings.writable.as_fd()),
            (fds::UAPI, uapi),
            (fds::HELPER, helper),
        ])?;
        add_all(&mut all, fds::DOORBELLS, &self.doorbells)?;
        self.spawn(Role::Meta, &[], &borrow(&all), NOT_PINNED)
    }

    pub(super) fn spawn_worker(&mut self, slot: u8) -> Result<(), SupervisorError> {
        let segments = &self.segments;
        let mut all = duplicates(&[
            (fds::STATE, segments.state.readable.as_fd()),
            (fds::KEYS, segments.keys.readable.as_fd()),
            (fds::LANES, segments.lanes.writable.as_fd()),
            (fds::RINGS, segments.rings.writable.as_fd()),
        ])?;
        add_all(&mut all, fds::DOORBELLS, &self.doorbells)?;
        let queues = self.tun.as_ref().map_or(&[][..], |tun| tun.queues());
        add_all(&mut all, fds::tun(self.plan.settings.workers), queues)?;
        let cpu = self
            .cpus
            .get(usize::from(slot) % self.cpus.len().max(1))
            .copied();
        let mut extra = vec![
            "--slot".to_owned(),
            slot.to_string(),
            "--poll".to_owned(),
            self.plan.settings.poll.to_string(),
        ];
        if let Some(cpu) = cpu {
            extra.extend(["--cpu".to_owned(), cpu.to_string()]);
        }
        self.spawn(
            Role::Worker(WorkerSlot(slot)),
            &extra,
            &borrow(&all),
            cpu.map_or(NOT_PINNED, u32::from),
        )
    }

    fn spawn(
        &mut self,
        role: Role,
        extra: &[String],
        fds: &[(RawFd, BorrowedFd<'_>)],
        cpu: u32,
    ) -> Result<(), SupervisorError> {
        let spawner = Spawner {
            cli: &self.plan.cli,
            workers: self.plan.settings.workers,
            shards: self.plan.settings.shards,
            log: self.plan.log.as_ref(),
        };
        let child = spawner.spawn(role, extra, fds).map_err(spawning)?;
        let slot = self.segments.view.process(role);
        slot.started_ns.store(boot_ns(), Ordering::Relaxed);
        slot.cpu.store(cpu, Ordering::Relaxed);
        slot.pid.store(child.pid(), Ordering::Release);
        // The helper has nothing to prepare and says nothing.
        slot.set_state(if role == Role::Helper {
            ProcessState::Running
        } else {
            ProcessState::Starting
        });
        self.children.push(child);
        Ok(())
    }

    /// Notes the supervisor itself in its slot.
    pub(super) fn claim_slots(&self) {
        let slot = self.segments.view.process(Role::Supervisor);
        slot.started_ns.store(boot_ns(), Ordering::Relaxed);
        slot.cpu.store(NOT_PINNED, Ordering::Relaxed);
        slot.pid.store(std::process::id(), Ordering::Release);
        slot.set_state(ProcessState::Running);
    }

    /// Gives every process the sockets of the present generation.
    pub(super) fn hand_out_sockets(&mut self) -> Result<(), SupervisorError> {
        let groups: Vec<GroupInfo> = self.groups.iter().map(|group| group.info.clone()).collect();
        // The groups stay while they are lent out, whatever happens to the list.
        let lent = self.groups.clone();
        let metas: Vec<BorrowedFd<'_>> = lent.iter().map(|group| group.meta()).collect();
        let message = ToMeta::Sockets {
            generation: self.generation,
            groups: groups.clone(),
        };
        self.send_meta(&message, &metas)?;
        let shards: Vec<BorrowedFd<'_>> = lent.iter().flat_map(|group| group.shards()).collect();
        let parts: Vec<&[BorrowedFd<'_>]> = shards.chunks(FDS_PER_MESSAGE).collect();
        for child in &mut self.children {
            if !matches!(child.role, Role::Worker(_)) {
                continue;
            }
            for (part, fds) in parts.iter().enumerate() {
                let message = ToWorker::Sockets {
                    generation: self.generation,
                    groups: groups.clone(),
                    part: part as u16,
                    parts: parts.len() as u16,
                };
                let sent = child.send(&message, fds);
                sent.map_err(|error| SupervisorError::Channel {
                    to: child.name(),
                    error,
                })?;
            }
        }
        Ok(())
    }

    /// Sends meta a message, now or when there is room.
    pub(super) fn send_meta(
        &mut self,
        message: &ToMeta,
        fds: &[BorrowedFd<'_>],
    ) -> Result<(), SupervisorError> {
        let Some(meta) = self.child(Role::Meta) else {
            return Ok(());
        };
        let sent = meta.send(message, fds);
        sent.map_err(|error| SupervisorError::Channel {
            to: meta.name(),
            error,
        })
    }

    /// Sends meta a message; when that can't be done at all, the gateway ends.
    pub(super) fn tell_meta(&mut self, message: &ToMeta) {
        if let Err(error) = self.send_meta(message, &[]) {
            self.end(End::Failed(error.to_string()));
        }
    }

    /// Whether a process of this role runs.
    pub(super) fn has(&self, role: Role) -> bool {
        self.children.iter().any(|child| child.role == role)
    }

    fn child(&mut self, role: Role) -> Option<&mut Child> {
        self.children.iter_mut().find(|child| child.role == role)
    }

    /// Sends what had to wait for room.
    pub(super) fn flush_children(&mut self) {
        let mut failed = None;
        for child in self.children.iter_mut().filter(|child| child.waits()) {
            if let Err(error) = child.flush() {
                failed = Some(format!("message to {}: {error}", child.name()));
            }
        }
        if let Some(why) = failed {
            self.end(End::Failed(why));
        }
    }

    /// Reaps what ended.
    pub(super) fn reap(&mut self) {
        let mut ended = Vec::new();
        self.children.retain_mut(|child| match child.ended() {
            Some(status) => {
                ended.push((child.role, child.name(), status));
                false
            }
            None => true,
        });
        for (role, name, status) in ended {
            let slot = self.segments.view.process(role);
            slot.pid.store(0, Ordering::Release);
            slot.set_state(ProcessState::Empty);
            // What it read is no longer read: nobody needs to wait for its epoch.
            slot.offline();
            if self.phase != Phase::Stopping {
                self.handle_end(role, &name, status);
            }
        }
    }

    fn handle_end(&mut self, role: Role, name: &str, status: ExitStatus) {
        if self.tun.as_ref().is_none_or(|tun| tun.name().is_none()) {
            self.end(End::Deleted);
        } else if role == Role::Helper {
            // Not told yet: it ends with meta, whose end may be seen a moment later.
            self.helper.ended(status.to_string());
        } else {
            self.end(End::Failed(format!(
                "{name} ended unexpectedly ({status}): the gateway stops; start it again"
            )));
        }
    }

    /// Starts another helper when its time has come.
    pub(super) fn revive_helper(&mut self) {
        if self.phase == Phase::Stopping || self.end.is_some() || !self.helper.is_due() {
            return;
        }
        if let Err(error) = self.restart_helper() {
            tracing::warn!("another helper could not be started: {error}");
            self.helper.ended("not started".to_owned());
        }
    }

    /// Starts another helper now if there is none.
    pub(super) fn restart_helper(&mut self) -> Result<(), SupervisorError> {
        let Some(why) = self.helper.starts() else {
            return Ok(());
        };
        tracing::warn!("the helper ended unexpectedly ({why}): another is started");
        let (to_helper, to_meta) = UnixStream::pair().map_err(spawning)?;
        self.spawn_helper(to_meta.as_fd())?;
        self.segments
            .view
            .process(Role::Helper)
            .restarts
            .fetch_add(1, Ordering::Relaxed);
        self.send_meta(&ToMeta::Helper, &[to_helper.as_fd()])
    }

    /// Notes in the slots who does not turn any more; only reported.
    pub(super) fn check_heartbeats(&mut self) {
        const STUCK: Duration = Duration::from_secs(2);
        // No loop sleeps longer than a second: who sleeps longer was stopped.
        const ASLEEP: Duration = Duration::from_secs(3);
        let now = boot_ns();
        // Who was suspended with the host, or stopped, can't tell how long the others were silent.
        if Duration::from_nanos(now.saturating_sub(self.looked_ns)) > STUCK {
            self.awake_since_ns = now;
        }
        self.looked_ns = now;
        let mut view = Vec::new();
        for child in &mut self.children {
            let slot = self.segments.view.process(child.role);
            let beat = slot.heartbeat_ns.load(Ordering::Relaxed);
            let limit = if slot.sleeping.load(Ordering::Relaxed) == 0 {
                STUCK
            } else {
                ASLEEP
            };
            let since = beat.max(self.awake_since_ns);
            // Who never beats has no loop of that kind.
            let silent = beat != 0 && Duration::from_nanos(now.saturating_sub(since)) > limit;
            if child.ready && silent != child.stuck {
                child.stuck = silent;
                slot.set_state(if silent {
                    ProcessState::Stuck
                } else {
                    ProcessState::Running
                });
                view.push((child.name(), silent));
            }
        }
        for (name, silent) in view {
            if silent {
                tracing::warn!("{name} does not answer any more");
            } else {
                tracing::info!("{name} answers again");
            }
        }
    }
}

type Handed = Vec<(RawFd, OwnedFd)>;

/// Duplicates, so that starting a process borrows nothing of the supervisor.
fn duplicates(fds: &[(RawFd, BorrowedFd<'_>)]) -> Result<Handed, SupervisorError> {
    fds.iter()
        .map(|(number, fd)| Ok((*number, fd.try_clone_to_owned().map_err(spawning)?)))
        .collect()
}

fn add_all(handed: &mut Handed, first: RawFd, fds: &[OwnedFd]) -> Result<(), SupervisorError> {
    for (number, fd) in (first..).zip(fds) {
        handed.push((number, fd.try_clone().map_err(spawning)?));
    }
    Ok(())
}

fn borrow(handed: &[(RawFd, OwnedFd)]) -> Vec<(RawFd, BorrowedFd<'_>)> {
    handed
        .iter()
        .map(|(number, fd)| (*number, fd.as_fd()))
        .collect()
}

fn spawning(error: io::Error) -> SupervisorError {
    SupervisorError::System {
        what: "start of a process",
        error,
    }
}

fn boot_ns() -> u64 {
    clock_gettime(ClockId::CLOCK_BOOTTIME).map_or(0, |time| {
        time.tv_sec() as u64 * 1_000_000_000 + time.tv_nsec() as u64
    })
}
