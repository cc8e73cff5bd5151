//! Talking to a gateway's supervisor over its control socket.

use std::io::{self, ErrorKind, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use nix::sys::socket::sockopt::SendTimeout;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect, setsockopt, socket};
use nix::sys::time::TimeVal;
use ringway_proto::codec;
use ringway_proto::control::{
    Info, REQUEST_LIMIT, RESPONSE_LIMIT, ReadableSegment, Request, Response,
};

use crate::error::{Failure, Outcome};
use crate::runtime::{Runtime, nobody_listens};
use crate::sys::scm;

/// How long a look-up waits for the supervisor before it looks for another way.
pub(crate) const PATIENCE: Duration = Duration::from_millis(200);

/// Why the supervisor gave no answer.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// Nobody listens on the socket.
    NotRunning,
    /// The socket may not be opened.
    Forbidden,
    /// No answer in time.
    Silent,
    /// The connection ended without an answer.
    HungUp,
    /// The supervisor said no, and why.
    Refused(String),
    /// Anything else.
    Broken(String),
}

/// An answer and the descriptors beside it.
#[derive(Debug)]
pub(crate) struct Answer {
    /// The answer.
    pub(crate) response: Response,
    /// What came along.
    pub(crate) fds: Vec<OwnedFd>,
}

/// Asks once; the whole exchange takes at most `patience`.
pub(crate) fn ask(
    runtime: &Runtime,
    name: &str,
    request: &Request,
    patience: Duration,
) -> Result<Answer, Trouble> {
    let deadline = Instant::now() + patience;
    let mut stream = open(runtime, name, patience)?;
    let bytes =
        codec::frame(request, REQUEST_LIMIT).map_err(|why| Trouble::Broken(why.to_string()))?;
    stream
        .write_all(&bytes)
        .map_err(|error| Trouble::of(&error))?;
    let answer = receive(&stream, deadline)?;
    match answer.response {
        Response::Error { message } => Err(Trouble::Refused(message)),
        _ => Ok(answer),
    }
}

/// Who is there.
pub(crate) fn info(runtime: &Runtime, name: &str) -> Result<Info, Trouble> {
    match ask(runtime, name, &Request::Info, PATIENCE)?.response {
        Response::Info(info) => Ok(*info),
        other => Err(Trouble::unexpected(&other)),
    }
}

/// The descriptors of the segments that a tool may map.
pub(crate) fn segments(
    runtime: &Runtime,
    name: &str,
) -> Result<Vec<(ReadableSegment, OwnedFd)>, Trouble> {
    let answer = ask(runtime, name, &Request::Segments, PATIENCE)?;
    match answer.response {
        Response::Segments { segments } if segments.len() == answer.fds.len() => {
            Ok(segments.into_iter().zip(answer.fds).collect())
        }
        other => Err(Trouble::unexpected(&other)),
    }
}

/// Asks for a change and waits for it; `verb` names it in an error.
pub(crate) fn change(runtime: &Runtime, name: &str, request: &Request, verb: &str) -> Outcome {
    /// A stop runs the PreDown and PostDown commands, each with a time limit of its own.
    const CHANGE: Duration = Duration::from_secs(60);
    /// A busy supervisor answers within this; a stopped one must not find the request when it is continued.
    const ALIVE: Duration = Duration::from_secs(3);
    let stops = matches!(request, Request::Stop);
    let alive = ask(runtime, name, &Request::Info, ALIVE);
    if let Err(trouble @ (Trouble::Silent | Trouble::NotRunning | Trouble::Forbidden)) = alive {
        return Err(trouble.failure(runtime, name, verb));
    }
    match ask(runtime, name, request, CHANGE) {
        Ok(Answer {
            response: Response::Ok,
            ..
        }) => Ok(()),
        Ok(Answer {
            response: Response::Noted { remark },
            ..
        }) => {
            eprintln!("ringway: {verb} {name}: done, but {remark}");
            Ok(())
        }
        Ok(Answer { response, .. }) => {
            Err(Trouble::unexpected(&response).failure(runtime, name, verb))
        }
        // The socket closes when the supervisor is gone, which is what was asked for.
        Err(Trouble::HungUp) if stops && nobody(runtime, name) => Ok(()),
        Err(trouble) => Err(trouble.failure(runtime, name, verb)),
    }
}

