//! `rings`: the queues between the processes.

use ringway_shm::rings::RingStat;
use serde::Serialize;

use super::sample::Sample;
use super::{Human, rate};
use crate::render::table::Table;
use crate::render::units;

/// All rings.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Rings {
    /// The rings.
    pub(crate) rings: Vec<Ring>,
}

/// A ring. Sizes are in slots.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Ring {
    /// Its name.
    pub(crate) name: String,
    /// Who writes.
    pub(crate) producer: String,
    /// Who reads.
    pub(crate) consumer: String,
    /// Slots.
    pub(crate) size: u64,
    /// Slots in use.
    pub(crate) used: u64,
    /// The most slots that were ever in use.
    pub(crate) high_water: u64,
    /// Records put in.
    pub(crate) enqueued: u64,
    /// Records taken out.
    pub(crate) dequeued: u64,
    /// Records that found it full.
    pub(crate) full_drops: u64,
    /// How often the reader had to be woken.
    pub(crate) wakeups: u64,
    /// Rates, where two samples were taken.
    #[serde(flatten)]
    pub(crate) rates: Option<Rates>,
}

/// What happens each second.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Rates {
    /// Records put in.
    pub(crate) enqueued_per_second: f64,
    /// Wake-ups.
    pub(crate) wakeups_per_second: f64,
    /// Records that found it full.
    pub(crate) full_drops_per_second: f64,
}

impl Rings {
    /// From one sample, with rates since `before`.
    pub(crate) fn new(now: &Sample, before: Option<&Sample>) -> Rings {
        let seconds = before.map_or(0.0, |b| units::seconds_between(b.boot_ns, now.boot_ns));
        let rings = now.rings.iter().map(|stat| {
            let earlier = before.and_then(|b| b.rings.iter().find(|ring| ring.id == stat.id));
            Ring::new(stat, earlier, seconds)
        });
        Rings {
            rings: rings.collect(),
        }
    }
}

impl Ring {
    fn new(stat: &RingStat, before: Option<&RingStat>, seconds: f64) -> Ring {
        Ring {
            name: stat.name.clone(),
            producer: stat.producer.to_string(),
            consumer: stat.consumer.to_string(),
            size: stat.size,
            used: stat.used,
            high_water: stat.high_water,
            enqueued: stat.enqueued,
            dequeued: stat.dequeued,
            full_drops: stat.full_drops,
            wakeups: stat.wakeups,
            rates: before.map(|before| Rates {
                enqueued_per_second: rate(before.enqueued, stat.enqueued, seconds),
                wakeups_per_second: rate(before.wakeups, stat.wakeups, seconds),
                full_drops_per_second: rate(before.full_drops, stat.full_drops, seconds),
            }),
        }
    }
}

impl Human for Rings {
    fn human(&self, _name: &str) -> String {
        let with_rates = self.rings.iter().any(|ring| ring.rates.is_some());
        let mut heads = vec![
            "RING",
            "PRODUCER",
            "CONSUMER",
            ">SIZE",
            ">USED",
            ">HIGH WATER",
            ">ENQUEUED",
            ">DEQUEUED",
            ">FULL DROPS",
            ">WAKEUPS",
        ];
        if with_rates {
            heads.extend([">IN/S", ">WAKEUPS/S", ">FULL/S"]);
        }
        let mut table = Table::new(&heads);
        for ring in &self.rings {
            let figures = [
                ring.size,
                ring.used,
                ring.high_water,
                ring.enqueued,
                ring.dequeued,
                ring.full_drops,
                ring.wakeups,
            ];
            let mut cells = vec![
                ring.name.clone(),
                ring.producer.clone(),
                ring.consumer.clone(),
            ];
            cells.extend(figures.map(|figure| figure.to_string()));
            if let Some(rates) = &ring.rates {
                let rates = [
                    rates.enqueued_per_second,
                    rates.wakeups_per_second,
                    rates.full_drops_per_second,
                ];
                cells.extend(rates.map(units::count));
            }
            table.row(cells);
        }
        table.render()
    }
}
