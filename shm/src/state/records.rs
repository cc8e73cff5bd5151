//! How the records of the `state` segment become words and come back. What comes back was written by another
//! process: anything is possible, nothing panics.

use super::{Endpoint, GatewayRecord, Name, PeerPath, PeerRecord, Refusal, RefusalReason};
use crate::{ids::LaneSlot, seqlock::Record};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

/// [`PeerPath`] in shared memory.
pub(crate) type PathWords = Record<8>;
/// [`PeerRecord`] in shared memory.
pub(crate) type PeerWords = Record<20>;
/// [`GatewayRecord`] in shared memory.
pub(crate) type GatewayWords = Record<18>;

/// The record has a value: a cleared one is all zeros.
const VALID: u64 = 1;
const LANE: u64 = 2;
const ENDPOINT: u64 = 4;
const REMOTE_V6: u64 = 8;
const LOCAL: u64 = 16;
const LOCAL_V6: u64 = 32;
const PRESHARED_KEY: u64 = 2;
const LINK_UP: u64 = 2;

pub(super) fn path_to_words(path: &PeerPath) -> [u64; 8] {
    let mut words = [0; 8];
    let mut flags = VALID;
    words[0] = pack(path.incarnation, path.arm_generation);
    words[1] = u64::from(path.path_mtu) << 32;
    if let Some(lane) = path.lane {
        flags |= LANE;
        words[1] |= u64::from(lane.0);
    }
    if let Some(endpoint) = path.endpoint {
        flags |= ENDPOINT;
        let remote = endpoint.remote;
        flags |= if remote.is_ipv6() { REMOTE_V6 } else { 0 };
        words[2] = pack(remote.port().into(), endpoint.ifindex);
        [words[3], words[4]] = ip_to_words(remote.ip());
        words[7] = scope(remote).into();
        if let Some(local) = endpoint.local {
            flags |= LOCAL | if local.is_ipv6() { LOCAL_V6 } else { 0 };
            [words[5], words[6]] = ip_to_words(local);
        }
    }
    words[1] |= flags << 48;
    words
}

#[inline]
pub(super) fn path_from_words(words: &[u64; 8]) -> Option<PeerPath> {
    let flags = words[1] >> 48;
    if flags & VALID == 0 {
        return None;
    }
    let endpoint = (flags & ENDPOINT != 0).then(|| Endpoint {
        remote: socket_address(
            [words[3], words[4]],
            flags & REMOTE_V6 != 0,
            words[2] as u16,
            words[7] as u32,
        ),
        local: (flags & LOCAL != 0).then(|| ip([words[5], words[6]], flags & LOCAL_V6 != 0)),
        ifindex: (words[2] >> 32) as u32,
    });
    Some(PeerPath {
        incarnation: words[0] as u32,
        endpoint,
        lane: (flags & LANE != 0).then_some(LaneSlot(words[1] as u32)),
        path_mtu: (words[1] >> 32) as u16,
        arm_generation: (words[0] >> 32) as u32,
    })
}

pub(super) fn peer_to_words(peer: &PeerRecord) -> [u64; 20] {
    let mut words = [0; 20];
    let flags = VALID
        | if peer.has_preshared_key {
            PRESHARED_KEY
        } else {
            0
        };
    words[0] = u64::from(peer.incarnation)
        | u64::from(peer.keepalive_seconds) << 32
        | flags << 48
        | u64::from(peer.name.length) << 56;
    words[1..5].copy_from_slice(&bytes_to_words::<4>(&peer.public_key));
    words[5..13].copy_from_slice(&bytes_to_words::<8>(&peer.name.bytes));
    words[13] = peer.last_handshake_unix_ns;
    words[14] = peer.handshake_rx_bytes;
    words[15] = peer.handshake_tx_bytes;
    words[16..20].copy_from_slice(&refusal_to_words(peer.refusal));
    words
}

pub(super) fn peer_from_words(words: &[u64; 20]) -> Option<PeerRecord> {
    let flags = words[0] >> 48;
    if flags & VALID == 0 {
        return None;
    }
    Some(PeerRecord {
        incarnation: words[0] as u32,
        public_key: words_to_bytes(&words[1..5]),
        name: name((words[0] >> 56) as u8, &words[5..13]),
        keepalive_seconds: (words[0] >> 32) as u16,
        last_handshake_unix_ns: words[13],
        handshake_rx_bytes: words[14],
        handshake_tx_bytes: words[15],
        refusal: refusal([words[16], words[17], words[18], words[19]]),
        has_preshared_key: flags & PRESHARED_KEY != 0,
    })
}

