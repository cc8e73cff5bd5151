//! Commands of the configuration, each in a process group of its own and with a time limit.

use crate::sys::process::own_group;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How soon a command is looked at, and how often one that takes longer.
const FIRST_POLL: Duration = Duration::from_millis(1);
const POLL: Duration = Duration::from_millis(20);

/// How long a running command may go on once the helper was told to end.
const GRACE: Duration = Duration::from_secs(1);

const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Runs `command` with `sh -c` and waits for it; `stopping` shortens what is left of its time.
pub(crate) fn run(
    command: &str,
    environment: &[(String, String)],
    limit: Duration,
    stopping: &AtomicBool,
) -> Result<(), String> {
    let mut shell = Command::new("/bin/sh");
    shell
        .arg("-c")
        .arg(command)
        .env_clear()
        .env("PATH", PATH)
        .envs(environment.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::null());
    // It dies with this thread, which waits for it, and so with the helper.
    own_group(&mut shell);
    let mut child = shell
        .spawn()
        .map_err(|error| format!("cannot run `{command}`: {error}: check /bin/sh"))?;
    let mut deadline = Instant::now() + limit;
    let mut told = false;
    let mut pause = FIRST_POLL;
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return judge(command, status),
            Ok(None) => {}
            Err(error) => return Err(format!("cannot wait for `{command}`: {error}")),
        }
        if !told && stopping.load(Ordering::Acquire) {
            told = true;
            deadline = deadline.min(Instant::now() + GRACE);
        }
        if Instant::now() >= deadline {
            // The group still exists: its leader has not been waited for.
            let _ = killpg(Pid::from_raw(child.id() as i32), Signal::SIGKILL);
            let _ = child.wait();
            return Err(format!(
                "`{command}` ran longer than {} s and was killed: let it put slow work in the background",
                limit.as_secs_f32()
            ));
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(POLL);
    }
}

fn judge(command: &str, status: ExitStatus) -> Result<(), String> {
    match (status.code(), status.signal()) {
        (Some(0), _) => Ok(()),
        (Some(code), _) => Err(format!("`{command}` ended with status {code}")),
        (None, signal) => Err(format!(
            "`{command}` was ended by signal {}",
            signal.unwrap_or(0)
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passes_the_environment_and_tells_failures() {
        let idle = AtomicBool::new(false);
        let environment = [("RINGWAY_PEER".to_owned(), "laptop".to_owned())];
        let limit = Duration::from_secs(10);
        run(
            "test \"$RINGWAY_PEER\" = laptop",
            &environment,
            limit,
            &idle,
        )
        .unwrap();
        assert!(
            run("exit 3", &[], limit, &idle)
                .unwrap_err()
                .contains("status 3")
        );
        assert!(
            run("kill -9 $$", &[], limit, &idle)
                .unwrap_err()
                .contains("signal 9")
        );
    }

    #[test]
    fn kills_the_whole_group_at_the_limit() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("pid");
        let command = format!("sleep 100 & echo $! > {} ; wait", file.display());
        let error = run(
            &command,
            &[],
            Duration::from_secs(2),
            &AtomicBool::new(false),
        )
        .unwrap_err();
        assert!(error.contains("was killed"), "{error}");
        let pid: i32 = std::fs::read_to_string(&file)
            .unwrap()
            .trim()
            .parse()
            .unwrap();
        // Gone, or a zombie that nobody reaps where init does not.
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        assert!(stat.is_empty() || stat.contains(") Z "), "{stat}");
    }
}
