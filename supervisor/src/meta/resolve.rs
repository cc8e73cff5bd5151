//! Endpoints that are host names: looked up by the helper, and again whenever handshakes go
//! unanswered, since what a name stands for moves.

use super::core::Core;
use super::handshake::SILENT_ATTEMPTS;
use super::jobs::JobPurpose;
use super::refusals::NOWHERE;
use crate::helper::protocol::{Outcome, Work};
use ringway_proto::time::Instant;
use ringway_shm::ids::PeerSlot;
use ringway_shm::state::RefusalReason;
use std::net::SocketAddr;
use std::time::Duration;

/// The first pause between two look-ups of a name; each further one is twice as long.
const FIRST_PAUSE: Duration = Duration::from_secs(5);
const LONGEST_PAUSE: Duration = Duration::from_secs(120);

/// A resolver may take this long, with its own retries.
const LIMIT: Duration = Duration::from_secs(90);

/// The state of a peer's look-ups.
#[derive(Debug, Default, Clone)]
pub(crate) struct Resolving {
    job: Option<u64>,
    /// Not before.
    pause_ends: Option<Instant>,
    pause: Duration,
    /// The last look-up gave nothing, so the next one comes by itself.
    failed: bool,
}

impl Resolving {
    /// Whether the name has no address.
    pub(crate) fn failed(&self) -> bool {
        self.failed
    }

    /// When to look it up again of one's own accord.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.pause_ends
            .filter(|_| self.failed && self.job.is_none())
    }

    /// The peer answered: the address is right.
    pub(crate) fn answered(&mut self) {
        self.pause = Duration::ZERO;
        self.pause_ends = None;
    }

    fn finished(&mut self, failed: bool, now: Instant) {
        self.job = None;
        self.failed = failed;
        self.pause = (self.pause * 2).clamp(FIRST_PAUSE, LONGEST_PAUSE);
        self.pause_ends = Some(now + self.pause);
    }

    fn may_start(&self, now: Instant) -> bool {
        self.job.is_none() && self.pause_ends.is_none_or(|end| end <= now)
    }
}

impl Core {
    /// Takes a configured endpoint: an address at once, a name when the helper has found it.
    pub(super) fn resolve(&mut self, slot: PeerSlot) {
        let Some(peer) = self.peers.get_mut(slot) else {
            return;
        };
        let (Some(host), incarnation) = (&peer.host, peer.incarnation) else {
            return;
        };
        if let Some(address) = host.socket_addr() {
            return self.set_endpoint(slot, address);
        }
        if peer.resolving.job.is_some() {
            return;
        }
        let work = Work::Resolve {
            host: host.lookup_name(),
            port: host.port,
        };
        let id = self.job(
            JobPurpose::Resolve {
                peer: slot,
                incarnation,
            },
            work,
            LIMIT,
        );
        if let Some(peer) = self.peers.get_mut(slot) {
            peer.resolving.job = Some(id);
        }
    }

    /// The peer does not answer: its name may stand for another address by now.
    pub(super) fn resolve_again(&mut self, slot: PeerSlot) {
        let now = self.now;
        let due = self.peers.get(slot).is_some_and(|peer| {
            peer.host
                .as_ref()
                .is_some_and(|host| host.socket_addr().is_none())
                && peer.resolving.may_start(now)
        });
        if due {
            self.resolve(slot);
        }
    }

    /// A look-up that failed is repeated when its pause is over.
    pub(super) fn resolve_when_due(&mut self, slot: PeerSlot) {
        let now = self.now;
        if self
            .peers
            .get(slot)
            .and_then(|peer| peer.resolving.deadline())
            .is_some_and(|at| at <= now)
        {
            self.resolve_again(slot);
        }
    }

    /// What the helper found; `Err` is one line.
    pub(super) fn resolved(
        &mut self,
        slot: PeerSlot,
        incarnation: u32,
        id: u64,
        result: Result<Outcome, String>,
    ) {
        let (now, families) = (self.now, self.families);
        let Some(peer) = self.peers.same(slot, incarnation) else {
            return;
        };
        if peer.resolving.job != Some(id) {
            return;
        }
        let known = peer.endpoint.map(|endpoint| endpoint.remote);
        let usable = match result {
            Ok(Outcome::Addresses(addresses)) => {
                let usable: Vec<_> = addresses
                    .into_iter()
                    .filter(|address| {
                        if address.is_ipv4() {
                            families.v4
                        } else {
                            families.v6
                        }
                    })
                    .collect();
                if usable.is_empty() {
                    Err("it has no address of a family that is listened on".into())
                } else {
                    Ok(usable)
                }
            }
            Ok(_) => Err("the helper answered something else".into()),
            Err(error) => Err(error),
        };
        let first_failure = usable.is_err() && !peer.resolving.failed;
        peer.resolving.finished(usable.is_err(), now);
        match usable {
            Ok(usable) => {
                let silent = peer.unanswered > SILENT_ATTEMPTS;
                let chosen = choose(&usable, known, silent);
                self.set_endpoint(slot, chosen);
            }
            Err(error) => {
                if first_failure {
                    tracing::warn!(peer = %peer.label(), "endpoint not resolved, tried again later: {error}");
                }
                if known.is_none() {
                    self.refuse(slot, RefusalReason::UnresolvedEndpoint, NOWHERE);
                }
            }
        }
        self.reschedule(slot);
    }
}

/// The address to speak to: the one in use while it is among them, but of several the next one
/// when it stays silent.
fn choose(usable: &[SocketAddr], known: Option<SocketAddr>, silent: bool) -> SocketAddr {
    match known.and_then(|known| usable.iter().position(|address| *address == known)) {
        Some(position) if silent => usable[(position + 1) % usable.len()],
        Some(position) => usable[position],
        None => usable[0],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_silent_address_makes_room_for_the_next() {
        let list: Vec<SocketAddr> = ["192.0.2.1:1", "192.0.2.2:1"]
            .map(|text| text.parse().unwrap())
            .into();
        assert_eq!(choose(&list, None, true), list[0]);
        assert_eq!(choose(&list, Some(list[0]), false), list[0]);
        assert_eq!(choose(&list, Some(list[0]), true), list[1]);
        assert_eq!(choose(&list, Some(list[1]), true), list[0]);
        assert_eq!(
            choose(&list, Some("198.51.100.1:9".parse().unwrap()), false),
            list[0]
        );
    }

    #[test]
    fn pauses_grow_and_end() {
        let mut resolving = Resolving::default();
        let mut now = Instant(0);
        for expected in [5, 10, 20, 40, 80, 120, 120] {
            assert!(resolving.may_start(now));
            resolving.finished(true, now);
            assert!(!resolving.may_start(now));
            now = resolving.deadline().unwrap();
            assert_eq!(resolving.pause, Duration::from_secs(expected));
        }
        resolving.answered();
        assert!(resolving.may_start(now));
        resolving.finished(false, now);
        assert_eq!(resolving.pause, FIRST_PAUSE);
        assert_eq!(resolving.deadline(), None, "only a failure repeats itself");
    }
}
