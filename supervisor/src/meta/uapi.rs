//! The server of the WireGuard user-space API: many connections, none of which can hold up the
//! loop, another connection, or more memory than its share.

mod connection;

pub(crate) use connection::Interest;

use super::core::Core;
use super::transaction::Progress;
use crate::channel::{Granted, Refused};
use connection::{Connection, Work};
use ringway_proto::time::Instant;
use ringway_proto::uapi;
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::time::Duration;
use zeroize::Zeroizing;

/// Connections at once; beyond, the one that was idle longest goes.
const CONNECTIONS: usize = 64;
/// Changes of one transaction a turn.
const CHANGES: usize = 8192;
/// A connection that takes nothing of its answer for so long is closed.
const STALLED: Duration = Duration::from_secs(30);

/// Who came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// Nobody waits.
    Nobody,
    /// Somebody for whom there is no place, or who went away again.
    TurnedAway,
    /// A client, with this number.
    At(usize),
}

/// The server.
#[derive(Debug)]
pub(crate) struct Server {
    listener: UnixListener,
    connections: Vec<Option<Connection>>,
    /// Whose transaction is applied; the others wait in this order.
    turn: VecDeque<usize>,
    chunk: Zeroizing<Vec<u8>>,
}

impl Server {
    /// Serves this listening socket.
    pub(crate) fn new(listener: OwnedFd) -> io::Result<Self> {
        let listener = UnixListener::from(listener);
        listener.set_nonblocking(true)?;
        let chunk = Zeroizing::new(vec![0; 64 * 1024]);
        Ok(Self {
            listener,
            connections: Vec::new(),
            turn: VecDeque::new(),
            chunk,
        })
    }

    /// Accepts one client, who may take the number of another one that makes room. An error: there
    /// is no descriptor or no memory for it, and it waits still.
    pub(crate) fn accept(&mut self, now: Instant) -> io::Result<Arrival> {
        let stream = match self.listener.accept() {
            Ok((stream, _)) => stream,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(Arrival::Nobody),
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::Interrupted | io::ErrorKind::ConnectionAborted
                ) =>
            {
                return Ok(Arrival::TurnedAway);
            }
            Err(error) => return Err(error),
        };
        if stream.set_nonblocking(true).is_err() {
            return Ok(Arrival::TurnedAway);
        }
        let Some(number) = self.place() else {
            return Ok(Arrival::TurnedAway);
        };
        self.connections[number] = Some(Connection::new(stream, now));
        Ok(Arrival::At(number))
    }

    /// The descriptor of a connection and what to watch it for; `None`: it is closed.
    pub(crate) fn watch(&self, number: usize) -> Option<(BorrowedFd<'_>, Interest)> {
        let connection = self.connections.get(number)?.as_ref()?;
        Some((connection.as_fd(), connection.interest()))
    }

    /// Whether something can go on without anybody else doing anything.
    pub(crate) fn is_busy(&self) -> bool {
        !self.turn.is_empty()
    }

    /// A connection is ready: reads or writes as far as it goes.
    pub(crate) fn ready(&mut self, core: &mut Core, number: usize) {
        let waiting = self.waiting_bytes();
        let Some(Some(connection)) = self.connections.get_mut(number) else {
            return;
        };
        let alive = connection.go_on(core, waiting, &mut self.chunk);
        if !alive {
            self.close(number);
        } else if matches!(connection.work, Work::Set(_)) && !self.turn.contains(&number) {
            self.turn.push_back(number);
        }
    }

    /// Goes on with the transaction whose turn it is. `true`: there is more to do at once.
    pub(crate) fn apply(&mut self, core: &mut Core) -> bool {
        let Some(number) = self.turn.front().copied() else {
            return false;
        };
        let Some(Some(connection)) = self.connections.get_mut(number) else {
            self.turn.pop_front();
            return !self.turn.is_empty();
        };
        let Work::Set(transaction) = &mut connection.work else {
            self.turn.pop_front();
            return !self.turn.is_empty();
        };
        match transaction.step(core, CHANGES) {
            Progress::More => true,
            Progress::Waits | Progress::Busy => false,
            Progress::Done(errno) => {
                connection.work = Work::Read;
                connection.reply(uapi::result(errno).into());
                self.turn.pop_front();
                self.ready(core, number);
                !self.turn.is_empty()
            }
        }
    }

    /// The supervisor answered a transaction's request.
    pub(crate) fn answered(&mut self, core: &mut Core, id: u32, result: Result<Granted, Refused>) {
        let Some(number) = self.turn.front() else {
            return;
        };
        if let Some(Some(Connection {
            work: Work::Set(transaction),
            ..
        })) = self.connections.get_mut(*number)
        {
            transaction.answered(core, id, result);
        }
    }

    /// Closes who takes nothing, answers who waited for memory. To be called now and then; tells
    /// whose interest may have changed.
    pub(crate) fn tidy(&mut self, core: &mut Core) -> Vec<usize> {
        let mut changed = Vec::new();
        for number in 0..self.connections.len() {
            let Some(connection) = &self.connections[number] else {
                continue;
            };
            let stalled =
                connection.unwritten() != 0 && core.now.since(connection.active) >= STALLED;
            if stalled {
                self.close(number);
            } else if matches!(connection.work, Work::Get) {
                self.ready(core, number);
                changed.push(number);
            }
        }
        changed
    }

    fn waiting_bytes(&self) -> usize {
        self.connections
            .iter()
            .flatten()
            .map(Connection::unwritten)
            .sum()
    }

    /// A free number. With too many connections the one that has been idle longest makes room;
    /// `None`: all of them are at work.
    fn place(&mut self) -> Option<usize> {
        if let Some(free) = self.connections.iter().position(Option::is_none) {
            return Some(free);
        }
        if self.connections.len() < CONNECTIONS {
            self.connections.push(None);
            return Some(self.connections.len() - 1);
        }
        let idle = (0..self.connections.len())
            .filter(|number| {
                self.connections[*number]
                    .as_ref()
                    .is_some_and(|c| matches!(c.work, Work::Read))
            })
            .min_by_key(|number| {
                self.connections[*number]
                    .as_ref()
                    .map(|connection| connection.active)
            })?;
        self.close(idle);
        Some(idle)
    }

    /// Drops a connection. A transaction that began is finished all the same, as in the kernel.
    pub(crate) fn close(&mut self, number: usize) {
        if let Some(place) = self.connections.get_mut(number) {
            *place = None;
        }
    }
}

impl AsFd for Server {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }
}
