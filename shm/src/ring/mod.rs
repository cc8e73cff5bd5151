//! Rings between two processes: one producer, one consumer, records in slots of a fixed size.
//!
//! Indices count slots, run freely and wrap at 2⁶⁴; a slot is found by masking. A record is a head word (kind and
//! length) and its bytes, in as many consecutive slots as it needs; it may run over the end of the ring into its
//! beginning. The consumer copies each record into a buffer of its own before anybody looks at it, so a producer
//! that goes on writing changes nothing that was checked, and a record in two pieces is one again.
//!
//! Each end keeps its own index at home and stores it once a batch; it looks at the other's only when it has to.
//! A record is in the ring when [`Producer::publish`] stored the index; a producer killed before that has put nothing
//! in. A consumer killed before [`Consumer::release`] leaves its records to the successor, who gets them again.
//!
//! Nothing that the other end wrote is trusted: an impossible index or length ends in [`Full`] or [`Quarantined`].

mod consumer;
mod producer;
#[cfg(all(test, not(loom)))]
mod tests;

pub use consumer::{Consumer, Quarantined};
pub use producer::{Full, Producer};

use crate::{
    layout::shared,
    sync::{AtomicU64, Ordering},
};

shared! {
    /// A ring's indices and counters: the first line pair is the producer's, the second the consumer's.
    #[derive(Default)]
    #[repr(C, align(128))]
    pub struct RingControl {
        /// Slots ever filled.
        tail: AtomicU64,
        /// Records ever put in.
        enqueued: AtomicU64,
        /// Records that found the ring full.
        full_drops: AtomicU64,
        /// The most slots in use.
        high_water: AtomicU64,
        /// How often the consumer slept when something was published.
        wakeups: AtomicU64,
        _producer_lines: [AtomicU64; 11],
        /// Slots ever emptied.
        head: AtomicU64,
        /// Records ever taken out.
        dequeued: AtomicU64,
        _consumer_lines: [AtomicU64; 14],
    }
}

/// What can be seen of a ring from outside, at about one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RingFigures {
    pub(crate) used: u64,
    pub(crate) high_water: u64,
    pub(crate) enqueued: u64,
    pub(crate) dequeued: u64,
    pub(crate) full_drops: u64,
    pub(crate) wakeups: u64,
}

impl RingControl {
    pub(crate) fn figures(&self, shape: Shape) -> RingFigures {
        let word = |word: &AtomicU64| word.load(Ordering::Relaxed);
        // Head first: it can only lag behind, so `used` is never negative.
        let head = self.head.load(Ordering::Acquire);
        let used = word(&self.tail).wrapping_sub(head);
        RingFigures {
            used: used.min(shape.slots()),
            high_water: word(&self.high_water).min(shape.slots()),
            enqueued: word(&self.enqueued),
            dequeued: word(&self.dequeued),
            full_drops: word(&self.full_drops),
            wakeups: word(&self.wakeups),
        }
    }
}

/// The sizes of a ring, the same on both ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    slots_log2: u32,
    slot_words_log2: u32,
    record_max: usize,
}

const WORD: usize = size_of::<u64>();

impl Shape {
    /// `record_max` is the greatest length of a record in bytes; it must fit the ring.
    pub(crate) const fn new(slots_log2: u32, slot_bytes_log2: u32, record_max: usize) -> Shape {
        assert!(slot_bytes_log2 >= 3 && slots_log2 + slot_bytes_log2 < 32);
        assert!(WORD + record_max <= 1 << (slots_log2 + slot_bytes_log2));
        Shape {
            slots_log2,
            slot_words_log2: slot_bytes_log2 - 3,
            record_max,
        }
    }

    pub(crate) const fn slots(self) -> u64 {
        1 << self.slots_log2
    }

    /// The size of the slots in all, in words.
    pub(crate) const fn words(self) -> u64 {
        1 << (self.slots_log2 + self.slot_words_log2)
    }

    /// The slots that a record of this length takes.
    const fn slots_of(self, length: usize) -> u64 {
        ((WORD + length).div_ceil(WORD << self.slot_words_log2)) as u64
    }

    /// The word at which a slot begins.
    const fn first_word(self, slot: u64) -> usize {
        (slot << self.slot_words_log2) as usize & self.mask()
    }

    const fn mask(self) -> usize {
        self.words() as usize - 1
    }
}

/// A record's first word: kind, 16 zero bits, length.
const fn head_word(kind: u16, length: usize) -> u64 {
    kind as u64 | (length as u64) << 32
}

/// The kind and length in a record's first word; `None`: no producer of ours wrote it.
const fn parse_head_word(word: u64) -> Option<(u16, usize)> {
    if word & 0xffff_0000 != 0 {
        return None;
    }
    Some((word as u16, (word >> 32) as usize))
}
