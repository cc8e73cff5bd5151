//! Handshake messages that wait for their turn: a ring of fixed buffers, and by its length the
//! measure of load.
//!
//! The kernel counts its queue of incoming handshakes and is under load from an eighth of its
//! capacity on, and for a second after it last was (`receive.c`). Here only messages with a right
//! MAC1 get into the queue, so noise costs one hash a message and brings no cookies about; what
//! makes load is work that only someone who knows our public key can ask for.

use super::source::Source;
use ringway_proto::time::Instant;
use ringway_proto::wire::Initiation;
use std::time::Duration;

/// Messages that may wait.
pub(crate) const CAPACITY: usize = 1024;
/// From this many on the gateway is under load.
const LOAD: usize = CAPACITY / 8;
/// And for so long afterwards.
const HYSTERESIS: Duration = Duration::from_secs(1);

/// A message of at most an initiation's length and where it came from.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Waiting {
    /// Its sender, and the address of ours that it was sent to.
    pub(crate) source: Source,
    bytes: [u8; Initiation::LEN],
    length: u8,
}

impl Waiting {
    /// The message.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }
}

/// The queue.
#[derive(Debug)]
pub(crate) struct HandshakeQueue {
    slots: Box<[Option<Waiting>]>,
    head: usize,
    length: usize,
    last_load: Option<Instant>,
    /// Since that was noted as load last.
    turned_away: usize,
}

impl HandshakeQueue {
    /// An empty queue; nothing is allocated later.
    pub(crate) fn new() -> Self {
        Self {
            slots: vec![None; CAPACITY].into(),
            head: 0,
            length: 0,
            last_load: None,
            turned_away: 0,
        }
    }

    /// Puts a message at the end; `false` when the queue is full or the message too long.
    pub(crate) fn push(&mut self, message: &[u8], source: Source) -> bool {
        if self.length == CAPACITY || message.len() > Initiation::LEN {
            return false;
        }
        let mut bytes = [0; Initiation::LEN];
        bytes[..message.len()].copy_from_slice(message);
        let slot = (self.head + self.length) % CAPACITY;
        self.slots[slot] = Some(Waiting {
            source,
            bytes,
            length: message.len() as u8,
        });
        self.length += 1;
        true
    }

    /// Whether there is no room.
    pub(crate) fn is_full(&self) -> bool {
        self.length == CAPACITY
    }

    /// Notes a message that would have waited here, had its sender not sent too many: so many of
    /// them are load like those that wait.
    pub(crate) fn turn_away(&mut self, now: Instant) {
        self.turned_away += 1;
        if self.turned_away >= LOAD {
            self.turned_away = 0;
            self.last_load = Some(now);
        }
    }

    /// The message that waits longest.
    pub(crate) fn pop(&mut self) -> Option<Waiting> {
        if self.length == 0 {
            return None;
        }
        let waiting = self.slots[self.head].take();
        self.head = (self.head + 1) % CAPACITY;
        self.length -= 1;
        waiting
    }

    /// How many wait.
    pub(crate) fn len(&self) -> usize {
        self.length
    }

    /// Whether senders have to prove their address now.
    pub(crate) fn under_load(&mut self, now: Instant) -> bool {
        if self.length >= LOAD {
            self.last_load = Some(now);
            return true;
        }
        if self
            .last_load
            .is_some_and(|last| now.since(last) < HYSTERESIS)
        {
            return true;
        }
        self.last_load = None;
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source() -> Source {
        Source {
            remote: "192.0.2.1:1".parse().unwrap(),
            local: None,
            ifindex: 0,
        }
    }

    #[test]
    fn keeps_order_and_bounds() {
        let mut queue = HandshakeQueue::new();
        for turn in 0..3 {
            for number in 0..CAPACITY {
                assert!(queue.push(&[number as u8, turn], source()));
            }
            assert!(!queue.push(&[0], source()));
            for number in 0..CAPACITY {
                assert_eq!(queue.pop().unwrap().bytes(), [number as u8, turn]);
            }
            assert!(queue.pop().is_none());
        }
        assert!(!queue.push(&[0; 149], source()));
    }

    #[test]
    fn load_lasts_a_second_longer() {
        let second = 1_000_000_000;
        let mut queue = HandshakeQueue::new();
        assert!(!queue.under_load(Instant(second)));
        for _ in 0..LOAD {
            queue.push(&[1], source());
        }
        assert!(queue.under_load(Instant(2 * second)));
        while queue.pop().is_some() {}
        assert!(queue.under_load(Instant(3 * second - 1)));
        assert!(!queue.under_load(Instant(3 * second)));
        assert!(
            !queue.under_load(Instant(3 * second - 1)),
            "the end is the end"
        );
    }
}
