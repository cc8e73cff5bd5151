//! `up`, `down` and `reload`: what changes a gateway.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use ringway_proto::config::{self, Config};
use ringway_proto::control::Request;

use crate::cli::{NameArgs, ReloadArgs, UpArgs};
use crate::control;
use crate::error::{Failure, Outcome};
use crate::names;
use crate::runtime::Runtime;

/// Starts a gateway, or with `--check` says what that would do.
pub(crate) fn up(arguments: &UpArgs) -> Outcome {
    let source = names::resolve(&arguments.file, Path::new(names::CONFIGURATION))?;
    if arguments.check {
        return check(arguments, &source);
    }
    let daemon = find_daemon()?;
    let mut command = Command::new(&daemon);
    command.args(daemon_arguments(arguments, &source));
    // To the daemon too an empty variable is one that is not set.
    for (name, value) in std::env::vars_os() {
        if value.is_empty() && name.as_encoded_bytes().starts_with(b"RINGWAY_") {
            command.env_remove(name);
        }
    }
    // In the daemon's place: its exit code, its signals and its one line of error are the command's own.
    let why = command.exec();
    Err(Failure::Failed(format!(
        "up {}: {}: {why}",
        source.interface,
        daemon.display()
    )))
}

/// Stops a gateway.
pub(crate) fn down(runtime: &Runtime, arguments: &NameArgs) -> Outcome {
    names::gateway(&arguments.name)?;
    control::change(runtime, &arguments.name, &Request::Stop, "down")
}

/// Has a gateway read its file again.
pub(crate) fn reload(runtime: &Runtime, arguments: &ReloadArgs) -> Outcome {
    names::gateway(&arguments.name)?;
    let request = Request::Reload {
        keep_runtime: arguments.keep_runtime,
    };
    control::change(runtime, &arguments.name, &request, "reload")
}

/// `ringwayd`: beside this very binary, or else in PATH.
pub(crate) fn find_daemon() -> Outcome<PathBuf> {
    let beside = std::env::current_exe()
        .ok()
        .and_then(|own| Some(own.parent()?.join("ringwayd")))
        .filter(|path| path.is_file());
    if let Some(path) = beside {
        return Ok(path);
    }
    find_program("ringwayd").ok_or_else(|| {
        Failure::failed("ringwayd is neither beside ringway nor in PATH: install both, or add its directory to PATH")
    })
}

/// A program in PATH or in the directories that only root's PATH has.
pub(crate) fn find_program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/local/sbin", "/usr/sbin", "/sbin"].map(PathBuf::from))
        .map(|directory| directory.join(name))
        .find(|candidate| candidate.is_file())
}

fn check(arguments: &UpArgs, source: &names::Source) -> Outcome {
    let loaded =
        config::load_with_warnings(&source.path).map_err(|why| Failure::Failed(why.to_string()))?;
    for warning in &loaded.warnings {
        eprintln!("ringway: warning: {warning}");
    }
    let mut config = loaded.config;
    override_by(arguments, &mut config);
    println!(
        "{} makes the interface {}; nothing is changed now",
        source.path.display(),
        source.interface
    );
    print!("{}", config::check(&config, &source.interface));
    Ok(())
}

/// Flags and the environment win over the file.
fn override_by(arguments: &UpArgs, config: &mut Config) {
    let interface = &mut config.interface;
    interface.workers = arguments.workers.or(interface.workers);
    interface.shards = arguments.shards.or(interface.shards);
    interface.cpus = arguments.cpus.clone().or(interface.cpus.take());
    interface.poll = arguments.poll.or(interface.poll);
}

/// What a flag or the environment says goes on as a flag, so that it wins over the file.
fn daemon_arguments(arguments: &UpArgs, source: &names::Source) -> Vec<OsString> {
    let mut all: Vec<OsString> = Vec::new();
    let mut flag = |name: &str, value: Option<String>| {
        if let Some(value) = value {
            all.push(name.into());
            all.push(value.into());
        }
    };
    flag(
        "--workers",
        arguments.workers.as_ref().map(ToString::to_string),
    );
    flag("--shards", arguments.shards.map(|count| count.to_string()));
    flag("--cpus", arguments.cpus.as_ref().map(ToString::to_string));
    flag("--poll", arguments.poll.map(|mode| mode.to_string()));
    if arguments.foreground {
        all.push("-f".into());
    }
    all.push("--config".into());
    all.push(absolute(&source.path).into());
    all.push(source.interface.clone().into());
    all
}

/// The daemon changes its directory, and reads the file again on a reload.
fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use ringway_proto::config::WorkersSetting;

    use super::*;
    use crate::cli::{Cli, Command as Subcommand};

    fn arguments(line: &[&str]) -> Vec<OsString> {
        let Subcommand::Up(up) = Cli::try_parse_from(line).unwrap().command else {
            panic!("not up");
        };
        let source = names::resolve(&up.file, Path::new("/nonexistent")).unwrap();
        daemon_arguments(&up, &source)
    }

    #[test]
    fn flags_go_to_the_daemon_as_they_are() {
        let line = [
            "ringway",
            "up",
            "/x/wg0.conf",
            "--workers",
            "4",
            "--shards",
            "8",
            "--cpus",
            "0-3",
            "--poll",
            "busy",
            "-f",
        ];
        let expected = [
            "--workers",
            "4",
            "--shards",
            "8",
            "--cpus",
            "0-3",
            "--poll",
            "busy",
            "-f",
            "--config",
            "/x/wg0.conf",
            "wg0",
        ];
        assert_eq!(arguments(&line), expected);
        assert_eq!(
            arguments(&["ringway", "up", "/x/wg0.toml"]),
            ["--config", "/x/wg0.toml", "wg0"]
        );
    }

    #[test]
    fn a_bad_value_is_refused_before_the_daemon_runs() {
        for line in [
            ["ringway", "up", "a.conf", "--workers", "many"],
            ["ringway", "up", "a.conf", "--workers", "0"],
            ["ringway", "up", "a.conf", "--shards", "3"],
            ["ringway", "up", "a.conf", "--shards", "128"],
            ["ringway", "up", "a.conf", "--cpus", "x"],
            ["ringway", "up", "a.conf", "--poll", "often"],
        ] {
            assert!(Cli::try_parse_from(line).is_err(), "{line:?}");
        }
    }

    #[test]
    fn flags_win_over_the_file() {
        let line = ["ringway", "up", "a.conf", "--workers", "4"];
        let Subcommand::Up(up) = Cli::try_parse_from(line).unwrap().command else {
            panic!("not up");
        };
        let text = "[Interface]\nWorkers = 2\nShards = 8\n";
        let mut config = config::parse(text, Path::new("a.conf")).unwrap().config;
        override_by(&up, &mut config);
        assert_eq!(config.interface.workers, Some(WorkersSetting::Count(4)));
        assert_eq!(config.interface.shards, Some(8));
    }

    #[test]
    fn a_relative_path_becomes_absolute() {
        assert!(Path::new(&arguments(&["ringway", "up", "wg0.conf"])[1]).is_absolute());
    }
}
