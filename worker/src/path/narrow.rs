//! What a path takes: too-long inner packets answered or cut, narrow paths told to meta.

use super::Context;
use crate::reports::Throttled;
use crate::udp::outbox::Narrow;
use ringway_proto::inner::Inner;
use ringway_proto::padding::padded_length;
use ringway_shm::ids::PeerSlot;
use ringway_shm::messages::Event;
use ringway_shm::state::PeerPath;

/// Outer IPv4 header, UDP header, message header and tag.
const OVERHEAD_V4: usize = 20 + 8 + 32;
/// The same for IPv6.
const OVERHEAD_V6: usize = 40 + 8 + 32;
/// What every IPv6 link takes (RFC 8200, section 5); no sender makes packets smaller than that
/// when asked to.
const LEAST_MTU_V6: usize = 1280;
/// What every IPv4 host takes (RFC 791).
const LEAST_MTU_V4: usize = 68;

/// What to do with an inner packet for a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fit {
    /// Send it, padded to this length.
    Padded(usize),
    /// Send it, padded to this length, and let the outer packet be fragmented.
    Outside(usize),
    /// Cut it into pieces of at most this length: IPv4 that allows it.
    Cut(usize),
    /// Tell the sender that this is the greatest length.
    Refuse(u16),
}

/// How a packet of `length` bytes goes to a peer.
pub(super) fn fit(
    length: usize,
    inner: Option<&Inner>,
    path: &PeerPath,
    interface_mtu: usize,
) -> Fit {
    let v6_outside = path
        .endpoint
        .is_some_and(|endpoint| endpoint.remote.is_ipv6());
    if path.path_mtu == 0 {
        return Fit::Padded(padded_length(length, interface_mtu));
    }
    let overhead = if v6_outside { OVERHEAD_V6 } else { OVERHEAD_V4 };
    let limit = usize::from(path.path_mtu)
        .saturating_sub(overhead)
        .max(LEAST_MTU_V4);
    if length <= limit {
        let cap = if interface_mtu == 0 {
            limit
        } else {
            limit.min(interface_mtu)
        };
        return Fit::Padded(padded_length(length, cap).min(limit));
    }
    match inner {
        Some(inner) if inner.source.is_ipv4() && !inner.dont_fragment => Fit::Cut(limit),
        Some(inner) if inner.source.is_ipv6() && limit < LEAST_MTU_V6 => {
            if length <= LEAST_MTU_V6 {
                Fit::Outside(padded_length(length, interface_mtu))
            } else {
                Fit::Refuse(LEAST_MTU_V6 as u16)
            }
        }
        _ => Fit::Refuse(limit.min(usize::from(u16::MAX)) as u16),
    }
}

impl Context {
    /// Tells meta that the way to a peer takes no more than this.
    pub(super) fn narrowed(&mut self, narrow: Narrow) {
        let (peer, incarnation, mtu) = match narrow {
            Narrow::Peer(peer, incarnation, mtu) => (peer, incarnation, mtu),
            Narrow::Address(address, mtu) => {
                if !self.searches.take(self.now) {
                    return;
                }
                let found = self.tables.find_peer(|path| {
                    path.endpoint.is_some_and(|endpoint| {
                        endpoint.remote.ip() == address.ip()
                            && (address.port() == 0 || endpoint.remote.port() == address.port())
                    })
                });
                let Some((peer, path)) = found else {
                    return;
                };
                (peer, path.incarnation, mtu)
            }
        };
        self.raise_mtu(peer, incarnation, mtu);
    }

    fn raise_mtu(&mut self, peer: PeerSlot, incarnation: u32, mtu: u16) {
        self.reports.raise(
            Throttled::PathMtu,
            (peer, incarnation),
            Event::PathMtu {
                peer,
                incarnation,
                mtu,
            },
            self.now,
            &mut self.tally,
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringway_shm::state::Endpoint;

    fn path(remote: &str, mtu: u16) -> PeerPath {
        PeerPath {
            incarnation: 1,
            endpoint: Some(Endpoint {
                remote: remote.parse().unwrap(),
                local: None,
                ifindex: 0,
            }),
            lane: None,
            path_mtu: mtu,
            arm_generation: 0,
        }
    }

    fn inner(v6: bool, dont_fragment: bool) -> Inner {
        let address = if v6 { "2001:db8::1" } else { "192.0.2.1" };
        Inner {
            source: address.parse().unwrap(),
            destination: address.parse().unwrap(),
            ecn: 0,
            length: 0,
            header_length: 20,
            protocol: 1,
            dont_fragment,
            fragment: false,
        }
    }

    #[test]
    fn an_unknown_path_takes_what_the_interface_gives() {
        let path = path("192.0.2.7:1", 0);
        assert_eq!(
            fit(100, Some(&inner(false, true)), &path, 1420),
            Fit::Padded(112)
        );
        assert_eq!(
            fit(1419, Some(&inner(false, true)), &path, 1420),
            Fit::Padded(1420)
        );
    }

    #[test]
    fn a_narrow_path_refuses_cuts_or_fragments_outside() {
        let v4 = path("192.0.2.7:1", 1280);
        let v6 = path("[2001:db8::7]:1", 1280);
        assert_eq!(
            fit(1220, Some(&inner(false, true)), &v4, 1420),
            Fit::Padded(1220)
        );
        assert_eq!(
            fit(1215, Some(&inner(false, true)), &v4, 1420),
            Fit::Padded(1216)
        );
        assert_eq!(
            fit(1221, Some(&inner(false, true)), &v4, 1420),
            Fit::Refuse(1220)
        );
        assert_eq!(
            fit(1221, Some(&inner(false, false)), &v4, 1420),
            Fit::Cut(1220)
        );
        assert_eq!(
            fit(1201, Some(&inner(false, true)), &v6, 1420),
            Fit::Refuse(1200)
        );
        // IPv6 inside can't go below 1280 bytes.
        assert_eq!(
            fit(1280, Some(&inner(true, true)), &v4, 1420),
            Fit::Outside(1280)
        );
        assert_eq!(
            fit(1281, Some(&inner(true, true)), &v4, 1420),
            Fit::Refuse(1280)
        );
    }

    #[test]
    fn no_padding_past_the_path() {
        for length in 0..1300 {
            if let Fit::Padded(padded) = fit(
                length,
                Some(&inner(false, true)),
                &path("192.0.2.7:1", 1300),
                1420,
            ) {
                assert!(padded >= length && padded <= 1240);
            }
        }
    }
}
