//! Records under a sequence lock that a reader can always read.
//!
//! A plain sequence lock makes readers wait while the writer is in the middle, and for ever when it died there. These
//! records have two copies (what Linux calls a latch): an even sequence sends readers to copy 0, an odd one to copy 1,
//! and the writer changes only the copy that nobody is sent to. So a writer that was preempted or killed costs its
//! readers nothing: they go on with the old value. A reader tries again only when the sequence moved while it read,
//! and only so often. It never writes.
//!
//! After a writer died its successor calls [`Record::repair`] before it writes: an odd sequence (copy 0 half written)
//! is undone, a half written copy 1 is completed.

use crate::{
    layout::{HASH_START, Shared, hash, hash_number},
    sync::{AtomicU64, Ordering, fence, spin_loop},
};

/// How often a reader tries before it gives up. The writer changes a record a few times a second at most, so a second
/// try is rare and this many fail only if the writer misbehaves.
const TRIES: u32 = if cfg!(loom) { 2 } else { 128 };

/// `N` words that are read as a whole. One writer, any number of readers.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Record<const N: usize> {
    sequence: AtomicU64,
    copies: [[AtomicU64; N]; 2],
}

// SAFETY: repr(C), atomics only; padding is never read.
unsafe impl<const N: usize> Shared for Record<N> {
    const LAYOUT: u64 = hash_number(hash(HASH_START, b"Record"), N);
}

/// What [`Record::repair`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repair {
    /// Nothing to do.
    Whole,
    /// A write had begun; the record is what it was before.
    Undone,
    /// A write was visible already and is complete now.
    Completed,
}

impl<const N: usize> Record<N> {
    /// The words; `None` if they changed under every try.
    #[inline]
    pub fn read(&self) -> Option<[u64; N]> {
        for _ in 0..TRIES {
            let before = self.sequence.load(Ordering::Acquire);
            let words = self.load((before & 1) as usize);
            // Orders the loads of the words before the second look: if one of them saw a later write, the fences here
            // and in `write` make that write's sequence visible to this load.
            fence(Ordering::Acquire);
            if self.sequence.load(Ordering::Relaxed) == before {
                return Some(words);
            }
            spin_loop();
        }
        None
    }

    /// Changes with every write, and during it. Equal before and after: the same words.
    #[inline]
    pub fn sequence(&self) -> u64 {
        self.sequence.load(Ordering::Acquire)
    }

    /// Replaces the words. Only for the one writer.
    pub fn write(&self, words: &[u64; N]) {
        if self.sequence.load(Ordering::Relaxed) & 1 == 1 {
            self.repair();
        }
        let sequence = self.sequence.load(Ordering::Relaxed);
        // Release: copy 1, complete since the last write, is visible before readers are sent to it.
        self.sequence
            .store(sequence.wrapping_add(1), Ordering::Release);
        // Whoever sees one of the words that follow sees the sequence above, too, and tries again.
        fence(Ordering::Release);
        self.store(0, words);
        self.sequence
            .store(sequence.wrapping_add(2), Ordering::Release);
        fence(Ordering::Release);
        self.store(1, words);
    }

    /// Makes both copies equal after a writer died. Only for the one writer.
    pub fn repair(&self) -> Repair {
        let sequence = self.sequence.load(Ordering::Acquire);
        let current = (sequence & 1) as usize;
        let words = self.load(current);
        if current == 1 {
            self.store(0, &words);
            self.sequence
                .store(sequence.wrapping_add(1), Ordering::Release);
            return Repair::Undone;
        }
        if self.load(1) == words {
            return Repair::Whole;
        }
        fence(Ordering::Release);
        self.store(1, &words);
        Repair::Completed
    }

    fn load(&self, copy: usize) -> [u64; N] {
        let mut words = [0; N];
        for (word, shared) in words.iter_mut().zip(&self.copies[copy]) {
            *word = shared.load(Ordering::Relaxed);
        }
        words
    }

    fn store(&self, copy: usize, words: &[u64; N]) {
        for (word, shared) in words.iter().zip(&self.copies[copy]) {
            shared.store(*word, Ordering::Relaxed);
        }
    }
}

impl<const N: usize> Default for Record<N> {
    fn default() -> Record<N> {
        Record {
            sequence: AtomicU64::new(0),
            copies: std::array::from_fn(|_| std::array::from_fn(|_| AtomicU64::new(0))),
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::{sync::atomic::AtomicBool, thread};

    #[test]
    fn what_was_written_is_read() {
        let record = Record::<3>::default();
        assert_eq!(record.read(), Some([0; 3]));
        record.write(&[1, 2, 3]);
        assert_eq!(record.read(), Some([1, 2, 3]));
        let sequence = record.sequence();
        record.write(&[4, 5, 6]);
        assert_ne!(record.sequence(), sequence);
        assert_eq!(record.read(), Some([4, 5, 6]));
        assert_eq!(record.repair(), Repair::Whole);
    }

    /// Stops a write after each of its stores, as a kill would.
    fn dies_after(steps: usize, record: &Record<2>, words: &[u64; 2]) {
        let sequence = record.sequence.load(Ordering::Relaxed);
        let mut stores: Vec<Box<dyn Fn() + '_>> = Vec::new();
        stores.push(Box::new(move || {
            record.sequence.store(sequence + 1, Ordering::Release);
        }));
        for copy in 0..2 {
            for (shared, word) in record.copies[copy].iter().zip(words) {
                stores.push(Box::new(move || shared.store(*word, Ordering::Relaxed)));
            }
            if copy == 0 {
                stores.push(Box::new(move || {
                    record.sequence.store(sequence + 2, Ordering::Release);
                }));
            }
        }
        for store in stores.iter().take(steps) {
            store();
        }
    }

    #[test]
    fn a_dead_writer_leaves_the_old_or_the_new_words_and_is_repaired() {
        for steps in 0..=6 {
            let record = Record::<2>::default();
            record.write(&[1, 2]);
            dies_after(steps, &record, &[3, 4]);
            let seen = record.read();
            let visible = steps >= 4;
            assert_eq!(seen, Some(if visible { [3, 4] } else { [1, 2] }), "{steps}");
            let repair = record.repair();
            match steps {
                0 | 6 => assert_eq!(repair, Repair::Whole),
                1..=3 => assert_eq!(repair, Repair::Undone),
                _ => assert_eq!(repair, Repair::Completed),
            }
            assert_eq!(record.read(), seen);
            assert_eq!(record.repair(), Repair::Whole);
            record.write(&[5, 6]);
            assert_eq!(record.read(), Some([5, 6]));
        }
    }

    #[test]
    fn a_write_without_repair_first_repairs() {
        let record = Record::<2>::default();
        record.write(&[1, 2]);
        dies_after(2, &record, &[3, 4]);
        record.write(&[7, 8]);
        assert_eq!(record.read(), Some([7, 8]));
        assert_eq!(record.sequence() & 1, 0);
    }

    #[test]
    fn readers_never_see_a_mix() {
        let record = Record::<6>::default();
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    let mut last = 0;
                    while !stop.load(Ordering::Relaxed) {
                        if let Some(words) = record.read() {
                            assert!(words.iter().all(|word| *word == words[0]), "{words:?}");
                            assert!(words[0] >= last, "went back from {last} to {}", words[0]);
                            last = words[0];
                        }
                    }
                });
            }
            for i in 1..200_000_u64 {
                record.write(&[i; 6]);
            }
            stop.store(true, Ordering::Relaxed);
        });
        assert_eq!(record.read(), Some([199_999; 6]));
    }
}