pub(super) fn gateway_to_words(gateway: &GatewayRecord) -> [u64; 18] {
    let mut words = [0; 18];
    words[0] = u64::from(gateway.listen_port)
        | u64::from(gateway.mtu) << 16
        | u64::from(gateway.fwmark) << 32;
    words[1] =
        VALID | if gateway.link_up { LINK_UP } else { 0 } | u64::from(gateway.name.length) << 8;
    words[2..6].copy_from_slice(&bytes_to_words::<4>(&gateway.public_key));
    words[6..14].copy_from_slice(&bytes_to_words::<8>(&gateway.name.bytes));
    words[14..18].copy_from_slice(&refusal_to_words(gateway.last_refusal));
    words
}

pub(super) fn gateway_from_words(words: &[u64; 18]) -> Option<GatewayRecord> {
    if words[1] & VALID == 0 {
        return None;
    }
    Some(GatewayRecord {
        name: name((words[1] >> 8) as u8, &words[6..14]),
        public_key: words_to_bytes(&words[2..6]),
        listen_port: words[0] as u16,
        fwmark: (words[0] >> 32) as u32,
        mtu: (words[0] >> 16) as u16,
        link_up: words[1] & LINK_UP != 0,
        last_refusal: refusal([words[14], words[15], words[16], words[17]]),
    })
}

/// Time, address, then port, reason and family with the scope above.
fn refusal_to_words(refusal: Option<Refusal>) -> [u64; 4] {
    let Some(refusal) = refusal else {
        return [0; 4];
    };
    let [high, low] = ip_to_words(refusal.from.ip());
    let rest = u64::from(refusal.from.port())
        | (refusal.reason as u64) << 16
        | u64::from(refusal.from.is_ipv6()) << 24
        | u64::from(scope(refusal.from)) << 32;
    [refusal.at_unix_ns, high, low, rest]
}

fn refusal(words: [u64; 4]) -> Option<Refusal> {
    let [at_unix_ns, high, low, rest] = words;
    Some(Refusal {
        reason: RefusalReason::from_u8((rest >> 16) as u8)?,
        at_unix_ns,
        from: socket_address(
            [high, low],
            rest >> 24 & 1 == 1,
            rest as u16,
            (rest >> 32) as u32,
        ),
    })
}

fn name(length: u8, words: &[u64]) -> Name {
    let length = length.min(Name::MAX as u8);
    let name = Name {
        length,
        bytes: words_to_bytes(words),
    };
    // Whoever wrote no UTF-8 wrote no name.
    if name.as_str().len() == usize::from(length) {
        name
    } else {
        Name::default()
    }
}

fn pack(low: u32, high: u32) -> u64 {
    u64::from(low) | u64::from(high) << 32
}

fn scope(address: SocketAddr) -> u32 {
    match address {
        SocketAddr::V4(_) => 0,
        SocketAddr::V6(v6) => v6.scope_id(),
    }
}

/// An IPv4 address is the low word.
fn ip_to_words(address: IpAddr) -> [u64; 2] {
    match address {
        IpAddr::V4(v4) => [0, u64::from(u32::from(v4))],
        IpAddr::V6(v6) => [(u128::from(v6) >> 64) as u64, u128::from(v6) as u64],
    }
}

fn ip(words: [u64; 2], v6: bool) -> IpAddr {
    if v6 {
        Ipv6Addr::from(u128::from(words[0]) << 64 | u128::from(words[1])).into()
    } else {
        Ipv4Addr::from(words[1] as u32).into()
    }
}

fn socket_address(words: [u64; 2], v6: bool, port: u16, scope: u32) -> SocketAddr {
    match ip(words, v6) {
        IpAddr::V4(v4) => SocketAddr::from((v4, port)),
        IpAddr::V6(v6) => SocketAddrV6::new(v6, port, 0, scope).into(),
    }
}

