//! A process that ends with its owner.

use std::fs::File;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::wait;

/// How long a program may take to stop.
pub const STOP_LIMIT: Duration = Duration::from_secs(10);

/// A running program, its output in a file.
#[derive(Debug)]
pub struct Process {
    child: Child,
    name: String,
    log: PathBuf,
    _directory: tempfile::TempDir,
}

impl Process {
    /// Starts `words` with more environment. Use a namespace's
    /// [`words`](crate::namespace::Namespace::words) to start it there: `ip netns exec` becomes the program,
    /// so the pid is the program's.
    pub fn start<S: AsRef<str>>(words: &[S], environment: &[(&str, &str)]) -> Process {
        let words: Vec<&str> = words.iter().map(AsRef::as_ref).collect();
        let directory = tempfile::tempdir().unwrap();
        let log = directory.path().join("log");
        let file = File::create(&log).unwrap();
        let child = Command::new(words[0])
            .args(&words[1..])
            .envs(environment.iter().copied())
            .stdin(Stdio::null())
            .stdout(file.try_clone().unwrap())
            .stderr(file)
            .spawn()
            .unwrap_or_else(|error| panic!("cannot start {}: {error}", words[0]));
        Process {
            child,
            name: words.join(" "),
            log,
            _directory: directory,
        }
    }

    /// Its pid.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// All it has printed so far.
    pub fn printed(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(&self.log).unwrap_or_default()).into_owned()
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) {
        let _ = kill(Pid::from_raw(self.child.id() as i32), signal);
    }

    /// How it ended, if it has.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().unwrap()
    }

    /// Waits for its end.
    ///
    /// # Panics
    /// If it still runs after `limit`.
    pub fn wait(&mut self, limit: Duration) -> ExitStatus {
        let end = wait::maybe(limit, || self.ended());
        end.unwrap_or_else(|| {
            panic!(
                "{} still runs after {limit:?}; it printed:\n{}",
                self.name,
                self.printed()
            )
        })
    }

    /// SIGTERM, and its exit code (a signal counts from 128).
    pub fn stop(&mut self) -> i32 {
        self.signal(Signal::SIGTERM);
        let status = self.wait(STOP_LIMIT);
        status
            .code()
            .unwrap_or_else(|| 128 + status.signal().unwrap_or(0))
    }

    /// Fails with what it printed if it has ended.
    pub fn must_run(&mut self) {
        if let Some(status) = self.ended() {
            panic!(
                "{} ended with {status}; it printed:\n{}",
                self.name,
                self.printed()
            );
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            self.signal(Signal::SIGTERM);
            if wait::maybe(Duration::from_secs(3), || {
                self.child.try_wait().ok().flatten()
            })
            .is_none()
            {
                let _ = self.child.kill();
                let _ = self.child.wait();
            }
        }
        if std::thread::panicking() {
            eprintln!("--- {} printed:\n{}---", self.name, self.printed());
        }
    }
}

/// The children of a process, all generations.
pub fn descendants(pid: u32) -> Vec<u32> {
    let path = format!("/proc/{pid}/task/{pid}/children");
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let mut all = Vec::new();
    for child in text.split_whitespace().filter_map(|word| word.parse().ok()) {
        all.push(child);
        all.extend(descendants(child));
    }
    all
}

/// Whether a process exists and is no zombie.
pub fn alive(pid: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .ok()
        .and_then(|stat| {
            stat.rsplit_once(") ")
                .map(|(_, rest)| !rest.starts_with('Z'))
        })
        .unwrap_or(false)
}
