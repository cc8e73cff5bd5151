//! What the configuration puts on the interface: addresses, MTU, routes, policy rules, by the
//! rules of wg-quick, and how each is taken back.

#[cfg(feature = "firewall")]
use crate::firewall;
use crate::netlink::{NetlinkError, Rtnetlink, Rule, Whereabouts};
use ringway_proto::config::{Config, Table};
use ringway_proto::prefix::Prefix;
use std::collections::{BTreeMap, BTreeSet};
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

/// How many routes are made or removed before the loop turns again: a few milliseconds.
const ROUTES_A_TURN: usize = 256;

/// What was put on the interface.
#[derive(Default)]
pub(crate) struct Setup {
    addresses: BTreeSet<Prefix>,
    /// Each with its table.
    routes: BTreeMap<Prefix, Option<u32>>,
    /// An address was removed, and other addresses and routes may have gone with it.
    swept: bool,
    diversions: Vec<Diversion>,
    /// With the addresses and the mark that it is for.
    firewall: Option<(Vec<IpAddr>, u32, firewall::Guard)>,
}

/// The policy rules of a default route of one family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Diversion {
    ipv4: bool,
    mark: u32,
}

impl Diversion {
    /// The last one added is asked first.
    fn rules(self) -> [Rule; 2] {
        [Rule::NotMarked(self.mark), Rule::MainButDefault]
    }
}

/// Routes that are still to be made and removed, each with its table.
#[derive(Debug)]
pub(crate) struct RouteWork {
    name: String,
    index: u32,
    add: std::vec::IntoIter<(Prefix, Option<u32>)>,
    remove: std::vec::IntoIter<(Prefix, Option<u32>)>,
    diversions: Vec<Diversion>,
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
    /// An IPv6 address or route where there is no IPv6.
    #[error(
        "{0}: this host has no IPv6: enable it (sysctl net.ipv6.conf.all.disable_ipv6=0), or take IPv6 out of the file"
    )]
    NoIpv6(NetlinkError),
    /// No firewall table.
    #[error("{0}")]
    Firewall(#[from] firewall::FirewallError),
}

impl SetupError {
    fn of(error: NetlinkError, prefix: Prefix) -> SetupError {
        SetupError::in_family(error, prefix.is_ipv4())
    }

    /// A kernel without IPv6 says `EOPNOTSUPP`; one that has it disabled `EACCES`, or for a route
    /// that it does not know the device.
    fn in_family(error: NetlinkError, ipv4: bool) -> SetupError {
        use nix::libc::{EACCES, EAFNOSUPPORT, ENODEV, EOPNOTSUPP};
        match error.errno() {
            EACCES | EAFNOSUPPORT | ENODEV | EOPNOTSUPP if !ipv4 => SetupError::NoIpv6(error),
            _ => SetupError::Netlink(error),
        }
    }

