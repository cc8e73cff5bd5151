//! The allowed IPs of all peers: who owns a prefix, and what a peer owns.

use ringway_proto::prefix::Prefix;
use ringway_shm::ids::PeerSlot;
use ringway_shm::routes::Route;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

/// Both directions of the same relation, in step.
#[derive(Debug, Default)]
pub(crate) struct AllowedIps {
    owners: BTreeMap<Prefix, PeerSlot>,
    owned: BTreeMap<PeerSlot, BTreeSet<Prefix>>,
}

impl AllowedIps {
    /// How many prefixes there are.
    pub(crate) fn len(&self) -> usize {
        self.owners.len()
    }

    /// Who owns exactly this prefix.
    pub(crate) fn owner(&self, prefix: Prefix) -> Option<PeerSlot> {
        self.owners.get(&prefix.masked()).copied()
    }

    /// Gives `prefix` to `peer`; a peer that had it before loses it, as the kernel does it. Returns
    /// the former owner.
    pub(crate) fn insert(&mut self, prefix: Prefix, peer: PeerSlot) -> Option<PeerSlot> {
        let prefix = prefix.masked();
        let former = self.owners.insert(prefix, peer);
        if let Some(former) = former.filter(|former| *former != peer) {
            self.disown(former, prefix);
        }
        self.owned.entry(peer).or_default().insert(prefix);
        former
    }

    /// Takes `prefix` from `peer`; of another owner it stays.
    pub(crate) fn remove(&mut self, prefix: Prefix, peer: PeerSlot) -> bool {
        let prefix = prefix.masked();
        if self.owners.get(&prefix) != Some(&peer) {
            return false;
        }
        self.owners.remove(&prefix);
        self.disown(peer, prefix);
        true
    }

    /// Takes everything from `peer`.
    pub(crate) fn clear(&mut self, peer: PeerSlot) -> bool {
        let Some(prefixes) = self.owned.remove(&peer) else {
            return false;
        };
        for prefix in &prefixes {
            self.owners.remove(prefix);
        }
        !prefixes.is_empty()
    }

    /// What `peer` owns, in order, from after `last`.
    pub(crate) fn of(
        &self,
        peer: PeerSlot,
        last: Option<Prefix>,
    ) -> impl Iterator<Item = Prefix> + '_ {
        let from = last.map_or(Bound::Unbounded, Bound::Excluded);
        self.owned
            .get(&peer)
            .into_iter()
            .flat_map(move |set| set.range((from, Bound::Unbounded)).copied())
    }

    /// Every prefix of every peer, as the workers' table takes it.
    pub(crate) fn routes(&self) -> Vec<Route> {
        self.owners
            .iter()
            .map(|(prefix, peer)| Route {
                address: prefix.address(),
                length: prefix.length(),
                peer: *peer,
            })
            .collect()
    }

    fn disown(&mut self, peer: PeerSlot, prefix: Prefix) {
        if let Some(set) = self.owned.get_mut(&peer) {
            set.remove(&prefix);
            if set.is_empty() {
                self.owned.remove(&peer);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefix(text: &str) -> Prefix {
        text.parse().unwrap()
    }

    #[test]
    fn a_prefix_moves_from_one_peer_to_another() {
        let mut allowed = AllowedIps::default();
        assert_eq!(allowed.insert(prefix("10.0.0.7/8"), PeerSlot(1)), None);
        assert_eq!(
            allowed.insert(prefix("10.0.0.0/8"), PeerSlot(2)),
            Some(PeerSlot(1))
        );
        assert_eq!(allowed.of(PeerSlot(1), None).count(), 0);
        assert_eq!(
            allowed.of(PeerSlot(2), None).collect::<Vec<_>>(),
            [prefix("10.0.0.0/8")]
        );
        assert!(
            !allowed.remove(prefix("10.0.0.0/8"), PeerSlot(1)),
            "only its owner loses it"
        );
        assert_eq!(
            allowed.insert(prefix("10.0.0.0/8"), PeerSlot(2)),
            Some(PeerSlot(2))
        );
        assert_eq!(allowed.len(), 1);
        assert!(allowed.clear(PeerSlot(2)));
        assert_eq!(allowed.len(), 0);
    }

    #[test]
    fn a_listing_goes_on_where_it_stopped() {
        let mut allowed = AllowedIps::default();
        for net in 0..10 {
            allowed.insert(prefix(&format!("10.{net}.0.0/16")), PeerSlot(0));
        }
        let first: Vec<_> = allowed.of(PeerSlot(0), None).take(4).collect();
        let rest: Vec<_> = allowed.of(PeerSlot(0), first.last().copied()).collect();
        assert_eq!([first, rest].concat().len(), 10);
    }
}
