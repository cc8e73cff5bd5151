//! The trie against a list that is searched from end to end.

use super::*;
use crate::{
    segment::{Access, Geometry, Segment, SegmentFds, SegmentKind, create},
    state::{State, StateWriter},
};
use proptest::prelude::*;
use std::{
    collections::HashMap,
    net::{Ipv4Addr, Ipv6Addr},
    os::fd::AsFd,
};

type Error = Box<dyn std::error::Error>;

fn tables(routes: u32) -> Result<(SegmentFds, StateWriter, State), Error> {
    let fds = create(SegmentKind::State, Geometry::new(1, 8, routes)?)?;
    let segment = Segment::attach(fds.writable.as_fd(), SegmentKind::State, Access::ReadWrite)?;
    let writer = StateWriter::attach(&segment)?;
    let readable = Segment::attach(fds.readable.as_fd(), SegmentKind::State, Access::ReadOnly)?;
    let state = State::attach(&readable)?;
    Ok((fds, writer, state))
}

fn route(prefix: &str, peer: u32) -> Result<Route, Error> {
    let (address, length) = prefix.split_once('/').ok_or("no length")?;
    Ok(Route {
        address: address.parse()?,
        length: length.parse()?,
        peer: PeerSlot(peer),
    })
}

/// The bits of an address, left-aligned, and its family.
fn bits(address: IpAddr) -> (u128, bool) {
    match address {
        IpAddr::V4(v4) => (u128::from(u32::from(v4)) << 96, false),
        IpAddr::V6(v6) => (u128::from(v6), true),
    }
}

fn covers(route: &Route, address: IpAddr) -> bool {
    let ((prefix, prefix_v6), (address, v6)) = (bits(route.address), bits(address));
    let differ = prefix ^ address;
    prefix_v6 == v6 && differ.leading_zeros() >= u32::from(route.length)
}

/// Longest prefix, the last one of equals.
fn oracle(routes: &[Route], address: IpAddr) -> Option<PeerSlot> {
    let covering = routes.iter().filter(|route| covers(route, address));
    covering
        .max_by_key(|route| route.length)
        .map(|route| route.peer)
}

/// What the table must list.
fn distinct(routes: &[Route]) -> Vec<Route> {
    let mut last = HashMap::new();
    for route in routes {
        let (address, v6) = bits(route.address);
        let masked = address
            & u128::MAX
                .checked_shl(128 - u32::from(route.length))
                .unwrap_or(0);
        last.insert((v6, masked, route.length), route.peer);
    }
    let mut listed: Vec<_> = last.into_iter().collect();
    listed.sort_by_key(|(prefix, _)| *prefix);
    let listed = listed
        .into_iter()
        .map(|((v6, address, length), peer)| Route {
            address: if v6 {
                Ipv6Addr::from(address).into()
            } else {
                Ipv4Addr::from((address >> 96) as u32).into()
            },
            length,
            peer,
        });
    listed.collect()
}

/// Addresses at and around the edges of the prefixes: where a mistake shows.
fn probes(routes: &[Route]) -> Vec<IpAddr> {
    let mut probes: Vec<IpAddr> = vec![
        Ipv4Addr::UNSPECIFIED.into(),
        Ipv4Addr::BROADCAST.into(),
        Ipv6Addr::UNSPECIFIED.into(),
        Ipv6Addr::from(u128::MAX).into(),
    ];
    for route in routes {
        match route.address {
            IpAddr::V4(address) => {
                let host = u32::MAX.checked_shr(route.length.into()).unwrap_or(0);
                let (first, last) = (u32::from(address) & !host, u32::from(address) | host);
                let around = [
                    first,
                    last,
                    first.wrapping_sub(1),
                    last.wrapping_add(1),
                    u32::from(address),
                ];
                probes.extend(around.map(|probe| IpAddr::from(Ipv4Addr::from(probe))));
            }
            IpAddr::V6(address) => {
                let host = u128::MAX.checked_shr(route.length.into()).unwrap_or(0);
                let (first, last) = (u128::from(address) & !host, u128::from(address) | host);
                let around = [
                    first,
                    last,
                    first.wrapping_sub(1),
                    last.wrapping_add(1),
                    u128::from(address),
                ];
                probes.extend(around.map(|probe| IpAddr::from(Ipv6Addr::from(probe))));
            }
        }
    }
    probes
}

