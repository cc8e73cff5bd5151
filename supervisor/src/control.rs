//! The control socket: what the tools ask of the running gateway.
//!
//! It is served here, not by meta, so that it answers while meta is dead. Root may ask
//! everything, members of the group `ringway` may look.

use crate::sys::scm::send_stream;
use crate::sys::socket::peer_groups;
use nix::libc;
use nix::sys::socket::{getsockopt, sockopt};
use ringway_proto::codec;
use ringway_proto::control::{REQUEST_LIMIT, RESPONSE_LIMIT, Request, Response};
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::{Duration, Instant};

/// Connections at a time; one more ends the oldest.
const CONNECTIONS: usize = 64;
/// How long the listener is left alone when there are no descriptors for its connections.
const PAUSE: Duration = Duration::from_secs(1);

/// A connection, for an answer that comes later.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Token(u64);

/// The listener and its connections.
#[derive(Debug)]
pub(crate) struct Server {
    listener: UnixListener,
    /// The group whose members may look.
    readers: Option<u32>,
    connections: Vec<Connection>,
    last: u64,
    /// Out of descriptors: who waits stays in the queue until then.
    paused: Option<Instant>,
}

#[derive(Debug)]
struct Connection {
    token: Token,
    stream: UnixStream,
    /// Whether it may change things.
    root: bool,
    buffer: Vec<u8>,
}

impl Server {
    /// Serves this listener, which does not block, to root and to these readers.
    pub(crate) fn new(listener: UnixListener, readers: Option<u32>) -> Server {
        Server {
            listener,
            readers,
            connections: Vec::new(),
            last: 0,
            paused: None,
        }
    }

    /// The descriptors that become readable when there is something to do.
    pub(crate) fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        // While it cannot accept, the listener would stay readable and the loop would spin.
        let listener = (!self.is_paused()).then(|| self.listener.as_fd());
        listener.into_iter().chain(
            self.connections
                .iter()
                .map(|connection| connection.stream.as_fd()),
        )
    }

    /// Takes new connections and reads what came; the requests are to be answered.
    ///
    /// A request that is not allowed or not understood is answered here.
    pub(crate) fn requests(&mut self) -> Vec<(Token, Request)> {
        self.accept();
        let mut asked = Vec::new();
        let mut refused = Vec::new();
        self.connections.retain_mut(|connection| {
            let alive = connection.read();
            loop {
                match codec::unframe::<Request>(&connection.buffer, REQUEST_LIMIT) {
                    Ok(Some((request, used))) => {
                        connection.buffer.drain(..used);
                        if request.changes() && !connection.root {
                            let message = format!("{} needs root", describe(&request));
                            refused.push((connection.token, message));
                        } else {
                            asked.push((connection.token, request));
                        }
                    }
                    Ok(None) => return alive,
                    Err(error) => {
                        let message = format!(
                            "request not understood: {error}: use the ringway tool of this version"
                        );
                        let _ = connection.send(&Response::Error { message }, &[]);
                        return false;
                    }
                }
            }
        });
        for (token, message) in refused {
            self.answer(token, &Response::Error { message }, &[]);
        }
        asked
    }

    /// Answers; a connection that does not take the answer at once is closed.
    pub(crate) fn answer(&mut self, to: Token, response: &Response, fds: &[BorrowedFd<'_>]) {
        self.connections.retain_mut(|connection| {
            connection.token != to || connection.send(response, fds).is_ok()
        });
    }

    fn accept(&mut self) {
        if self.is_paused() {
            return;
        }
        loop {
            let stream = match self.listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) => return self.pause_after(&error),
            };
            let Some(root) = allowed(&stream, self.readers) else {
                continue;
            };
            if stream.set_nonblocking(true).is_err() {
                continue;
            }
            if self.connections.len() >= CONNECTIONS {
                self.connections.remove(0);
            }
            self.last += 1;
            self.connections.push(Connection {
                token: Token(self.last),
                stream,
                root,
                buffer: Vec::new(),
            });
        }
    }

    /// Leaves the listener alone for a while when it lacks what it won't have at once.
    fn pause_after(&mut self, error: &io::Error) {
        if let Some(libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM) =
            error.raw_os_error()
        {
            // Told once, not every second that it lasts.
            if self.paused.is_none() {
                tracing::warn!("control socket: {error}: new connections wait");
            }
            self.paused = Some(Instant::now() + PAUSE);
        } else {
            self.paused = None;
        }
    }

    fn is_paused(&self) -> bool {
        self.paused.is_some_and(|until| Instant::now() < until)
    }
}

