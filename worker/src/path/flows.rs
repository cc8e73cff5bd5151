//! A queue a flow, each kept short: FQ-CoDel (RFC 8290) with CoDel (RFC 8289) on each.
//!
//! Whoever sends little is served first, whoever fills a queue for longer than a round trip is
//! told so. It knows nothing of packets: an item has a flow, a length and an age.

#[cfg(test)]
mod tests;

use ringway_proto::time::Instant;
use std::time::Duration;

/// How much there may be, and how old.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// Queues: a power of two. Flows whose hashes agree in that many bits share one.
    pub(super) queues: usize,
    /// Items in all queues.
    pub(super) items: usize,
    /// Bytes in all queues.
    pub(super) bytes: usize,
    /// Bytes that a flow may send before it is another's turn.
    pub(super) quantum: i64,
    /// The age that a standing queue may have.
    pub(super) target: Duration,
    /// For how long it may be older before the first signal: the longest usual round trip.
    pub(super) interval: Duration,
}

/// What is to be done with an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Send it.
    Pass,
    /// Tell its sender to slow down, by a mark or by a loss.
    Signal,
}

/// No item, no queue.
const NONE: u32 = u32::MAX;
/// Items that one shedding drops at most, so that the search for the longest queue is rare.
const SHED: usize = 64;

/// The queues.
pub(super) struct Flows<T> {
    limits: Limits,
    queues: Box<[Queue]>,
    slots: Box<[Slot<T>]>,
    /// The first unused slot.
    free: u32,
    new: Row,
    old: Row,
    bytes: usize,
    items: usize,
}

struct Slot<T> {
    item: Option<T>,
    bytes: u32,
    since: Instant,
    next: u32,
}

#[derive(Clone, Copy)]
struct Queue {
    head: u32,
    tail: u32,
    bytes: usize,
    deficit: i64,
    /// It is in a row.
    waits: bool,
    next: u32,
    codel: Codel,
}

/// Queues that wait for their turn.
struct Row {
    head: u32,
    tail: u32,
}

impl Row {
    const EMPTY: Row = Row {
        head: NONE,
        tail: NONE,
    };

    fn push(&mut self, queues: &mut [Queue], number: u32) {
        queues[number as usize].next = NONE;
        match self.tail {
            NONE => self.head = number,
            tail => queues[tail as usize].next = number,
        }
        self.tail = number;
    }

    fn pop(&mut self, queues: &[Queue]) {
        self.head = queues[self.head as usize].next;
        if self.head == NONE {
            self.tail = NONE;
        }
    }
}

