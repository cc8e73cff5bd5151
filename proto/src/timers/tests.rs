//! Each rule alone.

use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn at(seconds: f64) -> Instant {
    Instant(1_000_000_000_000) + Duration::from_secs_f64(seconds)
}

fn timers() -> PeerTimers {
    PeerTimers::new(Constants::WIREGUARD)
}

const QUIET: ActivitySnapshot = ActivitySnapshot {
    first_unanswered: None,
    first_unacknowledged: None,
    last_sent: None,
    last_received: None,
    last_data_sent: None,
    last_data_received: None,
};

fn sent(when: Instant) -> ActivitySnapshot {
    ActivitySnapshot {
        first_unanswered: Some(when),
        last_sent: Some(when),
        last_data_sent: Some(when),
        ..QUIET
    }
}

fn received(when: Instant) -> ActivitySnapshot {
    ActivitySnapshot {
        first_unacknowledged: Some(when),
        last_received: Some(when),
        last_data_received: Some(when),
        ..QUIET
    }
}

fn expire(timers: &mut PeerTimers, activity: &ActivitySnapshot, now: Instant) -> Vec<Action> {
    timers.expire(activity, None, now, 0).into_iter().collect()
}

#[test]
fn a_handshake_is_repeated_and_given_up() {
    let mut timers = timers();
    let mut now = at(0.0);
    assert!(timers.need_handshake(now));
    timers.initiation_sent(now, u32::MAX);
    let mut sent = 1;
    loop {
        let next = timers.next_deadline(&QUIET, None).unwrap();
        let gap = next.since(now);
        assert!(
            gap >= 5 * SECOND && gap <= Duration::from_millis(5333),
            "{gap:?}"
        );
        assert!(expire(&mut timers, &QUIET, Instant(next.0 - 1)).is_empty());
        now = next;
        match expire(&mut timers, &QUIET, now)[..] {
            [Action::Initiate] => timers.initiation_sent(now, u32::MAX),
            [Action::GiveUp] => break,
            ref other => panic!("{other:?}"),
        }
        sent += 1;
    }
    // As Linux: 90 / 5 retries and one more, so 20 initiations in all.
    assert_eq!(sent, 20);
    assert!(!timers.handshake_under_way());
    assert_eq!(timers.next_deadline(&QUIET, None), Some(now + 540 * SECOND));
    assert_eq!(
        expire(&mut timers, &QUIET, now + 540 * SECOND),
        [Action::ZeroKeys]
    );
    assert_eq!(timers.next_deadline(&QUIET, None), None);
}

#[test]
fn at_most_one_initiation_per_rekey_timeout() {
    let mut timers = timers();
    assert!(timers.need_handshake(at(0.0)));
    timers.initiation_sent(at(0.0), 0);
    assert!(!timers.need_handshake(at(4.9)));
    timers.session_established(at(4.9));
    // The wish is not lost: it is granted when the time is over.
    assert!(!timers.rekey_due(false, at(4.95)));
    assert_eq!(timers.next_deadline(&QUIET, None), Some(at(5.0)));
    assert!(expire(&mut timers, &QUIET, at(4.99)).is_empty());
    assert_eq!(expire(&mut timers, &QUIET, at(5.0)), [Action::Initiate]);
}

#[test]
fn a_response_counts_as_a_handshake_sent() {
    let mut timers = timers();
    timers.response_sent(at(0.0));
    assert!(!timers.need_handshake(at(1.0)));
    timers.session_confirmed(at(1.1));
    assert_eq!(
        timers.next_deadline(&QUIET, None),
        Some(at(540.0)),
        "confirmed: no wish is left"
    );
    assert!(timers.need_handshake(at(5.0)));
}

#[test]
fn unanswered_data_begins_a_handshake() {
    let mut timers = timers();
    timers.session_established(at(0.0));
    let activity = sent(at(10.0));
    let due = timers.next_deadline(&activity, None).unwrap();
    assert!(
        due >= at(25.0) && due <= at(25.333),
        "fifteen seconds and jitter"
    );
    assert!(expire(&mut timers, &activity, at(24.9)).is_empty());
    assert_eq!(expire(&mut timers, &activity, due), [Action::Initiate]);
    timers.initiation_sent(due, 0);
    timers.session_established(at(25.5));
    // The worker's word still says 10, and says nothing new.
    assert_eq!(timers.next_deadline(&activity, None), Some(at(565.5)));
    // More data on the way without an answer: dated by the look that sees it.
    let activity = ActivitySnapshot {
        last_data_sent: Some(at(30.0)),
        ..activity
    };
    assert!(expire(&mut timers, &activity, at(30.0)).is_empty());
    let later = ActivitySnapshot {
        last_data_sent: Some(at(40.0)),
        ..activity
    };
    let due = timers.next_deadline(&later, None).unwrap();
    assert!(due >= at(45.0) && due <= at(45.333));
    assert_eq!(expire(&mut timers, &later, due), [Action::Initiate]);
}

#[test]
fn received_data_makes_one_keepalive() {
    let mut timers = timers();
    timers.response_sent(at(0.0));
    timers.session_confirmed(at(0.1));
    let activity = received(at(3.0));
    assert_eq!(timers.next_deadline(&activity, None), Some(at(13.0)));
    assert_eq!(
        expire(&mut timers, &activity, at(13.0)),
        [Action::SendKeepalive]
    );
    // The worker has not come to it yet.
    assert!(expire(&mut timers, &activity, at(13.001)).is_empty());
    assert_eq!(timers.next_deadline(&activity, None), Some(at(540.0)));
}

