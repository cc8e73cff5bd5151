//! Waiting for descriptors.
//!
//! One small interface, level-triggered, with a backend for each kernel: [`epoll`] on Linux. What
//! is registered is remembered here, so that a backend is little more than its system calls. A
//! registration may be removed while the reports of one wait are being handled: a token carries
//! the generation of its place, and a report for what is gone is dropped.

pub(crate) mod epoll;

use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// What a registration waits for. Errors and hang-ups are always reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Interest {
    /// There is something to read.
    pub(crate) read: bool,
    /// There is room to write.
    pub(crate) write: bool,
}

impl Interest {
    /// Only errors and hang-ups.
    pub(crate) const NONE: Interest = Interest {
        read: false,
        write: false,
    };
    pub(crate) const READ: Interest = Interest {
        read: true,
        write: false,
    };
    pub(crate) const BOTH: Interest = Interest {
        read: true,
        write: true,
    };
}

/// A registration: its place and which use of that place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Token {
    place: u32,
    generation: u32,
}

impl Token {
    /// As the 64 bits that the kernel keeps for us.
    fn to_bits(self) -> u64 {
        (u64::from(self.generation) << 32) | u64::from(self.place)
    }

    fn from_bits(bits: u64) -> Token {
        Token {
            place: bits as u32,
            generation: (bits >> 32) as u32,
        }
    }
}

/// One descriptor that is ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ready<S> {
    /// What the caller registered it as.
    pub(crate) source: S,
    /// It can be read.
    pub(crate) readable: bool,
    /// It can be written.
    pub(crate) writable: bool,
    /// It has an error or its other end is gone.
    pub(crate) failed: bool,
}

/// A backend. `S` says what a descriptor is to the caller.
pub(crate) trait Poller<S: Copy> {
    /// Starts to watch `fd`.
    fn add(&mut self, fd: BorrowedFd<'_>, interest: Interest, source: S) -> io::Result<Token>;

    /// Waits for something else from now on.
    fn change(&mut self, token: Token, fd: BorrowedFd<'_>, interest: Interest) -> io::Result<()>;

    /// Stops watching; reports of `token` that wait in the current batch are dropped.
    fn remove(&mut self, token: Token, fd: BorrowedFd<'_>) -> io::Result<()>;

    /// Waits until something is ready or the time is over; `None` waits without limit. A signal
    /// ends the wait like a time-out.
    fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()>;

    /// The next report of the last wait.
    fn next(&mut self) -> Option<Ready<S>>;
}

/// What is registered: a place a descriptor, used again with a new generation.
struct Registry<S> {
    places: Vec<(u32, Option<S>)>,
    free: Vec<u32>,
}

impl<S: Copy> Registry<S> {
    fn new() -> Registry<S> {
        Registry {
            places: Vec::new(),
            free: Vec::new(),
        }
    }

    fn insert(&mut self, source: S) -> Token {
        if let Some(place) = self.free.pop() {
            let entry = &mut self.places[place as usize];
            entry.1 = Some(source);
            return Token {
                place,
                generation: entry.0,
            };
        }
        self.places.push((0, Some(source)));
        Token {
            place: (self.places.len() - 1) as u32,
            generation: 0,
        }
    }

    fn remove(&mut self, token: Token) {
        if let Some(entry) = self.places.get_mut(token.place as usize) {
            if entry.0 == token.generation && entry.1.is_some() {
                *entry = (entry.0.wrapping_add(1), None);
                self.free.push(token.place);
            }
        }
    }

    fn get(&self, token: Token) -> Option<S> {
        match self.places.get(token.place as usize) {
            Some((generation, source)) if *generation == token.generation => *source,
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_that_is_used_again_does_not_answer_to_the_old_token() {
        let mut registry = Registry::new();
        let first = registry.insert("first");
        registry.remove(first);
        registry.remove(first);
        let second = registry.insert("second");
        assert_eq!(first.place, second.place);
        assert_eq!(registry.get(first), None);
        assert_eq!(registry.get(second), Some("second"));
        assert_eq!(Token::from_bits(second.to_bits()), second);
    }
}
