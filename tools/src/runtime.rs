//! The runtime directory: which gateways there are and where they listen.

use std::fs;
use std::io::ErrorKind;
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
            names::check(name).map_err(Failure::Usage)?;
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

    /// "Not running", and which ones are.
    pub(crate) fn not_running(&self, name: &str) -> Failure {
        let running = self.running();
        let remedy = if running.is_empty() {
            format!("start it with `ringway up {name}`")
        } else {
            format!("running: {}", running.join(", "))
        };
        Failure::NotRunning(format!("{name}: no such gateway is running: {remedy}"))
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
        assert!(
            runtime
                .not_running("wg0")
                .to_string()
                .contains("running: wg1")
        );
    }

    #[test]
    fn a_name_cannot_leave_the_directory() {
        let runtime = at(Path::new("/nonexistent"));
        assert_eq!(runtime.choose(Some("../../etc")).unwrap_err().code(), 2);
        assert_eq!(runtime.choose(Some("..")).unwrap_err().code(), 2);
        assert_eq!(runtime.choose(Some("wg0")).unwrap(), "wg0");
    }
}
