//! The command line: what clap parses, and its help.

use std::ffi::OsStr;
use std::net::IpAddr;
use std::path::PathBuf;

use clap::builder::Resettable;
use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand};
use ringway_proto::config::{CpuList, MAX_SHARDS, PollMode, WorkersSetting};

const EXAMPLES: &str = "\
Examples:
  ringway up wg0                      start /etc/ringway/wg0.toml or wg0.conf
  ringway up ./office.conf --check    say what would be done, change nothing
  ringway workers --watch             a line for each worker, every second
  ringway peers wg0                   who is connected, and why someone is not
  ringway drops --json | jq .         what was dropped, where and why
  ringway demo                        two gateways with real traffic, cleaned up after

Exit codes: 0 done, 1 failed, 2 wrong usage, 3 the gateway is not running.
A look-up may leave NAME out while one gateway runs; what changes something needs it.";

/// Drives a Ringway gateway and looks into it while it runs.
#[derive(Debug, Parser)]
#[command(
    name = "ringway",
    version,
    about = "Drives a Ringway gateway and looks into it while it runs",
    after_help = EXAMPLES,
    max_term_width = 100,
    disable_help_subcommand = true,
    subcommand_required = true,
    arg_required_else_help = true
)]
pub(crate) struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The subcommands; each of them works.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Start a gateway from a configuration file
    #[command(after_help = "\
Examples:
  ringway up wg0                    /etc/ringway/wg0.toml, else /etc/ringway/wg0.conf
  ringway up ./wg0.conf             a wg-quick file; the interface is wg0
  ringway up wg0 --workers 4 --cpus 0-3
  ringway up wg0 --check            print the plan and what differs from wg-quick")]
    Up(UpArgs),
    /// Stop a gateway: its processes, interface, addresses and routes go
    #[command(after_help = "Example:\n  ringway down wg0")]
    Down(NameArgs),
    /// Read the configuration file again; the file wins
    #[command(after_help = "\
Examples:
  ringway reload wg0
  ringway reload wg0 --keep-runtime    peers made by `wg set` stay

Learned endpoints stay in any case. A file with an error changes nothing.")]
    Reload(ReloadArgs),
    /// The gateway at a glance
    #[command(after_help = LOOK_EXAMPLES)]
    Status(LookArgs),
    /// The processes: packets, bits, drops and how busy each of them is
    #[command(after_help = LOOK_EXAMPLES)]
    Workers(LookArgs),
    /// The peers: endpoint, last handshake, transfer, and why one does not connect
    #[command(after_help = LOOK_EXAMPLES)]
    Peers(LookArgs),
    /// The routing table: which peer an inner address belongs to
    #[command(after_help = "\
Examples:
  ringway routes wg0
  ringway routes --for 10.1.2.3    the most specific route, and its peer")]
    Routes(RoutesArgs),
    /// What was dropped: count, rate, worker, stage, reason and a hint
    #[command(after_help = LOOK_EXAMPLES)]
    Drops(LookArgs),
    /// The rings between the processes: size, fill, drops, wakeups
    #[command(after_help = LOOK_EXAMPLES)]
    Rings(LookArgs),
    /// Where the gateway listens
    #[command(after_help = LOOK_EXAMPLES)]
    Sockets(LookArgs),
    /// The shared memory: segments, sizes, fill
    #[command(after_help = LOOK_EXAMPLES)]
    Shm(LookArgs),
    /// Write a new private key to standard output
    #[command(after_help = "Example:\n  (umask 077; ringway genkey > private.key)")]
    Genkey,
    /// Read a private key on standard input, write its public key
    #[command(after_help = "Example:\n  ringway pubkey < private.key > public.key")]
    Pubkey,
    /// Write a new preshared key to standard output
    #[command(after_help = "Example:\n  (umask 077; ringway genpsk > preshared.key)")]
    Genpsk,
    /// Two gateways in network namespaces of their own, real traffic, live figures; cleans up
    #[command(after_help = "\
