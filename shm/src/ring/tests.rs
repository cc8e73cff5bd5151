//! Rings on the heap: the two ends, hostile words, and two threads at full speed.

use super::*;
use crate::{
    doorbell::Doorbell,
    process::{NOT_PINNED, ProcessSlot},
    segment::View,
};
use proptest::prelude::*;
use std::{collections::VecDeque, sync::Arc, thread};

const SHAPE: Shape = Shape::new(3, 5, 100);

struct Memory {
    control: View<RingControl>,
    words: View<[AtomicU64]>,
    process: View<ProcessSlot>,
    shape: Shape,
}

impl Memory {
    fn new(shape: Shape) -> Memory {
        let words = (0..shape.words()).map(|_| AtomicU64::new(0)).collect();
        Memory {
            control: View::of(Arc::new(RingControl::default())),
            words: View::of_slice(Arc::new(words)),
            process: View::of(Arc::new(ProcessSlot::default())),
            shape,
        }
    }

    /// Both indices at `slots`, as after that many slots of traffic.
    fn at(shape: Shape, slots: u64) -> Memory {
        let memory = Memory::new(shape);
        memory.control.head.store(slots, Ordering::Relaxed);
        memory.control.tail.store(slots, Ordering::Relaxed);
        memory
    }

    fn producer(&self) -> Producer {
        Producer::new(
            self.control.clone(),
            self.words.clone(),
            self.process.clone(),
            self.shape,
        )
    }

    fn consumer(&self) -> Consumer {
        Consumer::new(self.control.clone(), self.words.clone(), self.shape)
    }
}

fn pop(consumer: &mut Consumer) -> Option<(u16, Vec<u8>)> {
    consumer
        .pop_into(|kind, bytes| (kind, bytes.to_vec()))
        .ok()
        .flatten()
}

#[test]
fn records_come_out_as_they_went_in() {
    let memory = Memory::new(SHAPE);
    let (mut producer, mut consumer) = (memory.producer(), memory.consumer());
    assert!(consumer.is_empty());
    assert_eq!(producer.push(7, &[b"one", b"", b"two and more"]), Ok(()));
    assert_eq!(pop(&mut consumer), None, "not published yet");
    assert!(!producer.publish(), "nobody sleeps");
    assert!(!consumer.is_empty());
    assert_eq!(pop(&mut consumer), Some((7, b"onetwo and more".to_vec())));
    assert_eq!(pop(&mut consumer), None);
    consumer.release();
    let figures = memory.control.figures(SHAPE);
    assert_eq!(
        (figures.used, figures.enqueued, figures.dequeued),
        (0, 1, 1)
    );
    assert_eq!(figures.high_water, 1);
}

#[test]
fn a_full_ring_drops_and_counts() {
    let memory = Memory::new(SHAPE);
    let (mut producer, mut consumer) = (memory.producer(), memory.consumer());
    for _ in 0..8 {
        assert_eq!(producer.push(1, &[&[5; 24]]), Ok(()));
    }
    assert_eq!(producer.push(1, &[&[]]), Err(Full));
    assert_eq!(
        producer.push(1, &[&[0; 101]]),
        Err(Full),
        "longer than any record"
    );
    let _ = producer.publish();
    assert_eq!(memory.control.figures(SHAPE).full_drops, 2);
    assert_eq!(memory.control.figures(SHAPE).high_water, 8);
    assert!(pop(&mut consumer).is_some());
    assert_eq!(producer.push(1, &[&[]]), Err(Full), "not released yet");
    consumer.release();
    assert_eq!(producer.push(1, &[&[]]), Ok(()));
}

#[test]
fn either_end_goes_on_where_a_dead_one_stopped() {
    let memory = Memory::new(SHAPE);
    let mut producer = memory.producer();
    assert_eq!(producer.push(1, &[b"published"]), Ok(()));
    let _ = producer.publish();
    assert_eq!(producer.push(2, &[b"lost with its producer"]), Ok(()));
    drop(producer);
    let mut consumer = memory.consumer();
    assert_eq!(pop(&mut consumer).map(|record| record.0), Some(1));
    drop(consumer);

    memory.process.about_to_sleep();
    let mut producer = memory.producer();
    assert!(producer.publish(), "the dead producer may not have rung");
    assert!(!producer.publish());
    assert_eq!(producer.push(3, &[]), Ok(()));
    assert!(producer.publish());
    let mut consumer = memory.consumer();
    assert_eq!(
        pop(&mut consumer).map(|record| record.0),
        Some(1),
        "not released: again"
    );
    assert_eq!(pop(&mut consumer).map(|record| record.0), Some(3));
    assert_eq!(memory.control.figures(SHAPE).wakeups, 2);
}

