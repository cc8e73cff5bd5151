//! The runtime directory: which gateways there are and where they listen.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use crate::error::{Failure, Outcome};
use crate::names;

/// The runtime directory of a host's gateways.
#[derive(Debug, Clone)]
pub(crate) struct Runtime {
    root: PathBuf,
}

impl Default for Runtime {
    fn default() -> Runtime {
        Runtime {
            root: PathBuf::from("/run/ringway"),
        }
    }
}

impl Runtime {
    /// The control socket of a gateway.
    pub(crate) fn control_socket(&self, name: &str) -> PathBuf {
        self.root.join(name).join("control.sock")
    }

    /// The names of the gateways that run, in order.
    pub(crate) fn running(&self) -> Vec<String> {
        let Ok(entries) = fs::read_dir(&self.root) else {
            return Vec::new();
        };
        let mut names: Vec<String> = entries
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .filter(|name| names::check(name).is_ok() && self.listens(name))
            .collect();
        names.sort();
        names
    }

    /// The gateway that a look-up means: the one that was named, or the only one.
    pub(crate) fn choose(&self, name: Option<&str>) -> Outcome<String> {
        if let Some(name) = name {
            names::gateway(name)?;
            return Ok(name.to_owned());
        }
        let mut running = self.running();
        match running.len() {
            0 => Err(Failure::NotRunning(
                "no gateway is running: start one with `ringway up NAME`".into(),
            )),
            1 => Ok(running.remove(0)),
            _ => Err(Failure::Usage(format!(
                "several gateways are running: name one of {}",
                running.join(", ")
            ))),
        }
    }

    /// "Not running", and what to do: read why it ended, or name another one.
    pub(crate) fn not_running(&self, name: &str) -> Failure {
        if let Some(ended) = self.ended(name) {
            return Failure::NotRunning(format!("{name}: not running: {ended}"));
        }
        let running = self.running();
        let remedy = if let Some(gateway) = names::gateway_of(name) {
            format!("a gateway is named without the end of its file: {gateway}")
        } else if running.is_empty() {
            format!("start it with `ringway up {name}`")
        } else {
            format!("these run: {}", running.join(", "))
        };
        Failure::NotRunning(format!("{name}: no such gateway runs: {remedy}"))
    }

    /// What a gateway that failed or was killed left: a stop that was asked for leaves nothing.
    fn ended(&self, name: &str) -> Option<String> {
        if self.is_claimed(name) {
            return Some("it starts or ends just now: try again".into());
        }
        let log = self.root.join(name).join("log");
        let takes_over = "the next `up` takes over what it left";
        if log.exists() {
            return Some(format!("it ended; see {}; {takes_over}", log.display()));
        }
        // In the foreground it has no log of its own.
        self.control_socket(name)
            .exists()
            .then(|| format!("it was killed; {takes_over}"))
    }

    /// Whether a supervisor holds the name's lock. The kernel's list is asked: to try the lock could make a start fail.
    fn is_claimed(&self, name: &str) -> bool {
        let Ok(lock) = fs::metadata(self.root.join(name).join("lock")) else {
            return false;
        };
        let inode = format!(":{} ", lock.ino());
        fs::read_to_string("/proc/locks").is_ok_and(|locks| {
            locks
                .lines()
                .any(|line| line.contains(" FLOCK ") && line.contains(&inode))
        })
    }

    /// Whether somebody listens on the control socket: a killed supervisor leaves its file behind. One that we may
    /// not open, or whose backlog is full, counts: the command's own error will say what is the matter.
    fn listens(&self, name: &str) -> bool {
        match UnixStream::connect(self.control_socket(name)) {
            Ok(_) => true,
            Err(error) => !nobody_listens(&error),
        }
    }
}

/// Whether connecting failed because nobody is there.
pub(crate) fn nobody_listens(error: &std::io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::ConnectionRefused | ErrorKind::NotFound | ErrorKind::NotADirectory
    )
}

#[cfg(test)]
pub(crate) mod tests {
    use std::os::unix::net::UnixListener;
    use std::path::Path;

    use nix::fcntl::{Flock, FlockArg};

    use super::*;

    /// A runtime directory of a test's own.
    pub(crate) fn at(root: &Path) -> Runtime {
        Runtime {
            root: root.to_owned(),
        }
    }

    #[test]
    fn the_only_gateway_needs_no_name() {
        let directory = tempfile::tempdir().unwrap();
        let runtime = at(directory.path());
        assert_eq!(runtime.choose(None).unwrap_err().code(), 3);
        let listen = |name: &str| {
            fs::create_dir(directory.path().join(name)).unwrap();
            UnixListener::bind(runtime.control_socket(name)).unwrap()
        };
        let one = listen("wg0");
        drop(listen("dead"));
        assert_eq!(runtime.choose(None).unwrap(), "wg0");
        let _two = listen("wg1");
        let several = runtime.choose(None).unwrap_err();
        assert_eq!(
            (several.code(), several.to_string().contains("wg0, wg1")),
            (2, true)
        );
        drop(one);
        assert_eq!(runtime.running(), ["wg1"]);
    }

    #[test]
    fn one_that_does_not_run_is_told_what_to_do() {
        let directory = tempfile::tempdir().unwrap();
        let runtime = at(directory.path());
        let told = |name: &str| {
            let failure = runtime.not_running(name);
            assert_eq!(failure.code(), 3);
            failure.to_string()
        };
        assert!(told("wg0").ends_with("start it with `ringway up wg0`"));
        fs::create_dir(directory.path().join("wg1")).unwrap();
        let listener = UnixListener::bind(runtime.control_socket("wg1")).unwrap();
        assert_eq!(told("wg0"), "wg0: no such gateway runs: these run: wg1");
        assert!(told("wg1.conf").ends_with("without the end of its file: wg1"));
        drop(listener);
        let killed = "wg1: not running: it was killed; the next `up` takes over what it left";
        assert_eq!(told("wg1"), killed);
        let log = directory.path().join("wg1/log");
        fs::write(&log, "").unwrap();
        let expected = format!(
            "wg1: not running: it ended; see {}; the next ",
            log.display()
        );
        assert!(told("wg1").starts_with(&expected), "{}", told("wg1"));
        let lock = fs::File::create(directory.path().join("wg1/lock")).unwrap();
        assert!(
            told("wg1").starts_with(&expected),
            "a lock that nobody holds"
        );
        let _held = Flock::lock(lock, FlockArg::LockExclusiveNonblock).unwrap();
        assert!(told("wg1").contains("just now"), "{}", told("wg1"));
    }

    #[test]
    fn a_name_cannot_leave_the_directory() {
        let runtime = at(Path::new("/nonexistent"));
        assert_eq!(runtime.choose(Some("../../etc")).unwrap_err().code(), 2);
        assert_eq!(runtime.choose(Some("..")).unwrap_err().code(), 2);
        assert_eq!(runtime.choose(Some("wg0")).unwrap(), "wg0");
    }
}
