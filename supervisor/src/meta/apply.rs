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
use super::transaction::preshared;
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
    waits: Option<u32>,
    remark: &'static str,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Listen,
    Fwmark,
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
        self.apply(config, false)?;
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
            remark: "",
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

    fn apply(&mut self, config: Config, keep_runtime: bool) -> Result<(), LimitReached> {
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
            slots.push((self.peer_for(peer.public_key)?, peer));
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
        self.config = config;
        Ok(())
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
        if self.waits != Some(id) {
            return false;
        }
        self.waits = None;
        match result {
            Ok(Granted::Listening { port }) => core.listening(port),
            Ok(Granted::Interface { fwmark: Some(mark) }) => {
                core.gateway.fwmark = mark;
                core.publish_gateway();
            }
            Ok(_) => {}
            Err(refused) => return self.fail(core, refused.message),
        }
        self.step(core)
    }

    /// Goes on after a wait for the workers. `true`: the reload has ended.
    pub(crate) fn go_on(&mut self, core: &mut Core) -> bool {
        self.step == Step::Routes && self.waits.is_none() && self.step(core)
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
                    if listens_elsewhere(before, after) {
                        let what = Privileged::Listen {
                            port: after
                                .listen_port
                                .filter(|port| *port != 0)
                                .unwrap_or(core.gateway.listen_port),
                            addresses: after.listen_addresses.clone(),
                            device: after.bind_device.clone(),
                            fwmark: core.gateway.fwmark,
                        };
                        self.waits = Some(core.request(Purpose::Reload, what));
                    }
                }
                Step::Fwmark => {
                    self.step = Step::Tables;
                    // Without one in the file, what a default route needs is the supervisor's choice.
                    if let Some(mark) = after.fwmark {
                        self.waits = core.set_fwmark(Purpose::Reload, mark);
                    }
                }
                Step::Tables => {
                    self.step = Step::Routes;
                    self.remark = later(before, after);
                    if let Err(error) = core.apply(Config::clone(config), self.keep_runtime) {
                        return self.fail(core, error.to_string());
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
                    let change = InterfaceChange {
                        addresses: after.addresses.clone(),
                        mtu: after.mtu,
                    };
                    self.waits = Some(core.request(Purpose::Reload, Privileged::Interface(change)));
                }
                Step::Interface => {
                    core.done(self.id, Ok(self.remark.to_owned()));
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
fn listens_elsewhere(before: &Interface, after: &Interface) -> bool {
    let port = after.listen_port.filter(|port| *port != 0);
    port.is_some_and(|port| before.listen_port != Some(port))
        || before.listen_addresses != after.listen_addresses
        || before.bind_device != after.bind_device
}

/// What a reload can't change, for whoever asked for it.
fn later(before: &Interface, after: &Interface) -> &'static str {
    let fixed = |interface: &Interface| {
        (
            interface.workers,
            interface.shards,
            interface.cpus.clone(),
            interface.poll,
            interface.limits,
            interface.table,
        )
    };
    if fixed(before) == fixed(after) {
        ""
    } else {
        "Workers, Shards, CPUs, Poll, Table and the limits take effect at the next start"
    }
}