Examples:
  sudo ringway demo
  sudo ringway demo --seconds 10 --workers 4

Needs root, iproute2, ping and iperf3 (root installs what is missing by apt-get).
All traffic stays inside the two namespaces. Ctrl-C ends it and cleans up too.")]
    Demo(DemoArgs),
    /// Write a completion script for a shell to standard output
    #[command(after_help = "\
Examples:
  ringway completions bash > /etc/bash_completion.d/ringway
  ringway completions zsh  > /usr/local/share/zsh/site-functions/_ringway
  ringway completions fish > ~/.config/fish/completions/ringway.fish")]
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Write the manual page ringway(8), made from this help, to standard output
    #[command(hide = true)]
    Man,
}

const LOOK_EXAMPLES: &str = "\
Options work alike for every look-up:
  --json             one document, field names that scripts can rely on
  --watch            again every second, with rates; q or Ctrl-C ends
  --watch 5 --json   a document a line, every 5 seconds";

/// Arguments of `up`.
#[derive(Debug, Args)]
pub(crate) struct UpArgs {
    /// A wg-quick file (NAME.conf) or NAME.toml; a bare NAME is looked for in /etc/ringway
    #[arg(value_name = "FILE|NAME")]
    pub(crate) file: PathBuf,
    /// Worker processes: a number, or `auto` for one per CPU
    #[arg(
        long,
        value_name = "N|auto",
        env = "RINGWAY_WORKERS",
        hide_env_values = true
    )]
    pub(crate) workers: Option<WorkersSetting>,
    /// Shards (TUN queues and sockets), a power of two up to 64; fixed at start
    #[arg(long, value_name = "S", env = "RINGWAY_SHARDS", hide_env_values = true, value_parser = shards)]
    pub(crate) shards: Option<u8>,
    /// CPUs that the workers are pinned to, in turn, as taskset writes them: 0-3,6
    #[arg(
        long,
        value_name = "LIST",
        env = "RINGWAY_CPUS",
        hide_env_values = true
    )]
    pub(crate) cpus: Option<CpuList>,
    /// How an idle worker waits: epoll, busy, adaptive or napi
    #[arg(
        long,
        value_name = "MODE",
        env = "RINGWAY_POLL",
        hide_env_values = true
    )]
    pub(crate) poll: Option<PollMode>,
    /// Stay in the foreground, log to standard error
    #[arg(short, long)]
    pub(crate) foreground: bool,
    /// Say what would be done and what differs from wg-quick, change nothing
    #[arg(long, conflicts_with = "foreground")]
    pub(crate) check: bool,
}

/// The gateway that a change is for.
#[derive(Debug, Args)]
pub(crate) struct NameArgs {
    /// The gateway
    pub(crate) name: String,
}

/// Arguments of `reload`.
#[derive(Debug, Args)]
pub(crate) struct ReloadArgs {
    /// The gateway
    pub(crate) name: String,
    /// Keep peers that were made at run time and are not in the file
    #[arg(long)]
    pub(crate) keep_runtime: bool,
}

/// Arguments that every look-up takes.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct LookArgs {
    /// The gateway; may be left out while one runs
    pub(crate) name: Option<String>,
    /// One JSON document instead of a table
    #[arg(long)]
    pub(crate) json: bool,
    /// Look again every S seconds (1 when left out) and show rates
    #[arg(long, value_name = "S", num_args = 0..=1, default_missing_value = "1")]
    pub(crate) watch: Option<String>,
}

/// Arguments of `routes`.
#[derive(Debug, Args)]
pub(crate) struct RoutesArgs {
    /// What every look-up takes.
    #[command(flatten)]
    pub(crate) look: LookArgs,
    /// Only the route that this inner address takes
    #[arg(long = "for", value_name = "ADDRESS")]
    pub(crate) address: Option<IpAddr>,
}

