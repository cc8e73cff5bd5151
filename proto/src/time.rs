//! Time as the pure parts know it: an instant that somebody else read from a clock.

use std::ops::{Add, Sub};
use std::time::Duration;

/// Nanoseconds of `CLOCK_BOOTTIME`, the clock that also runs while the machine sleeps: a session key grows
/// old in suspend as well.
///
/// Sums saturate, differences stop at zero: a clock that was read on another core a moment earlier must
/// never turn into a deadline in the far future.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Instant(pub u64);

impl Instant {
    /// The time from `earlier` to `self`, zero if `earlier` is later.
    pub const fn since(self, earlier: Instant) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// An activity word of shared memory, where zero stands for "never".
    pub const fn from_word(word: u64) -> Option<Instant> {
        if word == 0 { None } else { Some(Instant(word)) }
    }
}

/// A duration in nanoseconds, at most `u64::MAX` (584 years).
fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

impl Add<Duration> for Instant {
    type Output = Instant;

    fn add(self, duration: Duration) -> Instant {
        Instant(self.0.saturating_add(nanoseconds(duration)))
    }
}

impl Sub<Duration> for Instant {
    type Output = Instant;

    fn sub(self, duration: Duration) -> Instant {
        Instant(self.0.saturating_sub(nanoseconds(duration)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_saturate_and_differences_stop_at_zero() {
        let late = Instant(u64::MAX - 5);
        assert_eq!(late + Duration::from_secs(1), Instant(u64::MAX));
        assert_eq!(Instant(3) - Duration::from_secs(1), Instant(0));
        assert_eq!(Instant(3).since(Instant(7)), Duration::ZERO);
        assert_eq!(Instant(7).since(Instant(3)), Duration::from_nanos(4));
    }

    #[test]
    fn a_zero_word_is_never() {
        assert_eq!(Instant::from_word(0), None);
        assert_eq!(Instant::from_word(9), Some(Instant(9)));
    }
}
