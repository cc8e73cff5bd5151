//! The supervisor of one gateway: owns its descriptors, starts its processes, watches them, does
//! what needs privileges, and takes all of it back at the end.
//!
//! One thread, one loop ([`turn`]); what has an order ([`start`], [`stop`]) is straight code that
//! turns the loop while it waits.

mod change;
mod children;
mod orphans;
mod requests;
mod revival;
mod start;
mod stop;
mod turn;

use crate::channel::ChannelError;
use crate::cli::Cli;
use crate::control::{Server, Token};
use crate::daemonize::Report;
use crate::dns::{Dns, DnsError};
use crate::fault;
use crate::interface::{Setup, SetupError};
use crate::job::JobError;
use crate::netlink::watch::{AddressWatch, LinkWatch};
use crate::netlink::{LinkState, NetlinkError, Rtnetlink, Whereabouts};
use crate::runtime::{Runtime, RuntimeError};
use crate::segments::Segments;
use crate::settings::Settings;
use crate::sockets::{Groups, Listen, SocketError};
use crate::spawn::Child;
use crate::tun::{Tun, TunError};
use crate::watch::Signals;
use change::Change;
use revival::Revival;
use ringway_proto::config::Config;
use ringway_shm::segment::SegmentError;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::time::Instant;

/// What is to be run.
#[derive(Debug)]
pub(crate) struct Plan {
    /// The command line.
    pub(crate) cli: Cli,
    /// The configuration, all defaults when `wg` gives it.
    pub(crate) config: Config,
    /// The file it came from, absolute.
    pub(crate) config_path: Option<PathBuf>,
    /// Workers and shards.
    pub(crate) settings: Settings,
    /// The name's files.
    pub(crate) runtime: Runtime,
    /// The log of the children, and of all once the start is over; `None`: standard error.
    pub(crate) log: Option<File>,
}

/// A running gateway.
pub(crate) struct Supervisor<'a> {
    plan: &'a Plan,
    /// Holds the numbers at which children find their descriptors.
    _reserved: Vec<OwnedFd>,
    signals: Signals,
    segments: Segments,
    doorbells: Vec<OwnedFd>,
    /// `None` once it was taken down.
    tun: Option<Tun>,
    listen: Listen,
    groups: Groups,
    generation: u32,
    /// Groups that some process may still use: until all use this generation.
    retiring: Vec<(u32, Groups)>,
    /// Meta's requests to listen that wait until fewer retire, and until when.
    delayed: Vec<(u32, Listen, Instant)>,
    children: Vec<Child>,
    helper: Revival,
    /// When heartbeats were looked at last, and since when that goes on without a gap.
    looked_ns: u64,
    awake_since_ns: u64,
    netlink: Rtnetlink,
    links: LinkWatch,
    addresses: AddressWatch,
    link: LinkState,
    whereabouts: Whereabouts,
    setup: Setup,
    /// The mark that the default route's rules go by.
    fwmark: Option<u32>,
    /// The MTU that the configuration says.
    mtu: Option<u16>,
    /// What is set of name servers.
    dns: Dns,
    hooks: Hooks,
    /// The interface's part of a reload.
    change: Option<Change>,
    /// What the present reload could not do.
    remarks: Vec<String>,
    /// The process that [`finish`](Supervisor::finish) waits for.
    job: Option<u32>,
    control: Server,
    /// Meta's listener, until meta has it.
    uapi: Option<UnixListener>,
    /// The CPUs that the workers take in turn.
    cpus: Vec<u16>,
    /// What meta was asked, and who waits for it.
    asked: Vec<Asked>,
    last_id: u32,
    stop_waiters: Vec<Token>,
    phase: Phase,
    /// Whether somebody asked for the stop again while it runs.
    asked_again: bool,
    end: Option<End>,
    started_unix_ns: u64,
}

/// What is done at the end, as the configuration of today says.
#[derive(Debug, Default)]
struct Hooks {
    pre_down: Vec<String>,
    post_down: Vec<String>,
    save_config: bool,
}

/// A reload or a save that meta was asked for.
#[derive(Debug)]
struct Asked {
    id: u32,
    from: Option<Token>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Starting,
    Running,
    Stopping,
}

