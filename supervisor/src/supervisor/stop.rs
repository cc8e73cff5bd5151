//! Taking everything back, in the reverse order of the start.

use super::{Phase, Supervisor};
use crate::channel::ToMeta;
use crate::{dns, hooks};
use ringway_proto::control::Response;
use ringway_shm::process::{ProcessState, Role};
use ringway_worker::control::ToWorker;
use std::time::Duration;

/// How long meta may take to write the configuration.
const SAVE_LIMIT: Duration = Duration::from_secs(10);
/// How long processes may take to end before they are ended.
const STOP_LIMIT: Duration = Duration::from_secs(3);
/// How long a killed process may take to be gone.
const KILL_LIMIT: Duration = Duration::from_secs(5);

impl Supervisor<'_> {
    /// Ends all processes and takes back what was set up; failures are logged, nothing stops it.
    pub(super) fn stop(&mut self, keep_log: bool) {
        let was_running = self.phase == Phase::Running;
        self.phase = Phase::Stopping;
        if was_running {
            let commands = std::mem::take(&mut self.hooks.pre_down);
            self.run_last_hooks("PreDown", &commands);
            if self.hooks.save_config {
                self.save();
            }
        }
        // A reload that sets name servers at this moment is cut off; what it set is taken back.
        let sets_dns = self
            .change
            .take()
            .is_some_and(|change| change.wakes().is_some());
        if sets_dns || !std::mem::take(&mut self.dns).is_empty() {
            let unset = dns::start_unset(self.plan.cli.name());
            if let Err(error) = unset
                .map_err(|error| error.to_string())
                .and_then(|job| self.finish(job).map_err(|error| error.to_string()))
            {
                tracing::warn!("{error}");
            }
        }
        self.plan.runtime.remove_uapi();
        self.stop_processes();
        // The last queue's end is the interface's: addresses and routes go with it.
        self.tun = None;
        self.setup.undo(&mut self.netlink);
        self.groups.clear();
        self.retiring.clear();
        if was_running {
            let commands = std::mem::take(&mut self.hooks.post_down);
            self.run_last_hooks("PostDown", &commands);
        }
        self.plan.runtime.remove(keep_log);
        if was_running {
            tracing::info!(interface = self.plan.cli.name(), "stopped");
        }
        for token in std::mem::take(&mut self.stop_waiters) {
            self.control.answer(token, &Response::Ok, &[]);
        }
    }

    fn run_last_hooks(&mut self, key: &str, commands: &[String]) {
        for hook in commands {
            let outcome =
                hooks::start(key, hook, self.plan.cli.name()).and_then(|job| self.finish(job));
            if let Err(error) = outcome {
                tracing::warn!("{error}");
            }
        }
    }

    fn save(&mut self) {
        if !self.has(Role::Meta) {
            tracing::warn!("the configuration is not saved: meta is dead");
            return;
        }
        // It is the helper that writes.
        if let Err(error) = self.restart_helper() {
            tracing::warn!("{error}");
        }
        let id = self.ask(None);
        self.tell_meta(&ToMeta::Save { id });
        let saved = self.turn_until(SAVE_LIMIT, |supervisor| {
            !supervisor.has(Role::Meta) || !supervisor.asked.iter().any(|asked| asked.id == id)
        });
        if !saved {
            tracing::warn!(
                "the configuration is not saved: no answer within {} s",
                SAVE_LIMIT.as_secs()
            );
        }
    }

    /// Workers first, so that meta hears their last events; the helper ends with meta.
    fn stop_processes(&mut self) {
        for child in &mut self.children {
            self.segments
                .view
                .process(child.role)
                .set_state(ProcessState::Draining);
            if let Role::Worker(_) = child.role {
                if let Err(error) = child.send(&ToWorker::Stop, &[]) {
                    tracing::debug!("{}: {error}", child.name());
                }
            }
        }
        let is_worker = |role| matches!(role, Role::Worker(_));
        self.end_processes(&|role| is_worker(role));
        self.tell_meta(&ToMeta::Stop);
        self.end_processes(&|_| true);
    }

    /// Waits for the processes of these roles, then kills what is left.
    fn end_processes(&mut self, of: &dyn Fn(Role) -> bool) {
        let gone = |supervisor: &Self| !supervisor.children.iter().any(|child| of(child.role));
        if self.turn_until(STOP_LIMIT, gone) {
            return;
        }
        for child in self.children.iter().filter(|child| of(child.role)) {
            tracing::warn!("{} does not end: killed", child.name());
            child.kill();
        }
        if !self.turn_until(KILL_LIMIT, gone) {
            tracing::error!("a killed process is still there: the kernel does not let go of it");
        }
    }
}
