//! The programs that the demonstration needs, and how a Debian or Ubuntu gets them.

use std::process::{Command, Stdio};

use crate::error::{Failure, Outcome};
use crate::up::find_program;

/// Program and package.
const NEEDED: [(&str, &str); 3] = [
    ("ip", "iproute2"),
    ("ping", "iputils-ping"),
    ("iperf3", "iperf3"),
];

/// Sees to it that all programs are there: root installs what is missing, anybody else is told how.
pub(crate) fn require() -> Outcome {
    let missing = missing(|program| find_program(program).is_some());
    if !nix::unistd::geteuid().is_root() {
        return Err(needs_root(&missing));
    }
    if missing.is_empty() {
        return Ok(());
    }
    if find_program("apt-get").is_none() {
        return Err(Failure::Failed(format!(
            "demo: missing: {}: install these packages (there is no apt-get here to do it)",
            missing.join(" ")
        )));
    }
    println!("installing {} with apt-get", missing.join(" "));
    let install =
        |missing: &[&str]| apt(&["install", "-y", "-q", "--no-install-recommends"], missing);
    // The list of packages may be older than what the mirrors hold, or not be there at all.
    let installed = install(&missing) || apt(&["update", "-q"], &[]) && install(&missing);
    if !installed {
        return Err(Failure::Failed(format!(
            "demo: apt-get could not install {}: run `apt-get update && apt-get install {}` and look",
            missing.join(" "),
            missing.join(" ")
        )));
    }
    Ok(())
}

fn missing(is_there: impl Fn(&str) -> bool) -> Vec<&'static str> {
    NEEDED
        .iter()
        .filter(|(program, _)| !is_there(program))
        .map(|(_, package)| *package)
        .collect()
}

fn needs_root(missing: &[&str]) -> Failure {
    if missing.is_empty() {
        return Failure::failed(
            "demo: network namespaces need root: run `sudo make demo` (or `sudo ringway demo`)",
        );
    }
    println!("sudo apt-get install -y {}", missing.join(" "));
    println!("sudo make demo");
    Failure::Failed(format!(
        "demo: missing {}, and network namespaces need root: run the two lines above",
        missing.join(", ")
    ))
}

fn apt(arguments: &[&str], packages: &[&str]) -> bool {
    Command::new("apt-get")
        .args(arguments)
        .args(packages)
        .env("DEBIAN_FRONTEND", "noninteractive")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_follow_from_programs() {
        assert_eq!(missing(|_| true), Vec::<&str>::new());
        assert_eq!(missing(|program| program != "ping"), ["iputils-ping"]);
        assert_eq!(missing(|_| false), ["iproute2", "iputils-ping", "iperf3"]);
    }

    #[test]
    fn without_root_the_remedy_is_named() {
        assert!(needs_root(&[]).to_string().contains("sudo make demo"));
        assert_eq!(needs_root(&["iperf3"]).code(), 1);
    }
}
