//! The shared tables as a worker sees them, and whose lane is whose.

use ringway_shm::ids::{LaneSlot, PeerSlot, ShardId, WorkerSlot};
use ringway_shm::keys::Keys;
use ringway_shm::lanes::Lanes;
use ringway_shm::rings::Rings;
use ringway_shm::segment::Geometry;
use ringway_shm::state::{PeerPath, State};
use ringway_shm::sync::Ordering;
use std::net::IpAddr;

/// Views of the segments, and the sizes that indices are checked against.
pub(crate) struct Tables {
    pub(crate) state: State,
    pub(crate) keys: Keys,
    pub(crate) lanes: Lanes,
    pub(crate) rings: Rings,
    pub(crate) geometry: Geometry,
    /// Which worker this is.
    pub(crate) slot: WorkerSlot,
}

impl Tables {
    /// The lane that a receiver index names: its low bits.
    #[inline]
    pub(crate) fn lane_of(&self, receiver: u32) -> LaneSlot {
        LaneSlot(receiver & (self.geometry.lanes - 1))
    }

    /// The shard that a lane lives on: the low bits of its slot.
    #[inline]
    pub(crate) fn home(&self, lane: LaneSlot) -> ShardId {
        ShardId((lane.0 & (u32::from(self.geometry.shards) - 1)) as u8)
    }

    /// The worker that owns a shard, as the supervisor says.
    #[inline]
    pub(crate) fn owner(&self, shard: ShardId) -> WorkerSlot {
        let word = self.rings.shard_owner(shard).load(Ordering::Relaxed);
        WorkerSlot(u8::try_from(word).unwrap_or(u8::MAX))
    }

    /// Whether a shard is this worker's.
    #[inline]
    pub(crate) fn owns(&self, shard: ShardId) -> bool {
        self.owner(shard) == self.slot
    }

    /// The way to a peer, if there is one of that slot.
    #[inline]
    pub(crate) fn path(&self, peer: PeerSlot) -> Option<PeerPath> {
        if peer.0 < self.geometry.peers {
            self.state.peer_path(peer)
        } else {
            None
        }
    }

    /// Whose address that is, by the longest prefix of all allowed IPs. The turn's epoch keeps the
    /// table from being written meanwhile.
    #[inline]
    pub(crate) fn route(&self, address: IpAddr) -> Option<PeerSlot> {
        let routes = self.state.routes();
        match address {
            IpAddr::V4(address) => routes.lookup_v4(address.into()),
            IpAddr::V6(address) => routes.lookup_v6(address.into()),
        }
    }

    /// The first peer whose endpoint `matches`, looked for in all of them: for rare events only.
    pub(crate) fn find_peer(
        &self,
        matches: impl Fn(&PeerPath) -> bool,
    ) -> Option<(PeerSlot, PeerPath)> {
        (0..self.state.peer_high_water().min(self.geometry.peers))
            .map(PeerSlot)
            .find_map(|peer| {
                let path = self.state.peer_path(peer)?;
                matches(&path).then_some((peer, path))
            })
    }
}
