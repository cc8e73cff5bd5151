//! The UAPI server over real sockets.

use super::rig::{Rig, Stock};
use crate::meta::run::clients::Clients;
use crate::meta::uapi::{Arrival, Server};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use std::fmt::Write as _;
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};

struct Uapi {
    rig: Rig,
    server: Server,
    path: tempfile::TempDir,
    open: Vec<usize>,
}

impl Uapi {
    fn new(rig: Rig) -> Uapi {
        let path = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(path.path().join("sock")).unwrap();
        Uapi {
            rig,
            server: Server::new(listener.into()).unwrap(),
            path,
            open: Vec::new(),
        }
    }

    fn connect(&mut self) -> UnixStream {
        let client = UnixStream::connect(self.path.path().join("sock")).unwrap();
        client.set_nonblocking(true).unwrap();
        client
    }

    fn turn(&mut self) {
        while let Arrival::At(number) = self.server.accept(self.rig.now()).unwrap() {
            self.open.push(number);
        }
        for number in self.open.clone() {
            self.server.ready(&mut self.rig.core, number);
        }
        while self.server.apply(&mut self.rig.core) {}
    }

    /// Sends a request in pieces while the server runs, and reads the whole answer.
    fn ask(&mut self, client: &mut UnixStream, request: &str) -> String {
        let mut left = request.as_bytes();
        let mut answer = Vec::new();
        let mut chunk = vec![0; 65536];
        loop {
            if !left.is_empty() {
                if let Ok(count) = client.write(left) {
                    left = &left[count..];
                }
            }
            self.turn();
            while let Ok(count) = client.read(&mut chunk) {
                if count == 0 {
                    break;
                }
                answer.extend_from_slice(&chunk[..count]);
            }
            if answer.ends_with(b"\n\n") {
                return String::from_utf8(answer).unwrap();
            }
        }
    }
}

#[test]
fn a_client_sets_and_gets_over_one_connection() {
    let rig = Rig::new(8, 64);
    let peer = Stock::new(&rig);
    let key = peer.private.public().to_hex();
    let mut uapi = Uapi::new(rig);
    let mut client = uapi.connect();
    let set = format!(
        "set=1\npublic_key={key}\npersistent_keepalive_interval=0\nendpoint=192.0.2.1:51820\nallowed_ip=10.0.0.0/24\n\n"
    );
    assert_eq!(uapi.ask(&mut client, &set), "errno=0\n\n");
    let got = uapi.ask(&mut client, "get=1\n\n");
    assert!(got.contains(&format!("public_key={key}\n")), "{got}");
    assert!(got.contains("endpoint=192.0.2.1:51820\n") && got.contains("allowed_ip=10.0.0.0/24\n"));
    assert!(got.contains("listen_port=51820\n") && got.ends_with("errno=0\n\n"));
    assert_eq!(
        uapi.ask(&mut client, "set=1\nnonsense=1\n\n"),
        "errno=-22\n\n"
    );
}

#[test]
fn a_hundred_thousand_allowed_ips_in_one_message() {
    let rig = Rig::new(8, 262_144);
    let peer = Stock::new(&rig);
    let mut uapi = Uapi::new(rig);
    let mut client = uapi.connect();
    let mut set = format!("set=1\npublic_key={}\n", peer.private.public().to_hex());
    for number in 0..130_000 {
        let _ = writeln!(
            set,
            "allowed_ip=10.{}.{}.{}/32",
            number >> 16,
            (number >> 8) & 255,
            number & 255
        );
    }
    set.push('\n');
    assert_eq!(uapi.ask(&mut client, &set), "errno=0\n\n");
    let got = uapi.ask(&mut client, "get=1\n\n");
    assert_eq!(got.matches("allowed_ip=").count(), 130_000);
}

#[test]
fn a_slow_reader_holds_nobody_up() {
    let rig = Rig::new(4096, 8192);
    let peers: Vec<Stock> = (0..1000).map(|_| Stock::new(&rig)).collect();
    let mut uapi = Uapi::new(rig);
    for peer in &peers {
        uapi.rig.add(peer);
    }
    let mut slow: Vec<UnixStream> = (0..10).map(|_| uapi.connect()).collect();
    for client in &mut slow {
        client.write_all(b"get=1\n\n").unwrap();
    }
    uapi.turn();
    let mut quick = uapi.connect();
    assert_eq!(
        uapi.ask(&mut quick, "get=1\n\n")
            .matches("public_key=")
            .count(),
        1000
    );
    let mut many: Vec<UnixStream> = (0..100).map(|_| uapi.connect()).collect();
    uapi.turn();
    assert_eq!(
        uapi.ask(&mut many[99], "get=1\n\n")
            .matches("public_key=")
            .count(),
        1000
    );
}

