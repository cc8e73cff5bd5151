//! Privileged requests that the supervisor has not answered yet, and what each was for.

use super::core::Core;
use crate::channel::{FromMeta, Privileged};
use ringway_shm::ids::PeerSlot;
use std::collections::{HashMap, HashSet, VecDeque};
use std::net::SocketAddr;

/// What an answer is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// A `set` transaction waits for it.
    Transaction,
    /// A reload waits for it.
    Reload,
    /// The route to a peer's endpoint.
    Route {
        /// The peer.
        peer: PeerSlot,
        /// Which user of the slot.
        incarnation: u32,
        /// The endpoint that was asked for.
        destination: SocketAddr,
        /// The device that it was asked for; 0: any.
        ifindex: u32,
    },
}

/// Questions for routes that may be open at once: what is urgent must not wait behind more.
const ROUTES: usize = 64;

/// The open requests.
#[derive(Debug, Default)]
pub(crate) struct Requests {
    last: u32,
    open: HashMap<u32, Purpose>,
    routes: Routes,
}

/// The questions for routes: each slot has one open and one that waits, at most.
#[derive(Debug, Default)]
struct Routes {
    open: HashSet<PeerSlot>,
    wanted: HashSet<PeerSlot>,
    /// Of those wanted, the ones that are not open.
    turn: VecDeque<PeerSlot>,
}

impl Routes {
    fn want(&mut self, slot: PeerSlot) {
        if self.wanted.insert(slot) && !self.open.contains(&slot) {
            self.turn.push_back(slot);
        }
    }

    /// Whose question may be asked now.
    fn next(&mut self) -> Option<PeerSlot> {
        if self.open.len() >= ROUTES {
            return None;
        }
        let slot = self.turn.pop_front()?;
        self.wanted.remove(&slot);
        Some(slot)
    }

    fn answered(&mut self, slot: PeerSlot) {
        if self.open.remove(&slot) && self.wanted.contains(&slot) {
            self.turn.push_back(slot);
        }
    }
}

impl Requests {
    /// Takes the purpose of an answer out; `None`: nobody asked.
    pub(super) fn take(&mut self, id: u32) -> Option<Purpose> {
        let purpose = self.open.remove(&id);
        if let Some(Purpose::Route { peer, .. }) = purpose {
            self.routes.answered(peer);
        }
        purpose
    }

    /// A peer's route is to be asked for.
    pub(super) fn want_route(&mut self, slot: PeerSlot) {
        self.routes.want(slot);
    }

    /// Whose route may be asked for now.
    pub(super) fn next_route(&mut self) -> Option<PeerSlot> {
        self.routes.next()
    }
}

impl Core {
    /// Asks the supervisor; the answer comes with this number.
    pub(super) fn request(&mut self, purpose: Purpose, what: Privileged) -> u32 {
        self.requests.last = self.requests.last.wrapping_add(1);
        let id = self.requests.last;
        if let Purpose::Route { peer, .. } = purpose {
            self.requests.routes.open.insert(peer);
        }
        self.requests.open.insert(id, purpose);
        self.out.supervisor.push(FromMeta::Request { id, what });
        id
    }
}
