//! A `set` of the UAPI: applied in the order of its lines, in pieces when it is long, and shown to
//! the workers once at its end.

use super::core::Core;
use super::requests::Purpose;
use crate::channel::{Granted, Privileged, Refused};
use ringway_proto::keys::PresharedKey;
use ringway_proto::prefix::Prefix;
use ringway_proto::uapi::{AllowedIpChange, PeerChange, SetItem, errno};
use ringway_shm::ids::PeerSlot;
use ringway_shm::routes::PublishError;

/// A transaction under way.
#[derive(Debug)]
pub(crate) struct Transaction {
    items: std::vec::IntoIter<SetItem>,
    /// The allowed IPs of the peer that is being changed.
    rest: Option<(PeerSlot, std::vec::IntoIter<AllowedIpChange>)>,
    /// What was given to whom, and who had it: taken back when the table turns out to be full.
    given: Vec<(Prefix, PeerSlot, Option<PeerSlot>)>,
    /// The request to the supervisor that it waits for.
    waits: Option<u32>,
    error: Option<i32>,
}

/// How far a step got.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Progress {
    /// There is more to do.
    More,
    /// It waits for the supervisor.
    Waits,
    /// It waits for the workers: try again next turn.
    Busy,
    /// It is done; the answer's number.
    Done(i32),
}

impl Transaction {
    /// A transaction of these changes.
    pub(crate) fn new(items: Vec<SetItem>) -> Self {
        Self {
            items: items.into_iter(),
            rest: None,
            given: Vec::new(),
            waits: None,
            error: None,
        }
    }

    /// Takes the supervisor's answer. `false`: it waits for another one.
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
            Ok(_) => {}
            Err(refused) => {
                tracing::warn!("{}", refused.message);
                self.error = Some(refused.errno);
            }
        }
        true
    }

    /// Applies up to `budget` changes.
    pub(crate) fn step(&mut self, core: &mut Core, mut budget: usize) -> Progress {
        if self.waits.is_some() {
            return Progress::Waits;
        }
        while self.error.is_none() {
            if budget == 0 {
                return Progress::More;
            }
            if let Some((slot, rest)) = &mut self.rest {
                let Some(change) = rest.next() else {
                    self.rest = None;
                    continue;
                };
                budget -= 1;
                let slot = *slot;
                self.allowed_ip(core, slot, change);
                continue;
            }
            let Some(item) = self.items.next() else { break };
            budget -= 1;
            self.item(core, item);
            if self.waits.is_some() {
                return Progress::Waits;
            }
        }
        self.finish(core)
    }

    fn item(&mut self, core: &mut Core, item: SetItem) {
        match item {
            SetItem::PrivateKey(key) => core.set_private_key(key),
            SetItem::ListenPort(port) => {
                self.waits = core.listen(Purpose::Transaction, port);
            }
            SetItem::Fwmark(mark) => {
                self.waits = core.set_fwmark(Purpose::Transaction, mark);
            }
            SetItem::ReplacePeers => {
                for slot in core.peers.slots() {
                    core.remove_peer(slot);
                }
            }
            SetItem::Peer(change) => self.peer(core, change),
        }
    }

    fn peer(&mut self, core: &mut Core, change: PeerChange) {
        let known = core.peers.find(&change.public_key);
        if change.remove {
            if let Some(slot) = known {
                core.remove_peer(slot);
            }
            return;
        }
        let own = core
            .identity
            .as_ref()
            .map(|identity| identity.private.public());
        if known.is_none() && (change.update_only || own == Some(change.public_key)) {
            return;
        }
        let Ok(slot) = core.peer_for(change.public_key) else {
            self.error = Some(errno::ENOSPC);
            return;
        };
        if known.is_none() {
            if let Some(peer) = core.peers.get_mut(slot) {
                peer.runtime = true;
            }
        }
        if let Some(key) = change.preshared_key {
            core.set_preshared_key(slot, key);
        }
        if let Some(endpoint) = change.endpoint {
            core.configure_endpoint(slot, endpoint);
        }
        if change.replace_allowed_ips {
            core.disallow_all(slot);
        }
        if let Some(seconds) = change.keepalive {
            core.set_keepalive(slot, seconds);
        }
        self.rest = Some((slot, change.allowed_ips.into_iter()));
    }

    fn allowed_ip(&mut self, core: &mut Core, slot: PeerSlot, change: AllowedIpChange) {
        if change.remove {
            core.disallow(slot, change.prefix);
            return;
        }
        match core.allow(slot, change.prefix) {
            Ok(former) if former == Some(slot) => {}
            Ok(former) => self.given.push((change.prefix, slot, former)),
            Err(_) => self.error = Some(errno::ENOSPC),
        }
    }

    fn finish(&mut self, core: &mut Core) -> Progress {
        match core.publish_routes() {
            Ok(()) => Progress::Done(self.error.unwrap_or(errno::OK)),
            Err(PublishError::Busy) => Progress::Busy,
            Err(PublishError::Full) if self.given.is_empty() => {
                tracing::error!("{}", PublishError::Full);
                Progress::Done(errno::ENOSPC)
            }
            Err(PublishError::Full) => {
                tracing::error!("{}", PublishError::Full);
                self.error = Some(errno::ENOSPC);
                self.take_back(core);
                Progress::Busy
            }
        }
    }

    fn take_back(&mut self, core: &mut Core) {
        for (prefix, slot, former) in self.given.drain(..).rev() {
            core.disallow(slot, prefix);
            if let Some(former) = former.filter(|former| core.peers.get(*former).is_some()) {
                let _ = core.allow(former, prefix);
            }
        }
    }
}

impl Core {
    /// Listens on another port. `None`: that is so already.
    pub(super) fn listen(&mut self, purpose: Purpose, port: u16) -> Option<u32> {
        let same = if port == 0 {
            self.automatic_port
        } else {
            port == self.gateway.listen_port
        };
        if same && self.gateway.listen_port != 0 {
            self.automatic_port &= port == 0;
            return None;
        }
        self.automatic_port = port == 0;
        let interface = &self.config.interface;
        let what = Privileged::Listen {
            port,
            addresses: interface.listen_addresses.clone(),
            device: interface.bind_device.clone(),
            fwmark: self.gateway.fwmark,
        };
        Some(self.request(purpose, what))
    }

    /// Another port is listened on.
    pub(super) fn listening(&mut self, port: u16) {
        self.gateway.listen_port = port;
        self.publish_gateway();
        self.forget_locals();
    }

    /// Marks what is sent. `None`: that is so already.
    pub(super) fn set_fwmark(&mut self, purpose: Purpose, mark: u32) -> Option<u32> {
        if mark == self.gateway.fwmark {
            return None;
        }
        self.gateway.fwmark = mark;
        self.publish_gateway();
        self.forget_locals();
        Some(self.request(purpose, Privileged::Fwmark(mark)))
    }

    /// An administrator says where a peer is; a name that the file gave no longer counts.
    pub(super) fn configure_endpoint(&mut self, slot: PeerSlot, remote: std::net::SocketAddr) {
        if let Some(peer) = self.peers.get_mut(slot) {
            peer.host = Some(remote.into());
            peer.resolving = super::resolve::Resolving::default();
        }
        self.set_endpoint(slot, remote);
        // The routes may have changed since it was set to the same address before.
        self.refresh_route(slot);
    }
}

/// A preshared key as a configuration has it.
pub(super) fn preshared(key: Option<&PresharedKey>) -> PresharedKey {
    key.cloned().unwrap_or_default()
}