/// Arguments of `demo`.
#[derive(Debug, Args)]
pub(crate) struct DemoArgs {
    /// Seconds of iperf3 through the tunnel, 1 to 20
    #[arg(long, value_name = "N", default_value_t = 6, value_parser = clap::value_parser!(u8).range(1..=20))]
    pub(crate) seconds: u8,
    /// Worker processes of each gateway: a number, or `auto` for one per CPU
    #[arg(long, value_name = "N|auto", default_value = "auto")]
    pub(crate) workers: WorkersSetting,
}

/// The command line of this process; an environment variable that is empty counts as unset.
pub(crate) fn parse() -> Result<Cli, clap::Error> {
    let empty = |name: &OsStr| std::env::var_os(name).is_some_and(|value| value.is_empty());
    let matches = without(Cli::command(), empty).try_get_matches()?;
    Cli::from_arg_matches(&matches)
}

/// The command without the environment variables that `ignored` names.
fn without(command: clap::Command, ignored: impl Fn(&OsStr) -> bool) -> clap::Command {
    command.mut_subcommand("up", |up| {
        up.mut_args(|argument| {
            if argument.get_env().is_some_and(&ignored) {
                argument.env(Resettable::Reset)
            } else {
                argument
            }
        })
    })
}

fn shards(text: &str) -> Result<u8, String> {
    match text.parse::<u8>() {
        Ok(count) if count.is_power_of_two() && count <= MAX_SHARDS => Ok(count),
        _ => Err(format!("give a power of two from 1 to {MAX_SHARDS}")),
    }
}

/// A parse error as one line: what, why, what to do.
pub(crate) fn one_line(error: &clap::Error) -> String {
    let rendered = error.to_string();
    let told = rendered.split("\nUsage:").next().unwrap_or(&rendered);
    let told = told.split("\nFor more information").next().unwrap_or(told);
    let words: Vec<&str> = told
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .collect();
    let text = words.join(" ");
    let text = text.strip_prefix("error: ").unwrap_or(&text);
    let text = text.replace(" tip: ", "; ");
    format!("{text} (try --help)")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn an_empty_variable_is_not_asked() {
        let asked = |command: clap::Command| {
            let up = command.find_subcommand("up").unwrap();
            let names = up.get_arguments().filter_map(clap::Arg::get_env);
            names.map(OsStr::to_owned).collect::<Vec<_>>()
        };
        let all = asked(without(Cli::command(), |_| false));
        assert_eq!(all.len(), 4);
        let rest = asked(without(Cli::command(), |name| name == "RINGWAY_CPUS"));
        assert_eq!(rest.len(), 3);
        assert!(!rest.contains(&"RINGWAY_CPUS".into()));
    }

    #[test]
    fn usage_errors_are_one_line() {
        for arguments in [
            &["ringway", "pears"][..],
            &["ringway", "down"],
            &["ringway", "workers", "--jsn"],
            &["ringway", "demo", "--seconds", "99"],
            &["ringway", "routes", "--for", "nowhere"],
        ] {
            let error = Cli::try_parse_from(arguments).unwrap_err();
            let line = one_line(&error);
            assert!(!line.contains('\n'), "{line}");
            assert!(line.ends_with("(try --help)"), "{line}");
            assert!(!line.starts_with("error"), "{line}");
        }
    }

    #[test]
    fn watch_takes_a_number_or_nothing() {
        let parse = |arguments: &[&str]| match Cli::try_parse_from(arguments).unwrap().command {
            Command::Workers(look) => (look.name, look.watch),
            other => panic!("{other:?}"),
        };
        assert_eq!(
            parse(&["ringway", "workers", "--watch"]),
            (None, Some("1".into()))
        );
        assert_eq!(
            parse(&["ringway", "workers", "wg0", "--watch", "2"]),
            (Some("wg0".into()), Some("2".into()))
        );
    }
}
