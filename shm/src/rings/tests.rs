//! The whole segment: what is prepared, who may do what, and grace periods.

use super::*;
use crate::{
    epoch::OFFLINE,
    segment::{Access, Geometry, SegmentFds, create},
};
use std::os::fd::AsFd;

type Result = std::result::Result<(), Box<dyn std::error::Error>>;

fn segment(shards: u8) -> std::result::Result<(SegmentFds, Rings), SegmentError> {
    let fds = create(SegmentKind::Rings, Geometry::new(shards, 8, 16)?)?;
    let segment = Segment::attach(fds.writable.as_fd(), SegmentKind::Rings, Access::ReadWrite)?;
    let rings = Rings::attach(&segment)?;
    Ok((fds, rings))
}

#[test]
fn only_prepared_rings_are_given() -> Result {
    let (_fds, rings) = segment(4)?;
    let handover = RingId::Handover {
        from: WorkerSlot(0),
        to: WorkerSlot(1),
    };
    assert!(rings.producer(handover).is_err());
    assert_eq!(rings.list(), []);
    assert!(rings.prepare_slot(WorkerSlot(0), 5).is_err());
    assert!(rings.prepare_slot(WorkerSlot(2), 2).is_err());
    rings.prepare_slot(WorkerSlot(0), 2)?;
    rings.prepare_slot(WorkerSlot(1), 2)?;
    assert_eq!(rings.workers(), 2);
    assert_eq!(rings.list().len(), 10);
    assert!(
        rings
            .consumer(RingId::Events {
                from: WorkerSlot(2)
            })
            .is_err()
    );

    let packet = vec![7; 65_535];
    let mut producer = rings.producer(handover)?;
    let mut consumer = rings.consumer(handover)?;
    producer.push(5, &[&[1; crate::messages::PacketHeader::LEN], &packet])?;
    rings.process(Role::Worker(WorkerSlot(1))).about_to_sleep();
    assert!(producer.publish());
    let stat = rings
        .list()
        .into_iter()
        .find(|stat| stat.id == handover)
        .ok_or("not listed")?;
    assert_eq!(
        (stat.name.as_str(), stat.used, stat.wakeups),
        ("handover-0-1", 33, 1)
    );
    let bytes = consumer.pop_into(|kind, bytes| (kind, bytes[48..] == packet))?;
    assert_eq!(bytes, Some((5, true)));
    Ok(())
}

#[test]
fn rings_do_not_touch_each_other() -> Result {
    let (_fds, rings) = segment(2)?;
    rings.prepare_slot(WorkerSlot(0), 2)?;
    rings.prepare_slot(WorkerSlot(1), 2)?;
    let all: Vec<RingId> = RingId::all(2).collect();
    for (number, ring) in all.iter().enumerate() {
        let mut producer = rings.producer(*ring)?;
        while producer
            .push(number as u16, &[&[number as u8; 100]])
            .is_ok()
        {}
        let _ = producer.publish();
    }
    for (number, ring) in all.iter().enumerate() {
        let mut consumer = rings.consumer(*ring)?;
        let mut records = 0;
        while let Some(right) = consumer
            .pop_into(|kind, bytes| kind == number as u16 && bytes == [number as u8; 100])?
        {
            assert!(right);
            records += 1;
        }
        consumer.release();
        let stat = rings
            .list()
            .into_iter()
            .find(|stat| stat.id == *ring)
            .ok_or("not listed")?;
        assert_eq!(
            (stat.used, stat.enqueued, stat.dequeued, stat.full_drops),
            (0, records, records, 1)
        );
        assert_eq!(records, stat.size);
    }
    Ok(())
}

#[test]
fn the_tools_see_and_can_not_change() -> Result {
    let (fds, rings) = segment(2)?;
    rings.prepare_slot(WorkerSlot(0), 1)?;
    rings
        .counters(WorkerSlot(0))
        .dropped(crate::counters::DropReason::Replay, 3);
    rings
        .traffic(PeerSlot(7))
        .rx_bytes
        .fetch_add(9, Ordering::Relaxed);
    let segment = Segment::attach(fds.readable.as_fd(), SegmentKind::Rings, Access::ReadOnly)?;
    let tools = Rings::attach(&segment)?;
    assert_eq!(tools.counters(WorkerSlot(0)).drops_total(), 3);
    assert_eq!(
        tools.traffic(PeerSlot(7)).rx_bytes.load(Ordering::Relaxed),
        9
    );
    assert_eq!(tools.list().len(), 4);
    assert!(
        tools
            .producer(RingId::Events {
                from: WorkerSlot(0)
            })
            .is_err()
    );
    assert!(tools.prepare_slot(WorkerSlot(0), 1).is_err());
    Ok(())
}

#[test]
fn numbers_beyond_the_tables_are_harmless() -> Result {
    let (_fds, rings) = segment(2)?;
    let beyond = WorkerSlot(u8::MAX);
    assert!(!std::ptr::eq(
        rings.counters(beyond),
        rings.counters(WorkerSlot(1))
    ));
    assert!(!std::ptr::eq(
        rings.process(Role::Worker(beyond)),
        rings.process(Role::Worker(WorkerSlot(1)))
    ));
    assert!(!std::ptr::eq(
        rings.traffic(PeerSlot(u32::MAX)),
        rings.traffic(PeerSlot(7))
    ));
    assert!(!std::ptr::eq(
        rings.shard_owner(ShardId(9)),
        rings.shard_owner(ShardId(1))
    ));
    Ok(())
}

#[test]
fn an_epoch_has_passed_when_no_worker_is_behind_it() -> Result {
    let (_fds, rings) = segment(2)?;
    assert_eq!(
        rings.process(Role::Meta).epoch.load(Ordering::Relaxed),
        OFFLINE
    );
    assert!(rings.workers_passed(7), "nobody runs");
    let (first, second) = (
        rings.process(Role::Worker(WorkerSlot(0))),
        rings.process(Role::Worker(WorkerSlot(1))),
    );
    first.online(6);
    second.online(7);
    assert!(rings.workers_passed(6));
    assert!(!rings.workers_passed(7));
    first.offline();
    assert!(rings.workers_passed(7));
    assert!(!rings.workers_passed(8));
    // Meta is no worker: it is not waited for.
    rings.process(Role::Meta).online(1);
    assert!(rings.workers_passed(7));
    Ok(())
}
