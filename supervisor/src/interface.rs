//! What the configuration puts on the interface: addresses, MTU, routes, policy rules, by the
//! rules of wg-quick, and how each is taken back.

#[cfg(feature = "firewall")]
use crate::firewall;
use crate::netlink::{NetlinkError, Rtnetlink, Rule, Whereabouts};
use ringway_proto::config::{Config, Table};
use ringway_proto::prefix::Prefix;
use std::collections::BTreeSet;
use std::fs;
use std::net::{IpAddr, SocketAddr};

#[cfg(not(feature = "firewall"))]
mod firewall {
    //! The build without libnftnl: no table, and a word about it.

    use std::net::IpAddr;

    pub(super) struct Guard;

    #[derive(Debug, thiserror::Error)]
    pub(crate) enum FirewallError {}

    impl Guard {
        #[allow(clippy::unnecessary_wraps)]
        pub(super) fn install(_: &str, _: &[IpAddr], _: u32) -> Result<Guard, FirewallError> {
            tracing::warn!(
                "built without firewall support: the default route has no filter against spoofed packets"
            );
            Ok(Guard)
        }
    }
}

/// The MTU where no configuration and no route says one.
pub(crate) const DEFAULT_MTU: u32 = 1420;

/// What an outer IPv6 packet adds: 40 IP, 8 UDP, 16 header, 16 tag.
const OVERHEAD: u32 = 80;

/// The table and mark of a default route, as wg-quick has it, or the next that is free.
const FIRST_TABLE: u32 = 51820;

/// The reply filter that must know about the mark, since replies to the tunnel's own datagrams
/// come in by a device that the unmarked route does not name.
const SRC_VALID_MARK: &str = "/proc/sys/net/ipv4/conf/all/src_valid_mark";

/// What was put on the interface.
#[derive(Default)]
pub(crate) struct Setup {
    addresses: BTreeSet<Prefix>,
    routes: BTreeSet<Prefix>,
    /// An address was removed, and other addresses and routes may have gone with it.
    swept: bool,
    rules: Vec<(Rule, bool)>,
    firewall: Option<firewall::Guard>,
}

/// What the configuration wants.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wanted<'a> {
    /// The interface's name.
    pub(crate) name: &'a str,
    /// Its index.
    pub(crate) index: u32,
    /// Its addresses, host bits kept.
    pub(crate) addresses: &'a [Prefix],
    /// The allowed IPs of all peers.
    pub(crate) routes: &'a [Prefix],
    /// Where routes go.
    pub(crate) table: Table,
    /// The firewall mark of the sockets; with a default route it is the number of its table too.
    pub(crate) fwmark: Option<u32>,
}

/// Why the interface could not be set up.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SetupError {
    /// An address, a link, a rule.
    #[error("{0}")]
    Netlink(#[from] NetlinkError),
    /// Somebody else has the route.
    #[error(
        "route {prefix} to {name}: there is one to elsewhere already: remove it, or set Table = off or a number"
    )]
    RouteTaken {
        /// Where to.
        prefix: Prefix,
        /// The interface.
        name: String,
    },
    /// The kernel's filter could not be told.
    #[error(
        "{SRC_VALID_MARK}: {0}: a default route through the tunnel needs it to be 1; set it on the host, or set Table = off"
    )]
    SourceValidMark(std::io::Error),
    /// No firewall table.
    #[error("{0}")]
    Firewall(#[from] firewall::FirewallError),
}

impl SetupError {
    /// The error number, for the UAPI.
    pub(crate) fn errno(&self) -> i32 {
        match self {
            SetupError::Netlink(error) => error.errno(),
            SetupError::RouteTaken { .. } => nix::libc::EEXIST,
            SetupError::SourceValidMark(_) | SetupError::Firewall(_) => nix::libc::EPERM,
        }
    }
}

impl Setup {
    /// Brings addresses to what is wanted: those that are new come, those that left go.
    pub(crate) fn addresses(
        &mut self,
        netlink: &mut Rtnetlink,
        wanted: Wanted<'_>,
    ) -> Result<(), SetupError> {
        let new: BTreeSet<Prefix> = wanted.addresses.iter().copied().collect();
        for address in self.addresses.difference(&new) {
            netlink.remove_address(wanted.index, *address)?;
            // With an address the kernel removes others of its subnet, and with the last one of
            // IPv4 all routes (net/ipv4/devinet.c, fib_frontend.c).
            self.swept = true;
        }
        for address in wanted.addresses {
            if self.swept || !self.addresses.contains(address) {
                netlink.add_address(wanted.index, *address)?;
            }
        }
        self.addresses = new;
        Ok(())
    }

