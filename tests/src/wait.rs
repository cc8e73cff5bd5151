//! Waiting for an event: a condition, looked at again and again, and a deadline that is a failure.

use std::time::{Duration, Instant};

const PAUSE: Duration = Duration::from_millis(10);

/// Waits until `condition` gives something.
///
/// # Panics
/// When `limit` has passed: the message names `what`.
pub fn until<T>(what: &str, limit: Duration, condition: impl FnMut() -> Option<T>) -> T {
    maybe(limit, condition).unwrap_or_else(|| panic!("waited {limit:?} in vain for {what}"))
}

/// Waits until `condition` gives something, `None` after `limit`.
pub fn maybe<T>(limit: Duration, mut condition: impl FnMut() -> Option<T>) -> Option<T> {
    let end = Instant::now() + limit;
    loop {
        if let Some(value) = condition() {
            return Some(value);
        }
        if Instant::now() >= end {
            return None;
        }
        std::thread::sleep(PAUSE);
    }
}

/// Waits until `condition` holds.
///
/// # Panics
/// As [`until`].
pub fn holds(what: &str, limit: Duration, mut condition: impl FnMut() -> bool) {
    until(what, limit, || condition().then_some(()));
}
