//! A configuration to the tables: at start, and again at a reload.
//!
//! A reload touches only what differs, so that everything else keeps its sessions and the endpoint
//! it was heard from last.

use super::change::LimitReached;
use super::core::Core;
use super::jobs::{FILE_LIMIT, JobPurpose};
use super::resolve::Resolving;
use super::transaction::preshared;
use crate::channel::{FromMeta, Start};
use crate::helper::protocol::Work;
use ringway_proto::config::{Config, Peer};
use ringway_proto::prefix::Prefix;
use ringway_shm::ids::PeerSlot;
use ringway_shm::state::Name;
use std::collections::HashSet;

impl Core {
    /// Becomes what the configuration says.
    pub(crate) fn start(&mut self, start: Start, config: &Config) -> Result<(), LimitReached> {
        self.gateway.name = Name::new(&start.name);
        self.gateway.mtu = u16::try_from(start.mtu).unwrap_or(u16::MAX);
        self.gateway.fwmark = config.interface.fwmark.unwrap_or(0);
        self.automatic_port = config.interface.listen_port.unwrap_or(0) == 0;
        self.config_path = start.config_path;
        self.check_limits(config, 0, 0)?;
        // Nobody was removed, so everybody has a slot.
        let _ = self.apply(config, false)?;
        self.publish_gateway();
        Ok(())
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
    pub(super) fn check_limits(
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
    pub(super) fn apply(
        &mut self,
        config: &Config,
        keep_runtime: bool,
    ) -> Result<bool, LimitReached> {
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
