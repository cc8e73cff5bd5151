//! When to sleep and when to look again at once.

use ringway_proto::config::PollMode;
use ringway_proto::time::Instant;
use std::time::Duration;

/// The longest that `adaptive` spins without work: about what a sleep and its wake-up cost.
const LONGEST_SPIN: Duration = Duration::from_micros(50);
/// Where it starts again after spinning has not paid off for a while.
const SHORTEST_SPIN: Duration = Duration::from_micros(2);

/// The poll mode and what it has learned.
pub(crate) struct Pace {
    mode: PollMode,
    /// How long to spin before a sleep.
    spin: Duration,
    /// Since when there has been nothing to do.
    idle_since: Option<Instant>,
}

impl Pace {
    /// The pace of a mode. `napi` waits like `epoll` until the sockets have NAPI ids to poll.
    pub(crate) fn new(mode: PollMode) -> Pace {
        Pace {
            mode,
            spin: Duration::ZERO,
            idle_since: None,
        }
    }

    /// After a turn that began at `now` and found work or not: whether to look again at once
    /// instead of sleeping.
    pub(crate) fn look_again(&mut self, worked: bool, now: Instant) -> bool {
        match self.mode {
            PollMode::Busy => true,
            PollMode::Epoll | PollMode::Napi => false,
            PollMode::Adaptive => {
                if worked {
                    if self.idle_since.take().is_some() {
                        // Work came while spinning.
                        self.spin = (self.spin * 2).clamp(SHORTEST_SPIN, LONGEST_SPIN);
                    }
                    self.idle_since = None;
                    return !self.spin.is_zero();
                }
                let since = *self.idle_since.get_or_insert(now);
                if now.since(since) < self.spin {
                    return true;
                }
                self.spin /= 2;
                if self.spin < SHORTEST_SPIN {
                    self.spin = Duration::ZERO;
                }
                self.idle_since = None;
                false
            }
        }
    }

    /// A sleep ended with work after this time: one shorter than a spin was not worth it.
    pub(crate) fn slept(&mut self, time: Duration) {
        self.idle_since = None;
        if self.mode == PollMode::Adaptive && time < LONGEST_SPIN {
            self.spin = (self.spin * 2).clamp(SHORTEST_SPIN, LONGEST_SPIN);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adaptive_spins_while_it_pays() {
        let mut pace = Pace::new(PollMode::Adaptive);
        assert!(!pace.look_again(true, Instant(0)));
        for _ in 0..8 {
            pace.slept(Duration::from_micros(10));
        }
        assert_eq!(pace.spin, LONGEST_SPIN);
        assert!(pace.look_again(false, Instant(1_000)));
        assert!(pace.look_again(false, Instant(41_000)));
        assert!(!pace.look_again(false, Instant(60_000)));
        // Nothing came for long: no more spinning.
        let mut now = 100_000;
        for _ in 0..200 {
            pace.look_again(false, Instant(now));
            now += 100_000;
        }
        assert_eq!(pace.spin, Duration::ZERO);
        assert!(!pace.look_again(false, Instant(now)));
    }

    #[test]
    fn busy_never_sleeps_and_epoll_always_does() {
        assert!(Pace::new(PollMode::Busy).look_again(false, Instant(9)));
        assert!(!Pace::new(PollMode::Epoll).look_again(true, Instant(9)));
    }
}
