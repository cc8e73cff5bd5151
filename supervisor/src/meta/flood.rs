//! When datagrams pour in, they are taken in batches worth a system call, and in their own share of
//! a processor.
//!
//! At 100,000 a second a loop that wakes for each would spend more on waking than on the messages,
//! and take that time from the workers. Past a rate the loop rests between two turns; what arrives
//! meanwhile waits in the socket's buffer, which holds several times as much. The longer a turn
//! took, the longer is the rest, so that no sender has more than a third of a processor for himself:
//! what then does not fit is lost as on a full link, and who is in earnest comes again.

use ringway_proto::time::Instant;
use std::time::Duration;

/// From so many datagrams a second on it is a flood.
const RATE: u64 = 20_000;
/// Over so long the rate is taken.
const WINDOW: Duration = Duration::from_millis(20);
/// What may come during a rest. A socket's buffer of 8 MiB (the kernel doubles what is asked for)
/// holds 3,600 small datagrams even where each takes 2,304 bytes, as in drivers with half pages.
const DATAGRAMS: u64 = 1000;
/// The longest rest: events of workers wait for it as well.
const LONGEST: Duration = Duration::from_millis(10);
/// A rest is at least so many times as long as the turn before it.
const SHARE: u32 = 2;

/// The measure of what arrives.
#[derive(Debug)]
pub(crate) struct Flood {
    since: Instant,
    count_then: u64,
    /// Datagrams a second, when it is a flood.
    rate: Option<u64>,
}

impl Flood {
    /// Nothing has arrived yet.
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            since: now,
            count_then: 0,
            rate: None,
        }
    }

    /// Whether it pours.
    pub(crate) fn is_on(&self) -> bool {
        self.rate.is_some()
    }

    /// Takes the number of all datagrams so far and how long the last turn was at work; tells how
    /// long to rest.
    pub(crate) fn rest(&mut self, now: Instant, count: u64, busy: Duration) -> Option<Duration> {
        let window = now.since(self.since);
        if window >= WINDOW {
            let arrived = count.wrapping_sub(self.count_then);
            let rate = u128::from(arrived) * 1_000_000_000 / window.as_nanos();
            self.rate = u64::try_from(rate).ok().filter(|rate| *rate >= RATE);
            self.since = now;
            self.count_then = count;
        }
        let rate = self.rate?;
        let fills = Duration::from_nanos(DATAGRAMS * 1_000_000_000 / rate);
        Some(fills.max(busy * SHARE).min(LONGEST))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLISECOND: u64 = 1_000_000;

    #[test]
    fn rests_only_while_it_pours() {
        let mut flood = Flood::new(Instant(0));
        let (mut count, mut rests) = (0, 0);
        for turn in 0..100 {
            count += 100;
            let rest = flood.rest(Instant(turn * MILLISECOND), count, Duration::ZERO);
            rests += u32::from(rest.is_some());
        }
        assert!((75..=80).contains(&rests), "{rests}");
        assert!(flood.is_on());
        for turn in 100..150 {
            count += 1;
            flood.rest(Instant(turn * MILLISECOND), count, Duration::ZERO);
        }
        let now = Instant(150 * MILLISECOND);
        assert_eq!(flood.rest(now, count, Duration::ZERO), None);
        assert!(!flood.is_on());
    }

    #[test]
    fn no_rest_overfills_a_buffer_and_no_turn_takes_more_than_its_share() {
        let at = |rate: u64, busy| {
            let mut flood = Flood::new(Instant(0));
            flood.rest(Instant(20 * MILLISECOND), rate / 50, busy)
        };
        let milliseconds = |count| Some(Duration::from_millis(count));
        assert_eq!(at(19_000, Duration::ZERO), None);
        assert_eq!(at(100_000, Duration::ZERO), milliseconds(10));
        assert_eq!(at(1_000_000, Duration::ZERO), milliseconds(1));
        assert_eq!(at(1_000_000, Duration::from_millis(3)), milliseconds(6));
        assert_eq!(at(1_000_000, Duration::from_millis(30)), milliseconds(10));
    }
}