#[test]
fn persistent_keepalive_counts_from_any_traffic() {
    let mut timers = timers();
    let keepalive = Some(25 * SECOND);
    assert_eq!(timers.next_deadline(&QUIET, keepalive), None);
    timers.keepalive_started(at(0.0));
    assert_eq!(timers.next_deadline(&QUIET, keepalive), Some(at(25.0)));
    let activity = ActivitySnapshot {
        last_received: Some(at(20.0)),
        ..QUIET
    };
    assert_eq!(timers.next_deadline(&activity, keepalive), Some(at(45.0)));
    let actions = timers.expire(&activity, keepalive, at(45.0), 0);
    assert_eq!(
        actions.into_iter().collect::<Vec<_>>(),
        [Action::SendKeepalive]
    );
    assert_eq!(timers.next_deadline(&activity, keepalive), Some(at(70.0)));
    assert_eq!(timers.next_deadline(&activity, Some(Duration::ZERO)), None);
}

#[test]
fn the_last_minute_comes_once_a_session() {
    let mut timers = timers();
    timers.session_established(at(0.0));
    assert!(timers.rekey_due(true, at(165.0)));
    timers.initiation_sent(at(165.0), 0);
    assert!(!timers.rekey_due(true, at(171.0)));
    timers.session_established(at(171.1));
    assert!(timers.rekey_due(true, at(171.1 + 165.0)));
}

#[test]
fn an_initiation_that_never_reached_its_call_still_takes_time() {
    let mut timers = timers();
    timers.need_handshake(at(0.0));
    timers.initiation_sent(at(0.0), 0);
    assert_eq!(expire(&mut timers, &QUIET, at(5.0)), [Action::Initiate]);
    assert!(expire(&mut timers, &QUIET, at(5.0)).is_empty());
    assert_eq!(timers.next_deadline(&QUIET, None), Some(at(10.0)));
}

#[test]
fn a_quiet_peer_is_left_alone_after_one_more_look() {
    let mut timers = timers();
    let schedule = timers.schedule(&QUIET, None, at(0.0));
    assert_eq!(
        schedule,
        Schedule {
            wake: None,
            disarm: false
        }
    );
    timers.armed();
    let busy = sent(at(0.0));
    let schedule = timers.schedule(&busy, None, at(0.0));
    assert_eq!(
        schedule,
        Schedule {
            wake: Some(at(10.0)),
            disarm: false
        }
    );
    let answered = ActivitySnapshot {
        first_unanswered: None,
        ..busy
    };
    let schedule = timers.schedule(&answered, None, at(10.0));
    assert_eq!(
        schedule,
        Schedule {
            wake: Some(at(20.0)),
            disarm: true
        }
    );
    // A packet that slipped through keeps the looks going, without another event.
    let slipped = sent(at(10.1));
    let schedule = timers.schedule(&slipped, None, at(20.0));
    assert!(!schedule.disarm);
    assert!(schedule.wake >= Some(at(25.1)) && schedule.wake <= Some(at(25.5)));
    let schedule = timers.schedule(&answered, None, at(30.0));
    assert_eq!(
        schedule,
        Schedule {
            wake: None,
            disarm: false
        }
    );
}

#[test]
fn a_reset_forgets_the_sessions() {
    let mut timers = timers();
    timers.session_established(at(0.0));
    timers.reset(at(0.1));
    assert_eq!(timers.next_deadline(&QUIET, None), None);
    assert!(timers.need_handshake(at(0.1)));
}

/// Workers' words outlive a reset: they tell of sessions that are gone.
#[test]
fn a_reset_forgets_what_was_outstanding() {
    for activity in [sent(at(10.0)), received(at(10.0))] {
        let mut timers = timers();
        timers.session_established(at(0.0));
        timers.reset(at(20.0));
        assert_eq!(timers.next_deadline(&activity, None), None);
        assert!(expire(&mut timers, &activity, at(100.0)).is_empty());
    }
    let mut timers = timers();
    timers.reset(at(20.0));
    let due = timers.next_deadline(&sent(at(21.0)), None);
    assert!(due >= Some(at(36.0)), "data after the reset counts");
}

/// `wg_queued_expired_zero_key_material` deletes no timer.
#[test]
fn zeroed_keys_neither_end_a_handshake_nor_begin_one() {
    let mut timers = timers();
    timers.session_established(at(0.0));
    let activity = sent(at(1.0));
    let due = timers.next_deadline(&activity, None).unwrap();
    assert_eq!(expire(&mut timers, &activity, due), [Action::Initiate]);
    timers.initiation_sent(due, 0);
    loop {
        let now = timers.next_deadline(&activity, None).unwrap();
        match expire(&mut timers, &activity, now)[..] {
            [Action::Initiate] => timers.initiation_sent(now, 0),
            [Action::GiveUp] => break,
            ref other => panic!("{other:?}"),
        }
    }
    // Another packet shortly before the keys go.
    assert!(timers.need_handshake(at(537.0)));
    timers.initiation_sent(at(537.0), 0);
    assert_eq!(
        expire(&mut timers, &activity, at(540.0)),
        [Action::ZeroKeys]
    );
    assert!(timers.handshake_under_way());
    assert_eq!(timers.next_deadline(&activity, None), Some(at(542.0)));
    assert_eq!(
        expire(&mut timers, &activity, at(542.0)),
        [Action::Initiate]
    );
    timers.initiation_sent(at(542.0), 0);
    assert_eq!(timers.attempts(), 1);
}
