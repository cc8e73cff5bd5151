//! When a session is wanted, and what becomes of the wish.

use super::rig::{HERE, Rig, SECOND, Stock, THERE, answered, initiated};
use crate::helper::protocol::Outcome;
use ringway_proto::endpoint::HostPort;
use ringway_proto::wire::MessageType;
use ringway_shm::state::RefusalReason;
use std::sync::atomic::Ordering;
use std::time::Duration;

#[test]
fn silence_is_told_though_traffic_asks_again_and_again() {
    let mut rig = Rig::new(8, 64);
    let peer = Stock::new(&rig);
    let slot = rig.add(&peer);
    let incarnation = rig.path(slot).incarnation;
    rig.core.peers.get_mut(slot).unwrap().host = Some("vpn.example:1".parse().unwrap());
    rig.core.set_endpoint(slot, "192.0.2.1:1".parse().unwrap());
    let both = || {
        let list = ["192.0.2.1:1", "192.0.2.2:1"].map(|text| text.parse().unwrap());
        Ok(Outcome::Addresses(list.into()))
    };
    for _ in 0..30 {
        rig.need(slot);
        rig.pass(Duration::from_secs(1));
        for job in std::mem::take(&mut rig.core.outbox().jobs) {
            rig.core.jobs.take(job.id);
            rig.core.resolved(slot, incarnation, job.id, both());
        }
    }
    let refusal = rig.record(slot).refusal.unwrap();
    assert_eq!(refusal.reason, RefusalReason::NoAnswer);
    let tried = rig.sent();
    assert!(
        tried
            .iter()
            .any(|sent| sent.to.remote == "192.0.2.2:1".parse().unwrap()),
        "the name's other address is tried"
    );
}

#[test]
fn a_wish_made_while_the_link_is_down_is_granted_when_it_is_up() {
    let mut rig = Rig::new(8, 64);
    let peer = Stock::new(&rig);
    let slot = rig.add(&peer);
    rig.core.link(1420, false);
    rig.core.set_endpoint(slot, HERE.parse().unwrap());
    rig.need(slot);
    assert!(rig.sent().is_empty());
    rig.core.link(1420, true);
    assert_eq!(rig.sent().len(), 1);
    rig.core.link(1420, false);
    rig.core.link(1420, true);
    assert!(rig.sent().is_empty(), "once");
}

#[test]
fn zeroing_old_keys_ends_no_handshake_under_way() {
    let mut rig = Rig::new(8, 64);
    let mut peer = Stock::new(&rig);
    let slot = rig.add(&peer);
    let lane = answered(&mut rig, &mut peer, slot);
    rig.pass(Duration::from_secs(538));
    assert!(rig.keys.read(lane).is_some());
    rig.need(slot);
    let initiation = rig.sent_one();
    rig.pass(Duration::from_secs(3));
    assert!(rig.keys.read(lane).is_none(), "zeroed");
    let (response, _) = peer.respond(&rig, initiation.bytes());
    rig.receive(&response, HERE);
    assert!(rig.path(slot).lane.is_some());
}

#[test]
fn a_peer_that_is_dead_is_left_alone_in_the_end() {
    let mut rig = Rig::new(8, 64);
    let mut peer = Stock::new(&rig);
    let slot = rig.add(&peer);
    answered(&mut rig, &mut peer, slot);
    let words = rig.lanes.activity(slot);
    for word in [
        &words.first_unanswered,
        &words.last_sent,
        &words.last_data_sent,
    ] {
        word.store(rig.now().0 + SECOND, Ordering::Relaxed);
    }
    rig.pass(Duration::from_secs(2));
    let incarnation = rig.path(slot).incarnation;
    rig.core.event(ringway_shm::messages::Event::Armed {
        peer: slot,
        incarnation,
    });
    rig.pass(Duration::from_secs(1000));
    assert!(!rig.sent().is_empty());
    rig.core.link(1420, false);
    rig.core.link(1420, true);
    rig.pass(Duration::from_secs(1000));
    assert!(rig.sent().is_empty());
}

