//! When datagrams pour in, they are taken in batches worth a system call.
//!
//! At 100,000 a second a loop that wakes for each would spend more on waking than on the messages,
//! and take that time from the workers. Past a rate the loop rests a moment between two turns; what
//! arrives meanwhile waits in the socket's buffer, which holds many times as much.

use ringway_proto::time::Instant;
use std::time::Duration;

/// From so many datagrams a second on it is a flood.
const RATE: u64 = 20_000;
/// Over so long the rate is taken.
const WINDOW: Duration = Duration::from_millis(20);
/// The rest: at 100,000 a second, 200 datagrams.
const REST: Duration = Duration::from_millis(2);

/// The measure of what arrives.
#[derive(Debug)]
pub(crate) struct Flood {
    since: Instant,
    count_then: u64,
    flooded: bool,
}

impl Flood {
    /// Nothing has arrived yet.
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            since: now,
            count_then: 0,
            flooded: false,
        }
    }

    /// Takes the number of all datagrams so far; tells how long to rest.
    pub(crate) fn rest(&mut self, now: Instant, count: u64) -> Option<Duration> {
        let window = now.since(self.since);
        if window >= WINDOW {
            let arrived = count.wrapping_sub(self.count_then);
            let per_second = u128::from(arrived) * 1_000_000_000 / window.as_nanos();
            self.flooded = per_second >= u128::from(RATE);
            self.since = now;
            self.count_then = count;
        }
        self.flooded.then_some(REST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rests_only_while_it_pours() {
        let mut flood = Flood::new(Instant(0));
        let millisecond = 1_000_000;
        let (mut count, mut rests) = (0, 0);
        for turn in 0..100 {
            count += 100;
            rests += u32::from(flood.rest(Instant(turn * millisecond), count).is_some());
        }
        assert!((75..=80).contains(&rests), "{rests}");
        for turn in 100..150 {
            count += 1;
            flood.rest(Instant(turn * millisecond), count);
        }
        assert_eq!(flood.rest(Instant(150 * millisecond), count), None);
    }
}