impl Trouble {
    /// The failure of a command that needs the supervisor.
    pub(crate) fn failure(self, runtime: &Runtime, name: &str, verb: &str) -> Failure {
        match self {
            Trouble::NotRunning => runtime.not_running(name),
            Trouble::Forbidden => Failure::Failed(format!(
                "{verb} {name}: permission denied on {}: run as root, or to look only join the group `ringway`",
                runtime.control_socket(name).display()
            )),
            Trouble::Silent => Failure::Failed(format!(
                "{verb} {name}: the supervisor does not answer: look for a stopped or stuck ringwayd with `ps`"
            )),
            Trouble::HungUp => Failure::Failed(format!(
                "{verb} {name}: the supervisor hung up without an answer: it may be ending, look again in a moment"
            )),
            Trouble::Refused(message) => Failure::Failed(format!("{verb} {name}: {message}")),
            Trouble::Broken(why) => Failure::Failed(format!(
                "{verb} {name}: the supervisor's answer makes no sense ({why}): are ringway and ringwayd of one version?"
            )),
        }
    }

    fn of(error: &io::Error) -> Trouble {
        match error.kind() {
            ErrorKind::PermissionDenied => Trouble::Forbidden,
            ErrorKind::WouldBlock | ErrorKind::TimedOut => Trouble::Silent,
            ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => Trouble::HungUp,
            _ if nobody_listens(error) => Trouble::NotRunning,
            _ => Trouble::Broken(error.to_string()),
        }
    }

    fn unexpected(response: &Response) -> Trouble {
        let kind = match response {
            Response::Ok => "Ok",
            Response::Segments { .. } => "Segments",
            Response::Info(_) => "Info",
            Response::Error { .. } => "Error",
            Response::Noted { .. } => "Noted",
        };
        Trouble::Broken(format!("it answered {kind}"))
    }
}

/// Connects in bounded time: unix(7) has connect wait for room in the backlog, as long as SO_SNDTIMEO allows.
fn open(runtime: &Runtime, name: &str, patience: Duration) -> Result<UnixStream, Trouble> {
    let path = runtime.control_socket(name);
    let connected = || -> io::Result<UnixStream> {
        let address = UnixAddr::new(&path)?;
        let flags = SockFlag::SOCK_CLOEXEC;
        let fd = socket(AddressFamily::Unix, SockType::Stream, flags, None)?;
        let wait = TimeVal::new(
            patience.as_secs() as i64,
            i64::from(patience.subsec_micros()),
        );
        setsockopt(&fd.as_fd(), SendTimeout, &wait)?;
        connect(std::os::fd::AsRawFd::as_raw_fd(&fd), &address)?;
        Ok(UnixStream::from(fd))
    };
    connected().map_err(|error| Trouble::of(&error))
}