impl<T> Flows<T> {
    pub(super) fn new(limits: Limits) -> Flows<T> {
        let queue = Queue {
            head: NONE,
            tail: NONE,
            bytes: 0,
            deficit: 0,
            waits: false,
            next: NONE,
            codel: Codel::default(),
        };
        let slot = |number| Slot {
            item: None,
            bytes: 0,
            since: Instant(0),
            next: if number + 1 < limits.items {
                number as u32 + 1
            } else {
                NONE
            },
        };
        Flows {
            limits,
            queues: vec![queue; limits.queues.next_power_of_two()].into_boxed_slice(),
            slots: (0..limits.items).map(slot).collect(),
            free: 0,
            new: Row::EMPTY,
            old: Row::EMPTY,
            bytes: 0,
            items: 0,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.items == 0
    }

    /// Whether another item is within the limits.
    pub(super) fn has_room(&self) -> bool {
        self.free != NONE && self.bytes < self.limits.bytes
    }

    /// Puts an item behind the others of its flow. `since`: when it came, at the earliest. Without
    /// room it is given back.
    pub(super) fn push(&mut self, hash: u32, item: T, bytes: usize, since: Instant) -> Option<T> {
        let at = self.free;
        let Some(slot) = self.slots.get_mut(at as usize) else {
            return Some(item);
        };
        self.free = slot.next;
        *slot = Slot {
            item: Some(item),
            bytes: bytes as u32,
            since,
            next: NONE,
        };
        let number = hash as usize & (self.queues.len() - 1);
        let queue = &mut self.queues[number];
        match queue.tail {
            NONE => queue.head = at,
            tail => self.slots[tail as usize].next = at,
        }
        queue.tail = at;
        queue.bytes += bytes;
        self.bytes += bytes;
        self.items += 1;
        if !queue.waits {
            queue.waits = true;
            queue.deficit = self.limits.quantum;
            self.new.push(&mut self.queues, number as u32);
        }
        None
    }

    /// The next item to send.
    pub(super) fn pop(&mut self, now: Instant) -> Option<(T, Verdict)> {
        loop {
            let fresh = self.new.head != NONE;
            let row = if fresh { &mut self.new } else { &mut self.old };
            let number = row.head;
            let queue = self.queues.get_mut(number as usize)?;
            if queue.deficit <= 0 {
                queue.deficit += self.limits.quantum;
                row.pop(&self.queues);
                self.old.push(&mut self.queues, number);
            } else if queue.head == NONE {
                row.pop(&self.queues);
                // A new flow that comes back at once must not pass all others for ever.
                if fresh && self.old.head != NONE {
                    self.old.push(&mut self.queues, number);
                } else {
                    self.queues[number as usize].waits = false;
                }
            } else {
                let (item, bytes, since) = self.take(number)?;
                let queue = &mut self.queues[number as usize];
                queue.deficit -= bytes as i64;
                let age = now.since(since);
                let stands = age >= self.limits.target && queue.head != NONE;
                let verdict = queue.codel.judge(stands, now, self.limits.interval);
                return Some((item, verdict));
            }
        }
    }

    /// Takes items out of the longest queue, the oldest first: half of it, or as many as pay for the
    /// search.
    pub(super) fn shed(&mut self, mut each: impl FnMut(T)) {
        let longest = (0..self.queues.len()).max_by_key(|number| self.queues[*number].bytes);
        let Some(number) = longest else {
            return;
        };
        let half = self.queues[number].bytes / 2;
        for _ in 0..SHED {
            let Some((item, ..)) = self.take(number as u32) else {
                return;
            };
            each(item);
            if self.queues[number].bytes <= half {
                return;
            }
        }
    }

    fn take(&mut self, number: u32) -> Option<(T, usize, Instant)> {
        let queue = &mut self.queues[number as usize];
        let at = queue.head;
        let slot = self.slots.get_mut(at as usize)?;
        let item = slot.item.take()?;
        let (bytes, since) = (slot.bytes as usize, slot.since);
        queue.head = slot.next;
        if queue.head == NONE {
            queue.tail = NONE;
        }
        slot.next = self.free;
        self.free = at;
        queue.bytes -= bytes;
        self.bytes -= bytes;
        self.items -= 1;
        Some((item, bytes, since))
    }
}

/// The state of CoDel on one queue (RFC 8289, section 5).
#[derive(Debug, Clone, Copy, Default)]
struct Codel {
    /// When it will have stood for an interval.
    due: Option<Instant>,
    signalling: bool,
    /// When the next signal is due.
    next: Instant,
    /// Signals since it began to stand.
    count: u32,
    /// Their number when it last began.
    former: u32,
}

/// For how many intervals a former standing queue is remembered.
const REMEMBERED: u32 = 16;

impl Codel {
    /// `stands`: the queue is older than it should be.
    fn judge(&mut self, stands: bool, now: Instant, interval: Duration) -> Verdict {
        if !stands {
            self.due = None;
            self.signalling = false;
            return Verdict::Pass;
        }
        let due = *self.due.get_or_insert(now + interval);
        if now < due {
            self.signalling = false;
            return Verdict::Pass;
        }
        if self.signalling {
            if now < self.next {
                return Verdict::Pass;
            }
            self.count += 1;
            self.next = self.next + self.spacing(interval);
            return Verdict::Signal;
        }
        self.signalling = true;
        // Soon after the last time, the rate that was right then is a good start.
        let since = self.count - self.former;
        self.count = if since > 1 && now.since(self.next) < REMEMBERED * interval {
            since
        } else {
            1
        };
        self.former = self.count;
        self.next = now + self.spacing(interval);
        Verdict::Signal
    }

    /// The control law: the interval over the square root of the count.
    fn spacing(&self, interval: Duration) -> Duration {
        interval.div_f64(f64::from(self.count).sqrt())
    }
}
