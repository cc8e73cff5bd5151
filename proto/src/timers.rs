//! A peer's timers, as the state owner runs them: handshakes begun, repeated and given up, keepalives, keys
//! zeroed. Rules of the white paper, section 6, in the form that Linux gave them
//! (`drivers/net/wireguard/timers.c`, `send.c`, `receive.c`).
//!
//! Pure: an instant and a look at the shared activity words go in, actions and the next instant come out.
//! Called by `meta` only. What this never does: read a clock, draw a random number, touch a key.
//!
//! # Lazy timers
//! Workers start no timer. They keep, for each peer, a few words ([`ActivitySnapshot`]) and an `armed` word;
//! when that is behind, the next packet raises one event ([`PeerTimers::armed`]). From then on `meta` looks
//! again when [`Schedule::wake`] says so, at least once per KEEPALIVE_TIMEOUT (no deadline that a packet can
//! start is nearer than that, so none is missed), until the peer is quiet and [`Schedule::disarm`] asks for
//! the event again. One look more follows a disarming, for a packet that was under way meanwhile.
//!
//! # What a worker writes
//! - `first_unanswered`: set when data is sent and it is zero, *or older than the session used* (a session is
//!   born of an authenticated handshake message, which was an answer); zeroed when anything authenticated
//!   arrives.
//! - `first_unacknowledged`: set when data is received and it is zero; zeroed when anything is sent.
//!
//! `meta` cannot write these words. The handshake messages that it handles itself count through a baseline:
//! a word from before it has been met, and later data is dated by the first look that sees it.

mod constants;
#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests;

use std::time::Duration;

pub use constants::Constants;

use crate::time::Instant;

/// One look at the activity words of a peer; `None` is the word zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ActivitySnapshot {
    /// The first data sent since anything authenticated was received.
    pub first_unanswered: Option<Instant>,
    /// The first data received since anything was sent.
    pub first_unacknowledged: Option<Instant>,
    /// The last authenticated message sent, keepalives included.
    pub last_sent: Option<Instant>,
    /// The last authenticated message received, keepalives included.
    pub last_received: Option<Instant>,
    /// The last data sent.
    pub last_data_sent: Option<Instant>,
    /// The last data received.
    pub last_data_received: Option<Instant>,
}

/// What a timer asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Action {
    /// No answer for REKEY_ATTEMPT_TIME: drop the packets that wait for a session.
    GiveUp,
    /// No new session for three times REJECT_AFTER_TIME: zero every key and the handshake's state. The timers
    /// go on, as in Linux (`wg_queued_expired_zero_key_material`): a handshake under way is repeated with a new
    /// initiation, and what was given up stays given up.
    ZeroKeys,
    /// Send a handshake initiation, from whatever local address the routes say (the remembered one may be
    /// the trouble), then call [`PeerTimers::initiation_sent`].
    Initiate,
    /// Send an empty message; where no session can carry it, ask [`PeerTimers::need_handshake`] instead.
    SendKeepalive,
}

/// Up to one of each [`Action`], in the order in which to do them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Actions {
    give_up: bool,
    zero_keys: bool,
    initiate: bool,
    send_keepalive: bool,
}

impl Actions {
    /// True if there is nothing to do.
    pub fn is_empty(&self) -> bool {
        *self == Actions::default()
    }
}

impl IntoIterator for Actions {
    type Item = Action;
    type IntoIter = std::iter::Flatten<std::array::IntoIter<Option<Action>, 4>>;

    fn into_iter(self) -> Self::IntoIter {
        [
            self.give_up.then_some(Action::GiveUp),
            self.zero_keys.then_some(Action::ZeroKeys),
            self.initiate.then_some(Action::Initiate),
            self.send_keepalive.then_some(Action::SendKeepalive),
        ]
        .into_iter()
        .flatten()
    }
}

/// When to look at a peer again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Schedule {
    /// Call [`PeerTimers::expire`] then, if not earlier; `None`: not before something happens.
    pub wake: Option<Instant>,
    /// Advance the peer's arm generation now, so that its next packet raises an event.
    pub disarm: bool,
}