#[test]
fn impossible_words_quarantine_the_ring_until_its_producer_is_replaced() {
    let spoil: [fn(&Memory); 5] = [
        |memory| memory.control.tail.store(9, Ordering::Relaxed),
        |memory| memory.control.tail.store(u64::MAX, Ordering::Relaxed),
        |memory| memory.words[0].store(head_word(1, 101), Ordering::Relaxed),
        |memory| memory.words[0].store(head_word(1, 60), Ordering::Relaxed),
        |memory| memory.words[0].store(head_word(1, 3) | 1 << 20, Ordering::Relaxed),
    ];
    for (case, spoil) in spoil.into_iter().enumerate() {
        let memory = Memory::new(SHAPE);
        let (mut producer, mut consumer) = (memory.producer(), memory.consumer());
        assert_eq!(producer.push(1, &[b"abc"]), Ok(()));
        let _ = producer.publish();
        spoil(&memory);
        assert!(consumer.pop_into(|_, _| ()).is_err(), "{case}");
        assert!(consumer.pop_into(|_, _| ()).is_err(), "{case}");
        assert!(consumer.is_empty(), "{case}");
        consumer.release();

        let mut producer = memory.producer();
        let _ = producer.publish();
        consumer.recover();
        assert_eq!(pop(&mut consumer), None, "{case}");
        assert_eq!(producer.push(9, &[b"new"]), Ok(()));
        let _ = producer.publish();
        assert_eq!(pop(&mut consumer), Some((9, b"new".to_vec())), "{case}");
    }
}

#[test]
fn an_impossible_consumer_index_fills_the_ring() {
    let memory = Memory::new(SHAPE);
    let mut producer = memory.producer();
    for _ in 0..8 {
        assert_eq!(producer.push(1, &[]), Ok(()));
    }
    let _ = producer.publish();
    memory.control.head.store(9, Ordering::Relaxed);
    assert_eq!(producer.push(1, &[]), Err(Full));
    assert_eq!(memory.control.figures(SHAPE).used, 8);
}

/// A producer that takes a ring over meets whatever its consumer left there.
#[test]
fn an_impossible_index_found_at_the_start_fills_the_ring() {
    for ahead in [1, 2, 8, u64::MAX / 2] {
        let memory = Memory::at(SHAPE, 40);
        memory.control.head.store(40 + ahead, Ordering::Relaxed);
        let mut producer = memory.producer();
        for length in [0, 20, 100] {
            assert_eq!(
                producer.push(1, &[&[7; 100][..length]]),
                Err(Full),
                "{ahead}"
            );
        }
    }
}

#[derive(Clone, Debug)]
enum Step {
    Push(Vec<Vec<u8>>),
    Publish,
    Pop,
    Release,
    ProducerDies,
    ConsumerDies,
}

fn any_step() -> impl Strategy<Value = Step> {
    let parts = proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..40), 0..4);
    prop_oneof![
        4 => parts.prop_map(Step::Push),
        3 => Just(Step::Publish),
        4 => Just(Step::Pop),
        3 => Just(Step::Release),
        1 => Just(Step::ProducerDies),
        1 => Just(Step::ConsumerDies),
    ]
}

