//! The command as its callers see it: when it returns, with which code, and what is left.
//!
//! As root only; each gateway is in a network namespace of its own, with this process's id in its
//! name.
#![allow(clippy::unwrap_used)]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

/// Runs ringwayd in a new network namespace; `None` where that is not allowed.
fn ringwayd(arguments: &[&str]) -> Option<Output> {
    if !nix::unistd::geteuid().is_root() {
        return None;
    }
    let output = Command::new("unshare")
        .arg("-n")
        .arg(env!("CARGO_BIN_EXE_ringwayd"))
        .args(arguments)
        .output();
    Some(output.unwrap())
}

fn error(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

fn directory(name: &str) -> PathBuf {
    Path::new("/run/ringway").join(name)
}

fn wait_until(what: &str, done: impl Fn() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < Duration::from_secs(20), "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn it_returns_when_the_gateway_is_there_and_leaves_nothing() {
    let name = format!("rd{}", std::process::id());
    let Some(output) = ringwayd(&[&name]) else {
        return;
    };
    assert!(output.status.success(), "{}", error(&output));
    let socket = PathBuf::from(format!("/var/run/wireguard/{name}.sock"));
    assert!(socket.exists());
    let pid = std::fs::read_to_string(directory(&name).join("pid")).unwrap();

    let second = ringwayd(&[&name]).unwrap();
    assert_eq!(second.status.code(), Some(1));
    assert!(
        error(&second).starts_with(&format!("ringwayd: {name} runs already")),
        "{}",
        error(&second)
    );
    assert_eq!(error(&second).lines().count(), 1);
    assert!(
        directory(&name).join("lock").exists(),
        "the second start must not touch the first one's files"
    );

    let pid = nix::unistd::Pid::from_raw(pid.trim().parse().unwrap());
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).unwrap();
    wait_until("the files go", || {
        !directory(&name).exists() && !socket.exists()
    });
    wait_until("the process ends", || {
        !Path::new(&format!("/proc/{pid}")).exists()
    });
}

#[test]
fn what_fails_in_the_background_reaches_the_caller() {
    let name = format!("re{}", std::process::id());
    let file = tempfile::tempdir().unwrap();
    let path = file.path().join(format!("{name}.conf"));
    std::fs::write(&path, "[Interface]\nPostUp = exit 7\n").unwrap();
    let Some(output) = ringwayd(&["--config", path.to_str().unwrap(), &name]) else {
        return;
    };
    assert_eq!(output.status.code(), Some(1));
    assert!(
        error(&output).contains("ringwayd: PostUp = exit 7: failed (exit status: 7)"),
        "{}",
        error(&output)
    );
    assert!(!directory(&name).exists());
}

#[test]
fn usage_is_one_line_and_2() {
    let Some(output) = ringwayd(&["--workers", "many", "wg0"]) else {
        return;
    };
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(error(&output).lines().count(), 1, "{}", error(&output));
}

#[test]
fn an_empty_variable_is_none() {
    let output = Command::new(env!("CARGO_BIN_EXE_ringwayd"))
        .args(["--completions", "bash"])
        .envs(
            [
                "WORKERS",
                "SHARDS",
                "CPUS",
                "POLL",
                "LOG_LEVEL",
                "LOG_FORMAT",
            ]
            .map(|name| (format!("RINGWAY_{name}"), "")),
        )
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", error(&output));
}
