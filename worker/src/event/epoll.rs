//! The Linux backend.

use super::{Interest, Poller, Ready, Registry, Token};
use crate::sys::epoll::{self, Control, Report};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// Reports taken with one call; more stay for the next, since it is level-triggered.
const BATCH: usize = 64;

/// An epoll instance and what is registered with it.
pub(crate) struct Epoll<S> {
    instance: OwnedFd,
    registry: Registry<S>,
    reports: Box<[Report]>,
    /// The part of `reports` not handed out yet.
    next: usize,
    filled: usize,
}

impl<S: Copy> Epoll<S> {
    pub(crate) fn new() -> io::Result<Epoll<S>> {
        Ok(Epoll {
            instance: epoll::create()?,
            registry: Registry::new(),
            reports: vec![Report { events: 0, u64: 0 }; BATCH].into_boxed_slice(),
            next: 0,
            filled: 0,
        })
    }
}

impl<S: Copy> Poller<S> for Epoll<S> {
    fn add(&mut self, fd: BorrowedFd<'_>, interest: Interest, source: S) -> io::Result<Token> {
        let token = self.registry.insert(source);
        let added = epoll::control(
            self.instance.as_fd(),
            Control::Add,
            fd,
            bits(interest),
            token.to_bits(),
        );
        if let Err(error) = added {
            self.registry.remove(token);
            return Err(error);
        }
        Ok(token)
    }

    fn change(&mut self, token: Token, fd: BorrowedFd<'_>, interest: Interest) -> io::Result<()> {
        epoll::control(
            self.instance.as_fd(),
            Control::Modify,
            fd,
            bits(interest),
            token.to_bits(),
        )
    }

    fn remove(&mut self, token: Token, fd: BorrowedFd<'_>) -> io::Result<()> {
        self.registry.remove(token);
        epoll::control(self.instance.as_fd(), Control::Delete, fd, 0, 0)
    }

    fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        self.next = 0;
        self.filled = 0;
        match epoll::wait(self.instance.as_fd(), &mut self.reports, timeout) {
            Ok(count) => {
                self.filled = count;
                Ok(())
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn next(&mut self) -> Option<Ready<S>> {
        while self.next < self.filled {
            // By value: the kernel's struct is packed on x86.
            let Report { events, u64: datum } = self.reports[self.next];
            self.next += 1;
            if let Some(source) = self.registry.get(Token::from_bits(datum)) {
                return Some(Ready {
                    source,
                    readable: events & libc::EPOLLIN as u32 != 0,
                    writable: events & libc::EPOLLOUT as u32 != 0,
                    failed: events & (libc::EPOLLERR | libc::EPOLLHUP) as u32 != 0,
                });
            }
        }
        None
    }
}

fn bits(interest: Interest) -> u32 {
    let mut bits = 0;
    if interest.read {
        bits |= libc::EPOLLIN as u32;
    }
    if interest.write {
        bits |= libc::EPOLLOUT as u32;
    }
    bits
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixDatagram;

    #[test]
    fn a_removal_during_the_batch_drops_the_report() {
        let mut poller = Epoll::new().unwrap();
        let (here, there) = UnixDatagram::pair().unwrap();
        let (other, far) = UnixDatagram::pair().unwrap();
        let tokens = [
            poller.add(here.as_fd(), Interest::READ, 1).unwrap(),
            poller.add(other.as_fd(), Interest::READ, 2).unwrap(),
        ];
        there.send(b"x").unwrap();
        far.send(b"x").unwrap();
        poller.wait(Some(Duration::ZERO)).unwrap();
        let first = poller.next().unwrap();
        assert!(first.readable);
        let (rest, fd) = if first.source == 1 {
            (tokens[1], other.as_fd())
        } else {
            (tokens[0], here.as_fd())
        };
        poller.remove(rest, fd).unwrap();
        // The place is taken again before the batch is through.
        let (third, _keep) = UnixDatagram::pair().unwrap();
        poller.add(third.as_fd(), Interest::READ, 3).unwrap();
        assert_eq!(poller.next(), None);
    }

    #[test]
    fn nothing_ready_is_a_time_out() {
        let mut poller = Epoll::<u8>::new().unwrap();
        poller.wait(Some(Duration::from_micros(10))).unwrap();
        assert_eq!(poller.next(), None);
    }
}
