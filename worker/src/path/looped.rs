//! Loop protection: an endpoint that is routed into its own tunnel.
//!
//! Such a datagram comes back out of our own TUN as an inner packet: UDP, from a port that we
//! listen on and the address that we send from, to a peer's endpoint, with a WireGuard message in
//! it. Sealing it again would make it
//! grow and come back for ever.

use super::Context;
use crate::reports::Throttled;
use crate::udp::group::Groups;
use ringway_proto::inner::Inner;
use ringway_proto::time::Instant;
use ringway_proto::wire::MessageType;
use ringway_shm::ids::PeerSlot;
use ringway_shm::messages::Event;
use ringway_shm::state::PeerPath;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

const UDP: u8 = 17;
const UDP_HEADER: usize = 8;
/// How long the answer to a search of all peers holds: a nested tunnel with the same port is
/// legitimate and may carry many packets.
const REMEMBERED: Duration = Duration::from_millis(500);

/// Whose endpoint an address is.
#[derive(Clone, Copy)]
struct Owner {
    peer: PeerSlot,
    incarnation: u32,
    /// The address that we send to it from, if that is known.
    local: Option<IpAddr>,
}

/// The last address looked for among all peers, whose it is and when that was found.
#[derive(Default)]
pub(super) struct LoopGuard {
    last: Option<(SocketAddr, Option<Owner>, Instant)>,
}

impl Context {
    /// Whether `packet`, bound for `peer`, is our own datagram. If so, tells meta.
    #[inline]
    pub(super) fn is_looped(
        &mut self,
        inner: &Inner,
        packet: &[u8],
        peer: (PeerSlot, &PeerPath),
        groups: &Groups,
    ) -> bool {
        if inner.protocol != UDP || inner.fragment {
            return false;
        }
        let Some(ours) = destination(inner, packet, groups) else {
            return false;
        };
        let (slot, path) = peer;
        let owner = match path.endpoint {
            Some(endpoint) if same(endpoint.remote, ours) => Some(owner(slot, path)),
            _ => self.search(ours),
        };
        // From elsewhere it is somebody else's, who must not be able to cut a peer off by it.
        let Some(owner) = owner.filter(|owner| owner.local.is_none_or(|ip| ip == inner.source))
        else {
            return false;
        };
        let (peer, incarnation) = (owner.peer, owner.incarnation);
        self.reports.raise(
            Throttled::Looped,
            (peer, incarnation),
            Event::Looped { peer, incarnation },
            self.now,
            &mut self.tally,
        );
        true
    }

    /// The peer with this endpoint.
    #[cold]
    fn search(&mut self, address: SocketAddr) -> Option<Owner> {
        if let Some((last, owner, at)) = self.looped.last {
            if last == address && self.now.since(at) < REMEMBERED {
                return owner;
            }
        }
        if !self.searches.take(self.now) {
            return None;
        }
        let owner = self
            .tables
            .find_peer(|path| {
                path.endpoint
                    .is_some_and(|endpoint| same(endpoint.remote, address))
            })
            .map(|(peer, path)| owner(peer, &path));
        self.looped.last = Some((address, owner, self.now));
        owner
    }
}

fn owner(peer: PeerSlot, path: &PeerPath) -> Owner {
    Owner {
        peer,
        incarnation: path.incarnation,
        local: path.endpoint.and_then(|endpoint| endpoint.local),
    }
}

/// Where a WireGuard message from one of our ports is bound for; `None` for all else.
fn destination(inner: &Inner, packet: &[u8], groups: &Groups) -> Option<SocketAddr> {
    let udp = packet.get(inner.header_length..inner.length)?;
    let (header, payload) = udp.split_at_checked(UDP_HEADER)?;
    let source = u16::from_be_bytes([header[0], header[1]]);
    if !groups.listens_on(source) {
        return None;
    }
    MessageType::of(payload)?;
    let port = u16::from_be_bytes([header[2], header[3]]);
    Some(SocketAddr::new(inner.destination, port))
}

/// Equal but for scope and flow label, which an inner packet does not show.
fn same(one: SocketAddr, other: SocketAddr) -> bool {
    one.ip() == other.ip() && one.port() == other.port()
}