#[test]
fn half_a_request_changes_nothing() {
    let rig = Rig::new(8, 64);
    let peer = Stock::new(&rig);
    let mut uapi = Uapi::new(rig);
    let mut client = uapi.connect();
    write!(
        client,
        "set=1\npublic_key={}\n",
        peer.private.public().to_hex()
    )
    .unwrap();
    uapi.turn();
    drop(client);
    uapi.turn();
    assert!(uapi.rig.core.peers.find(&peer.private.public()).is_none());
}

fn woken_by(epoll: &Epoll) -> Vec<u64> {
    let mut ready = [EpollEvent::empty(); 128];
    let count = epoll.wait(&mut ready, EpollTimeout::ZERO).unwrap();
    ready[..count].iter().map(EpollEvent::data).collect()
}

#[test]
fn more_clients_at_once_than_there_are_places_are_all_watched() {
    let mut uapi = Uapi::new(Rig::new(8, 64));
    let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).unwrap();
    let mut watched = Clients::default();
    let mut clients: Vec<UnixStream> = (0..100).map(|_| uapi.connect()).collect();
    for _ in 0..10 {
        watched.accept(&epoll, &mut uapi.server, uapi.rig.now());
    }
    for client in &mut clients {
        // Those that made room are closed.
        let _ = client.write_all(b"get=1\n\n");
    }
    let woken = woken_by(&epoll);
    assert_eq!(woken.len(), 64, "{woken:?}");
    for number in 0..64 {
        uapi.server.ready(&mut uapi.rig.core, number);
    }
    let mut chunk = [0; 4096];
    let answered = clients
        .iter_mut()
        .filter_map(|client| client.read(&mut chunk).ok())
        .filter(|count| *count != 0)
        .count();
    assert_eq!(answered, 64);
}

#[test]
fn a_client_that_goes_while_its_request_waits_wakes_nobody() {
    let mut uapi = Uapi::new(Rig::new(8, 64));
    let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).unwrap();
    let mut watched = Clients::default();
    let mut client = uapi.connect();
    client.write_all(b"set=1\nfwmark=7\n\n").unwrap();
    watched.accept(&epoll, &mut uapi.server, uapi.rig.now());
    assert_eq!(woken_by(&epoll).len(), 1);
    uapi.server.ready(&mut uapi.rig.core, 0);
    assert!(!uapi.server.apply(&mut uapi.rig.core), "it waits");
    watched.watch_all(&epoll, &mut uapi.server);
    drop(client);
    assert!(woken_by(&epoll).is_empty());

    let (id, _) = uapi.rig.requests().pop().unwrap();
    uapi.rig.core.requests.take(id);
    let refused = crate::channel::Refused {
        errno: 1,
        message: "no".into(),
    };
    uapi.server.answered(&mut uapi.rig.core, id, Err(refused));
    uapi.server.apply(&mut uapi.rig.core);
    watched.watch_all(&epoll, &mut uapi.server);
    assert!(uapi.server.watch(0).is_none(), "closed at the end");
}

#[test]
fn a_listener_that_cannot_accept_is_left_alone_for_a_second() {
    let rig = Rig::new(8, 64);
    // Nobody listens: accepting fails, and not for want of clients.
    let (stream, _other) = UnixStream::pair().unwrap();
    let mut server = Server::new(stream.into()).unwrap();
    let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).unwrap();
    let event = EpollEvent::new(EpollFlags::EPOLLIN | EpollFlags::EPOLLOUT, 3);
    epoll.add(server.as_fd(), event).unwrap();
    assert_eq!(woken_by(&epoll), [3]);
    let mut watched = Clients::default();
    watched.accept(&epoll, &mut server, rig.now());
    assert!(woken_by(&epoll).is_empty());
    let soon = rig.now() + std::time::Duration::from_millis(999);
    watched.resume(&epoll, &server, soon);
    assert!(epoll.delete(server.as_fd()).is_err(), "still out");
    watched.resume(
        &epoll,
        &server,
        rig.now() + std::time::Duration::from_secs(1),
    );
    assert!(epoll.delete(server.as_fd()).is_ok(), "in again");
}