fn check(routes: &[Route]) -> Result<(), Error> {
    let (_fds, mut writer, state) = tables(routes.len().max(1) as u32)?;
    writer.publish_routes(routes, |_| true)?;
    for address in probes(routes) {
        let found = state.routes().lookup(address);
        assert_eq!(found, oracle(routes, address), "{address} in {routes:?}");
    }
    assert_eq!(state.routes().entries(), distinct(routes));
    assert_eq!(state.routes().len(), distinct(routes).len());
    Ok(())
}

#[test]
fn small_tables() -> Result<(), Error> {
    check(&[])?;
    check(&[route("0.0.0.0/0", 1)?])?;
    check(&[route("::/0", 1)?])?;
    check(&[
        route("0.0.0.0/0", 0)?,
        route("::/0", 1)?,
        route("10.0.0.0/8", 2)?,
        route("10.0.0.1/32", 3)?,
    ])?;
    check(&[route("255.255.255.255/32", 1)?, route("0.0.0.0/32", 2)?])?;
    check(&[
        route("ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff/128", 1)?,
        route("::/128", 2)?,
        route("8000::/1", 3)?,
    ])?;
    check(&[
        route("10.1.2.3/8", 1)?,
        route("10.3.2.1/8", 2)?,
        route("10.0.0.0/9", 3)?,
    ])?;
    check(&[
        route("fd00::1/64", 1)?,
        route("fd00::2/128", 2)?,
        route("fd00::/8", 3)?,
        route("fd00::/65", 4)?,
    ])
}

#[test]
fn a_chain_of_all_lengths() -> Result<(), Error> {
    let v4 = (0..=32).map(|length| route(&format!("170.85.170.85/{length}"), length));
    let v6 = (0..=128).map(|length| {
        route(
            &format!("aaaa:5555:aaaa:5555:aaaa:5555:aaaa:5555/{length}"),
            length,
        )
    });
    let all: Result<Vec<_>, _> = v4.chain(v6).collect();
    check(&all?)
}

#[test]
fn without_routes_nobody_is_found() -> Result<(), Error> {
    let (_fds, _writer, state) = tables(4)?;
    assert_eq!(state.routes().lookup_v4(0), None);
    assert_eq!(state.routes().lookup_v6(0), None);
    assert!(state.routes().is_empty());
    Ok(())
}

#[test]
fn an_arena_waits_for_its_readers() -> Result<(), Error> {
    let (_fds, mut writer, state) = tables(4)?;
    let peer = |state: &State| state.routes().lookup_v4(0x0a00_0001);
    let first = writer.publish_routes(&[route("10.0.0.0/8", 1)?], |_| false)?;
    assert_eq!(peer(&state), Some(PeerSlot(1)));
    assert_eq!(first, state.epoch());
    // The other arena was never read: no worker can be in it.
    let second = writer.publish_routes(&[route("10.0.0.0/8", 2)?], |epoch| epoch <= first)?;
    assert_eq!(peer(&state), Some(PeerSlot(2)));
    let blocked = writer.publish_routes(&[route("10.0.0.0/8", 3)?], |epoch| epoch < second);
    assert_eq!(blocked, Err(PublishError::Busy));
    assert_eq!(peer(&state), Some(PeerSlot(2)));
    writer.publish_routes(&[route("10.0.0.0/8", 3)?], |epoch| epoch <= second)?;
    assert_eq!(peer(&state), Some(PeerSlot(3)));
    Ok(())
}

#[test]
fn more_routes_than_the_limit_are_refused() -> Result<(), Error> {
    let (_fds, mut writer, state) = tables(2)?;
    let routes = [
        route("10.0.0.0/8", 1)?,
        route("10.0.0.0/8", 2)?,
        route("11.0.0.0/8", 1)?,
    ];
    writer.publish_routes(&routes, |_| true)?;
    let more = [
        route("10.0.0.0/8", 1)?,
        route("12.0.0.0/8", 2)?,
        route("11.0.0.0/8", 1)?,
    ];
    assert_eq!(
        writer.publish_routes(&more, |_| true),
        Err(PublishError::Full)
    );
    assert_eq!(state.routes().len(), 2);
    assert_eq!(state.routes().lookup_v4(0x0a00_0000), Some(PeerSlot(2)));
    Ok(())
}

