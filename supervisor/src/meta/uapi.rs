//! The server of the WireGuard user-space API: many connections, none of which can hold up the
//! loop, another connection, or more memory than its share.

use super::core::Core;
use super::transaction::{Progress, Transaction};
use crate::channel::{Granted, Refused};
use ringway_proto::time::Instant;
use ringway_proto::uapi::{self, Device, Parser, PeerStatus, Request, Step, errno};
use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::atomic::Ordering;
use std::time::Duration;
use zeroize::{Zeroize, Zeroizing};

/// Connections at once; beyond, the one that was idle longest goes.
const CONNECTIONS: usize = 64;
/// Bytes of all answers that wait for slow readers; beyond, no further `get` is answered.
const ANSWERS: usize = 64 << 20;
/// Bytes read from one connection a turn.
const READ: usize = 256 * 1024;
/// Changes of one transaction a turn.
const CHANGES: usize = 8192;
/// A connection that takes nothing of its answer for so long is closed.
const STALLED: Duration = Duration::from_secs(30);

/// The server.
#[derive(Debug)]
pub(crate) struct Server {
    listener: UnixListener,
    connections: Vec<Option<Connection>>,
    /// Whose transaction is applied; the others wait in this order.
    turn: VecDeque<usize>,
    chunk: Zeroizing<Vec<u8>>,
}

struct Connection {
    stream: UnixStream,
    parser: Parser,
    /// Read beyond the end of the request that is being answered.
    rest: Zeroizing<Vec<u8>>,
    work: Work,
    answer: Zeroizing<String>,
    written: usize,
    /// Close when the answer is written.
    last: bool,
    active: Instant,
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection")
            .field("stream", &self.stream)
            .finish_non_exhaustive()
    }
}

#[derive(Debug)]
enum Work {
    /// Reads a request.
    Read,
    /// A `get` that waits for memory.
    Get,
    /// A `set` that is applied or waits for its turn.
    Set(Box<Transaction>),
}

/// What the loop is to watch a connection for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Interest {
    /// Bytes to read.
    pub(crate) read: bool,
    /// Room to write.
    pub(crate) write: bool,
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

    /// Accepts what waits and tells the numbers of the new connections.
    pub(crate) fn accept(&mut self, now: Instant) -> Vec<usize> {
        let mut new = Vec::new();
        while let Ok((stream, _)) = self.listener.accept() {
            if stream.set_nonblocking(true).is_err() {
                continue;
            }
            let connection = Connection {
                stream,
                parser: Parser::new(),
                rest: Zeroizing::default(),
                work: Work::Read,
                answer: Zeroizing::default(),
                written: 0,
                last: false,
                active: now,
            };
            let Some(number) = self.place() else { continue };
            self.connections[number] = Some(connection);
            new.push(number);
        }
        new
    }

    /// The descriptor of a connection and what to watch it for; `None`: it is closed.
    pub(crate) fn watch(&self, number: usize) -> Option<(BorrowedFd<'_>, Interest)> {
        let connection = self.connections.get(number)?.as_ref()?;
        let write = connection.written < connection.answer.len();
        let read = !write && matches!(connection.work, Work::Read);
        Some((connection.stream.as_fd(), Interest { read, write }))
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
            let stalled = connection.written < connection.answer.len()
                && core.now.since(connection.active) >= STALLED;
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
            .map(|connection| connection.answer.len() - connection.written)
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
    fn close(&mut self, number: usize) {
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

impl Connection {
    /// Writes what waits, then reads and answers requests. `false`: close it.
    fn go_on(&mut self, core: &mut Core, waiting: usize, chunk: &mut [u8]) -> bool {
        let mut budget = READ;
        loop {
            match self.flush(core.now) {
                Ok(true) if self.last => return false,
                Ok(true) => {}
                Ok(false) => return true,
                Err(_) => return false,
            }
            match &self.work {
                Work::Set(_) => return true,
                Work::Get if waiting > ANSWERS => return true,
                Work::Get => {
                    self.work = Work::Read;
                    let text = describe(core);
                    self.reply(text);
                    continue;
                }
                Work::Read => {}
            }
            if !self.rest.is_empty() {
                let rest = std::mem::take(&mut self.rest);
                self.take(&rest);
                continue;
            }
            if budget == 0 {
                return true;
            }
            match self.stream.read(chunk) {
                Ok(0) => return false,
                Ok(count) => {
                    budget = budget.saturating_sub(count);
                    self.active = core.now;
                    self.take(&chunk[..count]);
                    chunk[..count].zeroize();
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return error.kind() == io::ErrorKind::WouldBlock,
            }
        }
    }

    /// Gives bytes to the parser up to the end of a request; the rest is kept.
    fn take(&mut self, bytes: &[u8]) {
        let Step::Complete { consumed, request } = self.parser.push(bytes) else {
            return;
        };
        self.rest = Zeroizing::new(bytes[consumed.min(bytes.len())..].to_vec());
        match request {
            Ok(Request::Get) => self.work = Work::Get,
            Ok(Request::Set(items)) => self.work = Work::Set(Box::new(Transaction::new(items))),
            Err(error) => {
                tracing::debug!("UAPI: {error}");
                self.last = error.fatal;
                let number = if error.errno == errno::OK {
                    errno::EINVAL
                } else {
                    error.errno
                };
                self.reply(uapi::result(number).into());
            }
        }
    }

    fn reply(&mut self, answer: Zeroizing<String>) {
        self.answer = answer;
        self.written = 0;
    }

    /// `true`: nothing waits any more.
    fn flush(&mut self, now: Instant) -> io::Result<bool> {
        while self.written < self.answer.len() {
            match self.stream.write(&self.answer.as_bytes()[self.written..]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => {
                    self.written += count;
                    self.active = now;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        if !self.answer.is_empty() {
            self.reply(Zeroizing::default());
        }
        Ok(true)
    }
}

/// The answer to `get=1`.
fn describe(core: &Core) -> Zeroizing<String> {
    let private = core.identity.as_ref().map(|identity| &identity.private);
    let mut device = Device::new(private, core.gateway.listen_port, core.gateway.fwmark);
    for peer in core.peers.iter() {
        let traffic = core.rings.traffic(peer.slot);
        let allowed: Vec<_> = core.allowed.of(peer.slot, None).collect();
        device.peer(&PeerStatus {
            public_key: peer.public_key,
            preshared_key: Some(&peer.preshared_key),
            endpoint: peer.endpoint.map(|endpoint| endpoint.remote),
            last_handshake_unix_ns: peer.last_handshake_unix_ns,
            tx_bytes: traffic.tx_bytes.load(Ordering::Relaxed) + peer.handshake_tx_bytes,
            rx_bytes: traffic.rx_bytes.load(Ordering::Relaxed) + peer.handshake_rx_bytes,
            keepalive: peer.keepalive,
            allowed_ips: &allowed,
        });
    }
    device.finish()
}
