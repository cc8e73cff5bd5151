//! Privileged requests that the supervisor has not answered yet, and what each was for.

use super::core::Core;
use crate::channel::{FromMeta, Privileged};
use ringway_shm::ids::PeerSlot;
use std::collections::HashMap;
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

/// The open requests.
#[derive(Debug, Default)]
pub(crate) struct Requests {
    last: u32,
    open: HashMap<u32, Purpose>,
}

impl Requests {
    /// Takes the purpose of an answer out; `None`: nobody asked.
    pub(super) fn take(&mut self, id: u32) -> Option<Purpose> {
        self.open.remove(&id)
    }
}

impl Core {
    /// Asks the supervisor; the answer comes with this number.
    pub(super) fn request(&mut self, purpose: Purpose, what: Privileged) -> u32 {
        self.requests.last = self.requests.last.wrapping_add(1);
        let id = self.requests.last;
        self.requests.open.insert(id, purpose);
        self.out.supervisor.push(FromMeta::Request { id, what });
        id
    }
}