/// The timers of one peer.
#[derive(Debug, Clone)]
pub struct PeerTimers {
    constants: Constants,
    /// Retransmissions of the handshake under way.
    attempts: u32,
    retransmit: Option<Instant>,
    /// A handshake was asked for within REKEY_TIMEOUT of the last one: it starts when that is over.
    wanted: bool,
    /// The last initiation or response sent: the rate limit counts from here.
    handshake_sent: Option<Instant>,
    handshake_received: Option<Instant>,
    sent_last_minute: bool,
    zero_keys: Option<Instant>,
    unanswered: Outstanding,
    unacknowledged: Outstanding,
    /// When a keepalive was last asked for; the worker's word follows a moment later.
    keepalive_asked: Option<Instant>,
    watch: Watch,
}

impl PeerTimers {
    /// The timers of a peer that has done nothing yet.
    pub fn new(constants: Constants) -> PeerTimers {
        PeerTimers {
            constants,
            attempts: 0,
            retransmit: None,
            wanted: false,
            handshake_sent: None,
            handshake_received: None,
            sent_last_minute: false,
            zero_keys: None,
            unanswered: Outstanding::default(),
            unacknowledged: Outstanding::default(),
            keepalive_asked: None,
            watch: Watch::Event,
        }
    }

    /// A packet waits for a session, or one is due for renewal: true if an initiation is to be sent now
    /// (then call [`PeerTimers::initiation_sent`]). If the last one is too young the wish is remembered and
    /// [`PeerTimers::expire`] grants it in time.
    pub fn need_handshake(&mut self, now: Instant) -> bool {
        self.attempts = 0;
        if self.may_initiate(now) {
            return true;
        }
        self.wanted = self.retransmit.is_none();
        false
    }

    /// A worker found the current session due for renewal. `last_minute`: on receiving, near its end, which
    /// counts once a session. True as in [`PeerTimers::need_handshake`].
    pub fn rekey_due(&mut self, last_minute: bool, now: Instant) -> bool {
        if last_minute && std::mem::replace(&mut self.sent_last_minute, true) {
            return false;
        }
        self.need_handshake(now)
    }

    /// An initiation left, or could not leave (no endpoint, a full socket): either way the next one waits
    /// REKEY_TIMEOUT and a share of the jitter that `random` chooses.
    pub fn initiation_sent(&mut self, now: Instant, random: u32) {
        self.wanted = false;
        self.handshake_sent = Some(now);
        self.unacknowledged.meet(now);
        self.retransmit = Some(self.next_attempt(now, random));
    }

    /// An initiation was accepted and answered; the session waits for its first message.
    pub fn response_sent(&mut self, now: Instant) {
        self.handshake_sent = Some(now);
        self.unacknowledged.meet(now);
        self.handshake_heard(now);
        self.keys_derived(now);
    }

    /// Our initiation was answered: the session is there.
    pub fn session_established(&mut self, now: Instant) {
        self.handshake_heard(now);
        self.keys_derived(now);
        self.handshake_complete();
    }

    /// The first message came over a session that we answered for: it is confirmed.
    pub fn session_confirmed(&mut self, _now: Instant) {
        self.handshake_complete();
    }

    /// A persistent keepalive was switched on or the interface came up: send one keepalive now; the interval
    /// counts from it.
    pub fn keepalive_started(&mut self, now: Instant) {
        self.keepalive_asked = Some(now);
    }

    /// Every key of the peer is gone for another reason than time (a new private key, the interface taken
    /// down), or its slot had another user before: nothing is left to wait for, whatever the words say of the
    /// time before `now`. Not for [`Action::ZeroKeys`], which ends no handshake under way.
    pub fn reset(&mut self, now: Instant) {
        *self = PeerTimers {
            watch: self.watch,
            ..PeerTimers::new(self.constants)
        };
        self.unanswered.meet(now);
        self.unacknowledged.meet(now);
    }

    /// The `armed` event of a worker: look now ([`PeerTimers::expire`], [`PeerTimers::schedule`]).
    pub fn armed(&mut self) {
        self.watch = Watch::Looking;
    }

    /// True while an initiation waits for its answer.
    pub fn handshake_under_way(&self) -> bool {
        self.retransmit.is_some()
    }

