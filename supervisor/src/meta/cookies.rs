//! How many cookies a source is given: under load a cookie costs more than all other work on a
//! message, so one source must not be able to ask for a hundred thousand a second.
//!
//! Sources share a fixed table of counts, the place chosen by a secret hash. Who claims an address
//! that is not his can use up its share, which is why the share is large; who sends from everywhere
//! is bounded by the loop's rest alone ([`super::flood`]).

use ringway_proto::time::Instant;
use std::hash::{BuildHasher, RandomState};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// Places of the table.
const PLACES: usize = 4096;
/// Over so long is counted.
const WINDOW: Duration = Duration::from_millis(100);
/// Cookies a place and window: a thousand a second.
const SHARE: u8 = 100;

/// The counts of this window.
#[derive(Debug)]
pub(crate) struct Cookies {
    counts: Box<[u8]>,
    since: Instant,
    hasher: RandomState,
}

impl Cookies {
    /// Nobody was given any.
    pub(crate) fn new() -> Self {
        Self {
            counts: vec![0; PLACES].into(),
            since: Instant(0),
            hasher: RandomState::new(),
        }
    }

    /// Whether this sender may be given another one; if so, it is counted.
    pub(crate) fn allow(&mut self, from: SocketAddr, now: Instant) -> bool {
        if now.since(self.since) >= WINDOW {
            self.since = now;
            self.counts.fill(0);
        }
        // What one host is sure to hold alone: an address, or an IPv6 /64.
        let source = match from.ip() {
            IpAddr::V4(v4) => u64::from(v4.to_bits()),
            IpAddr::V6(v6) => (v6.to_bits() >> 64) as u64,
        };
        let place = self.hasher.hash_one(source) as usize % PLACES;
        let allowed = self.counts[place] < SHARE;
        self.counts[place] += u8::from(allowed);
        allowed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_source_has_its_share_and_the_others_theirs() {
        let mut cookies = Cookies::new();
        let (now, share) = (Instant(1_000_000_000), usize::from(SHARE));
        let given = |cookies: &mut Cookies, from: &str, now| {
            let from = from.parse().unwrap();
            (0..1000).filter(|_| cookies.allow(from, now)).count()
        };
        assert_eq!(given(&mut cookies, "192.0.2.1:1", now), share);
        assert_eq!(given(&mut cookies, "192.0.2.1:2", now), 0, "whatever port");
        // Two sources in one place are possible, all of several are not.
        let others = (2..10).map(|last| given(&mut cookies, &format!("192.0.2.{last}:1"), now));
        assert!(others.sum::<usize>() >= share);
        assert_eq!(given(&mut cookies, "192.0.2.1:1", now + WINDOW), share);
        let v6 = now + WINDOW * 2;
        assert_eq!(given(&mut cookies, "[2001:db8::1]:1", v6), share);
        assert_eq!(given(&mut cookies, "[2001:db8::2]:1", v6), 0, "one /64");
    }
}