fn bytes_to_words<const N: usize>(bytes: &[u8]) -> [u64; N] {
    let mut words = [0; N];
    for (word, chunk) in words.iter_mut().zip(bytes.chunks_exact(8)) {
        *word = chunk
            .iter()
            .rev()
            .fold(0, |word, byte| word << 8 | u64::from(*byte));
    }
    words
}

fn words_to_bytes<const N: usize>(words: &[u64]) -> [u8; N] {
    let mut bytes = [0; N];
    for (chunk, word) in bytes.chunks_exact_mut(8).zip(words) {
        chunk.copy_from_slice(&word.to_le_bytes());
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn any_ip() -> impl Strategy<Value = IpAddr> {
        prop_oneof![
            any::<u32>().prop_map(|bits| Ipv4Addr::from(bits).into()),
            any::<u128>().prop_map(|bits| Ipv6Addr::from(bits).into()),
        ]
    }

    fn any_socket_address() -> impl Strategy<Value = SocketAddr> {
        (any_ip(), any::<u16>(), any::<u32>()).prop_map(|(ip, port, scope)| match ip {
            IpAddr::V4(v4) => (v4, port).into(),
            IpAddr::V6(v6) => SocketAddrV6::new(v6, port, 0, scope).into(),
        })
    }

    fn any_refusal() -> impl Strategy<Value = Option<Refusal>> {
        proptest::option::of(
            (
                0..RefusalReason::ALL.len(),
                any::<u64>(),
                any_socket_address(),
            )
                .prop_map(|(reason, at_unix_ns, from)| Refusal {
                    reason: RefusalReason::ALL[reason],
                    at_unix_ns,
                    from,
                }),
        )
    }

    proptest! {
        #[test]
        fn a_path_comes_back(
            numbers in any::<(u32, u32, u16)>(),
            lane in proptest::option::of(any::<u32>()),
            endpoint in proptest::option::of((any_socket_address(), proptest::option::of(any_ip()), any::<u32>())),
        ) {
            let path = PeerPath {
                incarnation: numbers.0,
                endpoint: endpoint.map(|(remote, local, ifindex)| Endpoint { remote, local, ifindex }),
                lane: lane.map(LaneSlot),
                path_mtu: numbers.2,
                arm_generation: numbers.1,
            };
            prop_assert_eq!(path_from_words(&path_to_words(&path)), Some(path));
        }

        #[test]
        fn a_peer_comes_back(
            numbers in any::<(u32, u16, u64, u64, u64)>(),
            public_key in any::<[u8; 32]>(),
            name in ".{0,40}",
            has_preshared_key in any::<bool>(),
            refusal in any_refusal(),
        ) {
            let peer = PeerRecord {
                incarnation: numbers.0,
                public_key,
                name: Name::new(&name),
                keepalive_seconds: numbers.1,
                last_handshake_unix_ns: numbers.2,
                handshake_rx_bytes: numbers.3,
                handshake_tx_bytes: numbers.4,
                refusal,
                has_preshared_key,
            };
            prop_assert!(name.starts_with(peer.name.as_str()));
            prop_assert_eq!(peer_from_words(&peer_to_words(&peer)), Some(peer));
        }

        #[test]
        fn a_gateway_comes_back(
            numbers in any::<(u16, u32, u16)>(),
            public_key in any::<[u8; 32]>(),
            name in "[a-z]{0,15}",
            link_up in any::<bool>(),
            last_refusal in any_refusal(),
        ) {
            let gateway = GatewayRecord {
                name: Name::new(&name),
                public_key,
                listen_port: numbers.0,
                fwmark: numbers.1,
                mtu: numbers.2,
                link_up,
                last_refusal,
            };
            prop_assert_eq!(gateway_from_words(&gateway_to_words(&gateway)), Some(gateway));
        }

        #[test]
        fn any_words_are_read(words in any::<[u64; 20]>()) {
            if let Some(peer) = peer_from_words(&words) {
                prop_assert!(peer.name.as_str().len() <= Name::MAX);
            }
            let mut path = [0; 8];
            path.copy_from_slice(&words[..8]);
            let _ = path_from_words(&path);
            let mut gateway = [0; 18];
            gateway.copy_from_slice(&words[..18]);
            let _ = gateway_from_words(&gateway);
        }
    }
}
