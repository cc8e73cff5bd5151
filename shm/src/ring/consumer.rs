//! The reading end of a ring.

use super::{RingControl, Shape, WORD, parse_head_word};
use crate::{
    counters::add,
    segment::View,
    sync::{AtomicU64, Ordering},
};

/// What the other side wrote makes no sense; the ring gives nothing more until [`Consumer::recover`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the ring is quarantined: its producer wrote an impossible {what}")]
pub struct Quarantined {
    /// What was impossible.
    pub what: &'static str,
}

/// The reading end.
#[derive(Debug)]
pub struct Consumer {
    control: View<RingControl>,
    words: View<[AtomicU64]>,
    shape: Shape,
    /// The next slot to read, not all before it released.
    head: u64,
    /// What the producer sees.
    released: u64,
    /// The producer's index as it was when last looked at.
    tail: u64,
    /// Records popped and not released.
    popped: u64,
    quarantined: Option<Quarantined>,
    /// The record that is looked at; as long as the longest, so nothing is allocated later.
    record: Vec<u8>,
}

impl Consumer {
    /// `words` has the shape's size.
    pub(crate) fn new(
        control: View<RingControl>,
        words: View<[AtomicU64]>,
        shape: Shape,
    ) -> Consumer {
        let head = control.head.load(Ordering::Acquire);
        Consumer {
            control,
            words,
            shape,
            head,
            released: head,
            tail: head,
            popped: 0,
            quarantined: None,
            record: vec![0; shape.record_max.next_multiple_of(WORD)],
        }
    }

    /// Gives the next record's kind and bytes to `f`; `None`: the ring is empty.
    pub fn pop_into<R>(
        &mut self,
        f: impl FnOnce(u16, &[u8]) -> R,
    ) -> Result<Option<R>, Quarantined> {
        if let Some(quarantined) = self.quarantined {
            return Err(quarantined);
        }
        if self.head == self.tail {
            // Acquire: what is before the index is complete.
            self.tail = self.control.tail.load(Ordering::Acquire);
        }
        match self.tail.wrapping_sub(self.head) {
            0 => return Ok(None),
            waiting if waiting > self.shape.slots() => return self.quarantine("index"),
            _ => {}
        }
        let first = self.shape.first_word(self.head);
        let head_word = self.word(first);
        let Some((kind, length)) = parse_head_word(head_word) else {
            return self.quarantine("record head");
        };
        if length > self.shape.record_max {
            return self.quarantine("record length");
        }
        let slots = self.shape.slots_of(length);
        if slots > self.tail.wrapping_sub(self.head) {
            return self.quarantine("record length");
        }
        self.copy(first + 1, length);
        self.head = self.head.wrapping_add(slots);
        self.popped += 1;
        Ok(Some(f(kind, self.record.get(..length).unwrap_or(&[]))))
    }

    /// Gives the room of what was popped back to the producer: once a batch.
    pub fn release(&mut self) {
        if self.head == self.released {
            return;
        }
        add(&self.control.dequeued, self.popped);
        self.popped = 0;
        // Release: the records were read before the producer may overwrite them.
        self.control.head.store(self.head, Ordering::Release);
        self.released = self.head;
    }

    /// Whether nothing waits. Looks at the producer's index afresh, so it may stand between
    /// [`about_to_sleep`](crate::process::ProcessSlot::about_to_sleep) and the sleep. A quarantined ring is empty.
    pub fn is_empty(&self) -> bool {
        self.quarantined.is_some() || self.control.tail.load(Ordering::Acquire) == self.head
    }

    /// Ends a quarantine after the producer was replaced: what waits is dropped.
    pub fn recover(&mut self) {
        if self.quarantined.take().is_none() {
            return;
        }
        // Wherever the index stands, both ends agree that nothing is before it.
        self.head = self.control.tail.load(Ordering::Acquire);
        self.tail = self.head;
        self.release();
    }

    fn quarantine<R>(&mut self, what: &'static str) -> Result<Option<R>, Quarantined> {
        let quarantined = Quarantined { what };
        self.quarantined = Some(quarantined);
        Err(quarantined)
    }

    fn word(&self, at: usize) -> u64 {
        self.words
            .get(at & self.shape.mask())
            .map_or(0, |word| word.load(Ordering::Relaxed))
    }

    /// Copies `length` bytes, and what fills the last word, from the word `from` on.
    fn copy(&mut self, from: usize, length: usize) {
        let (end, start) = split(&self.words, from & self.shape.mask(), length.div_ceil(WORD));
        let shared = end.iter().chain(start);
        for (bytes, word) in self.record.chunks_exact_mut(WORD).zip(shared) {
            bytes.copy_from_slice(&word.load(Ordering::Relaxed).to_le_bytes());
        }
    }
}

/// The `count` words from `from` on, over the end of the ring into its beginning.
fn split(words: &[AtomicU64], from: usize, count: usize) -> (&[AtomicU64], &[AtomicU64]) {
    let (before, behind) = words.split_at(from.min(words.len()));
    let end = count.min(behind.len());
    let start = (count - end).min(before.len());
    (&behind[..end], &before[..start])
}
