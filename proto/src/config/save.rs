//! What `SaveConfig` writes: the file's settings with the peers and the device as they run.

use super::{Config, Peer};
use crate::keys::PrivateKey;

/// What runs, as far as it can have changed since the file was read.
#[derive(Clone, Debug)]
pub struct Runtime {
    /// Who the gateway is now.
    pub private_key: Option<PrivateKey>,
    /// The port it listens on now.
    pub listen_port: u16,
    /// The firewall mark now, 0: none.
    pub fwmark: u32,
    /// The peers there are now; names and commands are taken from the file where they are `None`.
    pub peers: Vec<Peer>,
}

impl Config {
    /// This configuration with what runs in place of what was read.
    ///
    /// Endpoints are those last heard from, as wg-quick saves them, except where the file gives a host name:
    /// that stays, since the address behind it may move while the gateway is down.
    #[must_use]
    pub fn with_runtime(&self, runtime: &Runtime) -> Config {
        let mut saved = self.clone();
        saved.interface.private_key.clone_from(&runtime.private_key);
        saved.interface.listen_port = (runtime.listen_port != 0).then_some(runtime.listen_port);
        saved.interface.fwmark = (runtime.fwmark != 0).then_some(runtime.fwmark);
        saved.peers = runtime.peers.clone();
        for peer in &mut saved.peers {
            let Some(read) = self.peers.iter().find(|read| read.public_key == peer.public_key) else {
                continue;
            };
            peer.name = peer.name.take().or_else(|| read.name.clone());
            peer.peer_up = peer.peer_up.take().or_else(|| read.peer_up.clone());
            peer.peer_down = peer.peer_down.take().or_else(|| read.peer_down.clone());
            if read.endpoint.as_ref().is_some_and(crate::endpoint::HostPort::is_name) {
                peer.endpoint.clone_from(&read.endpoint);
            }
        }
        saved
    }
}
