//! Under load: cookies for who can be proved, and little work for the rest.

use super::rig::{Rig, Stock};
use ringway_proto::wire::{Message, MessageType};
use ringway_shm::counters::DropReason;
use std::sync::atomic::Ordering;
use std::time::Duration;

#[test]
fn under_load_a_sender_must_prove_its_address() {
    let mut rig = Rig::new(8, 64);
    let mut attacker = Stock::new(&rig);
    let mut peer = Stock::new(&rig);
    rig.add(&peer);
    let (_, flood) = attacker.initiate(&rig);
    for number in 0..600 {
        rig.arrive(
            &flood,
            &format!("203.0.113.{}:{}", number % 250, 1000 + number),
        );
    }
    let (_, message) = peer.initiate(&rig);
    rig.receive(&message, "192.0.2.7:5000");
    let sent = rig.sent();
    assert!(
        sent.len() > 600
            && sent.iter().all(|datagram| {
                MessageType::of(datagram.bytes()) == Some(MessageType::CookieReply)
                    && datagram.tos == 0
            })
    );
    let Ok(Message::CookieReply(reply)) = Message::parse(sent[sent.len() - 1].bytes()) else {
        panic!()
    };
    peer.macs.receive_cookie_reply(&reply, rig.now()).unwrap();
    rig.pass(Duration::from_millis(500));
    let (_, proved) = peer.initiate(&rig);
    // From elsewhere the cookie is worth nothing.
    rig.receive(&proved, "192.0.2.8:5000");
    assert_eq!(
        MessageType::of(rig.sent_one().bytes()),
        Some(MessageType::CookieReply)
    );
    rig.receive(&proved, "192.0.2.7:5000");
    assert_eq!(
        MessageType::of(rig.sent_one().bytes()),
        Some(MessageType::Response)
    );
    // And one source is worked for only so often.
    for _ in 0..10 {
        let (_, again) = peer.initiate(&rig);
        rig.receive(&again, "192.0.2.7:5000");
    }
    let limited =
        rig.rings.meta_counters().drops[DropReason::RateLimited as usize].load(Ordering::Relaxed);
    assert!(limited >= 5, "{limited}");
    rig.sent();
    rig.pass(Duration::from_secs(2));
    let (_, calm) = Stock::initiate(&mut peer, &rig);
    rig.receive(&calm, "192.0.2.9:5000");
    assert_eq!(
        MessageType::of(rig.sent_one().bytes()),
        Some(MessageType::Response),
        "the load is over"
    );
}

#[test]
fn noise_makes_no_load() {
    let mut rig = Rig::new(8, 64);
    let mut peer = Stock::new(&rig);
    rig.add(&peer);
    let mut noise = [7; 148];
    noise[..4].copy_from_slice(&[1, 0, 0, 0]);
    for number in 0..5000 {
        rig.arrive(&noise, &format!("203.0.113.7:{}", 1000 + number));
    }
    assert_eq!(rig.core.waiting(), 0);
    let (_, message) = peer.initiate(&rig);
    rig.receive(&message, "192.0.2.7:5000");
    assert_eq!(
        MessageType::of(rig.sent_one().bytes()),
        Some(MessageType::Response)
    );
}

#[test]
fn who_begs_for_cookies_gets_no_more_than_a_share() {
    let mut rig = Rig::new(8, 64);
    let mut attacker = Stock::new(&rig);
    let mut peer = Stock::new(&rig);
    rig.add(&peer);
    let (_, flood) = attacker.initiate(&rig);
    for number in 0..20_000 {
        rig.arrive(&flood, &format!("203.0.113.7:{}", 1000 + number));
    }
    while rig.core.work_off() {}
    let given = rig.sent().len();
    assert!((100..400).contains(&given), "{given}");
    let mut claiming = flood;
    claiming[140] = 1;
    for number in 0..1000 {
        rig.arrive(&claiming, &format!("203.0.113.7:{}", 1000 + number));
    }
    while rig.core.work_off() {}
    assert_eq!(rig.sent().len(), 0, "nor with a wrong cookie");
    let (_, message) = peer.initiate(&rig);
    rig.receive(&message, "192.0.2.7:5000");
    let Ok(Message::CookieReply(reply)) = Message::parse(rig.sent_one().bytes()) else {
        panic!("no cookie")
    };
    peer.macs.receive_cookie_reply(&reply, rig.now()).unwrap();
    for _ in 0..30 {
        // It goes on: the load holds.
        rig.pass(Duration::from_millis(100));
        for number in 0..1000 {
            rig.arrive(&flood, &format!("203.0.113.7:{}", 1000 + number));
        }
        while rig.core.work_off() {}
        let sent = rig.sent();
        assert!(sent.len() <= 100, "{}", sent.len());
    }
    let (_, proved) = peer.initiate(&rig);
    rig.receive(&proved, "192.0.2.7:5000");
    assert_eq!(
        MessageType::of(rig.sent_one().bytes()),
        Some(MessageType::Response)
    );
}
