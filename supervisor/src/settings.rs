//! How many workers and shards, on which CPUs: flags and environment over the file over the host.

use crate::cli::Cli;
use nix::sched::{CpuSet, sched_getaffinity};
use nix::unistd::Pid;
use ringway_proto::config::{CpuList, Interface, MAX_SHARDS, PollMode, WorkersSetting};
use std::fs;
use std::path::Path;

/// What a gateway runs with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Settings {
    /// How many workers.
    pub(crate) workers: u8,
    /// How many shards: a power of two, at least as many as workers.
    pub(crate) shards: u8,
    /// The CPUs, which the workers take in turn.
    pub(crate) cpus: Vec<u16>,
    /// Whether somebody chose them, and so their order.
    pub(crate) cpus_given: bool,
    /// How workers wait.
    pub(crate) poll: PollMode,
}

/// What the host offers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Host {
    /// The CPUs of the affinity mask.
    pub(crate) cpus: Vec<u16>,
    /// The CPUs that there are; empty when that is not known.
    pub(crate) online: Vec<u16>,
    /// How many CPUs' worth of time the control group allows.
    pub(crate) quota: Option<usize>,
}

/// Settings that don't go together.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SettingsError {
    /// A worker without a shard would have nothing to do.
    #[error(
        "{workers} workers but {shards} shards: every worker needs one; give --shards {needed} or fewer workers"
    )]
    TooFewShards {
        /// The workers.
        workers: u16,
        /// The shards.
        shards: u8,
        /// The shards that would do.
        needed: u16,
    },
    /// More than the segments hold.
    #[error("{0} workers: at most {MAX_SHARDS} are possible")]
    TooManyWorkers(u16),
    /// A CPU that is not there.
    #[error("CPU {0}: this host has no such CPU: list others (lscpu shows them)")]
    NoSuchCpu(u16),
    /// Not a power of two, or too many.
    #[error("{0} shards: give a power of two from 1 to {MAX_SHARDS}")]
    BadShards(u8),
}

impl Settings {
    /// What flags, environment and file ask for on this host.
    pub(crate) fn resolve(
        cli: &Cli,
        interface: &Interface,
        host: &Host,
    ) -> Result<Settings, SettingsError> {
        let workers = match cli
            .workers
            .or(interface.workers)
            .unwrap_or(WorkersSetting::Auto)
        {
            WorkersSetting::Count(count) => count,
            WorkersSetting::Auto => {
                let listed = cli
                    .cpus
                    .as_ref()
                    .or(interface.cpus.as_ref())
                    .map(|list| list.cpus().len());
                let cpus = listed.unwrap_or(host.cpus.len());
                cpus.min(host.quota.unwrap_or(usize::MAX))
                    .clamp(1, usize::from(MAX_SHARDS)) as u16
            }
        };
        if workers > u16::from(MAX_SHARDS) {
            return Err(SettingsError::TooManyWorkers(workers));
        }
        let shards = match cli.shards.or(interface.shards) {
            Some(shards) if !shards.is_power_of_two() || shards > MAX_SHARDS => {
                return Err(SettingsError::BadShards(shards));
            }
            Some(shards) if u16::from(shards) < workers => {
                return Err(SettingsError::TooFewShards {
                    workers,
                    shards,
                    needed: workers.next_power_of_two(),
                });
            }
            Some(shards) => shards,
            None => (2 * host.cpus.len().max(1))
                .max(usize::from(workers))
                .next_power_of_two()
                .min(usize::from(MAX_SHARDS)) as u8,
        };
        let given = cli.cpus.as_ref().or(interface.cpus.as_ref());
        let missing = |cpu: &&u16| !host.online.is_empty() && !host.online.contains(cpu);
        if let Some(cpu) = given.and_then(|list| list.cpus().iter().find(missing)) {
            return Err(SettingsError::NoSuchCpu(*cpu));
        }
        let cpus = given.map_or(host.cpus.as_slice(), CpuList::cpus);
        Ok(Settings {
            workers: workers as u8,
            shards,
            cpus: cpus.to_vec(),
            cpus_given: given.is_some(),
            poll: cli.poll.or(interface.poll).unwrap_or_default(),
        })
    }
}

impl Host {
    /// Asks this host.
    pub(crate) fn read() -> Host {
        let set = sched_getaffinity(Pid::from_raw(0)).unwrap_or_default();
        let cpus = (0..CpuSet::count())
            .filter(|cpu| set.is_set(*cpu).unwrap_or(false))
            .map(|cpu| cpu as u16)
            .collect();
        Host {
            cpus,
            online: online(Path::new("/sys/devices/system/cpu/online")),
            quota: quota(Path::new("/sys/fs/cgroup")),
        }
    }
}