#[test]
fn a_wish_from_before_the_session_makes_no_other_one() {
    let mut rig = Rig::new(8, 64);
    let mut peer = Stock::new(&rig);
    let slot = rig.add(&peer);
    rig.core.set_endpoint(slot, HERE.parse().unwrap());
    let lane = initiated(&mut rig, &mut peer, slot);
    rig.need(slot);
    rig.pass(Duration::from_secs(10));
    assert!(rig.sent().is_empty());
    assert_eq!(rig.path(slot).lane, Some(lane));
    rig.pass(Duration::from_secs(111));
    rig.need(slot);
    assert_eq!(rig.sent().len(), 1, "now it is due");
}

#[test]
fn another_key_starts_no_handshakes_but_those_that_are_waited_for() {
    let mut rig = Rig::new(8, 64);
    let mut peers: Vec<Stock> = (0..3).map(|_| Stock::new(&rig)).collect();
    let slots: Vec<_> = peers.iter().map(|peer| rig.add(peer)).collect();
    for (peer, slot) in peers.iter_mut().zip(&slots) {
        answered(&mut rig, peer, *slot);
    }
    rig.core.set_keepalive(slots[1], 25);
    rig.pass(Duration::from_secs(130));
    rig.need(slots[2]);
    rig.sent();
    let key = ringway_proto::keys::PrivateKey::generate().unwrap();
    rig.core.set_private_key(Some(key));
    let mut to: Vec<_> = rig.sent().iter().filter_map(|sent| sent.peer).collect();
    to.sort();
    assert_eq!(to, slots[1..]);
}

#[test]
fn a_refusal_tells_since_when_it_holds() {
    let mut rig = Rig::new(8, 64);
    let mut peer = Stock::new(&rig);
    let slot = rig.add(&peer);
    let (_, message) = peer.initiate(&rig);
    rig.receive(&message, HERE);
    rig.receive(&message, HERE);
    let first = rig.record(slot).refusal.unwrap();
    assert_eq!(first.reason, RefusalReason::TimestampNotNewer);
    let mut noise = [0; 148];
    noise[0] = 1;
    rig.receive(&noise, HERE);
    let stranger = rig.state.gateway().unwrap().last_refusal.unwrap();
    rig.pass(Duration::from_secs(10));
    rig.receive(&message, HERE);
    rig.receive(&noise, HERE);
    assert_eq!(rig.record(slot).refusal, Some(first), "since it began");
    assert_eq!(
        rig.state.gateway().unwrap().last_refusal,
        Some(stranger),
        "for strangers too"
    );
    rig.pass(Duration::from_secs(2));
    rig.receive(&message, THERE);
    let moved = rig.record(slot).refusal.unwrap();
    assert_eq!(moved.from, THERE.parse().unwrap());
    assert_eq!(moved.at_unix_ns, first.at_unix_ns + 12 * SECOND);
}

#[test]
fn an_endpoint_with_an_interface_is_looked_up() {
    use crate::helper::protocol::Work;
    use crate::meta::transaction::{Progress, Transaction};
    use ringway_proto::uapi::{PeerChange, SetItem};
    let mut rig = Rig::new(8, 64);
    let peer = Stock::new(&rig);
    let slot = rig.add(&peer);
    let host: HostPort = "[fe80::1%eth0]:51820".parse().unwrap();
    let change = PeerChange {
        lookup: Some(host),
        keepalive: Some(25),
        ..PeerChange::new(peer.private.public())
    };
    let mut transaction = Transaction::new(vec![SetItem::Peer(change)]);
    assert_eq!(transaction.step(&mut rig.core, 10), Progress::Done(0));
    let job = rig.core.outbox().jobs.pop().unwrap();
    assert!(matches!(&job.work, Work::Resolve { host, .. } if host == "fe80::1%eth0"));
    rig.core.jobs.take(job.id);
    let found = Outcome::Addresses(vec!["[fe80::1%4]:51820".parse().unwrap()]);
    let incarnation = rig.path(slot).incarnation;
    rig.core.resolved(slot, incarnation, job.id, Ok(found));
    let sent = rig.sent_one();
    assert_eq!(MessageType::of(sent.bytes()), Some(MessageType::Initiation));
    assert_eq!(sent.to.remote, "[fe80::1%4]:51820".parse().unwrap());
}
