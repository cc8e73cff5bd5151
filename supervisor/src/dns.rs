//! The name servers that go with the interface, set as wg-quick sets them: by `resolvconf`.

use crate::job::{Job, JobError};
use ringway_proto::config::Interface;
use std::io;
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

/// Starts setting the servers and search domains.
pub(crate) fn start_set(name: &str, interface: &Interface) -> Result<Job, DnsError> {
    let mut command = Command::new("resolvconf");
    command.args(["-a", &record(name), "-m", "0", "-x"]);
    run("resolvconf -a", command, &lines(interface))
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

fn lines(interface: &Interface) -> String {
    let mut lines: Vec<String> = interface
        .dns
        .iter()
        .map(|server| format!("nameserver {server}\n"))
        .collect();
    if !interface.dns_search.is_empty() {
        lines.push(format!("search {}\n", interface.dns_search.join(" ")));
    }
    lines.concat()
}

/// The name of the record: with the first prefix that Debian's resolvconf sorts by, where it is
/// there, so that the tunnel's servers come first.
fn record(name: &str) -> String {
    let order = std::fs::read_to_string("/etc/resolvconf/interface-order").unwrap_or_default();
    format!("{}{name}", prefix(&order))
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
        let dns = vec!["10.0.0.1".parse().unwrap(), "fd00::1".parse().unwrap()];
        let mut interface = Interface {
            dns,
            ..Interface::default()
        };
        assert_eq!(
            lines(&interface),
            "nameserver 10.0.0.1\nnameserver fd00::1\n"
        );
        interface.dns_search = vec!["a.example".into(), "b.example".into()];
        assert!(lines(&interface).ends_with("search a.example b.example\n"));
    }

    #[test]
    fn the_record_sorts_first() {
        assert_eq!(prefix("# comment\nlo.inet6\nlo.*\ntun*\ntap*\n"), "tun.");
        assert_eq!(prefix(""), "");
    }
}