impl Connection {
    /// Reads what is there, never more than one request; false at the end.
    fn read(&mut self) -> bool {
        let mut chunk = [0; 1024];
        while self.buffer.len() <= REQUEST_LIMIT + codec::FRAME_HEADER {
            match self.stream.read(&mut chunk) {
                Ok(0) => return false,
                Ok(count) => self.buffer.extend_from_slice(&chunk[..count]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return error.kind() == io::ErrorKind::WouldBlock,
            }
        }
        true
    }

    fn send(&mut self, response: &Response, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        let bytes = codec::frame(response, RESPONSE_LIMIT).map_err(io::Error::other)?;
        send_stream(self.stream.as_fd(), &bytes, fds)
    }
}

/// Whether the peer may change things; `None`: not even look.
///
/// The kernel knows the peer's groups; asking the user data base could wait for a network.
fn allowed(stream: &UnixStream, readers: Option<u32>) -> Option<bool> {
    let peer = getsockopt(stream, sockopt::PeerCredentials).ok()?;
    if peer.uid() == 0 || peer.uid() == nix::unistd::geteuid().as_raw() {
        return Some(true);
    }
    let readers = readers?;
    let member = peer.gid() == readers
        || peer_groups(stream.as_fd()).is_ok_and(|groups| groups.contains(&readers));
    member.then_some(false)
}

fn describe(request: &Request) -> &'static str {
    match request {
        Request::Stop => "stopping the gateway",
        Request::Reload { .. } => "reloading the configuration",
        Request::SaveConfig => "saving the configuration",
        Request::Segments | Request::Info => "looking",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::scm::Packets;
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
    use std::io::Write;

    fn ask(path: &std::path::Path, request: &Request) -> UnixStream {
        let mut stream = UnixStream::connect(path).unwrap();
        stream
            .write_all(&codec::frame(request, REQUEST_LIMIT).unwrap())
            .unwrap();
        stream
    }

    fn server() -> (tempfile::TempDir, std::path::PathBuf, Server) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("control.sock");
        let listener = UnixListener::bind(&path).unwrap();
        listener.set_nonblocking(true).unwrap();
        (directory, path, Server::new(listener, None))
    }

    #[test]
    fn a_request_is_answered_with_descriptors() {
        let (_directory, path, mut server) = server();
        let stream = ask(&path, &Request::Segments);
        let asked = server.requests();
        assert_eq!(asked.len(), 1);
        assert_eq!(asked[0].1, Request::Segments);
        let null = std::fs::File::open("/dev/null").unwrap();
        server.answer(asked[0].0, &Response::Ok, &[null.as_fd()]);
        let received = Packets::from_fd(stream.into())
            .receive(1024)
            .unwrap()
            .unwrap();
        assert_eq!(
            codec::unframe::<Response>(&received.bytes, RESPONSE_LIMIT)
                .unwrap()
                .unwrap()
                .0,
            Response::Ok
        );
        assert_eq!(received.fds.len(), 1);
    }

    #[test]
    fn garbage_ends_its_connection_alone() {
        let (_directory, path, mut server) = server();
        let _good = UnixStream::connect(&path).unwrap();
        let mut bad = UnixStream::connect(&path).unwrap();
        bad.write_all(&[0xff; 64]).unwrap();
        assert!(server.requests().is_empty());
        let mut answer = Vec::new();
        bad.read_to_end(&mut answer).unwrap();
        let (response, _) = codec::unframe::<Response>(&answer, RESPONSE_LIMIT)
            .unwrap()
            .unwrap();
        assert!(
            matches!(response, Response::Error { message } if message.starts_with("request not understood"))
        );
        assert_eq!(server.connections.len(), 1);
    }

    #[test]
    fn out_of_descriptors_it_does_not_spin() {
        let (_directory, path, mut server) = server();
        let _waits = ask(&path, &Request::Info);
        server.pause_after(&io::Error::from_raw_os_error(libc::EMFILE));
        assert_eq!(server.fds().count(), 0);
        assert!(server.requests().is_empty());
        server.paused = Some(Instant::now());
        assert_eq!(server.fds().count(), 1);
        assert_eq!(server.requests().len(), 1);
        assert!(server.paused.is_none());
    }

    #[test]
    fn connections_are_bounded() {
        let (_directory, path, mut server) = server();
        let mut held = Vec::new();
        for _ in 0..CONNECTIONS + 5 {
            held.push(UnixStream::connect(&path).unwrap());
            assert!(server.requests().is_empty());
        }
        assert_eq!(server.connections.len(), CONNECTIONS);
        drop(held);
        // A child that another test forks holds copies of the closed ends until it execs.
        while !server.connections.is_empty() {
            let mut fds: Vec<PollFd<'_>> = server
                .fds()
                .map(|fd| PollFd::new(fd, PollFlags::POLLIN))
                .collect();
            assert_ne!(poll(&mut fds, PollTimeout::from(20_000_u16)).unwrap(), 0);
            server.requests();
        }
    }
}
