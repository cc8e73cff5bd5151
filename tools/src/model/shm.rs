//! `shm`: the shared memory that a tool may see, and how full the tables are.

use std::os::unix::fs::MetadataExt;

use serde::Serialize;

use super::Human;
use crate::attach::Gateway;
use crate::render::table::{Table, pairs};
use crate::render::units;

/// The segments and what was fixed at start.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Shm {
    /// The segments that tools may map; those with keys and counters of nonces are never among them.
    pub(crate) segments: Vec<Segment>,
    /// Shards.
    pub(crate) shards: u8,
    /// Places for lanes.
    pub(crate) lane_capacity: u32,
    /// Peers in use.
    pub(crate) peers_used: u64,
    /// The limit of peers.
    pub(crate) peers_capacity: u32,
    /// Routes in use.
    pub(crate) routes_used: u64,
    /// The limit of routes.
    pub(crate) routes_capacity: u32,
    /// The epoch that meta is in.
    pub(crate) epoch: u64,
}

/// A segment.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Segment {
    /// Its name.
    pub(crate) name: &'static str,
    /// Its greatest size.
    pub(crate) size_bytes: u64,
    /// What of it has memory behind it.
    pub(crate) allocated_bytes: u64,
    /// Its mode: readable for its owner only, writable for nobody.
    pub(crate) mode: String,
}

impl Shm {
    /// Reads the tables' fill and the segments' sizes.
    pub(crate) fn read(gateway: &Gateway) -> Shm {
        let segments = gateway.segments.iter().filter_map(|(kind, file)| {
            let metadata = file.metadata().ok()?;
            Some(Segment {
                name: kind.as_str(),
                size_bytes: metadata.len(),
                allocated_bytes: metadata.blocks() * 512,
                mode: format!("{:04o}", metadata.mode() & 0o7777),
            })
        });
        let slots = 0..gateway.state.peer_high_water();
        let peers = slots.filter(|&slot| {
            gateway
                .state
                .peer_path(ringway_shm::ids::PeerSlot(slot))
                .is_some()
        });
        Shm {
            segments: segments.collect(),
            shards: gateway.geometry.shards,
            lane_capacity: gateway.geometry.lanes,
            peers_used: peers.count() as u64,
            peers_capacity: gateway.geometry.peers,
            routes_used: gateway.state.routes().len() as u64,
            routes_capacity: gateway.geometry.routes,
            epoch: gateway.state.epoch(),
        }
    }
}

impl Human for Shm {
    fn human(&self, _name: &str) -> String {
        let mut table = Table::new(&["SEGMENT", ">SIZE", ">ALLOCATED", "MODE"]);
        for segment in &self.segments {
            table.row([
                segment.name.to_owned(),
                units::bytes(segment.size_bytes),
                units::bytes(segment.allocated_bytes),
                segment.mode.clone(),
            ]);
        }
        let of = |used: u64, capacity: u32| format!("{used} of {capacity}");
        let fill = pairs(&[
            ("peers", of(self.peers_used, self.peers_capacity)),
            ("routes", of(self.routes_used, self.routes_capacity)),
            ("lanes", format!("{} places", self.lane_capacity)),
            ("shards", self.shards.to_string()),
            ("epoch", self.epoch.to_string()),
        ]);
        format!("{}\n{fill}", table.render())
    }
}
