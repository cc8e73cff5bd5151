//! One client of the UAPI: reads requests, writes answers, waits for neither.

use super::super::core::Core;
use super::super::transaction::Transaction;
use ringway_proto::time::Instant;
use ringway_proto::uapi::{self, Device, Parser, PeerStatus, Request, Step, errno};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::Ordering;
use zeroize::{Zeroize, Zeroizing};

/// Bytes of all answers that wait for slow readers; beyond, no further `get` is answered.
const ANSWERS: usize = 64 << 20;
/// Bytes read from one connection a turn.
const READ: usize = 256 * 1024;

/// One client.
pub(super) struct Connection {
    stream: UnixStream,
    parser: Parser,
    /// Read beyond the end of the request that is being answered.
    rest: Zeroizing<Vec<u8>>,
    pub(super) work: Work,
    answer: Zeroizing<String>,
    written: usize,
    /// Close when the answer is written.
    last: bool,
    /// When it last gave or took something.
    pub(super) active: Instant,
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection")
            .field("stream", &self.stream)
            .finish_non_exhaustive()
    }
}

/// What a client waits for.
#[derive(Debug)]
pub(super) enum Work {
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

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

impl Connection {
    /// A client that has said nothing yet.
    pub(super) fn new(stream: UnixStream, now: Instant) -> Self {
        Self {
            stream,
            parser: Parser::new(),
            rest: Zeroizing::default(),
            work: Work::Read,
            answer: Zeroizing::default(),
            written: 0,
            last: false,
            active: now,
        }
    }

    /// What it is to be watched for.
    pub(super) fn interest(&self) -> Interest {
        let write = self.unwritten() != 0;
        let read = !write && matches!(self.work, Work::Read);
        Interest { read, write }
    }

    /// Bytes of its answer that wait for it.
    pub(super) fn unwritten(&self) -> usize {
        self.answer.len() - self.written
    }

    /// Writes what waits, then reads and answers requests. `false`: close it.
    pub(super) fn go_on(&mut self, core: &mut Core, waiting: usize, chunk: &mut [u8]) -> bool {
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

    /// Begins to answer.
    pub(super) fn reply(&mut self, answer: Zeroizing<String>) {
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
