//! Taking namespaces down, and finding those that a demonstration left behind.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// What the name of everything that a demonstration makes begins with; its process id follows.
pub(super) const PREFIX: &str = "ringway-demo-";

/// Takes down what demonstrations left whose process is dead.
pub(super) fn sweep(ip: &Path) {
    let Ok(entries) = fs::read_dir("/run/netns") else {
        return;
    };
    let names = entries
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned());
    let left: Vec<(u32, String)> = names
        .filter_map(|name| Some((maker(&name)?, name)))
        .filter(|&(pid, _)| !is_alive(pid))
        .collect();
    if left.is_empty() {
        return;
    }
    let namespaces: Vec<String> = left.iter().map(|(_, name)| name.clone()).collect();
    take_down(ip, &namespaces);
    for (pid, _) in left {
        let _ = fs::remove_dir_all(directory_of(pid));
    }
}

/// Ends every process in the namespaces, first with a request, then by force; then removes them.
pub(super) fn take_down(ip: &Path, namespaces: &[String]) {
    for signal in [Signal::SIGTERM, Signal::SIGKILL] {
        let end = Instant::now() + Duration::from_secs(3);
        while send(ip, namespaces, signal) && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(50));
        }
    }
    for namespace in namespaces {
        let _ = Command::new(ip)
            .args(["netns", "delete", namespace])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
    }
}

/// Signals all processes in the namespaces; false: there are none.
fn send(ip: &Path, namespaces: &[String], signal: Signal) -> bool {
    let pids: Vec<Pid> = namespaces
        .iter()
        .flat_map(|namespace| pids(ip, namespace))
        .collect();
    for &pid in &pids {
        let _ = kill(pid, signal);
    }
    !pids.is_empty()
}

/// The directory of a demonstration's files.
pub(super) fn directory_of(pid: u32) -> PathBuf {
    std::env::temp_dir().join(format!("{PREFIX}{pid}"))
}

/// The process that made the namespace of this name, if it is one of ours.
fn maker(namespace: &str) -> Option<u32> {
    let (pid, side) = namespace.strip_prefix(PREFIX)?.rsplit_once('-')?;
    (side == "a" || side == "b").then(|| pid.parse().ok())?
}

fn is_alive(pid: u32) -> bool {
    Path::new(&format!("/proc/{pid}")).exists()
}

fn pids(ip: &Path, namespace: &str) -> Vec<Pid> {
    let output = Command::new(ip).args(["netns", "pids", namespace]).output();
    let text = output.map(|output| output.stdout).unwrap_or_default();
    String::from_utf8_lossy(&text)
        .split_whitespace()
        .filter_map(|pid| pid.parse().ok())
        .map(Pid::from_raw)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_our_namespaces_are_swept() {
        assert_eq!(maker("ringway-demo-4711-a"), Some(4711));
        assert_eq!(maker("ringway-demo-4711-c"), None);
        assert_eq!(maker("ringway-demo-x-a"), None);
        assert_eq!(maker("other-4711-a"), None);
    }
}
