//! The streams that the loop holds: to the supervisor and to the helper.

use crate::channel::{self, ChannelError, FromMeta, Packets, Privileged, ToMeta};
use crate::helper::protocol::{self, FrameReader, HelperAnswer, HelperJob};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, poll};
use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;
use zeroize::{Zeroize, Zeroizing};

/// The channel to the supervisor.
#[derive(Debug)]
pub(crate) struct Supervisor {
    packets: Packets,
    waiting: VecDeque<FromMeta>,
    /// Questions for routes: nothing else waits behind them.
    routes: VecDeque<FromMeta>,
}

impl Supervisor {
    /// Takes the channel.
    pub(crate) fn new(packets: Packets) -> io::Result<Self> {
        packets.set_nonblocking()?;
        Ok(Self {
            packets,
            waiting: VecDeque::new(),
            routes: VecDeque::new(),
        })
    }

    /// The next message; `Ok(None)`: none waits; an error or end of file: the supervisor is gone.
    pub(crate) fn receive(&mut self) -> Result<Option<(ToMeta, Vec<OwnedFd>)>, ChannelError> {
        match channel::receive(&self.packets) {
            Ok(Some(message)) => Ok(Some(message)),
            Ok(None) => Err(ChannelError::Io(io::ErrorKind::UnexpectedEof.into())),
            Err(ChannelError::Io(error)) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Queues messages.
    pub(crate) fn queue(&mut self, messages: impl IntoIterator<Item = FromMeta>) {
        for message in messages {
            if is_route(&message) {
                self.routes.push_back(message);
            } else {
                self.waiting.push_back(message);
            }
        }
    }

    /// Sends what there is room for. `true`: something waits still.
    pub(crate) fn flush(&mut self) -> Result<bool, ChannelError> {
        for queue in [&mut self.waiting, &mut self.routes] {
            while let Some(message) = queue.front() {
                match channel::send(&self.packets, message, &[]) {
                    Ok(()) => {
                        queue.pop_front();
                    }
                    Err(ChannelError::Io(error)) if error.kind() == io::ErrorKind::WouldBlock => {
                        return Ok(true);
                    }
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(false)
    }
}

fn is_route(message: &FromMeta) -> bool {
    matches!(
        message,
        FromMeta::Request {
            what: Privileged::RouteOf { .. },
            ..
        }
    )
}

impl AsFd for Supervisor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.packets.as_fd()
    }
}

/// The stream to the helper.
#[derive(Debug)]
pub(crate) struct Helper {
    stream: UnixStream,
    reader: FrameReader,
    out: Zeroizing<Vec<u8>>,
    written: usize,
    /// It ended; the supervisor will send another.
    ended: bool,
}

impl Helper {
    /// Takes the stream.
    pub(crate) fn new(stream: OwnedFd) -> io::Result<Self> {
        let stream = UnixStream::from(stream);
        stream.set_nonblocking(true)?;
        Ok(Self {
            stream,
            reader: FrameReader::default(),
            out: Zeroizing::default(),
            written: 0,
            ended: false,
        })
    }

    /// Reads what has come.
    pub(crate) fn receive(&mut self) -> Vec<HelperAnswer> {
        let mut chunk = Zeroizing::new(vec![0; 64 * 1024]);
        let mut answers = Vec::new();
        while !self.ended {
            match self.stream.read(&mut chunk[..]) {
                Ok(0) => self.ended = true,
                Ok(count) => {
                    self.reader.push(&chunk[..count]);
                    chunk[..count].zeroize();
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => self.ended = true,
            }
            loop {
                match self.reader.next() {
                    Ok(Some(answer)) => answers.push(answer),
                    Ok(None) => break,
                    Err(error) => {
                        tracing::error!("the helper sent what is no answer: {error}");
                        self.ended = true;
                        break;
                    }
                }
            }
        }
        answers
    }

    /// Queues jobs and writes what there is room for.
    pub(crate) fn send(&mut self, jobs: impl IntoIterator<Item = HelperJob>) {
        for job in jobs {
            match protocol::frame(&job) {
                Ok(frame) => self.out.extend_from_slice(&frame),
                Err(error) => tracing::error!("a job for the helper can't be encoded: {error}"),
            }
        }
        while self.written < self.out.len() && !self.ended {
            match self.stream.write(&self.out[self.written..]) {
                Ok(count) => self.written += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => self.ended = true,
            }
        }
        self.out.zeroize();
        self.written = 0;
    }

    /// Waits until there is something to receive or room for what waits, at most so long.
    pub(crate) fn wait(&self, limit: Duration) -> io::Result<()> {
        let mut flags = PollFlags::POLLIN;
        flags.set(PollFlags::POLLOUT, self.waits());
        let milliseconds = u16::try_from(limit.as_millis()).unwrap_or(u16::MAX).max(1);
        match poll(&mut [PollFd::new(self.as_fd(), flags)], milliseconds) {
            Ok(_) | Err(Errno::EINTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Whether something waits for room.
    pub(crate) fn waits(&self) -> bool {
        !self.ended && self.written < self.out.len()
    }

    /// Whether the stream has ended.
    pub(crate) fn has_ended(&self) -> bool {
        self.ended
    }
}

impl AsFd for Helper {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_waits_behind_questions_for_routes() {
        let (ours, theirs) = Packets::pair().unwrap();
        let mut supervisor = Supervisor::new(ours).unwrap();
        let route = |id| FromMeta::Request {
            id,
            what: Privileged::RouteOf {
                destination: "192.0.2.1:1".parse().unwrap(),
                fwmark: 0,
                ifindex: 0,
            },
        };
        let mark = FromMeta::Request {
            id: 3,
            what: Privileged::Fwmark(7),
        };
        supervisor.queue([route(1), route(2), mark]);
        assert!(!supervisor.flush().unwrap());
        let ids: Vec<u32> = (0..3)
            .filter_map(|_| match channel::receive(&theirs) {
                Ok(Some((FromMeta::Request { id, .. }, _))) => Some(id),
                _ => None,
            })
            .collect();
        assert_eq!(ids, [3, 1, 2]);
    }
}
