//! The path of a packet, in both directions.
//!
//! [`tx`] takes inner packets from the TUN queues to the network, [`rx`] takes datagrams to the
//! TUN queues. Both work on batches, in one arena each, and share a [`Context`]: the tables, the
//! lanes' prepared keys, what is to be counted and told. The loop calls them; they never wait.

mod activity;
pub(crate) mod backlog;
mod flows;
mod held;
mod lanecache;
mod looped;
mod narrow;
pub(crate) mod rx;
mod staging;
pub(crate) mod tx;

use crate::reports::{Reports, Throttled};
use crate::tables::Tables;
use crate::tally::Tally;
use lanecache::{LaneCache, Session};
use looped::LoopGuard;
use ringway_proto::time::Instant;
use ringway_proto::timers::Constants;
use ringway_proto::too_big::TokenBucket;
use ringway_shm::ids::{LaneSlot, PeerSlot};
use ringway_shm::messages::Event;

/// The bytes before the sealed packet: type, receiver index, counter.
pub(crate) const HEADER: usize = ringway_proto::wire::DataHeader::LEN;

/// Answers to senders of packets that are too big, a second, and how many at once.
const TOO_BIG_RATE: u32 = 100;
const TOO_BIG_BURST: u32 = 50;
/// Searches of all peers by address for rare events, a second.
const SEARCH_RATE: u32 = 20;

/// What both directions share.
pub(crate) struct Context {
    pub(crate) tables: Tables,
    pub(crate) reports: Reports,
    pub(crate) tally: Tally,
    pub(crate) constants: Constants,
    /// When the turn began.
    pub(crate) now: Instant,
    cache: LaneCache,
    looped: LoopGuard,
    too_big: TokenBucket,
    searches: TokenBucket,
}

impl Context {
    pub(crate) fn new(tables: Tables, reports: Reports, constants: Constants) -> Context {
        Context {
            cache: LaneCache::new(&tables),
            tables,
            reports,
            tally: Tally::default(),
            constants,
            now: Instant(0),
            looped: LoopGuard::default(),
            too_big: TokenBucket::new(TOO_BIG_RATE, TOO_BIG_BURST),
            searches: TokenBucket::new(SEARCH_RATE, SEARCH_RATE),
        }
    }

    /// Makes a lane as new: meta asks for it when nobody holds its former key any more.
    pub(crate) fn clean_lane(&mut self, lane: LaneSlot) {
        if lane.0 >= self.tables.geometry.lanes || !self.tables.owns(self.tables.home(lane)) {
            return;
        }
        self.cache.forget(lane);
        self.tables.lanes.clean(lane);
        self.reports.lane_cleaned(lane, &mut self.tally);
    }

    /// Wipes the prepared keys of lanes that meta has retired.
    pub(crate) fn sweep(&mut self) {
        self.cache.sweep(&self.tables);
    }

    /// Tells meta that packets wait for a session. True: it is told.
    fn need_handshake(&mut self, peer: PeerSlot, incarnation: u32) -> bool {
        self.reports.raise(
            Throttled::NeedHandshake,
            (peer, incarnation),
            Event::NeedHandshake { peer, incarnation },
            self.now,
            &mut self.tally,
        )
    }
}

/// Whether a session may still be used: REJECT_AFTER_TIME (white paper, section 6.2).
fn alive(session: &Session, constants: &Constants, now: Instant) -> bool {
    now.since(session.born) < constants.reject_after
}
