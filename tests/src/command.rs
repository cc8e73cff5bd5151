//! Running a command to its end.

use std::io::Write;
use std::process::{Command, Output, Stdio};

/// What a command said.
#[derive(Debug, Clone)]
pub struct Said {
    /// Its exit code; minus one for a signal.
    pub code: i32,
    /// Its standard output.
    pub out: String,
    /// Its standard error.
    pub err: String,
}

impl Said {
    fn of(output: &Output) -> Said {
        Said {
            code: output.status.code().unwrap_or(-1),
            out: String::from_utf8_lossy(&output.stdout).into_owned(),
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    /// True if it ended with 0.
    pub fn ok(&self) -> bool {
        self.code == 0
    }
}

/// Runs `words`, whatever the outcome.
pub fn attempt<S: AsRef<str>>(words: &[S]) -> Said {
    attempt_with_input(words, &[], "")
}

/// Runs `words` with more environment and an input.
pub fn attempt_with_input<S: AsRef<str>>(
    words: &[S],
    environment: &[(&str, &str)],
    input: &str,
) -> Said {
    let words: Vec<&str> = words.iter().map(AsRef::as_ref).collect();
    let mut child = Command::new(words[0])
        .args(&words[1..])
        .envs(environment.iter().copied())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("cannot run {}: {error}", words[0]));
    let mut stdin = child.stdin.take().unwrap();
    let output = std::thread::scope(|scope| {
        // A program that ends without reading its input is no failure of ours.
        scope.spawn(move || drop(stdin.write_all(input.as_bytes())));
        child.wait_with_output().unwrap()
    });
    Said::of(&output)
}

/// Runs `words` and returns what it printed.
///
/// # Panics
/// If it fails.
pub fn run<S: AsRef<str>>(words: &[S]) -> String {
    let said = attempt(words);
    let line: Vec<&str> = words.iter().map(AsRef::as_ref).collect();
    assert!(
        said.ok(),
        "{} gave {}: {}{}",
        line.join(" "),
        said.code,
        said.out,
        said.err
    );
    said.out
}
