//! A configuration to the tables: at start, and again at a reload.
//!
//! A reload touches only what differs, so that everything else keeps its sessions and the endpoint
//! it was heard from last. What needs the supervisor comes first: when the new port is taken,
//! nothing has changed.

use super::change::LimitReached;
use super::core::Core;
use super::jobs::JobPurpose;
use super::requests::Purpose;
use super::resolve::Resolving;
use super::transaction::{Asked, preshared};
use crate::channel::{FromMeta, Granted, InterfaceChange, Privileged, Refused, Start};
use crate::helper::protocol::{Outcome, Work};
use ringway_proto::config::{Config, Interface, Peer};
use ringway_proto::prefix::Prefix;
use ringway_shm::ids::PeerSlot;
use ringway_shm::routes::PublishError;
use ringway_shm::state::Name;
use std::collections::HashSet;
use std::time::Duration;

/// A file is read within this time or not at all.
const FILE_LIMIT: Duration = Duration::from_secs(30);

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
    /// Becomes what the configuration says.
    pub(crate) fn start(&mut self, start: Start, config: Config) -> Result<(), LimitReached> {
        self.gateway.name = Name::new(&start.name);
        self.gateway.mtu = u16::try_from(start.mtu).unwrap_or(u16::MAX);
        self.gateway.fwmark = config.interface.fwmark.unwrap_or(0);
        self.automatic_port = config.interface.listen_port.unwrap_or(0) == 0;
        self.config_path = start.config_path;
        self.check_limits(&config, 0, 0)?;
        // Nobody was removed, so everybody has a slot.
        let _ = self.apply(&config, false)?;
        self.publish_gateway();
        Ok(())
    }

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

    /// The supervisor wants the file written.
    pub(crate) fn save(&mut self, id: u32) {
        let Some(path) = self.config_path.clone() else {
            let error = "started without a configuration file: use `wg showconf`";
            return self.done(id, Err(error.to_owned()));
        };
        let saved = self.running_config();
        let text = if path
            .extension()
            .is_some_and(|extension| extension == "toml")
        {
            Ok(ringway_proto::config::write_toml(&saved))
        } else {
            ringway_proto::config::write_conf(&saved)
        };
        match text {
            Ok(text) => {
                let work = Work::WriteConfig {
                    path,
                    contents: text.to_string(),
                };
                self.job(JobPurpose::Save { id }, work, FILE_LIMIT);
            }
            Err(error) => self.done(id, Err(error.to_string())),
        }
    }

    /// Answers the supervisor.
    pub(super) fn done(&mut self, id: u32, result: Result<String, String>) {
        self.out.supervisor.push(FromMeta::Done { id, result });
    }

    /// What runs, as a configuration.
    pub(super) fn running_config(&self) -> Config {
        let peers = self.peers.iter().map(|peer| Peer {
            public_key: peer.public_key,
            name: peer.name.clone(),
            preshared_key: (!peer.preshared_key.is_zero()).then(|| peer.preshared_key.clone()),
            endpoint: peer
                .endpoint
                .map(|endpoint| endpoint.remote.into())
                .or_else(|| peer.host.clone()),
            allowed_ips: self.allowed.of(peer.slot, None).collect(),
            persistent_keepalive: (peer.keepalive != 0).then_some(peer.keepalive),
            peer_up: peer.up_command.clone(),
            peer_down: peer.down_command.clone(),
        });
        self.config.with_runtime(&ringway_proto::config::Runtime {
            private_key: self
                .identity
                .as_ref()
                .map(|identity| identity.private.clone()),
            listen_port: self.gateway.listen_port,
            fwmark: self.gateway.fwmark,
            peers: peers.collect(),
        })
    }

    /// Whether the configuration fits, beside so much that stays.
    fn check_limits(
        &self,
        config: &Config,
        peers: usize,
        routes: usize,
    ) -> Result<(), LimitReached> {
        let wanted = config.peers.len() + peers;
        let prefixes: usize = config
            .peers
            .iter()
            .map(|peer| peer.allowed_ips.len())
            .sum::<usize>()
            + routes;
        let limits = [
            ("peers", wanted, self.geometry.peers),
            ("routes", prefixes, self.geometry.routes),
        ];
        match limits
            .into_iter()
            .find(|(_, wanted, limit)| *wanted > *limit as usize)
        {
            Some((field, _, value)) => Err(LimitReached { field, value }),
            None => Ok(()),
        }
    }

    /// `false`: peers wait for the slots of those that were removed; to be called again when the
    /// workers have seen the routes. What is done already is done again without effect.
    fn apply(&mut self, config: &Config, keep_runtime: bool) -> Result<bool, LimitReached> {
        self.set_private_key(config.interface.private_key.clone());
        let wanted: HashSet<_> = config.peers.iter().map(|peer| peer.public_key).collect();
        for slot in self.peers.slots() {
            let stays = self.peers.get(slot).is_some_and(|peer| {
                wanted.contains(&peer.public_key) || (keep_runtime && peer.runtime)
            });
            if !stays {
                self.remove_peer(slot);
            }
        }
        let own = config
            .interface
            .private_key
            .as_ref()
            .map(ringway_proto::keys::PrivateKey::public);
        let mut slots = Vec::with_capacity(config.peers.len());
        for peer in &config.peers {
            // The kernel ignores a peer with the gateway's own key, so that one list serves all.
            if own == Some(peer.public_key) {
                continue;
            }
            match self.peer_for(peer.public_key) {
                Ok(slot) => slots.push((slot, peer)),
                Err(_) if self.peers.frees_soon() => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        // Prefixes first: one that moves from a peer to another must not be lost in between.
        for (slot, peer) in &slots {
            let wanted: HashSet<Prefix> = peer.allowed_ips.iter().map(Prefix::masked).collect();
            let present: Vec<Prefix> = self.allowed.of(*slot, None).collect();
            for prefix in present
                .into_iter()
                .filter(|prefix| !wanted.contains(prefix))
            {
                self.disallow(*slot, prefix);
            }
        }
        for (slot, peer) in &slots {
            for prefix in &peer.allowed_ips {
                self.allow(*slot, *prefix)?;
            }
            self.apply_peer(*slot, peer);
        }
        self.config = config.clone();
        Ok(true)
    }

    fn apply_peer(&mut self, slot: PeerSlot, wanted: &Peer) {
        let Some(peer) = self.peers.get_mut(slot) else {
            return;
        };
        peer.runtime = false;
        peer.name.clone_from(&wanted.name);
        peer.up_command.clone_from(&wanted.peer_up);
        peer.down_command.clone_from(&wanted.peer_down);
        let elsewhere = peer.host != wanted.endpoint;
        if elsewhere {
            peer.host.clone_from(&wanted.endpoint);
            peer.resolving = Resolving::default();
        }
        let key = preshared(wanted.preshared_key.as_ref());
        if peer.preshared_key == key {
            self.publish_peer(slot);
        } else {
            self.set_preshared_key(slot, key);
        }
        self.set_keepalive(slot, wanted.persistent_keepalive.unwrap_or(0));
        if elsewhere {
            self.resolve(slot);
        }
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
