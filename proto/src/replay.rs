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
        self.accept_steps(counter, &mut || true) == Some(true)
    }

    /// Finishes what a dead owner left: called by the new one before its first [`Window::check`].
    pub fn recover(&self) {
        self.recover_steps(&mut || true);
    }

    /// [`Window::accept`]; `lives` is asked after each store, and its false is a death there (`None`).
    #[inline]
    fn accept_steps(&self, counter: u64, lives: &mut impl FnMut() -> bool) -> Option<bool> {
        if !self.check(counter) {
            return Some(false);
        }
        let number = counter + 1;
        let top = self.top.load(Ordering::Relaxed);
        // Release on every store keeps their order in the machine as it is written here.
        if number > top {
            store(self.top, number, lives)?;
            self.clear_between(top, number, lives)?;
            store(self.cleared, number, lives)?;
        }
        let word = self.word(number);
        store(word, word.load(Ordering::Relaxed) | bit(number), lives)?;
        Some(true)
    }

    fn recover_steps(&self, lives: &mut impl FnMut() -> bool) -> Option<()> {
        let top = self.top.load(Ordering::Acquire);
        let cleared = self.cleared.load(Ordering::Acquire);
        if cleared < top {
            self.clear_between(cleared, top, lives)?;
            store(self.cleared, top, lives)?;
        }
        Some(())
    }

    /// Clears the words after that of `from` up to that of `to`, at most each once.
    fn clear_between(&self, from: u64, to: u64, lives: &mut impl FnMut() -> bool) -> Option<()> {
        let first = from / 64;
        let count = (to / 64 - first).min(WORDS);
        for step in 1..=count {
            store(&self.bits[((first + step) % WORDS) as usize], 0, lives)?;
        }
        Some(())
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

#[inline]
fn store(word: &AtomicU64, value: u64, lives: &mut impl FnMut() -> bool) -> Option<()> {
    word.store(value, Ordering::Release);
    lives().then_some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;

    struct Lane {
        top: AtomicU64,
        cleared: AtomicU64,
        bits: [AtomicU64; 128],
    }

    impl Lane {
        fn new() -> Lane {
            Lane {
                top: AtomicU64::new(0),
                cleared: AtomicU64::new(0),
                bits: [const { AtomicU64::new(0) }; 128],
            }
        }

        fn window(&self) -> Window<'_> {
            Window {
                top: &self.top,
                cleared: &self.cleared,
                bits: &self.bits,
            }
        }
    }

    /// The simple model: everything ever seen, and the newest.
    #[derive(Default)]
    struct Model {
        seen: HashSet<u64>,
        newest: Option<u64>,
    }

    impl Model {
        fn accept(&mut self, counter: u64) -> bool {
            if counter >= REJECT_AFTER_MESSAGES
                || self
                    .newest
                    .is_some_and(|newest| newest.saturating_sub(counter) > REACH)
                || !self.seen.insert(counter)
            {
                return false;
            }
            self.newest = self.newest.max(Some(counter));
            true
        }
    }

    /// Counters as a network brings them: mostly forward, some late, some twice, sometimes a leap.
    fn counters() -> impl Strategy<Value = Vec<u64>> {
        let step = prop_oneof![
            6 => 0_i64..4,
            4 => -70_i64..70,
            2 => -9000_i64..9000,
            1 => -20_000_i64..20_000,
            1 => Just(8128_i64),
            1 => Just(-8128_i64),
            1 => Just(-8129_i64),
            1 => Just(64_i64 * 128),
        ];
        let start = prop_oneof![
            Just(0_u64),
            0..100_000_u64,
            Just(REJECT_AFTER_MESSAGES - 10_000),
            Just(u64::MAX),
        ];
        (start, prop::collection::vec(step, 1..400)).prop_map(|(start, steps)| {
            let mut at = start;
            steps
                .into_iter()
                .map(|step| {
                    at = at.saturating_add_signed(step);
                    at
                })
                .collect()
        })
    }

    proptest! {
        #[test]
        fn agrees_with_a_set_of_everything_seen(counters in counters()) {
            let lane = Lane::new();
            let mut model = Model::default();
            for counter in counters {
                let expected = model.accept(counter);
                prop_assert_eq!(lane.window().check(counter), expected, "check {}", counter);
                prop_assert_eq!(lane.window().accept(counter), expected, "accept {}", counter);
                prop_assert!(!lane.window().accept(counter), "twice {}", counter);
            }
        }

        /// An owner dies after any store, its successor while it recovers, and all of it again and again:
        /// nothing that went on is accepted a second time, and nothing that the window holds is forgotten.
        #[test]
        fn a_death_between_any_two_stores_lets_nothing_through_twice(
            counters in counters(),
            deaths in prop::collection::vec((0_usize..140, 0_usize..140), 1..40),
        ) {
            let lane = Lane::new();
            let mut went_on = HashSet::new();
            let mut deaths = deaths.into_iter().cycle();
            for (index, &counter) in counters.iter().enumerate() {
                let (death, second) = if index % 3 == 0 {
                    deaths.next().unwrap()
                } else {
                    (usize::MAX, usize::MAX)
                };
                match lane.window().accept_steps(counter, &mut countdown(death)) {
                    Some(true) => prop_assert!(went_on.insert(counter), "twice {}", counter),
                    Some(false) => {}
                    None => {
                        let _ = lane.window().recover_steps(&mut countdown(second));
                        lane.window().recover();
                    }
                }
            }
            for &counter in &went_on {
                prop_assert!(!lane.window().accept(counter), "afterwards {}", counter);
            }
        }
    }

    /// Lives for `stores` stores.
    fn countdown(stores: usize) -> impl FnMut() -> bool {
        let mut left = stores;
        move || {
            left = left.saturating_sub(1);
            left > 0
        }
    }

    /// Every leap around the word and window borders, with a death after its every store.
    #[test]
    fn each_crash_point_of_each_leap() {
        for leap in [
            1, 2, 63, 64, 65, 127, 128, 8127, 8128, 8191, 8192, 8193, 20_000,
        ] {
            for death in 1.. {
                let lane = Lane::new();
                for counter in 0..300 {
                    assert!(lane.window().accept(counter));
                }
                let died = lane
                    .window()
                    .accept_steps(299 + leap, &mut countdown(death))
                    .is_none();
                lane.window().recover();
                for counter in 0..300 {
                    assert!(!lane.window().accept(counter), "leap {leap}, death {death}");
                }
                if !died {
                    assert!(!lane.window().accept(299 + leap));
                    break;
                }
                // The packet did not go on, so its counter may come once more unless its bit was set.
                lane.window().accept(299 + leap);
                assert!(!lane.window().accept(299 + leap));
                // Unused counters of the new range are as good as ever.
                if leap > 1 {
                    assert!(lane.window().accept(299 + leap - 1));
                }
                assert!(lane.window().accept(299 + leap + 1));
            }
        }
    }

    #[test]
    fn the_end_of_the_range_is_refused() {
        let lane = Lane::new();
        assert!(lane.window().accept(REJECT_AFTER_MESSAGES - 1));
        assert!(!lane.window().accept(REJECT_AFTER_MESSAGES - 1));
        for counter in [REJECT_AFTER_MESSAGES, u64::MAX - 1, u64::MAX] {
            assert!(!lane.window().check(counter));
            assert!(!lane.window().accept(counter));
        }
        assert!(lane.window().accept(REJECT_AFTER_MESSAGES - 2));
    }

    #[test]
    fn words_that_make_no_sense_cause_no_panic() {
        let lane = Lane::new();
        lane.top.store(u64::MAX, Ordering::Relaxed);
        lane.window().recover();
        assert!(!lane.window().accept(5));
        lane.cleared.store(u64::MAX, Ordering::Relaxed);
        lane.top.store(3, Ordering::Relaxed);
        lane.window().recover();
        assert!(lane.window().accept(5));
    }
}
