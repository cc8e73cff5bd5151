//! A reload: the configuration read again, and the running gateway brought to it step by step.
//!
//! What needs the supervisor comes first: when the new port is taken, nothing has changed.

use super::core::Core;
use super::jobs::{FILE_LIMIT, JobPurpose};
use super::listening::Asked;
use super::requests::Purpose;
use crate::channel::{Granted, InterfaceChange, Privileged, Refused};
use crate::helper::protocol::{Outcome, Work};
use ringway_proto::config::{Config, Interface};
use ringway_shm::ids::PeerSlot;
use ringway_shm::routes::PublishError;

/// A reload under way.
#[derive(Debug)]
pub(crate) struct Reload {
    /// The supervisor's number.
    id: u32,
    keep_runtime: bool,
    /// What was read, once it was.
    config: Option<Box<Config>>,
    step: Step,
    waits: Option<Waits>,
    remark: String,
}

/// What the supervisor was asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Waits {
    Sockets(Asked),
    Interface(u32),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Listen,
    Fwmark,
    /// The peers; some may wait for slots.
    Tables,
    /// The workers' table is behind the peers' allowed IPs.
    Routes,
    Interface,
}

impl Core {
    /// The supervisor wants the file read again.
    pub(crate) fn begin_reload(&mut self, id: u32, keep_runtime: bool) -> Option<Reload> {
        let Some(path) = self.config_path.clone() else {
            let error = "started without a configuration file: use `wg setconf`, or `ringway up FILE` next time";
            self.done(id, Err(error.to_owned()));
            return None;
        };
        self.job(JobPurpose::Reload, Work::ReadConfig { path }, FILE_LIMIT);
        Some(Reload {
            id,
            keep_runtime,
            config: None,
            step: Step::Listen,
            waits: None,
            remark: String::new(),
        })
    }
}

impl Reload {
    /// The helper read the file, or could not. `true`: the reload has ended.
    pub(crate) fn read(&mut self, core: &mut Core, result: Result<Outcome, String>) -> bool {
        let config = match result {
            Ok(Outcome::Config(config)) => config,
            Ok(_) => return self.fail(core, "the helper answered something else".to_owned()),
            Err(error) => return self.fail(core, error),
        };
        let kept: Vec<PeerSlot> = core
            .peers
            .iter()
            .filter(|peer| self.keep_runtime && peer.runtime)
            .filter(|peer| {
                !config
                    .peers
                    .iter()
                    .any(|wanted| wanted.public_key == peer.public_key)
            })
            .map(|peer| peer.slot)
            .collect();
        let routes = kept
            .iter()
            .map(|slot| core.allowed.of(*slot, None).count())
            .sum();
        if let Err(error) = core.check_limits(&config, kept.len(), routes) {
            return self.fail(core, error.to_string());
        }
        if !InterfaceChange::of(&config.interface).fits() {
            let error = "Address, DNS, PreDown and PostDown are more than 64 KiB together: a reload \
                         takes less; start the gateway again";
            return self.fail(core, error.to_owned());
        }
        self.config = Some(config);
        self.step(core)
    }

    /// The supervisor answered. `true`: the reload has ended.
    pub(crate) fn answered(
        &mut self,
        core: &mut Core,
        id: u32,
        result: Result<Granted, Refused>,
    ) -> bool {
        let answer = match self.waits {
            Some(Waits::Sockets(asked)) => asked.answered(core, id, result),
            Some(Waits::Interface(asked)) if asked == id => Some(result.map(|granted| {
                if let Granted::Interface { fwmark: Some(mark) } = granted {
                    core.marked(mark);
                }
            })),
            _ => None,
        };
        let Some(answer) = answer else {
            return false;
        };
        self.waits = None;
        match answer {
            Ok(()) => self.step(core),
            Err(refused) => self.fail(core, refused.message),
        }
    }

    /// Goes on after a wait for the workers. `true`: the reload has ended.
    pub(crate) fn go_on(&mut self, core: &mut Core) -> bool {
        let waits_for_workers = matches!(self.step, Step::Tables | Step::Routes);
        waits_for_workers && self.waits.is_none() && self.step(core)
    }

    /// Goes on until something has to be waited for. `true`: the reload has ended.
    fn step(&mut self, core: &mut Core) -> bool {
        loop {
            let Some(config) = &self.config else {
                return true;
            };
            let (before, after) = (&core.config.interface, &config.interface);
            match self.step {
                Step::Listen => {
                    self.step = Step::Fwmark;
                    if listens_elsewhere(core.gateway.listen_port, before, after) {
                        let asked = core.listen_as(Purpose::Reload, after);
                        self.waits = Some(Waits::Sockets(asked));
                    }
                }
                Step::Fwmark => {
                    self.step = Step::Tables;
                    // Without one in the file, what a default route needs is the supervisor's choice.
                    if let Some(mark) = after.fwmark {
                        let asked = core.set_fwmark(Purpose::Reload, mark);
                        self.waits = asked.map(Waits::Sockets);
                    }
                }
                Step::Tables => {
                    self.remark = later(before, after);
                    match core.apply(config, self.keep_runtime) {
                        Ok(true) => self.step = Step::Routes,
                        Ok(false) => {
                            // Slots come back only when no table names their former peers.
                            return match core.publish_routes() {
                                Ok(()) | Err(PublishError::Busy) => false,
                                Err(full) => self.fail(core, full.to_string()),
                            };
                        }
                        Err(error) => return self.fail(core, error.to_string()),
                    }
                }
                Step::Routes => {
                    match core.publish_routes() {
                        Ok(()) => self.step = Step::Interface,
                        Err(PublishError::Busy) => return false,
                        Err(PublishError::Full) => {
                            return self.fail(core, PublishError::Full.to_string());
                        }
                    }
                    tracing::info!("configuration read again");
                    let change = InterfaceChange::of(after);
                    let id = core.request(Purpose::Reload, Privileged::Interface(change));
                    self.waits = Some(Waits::Interface(id));
                }
                Step::Interface => {
                    core.done(self.id, Ok(self.remark.clone()));
                    return true;
                }
            }
            if self.waits.is_some() {
                return false;
            }
        }
    }

    fn fail(&self, core: &mut Core, error: String) -> bool {
        core.done(self.id, Err(error));
        true
    }
}

/// Whether other sockets are needed. A file that names no port is content with the one there is.
fn listens_elsewhere(present: u16, before: &Interface, after: &Interface) -> bool {
    let port = after.listen_port.filter(|port| *port != 0);
    port.is_some_and(|port| port != present)
        || before.listen_addresses != after.listen_addresses
        || before.bind_device != after.bind_device
}

/// What a reload can't change, for whoever asked for it; empty when it changed all.
fn later(before: &Interface, after: &Interface) -> String {
    let differs = [
        ("PreUp", before.pre_up != after.pre_up),
        ("PostUp", before.post_up != after.post_up),
        ("Workers", before.workers != after.workers),
        ("Shards", before.shards != after.shards),
        ("CPUs", before.cpus != after.cpus),
        ("Poll", before.poll != after.poll),
        ("the limits", before.limits != after.limits),
    ];
    let names: Vec<&str> = differs
        .into_iter()
        .filter_map(|(name, differs)| differs.then_some(name))
        .collect();
    match names.as_slice() {
        [] => String::new(),
        names => format!(
            "changed in the file, but taken only at the next start: {}",
            names.join(", ")
        ),
    }
}
