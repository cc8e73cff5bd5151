//! What is known of the path to a peer: how large a datagram may be.

use ringway_proto::time::Instant;
use std::time::Duration;

/// A learned MTU is forgotten after this time, so that a path that got wider again is used
/// (RFC 1191, section 6.3).
const LEARNED_LIFETIME: Duration = Duration::from_secs(600);

/// Nothing may ask for less than what a family has to carry (RFC 1191; RFC 8200, section 5): a forged
/// message must not make a hundred of every packet.
const LEAST_V4: u16 = 576;
const LEAST_V6: u16 = 1280;

/// The greatest datagrams to one peer, IP header included; 0 in what it gives is unknown.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PathMtu {
    /// What the kernel's table says.
    route: u16,
    /// When the table was asked last.
    pub(crate) asked: Option<Instant>,
    /// When to ask again, though nothing else happens.
    asks_at: Option<Instant>,
    /// What a refused datagram told, and when.
    learned: Option<(u16, Instant)>,
    /// The device by which no route leads to the endpoint, though it is heard by it; 0: none.
    pub(crate) dead_end: u32,
}

impl PathMtu {
    /// The path, of IPv6 or IPv4, carries no more than this. `false`: that was known.
    pub(crate) fn lower(&mut self, mtu: u16, v6: bool, now: Instant) -> bool {
        let before = self.current();
        let mtu = mtu.max(if v6 { LEAST_V6 } else { LEAST_V4 });
        // Late news of a wider part of the path says nothing about its narrowest.
        self.expire(now);
        if self.learned.is_none_or(|(learned, _)| mtu <= learned) {
            self.learned = Some((mtu, now));
        }
        self.current() != before
    }

    /// The table is asked now.
    pub(crate) fn asked_now(&mut self, now: Instant) {
        self.asked = Some(now);
        self.asks_at = None;
    }

    /// The table is to be asked when the last question is so old.
    pub(crate) fn ask_later(&mut self, age: Duration) {
        self.asks_at = self.asked.map(|asked| asked + age);
    }

    /// When the table is to be asked.
    pub(crate) fn asks_at(&self) -> Option<Instant> {
        self.asks_at
    }

    /// The route's MTU; one that has grown voids what was learned before. `false`: no change.
    pub(crate) fn set_route(&mut self, mtu: u32) -> bool {
        let before = self.current();
        let mtu = u16::try_from(mtu).unwrap_or(u16::MAX);
        if mtu > self.route && self.route != 0 {
            self.learned = None;
        }
        self.route = mtu;
        self.current() != before
    }

    /// Another endpoint: nothing is known.
    pub(crate) fn reset(&mut self) {
        *self = PathMtu {
            asked: self.asked,
            asks_at: self.asks_at,
            ..PathMtu::default()
        };
    }

    /// Forgets what is too old. `false`: nothing.
    pub(crate) fn expire(&mut self, now: Instant) -> bool {
        self.learned
            .take_if(|(_, since)| now.since(*since) >= LEARNED_LIFETIME)
            .is_some()
    }

    /// When [`PathMtu::expire`] has something to do.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.learned.map(|(_, since)| since + LEARNED_LIFETIME)
    }

    /// What the workers are told.
    pub(crate) fn current(&self) -> u16 {
        match (self.learned, self.route) {
            (Some((learned, _)), 0) => learned,
            (Some((learned, _)), route) => learned.min(route),
            (None, route) => route,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shrinks_at_once_and_grows_in_time() {
        let mut path = PathMtu::default();
        assert_eq!(path.current(), 0);
        path.set_route(1500);
        assert!(path.lower(1280, false, Instant(1)));
        assert!(!path.lower(1280, false, Instant(2)));
        assert_eq!(path.current(), 1280);
        assert!(!path.lower(1400, false, Instant(2)));
        assert_eq!(path.current(), 1280, "the narrowest part counts");
        let end = path.deadline().unwrap();
        assert!(!path.expire(Instant(end.0 - 1)));
        assert!(path.expire(end));
        assert_eq!(path.current(), 1500);
    }

    #[test]
    fn a_route_that_grew_voids_what_was_learned() {
        let mut path = PathMtu::default();
        path.set_route(1280);
        path.lower(1200, false, Instant(1));
        assert!(!path.set_route(1280));
        assert!(path.set_route(1500));
        assert_eq!(path.current(), 1500);
    }

    #[test]
    fn a_forged_message_has_a_floor() {
        let mut path = PathMtu::default();
        path.lower(68, false, Instant(1));
        assert_eq!(path.current(), 576);
        let mut path = PathMtu::default();
        path.lower(68, true, Instant(1));
        assert_eq!(path.current(), 1280);
    }
}
