//! `ringwayd`: the supervisor of a Ringway gateway, and by `--role` the processes it forks.

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod channel;
mod cli;
mod control;
mod daemonize;
mod dns;
mod fds;
#[cfg(feature = "firewall")]
mod firewall;
mod helper;
mod hooks;
mod meta;
mod netlink;
mod roles;
mod runtime;
mod sockets;
mod spawn;
mod supervisor;
mod sys;
mod tun;
mod watch;

fn main() {}
