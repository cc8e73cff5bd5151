//! Figures as people write them.

use std::time::Duration;

/// `1.23 MiB`, as `wg show` counts.
pub(crate) fn bytes(count: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if count < 1024 {
        return format!("{count} B");
    }
    let mut value = count as f64 / 1024.0;
    let mut unit = 0;
    while value >= 1023.995 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{value:.2} {}", UNITS[unit])
}

/// `1.23 Gbit/s`.
pub(crate) fn bits_per_second(rate: f64) -> String {
    format!("{}bit/s", scaled(rate))
}

/// `12.3 k`: a number of events, or of events a second.
pub(crate) fn count(value: f64) -> String {
    scaled(value).trim_end().to_owned()
}

/// `42 %`, of a fraction.
pub(crate) fn percent(fraction: f64) -> String {
    format!("{:.0} %", fraction * 100.0)
}

/// `9 s`, `3 m 05 s`, `2 h 07 m`, `4 d 01 h`.
pub(crate) fn age(seconds: f64) -> String {
    let whole = seconds.max(0.0) as u64;
    match whole {
        0..=59 => format!("{whole} s"),
        60..=3_599 => format!("{} m {:02} s", whole / 60, whole % 60),
        3_600..=86_399 => format!("{} h {:02} m", whole / 3_600, whole % 3_600 / 60),
        _ => format!("{} d {:02} h", whole / 86_400, whole % 86_400 / 3_600),
    }
}

/// Nanoseconds since the Unix epoch as RFC 3339, UTC, with milliseconds.
pub(crate) fn rfc3339(unix_ns: u64) -> String {
    let seconds = unix_ns / 1_000_000_000;
    let milliseconds = unix_ns / 1_000_000 % 1_000;
    let (year, month, day) = civil(seconds / 86_400);
    let (hour, minute, second) = (seconds / 3_600 % 24, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{milliseconds:03}Z")
}

/// The seconds between two readings of a clock in nanoseconds; zero when they are the wrong way round.
pub(crate) fn seconds_between(earlier_ns: u64, later_ns: u64) -> f64 {
    Duration::from_nanos(later_ns.saturating_sub(earlier_ns)).as_secs_f64()
}

/// `value` rounded to milliseconds or thousandths, so that JSON stays readable.
pub(crate) fn rounded(value: f64) -> f64 {
    (value * 1_000.0).round() / 1_000.0
}

fn scaled(value: f64) -> String {
    const UNITS: [&str; 5] = ["", "k", "M", "G", "T"];
    let mut value = value.max(0.0);
    let mut unit = 0;
    while value >= 999.5 && unit + 1 < UNITS.len() {
        value /= 1_000.0;
        unit += 1;
    }
    let digits = match value {
        _ if unit == 0 => 0,
        v if v < 9.995 => 2,
        v if v < 99.95 => 1,
        _ => 0,
    };
    format!("{value:.digits$} {}", UNITS[unit])
}

/// The Gregorian date of a day since 1970-01-01.
fn civil(day: u64) -> (u64, u64, u64) {
    let mut year = 1970;
    let mut left = day;
    while left >= days_of_year(year) {
        left -= days_of_year(year);
        year += 1;
    }
    let february = if is_leap(year) { 29 } else { 28 };
    let lengths = [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let mut month = 1;
    for length in lengths {
        if left < length {
            break;
        }
        left -= length;
        month += 1;
    }
    (year, month, left + 1)
}

fn days_of_year(year: u64) -> u64 {
    if is_leap(year) { 366 } else { 365 }
}

fn is_leap(year: u64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_binary() {
        assert_eq!(bytes(0), "0 B");
        assert_eq!(bytes(1023), "1023 B");
        assert_eq!(bytes(1024), "1.00 KiB");
        assert_eq!(bytes(1_500_000), "1.43 MiB");
        assert_eq!(bytes(1024 * 1024 - 1), "1.00 MiB");
        assert_eq!(bytes(u64::MAX), "16.00 EiB");
    }

    #[test]
    fn rates_are_decimal() {
        assert_eq!(bits_per_second(0.0), "0 bit/s");
        assert_eq!(bits_per_second(999.0), "999 bit/s");
        assert_eq!(bits_per_second(1_234_567_890.0), "1.23 Gbit/s");
        assert_eq!(bits_per_second(99_960_000.0), "100 Mbit/s");
        assert_eq!(count(12_345.0), "12.3 k");
        assert_eq!(count(7.0), "7");
        assert_eq!(count(999.6), "1.00 k");
    }

    #[test]
    fn ages_keep_two_units() {
        assert_eq!(age(0.4), "0 s");
        assert_eq!(age(59.9), "59 s");
        assert_eq!(age(185.0), "3 m 05 s");
        assert_eq!(age(7_620.0), "2 h 07 m");
        assert_eq!(age(349_300.0), "4 d 01 h");
        assert_eq!(age(-1.0), "0 s");
    }

    #[test]
    fn dates_are_gregorian() {
        assert_eq!(rfc3339(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(rfc3339(951_782_400_123_000_000), "2000-02-29T00:00:00.123Z");
        assert_eq!(
            rfc3339(1_735_689_599_999_999_999),
            "2024-12-31T23:59:59.999Z"
        );
        assert_eq!(
            rfc3339(4_107_542_400_000_000_000),
            "2100-03-01T00:00:00.000Z"
        );
    }
}
