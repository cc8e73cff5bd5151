//! A `set` of the UAPI: applied in the order of its lines, in pieces when it is long, and shown to
//! the workers once at its end.

use super::core::Core;
use super::listening::Asked;
use super::requests::Purpose;
use crate::channel::{Granted, Refused};
use ringway_proto::endpoint::HostPort;
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
    waits: Option<Asked>,
    /// A peer that waits for a slot.
    homeless: Option<PeerChange>,
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
            homeless: None,
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
        let Some(answer) = self
            .waits
            .and_then(|asked| asked.answered(core, id, result))
        else {
            return false;
        };
        self.waits = None;
        if let Err(refused) = answer {
            tracing::warn!("{}", refused.message);
            self.error = Some(refused.errno);
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
            let homeless = self.homeless.take().map(SetItem::Peer);
            let Some(item) = homeless.or_else(|| self.items.next()) else {
                break;
            };
            budget -= 1;
            self.item(core, item);
            if self.waits.is_some() {
                return Progress::Waits;
            }
            if self.homeless.is_some() {
                return self.free_slots(core);
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
        let slot = match core.peer_for(change.public_key) {
            Ok(slot) => slot,
            Err(_) if core.peers.frees_soon() => {
                self.homeless = Some(change);
                return;
            }
            Err(error) => {
                tracing::error!("{error}");
                self.error = Some(errno::ENOSPC);
                return;
            }
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
        if let Some(host) = change.lookup {
            core.configure_host(slot, host);
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

    /// The slots of removed peers come back when no worker finds them in the routes any more.
    fn free_slots(&mut self, core: &mut Core) -> Progress {
        match core.publish_routes() {
            Ok(()) | Err(PublishError::Busy) => Progress::Busy,
            Err(PublishError::Full) => {
                self.homeless = None;
                self.finish(core)
            }
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
    /// An administrator says where a peer is; a name that the file gave no longer counts.
    pub(super) fn configure_endpoint(&mut self, slot: PeerSlot, remote: std::net::SocketAddr) {
        self.configure_host(slot, remote.into());
        // The routes may have changed since it was set to the same address before.
        self.refresh_route(slot);
    }

    /// The same, with what only the helper can make an address of.
    fn configure_host(&mut self, slot: PeerSlot, host: HostPort) {
        if let Some(peer) = self.peers.get_mut(slot) {
            peer.host = Some(host);
            peer.resolving = super::resolve::Resolving::default();
        }
        self.resolve(slot);
    }
}

/// A preshared key as a configuration has it.
pub(super) fn preshared(key: Option<&PresharedKey>) -> PresharedKey {
    key.cloned().unwrap_or_default()
}
