//! The command line of `ringwayd`.

use clap::{CommandFactory, FromArgMatches, Id, Parser, ValueEnum};
use ringway_proto::config::{CpuList, PollMode, WorkersSetting, valid_interface_name};
use std::ffi::OsString;
use std::path::PathBuf;
use tracing::level_filters::LevelFilter;

/// Runs a Ringway gateway: creates the TUN interface IFNAME and waits to be configured by wg.
///
/// By default the command returns when the interface and its WireGuard socket are there, and the
/// gateway goes on in the background until it is stopped or the interface is deleted.
#[derive(Debug, Clone, Parser)]
#[command(name = "ringwayd", version, after_help = EXAMPLES)]
pub(crate) struct Cli {
    /// The interface to create, 1 to 15 letters, digits and _ = + . -
    #[arg(value_name = "IFNAME", value_parser = interface_name, required_unless_present = "completions")]
    name: Option<String>,

    /// Stay in the foreground and log to standard error.
    #[arg(short, long)]
    pub(crate) foreground: bool,

    /// How many worker processes; auto is one per CPU, capped by the cgroup's quota.
    #[arg(long, value_name = "N|auto", env = "RINGWAY_WORKERS")]
    pub(crate) workers: Option<WorkersSetting>,

    /// How many shards, a power of two up to 64.
    #[arg(long, value_name = "S", env = "RINGWAY_SHARDS", value_parser = clap::value_parser!(u8).range(1..=64))]
    pub(crate) shards: Option<u8>,

    /// The CPUs that the workers are pinned to, in turn, such as 0-3,8.
    #[arg(long, value_name = "LIST", env = "RINGWAY_CPUS")]
    pub(crate) cpus: Option<CpuList>,

    /// How workers wait for packets: epoll, busy, adaptive or napi.
    #[arg(long, value_name = "MODE", env = "RINGWAY_POLL")]
    pub(crate) poll: Option<PollMode>,

    /// The least important messages to log: off, error, warn, info, debug or trace.
    #[arg(
        long,
        value_name = "LEVEL",
        env = "RINGWAY_LOG_LEVEL",
        default_value = "info"
    )]
    pub(crate) log_level: LevelFilter,

    /// How messages are written.
    #[arg(
        long,
        value_name = "FORMAT",
        env = "RINGWAY_LOG_FORMAT",
        default_value = "human"
    )]
    pub(crate) log_format: LogFormat,

    /// Print a completion script for this shell and end.
    #[arg(long, value_name = "SHELL")]
    pub(crate) completions: Option<clap_complete::Shell>,

    /// The configuration file; `ringway up` gives it.
    #[arg(long, value_name = "FILE", hide = true)]
    pub(crate) config: Option<PathBuf>,

    /// The process to be; the supervisor gives it.
    #[arg(long, value_name = "ROLE", hide = true)]
    pub(crate) role: Option<RoleName>,

    /// The worker's slot.
    #[arg(long, hide = true, default_value_t = 0)]
    pub(crate) slot: u8,

    /// The worker's CPU.
    #[arg(long, hide = true)]
    pub(crate) cpu: Option<u16>,
}

const EXAMPLES: &str = "\
Examples:
  ringwayd wg0                      create wg0, go to the background; then: wg setconf wg0 FILE
  ringwayd -f wg0                   the same in the foreground, as under systemd or in a container
  ringwayd --workers 4 --cpus 2-5 wg0
  WG_QUICK_USERSPACE_IMPLEMENTATION=ringwayd wg-quick up wg0
  ringwayd --completions bash > /etc/bash_completion.d/ringwayd

A configuration file is started by 'ringway up FILE'. In the background, messages go to
/run/ringway/IFNAME/log. SIGTERM stops the gateway, SIGHUP reads its configuration file again.
Exit codes: 0 done, 1 failed, 2 usage.";

/// How messages are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// Lines for people.
    Human,
    /// One JSON object a line.
    Json,
}

impl LogFormat {
    /// The format as the flag takes it.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            LogFormat::Human => "human",
            LogFormat::Json => "json",
        }
    }
}

/// A process that the supervisor starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum RoleName {
    /// Owns the tables.
    Meta,
    /// Does slow things for meta.
    Helper,
    /// Moves packets.
    Worker,
}

