//! A token bucket for each source of handshakes.
//!
//! A source is an IPv4 address or an IPv6 /64, the smallest that one host is sure
//! to hold alone. The table never grows: it is made of sets of a few entries, the
//! set chosen by a secret hash, so that nobody can fill one at will. A full set
//! refuses new sources rather than forget whom it limits.

use std::hash::{BuildHasher, RandomState};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use crate::time::Instant;

/// Handshakes a second that one source may make us compute (kernel: PACKETS_PER_SECOND).
const PER_SECOND: u32 = 20;
/// How many of them may come at once (kernel: PACKETS_BURSTABLE).
const BURST: u32 = 5;
/// What a packet costs, in time.
const COST: Duration = Duration::from_nanos(1_000_000_000 / PER_SECOND as u64);
/// Entries a set.
const WAYS: usize = 8;

/// Limits the handshakes of each source.
#[derive(Debug)]
pub struct RateLimiter {
    sets: Vec<[Entry; WAYS]>,
    hasher: RandomState,
}

/// A bucket, kept as the instant at which it will be full again: one that is full
/// is worth nothing, so an entry whose instant has passed is free.
#[derive(Clone, Copy, Debug)]
struct Entry {
    source: Source,
    full_at: Instant,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Source {
    V4(u32),
    V6(u64),
}

impl Default for RateLimiter {
    /// Room for 32,768 sources within the quarter of a second that a bucket takes
    /// to fill: 768 KiB.
    fn default() -> RateLimiter {
        RateLimiter::with_capacity(32_768)
    }
}

impl RateLimiter {
    /// With room for at least this many sources that are not at rest.
    pub fn with_capacity(sources: usize) -> RateLimiter {
        let sets = sources.div_ceil(WAYS).next_power_of_two();
        let free = Entry {
            source: Source::V4(0),
            full_at: Instant(0),
        };
        RateLimiter {
            sets: vec![[free; WAYS]; sets],
            hasher: RandomState::new(),
        }
    }

    /// Whether a handshake message from here may be worked on; if so, it is counted.
    pub fn allow(&mut self, from: SocketAddr, now: Instant) -> bool {
        let source = Source::of(from.ip());
        let index = self.hasher.hash_one(source) as usize & (self.sets.len() - 1);
        let set = &mut self.sets[index];
        let busy = |entry: &Entry| entry.full_at > now;
        let known = set
            .iter()
            .position(|entry| busy(entry) && entry.source == source);
        let Some(entry) = known.or_else(|| set.iter().position(|entry| !busy(entry))) else {
            return false;
        };
        let full_at = set[entry].full_at.max(now) + COST;
        let allowed = full_at.since(now) <= COST * BURST;
        if allowed {
            set[entry] = Entry { source, full_at };
        }
        allowed
    }
}

impl Source {
    fn of(address: IpAddr) -> Source {
        match address.to_canonical() {
            IpAddr::V4(address) => Source::V4(address.to_bits()),
            IpAddr::V6(address) => Source::V6((address.to_bits() >> 64) as u64),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Instant = Instant(1_000_000_000_000);

    fn source(address: &str) -> SocketAddr {
        SocketAddr::new(address.parse().unwrap(), 4000)
    }

    fn milliseconds(count: u64) -> Duration {
        Duration::from_millis(count)
    }

    /// The rule of the kernel, straight: tokens that time earns and packets spend.
    #[derive(Clone, Copy)]
    struct Model {
        tokens: u64,
        last: u64,
    }

    impl Model {
        fn allow(&mut self, now: u64) -> bool {
            self.tokens = (self.tokens + (now - self.last)).min(250_000_000);
            self.last = now;
            let allowed = self.tokens >= 50_000_000;
            self.tokens -= if allowed { 50_000_000 } else { 0 };
            allowed
        }
    }

    proptest::proptest! {
        #[test]
        fn a_source_gets_what_the_bucket_gives(steps in proptest::collection::vec(0_u64..90_000_000, 1..300)) {
            let mut limiter = RateLimiter::with_capacity(8);
            let mut model = Model { tokens: 250_000_000, last: START.0 };
            let mut now = START;
            for step in steps {
                now = Instant(now.0 + step);
                proptest::prop_assert_eq!(limiter.allow(source("192.0.2.1"), now), model.allow(now.0));
            }
        }
    }

    #[test]
    fn five_at_once_then_twenty_a_second() {
        let mut limiter = RateLimiter::default();
        let burst = (0..100)
            .filter(|_| limiter.allow(source("192.0.2.1"), START))
            .count();
        assert_eq!(burst, 5);
        let second = (1..=10_000_u64)
            .filter(|tick| {
                limiter.allow(
                    source("192.0.2.1"),
                    START + Duration::from_micros(tick * 100),
                )
            })
            .count();
        assert_eq!(second, 20);
    }

    #[test]
    fn sources_are_addresses_and_networks_of_64_bits() {
        let mut limiter = RateLimiter::default();
        for _ in 0..5 {
            assert!(limiter.allow(source("2001:db8::1"), START));
            assert!(limiter.allow(source("192.0.2.1"), START));
        }
        assert!(!limiter.allow(source("2001:db8::ffff:1"), START));
        assert!(!limiter.allow(source("::ffff:192.0.2.1"), START));
        assert!(limiter.allow(source("2001:db8:0:1::1"), START));
        assert!(limiter.allow(source("192.0.2.2"), START));
    }

    #[test]
    fn the_table_is_bounded_and_frees_itself() {
        let mut limiter = RateLimiter::with_capacity(64);
        let flood = |limiter: &mut RateLimiter, now| {
            (0..10_000_u32)
                .filter(|host| limiter.allow(SocketAddr::new(IpAddr::V4((*host).into()), 1), now))
                .count()
        };
        assert_eq!(flood(&mut limiter, START), 64);
        assert!(!limiter.allow(source("192.0.2.1"), START + milliseconds(49)));
        assert_eq!(flood(&mut limiter, START + milliseconds(50)), 64);
    }
}