/// The CPUs that the kernel lists there.
fn online(file: &Path) -> Vec<u16> {
    let text = fs::read_to_string(file).unwrap_or_default();
    let list: Result<CpuList, _> = text.trim().parse();
    list.map_or_else(|_| Vec::new(), |list| list.cpus().to_vec())
}

/// The tightest quota of this process's control group and those around it, in CPUs, rounded up.
fn quota(root: &Path) -> Option<usize> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    let own = groups.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let mut directory = root.join(own);
    let mut least: Option<usize> = None;
    loop {
        let limit = fs::read_to_string(directory.join("cpu.max"))
            .ok()
            .and_then(|text| parse_quota(&text));
        least = match (least, limit) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        };
        if directory == root || !directory.pop() {
            return least;
        }
    }
}

/// Reads `cpu.max`: `QUOTA PERIOD` in microseconds, or `max PERIOD`.
fn parse_quota(text: &str) -> Option<usize> {
    let mut words = text.split_whitespace();
    let quota: u64 = words.next()?.parse().ok()?;
    let period: u64 = words.next()?.parse().ok().filter(|period| *period > 0)?;
    Some((quota.div_ceil(period) as usize).max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cli(arguments: &[&str]) -> Cli {
        Cli::read(["ringwayd", "wg0"].iter().chain(arguments).copied()).unwrap()
    }

    fn host(cpus: u16) -> Host {
        Host {
            cpus: (0..cpus).collect(),
            online: (0..cpus).collect(),
            quota: None,
        }
    }

    fn resolve(arguments: &[&str], cpus: u16) -> Result<Settings, SettingsError> {
        Settings::resolve(&cli(arguments), &Interface::default(), &host(cpus))
    }

    #[test]
    fn one_worker_a_cpu_and_twice_the_shards() {
        for (cpus, workers, shards) in [(1, 1, 2), (2, 2, 4), (3, 3, 8), (32, 32, 64), (96, 64, 64)]
        {
            let settings = resolve(&[], cpus).unwrap();
            assert_eq!(
                (settings.workers, settings.shards),
                (workers, shards),
                "{cpus} CPUs"
            );
        }
    }

    #[test]
    fn more_workers_than_cores_get_their_shards() {
        let settings = resolve(&["--workers", "9"], 2).unwrap();
        assert_eq!((settings.workers, settings.shards), (9, 16));
    }

    #[test]
    fn more_workers_than_shards_are_refused() {
        let error = resolve(&["--workers", "5", "--shards", "4"], 2).unwrap_err();
        assert!(error.to_string().contains("--shards 8"), "{error}");
        assert!(matches!(
            resolve(&["--shards", "12"], 2),
            Err(SettingsError::BadShards(12))
        ));
    }

    #[test]
    fn a_cpu_that_is_not_there_is_refused() {
        let error = resolve(&["--cpus", "0-1,7"], 2).unwrap_err();
        assert!(error.to_string().starts_with("CPU 7"), "{error}");
        assert!(!online(Path::new("/sys/devices/system/cpu/online")).is_empty());
    }

    #[test]
    fn a_quota_caps_auto_but_no_count() {
        let host = Host {
            quota: Some(2),
            ..host(8)
        };
        let settings = |arguments: &[&str]| {
            Settings::resolve(&cli(arguments), &Interface::default(), &host).unwrap()
        };
        assert_eq!(settings(&[]).workers, 2);
        assert_eq!(settings(&["--workers", "4"]).workers, 4);
        assert_eq!(parse_quota("150000 100000\n"), Some(2));
        assert_eq!(parse_quota("max 100000\n"), None);
        assert_eq!(parse_quota("5000 100000"), Some(1));
    }

    #[test]
    fn flags_win_over_the_file() {
        let interface = Interface {
            workers: Some(WorkersSetting::Count(3)),
            poll: Some(PollMode::Busy),
            cpus: Some("1".parse().unwrap()),
            ..Interface::default()
        };
        let file = Settings::resolve(&cli(&[]), &interface, &host(4)).unwrap();
        assert_eq!(
            (file.workers, file.poll, file.cpus.as_slice()),
            (3, PollMode::Busy, &[1][..])
        );
        let flags = Settings::resolve(
            &cli(&["--workers", "auto", "--poll", "epoll", "--cpus", "0-1"]),
            &interface,
            &host(4),
        )
        .unwrap();
        assert_eq!((flags.workers, flags.poll), (2, PollMode::Epoll));
    }
}
