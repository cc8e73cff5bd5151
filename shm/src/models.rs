//! The lock-free pieces under loom, which tries every order of their loads and stores that the memory model allows:
//! `RUSTFLAGS="--cfg loom" cargo test -p ringway-shm --lib --release models`.

use crate::{
    epoch::{OFFLINE, fence_before_check},
    process::ProcessSlot,
    ring::{Consumer, Producer, RingControl, Shape},
    segment::View,
    seqlock::Record,
    sync::{AtomicU64, Ordering},
};
use loom::thread;
use std::sync::Arc;

/// Two slots of one word and a head.
const SHAPE: Shape = Shape::new(1, 4, 8);

fn ring() -> (Producer, Consumer, View<ProcessSlot>) {
    let control = View::of(Arc::new(RingControl::default()));
    let words = (0..SHAPE.words()).map(|_| AtomicU64::new(0)).collect();
    let words = View::of_slice(Arc::new(words));
    let process = View::of(Arc::new(ProcessSlot::default()));
    let producer = Producer::new(control.clone(), words.clone(), process.clone(), SHAPE);
    (producer, Consumer::new(control, words, SHAPE), process)
}

#[test]
fn a_record_is_seen_whole_and_its_room_is_not_reused_early() {
    loom::model(|| {
        let (mut producer, mut consumer, _process) = ring();
        let writer = thread::spawn(move || {
            let mut pushed = Vec::new();
            for number in 1..=3_u64 {
                if producer
                    .push(number as u16, &[&number.to_le_bytes()])
                    .is_ok()
                {
                    pushed.push(number);
                }
                let _ = producer.publish();
            }
            pushed
        });
        let mut popped = Vec::new();
        let mut take = |consumer: &mut Consumer| {
            let record = consumer.pop_into(|kind, bytes| {
                let number = bytes
                    .iter()
                    .rev()
                    .fold(0, |number, byte| number << 8 | u64::from(*byte));
                assert_eq!(u64::from(kind), number);
                number
            });
            popped.extend(record.ok().flatten());
            consumer.release();
        };
        take(&mut consumer);
        take(&mut consumer);
        let pushed = writer.join().unwrap_or_default();
        for _ in 0..3 {
            take(&mut consumer);
        }
        assert_eq!(popped, pushed);
    });
}

#[test]
fn who_sleeps_is_woken() {
    loom::model(|| {
        let (mut producer, consumer, process) = ring();
        let writer = thread::spawn(move || {
            let pushed = producer.push(1, &[]).is_ok();
            pushed && producer.publish()
        });
        process.about_to_sleep();
        let sleeps = consumer.is_empty();
        let rang = writer.join().unwrap_or(false);
        assert!(
            rang || !sleeps,
            "asleep with a record in the ring and no doorbell"
        );
    });
}

#[test]
fn a_record_under_the_lock_is_never_a_mix() {
    loom::model(|| {
        let record = View::of(Arc::new(Record::<2>::default()));
        let writer = {
            let record = record.clone();
            thread::spawn(move || {
                record.write(&[1, 1]);
                record.write(&[2, 2]);
            })
        };
        if let Some([a, b]) = record.read() {
            assert_eq!(a, b);
        }
        let _ = writer.join();
        assert_eq!(record.read(), Some([2, 2]));
    });
}

#[test]
fn what_was_taken_away_is_reused_only_when_nobody_holds_it() {
    loom::model(|| {
        let process = View::of(Arc::new(ProcessSlot::default()));
        process.epoch.store(OFFLINE, Ordering::Relaxed);
        // Which of two places is in use, and the places.
        let words = View::of_slice(Arc::new(vec![
            AtomicU64::new(0),
            AtomicU64::new(7),
            AtomicU64::new(7),
        ]));
        let worker = {
            let (process, words) = (process.clone(), words.clone());
            thread::spawn(move || {
                process.online(1);
                let place = words[0].load(Ordering::Acquire) as usize;
                let value = words[1 + place].load(Ordering::Relaxed);
                process.offline();
                value
            })
        };
        words[0].store(1, Ordering::Release);
        fence_before_check();
        if process.passed(2) {
            words[1].store(99, Ordering::Relaxed);
        }
        assert_eq!(worker.join().unwrap_or(0), 7);
    });
}