fn receive(stream: &UnixStream, deadline: Instant) -> Result<Answer, Trouble> {
    let mut bytes = Vec::new();
    let mut fds = Vec::new();
    let mut piece = vec![0; 64 * 1024];
    loop {
        if let Some((response, _)) = codec::unframe(&bytes, RESPONSE_LIMIT)
            .map_err(|why| Trouble::Broken(why.to_string()))?
        {
            return Ok(Answer { response, fds });
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(Trouble::Silent);
        }
        stream
            .set_read_timeout(Some(left))
            .map_err(|error| Trouble::of(&error))?;
        match scm::receive(stream, &mut piece, &mut fds) {
            Ok(0) => return Err(Trouble::HungUp),
            Ok(length) => bytes.extend_from_slice(&piece[..length]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(Trouble::of(&error)),
        }
    }
}

/// Whether the gateway is gone, or is in a moment: a process that ends closes one socket after the other.
fn nobody(runtime: &Runtime, name: &str) -> bool {
    let end = Instant::now() + Duration::from_secs(3);
    loop {
        if matches!(open(runtime, name, PATIENCE), Err(Trouble::NotRunning)) {
            return true;
        }
        if Instant::now() >= end {
            return false;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[cfg(test)]
mod tests {
    use std::io::{IoSlice, Read};
    use std::os::fd::AsRawFd;
    use std::os::unix::net::UnixListener;
    use std::thread;

    use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};

    use super::*;
    use crate::runtime::tests::at;

    /// Answers a connection with each of these, then closes the socket.
    fn serve(
        listener: UnixListener,
        answers: Vec<(Vec<u8>, Vec<OwnedFd>)>,
    ) -> thread::JoinHandle<Vec<Request>> {
        thread::spawn(move || {
            let answer = |(bytes, fds): (Vec<u8>, Vec<OwnedFd>)| answer(&listener, &bytes, &fds);
            answers.into_iter().map(answer).collect()
        })
    }

    fn answer(listener: &UnixListener, answer: &[u8], fds: &[OwnedFd]) -> Request {
        let (mut stream, _) = listener.accept().unwrap();
        let mut bytes = vec![0; 4096];
        let length = stream.read(&mut bytes).unwrap();
        let (request, _) = codec::unframe(&bytes[..length], REQUEST_LIMIT)
            .unwrap()
            .unwrap();
        let raw: Vec<_> = fds.iter().map(AsRawFd::as_raw_fd).collect();
        let rights = [ControlMessage::ScmRights(&raw)];
        for (number, piece) in answer.chunks(5).enumerate() {
            let control: &[_] = if number == 0 && !raw.is_empty() {
                &rights
            } else {
                &[]
            };
            let parts = [IoSlice::new(piece)];
            // Who is answered with nonsense may hang up before its end.
            let flags = MsgFlags::MSG_NOSIGNAL;
            if sendmsg::<()>(stream.as_raw_fd(), &parts, control, flags, None).is_err() {
                break;
            }
        }
        request
    }

    fn framed(response: &Response) -> (Vec<u8>, Vec<OwnedFd>) {
        (codec::frame(response, RESPONSE_LIMIT).unwrap(), Vec::new())
    }

    fn gateway(directory: &tempfile::TempDir) -> (Runtime, UnixListener) {
        let runtime = at(directory.path());
        std::fs::create_dir(directory.path().join("wg0")).unwrap();
        let listener = UnixListener::bind(runtime.control_socket("wg0")).unwrap();
        (runtime, listener)
    }

    #[test]
    fn descriptors_come_with_their_names() {
        let directory = tempfile::tempdir().unwrap();
        let (runtime, listener) = gateway(&directory);
        let segments = vec![ReadableSegment::State, ReadableSegment::Rings];
        let answer = codec::frame(&Response::Segments { segments }, RESPONSE_LIMIT).unwrap();
        let fd = || OwnedFd::from(std::fs::File::open("/dev/null").unwrap());
        let server = serve(listener, vec![(answer, vec![fd(), fd()])]);
        let got = super::segments(&runtime, "wg0").unwrap();
        assert_eq!(server.join().unwrap(), [Request::Segments]);
        assert_eq!(got.len(), 2);
        assert_eq!(got[1].0, ReadableSegment::Rings);
    }

    #[test]
    fn a_silent_supervisor_costs_no_more_than_the_patience() {
        let directory = tempfile::tempdir().unwrap();
        let (runtime, _listener) = gateway(&directory);
        let start = Instant::now();
        assert!(matches!(info(&runtime, "wg0"), Err(Trouble::Silent)));
        assert!(start.elapsed() >= PATIENCE);
    }

    #[test]
    fn each_trouble_has_its_line_and_code() {
        let directory = tempfile::tempdir().unwrap();
        let (runtime, listener) = gateway(&directory);
        let error = Response::Error {
            message: "PostDown failed".into(),
        };
        let server = serve(listener, vec![framed(&Response::Ok), framed(&error)]);
        let refused = change(&runtime, "wg0", &Request::Stop, "down").unwrap_err();
        server.join().unwrap();
        assert_eq!(
            (refused.code(), refused.to_string().as_str()),
            (1, "down wg0: PostDown failed")
        );

        // The listener is closed now: the file remains, nobody listens.
        let dead = change(&runtime, "wg0", &Request::Stop, "down").unwrap_err();
        assert_eq!(dead.code(), 3, "{dead}");
        let missing = change(&runtime, "wg1", &Request::Stop, "down").unwrap_err();
        assert_eq!(missing.code(), 3, "{missing}");
    }

    #[test]
    fn a_stop_may_be_answered_by_silence() {
        let directory = tempfile::tempdir().unwrap();
        let (runtime, listener) = gateway(&directory);
        let server = serve(
            listener,
            vec![framed(&Response::Ok), (Vec::new(), Vec::new())],
        );
        change(&runtime, "wg0", &Request::Stop, "down").unwrap();
        assert_eq!(server.join().unwrap(), [Request::Info, Request::Stop]);
    }

    #[test]
    fn nonsense_is_told_as_such() {
        let directory = tempfile::tempdir().unwrap();
        let (runtime, listener) = gateway(&directory);
        let server = serve(listener, vec![(vec![0xff; 64], Vec::new())]);
        let failure = info(&runtime, "wg0")
            .unwrap_err()
            .failure(&runtime, "wg0", "status");
        server.join().unwrap();
        assert!(failure.to_string().contains("one version"), "{failure}");
    }
}
