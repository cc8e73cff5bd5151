//! The lanes' keys, prepared for use.
//!
//! Reading a key out of shared memory and computing its schedule is done once a session; after
//! that one load of the lane's generation tells whether what is here is still current.

use crate::aead::{DefaultKey, Key};
use crate::tables::Tables;
use ringway_proto::replay::Window;
use ringway_proto::time::Instant;
use ringway_shm::ids::{LaneSlot, PeerSlot};
use ringway_shm::lanes::Lanes;

/// A lane with a live session.
pub(super) struct Session {
    generation: u32,
    pub(super) peer: PeerSlot,
    pub(super) incarnation: u32,
    pub(super) local_index: u32,
    pub(super) remote_index: u32,
    pub(super) born: Instant,
    pub(super) initiator: bool,
    pub(super) sealing: DefaultKey,
    pub(super) opening: DefaultKey,
    /// Meta has been told that the peer uses this session.
    pub(super) confirmed: bool,
}

/// A place for each lane of the table; most stay empty.
pub(super) struct LaneCache {
    places: Vec<Option<Box<Session>>>,
}

impl LaneCache {
    pub(super) fn new(tables: &Tables) -> LaneCache {
        LaneCache {
            places: (0..tables.geometry.lanes).map(|_| None).collect(),
        }
    }

    /// The session on a lane, read anew when its generation changed. `None`: there is none.
    #[inline]
    pub(super) fn get(&mut self, tables: &Tables, lane: LaneSlot) -> Option<&mut Session> {
        let place = self.places.get_mut(lane.index())?;
        let generation = tables.keys.generation(lane);
        let current = matches!(place, Some(session) if session.generation == generation);
        if !current {
            *place = load(tables, lane, generation);
        }
        place.as_deref_mut()
    }

    /// Wipes a lane's keys.
    pub(super) fn forget(&mut self, lane: LaneSlot) {
        if let Some(place) = self.places.get_mut(lane.index()) {
            *place = None;
        }
    }

    /// Wipes all that are no longer current.
    pub(super) fn sweep(&mut self, tables: &Tables) {
        for (slot, place) in self.places.iter_mut().enumerate() {
            if let Some(session) = place {
                if session.generation != tables.keys.generation(LaneSlot(slot as u32)) {
                    *place = None;
                }
            }
        }
    }
}

/// Reads a lane's keys. Off the steady path: once a session and worker.
#[cold]
fn load(tables: &Tables, lane: LaneSlot, generation: u32) -> Option<Box<Session>> {
    let keys = tables.keys.read(lane)?;
    if tables.keys.generation(lane) != generation || keys.peer.0 >= tables.geometry.peers {
        return None;
    }
    if tables.owns(tables.home(lane)) {
        // The window's owner may have been another process, which died in the middle of it.
        window(&tables.lanes, lane).recover();
    }
    Some(Box::new(Session {
        generation,
        peer: keys.peer,
        incarnation: keys.incarnation,
        local_index: keys.local_index,
        remote_index: keys.remote_index,
        born: Instant(keys.born_ns),
        initiator: keys.initiator,
        sealing: DefaultKey::new(&keys.send_key),
        opening: DefaultKey::new(&keys.receive_key),
        confirmed: false,
    }))
}

/// A lane's replay window. Only the worker that owns its home shard may change it.
#[inline]
pub(super) fn window(lanes: &Lanes, lane: LaneSlot) -> Window<'_> {
    let words = lanes.window(lane);
    Window {
        top: words.top,
        cleared: words.cleared,
        bits: words.bits,
    }
}
