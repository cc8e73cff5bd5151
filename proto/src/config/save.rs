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
        saved.peers.clone_from(&runtime.peers);
        for peer in &mut saved.peers {
            let Some(read) = self
                .peers
                .iter()
                .find(|read| read.public_key == peer.public_key)
            else {
                continue;
            };
            peer.name = peer.name.take().or_else(|| read.name.clone());
            peer.peer_up = peer.peer_up.take().or_else(|| read.peer_up.clone());
            peer.peer_down = peer.peer_down.take().or_else(|| read.peer_down.clone());
            if read
                .endpoint
                .as_ref()
                .is_some_and(crate::endpoint::HostPort::is_name)
            {
                peer.endpoint.clone_from(&read.endpoint);
            }
        }
        saved
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::config::{parse_conf, write_conf};

    const A: &str = "xTIBA5rboUvnH4htodjb6e697QjLERt1NAB4mZqp8Dg=";
    const B: &str = "TrMvSoP4jYQlY6RIzBgbssQqY3vxI2Pi+y71lOWWXX0=";

    #[test]
    fn what_runs_replaces_what_was_read() {
        let text = format!(
            "[Interface]\nAddress = 10.0.0.1/24\nListenPort = 1\nFwMark = 9\nPostUp = x\n\
             [Peer]\n# Name = Anna\nPublicKey = {A}\nEndpoint = anna.example:5\nPeerUp = hi\nAllowedIPs = 10.0.0.2/32\n\
             [Peer]\nPublicKey = AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=\n"
        );
        let config = parse_conf(&text, Path::new("wg0.conf")).unwrap().config;
        let mut anna = Peer::new(A.parse().unwrap());
        anna.endpoint = Some("192.0.2.7:6".parse().unwrap());
        anna.allowed_ips = vec!["10.0.0.3/32".parse().unwrap()];
        let mut ben = Peer::new(B.parse().unwrap());
        ben.endpoint = Some("192.0.2.8:6".parse().unwrap());
        let key = PrivateKey::from_bytes(&[8; 32]);
        let runtime = Runtime {
            private_key: Some(key),
            listen_port: 2,
            fwmark: 0,
            peers: vec![anna, ben],
        };
        assert_eq!(
            *write_conf(&config.with_runtime(&runtime)).unwrap(),
            format!(
                "[Interface]\nAddress = 10.0.0.1/24\nPostUp = x\nListenPort = 2\nPrivateKey = CAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICEg=\n\n\
                 [Peer]\n# Name = Anna\nPublicKey = {A}\nAllowedIPs = 10.0.0.3/32\nEndpoint = anna.example:5\nPeerUp = hi\n\n\
                 [Peer]\nPublicKey = {B}\nEndpoint = 192.0.2.8:6\n"
            )
        );
    }
}
