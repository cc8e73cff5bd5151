//! How long the route table takes to build and to search: `cargo bench -p ringway-shm`.

use nix::time::{ClockId, clock_gettime};
use ringway_shm::{
    ids::PeerSlot,
    routes::Route,
    segment::{Access, Geometry, Segment, SegmentKind, create},
    state::StateWriter,
};
use std::{
    error::Error,
    hint::black_box,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    os::fd::AsFd,
    time::Duration,
};

const LOOKUPS: usize = 2_000_000;

fn main() -> Result<(), Box<dyn Error>> {
    println!("routes     table                     build     lookup  in batch");
    for count in [16, 4096, 262_144, 1_000_000] {
        let mut random = Random(0x9e37_79b9_7f4a_7c15);
        let hosts_v4: Vec<_> = (0..count)
            .map(|_| (Ipv4Addr::from(random.next() as u32).into(), 32))
            .collect();
        measure("IPv4, random /32", count, &hosts_v4)?;
        let nets_v4: Vec<_> = (0..count)
            .map(|_| {
                (
                    Ipv4Addr::from(random.next() as u32).into(),
                    12 + (random.next() % 13) as u8,
                )
            })
            .collect();
        measure("IPv4, random /12 to /24", count, &nets_v4)?;
        let hosts_v6: Vec<_> = (0..count)
            .map(|host| (Ipv6Addr::from(0xfd00 << 112 | u128::from(host)).into(), 128))
            .collect();
        measure("IPv6, hosts of one /64", count, &hosts_v6)?;
        let nets_v6: Vec<_> = (0..count)
            .map(|_| {
                (
                    Ipv6Addr::from(1 << 125 | u128::from(random.next()) << 61).into(),
                    48 + (random.next() % 17) as u8,
                )
            })
            .collect();
        measure("IPv6, random /48 to /64", count, &nets_v6)?;
    }
    Ok(())
}

fn measure(what: &str, count: u32, prefixes: &[(IpAddr, u8)]) -> Result<(), Box<dyn Error>> {
    let fds = create(SegmentKind::State, Geometry::new(1, 1 << 20, 1 << 20)?)?;
    let segment = Segment::attach(fds.writable.as_fd(), SegmentKind::State, Access::ReadWrite)?;
    let mut writer = StateWriter::attach(&segment)?;
    let routes: Vec<Route> = prefixes
        .iter()
        .zip(0..)
        .map(|((address, length), peer)| Route {
            address: *address,
            length: *length,
            peer: PeerSlot(peer),
        })
        .collect();
    let built = timed(|| writer.publish_routes(&routes, |_| true))?;

    // Addresses that are in the table, in random order.
    let mut random = Random(1);
    let probes: Vec<_> = (0..LOOKUPS)
        .map(|_| prefixes[random.next() as usize % prefixes.len()].0)
        .collect();
    let state = writer.reader();
    let lookup = |address: IpAddr, disturb: u32| match address {
        IpAddr::V4(v4) => state.routes().lookup_v4(u32::from(v4) ^ disturb),
        IpAddr::V6(v6) => state
            .routes()
            .lookup_v6(u128::from(v6) ^ u128::from(disturb)),
    };
    let alone = (0..3).map(|_| {
        let mut found = 0;
        timed(|| {
            for probe in &probes {
                // Each address depends on the answer before, so that no two are looked up at once.
                let peer = lookup(*probe, u32::from(found == usize::MAX));
                found += usize::from(black_box(peer).is_some());
            }
            if found == LOOKUPS {
                Ok(())
            } else {
                Err(format!("{what}: {found} of {LOOKUPS} found"))
            }
        })
    });
    let batch = (0..3).map(|_| {
        timed(|| {
            for probe in &probes {
                black_box(lookup(*probe, 0));
            }
            Ok::<_, String>(())
        })
    });
    let best = |times: Vec<Duration>| {
        times.into_iter().min().unwrap_or_default().as_nanos() as f64 / LOOKUPS as f64
    };
    let alone = best(alone.collect::<Result<_, _>>()?);
    let batch = best(batch.collect::<Result<_, _>>()?);
    let built = built.as_secs_f64() * 1e3;
    println!("{count:<10} {what:<25} {built:>6.1} ms {alone:>6.1} ns {batch:>6.1} ns");
    Ok(())
}

/// The processor time that something takes: others may have their share of the cores.
fn timed<T, E: Into<Box<dyn Error>>>(
    work: impl FnOnce() -> Result<T, E>,
) -> Result<Duration, Box<dyn Error>> {
    let now = || clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map(Duration::from);
    let start = now()?;
    work().map_err(Into::into)?;
    Ok(now()?.saturating_sub(start))
}

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}