/// Prefixes that are often near each other, so that they nest and fork.
fn any_routes(count: usize) -> impl Strategy<Value = Vec<Route>> {
    let v4 = (
        prop_oneof![
            any::<u32>(),
            0_u32..0x400,
            (0_u32..0x400).prop_map(|bits| bits << 20)
        ],
        0_u8..=32,
    )
        .prop_map(|(bits, length)| (IpAddr::from(Ipv4Addr::from(bits)), length));
    let v6 = (
        prop_oneof![
            any::<u128>(),
            0_u128..0x400,
            (0_u128..0x400).prop_map(|bits| bits << 60 | 0xfd << 120)
        ],
        prop_oneof![0_u8..=128, Just(64), Just(128)],
    )
        .prop_map(|(bits, length)| (IpAddr::from(Ipv6Addr::from(bits)), length));
    let route = (prop_oneof![v4, v6], 0_u32..50).prop_map(|((address, length), peer)| Route {
        address,
        length,
        peer: PeerSlot(peer),
    });
    proptest::collection::vec(route, 0..count)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn the_longest_prefix_is_found(routes in any_routes(60)) {
        check(&routes).map_err(|error| TestCaseError::fail(error.to_string()))?;
    }

    /// Whatever stands in an arena: an answer or none, in bounded time, and no access beyond it.
    #[test]
    fn any_arena_is_read(
        words in proptest::collection::vec(prop_oneof![
            any::<u64>(),
            0_u64..64,
            any::<u32>().prop_map(|low| u64::from(low) | 1 << 63 | 1 << 31),
        ], 0..80),
        v4 in any::<u32>(),
        v6 in any::<u128>(),
    ) {
        let arena: Vec<AtomicU64> = words.into_iter().map(AtomicU64::new).collect();
        let _ = trie::lookup(&arena, v4);
        let _ = trie::lookup(&arena, v6);
        prop_assert!(arena::entries(&arena).len() <= arena.len());
    }
}

/// A few thousand routes: deep enough for the table of first bits and for many nodes side by side.
#[test]
fn many_routes() -> Result<(), Error> {
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = move || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random
    };
    let mut routes = Vec::new();
    for peer in 0..2_000 {
        let (v4, v6) = (next() as u32, u128::from(next()) << 64 | u128::from(next()));
        routes.push(Route {
            address: Ipv4Addr::from(v4).into(),
            length: 8 + (next() % 25) as u8,
            peer: PeerSlot(peer),
        });
        routes.push(Route {
            address: Ipv6Addr::from(v6 >> 3 | 1 << 125).into(),
            length: 16 + (next() % 113) as u8,
            peer: PeerSlot(peer),
        });
    }
    check(&routes)
}

/// Ranges so dense that a table decides on all their bits, with prefixes around and within, and tables behind tables.
#[test]
fn dense_ranges() -> Result<(), Error> {
    let mut routes = vec![
        route("10.0.0.0/8", 1)?,
        route("fd00::/16", 2)?,
        route("10.0.1.128/25", 3)?,
    ];
    for host in 0..700_u32 {
        let peer = PeerSlot(10 + host);
        let near = IpAddr::from(Ipv4Addr::from(0x0a00_0000 + host));
        let far = IpAddr::from(Ipv4Addr::from(0x0b00_0000 + (host << 12)));
        let v6 = IpAddr::from(Ipv6Addr::from(0xfd00_0001 << 96 | u128::from(host)));
        let nets = IpAddr::from(Ipv6Addr::from(0xfd00_0002 << 96 | u128::from(host) << 40));
        for (address, length) in [
            (near, 32),
            (far, 20 + (host % 13) as u8),
            (v6, 128),
            (nets, 88),
        ] {
            routes.push(Route {
                address,
                length,
                peer,
            });
        }
    }
    check(&routes)
}

/// Readers in no epoch, while the routes are replaced as fast as can be: never a mix of two tables.
#[test]
fn a_reader_never_sees_two_tables_at_once() -> Result<(), Error> {
    let (_fds, mut writer, state) = tables(256)?;
    let table = |peer| -> Result<Vec<Route>, Error> {
        (0..100)
            .map(|i| route(&format!("10.{i}.0.0/16"), peer))
            .collect()
    };
    let tables: Result<Vec<_>, _> = (0..4).map(table).collect();
    let tables = tables?;
    writer.publish_routes(&tables[0], |_| true)?;
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut seen = 0_u32;
            while !stop.load(Ordering::Relaxed) {
                let entries = state.routes().entries();
                if let Some(first) = entries.first() {
                    assert_eq!(entries.len(), 100);
                    assert!(entries.iter().all(|entry| entry.peer == first.peer));
                    seen += 1;
                }
            }
            assert!(seen > 0);
        });
        for i in 0..2_000 {
            assert!(writer.publish_routes(&tables[i % 4], |_| true).is_ok());
        }
        stop.store(true, Ordering::Relaxed);
    });
    Ok(())
}