    /// How often the initiation under way was repeated.
    pub fn attempts(&self) -> u32 {
        self.attempts
    }

    /// The constants these timers run on.
    pub fn constants(&self) -> &Constants {
        &self.constants
    }

    /// The earliest deadline by this look. `keepalive` is the peer's persistent keepalive.
    pub fn next_deadline(
        &self,
        activity: &ActivitySnapshot,
        keepalive: Option<Duration>,
    ) -> Option<Instant> {
        [
            self.retransmit,
            self.zero_keys,
            self.wanted_deadline(),
            self.new_handshake_deadline(activity),
            self.keepalive_deadline(activity),
            self.persistent_deadline(activity, keepalive),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// What is due at `now`. Early calls are harmless; `random` chooses the next jitter.
    pub fn expire(
        &mut self,
        activity: &ActivitySnapshot,
        keepalive: Option<Duration>,
        now: Instant,
        random: u32,
    ) -> Actions {
        self.observe(activity);
        let due = |deadline: Option<Instant>| deadline.is_some_and(|deadline| deadline <= now);
        let mut actions = Actions::default();

        if due(self.retransmit) {
            self.retransmit = None;
            if self.attempts > self.constants.attempts() {
                actions.give_up = true;
                self.unacknowledged.meet(now);
                self.zero_keys = self.zero_keys.or(Some(now + self.constants.zero_keys()));
            } else {
                self.attempts += 1;
                self.initiate_or_wait(&mut actions, now);
            }
        }
        if due(self.new_handshake_deadline(activity)) {
            self.unanswered.meet(now);
            self.attempts = 0;
            self.initiate_or_wait(&mut actions, now);
        }
        if due(self.wanted_deadline()) {
            self.wanted = false;
            self.initiate_or_wait(&mut actions, now);
        }
        if due(self.zero_keys) {
            self.zero_keys = None;
            actions.zero_keys = true;
        }
        if due(self.keepalive_deadline(activity))
            || due(self.persistent_deadline(activity, keepalive))
        {
            self.unacknowledged.meet(now);
            self.keepalive_asked = Some(now);
            // An initiation is a sign of life as good.
            actions.send_keepalive = !actions.initiate;
        }
        if actions.initiate {
            // Should the caller not get to `initiation_sent`, the attempt still counts and time goes on.
            self.retransmit = Some(self.next_attempt(now, random));
        }
        actions
    }

    /// When to look next, after [`PeerTimers::expire`] and after every call that changed something.
    pub fn schedule(
        &mut self,
        activity: &ActivitySnapshot,
        keepalive: Option<Duration>,
        now: Instant,
    ) -> Schedule {
        self.observe(activity);
        let deadline = self.next_deadline(activity, keepalive);
        let look = now + self.constants.keepalive;
        let sooner = |other: Instant| Some(deadline.map_or(other, |deadline| deadline.min(other)));
        let waits = self
            .unanswered
            .since(activity.first_unanswered, activity.last_data_sent)
            .is_some()
            || self
                .unacknowledged
                .since(activity.first_unacknowledged, activity.last_data_received)
                .is_some();
        match self.watch {
            Watch::Looking if waits => Schedule {
                wake: sooner(look),
                disarm: false,
            },
            Watch::Looking => {
                self.watch = Watch::LastLook(look);
                Schedule {
                    wake: sooner(look),
                    disarm: true,
                }
            }
            Watch::LastLook(_) if waits => {
                self.watch = Watch::LastLook(look);
                Schedule {
                    wake: sooner(look),
                    disarm: false,
                }
            }
            Watch::LastLook(until) if now < until => Schedule {
                wake: sooner(until),
                disarm: false,
            },
            Watch::LastLook(_) | Watch::Event => {
                self.watch = Watch::Event;
                Schedule {
                    wake: deadline,
                    disarm: false,
                }
            }
        }
    }

    fn may_initiate(&self, now: Instant) -> bool {
        self.handshake_sent
            .is_none_or(|sent| sent + self.constants.rekey_timeout <= now)
    }

    fn initiate_or_wait(&mut self, actions: &mut Actions, now: Instant) {
        if self.may_initiate(now) {
            actions.initiate = true;
            self.wanted = false;
        } else {
            self.wanted = self.retransmit.is_none();
        }
    }

    /// A handshake message that proves the peer's key was received.
    fn handshake_heard(&mut self, now: Instant) {
        self.handshake_received = Some(now);
        self.unanswered.meet(now);
    }

    fn keys_derived(&mut self, now: Instant) {
        self.zero_keys = Some(now + self.constants.zero_keys());
    }

    fn handshake_complete(&mut self) {
        self.retransmit = None;
        self.attempts = 0;
        self.wanted = false;
        self.sent_last_minute = false;
    }

    fn next_attempt(&self, now: Instant, random: u32) -> Instant {
        now + self.constants.rekey_timeout + self.share_of_jitter(random)
    }

    fn share_of_jitter(&self, random: u32) -> Duration {
        let most = u64::try_from(self.constants.jitter.as_nanos()).unwrap_or(u64::MAX);
        Duration::from_nanos(((u128::from(most) * u128::from(random)) >> 32) as u64)
    }

    fn observe(&mut self, activity: &ActivitySnapshot) {
        self.unanswered
            .observe(activity.first_unanswered, activity.last_data_sent);
        self.unacknowledged
            .observe(activity.first_unacknowledged, activity.last_data_received);
    }

    fn wanted_deadline(&self) -> Option<Instant> {
        let sent = self.handshake_sent.filter(|_| self.wanted)?;
        Some(sent + self.constants.rekey_timeout)
    }

    fn new_handshake_deadline(&self, activity: &ActivitySnapshot) -> Option<Instant> {
        let since = self
            .unanswered
            .since(activity.first_unanswered, activity.last_data_sent)?;
        Some(since + self.constants.new_handshake() + self.share_of_jitter(scatter(since)))
    }

    fn keepalive_deadline(&self, activity: &ActivitySnapshot) -> Option<Instant> {
        let since = self
            .unacknowledged
            .since(activity.first_unacknowledged, activity.last_data_received)?;
        Some(since + self.constants.keepalive)
    }

    /// The interval counts from whatever was last sent or received, by a worker or here.
    fn persistent_deadline(
        &self,
        activity: &ActivitySnapshot,
        keepalive: Option<Duration>,
    ) -> Option<Instant> {
        let interval = keepalive.filter(|interval| !interval.is_zero())?;
        let last = [
            activity.last_sent,
            activity.last_received,
            self.handshake_sent,
            self.handshake_received,
            self.keepalive_asked,
        ]
        .into_iter()
        .flatten()
        .max()?;
        Some(last + interval)
    }
}

/// A random-looking number that stays the same as long as the deadline that begins at `since`: drawn anew at
/// each look, jitter would move a deadline into the past.
fn scatter(since: Instant) -> u32 {
    (since.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u32
}

/// How `meta` learns of the next packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Watch {
    /// By an event: the arm generation is ahead of the `armed` word.
    Event,
    /// By looking, at least once per KEEPALIVE_TIMEOUT.
    Looking,
    /// By an event, but a packet of the turn in which the generation moved may have raised none.
    LastLook(Instant),
}

/// Something one side owes the other since a first packet, as a worker's word says and as `meta` knows
/// better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Outstanding {
    /// Up to here `meta` has met it: by a handshake message, or by acting on it.
    met: Option<Instant>,
    /// Data after `met` under a word from before it, dated by the first look that saw it.
    seen: Option<Instant>,
}

impl Outstanding {
    fn meet(&mut self, now: Instant) {
        self.met = self.met.max(Some(now));
        self.seen = None;
    }

    fn observe(&mut self, word: Option<Instant>, last_data: Option<Instant>) {
        let stale = word.is_some() && word <= self.met;
        if stale && last_data > self.met {
            self.seen = self.seen.or(last_data);
        } else {
            self.seen = None;
        }
    }

    fn since(&self, word: Option<Instant>, last_data: Option<Instant>) -> Option<Instant> {
        if word > self.met {
            word
        } else {
            word.and(self.seen.or(last_data.filter(|_| last_data > self.met)))
        }
    }
}
