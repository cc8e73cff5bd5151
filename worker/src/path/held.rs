//! Packets that wait until their answer can go the right way.
//!
//! A peer that moved, or that speaks on a new session for the first time, shows it by a packet, and meta stores it in
//! the peer's path a moment later. The kernel's WireGuard does both in one step, so an answer never leaves for where
//! the peer was before, nor on a session that it has forgotten. Here that peer's packets are held back for that
//! moment, in order; everybody else's pass.

use super::Context;
use super::rx::same_endpoint;
use crate::tun::VNET_HEADER;
use ringway_proto::time::Instant;
use ringway_shm::ids::{LaneSlot, PeerSlot, ShardId};
use ringway_shm::state::{Endpoint, PeerPath};
use std::time::Duration;

/// How long at most: meta may be busy, or know of something newer and leave the path as it is.
const LONGEST: Duration = Duration::from_millis(10);
/// Peers that are waited for at once; a further one's packets pass unheld.
const PEERS: usize = 64;
/// Packets held in all; with more, the rest of a turn's pass unheld and may overtake.
const PACKETS: usize = 512;

/// What a peer's path will be when meta has heard.
#[derive(Debug, Clone, Copy)]
pub(super) struct Expected {
    pub(super) peer: PeerSlot,
    pub(super) incarnation: u32,
    /// The lane that the peer confirmed.
    pub(super) lane: Option<LaneSlot>,
    /// Where it moved.
    pub(super) endpoint: Option<Endpoint>,
}

impl Expected {
    fn is_met(&self, path: Option<PeerPath>) -> bool {
        let Some(path) = path.filter(|path| path.incarnation == self.incarnation) else {
            return true; // the peer is gone: nothing to wait for
        };
        let lane = self.lane.is_none_or(|lane| path.lane == Some(lane));
        let moved = self.endpoint.is_none_or(|seen| {
            path.endpoint
                .is_some_and(|known| same_endpoint(&known, &seen))
        });
        lane && moved
    }
}

struct Wait {
    expected: Expected,
    until: Instant,
    over: bool,
}

/// A packet behind room for the interface's header.
pub(super) struct HeldPacket {
    peer: PeerSlot,
    pub(super) shard: ShardId,
    pub(super) frame: Vec<u8>,
}

/// The packets and what they wait for.
#[derive(Default)]
pub(super) struct Held {
    waits: Vec<Wait>,
    packets: Vec<HeldPacket>,
}

impl Held {
    /// From now on that peer's packets wait.
    pub(super) fn expect(&mut self, expected: Expected, now: Instant) {
        let until = now + LONGEST;
        let room = self.waits.len() < PEERS;
        let known = self
            .waits
            .iter_mut()
            .find(|wait| wait.expected.peer == expected.peer);
        match known {
            // Moved again while it is waited for: the time limit of the first stays.
            Some(wait) => {
                let before = wait.expected;
                wait.expected = Expected {
                    lane: expected.lane.or(before.lane),
                    endpoint: expected.endpoint.or(before.endpoint),
                    ..expected
                };
            }
            None if room => self.waits.push(Wait {
                expected,
                until,
                over: false,
            }),
            None => {}
        }
    }

    /// Nobody is waited for: the usual state.
    pub(super) fn is_empty(&self) -> bool {
        self.waits.is_empty()
    }

    /// Takes a packet if its peer is waited for. True: it is held.
    pub(super) fn hold(&mut self, peer: PeerSlot, shard: ShardId, packet: &[u8]) -> bool {
        let waits = self.waits.iter().any(|wait| wait.expected.peer == peer);
        if !waits || self.packets.len() >= PACKETS {
            return false;
        }
        let mut frame = vec![0; VNET_HEADER + packet.len()];
        frame[VNET_HEADER..].copy_from_slice(packet);
        self.packets.push(HeldPacket { peer, shard, frame });
        true
    }

    /// The packets whose wait is over, in the order in which they came.
    pub(super) fn release(&mut self, ctx: &Context) -> Vec<HeldPacket> {
        for wait in &mut self.waits {
            let path = ctx.tables.path(wait.expected.peer);
            wait.over = wait.expected.is_met(path) || ctx.now >= wait.until;
        }
        if !self.waits.iter().any(|wait| wait.over) {
            return Vec::new();
        }
        let waits = &self.waits;
        let waited = |packet: &HeldPacket| {
            waits
                .iter()
                .any(|wait| !wait.over && wait.expected.peer == packet.peer)
        };
        let (kept, free) = std::mem::take(&mut self.packets)
            .into_iter()
            .partition(waited);
        self.packets = kept;
        self.waits.retain(|wait| !wait.over);
        free
    }
}
