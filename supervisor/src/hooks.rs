//! `PreUp`, `PostUp`, `PreDown` and `PostDown`: shell commands of the configuration, run as root.

use crate::job::{Job, JobError};
use std::path::Path;
use std::process::Command;

/// The command of a hook with `%i` replaced, started.
///
/// By bash where there is one, as wg-quick does: its users write for it.
pub(crate) fn start(key: &str, hook: &str, interface: &str) -> Result<Job, JobError> {
    let script = hook.replace("%i", interface);
    tracing::info!(hook = key, command = script, "run");
    let shell = if Path::new("/bin/bash").exists() {
        "/bin/bash"
    } else {
        "/bin/sh"
    };
    let mut command = Command::new(shell);
    command.arg("-c").arg(&script);
    Job::start(format!("{key} = {hook}"), command, "")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    fn finish(mut job: Job) -> Result<(), JobError> {
        let start = Instant::now();
        loop {
            if let Some(outcome) = job.outcome() {
                return outcome;
            }
            assert!(start.elapsed() < Duration::from_secs(20));
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    #[test]
    fn the_interface_is_put_in() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("out");
        finish(
            start(
                "PostUp",
                &format!("echo %i and %i > {}", file.display()),
                "wg7",
            )
            .unwrap(),
        )
        .unwrap();
        assert_eq!(std::fs::read_to_string(file).unwrap(), "wg7 and wg7\n");
    }

    #[test]
    fn a_failure_names_the_hook() {
        let error = finish(start("PreUp", "exit 3", "wg7").unwrap()).unwrap_err();
        assert_eq!(error.to_string(), "PreUp = exit 3: failed (exit status: 3)");
    }

    #[test]
    fn no_signal_is_blocked_in_a_hook() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("out");
        let hook = format!("grep SigBlk /proc/self/status > {}", file.display());
        // In a thread of its own, since the mask is the thread's.
        std::thread::spawn(move || {
            let _signals = crate::watch::Signals::take().unwrap();
            finish(start("PostUp", &hook, "wg7").unwrap()).unwrap();
        })
        .join()
        .unwrap();
        let mask = std::fs::read_to_string(file).unwrap();
        assert_eq!(
            mask.split_whitespace().last(),
            Some("0000000000000000"),
            "{mask}"
        );
    }

    #[test]
    fn a_dropped_job_leaves_no_process() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("pid");
        let job = start(
            "PostUp",
            &format!("sleep 60 & echo $! > {}; wait", file.display()),
            "wg7",
        )
        .unwrap();
        let pid = loop {
            match std::fs::read_to_string(&file) {
                Ok(text) if text.ends_with('\n') => break text.trim().to_owned(),
                _ => std::thread::sleep(Duration::from_millis(2)),
            }
        };
        drop(job);
        let gone = || {
            !std::fs::read_to_string(format!("/proc/{pid}/stat"))
                .is_ok_and(|stat| !stat.contains(") Z "))
        };
        let start = Instant::now();
        while !gone() {
            assert!(
                start.elapsed() < Duration::from_secs(10),
                "process {pid} is still there"
            );
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}
