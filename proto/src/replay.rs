//! The replay window: which counters of a session were seen. RFC 6479's ring of words, in shared memory.
//!
//! Called by the worker that owns the lane's home shard, the one writer of the lane's words.
//!
//! # Under `kill -9`
//! The owner may die between any two stores and its successor goes on with what it finds, so [`Window::accept`]
//! stores in this order: the new top, the words that it skips cleared, the mark that they are, the bit. A bit
//! of the new range is never set before that range is known to be clear, so [`Window::recover`] may clear what
//! `cleared` does not vouch for and forget nothing. The packet goes on only after its bit is set. A death can
//! so lose a packet, and never lets one through twice.

use std::sync::atomic::{AtomicU64, Ordering};

/// The first counter that is never sent nor accepted: 2^64 − 2^13 − 1. The distance to the end of the range
/// keeps every sum below from running over.
pub const REJECT_AFTER_MESSAGES: u64 = u64::MAX - (1 << 13);

/// Bits in the window. One word of them is always being reused, so counters up to
/// `WINDOW - 64` behind the newest are told apart.
pub const WINDOW: u64 = 8192;

const WORDS: u64 = WINDOW / 64;
const REACH: u64 = WINDOW - 64;

/// A view of one lane's window.
#[derive(Debug, Clone, Copy)]
pub struct Window<'a> {
    /// The greatest counter accepted, plus one; zero before the first.
    pub top: &'a AtomicU64,
    /// Up to which top the words are known to be clear.
    pub cleared: &'a AtomicU64,
    /// Bit `n % 64` of word `n / 64 % 128` stands for counter `n - 1`.
    pub bits: &'a [AtomicU64; 128],
}

impl Window<'_> {
    /// Whether `counter` could be new, before the work of decrypting: false for one that is a replay, too
    /// old, or past [`REJECT_AFTER_MESSAGES`].
    #[inline]
    pub fn check(&self, counter: u64) -> bool {
        if counter >= REJECT_AFTER_MESSAGES {
            return false;
        }
        let number = counter + 1;
        let top = self.top.load(Ordering::Relaxed);
        if number > top {
            return true;
        }
        top - number <= REACH && self.word(number).load(Ordering::Relaxed) & bit(number) == 0
    }

    /// Marks an authenticated `counter`: true if it is new and its packet may go on, false for a replay.
    #[inline]
    pub fn accept(&self, counter: u64) -> bool {
        if !self.check(counter) {
            return false;
        }
        let number = counter + 1;
        let top = self.top.load(Ordering::Relaxed);
        // Release on every store keeps their order in the machine as it is written here.
        if number > top {
            self.top.store(number, Ordering::Release);
            self.clear_between(top, number);
            self.cleared.store(number, Ordering::Release);
        }
        let word = self.word(number);
        word.store(
            word.load(Ordering::Relaxed) | bit(number),
            Ordering::Release,
        );
        true
    }

    /// Finishes what a dead owner left: called by the new one before its first [`Window::check`].
    pub fn recover(&self) {
        let top = self.top.load(Ordering::Acquire);
        let cleared = self.cleared.load(Ordering::Acquire);
        if cleared < top {
            self.clear_between(cleared, top);
            self.cleared.store(top, Ordering::Release);
        }
    }

    /// Clears the words after that of `from` up to that of `to`, at most each once.
    fn clear_between(&self, from: u64, to: u64) {
        let first = from / 64;
        let count = (to / 64 - first).min(WORDS);
        for step in 1..=count {
            self.bits[((first + step) % WORDS) as usize].store(0, Ordering::Release);
        }
    }

    #[inline]
    fn word(&self, number: u64) -> &AtomicU64 {
        &self.bits[(number / 64 % WORDS) as usize]
    }
}

#[inline]
const fn bit(number: u64) -> u64 {
    1 << (number % 64)
}
