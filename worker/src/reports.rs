//! What a worker tells others through rings: events and handshakes to meta, packets to workers.
//!
//! Records are staged and shown once a turn. Events that a packet can raise again are throttled a
//! peer and lost when the ring is full: the next packet raises them anew. The answer to a command
//! is kept until it fits.

use crate::tally::Tally;
use ringway_proto::time::Instant;
use ringway_shm::counters::DropReason;
use ringway_shm::doorbell::Doorbell;
use ringway_shm::ids::{LaneSlot, PeerSlot, WorkerSlot};
use ringway_shm::messages::{Event, MESSAGE_MAX, PacketHeader};
use ringway_shm::ring::Producer;
use ringway_shm::rings::{RingId, Rings};
use ringway_shm::segment::SegmentError;
use std::time::Duration;

/// What is throttled, each with its own time a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Throttled {
    NeedHandshake,
    Roamed,
    RekeyDue,
    PathMtu,
    Looped,
}

const KINDS: usize = 5;

impl Throttled {
    /// The least time between two events of a kind.
    const fn interval(self) -> Duration {
        match self {
            Throttled::NeedHandshake | Throttled::RekeyDue | Throttled::Looped => {
                Duration::from_secs(1)
            }
            Throttled::PathMtu => Duration::from_millis(200),
            // Meta answers by changing the path; this only bridges its latency.
            Throttled::Roamed => Duration::from_millis(20),
        }
    }
}

/// When the user of a peer slot last raised each kind; 0: never.
#[derive(Clone, Copy, Default)]
struct Raised {
    incarnation: u32,
    at: [u64; KINDS],
}

/// The writing ends of a worker's rings.
pub(crate) struct Reports {
    events: Producer,
    to_meta: Producer,
    handover: Vec<Option<Producer>>,
    events_staged: bool,
    to_meta_staged: bool,
    handover_staged: Vec<bool>,
    meta_bell: Doorbell,
    worker_bells: Vec<Doorbell>,
    /// When each peer last raised each kind.
    raised: Vec<Raised>,
    /// Answers that found the ring full.
    unsent: Vec<Event>,
}

impl Reports {
    /// `worker_bells` are those of all workers, by slot.
    pub(crate) fn new(
        rings: &Rings,
        slot: WorkerSlot,
        peers: u32,
        meta_bell: Doorbell,
        worker_bells: Vec<Doorbell>,
    ) -> Result<Reports, SegmentError> {
        let mut handover = Vec::with_capacity(worker_bells.len());
        for other in 0..worker_bells.len() {
            let to = WorkerSlot(other as u8);
            handover.push(if to == slot {
                None
            } else {
                Some(rings.producer(RingId::Handover { from: slot, to })?)
            });
        }
        Ok(Reports {
            events: rings.producer(RingId::Events { from: slot })?,
            to_meta: rings.producer(RingId::ToMeta { from: slot })?,
            handover_staged: vec![false; handover.len()],
            handover,
            events_staged: false,
            to_meta_staged: false,
            meta_bell,
            worker_bells,
            raised: vec![Raised::default(); peers as usize],
            unsent: Vec::new(),
        })
    }

    /// Raises an event about a peer, unless one of that kind was just raised. `peer`: the slot and
    /// which user of it. True: it went.
    pub(crate) fn raise(
        &mut self,
        kind: Throttled,
        (peer, incarnation): (PeerSlot, u32),
        event: Event,
        now: Instant,
        tally: &mut Tally,
    ) -> bool {
        let Some(raised) = self.raised.get_mut(peer.index()) else {
            return false;
        };
        if raised.incarnation != incarnation {
            *raised = Raised {
                incarnation,
                ..Raised::default()
            };
        }
        let last = raised.at[kind as usize];
        if last != 0 && now.since(Instant(last)) < kind.interval() {
            return false;
        }
        if !self.push(event, tally) {
            return false;
        }
        if let Some(raised) = self.raised.get_mut(peer.index()) {
            raised.at[kind as usize] = now.0;
        }
        true
    }

    /// Meta has done what an event asked for: the next one of the kind is another matter.
    pub(crate) fn answered(&mut self, kind: Throttled, peer: PeerSlot) {
        if let Some(raised) = self.raised.get_mut(peer.index()) {
            raised.at[kind as usize] = 0;
        }
    }

    /// Raises an event that the caller throttles. True: it went.
    pub(crate) fn push(&mut self, event: Event, tally: &mut Tally) -> bool {
        let mut bytes = [0; MESSAGE_MAX];
        let length = event.encode(&mut bytes);
        let went = self.events.push(event.kind(), &[&bytes[..length]]).is_ok();
        if went {
            self.events_staged = true;
            tally.events += 1;
        }
        went
    }

    /// Raises an event that must not be lost.
    pub(crate) fn answer(&mut self, event: Event, tally: &mut Tally) {
        if !self.unsent.is_empty() || !self.push(event, tally) {
            self.unsent.push(event);
        }
    }

    /// Raises [`Event::LaneCleaned`].
    pub(crate) fn lane_cleaned(&mut self, lane: LaneSlot, tally: &mut Tally) {
        self.answer(Event::LaneCleaned { lane }, tally);
    }

    /// Passes a handshake datagram on to meta.
    pub(crate) fn pass_to_meta(
        &mut self,
        header: &PacketHeader,
        datagram: &[u8],
        tally: &mut Tally,
    ) {
        let pushed = self
            .to_meta
            .push(PacketHeader::KIND, &[&header.encode(), datagram]);
        if pushed.is_ok() {
            self.to_meta_staged = true;
            tally.handed_over += 1;
        } else {
            tally.drop(DropReason::RingFull);
        }
    }

    /// Hands a datagram over to the worker whose lane it is for.
    pub(crate) fn hand_over(
        &mut self,
        to: WorkerSlot,
        header: &PacketHeader,
        datagram: &[u8],
        tally: &mut Tally,
    ) {
        let Some(Some(ring)) = self.handover.get_mut(to.index()) else {
            tally.drop(DropReason::ForeignIndex);
            return;
        };
        let pushed = ring.push(PacketHeader::KIND, &[&header.encode(), datagram]);
        if pushed.is_ok() {
            self.handover_staged[to.index()] = true;
            tally.handed_over += 1;
        } else {
            tally.drop(DropReason::RingFull);
        }
    }

    /// Shows what was staged and wakes who sleeps: once a turn.
    pub(crate) fn publish(&mut self, tally: &mut Tally) {
        if !self.unsent.is_empty() {
            let waiting = std::mem::take(&mut self.unsent);
            for event in waiting {
                self.answer(event, tally);
            }
        }
        let mut wake_meta = false;
        if self.events_staged {
            wake_meta |= self.events.publish();
            self.events_staged = false;
        }
        if self.to_meta_staged {
            wake_meta |= self.to_meta.publish();
            self.to_meta_staged = false;
        }
        if wake_meta {
            self.meta_bell.ring();
        }
        for (i, staged) in self.handover_staged.iter_mut().enumerate() {
            if std::mem::take(staged) {
                if let Some(Some(ring)) = self.handover.get_mut(i) {
                    if ring.publish() {
                        self.worker_bells[i].ring();
                    }
                }
            }
        }
    }

    /// Whether something could not be said yet.
    pub(crate) fn has_unsent(&self) -> bool {
        !self.unsent.is_empty()
    }
}
