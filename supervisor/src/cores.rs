//! Which CPU each worker is pinned to: those first that the workers of other gateways on this host
//! use least.
//!
//! Every gateway leaves a note of its own CPUs in its directory; who starts reads those of all
//! that run, under a lock, so that two that start at once don't choose the same.

use nix::fcntl::{Flock, FlockArg};
use std::collections::HashMap;
use std::fs::{self, File};
use std::path::Path;

/// The note's name.
pub(crate) const FILE: &str = "cpus";

/// These CPUs, the least used first unless their order is `given`, of which the first `workers` are
/// noted in `directory` as this gateway's own.
///
/// What can't be read or written only costs the spread.
pub(crate) fn spread(directory: &Path, cpus: &[u16], given: bool, workers: u8) -> Vec<u16> {
    let root = directory.parent().unwrap_or(directory);
    let _lock = File::open(root)
        .ok()
        .map(|root| Flock::lock(root, FlockArg::LockExclusive));
    let mut used: HashMap<u16, usize> = HashMap::new();
    for entry in fs::read_dir(root).into_iter().flatten().flatten() {
        if entry.path() != directory {
            for cpu in noted(&entry.path().join(FILE)) {
                *used.entry(cpu).or_default() += 1;
            }
        }
    }
    let mut sorted = cpus.to_vec();
    if !given {
        sorted.sort_by_key(|cpu| used.get(cpu).copied().unwrap_or(0));
    }
    let own: Vec<String> = sorted
        .iter()
        .cycle()
        .take(if sorted.is_empty() {
            0
        } else {
            usize::from(workers)
        })
        .map(u16::to_string)
        .collect();
    let note = format!("{} {}\n", std::process::id(), own.join(" "));
    if let Err(error) = fs::write(directory.join(FILE), note) {
        tracing::debug!("{}: {error}", directory.join(FILE).display());
    }
    sorted
}

/// The CPUs of the gateway that left this note; none when it runs no more.
fn noted(file: &Path) -> Vec<u16> {
    let text = fs::read_to_string(file).unwrap_or_default();
    let mut words = text.split_whitespace();
    let alive = words
        .next()
        .and_then(|pid| fs::read_to_string(format!("/proc/{pid}/comm")).ok())
        .is_some_and(|name| name.trim().starts_with(PROGRAM));
    if !alive {
        return Vec::new();
    }
    words.filter_map(|word| word.parse().ok()).collect()
}

/// What a running gateway is called.
const PROGRAM: &str = "ringwayd";

#[cfg(test)]
mod tests {
    use super::*;

    /// A process called like a gateway, until it is dropped.
    struct Other(std::process::Child);

    impl Other {
        fn start(directory: &Path) -> Other {
            let program = directory.join("ringwayd");
            std::os::unix::fs::symlink("/bin/sleep", &program).unwrap();
            Other(
                std::process::Command::new(program)
                    .arg("60")
                    .spawn()
                    .unwrap(),
            )
        }
    }

    impl Drop for Other {
        fn drop(&mut self) {
            self.0.kill().unwrap();
            self.0.wait().unwrap();
        }
    }

    #[test]
    fn gateways_share_the_cpus() {
        let root = tempfile::tempdir().unwrap();
        let programs = tempfile::tempdir().unwrap();
        let directory = |name: &str| {
            let path = root.path().join(name);
            fs::create_dir(&path).unwrap();
            path
        };
        let first = directory("wg0");
        assert_eq!(spread(&first, &[0, 1, 2, 3], false, 2), [0, 1, 2, 3]);
        let other = Other::start(programs.path());
        let name = || fs::read_to_string(format!("/proc/{}/comm", other.0.id())).unwrap();
        while name().trim() != "ringwayd" {
            std::thread::yield_now();
        }
        fs::write(first.join(FILE), format!("{} 0 1\n", other.0.id())).unwrap();
        let second = directory("wg1");
        assert_eq!(spread(&second, &[0, 1, 2, 3], false, 1), [2, 3, 0, 1]);
        assert_eq!(spread(&second, &[0, 1, 2, 3], true, 1), [0, 1, 2, 3]);
        fs::remove_file(second.join(FILE)).unwrap();
        drop(other);
        assert_eq!(
            spread(&directory("wg2"), &[0, 1], false, 1),
            [0, 1],
            "who is gone uses nothing"
        );
        assert!(spread(&directory("wg3"), &[], false, 1).is_empty());
    }
}
