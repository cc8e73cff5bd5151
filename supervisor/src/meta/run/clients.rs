//! The UAPI's clients in the epoll set. Whatever goes wrong with one of them ends that one.

use super::super::uapi::{Arrival, Server};
use super::{CONNECTIONS, UAPI};
use nix::sys::epoll::{Epoll, EpollEvent, EpollFlags};
use ringway_proto::time::Instant;
use std::os::fd::AsFd;
use std::time::Duration;

/// Clients accepted in a turn: those before them are heard before they may have to make room.
const ACCEPTS: usize = 16;
/// For so long nobody is accepted when there is no descriptor left.
const PAUSE: Duration = Duration::from_secs(1);

/// What the clients are watched for.
#[derive(Debug, Default)]
pub(crate) struct Clients {
    /// By the connection's number; `None`: not in the epoll set.
    watched: Vec<Option<EpollFlags>>,
    /// The listener is out of the epoll set until then.
    paused_until: Option<Instant>,
}

impl Clients {
    /// Accepts and watches clients, one at a time: the next may take the place of the last.
    pub(crate) fn accept(&mut self, epoll: &Epoll, server: &mut Server, now: Instant) {
        for _ in 0..ACCEPTS {
            match server.accept(now) {
                Ok(Arrival::Nobody) => return,
                Ok(Arrival::TurnedAway) => {}
                Ok(Arrival::At(number)) => {
                    let numbers = self.watched.len().max(number + 1);
                    self.watched.resize(numbers, None);
                    // Who was there before is closed, and so out of the epoll set.
                    self.watched[number] = None;
                    self.watch(epoll, server, number);
                }
                Err(error) => {
                    // Level-triggered, who waits would wake us for ever.
                    tracing::warn!("UAPI: nobody can be accepted for a while: {error}");
                    if epoll.delete(server.as_fd()).is_ok() {
                        self.paused_until = Some(now + PAUSE);
                    }
                    return;
                }
            }
        }
    }

    /// Listens again after a pause.
    pub(crate) fn resume(&mut self, epoll: &Epoll, server: &Server, now: Instant) {
        if self.paused_until.is_none_or(|until| now < until) {
            return;
        }
        let event = EpollEvent::new(EpollFlags::EPOLLIN, UAPI);
        self.paused_until = match epoll.add(server.as_fd(), event) {
            Ok(()) => None,
            Err(_) => Some(now + PAUSE),
        };
    }

    /// Watches a client for what it needs now.
    pub(crate) fn watch(&mut self, epoll: &Epoll, server: &mut Server, number: usize) {
        let Some(place) = self.watched.get_mut(number) else {
            return;
        };
        let Some((fd, interest)) = server.watch(number) else {
            // Closed, and so out of the epoll set.
            *place = None;
            return;
        };
        let mut flags = EpollFlags::empty();
        flags.set(EpollFlags::EPOLLIN, interest.read);
        flags.set(EpollFlags::EPOLLOUT, interest.write);
        // With nothing to watch for, its hang-up would wake us for ever.
        let wanted = Some(flags).filter(|flags| !flags.is_empty());
        let mut event = EpollEvent::new(flags, CONNECTIONS + number as u64);
        let result = match (*place, wanted) {
            (former, wanted) if former == wanted => return,
            (None, _) => epoll.add(fd, event),
            (Some(_), None) => epoll.delete(fd),
            (Some(_), Some(_)) => epoll.modify(fd, &mut event),
        };
        *place = wanted;
        if let Err(error) = result {
            tracing::warn!("UAPI: a client can't be watched: {error}");
            *place = None;
            server.close(number);
        }
    }

    /// The same for all.
    pub(crate) fn watch_all(&mut self, epoll: &Epoll, server: &mut Server) {
        for number in 0..self.watched.len() {
            self.watch(epoll, server, number);
        }
    }
}
