//! Slots of peers that go, for peers that come.

use super::configuration::{change, config, reload, who};
use super::rig::{Rig, Stock};
use crate::meta::transaction::{Progress, Transaction};
use ringway_proto::uapi::{PeerChange, SetItem, errno};
use ringway_shm::ids::PeerSlot;
use ringway_shm::messages::Command;
use std::sync::atomic::Ordering;

fn turns(rig: &mut Rig, transaction: &mut Transaction) -> (i32, u32) {
    let mut waits = 0;
    loop {
        match transaction.step(&mut rig.core, 1000) {
            Progress::Done(errno) => return (errno, waits),
            Progress::Busy => waits += 1,
            other => panic!("{other:?}"),
        }
        assert!(waits < 10, "it waits for ever");
        rig.core.grace();
    }
}

fn set(rig: &mut Rig, items: Vec<SetItem>) -> (i32, u32) {
    turns(rig, &mut Transaction::new(items))
}

#[test]
fn a_removed_peers_slot_waits_for_routes_and_workers() {
    let mut rig = Rig::new(1, 8);
    let (one, two) = (Stock::new(&rig), Stock::new(&rig));
    let items = vec![SetItem::Peer(change(&one, &["10.0.0.1"]))];
    assert_eq!(set(&mut rig, items), (errno::OK, 0));
    let traffic = rig.rings.traffic(PeerSlot(0));
    traffic.rx_bytes.store(500, Ordering::Relaxed);
    let removal = PeerChange {
        remove: true,
        ..PeerChange::new(one.private.public())
    };
    set(&mut rig, vec![SetItem::Peer(removal)]);
    let dropped = Command::DropStaged { peer: PeerSlot(0) };
    assert!(rig.commands().contains(&dropped));
    let mut next = Transaction::new(vec![SetItem::Peer(change(&two, &["10.0.0.2"]))]);
    assert_eq!(next.step(&mut rig.core, 10), Progress::Busy);
    rig.core.grace();
    assert_eq!(turns(&mut rig, &mut next), (errno::OK, 0));
    let traffic = rig.rings.traffic(PeerSlot(0));
    assert_eq!(traffic.rx_bytes.load(Ordering::Relaxed), 0);
}

#[test]
fn all_peers_may_be_replaced_at_once() {
    let mut rig = Rig::new(4, 8);
    let peers: Vec<Stock> = (0..8).map(|_| Stock::new(&rig)).collect();
    let all = |peers: &[Stock]| {
        let changes = peers
            .iter()
            .enumerate()
            .map(|(number, peer)| SetItem::Peer(change(peer, &[&format!("10.0.0.{number}")])));
        std::iter::once(SetItem::ReplacePeers)
            .chain(changes)
            .collect()
    };
    assert_eq!(set(&mut rig, all(&peers[..4])), (errno::OK, 0));
    let (result, waits) = set(&mut rig, all(&peers[4..]));
    assert_eq!(result, errno::OK);
    assert!(waits > 0);
    for (number, peer) in peers[4..].iter().enumerate() {
        let slot = rig.core.peers.find(&peer.private.public());
        assert!(slot.is_some());
        assert_eq!(who(&rig, &format!("10.0.0.{number}")), slot);
    }
    let more = Stock::new(&rig);
    let items = vec![SetItem::Peer(change(&more, &[]))];
    assert_eq!(set(&mut rig, items).0, errno::ENOSPC, "no slot comes back");
}

#[test]
fn a_reload_may_replace_all_peers() {
    let mut rig = Rig::down(2, 8);
    let peers: Vec<Stock> = (0..4).map(|_| Stock::new(&rig)).collect();
    let two = |rig: &Rig, first: usize| {
        let (one, other) = (&peers[first], &peers[first + 1]);
        config(
            rig,
            &[(one, "10.0.0.1/32", None), (other, "10.0.0.2/32", None)],
        )
    };
    let first = two(&rig, 0);
    rig.start(&first);
    let second = two(&rig, 2);
    reload(&mut rig, false, Ok(second)).unwrap();
    let slot = rig.core.peers.find(&peers[3].private.public());
    assert!(slot.is_some());
    assert_eq!(who(&rig, "10.0.0.2"), slot);
}
