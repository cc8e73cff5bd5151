//! Why a peer does not connect: the last reason of each, and of those whom nobody knows.

use super::core::Core;
use ringway_shm::ids::PeerSlot;
use ringway_shm::state::{Refusal, RefusalReason};
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

/// Of the same reason another sender is written only after this time: a flood from everywhere must
/// not become a flood of writes.
const REPEAT: Duration = Duration::from_secs(1);

/// A silence is not worth telling when something better was told so recently.
const BETTER: Duration = Duration::from_secs(30);

/// The address of a refusal that has none.
pub(super) const NOWHERE: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);

impl Core {
    /// Notes why a peer did not connect.
    pub(super) fn refuse(&mut self, slot: PeerSlot, reason: RefusalReason, from: SocketAddr) {
        let unix_ns = self.unix_ns;
        let Some(peer) = self.peers.get_mut(slot) else {
            return;
        };
        let age = Duration::from_nanos(unix_ns.saturating_sub(peer.refused_unix_ns));
        if let Some(last) = &peer.refusal {
            if same(last, reason, from) {
                // It holds since it was first found.
                peer.refused_unix_ns = unix_ns;
                return;
            }
            let elsewhere = last.reason == reason && age < REPEAT;
            let vaguer = reason == RefusalReason::NoAnswer && last.reason != reason && age < BETTER;
            if elsewhere || vaguer {
                return;
            }
        }
        peer.refused_unix_ns = unix_ns;
        peer.refusal = Some(Refusal {
            reason,
            at_unix_ns: unix_ns,
            from,
        });
        self.publish_peer(slot);
    }

    /// Notes that nobody knows where a peer is.
    pub(super) fn refuse_without_endpoint(&mut self, slot: PeerSlot) {
        let failed = self
            .peers
            .get(slot)
            .is_some_and(|peer| peer.resolving.failed());
        let reason = if failed {
            RefusalReason::UnresolvedEndpoint
        } else {
            RefusalReason::NoEndpoint
        };
        self.refuse(slot, reason, NOWHERE);
    }

    /// Notes why somebody unknown did not connect.
    pub(super) fn refuse_unknown(&mut self, reason: RefusalReason, from: SocketAddr) {
        if let Some(last) = &self.gateway.last_refusal {
            let age = Duration::from_nanos(self.unix_ns.saturating_sub(last.at_unix_ns));
            if same(last, reason, from) || (last.reason == reason && age < REPEAT) {
                return;
            }
        }
        self.gateway.last_refusal = Some(Refusal {
            reason,
            at_unix_ns: self.unix_ns,
            from,
        });
        self.publish_gateway();
    }

    /// It connected: what was wrong before is over.
    pub(super) fn forgive(&mut self, slot: PeerSlot) {
        if let Some(peer) = self.peers.get_mut(slot) {
            peer.refusal = None;
        }
    }
}

/// Whether it is told already. A sender's port may be another each time.
fn same(last: &Refusal, reason: RefusalReason, from: SocketAddr) -> bool {
    last.reason == reason && last.from.ip() == from.ip()
}
