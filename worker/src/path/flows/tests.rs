use super::*;

const MS: Duration = Duration::from_millis(1);

fn flows(items: usize) -> Flows<u32> {
    Flows::new(Limits {
        queues: 16,
        items,
        bytes: 1_000_000,
        quantum: 1_500,
        target: 5 * MS,
        interval: 100 * MS,
    })
}

fn drain(flows: &mut Flows<u32>, now: Instant) -> Vec<u32> {
    std::iter::from_fn(|| flows.pop(now).map(|(item, _)| item)).collect()
}

#[test]
fn a_flow_keeps_its_order_and_all_come_out() {
    let mut flows = flows(100);
    for item in 0..100 {
        assert_eq!(flows.push(item % 3, item, 1_000, Instant(0)), None);
    }
    assert!(!flows.has_room());
    assert_eq!(flows.push(0, 100, 1, Instant(0)), Some(100));
    let items = drain(&mut flows, Instant(0));
    assert_eq!(items.len(), 100);
    for flow in 0..3 {
        let of: Vec<_> = items.iter().filter(|item| *item % 3 == flow).collect();
        assert!(of.is_sorted());
    }
    assert!(flows.is_empty() && flows.has_room() && flows.bytes == 0);
}

#[test]
fn flows_share_by_bytes() {
    let mut flows = flows(1_000);
    for item in 0..100 {
        flows.push(0, item, 1_500, Instant(0));
        for _ in 0..10 {
            flows.push(1, 1_000 + item, 150, Instant(0));
        }
    }
    let mut bytes = [0, 0];
    for _ in 0..110 {
        match flows.pop(Instant(0)).unwrap().0 {
            0..1_000 => bytes[0] += 1_500,
            _ => bytes[1] += 150,
        }
    }
    assert!(bytes[0] >= 10_000 && bytes[0] - bytes[1] <= 3_000 && bytes[1] - bytes[0] <= 3_000);
}

#[test]
fn who_sends_little_goes_first() {
    let mut flows = flows(100);
    for item in 0..50 {
        flows.push(0, item, 1_500, Instant(0));
    }
    for _ in 0..3 {
        flows.pop(Instant(0));
    }
    flows.push(1, 99, 100, Instant(0));
    assert_eq!(flows.pop(Instant(0)), Some((99, Verdict::Pass)));
}

#[test]
fn a_new_flow_that_comes_back_at_once_does_not_starve_the_others() {
    let mut flows = flows(100);
    for item in 0..10 {
        flows.push(0, item, 1_500, Instant(0));
    }
    flows.pop(Instant(0));
    flows.pop(Instant(0));
    let mut others = 0;
    for _ in 0..30 {
        flows.push(1, 99, 1_500, Instant(0));
        others += usize::from(flows.pop(Instant(0)).unwrap().0 != 99);
        if others == 8 {
            return;
        }
    }
    panic!("{others} of 8 came out");
}

#[test]
fn the_longest_queue_is_shed_from_the_oldest() {
    let mut flows = flows(1_000);
    for item in 0..100 {
        flows.push(0, item, 1_000, Instant(0));
    }
    flows.push(1, 500, 60_000, Instant(0));
    let mut shed = Vec::new();
    flows.shed(|item| shed.push(item));
    assert_eq!(shed, (0..50).collect::<Vec<_>>());
    flows.shed(|item| shed.push(item));
    assert_eq!(shed[50..], [500]);
}

/// A queue that stands gets its first signal after an interval, and then ever more often.
#[test]
fn signals_follow_the_control_law() {
    let mut flows = flows(1_000);
    let mut signals = Vec::new();
    for ms in 0..1_000_u32 {
        let now = Instant(0) + ms * MS;
        // It came 20 ms ago, and another one waits behind it.
        let came = Instant(now.0.saturating_sub(20_000_000));
        flows.push(0, ms, 1_000, came);
        if ms > 0 && flows.pop(now).unwrap().1 == Verdict::Signal {
            signals.push(ms);
        }
    }
    assert!((100..=125).contains(&signals[0]), "{signals:?}");
    let gaps: Vec<u32> = signals.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!((98..=102).contains(&gaps[0]), "{gaps:?}");
    assert!(gaps.is_sorted_by(|one, next| *next <= one + 1), "{gaps:?}");
    assert!(*gaps.last().unwrap() <= 40, "{gaps:?}");
}

#[test]
fn a_short_queue_is_never_told() {
    let mut flows = flows(1_000);
    for ms in 0..1_000_u32 {
        let now = Instant(1 << 40) + ms * MS;
        // Old, but alone; or not alone, but fresh.
        flows.push(0, ms, 1_000, Instant(0));
        assert_eq!(flows.pop(now), Some((ms, Verdict::Pass)));
        flows.push(1, ms, 1_000, now);
        flows.push(1, ms, 1_000, now);
        assert_eq!(flows.pop(now), Some((ms, Verdict::Pass)));
        assert_eq!(flows.pop(now), Some((ms, Verdict::Pass)));
    }
}
