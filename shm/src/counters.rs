//! What the workers and meta count, and the reasons for which a packet is dropped.

use crate::{
    layout::shared,
    sync::{AtomicU64, Ordering},
};

/// Adds to a counter that only the caller writes: a load and a store, no locked instruction.
#[inline]
pub fn add(counter: &AtomicU64, n: u64) {
    counter.store(
        counter.load(Ordering::Relaxed).wrapping_add(n),
        Ordering::Relaxed,
    );
}

macro_rules! drop_reasons {
    ($($name:ident $text:literal $stage:literal $hint:literal;)*) => {
        /// Why a packet was dropped. The discriminant is the index into the `drops` arrays.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum DropReason {
            $(#[doc = $hint] $name,)*
        }

        impl DropReason {
            /// Every reason, in the order of the discriminants.
            pub const ALL: &'static [DropReason] = &[$(DropReason::$name),*];
            /// How many reasons there are.
            pub const COUNT: usize = Self::ALL.len();
            /// All names in order; part of the layout hash, so that no tool shows one reason as another.
            pub(crate) const NAMES: &'static str = concat!($($text, "\n"),*);

            /// The name in `snake_case`, as the tools print it.
            pub const fn as_str(self) -> &'static str {
                match self { $(DropReason::$name => $text,)* }
            }

            /// One sentence: what it means and what to look at.
            pub const fn hint(self) -> &'static str {
                match self { $(DropReason::$name => $hint,)* }
            }

            /// Where on the path: `tun`, `udp`, `crypto`, `policy`, `ring` or `handshake`.
            pub const fn stage(self) -> &'static str {
                match self { $(DropReason::$name => $stage,)* }
            }
        }
    };
}

drop_reasons! {
    Truncated "truncated" "udp" "A datagram was shorter than its message type needs: noise from the network, or a path that cuts packets.";
    Oversized "oversized" "udp" "A datagram was longer than its message type or the receive buffer allows: not WireGuard, or an MTU above 65,535.";
    BadType "bad_type" "udp" "The first byte is no WireGuard message type: another protocol sends to this port.";
    NoPort "no_port" "udp" "A datagram came from UDP port 0, where no answer can go: noise, or forged.";
    UnknownIndex "unknown_index" "udp" "A receiver index named no live session: the peer still uses a session from before a restart and will make a new one.";
    ForeignIndex "foreign_index" "udp" "A segment inside a received super-packet belongs to another shard and could not be handed over.";
    Decrypt "decrypt" "crypto" "Authentication failed: the packet was altered on its way, or forged.";
    Replay "replay" "crypto" "A packet number was seen before or is older than the window: a replay, or reordering by more than 8,192 packets.";
    KeyExpired "key_expired" "crypto" "The session is older than 180 seconds or used up: the handshakes that should have renewed it fail.";
    NonceExhausted "nonce_exhausted" "crypto" "A session has sent as many packets as its key allows: a new handshake must come first.";
    ForgedSource "forged_source" "policy" "An inner source address is not among that peer's allowed IPs: check AllowedIPs on this side.";
    NotIp "not_ip" "policy" "An inner packet is neither IPv4 nor IPv6.";
    InnerTruncated "inner_truncated" "policy" "An inner packet is shorter than its own header says.";
    NoRoute "no_route" "policy" "No peer's allowed IPs cover the destination: check AllowedIPs, or the routes into the interface.";
    NoSession "no_session" "tun" "The peer has no session and packets can't wait for one: see the peer's last refusal.";
    NoEndpoint "no_endpoint" "tun" "The peer's address is not known: set Endpoint, or let the peer speak first.";
    StagedFull "staged_full" "tun" "More packets waited for a handshake than are kept; the oldest went.";
    StagedPurged "staged_purged" "tun" "Packets that waited for a handshake went when it was given up: see the peer's last refusal.";
    TunRead "tun_read" "tun" "The kernel failed to give a packet from the TUN queue.";
    TunWrite "tun_write" "tun" "The kernel took no packet into the TUN interface: it is down, or out of memory.";
    LinkDown "link_down" "tun" "The interface is down: `ip link set NAME up`.";
    TooBig "too_big" "tun" "An inner packet does not fit the path to the peer and must not be fragmented; its sender was told.";
    BadSuperPacket "bad_super_packet" "tun" "A frame from the TUN queue described work that does not fit its packet: whoever sends through the interface (a virtual machine, a packet generator) makes broken super-packets.";
    QueueFull "queue_full" "tun" "More packets waited to be sealed than are kept; the longest flow's oldest went: the worker does not keep up, see `ringway workers`.";
    Codel "codel" "tun" "A flow's queue stood for longer than it should, and its sender, who does without ECN, was told by a loss (RFC 8289).";
    SocketSend "socket_send" "udp" "The kernel refused to send a datagram: no route to the endpoint, or a firewall.";
    SocketFull "socket_full" "udp" "The socket's send buffer was full: the link is slower than the traffic.";
    ReceiveFull "receive_full" "udp" "A socket's receive buffer overflowed: the workers did not keep up, see `ringway workers`.";
    EcnDrop "ecn_drop" "policy" "Congestion was marked outside on a packet that can't carry the mark inside (RFC 6040).";
    Loop "loop" "udp" "An endpoint is routed into its own tunnel: give it a route of its own, or use FwMark.";
    RingFull "ring_full" "ring" "Another process did not keep up with what it was handed: see `ringway rings`.";
    RingCorrupt "ring_corrupt" "ring" "A record from another process made no sense: its ring is quarantined until that process is replaced.";
    BadMac1 "bad_mac1" "handshake" "A handshake was not made for this gateway's public key: the peer has a wrong PublicKey for us, or it is noise.";
    BadHandshake "bad_handshake" "handshake" "A handshake failed to authenticate: wrong key, wrong preshared key, or forged.";
    UnknownPeer "unknown_peer" "handshake" "A handshake came from a public key that no peer here has.";
    TimestampReplay "timestamp_replay" "handshake" "A handshake's time stamp was not newer than the last: a replay, or the peer's clock went back.";
    LowOrderPoint "low_order_point" "handshake" "A handshake carried a public key that gives no secret: an attack or a broken peer.";
    UnderLoad "under_load" "handshake" "Too many handshakes: the sender was sent a cookie and must come again with it.";
    BadCookie "bad_cookie" "handshake" "A cookie reply matched no handshake that was sent.";
    RateLimited "rate_limited" "handshake" "One source sent more handshakes than a source may while under load.";
}

