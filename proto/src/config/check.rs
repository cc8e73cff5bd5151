//! What `ringway up --check` tells: the steps of a start, and where they differ from wg-quick's.

use std::fmt::{self, Write as _};

use super::field::{FIELDS, Field, Format, Key, Section};
use super::write::{interface_values, peer_values};
use super::{Config, Interface, Limits, Peer, Table, WorkersSetting};
use crate::prefix::Prefix;

/// What starting a configuration would do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Check {
    /// What would be done, in order.
    pub steps: Vec<String>,
    /// What would be done at the end, in order.
    pub down_steps: Vec<String>,
    /// Where wg-quick would do otherwise with the same file.
    pub differences: Vec<String>,
}

/// Says what `ringway up` would do for the interface `name`; does nothing and holds no secret.
pub fn check(config: &Config, name: &str) -> Check {
    Check {
        steps: steps(config, name),
        down_steps: down_steps(config, name),
        differences: differences(config),
    }
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let numbered = |f: &mut fmt::Formatter<'_>, title: &str, steps: &[String]| {
            writeln!(f, "{title}")?;
            steps
                .iter()
                .zip(1..)
                .try_for_each(|(step, number)| writeln!(f, "{number:>4}. {step}"))
        };
        numbered(f, "up would:", &self.steps)?;
        numbered(f, "down would:", &self.down_steps)?;
        writeln!(f, "different from wg-quick:")?;
        self.differences
            .iter()
            .try_for_each(|difference| writeln!(f, "   - {difference}"))
    }
}

fn steps(config: &Config, name: &str) -> Vec<String> {
    let interface = &config.interface;
    let mut steps = hooks("PreUp", &interface.pre_up, name);
    steps.push(format!(
        "create the TUN interface {name} with {}",
        shards(interface)
    ));
    steps.push(listening(interface));
    steps.push(format!("start meta, the helper and {}", workers(interface)));
    steps.push(match &interface.private_key {
        Some(key) => format!("take the key whose public key is {}", key.public()),
        None => "have no private key: nobody can connect before `wg set` gives one".to_owned(),
    });
    steps.extend(config.peers.iter().map(peer_step));
    steps.extend(
        interface
            .addresses
            .iter()
            .map(|address| format!("add the address {address}")),
    );
    steps.push(match interface.mtu {
        Some(mtu) => format!("set the MTU to {mtu}"),
        None => "set the MTU to that of the route to the peers, less 80".to_owned(),
    });
    steps.push("set the interface up".to_owned());
    steps.extend(route_steps(config));
    let names: Vec<String> = interface
        .dns
        .iter()
        .map(ToString::to_string)
        .chain(interface.dns_search.clone())
        .collect();
    if !names.is_empty() {
        steps.push(format!("set DNS by resolvconf: {}", names.join(", ")));
    }
    steps.extend(hooks("PostUp", &interface.post_up, name));
    steps
}

fn down_steps(config: &Config, name: &str) -> Vec<String> {
    let interface = &config.interface;
    let mut steps = hooks("PreDown", &interface.pre_down, name);
    if interface.save_config {
        steps.push("write the running configuration into the file (SaveConfig)".to_owned());
    }
    steps.push(format!(
        "end every process and remove {name} with its addresses, routes, rules and DNS"
    ));
    steps.extend(hooks("PostDown", &interface.post_down, name));
    steps
}

fn hooks(key: &str, commands: &[String], name: &str) -> Vec<String> {
    commands
        .iter()
        .map(|command| format!("run {key}: {}", command.replace("%i", name)))
        .collect()
}

fn shards(interface: &Interface) -> String {
    match interface.shards {
        Some(shards) => format!("{shards} shards"),
        None => "at least twice as many shards as CPUs".to_owned(),
    }
}

fn listening(interface: &Interface) -> String {
    let port = match interface.listen_port {
        Some(port) if port != 0 => format!("UDP port {port}"),
        _ => "a free UDP port".to_owned(),
    };
    let addresses: Vec<_> = interface
        .listen_addresses
        .iter()
        .map(ToString::to_string)
        .collect();
    let place = if addresses.is_empty() {
        "every address".to_owned()
    } else {
        addresses.join(" and ")
    };
    let device = interface
        .bind_device
        .as_ref()
        .map(|device| format!(" of the device {device}"))
        .unwrap_or_default();
    let mark = interface
        .fwmark
        .map(|mark| format!(", firewall mark {mark:#x}"))
        .unwrap_or_default();
    format!("listen on {port} of {place}{device}{mark}")
}

