//! The way to a peer: its MTU, its device, loops.

use super::rig::{HERE, Rig, Stock, answered, drops};
use crate::channel::{FromMeta, Privileged, Refused};
use ringway_shm::counters::DropReason;
use ringway_shm::ids::PeerSlot;
use ringway_shm::messages::Event;
use ringway_shm::state::{Endpoint, RefusalReason};
use std::time::Duration;

#[test]
fn the_path_shrinks_at_once_and_grows_again() {
    let mut rig = Rig::new(8, 64);
    let mut peer = Stock::new(&rig);
    let slot = rig.add(&peer);
    answered(&mut rig, &mut peer, slot);
    rig.answer_routes(1500, false);
    assert_eq!(rig.path(slot).path_mtu, 1500);
    let incarnation = rig.path(slot).incarnation;
    rig.core.event(Event::PathMtu {
        peer: slot,
        incarnation,
        mtu: 1280,
    });
    assert_eq!(rig.path(slot).path_mtu, 1280);
    rig.core.event(Event::PathMtu {
        peer: slot,
        incarnation: incarnation + 1,
        mtu: 600,
    });
    assert_eq!(rig.path(slot).path_mtu, 1280, "another peer's");
    rig.pass(Duration::from_secs(601));
    assert_eq!(rig.path(slot).path_mtu, 1500);
}

#[test]
fn an_endpoint_inside_its_own_tunnel_is_told_and_not_spoken_to() {
    let mut rig = Rig::new(8, 64);
    let peer = Stock::new(&rig);
    let slot = rig.add(&peer);
    rig.core.set_endpoint(slot, HERE.parse().unwrap());
    rig.answer_routes(1420, true);
    assert_eq!(
        rig.record(slot).refusal.unwrap().reason,
        RefusalReason::Loop
    );
    rig.core.want_session(slot);
    assert!(rig.sent().is_empty());
    rig.answer_routes(1500, false);
    rig.pass(Duration::from_secs(6));
    assert_eq!(rig.sent().len(), 1, "the route was mended");
}

fn narrow(rig: &mut Rig, slot: PeerSlot, mtu: u16) {
    let incarnation = rig.path(slot).incarnation;
    rig.core.event(Event::PathMtu {
        peer: slot,
        incarnation,
        mtu,
    });
}

#[test]
fn what_a_worker_learns_of_the_path_reaches_all_workers_in_both_families() {
    for (endpoint, least) in [(HERE, 576), ("[2001:db8::7]:5000", 1280)] {
        let mut rig = Rig::new(8, 64);
        let peer = Stock::new(&rig);
        let slot = rig.add(&peer);
        rig.core.set_endpoint(slot, endpoint.parse().unwrap());
        rig.answer_routes(1500, false);
        narrow(&mut rig, slot, 1400);
        assert_eq!(rig.path(slot).path_mtu, 1400);
        narrow(&mut rig, slot, 1300);
        narrow(&mut rig, slot, 1450);
        assert_eq!(rig.path(slot).path_mtu, 1300, "its narrowest part counts");
        narrow(&mut rig, slot, 68);
        assert_eq!(rig.path(slot).path_mtu, least);
        rig.core.set_endpoint(slot, "192.0.2.99:1".parse().unwrap());
        assert_eq!(rig.path(slot).path_mtu, 0, "another path");
    }
}

#[test]
fn only_the_table_says_what_is_a_loop() {
    let mut rig = Rig::new(8, 64);
    let mut peer = Stock::new(&rig);
    let slot = rig.add(&peer);
    answered(&mut rig, &mut peer, slot);
    rig.answer_routes(1500, false);
    let incarnation = rig.path(slot).incarnation;
    let looped = Event::Looped {
        peer: slot,
        incarnation,
    };
    rig.pass(Duration::from_secs(2));
    for _ in 0..100 {
        rig.core.event(looped);
    }
    let questions = rig.core.outbox().supervisor.len();
    assert_eq!(questions, 1, "one question a second");
    rig.answer_routes(1500, false);
    assert_eq!(rig.record(slot).refusal, None);
    rig.pass(Duration::from_secs(120));
    rig.core.event(Event::Looped {
        peer: slot,
        incarnation,
    });
    rig.core.want_session(slot);
    assert_eq!(rig.sent().len(), 1, "it is spoken to");
    rig.answer_routes(1420, true);
    assert_eq!(
        rig.record(slot).refusal.unwrap().reason,
        RefusalReason::Loop
    );
}

/// No route by the device that was asked for.
fn no_route() -> Refused {
    Refused {
        errno: 101,
        message: "no route".into(),
    }
}

