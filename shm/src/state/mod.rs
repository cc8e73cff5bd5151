//! The `state` segment: the gateway, its peers and routes. Meta writes, everybody reads.

mod records;
mod types;
mod writer;

pub use types::{Endpoint, GatewayRecord, Name, PeerPath, PeerRecord, Refusal, RefusalReason};
pub use writer::StateWriter;

pub(crate) use records::{GatewayWords, PathWords, PeerWords};

use crate::{
    ids::PeerSlot,
    layout::shared,
    routes::{Routes, RoutesControl},
    segment::{Segment, SegmentError, SegmentKind, View},
    sync::{AtomicU32, AtomicU64, Ordering},
};

shared! {
    /// The words that are not of one peer. The first line is what workers read all the time.
    #[repr(C, align(64))]
    pub(crate) struct StateControl {
        epoch: AtomicU64,
        interface_mtu: AtomicU32,
        peer_high_water: AtomicU32,
        routes: RoutesControl,
        _first_line: [AtomicU64; 3],
        gateway: GatewayWords,
    }
}

/// The `state` segment for readers.
#[derive(Clone, Debug)]
pub struct State {
    control: View<StateControl>,
    paths: View<[PathWords]>,
    peers: View<[PeerWords]>,
    routes: Routes,
}

impl State {
    /// The view of an attached `state` segment.
    pub fn attach(segment: &Segment) -> Result<State, SegmentError> {
        segment.expect_kind(SegmentKind::State)?;
        let control = segment.one::<StateControl>("control")?;
        let missing = || SegmentError::WrongKind {
            found: "unknown",
            expected: "state",
        };
        let routes = Routes::new(
            control
                .project(|control| Some(&control.routes))
                .ok_or_else(missing)?,
            [segment.table("routes_0")?, segment.table("routes_1")?],
        );
        Ok(State {
            control,
            paths: segment.table("paths")?,
            peers: segment.table("peers")?,
            routes,
        })
    }

    /// The gateway; `None` before meta wrote it first.
    pub fn gateway(&self) -> Option<GatewayRecord> {
        records::gateway_from_words(&self.control.gateway.read()?)
    }

    /// The interface's MTU: one relaxed load. 0 before meta wrote the gateway first.
    #[inline]
    pub fn interface_mtu(&self) -> u16 {
        self.control.interface_mtu.load(Ordering::Relaxed) as u16
    }

    /// The way to a peer; `None`: no peer has this slot.
    #[inline]
    pub fn peer_path(&self, peer: PeerSlot) -> Option<PeerPath> {
        records::path_from_words(&self.paths.get(peer.index())?.read()?)
    }

    /// A peer's record; `None`: no peer has this slot.
    pub fn peer(&self, peer: PeerSlot) -> Option<PeerRecord> {
        records::peer_from_words(&self.peers.get(peer.index())?.read()?)
    }

    /// All peers' slots are below this.
    pub fn peer_high_water(&self) -> u32 {
        let mark = self.control.peer_high_water.load(Ordering::Acquire);
        mark.min(self.peers.len() as u32)
    }

    /// The allowed IPs.
    #[inline]
    pub fn routes(&self) -> &Routes {
        &self.routes
    }

    /// The epoch: see [`epoch`](crate::epoch).
    #[inline]
    pub fn epoch(&self) -> u64 {
        self.control.epoch.load(Ordering::Acquire)
    }
}
