//! The constants of the white paper, section 6.1, and how a test build shortens them.

use std::time::Duration;

/// The times and counts that WireGuard's timers run on.
///
/// A release build knows [`Constants::WIREGUARD`] only. With the cargo feature `test-timers`,
/// [`Constants::from_env`] takes shorter ones from `RINGWAY_TEST_TIMERS`, so that a rekey can be watched in
/// seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Constants {
    /// REKEY_AFTER_TIME: the initiator of a session that is older begins a new handshake when it sends.
    pub rekey_after: Duration,
    /// REJECT_AFTER_TIME: nobody sends or accepts with a session that is this old.
    pub reject_after: Duration,
    /// REKEY_AFTER_MESSAGES: a sender that is past it begins a new handshake.
    pub rekey_after_messages: u64,
    /// REJECT_AFTER_MESSAGES: the first counter that is never sent and never accepted.
    pub reject_after_messages: u64,
    /// KEEPALIVE_TIMEOUT: data received and nothing sent for so long makes an empty message.
    pub keepalive: Duration,
    /// REKEY_TIMEOUT: the least time between two initiations.
    pub rekey_timeout: Duration,
    /// The greatest random addition to `rekey_timeout`.
    pub jitter: Duration,
    /// REKEY_ATTEMPT_TIME: after so long without an answer a handshake is given up.
    pub rekey_attempt: Duration,
}

impl Constants {
    /// What every WireGuard implementation uses.
    pub const WIREGUARD: Constants = Constants {
        rekey_after: Duration::from_secs(120),
        reject_after: Duration::from_secs(180),
        rekey_after_messages: 1 << 60,
        reject_after_messages: crate::replay::REJECT_AFTER_MESSAGES,
        keepalive: Duration::from_secs(10),
        rekey_timeout: Duration::from_secs(5),
        jitter: Duration::from_millis(333),
        rekey_attempt: Duration::from_secs(90),
    };

    /// The constants this process runs on: those of WireGuard, except in a `test-timers` build, which reads
    /// `RINGWAY_TEST_TIMERS`.
    ///
    /// # Errors
    /// One line for the terminal if the variable holds something unknown.
    pub fn from_env() -> Result<Constants, String> {
        #[cfg(feature = "test-timers")]
        if let Ok(text) = std::env::var("RINGWAY_TEST_TIMERS") {
            return Constants::parse(&text);
        }
        Ok(Constants::WIREGUARD)
    }

    /// Reads `rekey_after=3,reject_after=9,...`: seconds (fractions allowed) or, for the two counts,
    /// messages. What is not named keeps its usual value.
    ///
    /// # Errors
    /// One line naming the field and the value.
    pub fn parse(text: &str) -> Result<Constants, String> {
        let mut constants = Constants::WIREGUARD;
        for item in text
            .split(',')
            .map(str::trim)
            .filter(|item| !item.is_empty())
        {
            let (name, value) = item
                .split_once('=')
                .ok_or_else(|| format!("RINGWAY_TEST_TIMERS: {item}: expected NAME=VALUE"))?;
            let seconds = || {
                value
                    .parse::<f64>()
                    .ok()
                    .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
                    .ok_or_else(|| {
                        format!("RINGWAY_TEST_TIMERS: {name}: {value}: not a number of seconds")
                    })
            };
            let messages = || {
                value.parse::<u64>().map_err(|_| {
                    format!("RINGWAY_TEST_TIMERS: {name}: {value}: not a number of messages")
                })
            };
            match name {
                "rekey_after" => constants.rekey_after = seconds()?,
                "reject_after" => constants.reject_after = seconds()?,
                "keepalive" => constants.keepalive = seconds()?,
                "rekey_timeout" => constants.rekey_timeout = seconds()?,
                "jitter" => constants.jitter = seconds()?,
                "rekey_attempt" => constants.rekey_attempt = seconds()?,
                "rekey_after_messages" => constants.rekey_after_messages = messages()?,
                "reject_after_messages" => {
                    constants.reject_after_messages =
                        messages()?.min(crate::replay::REJECT_AFTER_MESSAGES);
                }
                _ => {
                    return Err(format!(
                        "RINGWAY_TEST_TIMERS: {name}: unknown; known are rekey_after, reject_after, \
                         keepalive, rekey_timeout, jitter, rekey_attempt, rekey_after_messages, \
                         reject_after_messages"
                    ));
                }
            }
        }
        Ok(constants)
    }

    /// Data sent and nothing heard for so long (and jitter): a new handshake.
    pub fn new_handshake(&self) -> Duration {
        self.keepalive + self.rekey_timeout
    }

    /// An initiator that receives with a session older than this begins its one last-minute handshake, so
    /// that a one-way flow towards it does not stall when the session dies.
    pub fn last_minute(&self) -> Duration {
        self.reject_after.saturating_sub(self.new_handshake())
    }

    /// Without a new session for so long, every key of the peer is zeroed.
    pub fn zero_keys(&self) -> Duration {
        self.reject_after * 3
    }

    /// How many retransmissions of an initiation are made before giving up.
    pub fn attempts(&self) -> u32 {
        let timeout = self.rekey_timeout.as_millis().max(1);
        u32::try_from(self.rekey_attempt.as_millis() / timeout).unwrap_or(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_white_papers_values() {
        let constants = Constants::WIREGUARD;
        assert_eq!(constants.new_handshake(), Duration::from_secs(15));
        assert_eq!(constants.last_minute(), Duration::from_secs(165));
        assert_eq!(constants.zero_keys(), Duration::from_secs(540));
        assert_eq!(constants.attempts(), 18);
        assert_eq!(
            u128::from(constants.reject_after_messages),
            (1_u128 << 64) - (1 << 13) - 1
        );
    }

    #[test]
    fn a_test_build_names_what_it_shortens() {
        let constants =
            Constants::parse("rekey_after=3, reject_after=4.5,rekey_after_messages=9").unwrap();
        assert_eq!(constants.rekey_after, Duration::from_secs(3));
        assert_eq!(constants.reject_after, Duration::from_millis(4500));
        assert_eq!(constants.rekey_after_messages, 9);
        assert_eq!(constants.keepalive, Constants::WIREGUARD.keepalive);
        assert_eq!(Constants::parse("").unwrap(), Constants::WIREGUARD);
    }

    #[test]
    fn an_unknown_name_or_value_is_told() {
        for (text, part) in [
            ("rekey=3", "rekey: unknown"),
            ("rekey_after", "expected NAME=VALUE"),
            ("rekey_after=-1", "not a number of seconds"),
            ("rekey_after=NaN", "not a number of seconds"),
            ("rekey_after_messages=1.5", "not a number of messages"),
        ] {
            let error = Constants::parse(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
