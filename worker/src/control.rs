//! What supervisor and worker say to each other.
//!
//! One `SOCK_SEQPACKET` pair a worker; one bincode message a datagram, file descriptors beside it
//! by `SCM_RIGHTS`. End of file on the worker's side means that the supervisor is gone, and the
//! worker ends.

use crate::sys::scm;
use ringway_proto::codec;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::io;
use std::net::IpAddr;
use std::os::fd::{BorrowedFd, OwnedFd};

/// The greatest number of descriptors that one message carries (the kernel's limit,
/// `SCM_MAX_FD`, is 253).
pub const FDS_PER_MESSAGE: usize = 200;

/// The greatest encoded message in bytes.
pub const MESSAGE_LIMIT: usize = 16 * 1024;

/// One group of `SO_REUSEPORT` sockets: the S shards of one local address.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupInfo {
    /// Whether the sockets are IPv6 ones.
    pub family_v6: bool,
    /// The address they are bound to; unspecified means every address.
    pub address: IpAddr,
    /// The port they are bound to.
    pub port: u16,
}

/// From the supervisor to a worker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToWorker {
    /// The sockets to use from now on, in place of all former ones.
    ///
    /// The descriptors of all parts, put in a row, are `groups[0]`'s sockets of shards 0 to S-1,
    /// then `groups[1]`'s, and so on. At most [`FDS_PER_MESSAGE`] go with one part; the parts of
    /// one generation come in order, and `groups` is the same in each. The worker answers with
    /// [`FromWorker::SocketsTaken`] after the last part.
    Sockets {
        /// Counts the changes of the groups.
        generation: u32,
        /// The groups.
        groups: Vec<GroupInfo>,
        /// This message's number, from 0.
        part: u16,
        /// How many messages there are; at least 1.
        parts: u16,
    },
    /// End: drain what was read, close, return.
    Stop,
}

/// From a worker to the supervisor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum FromWorker {
    /// The segments are mapped and the loop runs.
    Ready,
    /// The sockets of this generation are in use and the former ones are closed here.
    SocketsTaken {
        /// The generation that [`ToWorker::Sockets`] named.
        generation: u32,
    },
    /// The TUN interface was deleted; the worker ends.
    InterfaceGone,
}

/// What [`receive`] found.
#[derive(Debug)]
pub enum Received<T> {
    /// A message and the descriptors that came with it.
    Message(T, Vec<OwnedFd>),
    /// Nothing waits.
    Empty,
    /// The other end is closed.
    Closed,
}

/// Sends one message with descriptors, at most [`FDS_PER_MESSAGE`] of them.
pub fn send<T: Serialize>(
    channel: BorrowedFd<'_>,
    message: &T,
    fds: &[BorrowedFd<'_>],
) -> io::Result<()> {
    let bytes = codec::encode(message).map_err(io::Error::other)?;
    if bytes.len() > MESSAGE_LIMIT {
        return Err(io::Error::other(format!(
            "a message of {} bytes is longer than {MESSAGE_LIMIT}",
            bytes.len()
        )));
    }
    scm::send(channel, &bytes, fds)
}

/// Receives one message, without waiting for it.
pub fn receive<T: DeserializeOwned>(channel: BorrowedFd<'_>) -> io::Result<Received<T>> {
    let mut buffer = vec![0; MESSAGE_LIMIT];
    match scm::receive(channel, &mut buffer) {
        Ok((0, _)) => Ok(Received::Closed),
        Ok((length, fds)) => {
            let message = codec::decode(&buffer[..length], MESSAGE_LIMIT)
                .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
            Ok(Received::Message(message, fds))
        }
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(Received::Empty),
        Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(Received::Empty),
        Err(error) if error.raw_os_error() == Some(libc::ECONNRESET) => Ok(Received::Closed),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};
    use std::os::fd::AsFd;

    fn pair() -> (OwnedFd, OwnedFd) {
        socketpair(
            AddressFamily::Unix,
            SockType::SeqPacket,
            None,
            SockFlag::SOCK_CLOEXEC,
        )
        .unwrap()
    }

    #[test]
    fn a_message_arrives_with_its_descriptors() {
        let (here, there) = pair();
        let message = ToWorker::Sockets {
            generation: 3,
            groups: vec![GroupInfo {
                family_v6: true,
                address: "::1".parse().unwrap(),
                port: 51820,
            }],
            part: 0,
            parts: 1,
        };
        let fds = vec![here.as_fd(); FDS_PER_MESSAGE];
        send(here.as_fd(), &message, &fds).unwrap();
        match receive::<ToWorker>(there.as_fd()).unwrap() {
            Received::Message(received, fds) => {
                assert_eq!(received, message);
                assert_eq!(fds.len(), FDS_PER_MESSAGE);
            }
            other => panic!("{other:?}"),
        }
        assert!(matches!(
            receive::<ToWorker>(there.as_fd()).unwrap(),
            Received::Empty
        ));
    }

    #[test]
    fn a_closed_end_and_garbage_are_told() {
        let (here, there) = pair();
        scm::send(here.as_fd(), &[0xff; 40], &[]).unwrap();
        assert!(receive::<ToWorker>(there.as_fd()).is_err());
        drop(here);
        assert!(matches!(
            receive::<ToWorker>(there.as_fd()).unwrap(),
            Received::Closed
        ));
    }
}
