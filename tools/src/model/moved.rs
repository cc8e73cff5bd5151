//! What a process or all of them moved: packets, bytes, drops, and how fast.

use serde::Serialize;

use super::rate;
use super::sample::Counts;
use crate::render::units;

/// Packets, bytes and drops.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Moved {
    /// Messages from the network.
    pub(crate) rx_packets: u64,
    /// Messages to the network.
    pub(crate) tx_packets: u64,
    /// Bytes from the network.
    pub(crate) rx_bytes: u64,
    /// Bytes to the network.
    pub(crate) tx_bytes: u64,
    /// Dropped packets.
    pub(crate) drops: u64,
    /// The same, each second.
    #[serde(flatten)]
    pub(crate) rates: Option<Rates>,
}

/// What moves each second.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Rates {
    /// Messages from the network.
    pub(crate) rx_packets_per_second: f64,
    /// Messages to the network.
    pub(crate) tx_packets_per_second: f64,
    /// Bits from the network.
    pub(crate) rx_bits_per_second: f64,
    /// Bits to the network.
    pub(crate) tx_bits_per_second: f64,
    /// Dropped packets.
    pub(crate) drops_per_second: f64,
}

impl Moved {
    /// Counters now, and rates where they were read before too.
    pub(crate) fn new(now: &Counts, before: Option<&Counts>, seconds: f64) -> Moved {
        Moved {
            rx_packets: now.rx_packets,
            tx_packets: now.tx_packets,
            rx_bytes: now.rx_bytes,
            tx_bytes: now.tx_bytes,
            drops: now.all_drops(),
            rates: before.map(|before| Rates {
                rx_packets_per_second: rate(before.rx_packets, now.rx_packets, seconds),
                tx_packets_per_second: rate(before.tx_packets, now.tx_packets, seconds),
                rx_bits_per_second: rate(before.rx_bytes, now.rx_bytes, seconds / 8.0),
                tx_bits_per_second: rate(before.tx_bytes, now.tx_bytes, seconds / 8.0),
                drops_per_second: rate(before.all_drops(), now.all_drops(), seconds),
            }),
        }
    }

    /// Six cells: packets, bytes and drops, or their rates.
    pub(crate) fn cells(&self) -> [String; 5] {
        match &self.rates {
            None => [
                self.rx_packets.to_string(),
                units::bytes(self.rx_bytes),
                self.tx_packets.to_string(),
                units::bytes(self.tx_bytes),
                self.drops.to_string(),
            ],
            Some(rates) => [
                units::count(rates.rx_packets_per_second),
                units::bits_per_second(rates.rx_bits_per_second),
                units::count(rates.tx_packets_per_second),
                units::bits_per_second(rates.tx_bits_per_second),
                match rates.drops_per_second {
                    0.0 => self.drops.to_string(),
                    now => format!("{} (+{}/s)", self.drops, units::count(now)),
                },
            ],
        }
    }

    /// The heads of [`Moved::cells`].
    pub(crate) fn heads(&self) -> [&'static str; 5] {
        match self.rates {
            None => [
                ">RX PACKETS",
                ">RX BYTES",
                ">TX PACKETS",
                ">TX BYTES",
                ">DROPS",
            ],
            Some(_) => [">RX PPS", ">RX RATE", ">TX PPS", ">TX RATE", ">DROPS"],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_of_the_time_between() {
        let before = Counts {
            rx_bytes: 1_000,
            drops: vec![1, 2],
            ..Counts::default()
        };
        let now = Counts {
            rx_bytes: 3_000,
            rx_packets: 10,
            drops: vec![1, 7],
            ..Counts::default()
        };
        let rates = Moved::new(&now, Some(&before), 2.0).rates.unwrap();
        assert_eq!(rates.rx_bits_per_second.to_bits(), 8_000_f64.to_bits());
        assert_eq!(rates.rx_packets_per_second.to_bits(), 5_f64.to_bits());
        assert_eq!(rates.drops_per_second.to_bits(), 2.5_f64.to_bits());
        assert!(Moved::new(&now, None, 0.0).rates.is_none());
        let restarted = Moved::new(&before, Some(&now), 2.0).rates.unwrap();
        assert_eq!(restarted.rx_bits_per_second.to_bits(), 0_f64.to_bits());
    }
}
