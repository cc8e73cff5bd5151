//! The numbers that decide how large everything is.

use super::SegmentError;

/// The greatest number of shards.
pub const SHARDS_MAX: u8 = 64;
/// The greatest limit of peers: lane slots then leave ten bits of the receiver index to the generation.
pub const PEERS_MAX: u32 = 1 << 20;
/// The greatest limit of routes.
pub const ROUTES_MAX: u32 = 1 << 24;

/// The sizes that were fixed at start; every segment of a gateway has the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Geometry {
    /// Shards, a power of two up to [`SHARDS_MAX`].
    pub shards: u8,
    /// The limit of peers.
    pub peers: u32,
    /// Places for lanes: a power of two, at least four for each peer and one for each shard.
    pub lanes: u32,
    /// The limit of routes, IPv4 and IPv6 together.
    pub routes: u32,
}

impl Geometry {
    /// The geometry for these limits; an error names the one that is out of range.
    pub fn new(shards: u8, peers: u32, routes: u32) -> Result<Geometry, SegmentError> {
        if !shards.is_power_of_two() || shards > SHARDS_MAX {
            return Err(SegmentError::Geometry {
                field: "shards",
                value: shards.into(),
                allowed: "a power of two from 1 to 64",
            });
        }
        if peers == 0 || peers > PEERS_MAX {
            return Err(SegmentError::Geometry {
                field: "peers",
                value: peers.into(),
                allowed: "from 1 to 1048576",
            });
        }
        if routes == 0 || routes > ROUTES_MAX {
            return Err(SegmentError::Geometry {
                field: "routes",
                value: routes.into(),
                allowed: "from 1 to 16777216",
            });
        }
        // A home shard's lanes are those whose low bits are the shard: four for each of its peers.
        let peers_of_a_shard = peers.div_ceil(shards.into());
        let lanes = (4 * peers_of_a_shard * u32::from(shards)).next_power_of_two();
        Ok(Geometry {
            shards,
            peers,
            lanes,
            routes,
        })
    }

    /// How many low bits of a receiver index are the lane slot.
    pub const fn lane_bits(&self) -> u32 {
        self.lanes.trailing_zeros()
    }
}