/// Why the gateway ends.
#[derive(Debug, Clone, PartialEq, Eq)]
enum End {
    /// Somebody asked for it.
    Asked,
    /// The interface was deleted.
    Deleted,
    /// Something failed: one line.
    Failed(String),
}

/// Why a gateway could not start, or ended.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SupervisorError {
    /// Shared memory.
    #[error("shared memory: {0}")]
    Segment(#[from] SegmentError),
    /// The interface.
    #[error("{0}")]
    Tun(#[from] TunError),
    /// The sockets.
    #[error("{0}")]
    Socket(#[from] SocketError),
    /// The runtime files.
    #[error("{0}")]
    Runtime(#[from] RuntimeError),
    /// Network configuration.
    #[error("{0}")]
    Netlink(#[from] NetlinkError),
    /// Addresses and routes.
    #[error("{0}")]
    Setup(#[from] SetupError),
    /// A hook.
    #[error("{0}")]
    Job(#[from] JobError),
    /// Name servers.
    #[error("{0}")]
    Dns(#[from] DnsError),
    /// A process could not be told something.
    #[error("message to {to}: {error}")]
    Channel {
        /// Which.
        to: String,
        /// Why.
        error: ChannelError,
    },
    /// Any other system call.
    #[error("{what}: {error}")]
    System {
        /// What was attempted.
        what: &'static str,
        /// The kernel's answer.
        error: io::Error,
    },
    /// A process did not come up.
    #[error(
        "{0} was not ready within {1} s: see the messages above, or try again with -f --log-level debug"
    )]
    NotReady(String, u64),
    /// It was ended from outside before it was up.
    #[error("stopped before it was ready")]
    Interrupted,
    /// The interface went away before it was up.
    #[error("the interface was deleted before it was ready")]
    Deleted,
    /// A process failed.
    #[error("{0}")]
    Failed(String),
}

/// Runs the gateway to its end; tells `report` when it is ready.
pub(crate) fn run(
    plan: &Plan,
    signals: Signals,
    report: &mut Report,
) -> Result<(), SupervisorError> {
    let mut supervisor = match Supervisor::create(plan, signals) {
        Ok(supervisor) => supervisor,
        Err(error) => {
            plan.runtime.remove(false);
            return Err(error);
        }
    };
    let served = supervisor.start().and_then(|()| {
        fault::at("report")?;
        report
            .ready(plan.log.as_ref())
            .map_err(|error| SupervisorError::System {
                what: "standard output",
                error,
            })?;
        supervisor.serve()
    });
    if served.is_err() && report.is_expected() {
        show_log(plan);
    }
    // After the start the log is all that tells what went wrong.
    let keep_log = served.is_err() && !report.is_expected() && plan.log.is_some();
    if let (Err(error), true) = (&served, keep_log) {
        // Before the stop's own messages: the cause comes first.
        tracing::error!("{error}");
    }
    supervisor.stop(keep_log);
    served
}

/// Tells the caller of a start that failed what the processes said.
fn show_log(plan: &Plan) {
    if let Some(text) = plan.runtime.read_log() {
        eprint!("{text}");
    }
}

impl Supervisor<'_> {
    /// Turns the loop until something ends the gateway.
    fn serve(&mut self) -> Result<(), SupervisorError> {
        self.phase = Phase::Running;
        tracing::info!(
            interface = self.plan.cli.name(),
            port = self.listen.port,
            workers = self.plan.settings.workers,
            shards = self.plan.settings.shards,
            "ready"
        );
        while self.end.is_none() {
            self.turn(None, turn::PERIOD);
        }
        match self.end.clone() {
            Some(End::Failed(why)) => Err(SupervisorError::Failed(why)),
            Some(End::Deleted) => {
                tracing::info!(
                    interface = self.plan.cli.name(),
                    "the interface was deleted: the gateway ends"
                );
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Notes why the gateway ends; the first reason counts.
    fn end(&mut self, end: End) {
        if self.phase != Phase::Stopping {
            self.end.get_or_insert(end);
        }
    }
}