    /// Brings routes to what is wanted, and with a default route the rules and the firewall table.
    pub(crate) fn routes(
        &mut self,
        netlink: &mut Rtnetlink,
        wanted: Wanted<'_>,
    ) -> Result<(), SetupError> {
        let new = routes(wanted);
        let swept = std::mem::take(&mut self.swept);
        for prefix in longest_first(&new) {
            let known = self.routes.contains(&prefix);
            if known && !swept {
                continue;
            }
            if let (Some(mark), false) = (default_table(wanted, prefix), known) {
                self.divert(netlink, wanted, prefix.is_ipv4(), mark)?;
            }
            match netlink.add_route(wanted.index, prefix, table_of(wanted, prefix)) {
                Err(error) if error.errno() == nix::libc::EEXIST => {
                    if !known {
                        return Err(SetupError::RouteTaken {
                            prefix,
                            name: wanted.name.to_owned(),
                        });
                    }
                }
                other => other?,
            }
            self.routes.insert(prefix);
        }
        let old: Vec<Prefix> = self.routes.difference(&new).copied().collect();
        for prefix in old {
            netlink.remove_route(wanted.index, prefix, table_of(wanted, prefix))?;
            if default_table(wanted, prefix).is_some() {
                self.undo_rules(netlink, |ipv4| ipv4 == prefix.is_ipv4());
            }
            self.routes.remove(&prefix);
        }
        if self.rules.is_empty() {
            self.firewall = None;
        }
        Ok(())
    }

    /// Takes back what does not go with the interface: rules and the firewall table.
    pub(crate) fn undo(&mut self, netlink: &mut Rtnetlink) {
        self.undo_rules(netlink, |_| true);
        self.firewall = None;
    }

    /// Lets everything but the gateway's own datagrams look in the default route's table.
    fn divert(
        &mut self,
        netlink: &mut Rtnetlink,
        wanted: Wanted<'_>,
        ipv4: bool,
        mark: u32,
    ) -> Result<(), SetupError> {
        // The last one added is asked first.
        for rule in [Rule::NotMarked(mark), Rule::MainButDefault] {
            netlink.add_rule(rule, ipv4)?;
            self.rules.push((rule, ipv4));
        }
        if ipv4 {
            fs::write(SRC_VALID_MARK, "1").map_err(SetupError::SourceValidMark)?;
        }
        self.make_firewall(wanted, mark)
    }

    fn undo_rules(&mut self, netlink: &mut Rtnetlink, of: impl Fn(bool) -> bool) {
        self.rules.retain(|(rule, ipv4)| {
            if !of(*ipv4) {
                return true;
            }
            if let Err(error) = netlink.remove_rule(*rule, *ipv4) {
                tracing::warn!("{error}");
            }
            false
        });
    }

    fn make_firewall(&mut self, wanted: Wanted<'_>, mark: u32) -> Result<(), SetupError> {
        if self.firewall.is_none() {
            let addresses: Vec<IpAddr> = wanted.addresses.iter().map(Prefix::address).collect();
            self.firewall = Some(firewall::Guard::install(wanted.name, &addresses, mark)?);
        }
        Ok(())
    }
}

/// Every allowed IP of every peer.
pub(crate) fn allowed_ips(config: &Config) -> Vec<Prefix> {
    config
        .peers
        .iter()
        .flat_map(|peer| peer.allowed_ips.iter().copied())
        .collect()
}

/// The firewall mark that the configuration's default route needs and has not.
pub(crate) fn choose_mark(
    netlink: &mut Rtnetlink,
    table: Table,
    fwmark: Option<u32>,
    routes: &[Prefix],
) -> Result<Option<u32>, NetlinkError> {
    if table != Table::Auto || fwmark.is_some() || !routes.iter().any(Prefix::is_default) {
        return Ok(None);
    }
    let mut table = FIRST_TABLE;
    while !netlink.table_is_empty(table)? {
        table += 1;
    }
    Ok(Some(table))
}

/// The MTU as wg-quick computes it: the greatest on the way to an endpoint, else that of the
/// default route's device, less the overhead.
pub(crate) fn default_mtu(netlink: &mut Rtnetlink, config: &Config) -> u32 {
    let endpoints = config
        .peers
        .iter()
        .filter_map(|peer| peer.endpoint.as_ref()?.socket_addr());
    let outer = endpoints
        .filter_map(|endpoint| way_mtu(netlink, endpoint))
        .max()
        .or_else(|| {
            let devices = netlink.default_devices();
            devices
                .into_iter()
                .find_map(|index| netlink.link(index, None).ok())
                .map(|link| link.mtu)
        });
    // Loopback's 65536 is more than an IP packet may have.
    outer.map_or(DEFAULT_MTU, |mtu| {
        mtu.min(65535).saturating_sub(OVERHEAD).max(576)
    })
}

/// The MTU of the way to an address, and of the device where the route says none.
pub(crate) fn way_mtu(netlink: &mut Rtnetlink, to: SocketAddr) -> Option<u32> {
    let hop = netlink.route_of(to, 0).ok()?;
    hop.mtu
        .or_else(|| netlink.link(hop.ifindex, None).ok().map(|link| link.mtu))
}

/// Whether the interface can be given addresses and routes: not when it was moved.
pub(crate) fn reachable(whereabouts: Whereabouts) -> bool {
    whereabouts == Whereabouts::Here
}

