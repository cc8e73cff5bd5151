//! Groups of `SO_REUSEPORT` sockets: one a local address, one socket a shard.

use crate::control::GroupInfo;
use nix::errno::Errno;
use nix::sys::stat::fstat;
use ringway_shm::ids::ShardId;
use ringway_shm::state::Endpoint;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// The sockets of one generation.
#[derive(Default)]
pub(crate) struct Groups {
    groups: Vec<Group>,
}

/// One local address.
struct Group {
    info: GroupInfo,
    sockets: Vec<Socket>,
}

struct Socket {
    fd: OwnedFd,
    /// What it answered to a row of datagrams in one call, if it takes none.
    no_rows: Option<Errno>,
}

impl Groups {
    /// Deals `fds` out: `shards` to each group, in order. `None`: the numbers don't match.
    pub(crate) fn new(infos: Vec<GroupInfo>, fds: Vec<OwnedFd>, shards: u8) -> Option<Groups> {
        if fds.len() != infos.len() * usize::from(shards) || infos.len() > usize::from(u8::MAX) {
            return None;
        }
        let mut fds = fds.into_iter();
        let groups = infos
            .into_iter()
            .map(|info| Group {
                info,
                sockets: fds
                    .by_ref()
                    .take(shards.into())
                    .map(|fd| Socket { fd, no_rows: None })
                    .collect(),
            })
            .collect();
        Some(Groups { groups })
    }

    /// How many groups there are.
    pub(crate) fn len(&self) -> u8 {
        self.groups.len() as u8
    }

    /// All sockets, each with the number that tells it from others: a socket that is kept comes
    /// with another descriptor.
    pub(crate) fn identities(&self) -> impl Iterator<Item = (u8, ShardId, u64)> + '_ {
        self.groups.iter().enumerate().flat_map(|(number, group)| {
            group
                .sockets
                .iter()
                .enumerate()
                .filter_map(move |(i, socket)| {
                    let inode = fstat(&socket.fd).ok()?.st_ino;
                    Some((number as u8, ShardId(i as u8), inode))
                })
        })
    }

    /// A shard's socket in a group, and whether it is an IPv6 one.
    pub(crate) fn socket(&self, group: u8, shard: ShardId) -> Option<(BorrowedFd<'_>, bool)> {
        let group = self.groups.get(usize::from(group))?;
        let socket = group.sockets.get(shard.index())?;
        Some((socket.fd.as_fd(), group.info.family_v6))
    }

    /// Whether a socket takes rows of datagrams in one call (UDP_SEGMENT).
    pub(crate) fn takes_rows(&self, group: u8, shard: ShardId) -> bool {
        self.groups
            .get(usize::from(group))
            .and_then(|group| group.sockets.get(shard.index()))
            .is_some_and(|socket| socket.no_rows.is_none())
    }

    /// A socket refuses rows of datagrams: it gets none any more.
    pub(crate) fn refuse_rows(&mut self, group: u8, shard: ShardId, errno: Errno) {
        let socket = self
            .groups
            .get_mut(usize::from(group))
            .and_then(|group| group.sockets.get_mut(shard.index()));
        if let Some(socket) = socket {
            socket.no_rows = Some(errno);
        }
    }

    /// The group to reach `endpoint` through: of its family, and best the one that is bound to
    /// the local address in question.
    pub(crate) fn choose(&self, endpoint: &Endpoint) -> Option<u8> {
        let v6 = endpoint.remote.is_ipv6();
        let rank = |group: &Group| {
            if endpoint.local == Some(group.info.address) {
                2
            } else {
                u8::from(group.info.address.is_unspecified())
            }
        };
        let mut best: Option<(u8, u8)> = None;
        for (number, group) in self.groups.iter().enumerate() {
            let better = best.is_none_or(|(_, found)| rank(group) > found);
            if group.info.family_v6 == v6 && better {
                best = Some((number as u8, rank(group)));
            }
        }
        best.map(|(number, _)| number)
    }

    /// Whether a source address may be asked for on a group: a socket that is bound to an address
    /// of its own sends from no other.
    pub(crate) fn may_send_from(&self, group: u8, local: std::net::IpAddr) -> bool {
        self.groups
            .get(usize::from(group))
            .is_some_and(|group| group.info.address.is_unspecified() || group.info.address == local)
    }

    /// Whether any group listens on this port.
    pub(crate) fn listens_on(&self, port: u16) -> bool {
        self.groups.iter().any(|group| group.info.port == port)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{IpAddr, UdpSocket};

    fn groups(addresses: &[&str]) -> Groups {
        let infos = addresses
            .iter()
            .map(|address| {
                let address: IpAddr = address.parse().unwrap();
                GroupInfo {
                    family_v6: address.is_ipv6(),
                    address,
                    port: 51820,
                }
            })
            .collect();
        let fds = addresses
            .iter()
            .map(|_| UdpSocket::bind("127.0.0.1:0").unwrap().into())
            .collect();
        Groups::new(infos, fds, 1).unwrap()
    }

    fn endpoint(remote: &str, local: Option<&str>) -> Endpoint {
        Endpoint {
            remote: remote.parse().unwrap(),
            local: local.map(|local| local.parse().unwrap()),
            ifindex: 0,
        }
    }

    #[test]
    fn the_bound_address_wins_over_any_and_any_over_another() {
        let groups = groups(&["192.0.2.1", "0.0.0.0", "192.0.2.2", "::"]);
        let to = "198.51.100.1:1";
        assert_eq!(groups.choose(&endpoint(to, None)), Some(1));
        assert_eq!(groups.choose(&endpoint(to, Some("192.0.2.2"))), Some(2));
        assert_eq!(groups.choose(&endpoint(to, Some("192.0.2.9"))), Some(1));
        assert_eq!(groups.choose(&endpoint("[2001:db8::1]:1", None)), Some(3));
        assert!(groups.may_send_from(1, "192.0.2.9".parse().unwrap()));
        assert!(!groups.may_send_from(0, "192.0.2.9".parse().unwrap()));
    }

    #[test]
    fn no_group_of_the_family_is_none() {
        let groups = groups(&["192.0.2.1"]);
        assert_eq!(groups.choose(&endpoint("[2001:db8::1]:1", None)), None);
        assert_eq!(groups.choose(&endpoint("198.51.100.1:1", None)), Some(0));
    }

    #[test]
    fn a_wrong_number_of_sockets_is_refused() {
        let info = GroupInfo {
            family_v6: false,
            address: "0.0.0.0".parse().unwrap(),
            port: 1,
        };
        assert!(Groups::new(vec![info], Vec::new(), 2).is_none());
    }
}