impl RoleName {
    /// The role as the flag takes it.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            RoleName::Meta => "meta",
            RoleName::Helper => "helper",
            RoleName::Worker => "worker",
        }
    }
}

/// What to do instead of running.
#[derive(Debug)]
pub(crate) enum Instead {
    /// Print this on standard output and end with 0: help, version.
    Print(String),
    /// A usage error in one line.
    Usage(String),
}

impl Cli {
    /// Reads a command line, the program's name first.
    pub(crate) fn read<T: Into<OsString> + Clone>(
        arguments: impl IntoIterator<Item = T>,
    ) -> Result<Cli, Instead> {
        let mut command = Cli::command();
        let empty: Vec<Id> = command
            .get_arguments()
            .filter(|argument| {
                let value = argument.get_env().and_then(std::env::var_os);
                value.is_some_and(|value| value.is_empty())
            })
            .map(|argument| argument.get_id().clone())
            .collect();
        for id in empty {
            // Set to nothing is how a shell or a unit file unsets it.
            command = command.mut_arg(id.as_str(), |argument| argument.env(None));
        }
        let read = command
            .try_get_matches_from_mut(arguments)
            .and_then(|matches| Cli::from_arg_matches(&matches));
        read.map_err(|error| {
            if error.use_stderr() {
                Instead::Usage(one_line(&error.render().to_string()))
            } else {
                Instead::Print(error.render().to_string())
            }
        })
    }

    /// The interface's name.
    pub(crate) fn name(&self) -> &str {
        self.name.as_deref().unwrap_or_default()
    }

    /// The completion script of a shell.
    pub(crate) fn completion_script(shell: clap_complete::Shell) -> Vec<u8> {
        let mut script = Vec::new();
        clap_complete::generate(shell, &mut Cli::command(), "ringwayd", &mut script);
        script
    }
}

fn interface_name(text: &str) -> Result<String, &'static str> {
    if valid_interface_name(text) {
        Ok(text.to_owned())
    } else {
        Err("give 1 to 15 letters, digits and _ = + . -")
    }
}

/// The message without clap's usage and tips, which fill paragraphs of their own.
fn one_line(rendered: &str) -> String {
    let message: Vec<&str> = rendered
        .lines()
        .take_while(|line| !line.is_empty())
        .map(str::trim)
        .collect();
    let message = message.join(" ");
    let message = message.strip_prefix("error: ").unwrap_or(&message);
    format!("{message} (ringwayd --help shows what there is)")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usage(arguments: &[&str]) -> String {
        match Cli::read(["ringwayd"].iter().chain(arguments).copied()) {
            Err(Instead::Usage(line)) => line,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn the_convention_of_wireguard_go() {
        let cli = Cli::read(["ringwayd", "-f", "wg0"]).unwrap();
        assert!(cli.foreground);
        assert_eq!(cli.name(), "wg0");
        assert!(!Cli::read(["ringwayd", "wg0"]).unwrap().foreground);
    }

    #[test]
    fn mistakes_are_one_line() {
        for arguments in [
            &[][..],
            &["a name"],
            &["sixteen-letters-"],
            &["."],
            &["wg0", "--workers", "0"],
            &["wg0", "--shards", "65"],
            &["wg0", "--poll", "never"],
            &["wg0", "--cpus", "x"],
            &["wg0", "--no-such-flag"],
            &["wg0", "wg1"],
        ] {
            let line = usage(arguments);
            assert!(
                !line.contains('\n') && line.contains("--help"),
                "{arguments:?}: {line}"
            );
        }
        assert!(usage(&["wg0", "--poll", "never"]).contains("give epoll, busy, adaptive or napi"));
    }

    #[test]
    fn completions_need_no_name() {
        let cli = Cli::read(["ringwayd", "--completions", "bash"]).unwrap();
        let script = Cli::completion_script(cli.completions.unwrap());
        assert!(String::from_utf8(script).unwrap().contains("ringwayd"));
        assert!(
            matches!(Cli::read(["ringwayd", "--help"]), Err(Instead::Print(help)) if help.contains("Examples:"))
        );
    }
}
