//! A network namespace to run gateways in, and a look at what they left there.
#![allow(dead_code)]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Whether this process may make namespaces; a test that may not ends at once.
pub(crate) fn root() -> bool {
    nix::unistd::geteuid().is_root()
}

/// A namespace, and a `resolvconf` that only takes notes.
pub(crate) struct Host {
    name: String,
    pub(crate) files: tempfile::TempDir,
}

impl Host {
    pub(crate) fn new(tag: &str) -> Host {
        let name = format!("ringwayd-{tag}-{}", std::process::id());
        run("ip", &["netns", "add", &name]);
        let host = Host {
            name,
            files: tempfile::tempdir().unwrap(),
        };
        host.ip(&["link", "set", "lo", "up"]);
        let script = format!(
            "#!/bin/sh\necho \"$@\" >> {0}/dns\n[ \"$1\" = -d ] || cat >> {0}/dns\n",
            host.files.path().display()
        );
        host.program("resolvconf", &script);
        host
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// A program that comes first in the gateways' PATH.
    pub(crate) fn program(&self, name: &str, script: &str) {
        let path = self.files.path().join(name);
        fs::write(&path, script).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// A configuration file.
    pub(crate) fn config(&self, name: &str, text: &str) -> PathBuf {
        let path = self.files.path().join(format!("{name}.conf"));
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        path
    }

    /// `ringwayd` in the namespace, not yet started.
    pub(crate) fn ringwayd(&self, arguments: &[&str]) -> Command {
        self.command(env!("CARGO_BIN_EXE_ringwayd"), arguments)
    }

    pub(crate) fn command(&self, program: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new("ip");
        command
            .args(["netns", "exec", &self.name, program])
            .args(arguments);
        let path = std::env::var("PATH").unwrap();
        command.env("PATH", format!("{}:{path}", self.files.path().display()));
        command
    }

    /// What a command in the namespace prints.
    pub(crate) fn output(&self, program: &str, arguments: &[&str]) -> String {
        text(&self.command(program, arguments).output().unwrap().stdout)
    }

    pub(crate) fn ip(&self, arguments: &[&str]) -> String {
        self.output("ip", arguments)
    }

    /// What `resolvconf` was asked.
    pub(crate) fn dns(&self) -> String {
        fs::read_to_string(self.files.path().join("dns")).unwrap_or_default()
    }

    /// What is not as in a fresh namespace, or of the name's files and processes; empty when nothing
    /// is left.
    pub(crate) fn left(&self, name: &str) -> Vec<String> {
        let mut left = Vec::new();
        let mut unless = |empty: bool, what: String| {
            if !empty {
                left.push(what);
            }
        };
        let links = self.ip(&["-o", "link"]);
        unless(!links.contains(name), links);
        for family in ["-4", "-6"] {
            let rules = self.ip(&[family, "rule"]);
            unless(
                !rules.contains("fwmark") && !rules.contains("suppress"),
                rules,
            );
        }
        let sockets = self.output("ss", &["-Hlun"]);
        unless(sockets.trim().is_empty(), sockets);
        let tables = self.output("nft", &["list", "tables"]);
        unless(tables.trim().is_empty(), tables);
        for path in [directory(name), uapi(name)] {
            unless(!path.exists(), path.display().to_string());
        }
        let pids = processes(name);
        unless(pids.is_empty(), format!("processes {pids:?}"));
        let dns = self.dns();
        let last = dns
            .lines()
            .rfind(|line| line.starts_with("-a ") || line.starts_with("-d "));
        unless(
            !last.is_some_and(|line| line.starts_with("-a ")),
            format!("DNS: {dns}"),
        );
        left
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let pids = text(
            &Command::new("ip")
                .args(["netns", "pids", &self.name])
                .output()
                .unwrap()
                .stdout,
        );
        for pid in pids.split_whitespace() {
            let pid = nix::unistd::Pid::from_raw(pid.parse().unwrap());
            let _ = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL);
        }
        let _ = Command::new("ip")
            .args(["netns", "delete", &self.name])
            .status();
    }
}

pub(crate) fn run(program: &str, arguments: &[&str]) {
    let status = Command::new(program).args(arguments).status().unwrap();
    assert!(status.success(), "{program} {arguments:?}");
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

pub(crate) fn error(output: &Output) -> String {
    text(&output.stderr)
}

pub(crate) fn directory(name: &str) -> PathBuf {
    Path::new("/run/ringway").join(name)
}

pub(crate) fn uapi(name: &str) -> PathBuf {
    PathBuf::from(format!("/var/run/wireguard/{name}.sock"))
}

/// The processes of this gateway; those that only wait to be reaped are none.
pub(crate) fn processes(name: &str) -> Vec<u32> {
    let word = |pid: u32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.starts_with(b"ringwayd\0")
            || line
                .split(|byte| *byte == 0)
                .next()
                .is_some_and(|first| first.ends_with(b"/ringwayd"))
    };
    let named = |pid: u32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.split(|byte| *byte == 0)
            .any(|argument| argument == name.as_bytes())
    };
    fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|pid| word(*pid) && named(*pid))
        .collect()
}

/// The supervisor's process id by its file.
pub(crate) fn pid(name: &str) -> nix::unistd::Pid {
    let text = fs::read_to_string(directory(name).join("pid")).unwrap();
    nix::unistd::Pid::from_raw(text.trim().parse().unwrap())
}

pub(crate) fn signal(pid: nix::unistd::Pid, signal: nix::sys::signal::Signal) {
    nix::sys::signal::kill(pid, signal).unwrap();
}

pub(crate) fn wait_until(what: &str, done: impl Fn() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < Duration::from_secs(20), "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A gateway in the foreground, ended by its drop.
pub(crate) struct Foreground(pub(crate) Child);

impl Foreground {
    pub(crate) fn start(command: &mut Command) -> Foreground {
        let command = command.stdin(Stdio::null()).stderr(Stdio::piped());
        Foreground(command.spawn().unwrap())
    }

    /// Reads what it writes to standard error up to the line that contains `wanted`.
    pub(crate) fn read_until(&mut self, wanted: &str) -> String {
        let mut text = String::new();
        // Byte by byte: what follows stays for the next reader.
        let stderr = self.0.stderr.as_mut().unwrap();
        loop {
            let mut byte = [0];
            let read = std::io::Read::read(stderr, &mut byte).unwrap();
            assert!(read > 0, "no {wanted:?} in {text}");
            text.push(char::from(byte[0]));
            if byte == *b"\n" && text.lines().last().unwrap().contains(wanted) {
                return text;
            }
        }
    }

    /// Asks it to end, and returns what it wrote to standard error.
    pub(crate) fn stop(mut self) -> String {
        let pid = nix::unistd::Pid::from_raw(self.0.id() as i32);
        signal(pid, nix::sys::signal::Signal::SIGTERM);
        let mut text = String::new();
        std::io::Read::read_to_string(&mut self.0.stderr.take().unwrap(), &mut text).unwrap();
        assert!(self.0.wait().unwrap().success(), "{text}");
        text
    }
}

impl Drop for Foreground {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