fn workers(interface: &Interface) -> String {
    let workers = match interface.workers {
        Some(WorkersSetting::Count(1)) => "1 worker".to_owned(),
        Some(WorkersSetting::Count(count)) => format!("{count} workers"),
        Some(WorkersSetting::Auto) | None => "a worker per CPU".to_owned(),
    };
    let cpus = interface
        .cpus
        .as_ref()
        .map(|cpus| format!(" on the CPUs {cpus}"))
        .unwrap_or_default();
    format!(
        "{workers}{cpus}, poll mode {}",
        interface.poll.unwrap_or_default()
    )
}

fn peer_step(peer: &Peer) -> String {
    let mut step = format!("accept the peer {}", peer.label());
    if peer.allowed_ips.is_empty() {
        step.push_str(" without an allowed IP");
    } else {
        let allowed: Vec<_> = peer.allowed_ips.iter().map(ToString::to_string).collect();
        let _ = write!(step, " for {}", allowed.join(", "));
    }
    if let Some(endpoint) = &peer.endpoint {
        let _ = write!(step, ", at {endpoint}");
    }
    if let Some(seconds) = peer.persistent_keepalive {
        let _ = write!(step, ", keepalive every {seconds} s");
    }
    if peer.preshared_key.is_some() {
        step.push_str(", with a preshared key");
    }
    step
}

/// As wg-quick: the most specific first, and only what the addresses' own networks do not give already.
fn route_steps(config: &Config) -> Vec<String> {
    let interface = &config.interface;
    let mut routes: Vec<Prefix> = config
        .peers
        .iter()
        .flat_map(|peer| peer.allowed_ips.iter().copied())
        .collect();
    routes.sort_by_key(|route| std::cmp::Reverse(route.length()));
    let connected = |route: &Prefix| {
        interface
            .addresses
            .iter()
            .any(|network| network.length() <= route.length() && network.contains(route.address()))
    };
    match interface.table {
        Table::Off => Vec::new(),
        Table::Number(table) => routes.iter().map(|route| format!("add the route {route} to table {table}")).collect(),
        Table::Auto => routes
            .iter()
            .filter(|route| route.is_default() || !connected(route))
            .map(|route| match (route.is_default(), interface.fwmark) {
                (false, _) => format!("add the route {route}"),
                (true, Some(mark)) => format!(
                    "add the default route {route} to table {mark}, rules that lead there what lacks the firewall mark {mark:#x}, and a firewall table against spoofed replies"
                ),
                (true, None) => format!(
                    "add the default route {route} to a table that is free, from 51820 on, rules that lead there what lacks its number as firewall mark, and a firewall table against spoofed replies"
                ),
            })
            .collect(),
    }
}

fn differences(config: &Config) -> Vec<String> {
    let mut differences = vec![
        "the interface is a TUN device and its packets are handled by processes, not by the kernel's module; `wg` shows and sets it all the same"
            .to_owned(),
        "it ends with its supervisor: `ringway down`, SIGTERM, or removal of the interface".to_owned(),
    ];
    if config.peers.iter().any(|peer| {
        peer.endpoint
            .as_ref()
            .is_some_and(crate::endpoint::HostPort::is_name)
    }) {
        differences.push(
            "endpoints given as host names are resolved after the start, and again while their peer does not answer; wg-quick waits for the resolver and resolves once"
                .to_owned(),
        );
    }
    let own = own_keys(config);
    if !own.is_empty() {
        differences.push(format!(
            "wg-quick refuses a file with the keys {}, which only Ringway knows",
            own.join(", ")
        ));
    }
    if config.peers.iter().any(|peer| peer.name.is_some()) {
        differences
            .push("peers have names, which every tool shows; wg-quick knows none".to_owned());
    }
    if config.interface.save_config {
        differences.push(
            "SaveConfig keeps the file's names, host names of endpoints, addresses and DNS; wg-quick keeps no names and writes what runs: endpoints last seen, and addresses and DNS set at run time too. Both drop other comments, order the keys anew and fix a port that was random"
                .to_owned(),
        );
    }
    if !config.interface.pre_down.is_empty() {
        differences.push(
            "a PreDown that fails is a warning in the log and the gateway goes down all the same; wg-quick leaves it up"
                .to_owned(),
        );
    }
    differences
}