    /// The error number, for the UAPI.
    pub(crate) fn errno(&self) -> i32 {
        match self {
            SetupError::Netlink(error) | SetupError::NoIpv6(error) => error.errno(),
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
                netlink
                    .add_address(wanted.index, *address)
                    .map_err(|error| SetupError::of(error, *address))?;
            }
        }
        self.addresses = new;
        Ok(())
    }

    /// Begins to bring routes to what is wanted, and with a default route the rules and the firewall
    /// table; [`go_on`](Setup::go_on) does the rest.
    pub(crate) fn begin_routes(
        &mut self,
        netlink: &mut Rtnetlink,
        wanted: Wanted<'_>,
    ) -> Result<RouteWork, SetupError> {
        let new = routes(wanted);
        let tables: BTreeMap<Prefix, Option<u32>> = new
            .iter()
            .map(|prefix| (*prefix, table_of(wanted, *prefix)))
            .collect();
        let swept = std::mem::take(&mut self.swept);
        let add: Vec<(Prefix, Option<u32>)> = longest_first(&new)
            .into_iter()
            .map(|prefix| (prefix, tables[&prefix]))
            .filter(|(prefix, table)| swept || self.routes.get(prefix) != Some(table))
            .collect();
        let remove: Vec<(Prefix, Option<u32>)> = self
            .routes
            .iter()
            .filter(|(prefix, table)| tables.get(prefix) != Some(table))
            .map(|(prefix, table)| (*prefix, *table))
            .collect();
        let wanted_rules: Vec<Diversion> = new
            .iter()
            .filter_map(|prefix| {
                let mark = default_table(wanted, *prefix)?;
                let ipv4 = prefix.is_ipv4();
                Some(Diversion { ipv4, mark })
            })
            .collect();
        for diversion in &wanted_rules {
            self.divert(netlink, *diversion)?;
            self.guard(wanted, diversion.mark)?;
        }
        Ok(RouteWork {
            name: wanted.name.to_owned(),
            index: wanted.index,
            add: add.into_iter(),
            remove: remove.into_iter(),
            diversions: wanted_rules,
        })
    }

    /// Does a part of the work; `true`: all is done.
    pub(crate) fn go_on(
        &mut self,
        netlink: &mut Rtnetlink,
        work: &mut RouteWork,
    ) -> Result<bool, SetupError> {
        for (prefix, table) in work.add.by_ref().take(ROUTES_A_TURN) {
            let known = self.routes.get(&prefix) == Some(&table);
            match netlink.add_route(work.index, prefix, table) {
                Err(error) if error.errno() == nix::libc::EEXIST && known => {}
                Err(error) if error.errno() == nix::libc::EEXIST => {
                    let name = work.name.clone();
                    return Err(SetupError::RouteTaken { prefix, name });
                }
                other => other.map_err(|error| SetupError::of(error, prefix))?,
            }
            if let Some(former) = self.routes.insert(prefix, table) {
                if former != table {
                    netlink.remove_route(work.index, prefix, former)?;
                }
            }
        }
        if work.add.len() > 0 {
            return Ok(false);
        }
        for (prefix, table) in work.remove.by_ref().take(ROUTES_A_TURN) {
            // Not when it is in another table now, and out of this one already.
            if self.routes.get(&prefix) == Some(&table) {
                netlink.remove_route(work.index, prefix, table)?;
                self.routes.remove(&prefix);
            }
        }
        if work.remove.len() > 0 {
            return Ok(false);
        }
        let stay = &work.diversions;
        self.undo_rules(netlink, |diversion| !stay.contains(&diversion));
        if self.diversions.is_empty() {
            self.firewall = None;
        }
        Ok(true)
    }

    /// The default routes that have rules: whether of IPv4, and the mark.
    pub(crate) fn diversions(&self) -> Vec<(bool, u32)> {
        let all = self.diversions.iter();
        all.map(|diversion| (diversion.ipv4, diversion.mark))
            .collect()
    }

    /// Takes over the rules of a predecessor that was killed, to be undone with our own.
    pub(crate) fn inherit(&mut self, diversions: &[(bool, u32)]) {
        let all = diversions.iter();
        self.diversions.extend(all.map(|(ipv4, mark)| Diversion {
            ipv4: *ipv4,
            mark: *mark,
        }));
    }

    /// Takes back what does not go with the interface: rules and the firewall table.
    pub(crate) fn undo(&mut self, netlink: &mut Rtnetlink) {
        self.undo_rules(netlink, |_| true);
        self.firewall = None;
    }

    /// Lets everything but the gateway's own datagrams look in the default route's table.
    fn divert(&mut self, netlink: &mut Rtnetlink, diversion: Diversion) -> Result<(), SetupError> {
        if self.diversions.contains(&diversion) {
            return Ok(());
        }
        // Noted first: when the second rule fails, the first is taken back with it.
        self.diversions.push(diversion);
        for rule in diversion.rules() {
            netlink
                .add_rule(rule, diversion.ipv4)
                .map_err(|error| SetupError::in_family(error, diversion.ipv4))?;
        }
        if diversion.ipv4 {
            fs::write(SRC_VALID_MARK, "1").map_err(SetupError::SourceValidMark)?;
        }
        Ok(())
    }

    fn undo_rules(&mut self, netlink: &mut Rtnetlink, of: impl Fn(Diversion) -> bool) {
        self.diversions.retain(|diversion| {
            if !of(*diversion) {
                return true;
            }
            for rule in diversion.rules() {
                if let Err(error) = netlink.remove_rule(rule, diversion.ipv4) {
                    tracing::warn!("{error}");
                }
            }
            false
        });
    }

    fn guard(&mut self, wanted: Wanted<'_>, mark: u32) -> Result<(), SetupError> {
        let addresses: Vec<IpAddr> = wanted.addresses.iter().map(Prefix::address).collect();
        if self
            .firewall
            .as_ref()
            .is_some_and(|(present, of, _)| (present, *of) == (&addresses, mark))
        {
            return Ok(());
        }
        // Two tables can't have one name.
        self.firewall = None;
        let guard = firewall::Guard::install(wanted.name, &addresses, mark)?;
        self.firewall = Some((addresses, mark, guard));
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
                let mut work = setup.begin_routes(&mut netlink, wanted).unwrap();
                while !setup.go_on(&mut netlink, &mut work).unwrap() {}
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
    fn routes_follow_the_table() {
        if !nix::unistd::geteuid().is_root() {
            return;
        }
        std::thread::spawn(|| {
            nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET).unwrap();
            let _tun = crate::tun::Tun::create("t4", 2).unwrap();
            let mut netlink = Rtnetlink::open().unwrap();
            let index = netlink.link_named("t4", Whereabouts::Here).unwrap().index;
            netlink.set_link_up(index, 1420).unwrap();
            let mut setup = Setup::default();
            let allowed = prefixes(&["10.20.0.0/16", "10.21.0.0/16"]);
            let mut place = |table, fwmark, routes: &[Prefix]| {
                let wanted = Wanted {
                    name: "t4",
                    index,
                    addresses: &[],
                    routes,
                    table,
                    fwmark,
                };
                let mut work = setup.begin_routes(&mut netlink, wanted).unwrap();
                while !setup.go_on(&mut netlink, &mut work).unwrap() {}
                [7, 8].map(|table| netlink.table_is_empty(table).unwrap())
            };
            assert_eq!(place(Table::Auto, None, &allowed), [true, true]);
            assert_eq!(place(Table::Number(7), None, &allowed), [false, true]);
            assert_eq!(place(Table::Number(8), None, &allowed), [true, false]);
            assert_eq!(place(Table::Off, None, &allowed), [true, true]);
            let default = prefixes(&["0.0.0.0/0", "10.20.0.0/16"]);
            assert_eq!(place(Table::Auto, Some(7), &default), [false, true]);
            assert_eq!(place(Table::Auto, Some(8), &default), [true, false]);
            assert_eq!(
                setup.diversions,
                [Diversion {
                    ipv4: true,
                    mark: 8
                }]
            );
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
