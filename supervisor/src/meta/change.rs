//! Changes of the tables, each the same whether `wg` or a file asks for it.

use super::core::{Core, Identity};
use ringway_proto::cookie::MacChecker;
use ringway_proto::keys::{PresharedKey, PrivateKey, PublicKey};
use ringway_proto::prefix::Prefix;
use ringway_shm::ids::PeerSlot;
use ringway_shm::messages::Command;
use ringway_shm::routes::PublishError;

/// A limit that was fixed at start is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the limit of {value} {field} is reached: raise `{field}` in [limits] and start again")]
pub(crate) struct LimitReached {
    /// Which of the `[limits]`.
    pub(crate) field: &'static str,
    /// What it is.
    pub(crate) value: u32,
}

impl Core {
    /// Becomes somebody else; all sessions end. A peer with our own key goes, as in the kernel.
    pub(super) fn set_private_key(&mut self, key: Option<PrivateKey>) {
        if key.as_ref() == self.identity.as_ref().map(|identity| &identity.private) {
            return;
        }
        let public = key.as_ref().map(PrivateKey::public);
        if let Some(own) = public.and_then(|public| self.peers.find(&public)) {
            self.remove_peer(own);
        }
        self.identity = key.map(|private| Identity {
            checker: MacChecker::new(&private.public()),
            private,
        });
        self.gateway.public_key = public.map_or([0; 32], |public| *public.as_bytes());
        self.publish_gateway();
        for slot in self.peers.slots() {
            // Packets wait for a session or it is kept alive. To all others a session comes with the
            // next packet: a thousand at once would be a flood of our own.
            let wanted = self.peers.get(slot).is_some_and(|peer| {
                peer.timers.handshake_under_way() || peer.wanted || peer.keepalive != 0
            });
            self.drop_sessions(slot);
            self.reschedule(slot);
            if wanted {
                self.want_session(slot);
            }
        }
    }

    /// The peer with this key, made if there is none.
    pub(super) fn peer_for(&mut self, public_key: PublicKey) -> Result<PeerSlot, LimitReached> {
        if let Some(slot) = self.peers.find(&public_key) {
            return Ok(slot);
        }
        let Some(peer) = self.peers.insert(public_key, self.constants, self.now) else {
            return Err(LimitReached {
                field: "peers",
                value: self.peers.limit(),
            });
        };
        let slot = peer.slot;
        // The slot's greatest time stamp is another's.
        self.keys.set_greatest_timestamp(slot, [0; 12]);
        self.publish_peer(slot);
        self.publish_path(slot);
        Ok(slot)
    }

    /// Removes a peer and everything of it.
    pub(super) fn remove_peer(&mut self, slot: PeerSlot) {
        self.drop_sessions(slot);
        self.workers.broadcast(Command::DropStaged { peer: slot });
        self.wheel.cancel(slot.0);
        self.routes_dirty |= self.allowed.clear(slot);
        self.peers.remove(slot);
        self.state.clear_peer(slot);
    }

    /// Sets a peer's preshared key. It counts from the next handshake.
    pub(super) fn set_preshared_key(&mut self, slot: PeerSlot, key: PresharedKey) {
        if let Some(peer) = self.peers.get_mut(slot) {
            peer.preshared_key = key;
            peer.unconfirmed = 0;
            self.publish_peer(slot);
        }
    }

    /// Sets a peer's persistent keepalive; switched on, it begins with one at once.
    pub(super) fn set_keepalive(&mut self, slot: PeerSlot, seconds: u16) {
        let (now, link_up) = (self.now, self.gateway.link_up);
        let Some(peer) = self.peers.get_mut(slot) else {
            return;
        };
        let begins = peer.keepalive == 0 && seconds != 0 && link_up;
        if peer.keepalive == seconds {
            return;
        }
        peer.keepalive = seconds;
        if begins {
            peer.timers.keepalive_started(now);
        }
        self.publish_peer(slot);
        if begins {
            self.send_keepalive(slot);
        }
        self.reschedule(slot);
    }

    /// Gives an allowed IP to a peer; tells who had it.
    pub(super) fn allow(
        &mut self,
        slot: PeerSlot,
        prefix: Prefix,
    ) -> Result<Option<PeerSlot>, LimitReached> {
        let owner = self.allowed.owner(prefix);
        if owner == Some(slot) {
            return Ok(owner);
        }
        if owner.is_none() && self.allowed.len() >= self.geometry.routes as usize {
            let error = LimitReached {
                field: "routes",
                value: self.geometry.routes,
            };
            tracing::error!("{error}");
            return Err(error);
        }
        self.routes_dirty = true;
        Ok(self.allowed.insert(prefix, slot))
    }

    /// Takes an allowed IP from a peer, if it is that peer's.
    pub(super) fn disallow(&mut self, slot: PeerSlot, prefix: Prefix) {
        self.routes_dirty |= self.allowed.remove(prefix, slot);
    }

    /// Takes all allowed IPs from a peer.
    pub(super) fn disallow_all(&mut self, slot: PeerSlot) {
        self.routes_dirty |= self.allowed.clear(slot);
    }

    /// Makes the workers' table what the peers' allowed IPs are, if it is not.
    pub(crate) fn publish_routes(&mut self) -> Result<(), PublishError> {
        if !self.routes_dirty {
            return Ok(());
        }
        let rings = &self.rings;
        let routes = self.allowed.routes();
        self.state
            .publish_routes(&routes, |epoch| rings.workers_passed(epoch))?;
        self.routes_dirty = false;
        Ok(())
    }

    /// Whether the workers' table is behind.
    pub(crate) fn routes_dirty(&self) -> bool {
        self.routes_dirty
    }
}
