//! The name servers that go with the interface, set as wg-quick sets them: by `resolvconf`.

use crate::job::{Job, JobError};
use std::io;
use std::net::IpAddr;
use std::process::Command;

/// Why the name servers could not be set.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DnsError {
    /// The program is not there.
    #[error(
        "DNS: resolvconf is not installed: install openresolv or systemd-resolved, or take DNS out of the file"
    )]
    NoResolvconf,
    /// It failed.
    #[error("DNS: {0}")]
    Job(#[from] JobError),
}

/// The name servers and search domains of an interface.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Dns {
    /// The servers.
    pub(crate) servers: Vec<IpAddr>,
    /// The domains.
    pub(crate) search: Vec<String>,
}

impl Dns {
    /// Whether there is nothing to set.
    pub(crate) fn is_empty(&self) -> bool {
        self.servers.is_empty() && self.search.is_empty()
    }
}

/// Starts setting them, in the place of what was set before.
pub(crate) fn start_set(name: &str, dns: &Dns) -> Result<Job, DnsError> {
    let mut command = Command::new("resolvconf");
    command.args(["-a", &record(name), "-m", "0", "-x"]);
    run("resolvconf -a", command, &lines(dns))
}

/// Starts taking them back.
pub(crate) fn start_unset(name: &str) -> Result<Job, DnsError> {
    let mut command = Command::new("resolvconf");
    command.args(["-d", &record(name), "-f"]);
    run("resolvconf -d", command, "")
}

fn run(what: &str, command: Command, input: &str) -> Result<Job, DnsError> {
    Job::start(what.to_owned(), command, input).map_err(|error| match error {
        JobError::Start { error, .. } if error.kind() == io::ErrorKind::NotFound => {
            DnsError::NoResolvconf
        }
        other => other.into(),
    })
}

fn lines(dns: &Dns) -> String {
    let mut lines: Vec<String> = dns
        .servers
        .iter()
        .map(|server| format!("nameserver {server}\n"))
        .collect();
    if !dns.search.is_empty() {
        lines.push(format!("search {}\n", dns.search.join(" ")));
    }
    lines.concat()
}

/// The name of the record: with the first prefix that Debian's resolvconf sorts by, where it is
/// there, so that the tunnel's servers come first. Not so where `resolvconf` is systemd's
/// `resolvectl`: that takes the name for the interface's.
fn record(name: &str) -> String {
    if is_resolvectl() {
        return name.to_owned();
    }
    let order = std::fs::read_to_string("/etc/resolvconf/interface-order").unwrap_or_default();
    format!("{}{name}", prefix(&order))
}

fn is_resolvectl() -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .map(|directory| directory.join("resolvconf"))
        .find(|program| program.is_file())
        .and_then(|program| program.canonicalize().ok())
        .is_some_and(|program| program.ends_with("resolvectl"))
}

fn prefix(order: &str) -> String {
    order
        .lines()
        .filter_map(|line| line.strip_suffix('*'))
        .find(|word| {
            !word.is_empty()
                && word
                    .bytes()
                    .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
        })
        .map_or_else(String::new, |word| format!("{word}."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_and_domains() {
        let servers = vec!["10.0.0.1".parse().unwrap(), "fd00::1".parse().unwrap()];
        let mut dns = Dns {
            servers,
            search: Vec::new(),
        };
        assert_eq!(lines(&dns), "nameserver 10.0.0.1\nnameserver fd00::1\n");
        dns.search = vec!["a.example".into(), "b.example".into()];
        assert!(lines(&dns).ends_with("search a.example b.example\n"));
    }

    #[test]
    fn the_record_sorts_first() {
        assert_eq!(prefix("# comment\nlo.inet6\nlo.*\ntun*\ntap*\n"), "tun.");
        assert_eq!(prefix(""), "");
    }
}