#[test]
fn answers_keep_the_device_only_where_a_route_uses_it() {
    let mut rig = Rig::new(8, 64);
    let mut peer = Stock::new(&rig);
    let slot = rig.add(&peer);
    let (_, message) = peer.initiate(&rig);
    rig.receive(&message, HERE);
    assert_eq!(rig.sent_one().to.ifindex, 3);
    let asked_by_device = rig.core.outbox().supervisor.iter().any(|message| {
        matches!(
            message,
            FromMeta::Request {
                what: Privileged::RouteOf { ifindex: 3, .. },
                ..
            }
        )
    });
    assert!(asked_by_device);
    rig.answer_routes_with(&Err(no_route()));
    let again = rig.sent_one();
    assert_eq!(again.to.ifindex, 0, "the answer leaves as the routes say");
    assert_eq!(again.to.local, Some("198.51.100.1".parse().unwrap()));
    let endpoint = rig.path(slot).endpoint.unwrap();
    assert_eq!((endpoint.ifindex, endpoint.local), (0, again.to.local));
    rig.answer_routes(1500, false);
    assert_eq!(rig.path(slot).path_mtu, 1500);
    rig.pass(Duration::from_secs(5));
    let (_, message) = peer.initiate(&rig);
    rig.receive(&message, HERE);
    assert_eq!(rig.sent_one().to.ifindex, 0, "remembered");
    rig.receive(&peer.initiate(&rig).1, "203.0.113.1:1");
    rig.pass(Duration::from_secs(5));
    rig.sent();
    rig.receive(&peer.initiate(&rig).1, "203.0.113.1:1");
    assert_eq!(rig.sent_one().to.ifindex, 3, "elsewhere it may be another");
    rig.answer_routes(1500, false);
    assert_eq!(rig.path(slot).endpoint.unwrap().ifindex, 3);
    assert!(rig.sent().is_empty(), "it is kept where a route uses it");
}

#[test]
fn who_moves_twice_gets_the_route_of_the_last_place() {
    let mut rig = Rig::new(8, 64);
    let mut peer = Stock::new(&rig);
    let slot = rig.add(&peer);
    let lane = answered(&mut rig, &mut peer, slot);
    rig.answer_routes(1500, false);
    let local_index = rig.keys.read(lane).unwrap().local_index;
    rig.pass(Duration::from_secs(2));
    for (counter, remote) in [(1, "192.0.2.8:1"), (2, "192.0.2.9:1")] {
        let endpoint = Endpoint {
            remote: remote.parse().unwrap(),
            local: Some("198.51.100.1".parse().unwrap()),
            ifindex: 3,
        };
        rig.core.event(Event::Roamed {
            lane,
            local_index,
            counter,
            endpoint,
        });
        rig.pass(Duration::from_millis(10));
    }
    rig.answer_routes(1400, false);
    assert_eq!(rig.path(slot).path_mtu, 0, "of the place before");
    rig.pass(Duration::from_secs(1));
    rig.answer_routes(1300, false);
    assert_eq!(rig.path(slot).path_mtu, 1300);
}

#[test]
fn nobody_is_at_port_0() {
    let mut rig = Rig::new(8, 64);
    let mut peer = Stock::new(&rig);
    rig.add(&peer);
    rig.receive(&peer.initiate(&rig).1, "192.0.2.7:0");
    assert!(rig.sent().is_empty());
    assert_eq!(drops(&rig, DropReason::NoPort), 1);
}

#[test]
fn questions_for_routes_do_not_pile_up() {
    let mut rig = Rig::new(512, 64);
    let peers: Vec<Stock> = (0..200).map(|_| Stock::new(&rig)).collect();
    let slots: Vec<PeerSlot> = peers.iter().map(|peer| rig.add(peer)).collect();
    for port in 1..=20 {
        for slot in &slots {
            let remote = std::net::SocketAddr::from(([192, 0, 2, 1], port));
            rig.core.set_endpoint(*slot, remote);
        }
    }
    for slot in &slots[64..150] {
        rig.core.remove_peer(*slot);
    }
    let mut rounds = Vec::new();
    loop {
        let before = rig.core.outbox().supervisor.len();
        if before == 0 {
            break;
        }
        rounds.push(before);
        rig.answer_routes(1500, false);
    }
    // The first 64 once more for where they are now; never again for those that are gone.
    assert_eq!(rounds, [64, 64, 50], "{rounds:?}");
    for slot in slots[..64].iter().chain(&slots[150..]) {
        assert_eq!(rig.path(*slot).path_mtu, 1500);
    }
}
