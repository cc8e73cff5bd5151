//! Network namespaces that go with their owner.

use std::fs::File;
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Once;
use std::time::Duration;

use nix::sched::{CloneFlags, setns};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::command::{self, Said};
use crate::{names, process, wait};

/// A named network namespace with its loopback up.
#[derive(Debug)]
pub struct Namespace {
    name: String,
}

impl Namespace {
    /// A new one. The first call also deletes what test processes left behind that were killed.
    pub fn new() -> Namespace {
        static SWEEP: Once = Once::new();
        SWEEP.call_once(sweep);
        let name = names::namespace();
        command::run(&["ip", "netns", "add", &name]);
        let namespace = Namespace { name };
        namespace.ip("link set lo up");
        // No waiting for duplicate address detection, no router to be asked.
        for (key, value) in [
            ("accept_dad", "0"),
            ("accept_ra", "0"),
            ("router_solicitations", "0"),
        ] {
            for which in ["all", "default"] {
                namespace.sysctl(&format!("ipv6/conf/{which}/{key}"), value);
            }
        }
        namespace
    }

    /// Its name, as `ip netns` knows it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// `words` with what runs them here put before.
    pub fn words<S: AsRef<str>>(&self, words: &[S]) -> Vec<String> {
        ["ip", "netns", "exec", &self.name]
            .into_iter()
            .chain(words.iter().map(AsRef::as_ref))
            .map(str::to_owned)
            .collect()
    }

    /// Runs a program here and returns what it printed; it must succeed.
    pub fn run<S: AsRef<str>>(&self, words: &[S]) -> String {
        command::run(&self.words(words))
    }

    /// Runs a program here, whatever the outcome.
    pub fn attempt<S: AsRef<str>>(&self, words: &[S]) -> Said {
        command::attempt(&self.words(words))
    }

    /// `ip LINE` here, for instance `link set lo up`.
    pub fn ip(&self, line: &str) -> String {
        let mut words = vec!["ip", "-n", &self.name];
        words.extend(line.split_whitespace());
        command::run(&words)
    }

    /// `ip LINE` here, whatever the outcome.
    pub fn try_ip(&self, line: &str) -> Said {
        let mut words = vec!["ip", "-n", &self.name];
        words.extend(line.split_whitespace());
        command::attempt(&words)
    }

    /// Sets a value below `/proc/sys/net`.
    pub fn sysctl(&self, key: &str, value: &str) {
        let (path, value) = (format!("/proc/sys/net/{key}"), value.to_owned());
        self.enter(move || {
            std::fs::write(&path, value).unwrap_or_else(|error| panic!("{path}: {error}"));
        });
    }

    /// Runs `work` on a thread that lives here.
    pub fn enter<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> T {
        match self.spawn(work).join() {
            Ok(value) => value,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }

    /// Starts `work` on a thread that lives here.
    pub fn spawn<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> std::thread::JoinHandle<T> {
        let path = format!("/run/netns/{}", self.name);
        std::thread::spawn(move || {
            let file = File::open(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
            setns(file, CloneFlags::CLONE_NEWNET).unwrap();
            work()
        })
    }

    /// A UDP socket bound here, with a read timeout of 2 s.
    pub fn udp(&self, address: SocketAddr) -> UdpSocket {
        self.enter(move || {
            let socket =
                UdpSocket::bind(address).unwrap_or_else(|error| panic!("bind {address}: {error}"));
            socket
                .set_read_timeout(Some(Duration::from_secs(2)))
                .unwrap();
            socket
        })
    }

    /// A TCP listener bound here.
    pub fn listen(&self, address: SocketAddr) -> TcpListener {
        self.enter(move || {
            TcpListener::bind(address).unwrap_or_else(|error| panic!("bind {address}: {error}"))
        })
    }

    /// A TCP connection from here, if there is one within `limit`.
    pub fn connect(&self, address: SocketAddr, limit: Duration) -> std::io::Result<TcpStream> {
        self.enter(move || TcpStream::connect_timeout(&address, limit))
    }

    /// Whether an interface of that name is here.
    pub fn has_interface(&self, interface: &str) -> bool {
        self.try_ip(&format!("link show {interface}")).ok()
    }

    /// The pids of the processes here.
    pub fn pids(&self) -> Vec<u32> {
        pids(&self.name)
    }
}

impl Default for Namespace {
    fn default() -> Namespace {
        Namespace::new()
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        remove(&self.name);
    }
}

fn pids(name: &str) -> Vec<u32> {
    let said = command::attempt(&["ip", "netns", "pids", name]);
    said.out
        .split_whitespace()
        .filter_map(|word| word.parse().ok())
        .collect()
}

/// Ends what runs in a namespace (only a test put it there) and deletes it.
fn remove(name: &str) {
    let own = std::process::id();
    for pid in pids(name) {
        if pid != own {
            let _ = kill(Pid::from_raw(pid as i32), Signal::SIGKILL);
        }
    }
    wait::maybe(Duration::from_secs(3), || {
        pids(name)
            .iter()
            .all(|pid| *pid == own || !process::alive(*pid))
            .then_some(())
    });
    command::attempt(&["ip", "netns", "delete", name]);
}

fn sweep() {
    for line in command::attempt(&["ip", "netns", "list"]).out.lines() {
        let name = line.split_whitespace().next().unwrap_or_default();
        let pid = name
            .strip_prefix(names::NAMESPACE_PREFIX)
            .and_then(|rest| rest.split_once('-'))
            .and_then(|(pid, _)| pid.parse().ok());
        if pid.is_some_and(|pid: u32| !process::alive(pid)) {
            remove(name);
        }
    }
}