proptest! {
    /// Against three queues: staged, waiting, and taken but not released.
    #[test]
    fn a_ring_is_a_queue(start in any::<u64>(), steps in proptest::collection::vec(any_step(), 0..200)) {
        let memory = Memory::at(SHAPE, start);
        let (mut producer, mut consumer) = (memory.producer(), memory.consumer());
        let (mut staged, mut waiting, mut taken) = (VecDeque::new(), VecDeque::new(), VecDeque::new());
        let slots = |records: &VecDeque<Vec<u8>>| records.iter().map(|record| SHAPE.slots_of(record.len())).sum::<u64>();
        for (number, step) in steps.into_iter().enumerate() {
            let kind = number as u16;
            match step {
                Step::Push(parts) => {
                    let record = parts.concat();
                    let used = slots(&staged) + slots(&waiting) + slots(&taken);
                    let fits = record.len() <= 100 && used + SHAPE.slots_of(record.len()) <= SHAPE.slots();
                    let parts: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
                    prop_assert_eq!(producer.push(kind, &parts).is_ok(), fits);
                    if fits {
                        staged.push_back(record);
                    }
                }
                Step::Publish => {
                    prop_assert!(!producer.publish());
                    waiting.append(&mut staged);
                }
                Step::Pop => {
                    let record = pop(&mut consumer).map(|record| record.1);
                    prop_assert_eq!(&record, &waiting.pop_front());
                    taken.extend(record);
                }
                Step::Release => {
                    consumer.release();
                    taken.clear();
                }
                Step::ProducerDies => {
                    producer = memory.producer();
                    staged.clear();
                }
                Step::ConsumerDies => {
                    consumer = memory.consumer();
                    taken.append(&mut waiting);
                    waiting.append(&mut taken);
                }
            }
        }
    }

    /// Whatever stands in the memory: no panic, and no record longer than a record may be.
    #[test]
    fn any_words_are_taken(
        indices in any::<(u64, u8)>(),
        words in proptest::collection::vec(prop_oneof![any::<u64>(), (0_usize..128).prop_map(|length| head_word(1, length))], 32),
    ) {
        let memory = Memory::at(SHAPE, indices.0);
        let mut consumer = memory.consumer();
        memory.control.tail.store(indices.0.wrapping_add(u64::from(indices.1)), Ordering::Relaxed);
        for (shared, word) in memory.words.iter().zip(words) {
            shared.store(word, Ordering::Relaxed);
        }
        let mut records = 0;
        while let Ok(Some(length)) = consumer.pop_into(|_, bytes| bytes.len()) {
            prop_assert!(length <= 100);
            records += 1;
        }
        prop_assert!(records <= 8);
        consumer.release();
        consumer.recover();
        let mut producer = memory.producer();
        let _ = producer.push(1, &[b"x"]);
        let _ = producer.publish();
    }
}

/// Two threads, one ring, the consumer asleep whenever it can: every record arrives, once, in order, and no wake-up is
/// lost (or this test hangs and the runner says so).
#[test]
fn two_threads_lose_nothing_and_wake_each_other() -> Result<(), Box<dyn std::error::Error>> {
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
    use std::os::fd::AsFd;

    const RECORDS: u32 = 100_000;
    let memory = Memory::new(Shape::new(4, 6, 200));
    let (mut producer, mut consumer) = (memory.producer(), memory.consumer());
    let fd = Doorbell::create()?;
    let bell = Doorbell::from_fd(fd.try_clone()?);
    let listener = Doorbell::from_fd(fd);
    let process = memory.process.clone();
    process.cpu.store(NOT_PINNED, Ordering::Relaxed);

    thread::scope(|scope| {
        scope.spawn(move || {
            let body = [0xa5; 200];
            let mut next = 0_u32;
            while next < RECORDS {
                // Batches of different sizes, some of one record, which are the ones that find the consumer asleep.
                let batch = 1 + next % 5;
                for _ in 0..batch {
                    let length = (next % 190) as usize;
                    if next < RECORDS
                        && producer
                            .push(1, &[&next.to_le_bytes(), &body[..length]])
                            .is_ok()
                    {
                        next += 1;
                    }
                }
                if producer.publish() {
                    bell.ring();
                } else {
                    thread::yield_now();
                }
            }
        });
        let mut expected = 0_u32;
        while expected < RECORDS {
            let popped = consumer.pop_into(|_, bytes| {
                assert_eq!(bytes[..4], expected.to_le_bytes());
                assert_eq!(bytes.len(), 4 + (expected % 190) as usize);
                assert!(bytes[4..].iter().all(|byte| *byte == 0xa5));
            });
            match popped {
                Ok(Some(())) => expected += 1,
                Ok(None) => {
                    consumer.release();
                    process.about_to_sleep();
                    if consumer.is_empty() {
                        let mut fds = [PollFd::new(listener.as_fd(), PollFlags::POLLIN)];
                        let rang = poll(&mut fds, PollTimeout::from(30_000_u16));
                        assert_eq!(rang, Ok(1), "the doorbell did not ring: a wake-up was lost");
                        listener.clear();
                    }
                    process.awake();
                }
                Err(error) => panic!("{error}"),
            }
        }
    });
    assert!(memory.control.figures(memory.shape).high_water <= 16);
    Ok(())
}