/// The routes to make: no duplicates, and none that an address of the interface has brought.
fn routes(wanted: Wanted<'_>) -> BTreeSet<Prefix> {
    if wanted.table == Table::Off {
        return BTreeSet::new();
    }
    let connected = |prefix: &Prefix| {
        wanted.table == Table::Auto
            && wanted.addresses.iter().any(|address| {
                !address.is_host()
                    && address.length() <= prefix.length()
                    && address.contains(prefix.address())
            })
    };
    wanted
        .routes
        .iter()
        .map(Prefix::masked)
        .filter(|prefix| !connected(prefix))
        .collect()
}

fn table_of(wanted: Wanted<'_>, prefix: Prefix) -> Option<u32> {
    match wanted.table {
        Table::Number(number) => Some(number),
        _ => default_table(wanted, prefix),
    }
}

/// The table of a default route that the rules lead to.
fn default_table(wanted: Wanted<'_>, prefix: Prefix) -> Option<u32> {
    (wanted.table == Table::Auto && prefix.is_default())
        .then_some(wanted.fwmark)
        .flatten()
}

fn longest_first(prefixes: &BTreeSet<Prefix>) -> Vec<Prefix> {
    let mut sorted: Vec<Prefix> = prefixes.iter().copied().collect();
    sorted.sort_by_key(|prefix| std::cmp::Reverse(prefix.length()));
    sorted
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefixes(texts: &[&str]) -> Vec<Prefix> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn routes_that_an_address_brings_are_not_made() {
        let addresses = prefixes(&["10.9.0.1/24", "10.8.0.1/32", "fd00::1/64"]);
        let allowed = prefixes(&[
            "10.9.0.2/32",
            "10.9.0.0/16",
            "10.8.0.2/32",
            "fd00::2/128",
            "fd01::/64",
            "10.9.0.2/32",
        ]);
        let wanted = Wanted {
            name: "wg0",
            index: 1,
            addresses: &addresses,
            routes: &allowed,
            table: Table::Auto,
            fwmark: None,
        };
        let made: Vec<String> = longest_first(&routes(wanted))
            .iter()
            .map(Prefix::to_string)
            .collect();
        assert_eq!(made, ["fd01::/64", "10.8.0.2/32", "10.9.0.0/16"]);
        assert_eq!(
            routes(Wanted {
                table: Table::Number(7),
                ..wanted
            })
            .len(),
            5
        );
        assert!(
            routes(Wanted {
                table: Table::Off,
                ..wanted
            })
            .is_empty()
        );
    }

    #[test]
    fn a_change_of_address_loses_no_route() {
        if !nix::unistd::geteuid().is_root() {
            return;
        }
        std::thread::spawn(|| {
            nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET).unwrap();
            let _tun = crate::tun::Tun::create("t3", 2).unwrap();
            let mut netlink = Rtnetlink::open().unwrap();
            let index = netlink.link_named("t3", Whereabouts::Here).unwrap().index;
            netlink.set_link_up(index, 1420).unwrap();
            let mut setup = Setup::default();
            let allowed = prefixes(&["10.20.0.0/16", "10.21.0.0/16"]);
            for addresses in [
                &["10.8.0.1/24"][..],
                &["10.8.0.2/24", "10.8.0.3/24"],
                &["10.8.0.3/24"],
            ] {
                let addresses = prefixes(addresses);
                let wanted = Wanted {
                    name: "t3",
                    index,
                    addresses: &addresses,
                    routes: &allowed,
                    table: Table::Auto,
                    fwmark: None,
                };
                setup.addresses(&mut netlink, wanted).unwrap();
                setup.routes(&mut netlink, wanted).unwrap();
                for to in ["10.20.0.1:1", "10.21.0.1:1", "10.8.0.9:1"] {
                    assert_eq!(
                        netlink.route_of(to.parse().unwrap(), 0).unwrap().ifindex,
                        index,
                        "{to}"
                    );
                }
                let source = netlink
                    .route_of("10.8.0.9:1".parse().unwrap(), 0)
                    .unwrap()
                    .source;
                assert!(
                    addresses
                        .iter()
                        .any(|address| Some(address.address()) == source),
                    "{source:?}"
                );
            }
        })
        .join()
        .unwrap();
    }

    #[test]
    fn a_default_route_goes_to_the_table_of_the_mark() {
        let wanted = Wanted {
            name: "wg0",
            index: 1,
            addresses: &[],
            routes: &[],
            table: Table::Auto,
            fwmark: Some(51820),
        };
        let all = prefixes(&["0.0.0.0/0", "10.0.0.0/8"]);
        assert_eq!(table_of(wanted, all[0]), Some(51820));
        assert_eq!(table_of(wanted, all[1]), None);
        let numbered = Wanted {
            table: Table::Number(9),
            ..wanted
        };
        assert_eq!(table_of(numbered, all[0]), Some(9));
        assert_eq!(default_table(numbered, all[0]), None);
    }
}
