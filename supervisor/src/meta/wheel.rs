//! A hierarchical timer wheel: one timer a key, cancelled and moved in constant time.
//!
//! Keys are small numbers (peer slots); the entries of a wheel position form a doubly linked list
//! through one vector, so nothing is allocated while timers come and go. A timer fires in the tick
//! after its deadline at the latest, never before it.

use ringway_proto::time::Instant;
use std::time::Duration;

/// Nanoseconds of one tick, as a power of two: 4.19 ms.
const TICK_BITS: u32 = 22;
const LEVEL_BITS: u32 = 6;
const SLOTS: usize = 1 << LEVEL_BITS;
const LEVELS: usize = 6;
const NONE: u32 = u32::MAX;

/// The wheel.
#[derive(Debug)]
pub(crate) struct Wheel {
    /// The tick up to which everything has fired.
    now: u64,
    heads: [[u32; SLOTS]; LEVELS],
    occupied: [u64; LEVELS],
    entries: Vec<Entry>,
    /// How many timers run.
    running: usize,
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    /// The tick it fires in; meaningless while `position` is `None`.
    due: u64,
    next: u32,
    previous: u32,
    position: Option<(u8, u8)>,
}

const IDLE: Entry = Entry {
    due: 0,
    next: NONE,
    previous: NONE,
    position: None,
};

impl Wheel {
    /// A wheel without timers that begins at `now`.
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            now: now.0 >> TICK_BITS,
            heads: [[NONE; SLOTS]; LEVELS],
            occupied: [0; LEVELS],
            entries: Vec::new(),
            running: 0,
        }
    }

    /// Starts or moves the timer of `key`.
    pub(crate) fn set(&mut self, key: u32, deadline: Instant) {
        self.cancel(key);
        if self.entries.len() <= key as usize {
            self.entries.resize(key as usize + 1, IDLE);
        }
        let due = (deadline.0.div_ceil(1 << TICK_BITS)).max(self.now + 1);
        self.entries[key as usize].due = due;
        self.link(key);
        self.running += 1;
    }

    /// Ends the timer of `key`, if it runs.
    pub(crate) fn cancel(&mut self, key: u32) {
        if self.unlink(key) {
            self.running -= 1;
        }
    }

    /// Moves on to `now` and takes out one timer that is due; to be called until it gives `None`.
    pub(crate) fn pop(&mut self, now: Instant) -> Option<u32> {
        let target = now.0 >> TICK_BITS;
        loop {
            // The list of the current tick: what is left of an interrupted turn fires first.
            let head = self.heads[0][slot_of(self.now, 0)];
            if head != NONE && self.entries[head as usize].due <= self.now {
                self.cancel(head);
                return Some(head);
            }
            if self.now >= target {
                return None;
            }
            if self.running == 0 {
                self.now = target;
                return None;
            }
            self.now = self.next_tick().min(target);
            self.cascade();
        }
    }

    /// A time before which no timer fires; `None` when none runs. It may be early by a level's
    /// step, never late.
    pub(crate) fn next_expiry(&self) -> Option<Instant> {
        if self.running == 0 {
            return None;
        }
        let head = self.heads[0][slot_of(self.now, 0)];
        if head != NONE && self.entries[head as usize].due <= self.now {
            return Some(Instant(self.now << TICK_BITS));
        }
        Some(Instant(self.next_tick() << TICK_BITS))
    }

    /// How long one may sleep at `now` without a timer becoming late.
    pub(crate) fn timeout(&self, now: Instant) -> Option<Duration> {
        self.next_expiry()
            .map(|at| Duration::from_nanos(at.0.saturating_sub(now.0)))
    }

    /// The next tick in which a position of some level comes up.
    fn next_tick(&self) -> u64 {
        let mut best = u64::MAX;
        for (level, occupied) in self.occupied.iter().enumerate() {
            if *occupied == 0 {
                continue;
            }
            let shift = LEVEL_BITS * level as u32;
            let current = self.now >> shift;
            let here = (current as usize) % SLOTS;
            // Positions are counted from the one after the current: a full turn comes last.
            let rotated = occupied.rotate_right((here as u32 + 1) % SLOTS as u32);
            let steps = u64::from(rotated.trailing_zeros()) + 1;
            best = best.min((current + steps) << shift);
        }
        best
    }

    /// Moves the timers of the upper levels whose position has come to lower ones.
    fn cascade(&mut self) {
        for level in (1..LEVELS).rev() {
            let shift = LEVEL_BITS * level as u32;
            if self.now & ((1 << shift) - 1) != 0 {
                continue;
            }
            let slot = slot_of(self.now, level);
            let mut key = self.heads[level][slot];
            self.heads[level][slot] = NONE;
            self.occupied[level] &= !(1 << slot);
            while key != NONE {
                let next = self.entries[key as usize].next;
                self.link(key);
                key = next;
            }
        }
    }

    fn link(&mut self, key: u32) {
        let due = self.entries[key as usize].due;
        let level = level_for(self.now, due);
        // What lies beyond the wheel's reach waits at its far end and is placed anew there.
        let reach = self
            .now
            .saturating_add((1 << (LEVEL_BITS * LEVELS as u32)) - 1);
        let slot = slot_of(due.min(reach), level);
        let head = self.heads[level][slot];
        let entry = &mut self.entries[key as usize];
        entry.previous = NONE;
        entry.next = head;
        entry.position = Some((level as u8, slot as u8));
        if head != NONE {
            self.entries[head as usize].previous = key;
        }
        self.heads[level][slot] = key;
        self.occupied[level] |= 1 << slot;
    }

    fn unlink(&mut self, key: u32) -> bool {
        let Some(entry) = self.entries.get_mut(key as usize) else {
            return false;
        };
        let Some((level, slot)) = entry.position.take() else {
            return false;
        };
        let (next, previous) = (entry.next, entry.previous);
        if next != NONE {
            self.entries[next as usize].previous = previous;
        }
        if previous == NONE {
            self.heads[usize::from(level)][usize::from(slot)] = next;
            if next == NONE {
                self.occupied[usize::from(level)] &= !(1 << slot);
            }
        } else {
            self.entries[previous as usize].next = next;
        }
        true
    }
}