/// A drop count for each reason.
pub type Drops = [AtomicU64; DropReason::COUNT];

shared! {
    /// What one worker counts. Only that worker writes; `rx` is from the network and `tx` to it. Bytes count as
    /// `wg show transfer` does: whole WireGuard data messages (padded inner packet + 32).
    #[repr(C, align(128))]
    pub struct WorkerCounters {
        /// Data messages received and accepted.
        pub rx_packets: AtomicU64,
        /// Their bytes.
        pub rx_bytes: AtomicU64,
        /// Data messages sent.
        pub tx_packets: AtomicU64,
        /// Their bytes.
        pub tx_bytes: AtomicU64,
        /// Inner packets read from the TUN queues.
        pub tun_rx_packets: AtomicU64,
        /// Inner packets written to the TUN queues.
        pub tun_tx_packets: AtomicU64,
        /// Keepalives sent.
        pub keepalives_sent: AtomicU64,
        /// Keepalives received.
        pub keepalives_received: AtomicU64,
        /// Packets handed to another process through a ring.
        pub handed_over: AtomicU64,
        /// Packets taken from another process through a ring.
        pub taken_over: AtomicU64,
        /// Events sent to meta.
        pub events: AtomicU64,
        /// System calls that received datagrams.
        pub receive_calls: AtomicU64,
        /// System calls that sent datagrams.
        pub send_calls: AtomicU64,
        /// System calls that read from a TUN queue.
        pub tun_read_calls: AtomicU64,
        /// System calls that wrote to a TUN queue.
        pub tun_write_calls: AtomicU64,
        /// Calls that waited for events.
        pub wait_calls: AtomicU64,
        /// Dropped packets by reason, indexed by [`DropReason`].
        pub drops: Drops,
    }
}

shared! {
    /// What meta counts. Only meta writes.
    #[repr(C, align(128))]
    pub struct MetaCounters {
        /// Datagrams received on meta's sockets or handed over by workers.
        pub rx_packets: AtomicU64,
        /// Their bytes.
        pub rx_bytes: AtomicU64,
        /// Datagrams sent.
        pub tx_packets: AtomicU64,
        /// Their bytes.
        pub tx_bytes: AtomicU64,
        /// Initiations sent.
        pub initiations_sent: AtomicU64,
        /// Initiations received with a right MAC1.
        pub initiations_received: AtomicU64,
        /// Responses sent.
        pub responses_sent: AtomicU64,
        /// Responses received with a right MAC1.
        pub responses_received: AtomicU64,
        /// Cookie replies sent.
        pub cookies_sent: AtomicU64,
        /// Cookie replies received and accepted.
        pub cookies_received: AtomicU64,
        /// Sessions made.
        pub sessions: AtomicU64,
        /// Events taken from workers.
        pub events: AtomicU64,
        /// Dropped datagrams by reason, indexed by [`DropReason`].
        pub drops: Drops,
    }
}

shared! {
    /// One peer's transfer as `wg show` counts it. Workers add once a run with `fetch_add`, relaxed.
    #[repr(C, align(64))]
    pub struct PeerTraffic {
        /// Bytes from the peer.
        pub rx_bytes: AtomicU64,
        /// Data messages from the peer.
        pub rx_packets: AtomicU64,
        /// Bytes to the peer.
        pub tx_bytes: AtomicU64,
        /// Data messages to the peer.
        pub tx_packets: AtomicU64,
    }
}

impl WorkerCounters {
    /// Counts dropped packets. Only for the worker that owns these counters.
    #[inline]
    pub fn dropped(&self, reason: DropReason, packets: u64) {
        add(&self.drops[reason as usize], packets);
    }

    /// All dropped packets.
    pub fn drops_total(&self) -> u64 {
        total(&self.drops)
    }
}

impl MetaCounters {
    /// Counts dropped datagrams. Only for meta.
    pub fn dropped(&self, reason: DropReason, packets: u64) {
        add(&self.drops[reason as usize], packets);
    }

    /// All dropped datagrams.
    pub fn drops_total(&self) -> u64 {
        total(&self.drops)
    }
}

fn total(drops: &Drops) -> u64 {
    drops.iter().fold(0, |sum, count| {
        sum.wrapping_add(count.load(Ordering::Relaxed))
    })
}
