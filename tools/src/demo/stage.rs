//! The stage: two namespaces with a cable between them, and everything that runs in them.
//!
//! All names carry our process id. What is made here is taken down on drop; what a demonstration that was killed
//! left behind is taken down by the next one.

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::namespaces::{PREFIX, directory_of, sweep, take_down};
use crate::error::{Failure, Outcome};
use crate::sys::signals;
use crate::up::find_program;

/// Two namespaces, `a` and `b`, and a directory for files.
#[derive(Debug)]
pub(crate) struct Stage {
    pid: u32,
    ip: PathBuf,
    directory: PathBuf,
}

/// One end of the demonstration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    /// The one that begins.
    A,
    /// The one that answers.
    B,
}

impl Side {
    /// Both.
    pub(crate) const BOTH: [Side; 2] = [Side::A, Side::B];

    /// Its letter.
    pub(crate) fn letter(self) -> char {
        match self {
            Side::A => 'a',
            Side::B => 'b',
        }
    }

    /// The other one.
    pub(crate) fn other(self) -> Side {
        match self {
            Side::A => Side::B,
            Side::B => Side::A,
        }
    }

    /// Its address on the cable (TEST-NET-1).
    pub(crate) fn outside(self) -> &'static str {
        match self {
            Side::A => "192.0.2.1",
            Side::B => "192.0.2.2",
        }
    }

    /// Its IPv4 address in the tunnel.
    pub(crate) fn inside(self) -> &'static str {
        match self {
            Side::A => "10.77.0.1",
            Side::B => "10.77.0.2",
        }
    }

    /// Its IPv6 address in the tunnel.
    pub(crate) fn inside_v6(self) -> &'static str {
        match self {
            Side::A => "fd77::1",
            Side::B => "fd77::2",
        }
    }
}

impl Stage {
    /// Puts the stage up.
    pub(crate) fn build() -> Outcome<Stage> {
        let ip = find_program("ip").ok_or_else(|| Failure::failed("demo: ip is missing"))?;
        sweep(&ip);
        let pid = std::process::id();
        let directory = directory_of(pid);
        fs::DirBuilder::new()
            .mode(0o700)
            .create(&directory)
            .map_err(|why| Failure::Failed(format!("demo: {}: {why}", directory.display())))?;
        // From here on a failure takes down what there is already.
        let stage = Stage { pid, ip, directory };
        for side in Side::BOTH {
            stage.ip(&["netns", "add", &stage.namespace(side)])?;
        }
        let [a, b] = Side::BOTH.map(|side| stage.namespace(side));
        stage.ip(&[
            "-n", &a, "link", "add", "outside", "type", "veth", "peer", "name", "outside", "netns",
            &b,
        ])?;
        for side in Side::BOTH {
            let namespace = stage.namespace(side);
            let address = format!("{}/24", side.outside());
            stage.ip(&[
                "-n", &namespace, "address", "add", &address, "dev", "outside",
            ])?;
            stage.ip(&["-n", &namespace, "link", "set", "lo", "up"])?;
            stage.ip(&["-n", &namespace, "link", "set", "outside", "up"])?;
        }
        Ok(stage)
    }

    /// The name of a side's namespace.
    pub(crate) fn namespace(&self, side: Side) -> String {
        format!("{PREFIX}{}-{}", self.pid, side.letter())
    }

    /// The name of a side's gateway and interface.
    pub(crate) fn gateway(&self, side: Side) -> String {
        format!("rw{}{}", side.letter(), self.pid)
    }

    /// Writes a file that only we may read.
    pub(crate) fn write(&self, name: &str, contents: &str) -> Outcome<PathBuf> {
        let path = self.directory.join(name);
        let mut options = fs::OpenOptions::new();
        options.write(true).create_new(true).mode(0o600);
        options
            .open(&path)
            .and_then(|mut file| io::Write::write_all(&mut file, contents.as_bytes()))
            .map_err(|why| Failure::Failed(format!("demo: {}: {why}", path.display())))?;
        Ok(path)
    }

    /// A command that runs in a side's namespace, out of reach of the terminal's Ctrl-C: ending it is our own work.
    pub(crate) fn command(&self, side: Side, program: &Path, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.ip);
        command
            .args(["netns", "exec", &self.namespace(side)])
            .arg(program)
            .args(arguments)
            .stdin(Stdio::null())
            .process_group(0);
        command
    }

    /// Runs a command to its end, at most `limit`; a signal to us ends it too.
    pub(crate) fn finish(what: &str, mut command: Command, limit: Duration) -> Outcome<Output> {
        let child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|why| Failure::Failed(format!("demo: {what}: {why}")))?;
        wait(what, child, limit)
    }

    fn ip(&self, arguments: &[&str]) -> Outcome {
        let output = Command::new(&self.ip)
            .args(arguments)
            .stdin(Stdio::null())
            .output()
            .map_err(|why| Failure::Failed(format!("demo: {}: {why}", self.ip.display())))?;
        if output.status.success() {
            return Ok(());
        }
        Err(Failure::Failed(format!(
            "demo: ip {}: {}: this needs root with CAP_SYS_ADMIN and CAP_NET_ADMIN (a container: --privileged)",
            arguments.join(" "),
            one_line(&output.stderr)
        )))
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        take_down(&self.ip, &Side::BOTH.map(|side| self.namespace(side)));
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// Waits for a child at most `limit`, or until a signal comes; then it is killed.
pub(crate) fn wait(what: &str, mut child: Child, limit: Duration) -> Outcome<Output> {
    let group = Pid::from_raw(-(child.id() as i32));
    let end = Instant::now() + limit;
    loop {
        match child.try_wait() {
            Ok(Some(_)) => {
                return child
                    .wait_with_output()
                    .map_err(|why| Failure::Failed(format!("demo: {what}: {why}")));
            }
            Ok(None) if !signals::interrupted() && Instant::now() < end => {
                std::thread::sleep(Duration::from_millis(10));
            }
            _ => {
                let _ = kill(group, Signal::SIGKILL);
                let _ = child.wait();
                return Err(Failure::Failed(format!(
                    "demo: {what}: no end within {} s",
                    limit.as_secs()
                )));
            }
        }
    }
}

/// A program's error output as one line.
pub(crate) fn one_line(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gateways_have_names_that_the_kernel_takes() {
        let stage = Stage {
            pid: 4_194_304,
            ip: PathBuf::from("/nonexistent"),
            directory: PathBuf::from("/nonexistent/ringway-demo"),
        };
        for side in Side::BOTH {
            assert!(crate::names::check(&stage.gateway(side)).is_ok());
        }
        assert_ne!(stage.gateway(Side::A), stage.gateway(Side::B));
    }

    #[test]
    fn a_child_that_does_not_end_is_killed() {
        let child = Command::new("sleep")
            .arg("60")
            .process_group(0)
            .spawn()
            .unwrap();
        let start = Instant::now();
        let failure = wait("sleep", child, Duration::from_millis(50)).unwrap_err();
        assert!(start.elapsed() < Duration::from_secs(10));
        assert!(failure.to_string().contains("sleep"), "{failure}");
    }
}
