//! Answers.

use std::fmt::Write as _;
use std::net::SocketAddr;

use zeroize::Zeroizing;

use crate::keys::{PresharedKey, PrivateKey, PublicKey};
use crate::prefix::Prefix;

/// Writes the answer to `get=1`: the device first, then each peer, then [`Device::finish`].
pub struct Device {
    text: Zeroizing<String>,
}

/// One peer as `get=1` shows it.
#[derive(Clone, Debug)]
pub struct PeerStatus<'a> {
    /// Who.
    pub public_key: PublicKey,
    /// Its preshared key; none is shown as all zero.
    pub preshared_key: Option<&'a PresharedKey>,
    /// Where it is; left out when that is unknown.
    pub endpoint: Option<SocketAddr>,
    /// The last completed handshake, nanoseconds since the Unix epoch; 0: never.
    pub last_handshake_unix_ns: u64,
    /// Bytes sent to it.
    pub tx_bytes: u64,
    /// Bytes received from it.
    pub rx_bytes: u64,
    /// Seconds between keepalives; 0: none.
    pub keepalive: u16,
    /// Its allowed IPs.
    pub allowed_ips: &'a [Prefix],
}

impl Device {
    /// Begins with the device's own lines. A key, port or mark that is not there is left out.
    pub fn new(private_key: Option<&PrivateKey>, listen_port: u16, fwmark: u32) -> Device {
        let mut device = Device { text: Zeroizing::new(String::with_capacity(4096)) };
        if let Some(key) = private_key {
            device.line("private_key", &key.to_hex());
        }
        if listen_port != 0 {
            device.number("listen_port", u64::from(listen_port));
        }
        if fwmark != 0 {
            device.number("fwmark", u64::from(fwmark));
        }
        device
    }

    /// Adds a peer.
    pub fn peer(&mut self, peer: &PeerStatus<'_>) {
        // The buffer must not be moved by growth without being wiped, since it holds keys.
        self.reserve(512 + 64 * peer.allowed_ips.len());
        self.line("public_key", &peer.public_key.to_hex());
        match peer.preshared_key {
            Some(key) => self.line("preshared_key", &key.to_hex()),
            None => self.line("preshared_key", &PresharedKey::default().to_hex()),
        }
        self.number("protocol_version", 1);
        if let Some(endpoint) = peer.endpoint {
            let _ = writeln!(self.text, "endpoint={endpoint}");
        }
        self.number("last_handshake_time_sec", peer.last_handshake_unix_ns / 1_000_000_000);
        self.number("last_handshake_time_nsec", peer.last_handshake_unix_ns % 1_000_000_000);
        self.number("tx_bytes", peer.tx_bytes);
        self.number("rx_bytes", peer.rx_bytes);
        self.number("persistent_keepalive_interval", u64::from(peer.keepalive));
        for prefix in peer.allowed_ips {
            let _ = writeln!(self.text, "allowed_ip={prefix}");
        }
    }

    /// The whole answer, `errno=0` and the blank line included.
    pub fn finish(mut self) -> Zeroizing<String> {
        self.reserve(16);
        self.text.push_str(&result(0));
        self.text
    }

    fn line(&mut self, key: &str, value: &str) {
        self.reserve(key.len() + value.len() + 2);
        let _ = writeln!(self.text, "{key}={value}");
    }

    fn number(&mut self, key: &str, value: u64) {
        self.reserve(key.len() + 24);
        let _ = writeln!(self.text, "{key}={value}");
    }

    fn reserve(&mut self, more: usize) {
        if self.text.capacity() - self.text.len() >= more {
            return;
        }
        let mut larger = Zeroizing::new(String::with_capacity((self.text.capacity() * 2).max(self.text.len() + more)));
        larger.push_str(&self.text);
        self.text = larger;
    }
}

/// The end of every answer, and the whole answer to `set=1`: `errno=` and a blank line.
///
/// `errno` is 0 or the positive number of `errno.h`; it is written negative, since `wg` sets its own errno to
/// the negation of what it reads.
pub fn result(errno: i32) -> String {
    format!("errno={}\n\n", -errno.abs())
}
