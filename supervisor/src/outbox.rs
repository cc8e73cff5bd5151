//! The supervisor's end of a channel to a child: a message for which there is no room waits, and
//! none is lost or overtakes another.

use crate::channel::{ChannelError, Packets};
use ringway_proto::codec;
use serde::Serialize;
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Messages that may wait; a child that leaves more unread will never read them.
const LIMIT: usize = 1 << 16;

/// One channel, which does not block.
#[derive(Debug)]
pub(crate) struct Outbox {
    packets: Packets,
    waiting: VecDeque<(Vec<u8>, Vec<OwnedFd>)>,
}

impl Outbox {
    /// Takes the supervisor's end.
    pub(crate) fn new(packets: Packets) -> io::Result<Outbox> {
        packets.set_nonblocking()?;
        Ok(Outbox {
            packets,
            waiting: VecDeque::new(),
        })
    }

    /// Where the child's own messages are read.
    pub(crate) fn packets(&self) -> &Packets {
        &self.packets
    }

    /// Sends a message, behind those that wait.
    ///
    /// For a child that has ended there is no error: its end is told elsewhere.
    pub(crate) fn send<T: Serialize>(
        &mut self,
        message: &T,
        fds: &[BorrowedFd<'_>],
    ) -> Result<(), ChannelError> {
        let bytes = codec::encode(message)?;
        self.flush()?;
        if self.waiting.is_empty() && deliver(&self.packets, &bytes, fds)? {
            return Ok(());
        }
        if self.waiting.len() >= LIMIT {
            let what = format!("{LIMIT} messages wait unread");
            return Err(io::Error::other(what).into());
        }
        let own: io::Result<Vec<OwnedFd>> =
            fds.iter().map(BorrowedFd::try_clone_to_owned).collect();
        self.waiting.push_back((bytes, own?));
        Ok(())
    }

    /// Sends what there is room for now.
    pub(crate) fn flush(&mut self) -> Result<(), ChannelError> {
        while let Some((bytes, fds)) = self.waiting.front() {
            let fds: Vec<BorrowedFd<'_>> = fds.iter().map(AsFd::as_fd).collect();
            if !deliver(&self.packets, bytes, &fds)? {
                break;
            }
            self.waiting.pop_front();
        }
        Ok(())
    }

    /// Whether something waits for room.
    pub(crate) fn waits(&self) -> bool {
        !self.waiting.is_empty()
    }
}

impl AsFd for Outbox {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.packets.as_fd()
    }
}

/// Whether there was room, or nobody is there any more to have it.
fn deliver(packets: &Packets, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<bool> {
    match packets.send(bytes, fds) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset
            ) =>
        {
            Ok(true)
        }
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::channel;

    const MESSAGES: u32 = 5000;

    #[test]
    fn what_finds_no_room_waits_and_arrives_in_order() {
        let (ours, theirs) = Packets::pair().unwrap();
        theirs.set_nonblocking().unwrap();
        let mut outbox = Outbox::new(ours).unwrap();
        let null = std::fs::File::open("/dev/null").unwrap();
        for number in 0..MESSAGES {
            let fds = [null.as_fd()];
            let with = usize::from(number % 100 == 7);
            outbox
                .send(&(number, [0_u8; 256].as_slice()), &fds[..with])
                .unwrap();
        }
        assert!(outbox.waits());
        for number in 0..MESSAGES {
            let (message, fds): ((u32, Vec<u8>), Vec<OwnedFd>) = match channel::receive(&theirs) {
                Ok(Some(message)) => message,
                Err(ChannelError::Io(error)) if error.kind() == io::ErrorKind::WouldBlock => {
                    outbox.flush().unwrap();
                    channel::receive(&theirs).unwrap().unwrap()
                }
                other => panic!("{other:?}"),
            };
            assert_eq!(message.0, number);
            assert_eq!(
                fds.len(),
                usize::from(number % 100 == 7),
                "message {number}"
            );
        }
        assert!(!outbox.waits());
    }

    #[test]
    fn a_child_that_is_gone_is_no_error() {
        let (ours, theirs) = Packets::pair().unwrap();
        let mut outbox = Outbox::new(ours).unwrap();
        drop(theirs);
        outbox.send(&1_u32, &[]).unwrap();
        assert!(!outbox.waits());
    }
}
