//! What the kernel itself dropped before a worker could read it.

use std::fs;

/// Packets to the TUN interface that found its queue full; `None` where the interface can't be seen from the
/// namespace of the process `pid`, since it was moved or is gone.
pub(crate) fn queue_drops(pid: u32, interface: &str) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/net/dev")).ok()?;
    transmit_drops(&text, interface)
}

/// proc_pid_net(5): a line has eight figures of what was received, then of what was sent: bytes, packets, errors and
/// drops first. What is sent into a TUN interface is what a worker reads.
fn transmit_drops(text: &str, interface: &str) -> Option<u64> {
    const SENT_DROPS: usize = 8 + 3;
    let mut lines = text.lines().filter_map(|line| line.split_once(':'));
    let (_, figures) = lines.find(|(name, _)| name.trim() == interface)?;
    figures.split_whitespace().nth(SENT_DROPS)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
    lo:     100       1    0    0    0     0          0         0      100       1    0    0    0     0       0          0
   wg0: 1446072   25030    0    1    0     0          0         0 327508054  230658    0 9814    0     0       0          0
";

    #[test]
    fn the_line_of_the_interface_is_read() {
        assert_eq!(transmit_drops(TEXT, "wg0"), Some(9814));
        assert_eq!(transmit_drops(TEXT, "lo"), Some(0));
        assert_eq!(transmit_drops(TEXT, "wg"), None);
        assert_eq!(transmit_drops("wg0: 1 2", "wg0"), None);
        assert!(queue_drops(std::process::id(), "lo").is_some());
        assert_eq!(queue_drops(u32::MAX, "lo"), None);
    }
}
