//! Frames from the TUN queues that wait to be sealed.
//!
//! The kernel's queue is one for all flows, without time stamps, and drops the newest. So it is
//! emptied every turn into [`Flows`], which let a short flow pass a long one and tell senders whose
//! queue stands. A frame's age is at most the time since its TUN queue was last found empty.

mod pool;

use super::Context;
use super::flows::{Flows, Limits, Verdict};
use crate::offload::split::{Refused, Split};
use crate::tun::{Queue, Read, TunError};
use pool::{Frame, Pool};
use ringway_proto::ecn;
use ringway_proto::inner::InnerError;
use ringway_proto::time::Instant;
use ringway_shm::counters::DropReason;
use ringway_shm::ids::ShardId;
use ringway_shm::segment::SHARDS_MAX;
use std::time::Duration;

/// Reads a turn, and their bytes: the other direction waits meanwhile.
const READS: usize = 512;
const READ_BYTES: usize = 1 << 20;
/// Memory for frames, and how much of it they may fill. What is between is lost where a chunk can't
/// be used again yet since one of its frames stays.
const POOL: usize = 16 << 20;
const LIMITS: Limits = Limits {
    queues: 1_024,
    items: 8_192,
    bytes: 8 << 20,
    quantum: 16 * 1_024,
    // RFC 8290, sections 5.2.3 and 5.2.2.
    target: Duration::from_millis(5),
    interval: Duration::from_millis(100),
};

/// A frame on its way.
pub(super) struct Waiting {
    frame: Frame,
    pub(super) shard: ShardId,
    /// The first of its packets that is still to be sent.
    pub(super) next: usize,
}

/// What a reading of a queue came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Drained {
    /// The queue is empty.
    All,
    /// The turn's share is used up.
    Part,
    /// The interface is gone.
    Gone,
    /// The queue fails and should be left alone for a while.
    Failing,
}

/// All that waits.
pub(crate) struct Backlog {
    pool: Pool,
    flows: Flows<(Frame, ShardId)>,
    /// A frame of which a part was sent.
    begun: Option<Waiting>,
    /// When each TUN queue was last found empty.
    empty_at: Vec<Instant>,
    /// Keeps others from choosing whose flows share a queue.
    secret: u64,
}

impl Backlog {
    pub(crate) fn new() -> Backlog {
        Backlog {
            pool: Pool::new(POOL),
            flows: Flows::new(LIMITS),
            begun: None,
            empty_at: vec![Instant(0); SHARDS_MAX.into()],
            secret: secret(),
        }
    }

    /// Whether nothing waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.begun.is_none() && self.flows.is_empty()
    }

    /// The worker slept until now: what is there has only just come.
    pub(crate) fn rested(&mut self, now: Instant) {
        self.empty_at.fill(now);
    }

    /// Empties a TUN queue, within this queue's share of the turn: one of `sharers` such.
    pub(crate) fn fill(
        &mut self,
        ctx: &mut Context,
        queue: &Queue,
        shard: ShardId,
        sharers: usize,
    ) -> Drained {
        let came = self.empty_at[shard.index()];
        let mut bytes = 0;
        for _ in 0..READS.div_ceil(sharers) {
            if bytes > READ_BYTES / sharers || !self.make_room(ctx) {
                return Drained::Part;
            }
            let Some(room) = self.pool.room() else {
                return Drained::Part;
            };
            ctx.tally.tun_read_calls += 1;
            match queue.read(room) {
                Ok(Read::Frame(length)) => {
                    bytes += length;
                    let frame = self.pool.keep(length);
                    self.push(ctx, frame, shard, came);
                }
                Ok(Read::Empty) => {
                    self.empty_at[shard.index()] = ctx.now;
                    return Drained::All;
                }
                Ok(Read::Short) => ctx.tally.drop(DropReason::TunRead),
                Err(TunError::Gone) => return Drained::Gone,
                Err(TunError::Down) => {
                    ctx.tally.drop(DropReason::LinkDown);
                    return Drained::Failing;
                }
                Err(TunError::Full | TunError::Refused(_)) => {
                    ctx.tally.drop(DropReason::TunRead);
                    return Drained::Failing;
                }
            }
        }
        Drained::Part
    }

    fn push(&mut self, ctx: &mut Context, frame: Frame, shard: ShardId, came: Instant) {
        let bytes = self.pool.bytes(&frame);
        let length = bytes.len();
        let hash = match Split::plan(bytes) {
            Ok(split) => {
                ctx.tally.tun_rx_packets += split.count() as u64;
                split.inner.flow_hash(split.packet(), self.secret)
            }
            Err(refused) => {
                ctx.tally.drop(reason(refused));
                return self.pool.release(frame);
            }
        };
        if let Some((frame, _)) = self.flows.push(hash, (frame, shard), length, came) {
            ctx.tally.drop(DropReason::QueueFull);
            self.pool.release(frame);
        }
    }

    /// Sheds from the longest flow until a frame has room. False: there is none all the same.
    fn make_room(&mut self, ctx: &mut Context) -> bool {
        while !self.flows.has_room() || self.pool.room().is_none() {
            if self.flows.is_empty() {
                return false;
            }
            let pool = &mut self.pool;
            self.flows.shed(|(frame, _)| {
                let packets = Split::plan(pool.bytes(&frame)).map_or(1, |split| split.count());
                ctx.tally.drops(DropReason::QueueFull, packets as u64);
                pool.release(frame);
            });
        }
        true
    }

    /// The frame to send next.
    pub(super) fn next(&mut self, ctx: &mut Context) -> Option<Waiting> {
        if let Some(begun) = self.begun.take() {
            return Some(begun);
        }
        loop {
            let ((frame, shard), verdict) = self.flows.pop(ctx.now)?;
            let next = match verdict {
                Verdict::Pass => 0,
                Verdict::Signal => self.signal(ctx, &frame),
            };
            let waiting = Waiting { frame, shard, next };
            if next == 0 || next < self.split(&waiting).map_or(0, |split| split.count()) {
                return Some(waiting);
            }
            self.done(waiting);
        }
    }

    /// Tells the sender of a frame to slow down: by a mark on all of its packets, or by the loss of
    /// the first, which costs it one retransmission. Returns how many packets were dropped.
    fn signal(&mut self, ctx: &mut Context, frame: &Frame) -> usize {
        let bytes = self.pool.bytes_mut(frame);
        let inner_ecn = Split::plan(bytes).map_or(ecn::NOT_ECT, |split| split.inner.ecn);
        if inner_ecn == ecn::NOT_ECT {
            ctx.tally.drop(DropReason::Codel);
            return 1;
        }
        ecn::set(&mut bytes[crate::tun::VNET_HEADER..], ecn::CE);
        0
    }

    /// The packets of a frame.
    pub(super) fn split(&self, waiting: &Waiting) -> Result<Split<'_>, Refused> {
        Split::plan(self.pool.bytes(&waiting.frame))
    }

    /// The rest of this one goes first in the next turn.
    pub(super) fn resume(&mut self, waiting: Waiting) {
        self.begun = Some(waiting);
    }

    /// All of this one went.
    pub(super) fn done(&mut self, waiting: Waiting) {
        self.pool.release(waiting.frame);
    }
}

/// What a frame that makes no packets is counted as.
pub(super) fn reason(refused: Refused) -> DropReason {
    match refused {
        Refused::Inner(InnerError::NotIp) => DropReason::NotIp,
        Refused::Inner(InnerError::Truncated) => DropReason::InnerTruncated,
        Refused::Header => DropReason::BadSuperPacket,
    }
}

fn secret() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(0)
}
