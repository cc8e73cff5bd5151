//! When a helper that ended is followed by another: the data plane does without meanwhile.

use std::time::{Duration, Instant};

/// The first wait: long enough to see that meta ended, and the helper with it.
const FIRST: Duration = Duration::from_millis(200);
/// The second wait; each further one is twice as long, up to the longest.
const SECOND: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(30);
/// Who ran as long as this starts anew with the shortest wait.
const SOUND: Duration = Duration::from_secs(60);

/// The next helper.
#[derive(Debug, Default)]
pub(super) struct Revival {
    /// When it is due, and how the former ended; `None`: a helper runs.
    due: Option<(Instant, String)>,
    /// The last wait.
    waited: Duration,
    /// When the present one was started in the place of another.
    started: Option<Instant>,
}

impl Revival {
    /// The helper ended, so.
    pub(super) fn ended(&mut self, why: String) {
        self.ended_at(Instant::now(), why);
    }

    fn ended_at(&mut self, now: Instant, why: String) {
        let sound = self
            .started
            .is_none_or(|started| now.duration_since(started) >= SOUND);
        self.waited = if sound {
            FIRST
        } else {
            (self.waited * 2).clamp(SECOND, LONGEST)
        };
        self.due = Some((now + self.waited, why));
    }

    /// Whether it is time for another.
    pub(super) fn is_due(&self) -> bool {
        self.remaining().is_some_and(|left| left.is_zero())
    }

    /// How long until then; `None`: a helper runs.
    pub(super) fn remaining(&self) -> Option<Duration> {
        let (at, _) = self.due.as_ref()?;
        Some(at.saturating_duration_since(Instant::now()))
    }

    /// Another is started; how the former ended, `None`: it runs.
    pub(super) fn starts(&mut self) -> Option<String> {
        let (_, why) = self.due.take()?;
        self.started = Some(Instant::now());
        Some(why)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_keeps_dying_is_started_ever_more_rarely() {
        let mut revival = Revival::default();
        assert!(revival.starts().is_none());
        let mut waits = Vec::new();
        for _ in 0..8 {
            revival.ended_at(Instant::now(), "exit status: 1".to_owned());
            assert!(!revival.is_due());
            waits.push(revival.waited.as_millis());
            assert!(revival.starts().is_some());
        }
        assert_eq!(waits, [200, 1000, 2000, 4000, 8000, 16000, 30000, 30000]);
        revival.ended_at(Instant::now() + SOUND, "signal: 9".to_owned());
        assert_eq!(revival.waited, FIRST);
    }
}
