//! `ringwayd`: the supervisor of a Ringway gateway, and by `--role` the processes it starts.

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod channel;
mod cli;
mod control;
mod cores;
mod daemonize;
mod dns;
mod fault;
mod fds;
#[cfg(feature = "firewall")]
mod firewall;
mod helper;
mod hooks;
mod interface;
mod job;
mod leftovers;
mod log;
mod meta;
mod netlink;
mod outbox;
mod roles;
mod runtime;
mod segments;
mod settings;
mod sockets;
mod spawn;
mod steering;
mod supervisor;
mod sys;
mod tun;
mod watch;

use cli::{Cli, Instead, LogFormat};
use daemonize::{Detached, Report};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use ringway_proto::config::{self, Config};
use runtime::Runtime;
use settings::{Host, Settings};
use std::io::Write;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use supervisor::{Plan, SupervisorError};
use watch::Signals;

const FAILED: u8 = 1;
const USAGE: u8 = 2;

fn main() -> ExitCode {
    let cli = match Cli::read(std::env::args_os()) {
        Ok(cli) => cli,
        Err(Instead::Print(text)) => return print(text.as_bytes()),
        Err(Instead::Usage(line)) => {
            eprintln!("ringwayd: {line}");
            return ExitCode::from(USAGE);
        }
    };
    if let Some(shell) = cli.completions {
        return print(&Cli::completion_script(shell));
    }
    log::start(
        cli.log_level,
        cli.log_format,
        cli.role.is_none() && !cli.foreground,
    );
    if let Some(role) = cli.role {
        return match roles::run(role, &cli) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                tracing::error!("{error}");
                ExitCode::from(FAILED)
            }
        };
    }
    // Whatever the caller left open must not be kept from it, and its numbers are needed.
    sys::process::close_from(3);
    supervise(cli)
}

/// Checks what can be checked, goes to the background, runs the gateway.
fn supervise(cli: Cli) -> ExitCode {
    let (foreground, format) = (cli.foreground, cli.log_format);
    let (plan, mut signals) = match prepare(cli) {
        Ok(prepared) => prepared,
        Err((code, line)) => {
            complain(format, &line);
            return ExitCode::from(code);
        }
    };
    let mut report = if foreground {
        Report::none()
    } else {
        match daemonize::detach(&mut signals) {
            Ok(Detached::Caller(code)) => {
                // The files and the lock are the daemon's now: dropping the lock here would
                // unlock it there too, since both share one open file.
                std::mem::forget(plan);
                return code;
            }
            Ok(Detached::Daemon(report)) => report,
            Err(error) => {
                plan.runtime.remove(false);
                let line = format!(
                    "cannot go to the background: {error}: use -f to stay in the foreground"
                );
                complain(format, &line);
                return ExitCode::from(FAILED);
            }
        }
    };
    match supervisor::run(&plan, signals, &mut report) {
        Ok(()) => ExitCode::SUCCESS,
        // Whoever runs it in the foreground and stops it has what was asked for. A caller that
        // waits for a gateway in the background has none.
        Err(SupervisorError::Interrupted) if foreground => ExitCode::SUCCESS,
        Err(error) => {
            if report.is_expected() || foreground {
                complain(format, &error.to_string());
            }
            // Afterwards the supervisor has put it in the log.
            report.failed(FAILED);
            ExitCode::from(FAILED)
        }
    }
}

/// Tells the caller why there is no gateway: a line for people, or where a program reads along one
/// for it.
fn complain(format: LogFormat, line: &str) {
    match format {
        LogFormat::Human => eprintln!("ringwayd: {line}"),
        LogFormat::Json => tracing::error!("{line}"),
    }
}

/// Reads the configuration and refuses early what cannot work, with an exit code and one line.
///
/// From its first file on signals are the supervisor's to read; before, they end the process, which
/// may be reading a configuration from a terminal.
fn prepare(cli: Cli) -> Result<(Plan, Signals), (u8, String)> {
    let failed = |error: &dyn std::fmt::Display| (FAILED, error.to_string());
    let config_path = cli
        .config
        .as_deref()
        .map(absolute)
        .transpose()
        .map_err(|error| failed(&error))?;
    let config = match &config_path {
        Some(path) => load(path).map_err(|error| failed(&error))?,
        None => Config::default(),
    };
    let host = Host::read();
    let settings = Settings::resolve(&cli, &config.interface, &host)
        .map_err(|error| (USAGE, error.to_string()))?;
    if !nix::unistd::geteuid().is_root() {
        return Err((
            FAILED,
            format!(
                "not root: a gateway needs it to create {}: use sudo",
                cli.name()
            ),
        ));
    }
    if !Path::new("/dev/net/tun")
        .metadata()
        .is_ok_and(|data| data.file_type().is_char_device())
    {
        let line = "no /dev/net/tun: load the tun module (modprobe tun), or in a container pass the device in";
        return Err((FAILED, line.to_owned()));
    }
    if usize::from(settings.workers) > host.cpus.len() {
        tracing::warn!(
            "{} workers on {} CPUs: they will share them",
            settings.workers,
            host.cpus.len()
        );
    }
    let signals = Signals::take().map_err(|error| (FAILED, format!("signals: {error}")))?;
    let runtime = Runtime::claim(cli.name()).map_err(|error| failed(&error))?;
    if let Ok(index) = nix::net::if_::if_nametoindex(cli.name()) {
        runtime.remove(false);
        let name = cli.name();
        let line = format!(
            "interface {name} exists already (number {index}): choose another name, or remove it (ip link delete {name})"
        );
        return Err((FAILED, line));
    }
    let log = if cli.foreground {
        None
    } else {
        match runtime.open_log() {
            Ok(log) => Some(log),
            Err(error) => {
                runtime.remove(false);
                return Err(failed(&error));
            }
        }
    };
    raise_descriptor_limit();
    let plan = Plan {
        cli,
        config,
        config_path,
        settings,
        runtime,
        log,
    };
    Ok((plan, signals))
}

fn load(path: &Path) -> Result<Config, config::ConfigError> {
    let loaded = config::load_with_warnings(path)?;
    for warning in loaded.warnings {
        tracing::warn!("{warning}");
    }
    Ok(loaded.config)
}

fn absolute(path: &Path) -> std::io::Result<PathBuf> {
    std::path::absolute(path)
}

/// Shards, addresses and peers' scripts take more descriptors than the 1024 of a shell.
fn raise_descriptor_limit() {
    if let Ok((_, hard)) = getrlimit(Resource::RLIMIT_NOFILE) {
        let _ = setrlimit(Resource::RLIMIT_NOFILE, hard, hard);
    }
}

/// Prints to standard output; a reader that left is no failure.
fn print(text: &[u8]) -> ExitCode {
    let _ = std::io::stdout().write_all(text);
    ExitCode::SUCCESS
}
