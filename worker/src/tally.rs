//! What this worker counted since it last told the world.

use ringway_shm::counters::{DropReason, WorkerCounters, add};

/// The counters of one turn; [`publish`](Tally::publish) adds them to shared memory at its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) rx_packets: u64,
    pub(crate) rx_bytes: u64,
    pub(crate) tx_packets: u64,
    pub(crate) tx_bytes: u64,
    pub(crate) tun_rx_packets: u64,
    pub(crate) tun_tx_packets: u64,
    pub(crate) keepalives_sent: u64,
    pub(crate) keepalives_received: u64,
    pub(crate) handed_over: u64,
    pub(crate) taken_over: u64,
    pub(crate) events: u64,
    pub(crate) receive_calls: u64,
    pub(crate) send_calls: u64,
    pub(crate) tun_read_calls: u64,
    pub(crate) tun_write_calls: u64,
    pub(crate) wait_calls: u64,
    pub(crate) drops: [u64; DropReason::COUNT],
    pub(crate) any_drops: bool,
}

impl Default for Tally {
    fn default() -> Tally {
        Tally {
            rx_packets: 0,
            rx_bytes: 0,
            tx_packets: 0,
            tx_bytes: 0,
            tun_rx_packets: 0,
            tun_tx_packets: 0,
            keepalives_sent: 0,
            keepalives_received: 0,
            handed_over: 0,
            taken_over: 0,
            events: 0,
            receive_calls: 0,
            send_calls: 0,
            tun_read_calls: 0,
            tun_write_calls: 0,
            wait_calls: 0,
            drops: [0; DropReason::COUNT],
            any_drops: false,
        }
    }
}

impl Tally {
    /// Counts one dropped packet.
    #[inline]
    pub(crate) fn drop(&mut self, reason: DropReason) {
        self.drops(reason, 1);
    }

    /// Counts dropped packets.
    #[inline]
    pub(crate) fn drops(&mut self, reason: DropReason, packets: u64) {
        self.drops[reason as usize] += packets;
        self.any_drops = true;
    }

    /// How many were dropped for this reason since it was last told.
    #[cfg(test)]
    pub(crate) fn drop_count(&self, reason: DropReason) -> u64 {
        self.drops[reason as usize]
    }

    /// Adds everything to `counters`, which only this worker writes, and starts again from zero.
    pub(crate) fn publish(&mut self, counters: &WorkerCounters) {
        for (from, to) in [
            (&mut self.rx_packets, &counters.rx_packets),
            (&mut self.rx_bytes, &counters.rx_bytes),
            (&mut self.tx_packets, &counters.tx_packets),
            (&mut self.tx_bytes, &counters.tx_bytes),
            (&mut self.tun_rx_packets, &counters.tun_rx_packets),
            (&mut self.tun_tx_packets, &counters.tun_tx_packets),
            (&mut self.keepalives_sent, &counters.keepalives_sent),
            (&mut self.keepalives_received, &counters.keepalives_received),
            (&mut self.handed_over, &counters.handed_over),
            (&mut self.taken_over, &counters.taken_over),
            (&mut self.events, &counters.events),
            (&mut self.receive_calls, &counters.receive_calls),
            (&mut self.send_calls, &counters.send_calls),
            (&mut self.tun_read_calls, &counters.tun_read_calls),
            (&mut self.tun_write_calls, &counters.tun_write_calls),
            (&mut self.wait_calls, &counters.wait_calls),
        ] {
            if *from != 0 {
                add(to, *from);
                *from = 0;
            }
        }
        if self.any_drops {
            for (from, to) in self.drops.iter_mut().zip(&counters.drops) {
                if *from != 0 {
                    add(to, *from);
                    *from = 0;
                }
            }
            self.any_drops = false;
        }
    }
}