fn own_keys(config: &Config) -> Vec<&'static str> {
    let used = |field: &&Field| match field.section {
        // A name may as well stand in a comment, and a search domain is a DNS there.
        _ if matches!(field.key, Key::Name | Key::DnsSearch) => false,
        Section::Interface => !interface_values(&config.interface, field.key).is_empty(),
        Section::Peer => config
            .peers
            .iter()
            .any(|peer| !peer_values(peer, field.key).is_empty()),
        Section::Limits => false,
    };
    let mut keys: Vec<_> = FIELDS
        .iter()
        .filter(|field| field.own)
        .filter(used)
        .map(|field| field.name(Format::Conf))
        .collect();
    if config.interface.limits != Limits::default() {
        keys.push(Format::Conf.header(Section::Limits));
    }
    keys
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::config::parse_conf;

    fn checked(text: &str) -> Check {
        check(
            &parse_conf(text, Path::new("wg0.conf")).unwrap().config,
            "wg0",
        )
    }

    const KEYS: &str = "PrivateKey = yAnz5TF+lXXJte14tji3zlMNq+hd2rYUIgJBgB3fBmk=\n";
    const PEER: &str = "[Peer]\nPublicKey = xTIBA5rboUvnH4htodjb6e697QjLERt1NAB4mZqp8Dg=\n";

    #[test]
    fn the_steps_of_a_client() {
        let check = checked(&format!(
            "[Interface]\n{KEYS}Address = 10.9.0.2/24\nDNS = 10.9.0.1, corp\nMTU = 1400\nPreUp = before %i\nPostUp = after %i\nPreDown = bye\n\
             PostDown = gone %i\nSaveConfig = true\nWorkers = 2\n{PEER}# Name = gateway\nAllowedIPs = 0.0.0.0/0, 10.9.0.0/24, 192.0.2.0/24\n\
             PresharedKey = TrMvSoP4jYQlY6RIzBgbssQqY3vxI2Pi+y71lOWWXX0=\nEndpoint = gw.example:51820\nPersistentKeepalive = 25\n"
        ));
        assert_eq!(
            check.steps,
            [
                "run PreUp: before wg0",
                "create the TUN interface wg0 with at least twice as many shards as CPUs",
                "listen on a free UDP port of every address",
                "start meta, the helper and 2 workers, poll mode adaptive",
                "take the key whose public key is HIgo9xNzJMWLKASShiTqIybxZ0U3wGLiUeJ1PKf8ykw=",
                "accept the peer gateway for 0.0.0.0/0, 10.9.0.0/24, 192.0.2.0/24, at gw.example:51820, keepalive every 25 s, with a preshared key",
                "add the address 10.9.0.2/24",
                "set the MTU to 1400",
                "set the interface up",
                "add the route 192.0.2.0/24",
                "add the default route 0.0.0.0/0 to a table that is free, from 51820 on, rules that lead there what lacks its number as firewall mark, and a firewall table against spoofed replies",
                "set DNS by resolvconf: 10.9.0.1, corp",
                "run PostUp: after wg0",
            ]
        );
        assert_eq!(check.down_steps.len(), 4);
        assert_eq!(check.down_steps[3], "run PostDown: gone wg0");
        let text = check.to_string();
        assert!(
            text.contains("wg-quick refuses a file with the keys Workers, which only"),
            "{text}"
        );
        assert!(
            text.contains("host names are resolved after the start"),
            "{text}"
        );
        assert!(text.contains("   1. run PreUp: before wg0\n"), "{text}");
        assert!(text.contains("Both drop other comments, order"), "{text}");
        assert!(text.contains("a PreDown that fails is a warning"), "{text}");
    }

    #[test]
    fn no_secret_is_told() {
        let text = checked(&format!(
            "[Interface]\n{KEYS}{PEER}PresharedKey = TrMvSoP4jYQlY6RIzBgbssQqY3vxI2Pi+y71lOWWXX0=\n"
        ));
        assert!(
            !format!("{text}{text:?}").contains("yAnz5TF") && !text.to_string().contains("TrMvSo")
        );
    }

    #[test]
    fn a_table_takes_every_route_and_off_none() {
        let routes = |table: &str| {
            let text = format!(
                "[Interface]\nTable = {table}\nAddress = 10.0.0.1/8\nFwMark = 7\n{PEER}AllowedIPs = 10.1.0.0/16, ::/0\n"
            );
            checked(&text)
                .steps
                .into_iter()
                .filter(|step| step.starts_with("add the ") && step.contains("route "))
                .collect::<Vec<_>>()
        };
        assert_eq!(
            routes("9")[..2],
            [
                "add the route 10.1.0.0/16 to table 9",
                "add the route ::/0 to table 9"
            ]
        );
        assert_eq!(
            routes("off")
                .iter()
                .filter(|step| step.starts_with("add"))
                .count(),
            0
        );
        assert!(
            routes("auto")
                .iter()
                .any(|step| step.contains("lacks the firewall mark 0x7"))
        );
    }
}
