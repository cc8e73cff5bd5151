//! TAI64N time stamps: each handshake newer than the last.

use std::fmt;
use std::time::Duration;

/// A label of TAI64N: seconds and nanoseconds, big-endian, so that bytes compare
/// as the instants do.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Tai64n([u8; Tai64n::LEN]);

/// 2^62 and the ten seconds that TAI was ahead when Unix time began.
const UNIX_EPOCH: u64 = 0x4000_0000_0000_000a;

/// Time stamps are rounded down to this many nanoseconds: the power of two below
/// a fiftieth of a second, since a peer takes at most fifty initiations a second
/// and a finer clock would only tell how fast this machine computes. As the
/// kernel does (drivers/net/wireguard/noise.c, `tai64n_now`).
const TICK_NS: u32 = 1 << 24;

const NS_PER_SECOND: u64 = 1_000_000_000;

impl Tai64n {
    /// Length on the wire.
    pub const LEN: usize = 12;

    /// The stamp for a wall clock that shows `unix_ns` nanoseconds since 1970,
    /// rounded down to the tick.
    pub fn from_unix_ns(unix_ns: u64) -> Tai64n {
        let nanoseconds = (unix_ns % NS_PER_SECOND) as u32;
        Tai64n::new(
            UNIX_EPOCH + unix_ns / NS_PER_SECOND,
            nanoseconds & !(TICK_NS - 1),
        )
    }

    /// The stamp in these bytes, whatever they are.
    pub const fn from_bytes(bytes: [u8; Self::LEN]) -> Tai64n {
        Tai64n(bytes)
    }

    /// The bytes as they are sealed into an initiation.
    pub const fn to_bytes(self) -> [u8; Self::LEN] {
        self.0
    }

    /// The next tick.
    #[must_use]
    pub fn next(self) -> Tai64n {
        let [s0, s1, s2, s3, s4, s5, s6, s7, n0, n1, n2, n3] = self.0;
        let seconds = u64::from_be_bytes([s0, s1, s2, s3, s4, s5, s6, s7]);
        let tick = u32::from_be_bytes([n0, n1, n2, n3]) & !(TICK_NS - 1);
        match tick.checked_add(TICK_NS) {
            Some(next) if u64::from(next) < NS_PER_SECOND => Tai64n::new(seconds, next),
            _ => Tai64n::new(seconds.saturating_add(1), 0),
        }
    }

    fn new(seconds: u64, nanoseconds: u32) -> Tai64n {
        let mut bytes = [0; Self::LEN];
        bytes[..8].copy_from_slice(&seconds.to_be_bytes());
        bytes[8..].copy_from_slice(&nanoseconds.to_be_bytes());
        Tai64n(bytes)
    }
}

impl fmt::Debug for Tai64n {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tai64n(")?;
        for byte in self.0 {
            write!(f, "{byte:02x}")?;
        }
        f.write_str(")")
    }
}

/// Gives the stamps of one gateway's initiations, to all its peers. They never
/// shrink, though the wall clock may be set back.
///
/// Those of one tick are equal. That harms nobody, since a peer takes no two
/// initiations within [`Stamper::MIN_INTERVAL`]; were each made to differ, a
/// gateway with thousands of peers would run minutes ahead of its clock, and after
/// a restart nobody would take its stamps for as long.
#[derive(Clone, Debug, Default)]
pub struct Stamper {
    last: Tai64n,
}

impl Stamper {
    /// The shortest time between two initiations of one peer that a responder
    /// takes (kernel: INITIATIONS_PER_SECOND). Longer than a tick.
    pub const MIN_INTERVAL: Duration = Duration::from_millis(20);

    /// The stamp for a wall clock that shows `unix_ns`; the tick after the last
    /// stamp when the clock is behind that.
    pub fn stamp(&mut self, unix_ns: u64) -> Tai64n {
        let stamp = Tai64n::from_unix_ns(unix_ns);
        self.last = if stamp < self.last {
            self.last.next()
        } else {
            stamp
        };
        self.last
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_thousand_peers_at_once_leave_the_clock_where_it_is() {
        let mut stamper = Stamper::default();
        let now = 1_700_000_000_000_000_000;
        for _ in 0..1000 {
            assert_eq!(stamper.stamp(now), Tai64n::from_unix_ns(now));
        }
        let set_back = stamper.stamp(now - 3_600_000_000_000);
        assert_eq!(set_back, Tai64n::from_unix_ns(now).next());
    }

    #[test]
    fn the_epoch_is_that_of_tai() {
        let stamp = Tai64n::from_unix_ns(1_700_000_000_999_999_999);
        let seconds = 0x4000_0000_0000_000a_u64 + 1_700_000_000;
        assert_eq!(stamp.to_bytes()[..8], seconds.to_be_bytes());
        assert_eq!(stamp.to_bytes()[8..], (59_u32 << 24).to_be_bytes());
    }

    proptest! {
        #[test]
        fn stamps_never_shrink(clock in proptest::collection::vec(any::<u64>(), 1..50)) {
            let mut stamper = Stamper::default();
            let mut last = (Tai64n::default(), 0);
            for unix_ns in clock {
                let stamp = stamper.stamp(unix_ns);
                let moved = unix_ns.abs_diff(last.1) >= Stamper::MIN_INTERVAL.as_nanos() as u64;
                prop_assert!(stamp > last.0 || stamp == last.0 && !moved);
                prop_assert!(u32::from_be_bytes(stamp.0[8..].try_into().unwrap()) < 1_000_000_000);
                last = (stamp, unix_ns);
            }
        }

        #[test]
        fn stamps_order_as_their_instants(a: u64, b: u64) {
            let (a, b) = (a.min(b), a.max(b));
            prop_assert!(Tai64n::from_unix_ns(a) <= Tai64n::from_unix_ns(b));
        }

        #[test]
        fn the_next_of_anything_is_defined(bytes: [u8; 12]) {
            let _ = Tai64n::from_bytes(bytes).next();
        }
    }
}
