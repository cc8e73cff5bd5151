//! The writing end of a ring.

use super::{RingControl, Shape, WORD, head_word};
use crate::{
    counters::add,
    process::ProcessSlot,
    segment::View,
    sync::{AtomicU64, Ordering, fence},
};

/// The ring has no room; the record was dropped and counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the ring is full")]
pub struct Full;

/// The writing end.
#[derive(Debug)]
pub struct Producer {
    control: View<RingControl>,
    words: View<[AtomicU64]>,
    /// The consumer's process.
    consumer: View<ProcessSlot>,
    shape: Shape,
    /// The next slot to fill, not all of it published.
    tail: u64,
    /// What the consumer sees.
    published: u64,
    /// The consumer's index as it was when last looked at.
    head: u64,
    /// Records pushed and not published.
    staged: u64,
    /// A former producer may have died between publishing and ringing the doorbell.
    owes_wakeup: bool,
}

impl Producer {
    /// `words` has the shape's size.
    pub(crate) fn new(
        control: View<RingControl>,
        words: View<[AtomicU64]>,
        consumer: View<ProcessSlot>,
        shape: Shape,
    ) -> Producer {
        let head = control.head.load(Ordering::Acquire);
        // If a former producer left an impossible index, the ring is full until the consumer recovers from it.
        let tail = control.tail.load(Ordering::Acquire);
        Producer {
            control,
            words,
            consumer,
            shape,
            tail,
            published: tail,
            head,
            staged: 0,
            owes_wakeup: tail != head,
        }
    }

    /// Puts a record, made of the parts one after the other, behind the last one. The consumer sees it after
    /// [`publish`](Self::publish). A record longer than the ring's records may be counts as one that found it full.
    pub fn push(&mut self, kind: u16, parts: &[&[u8]]) -> Result<(), Full> {
        let length = parts
            .iter()
            .fold(0_usize, |sum, part| sum.saturating_add(part.len()));
        let slots = self.shape.slots_of(length.min(self.shape.record_max));
        if length > self.shape.record_max || !self.has_room(slots) {
            add(&self.control.full_drops, 1);
            return Err(Full);
        }
        let mut writer = Writer {
            words: &self.words,
            mask: self.shape.mask(),
            next: self.shape.first_word(self.tail),
            partial: 0,
            filled: 0,
        };
        writer.put_word(head_word(kind, length));
        for part in parts {
            writer.put(part);
        }
        writer.finish();
        self.tail = self.tail.wrapping_add(slots);
        self.staged += 1;
        Ok(())
    }

    /// Shows what was pushed to the consumer; true: the consumer sleeps, ring its doorbell.
    #[must_use = "a sleeping consumer needs its doorbell rung"]
    pub fn publish(&mut self) -> bool {
        if self.tail == self.published && !self.owes_wakeup {
            return false;
        }
        self.owes_wakeup = false;
        add(&self.control.enqueued, self.staged);
        self.staged = 0;
        self.raise_high_water();
        // Release: the consumer that sees the index sees the records.
        self.control.tail.store(self.tail, Ordering::Release);
        self.published = self.tail;
        // Dekker: the index is stored before the word is loaded here, the word before the index there
        // (`ProcessSlot::about_to_sleep`). With a fence between on both sides, one of the two sees the other's store.
        fence(Ordering::SeqCst);
        let sleeps = self.consumer.sleeping.load(Ordering::Relaxed) != 0;
        if sleeps {
            add(&self.control.wakeups, 1);
        }
        sleeps
    }

    fn has_room(&mut self, slots: u64) -> bool {
        if self.fits(self.head, slots) {
            return true;
        }
        // Acquire: the consumer has read what is overwritten now.
        let head = self.control.head.load(Ordering::Acquire);
        let fits = self.fits(head, slots);
        if fits {
            self.head = head;
        }
        fits
    }

    /// An impossible index of either end leaves no room until the consumer recovers, or is replaced and recovers.
    fn fits(&self, head: u64, slots: u64) -> bool {
        let total = self.shape.slots();
        let used = self.tail.wrapping_sub(head);
        used <= total && slots <= total - used
    }

    /// Takes the consumer's line only when the mark may rise.
    fn raise_high_water(&mut self) {
        let mark = self.control.high_water.load(Ordering::Relaxed);
        if self.tail.wrapping_sub(self.head) > mark {
            let used = self
                .tail
                .wrapping_sub(self.control.head.load(Ordering::Acquire));
            if used > mark && used <= self.shape.slots() {
                self.control.high_water.store(used, Ordering::Relaxed);
            }
        }
    }
}

/// Writes bytes into the ring's words, over the end of the ring too.
struct Writer<'a> {
    words: &'a [AtomicU64],
    mask: usize,
    next: usize,
    /// The bytes of a word that is not full.
    partial: u64,
    /// How many bytes that are.
    filled: usize,
}

impl Writer<'_> {
    fn put_word(&mut self, word: u64) {
        if let Some(shared) = self.words.get(self.next) {
            shared.store(word, Ordering::Relaxed);
        }
        self.next = (self.next + 1) & self.mask;
    }

    fn put(&mut self, mut bytes: &[u8]) {
        while self.filled != 0 {
            let Some((first, rest)) = bytes.split_first() else {
                return;
            };
            self.put_byte(*first);
            bytes = rest;
        }
        let mut chunks = bytes.chunks_exact(WORD);
        for chunk in &mut chunks {
            let mut word = [0; WORD];
            word.copy_from_slice(chunk);
            self.put_word(u64::from_le_bytes(word));
        }
        for byte in chunks.remainder() {
            self.put_byte(*byte);
        }
    }

    fn put_byte(&mut self, byte: u8) {
        self.partial |= u64::from(byte) << (8 * self.filled);
        self.filled += 1;
        if self.filled == WORD {
            self.finish();
        }
    }

    fn finish(&mut self) {
        if self.filled != 0 {
            self.put_word(self.partial);
            self.partial = 0;
            self.filled = 0;
        }
    }
}