fn slot_of(tick: u64, level: usize) -> usize {
    (tick >> (LEVEL_BITS * level as u32)) as usize % SLOTS
}

/// The lowest level in which `due` is less than one turn away.
fn level_for(now: u64, due: u64) -> usize {
    for level in 0..LEVELS - 1 {
        let shift = LEVEL_BITS * level as u32;
        if (due >> shift) - (now >> shift) < SLOTS as u64 {
            return level;
        }
    }
    LEVELS - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    const TICK: u64 = 1 << TICK_BITS;

    fn drain(wheel: &mut Wheel, now: u64) -> Vec<u32> {
        std::iter::from_fn(|| wheel.pop(Instant(now))).collect()
    }

    #[test]
    fn fires_in_time_and_never_early() {
        let start = 12_345 * TICK + 77;
        let mut wheel = Wheel::new(Instant(start));
        let mut state = 0x9E37_79B9_7F4A_7C15_u64;
        let mut due = std::collections::BTreeMap::new();
        for key in 0..5000_u32 {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let delay = state >> (24 + state % 30);
            due.insert(key, start + delay);
            wheel.set(key, Instant(start + delay));
        }
        for key in (0..5000).step_by(7) {
            wheel.cancel(key);
            due.remove(&key);
        }
        let mut now = start;
        while let Some(next) = wheel.next_expiry() {
            assert!(
                due.values().min().copied().unwrap_or(0) + 2 * TICK > next.0,
                "late sleep"
            );
            now = now.max(next.0);
            for key in drain(&mut wheel, now) {
                let at = due.remove(&key).expect("fired once");
                assert!(at <= now, "fired early");
                assert!(now < at + 2 * TICK, "fired late by {}", now - at);
            }
        }
        assert!(due.is_empty());
    }

    #[test]
    fn a_long_sleep_fires_everything_that_is_due() {
        let mut wheel = Wheel::new(Instant(0));
        for key in 0..1000 {
            wheel.set(key, Instant(u64::from(key) * 1_000_000_000));
        }
        let mut fired = drain(&mut wheel, 500_000_000_000 + TICK);
        fired.sort_unstable();
        assert_eq!(fired, (0..=500).collect::<Vec<_>>());
        assert_eq!(drain(&mut wheel, 2_000_000_000_000).len(), 499);
        assert_eq!(wheel.next_expiry(), None);
    }

    #[test]
    fn a_moved_timer_fires_once() {
        let mut wheel = Wheel::new(Instant(0));
        wheel.set(3, Instant(10 * TICK));
        wheel.set(3, Instant(1000 * TICK));
        wheel.set(3, Instant(500 * TICK));
        assert!(drain(&mut wheel, 499 * TICK).is_empty());
        assert_eq!(drain(&mut wheel, 500 * TICK), [3]);
        assert!(drain(&mut wheel, 5000 * TICK).is_empty());
    }
}
