//! Time, read once a turn.

use nix::time::{ClockId, clock_gettime};
use ringway_proto::time::Instant;

/// Reads `CLOCK_BOOTTIME`: key ages count while the machine sleeps, too.
///
/// clock_gettime(2) answers this clock from the vDSO. Where it can't be read at all (it exists on
/// every kernel since 2.6.39) the answer is 0, which makes no key look young: ages saturate.
pub(crate) fn boot_time() -> Instant {
    match clock_gettime(ClockId::CLOCK_BOOTTIME) {
        Ok(time) => Instant(
            (time.tv_sec() as u64)
                .wrapping_mul(1_000_000_000)
                .wrapping_add(time.tv_nsec() as u64),
        ),
        Err(_) => Instant(0),
    }
}
