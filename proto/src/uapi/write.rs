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
        let mut device = Device {
            text: Zeroizing::new(String::with_capacity(4096)),
        };
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
        self.number(
            "last_handshake_time_sec",
            peer.last_handshake_unix_ns / 1_000_000_000,
        );
        self.number(
            "last_handshake_time_nsec",
            peer.last_handshake_unix_ns % 1_000_000_000,
        );
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
        let mut larger = Zeroizing::new(String::with_capacity(
            (self.text.capacity() * 2).max(self.text.len() + more),
        ));
        larger.push_str(&self.text);
        self.text = larger;
    }
}

/// The whole answer to `set=1`, and to what is no request.
///
/// `errno` is 0 or the positive number of `errno.h`. It is written negative, as wireguard-go does, since `wg`
/// takes the negation of what it reads after a `set` for its own errno. (After a `get` it takes only a positive
/// one, but a `get` that `wg` sends does not fail.)
pub fn result(errno: i32) -> String {
    format!("errno={}\n\n", -errno.saturating_abs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_idle_device_says_little() {
        assert_eq!(*Device::new(None, 0, 0).finish(), "errno=0\n\n");
        assert_eq!(result(0), "errno=0\n\n");
    }

    #[test]
    fn errors_have_the_sign_that_wg_expects() {
        assert_eq!(result(22), "errno=-22\n\n");
        assert_eq!(result(-22), "errno=-22\n\n");
    }

    #[test]
    fn a_device_is_written_before_its_peers() {
        let key = PrivateKey::from_bytes(&[7; 32]);
        let secret = PresharedKey::from_bytes([0x11; 32]);
        let mut device = Device::new(Some(&key), 12912, 51820);
        let allowed_ips = ["10.0.0.0/8".parse().unwrap(), "fd00::/64".parse().unwrap()];
        let first = PeerStatus {
            public_key: PublicKey::from_bytes([0xab; 32]),
            preshared_key: Some(&secret),
            endpoint: Some("[fe80::1%3]:5".parse().unwrap()),
            last_handshake_unix_ns: 1_700_000_000_000_000_042,
            tx_bytes: 1,
            rx_bytes: u64::MAX,
            keepalive: 25,
            allowed_ips: &allowed_ips,
        };
        device.peer(&first);
        let second = PeerStatus {
            preshared_key: None,
            endpoint: None,
            allowed_ips: &[],
            ..first.clone()
        };
        device.peer(&second);
        let key = key.to_hex();
        let (key, public, psk) = (key.as_str(), "ab".repeat(32), "11".repeat(32));
        let none = "00".repeat(32);
        assert_eq!(
            *device.finish(),
            format!(
                "private_key={key}\nlisten_port=12912\nfwmark=51820\n\
                 public_key={public}\npreshared_key={psk}\nprotocol_version=1\nendpoint=[fe80::1%3]:5\n\
                 last_handshake_time_sec=1700000000\nlast_handshake_time_nsec=42\ntx_bytes=1\n\
                 rx_bytes=18446744073709551615\npersistent_keepalive_interval=25\n\
                 allowed_ip=10.0.0.0/8\nallowed_ip=fd00::/64\n\
                 public_key={public}\npreshared_key={none}\nprotocol_version=1\n\
                 last_handshake_time_sec=1700000000\nlast_handshake_time_nsec=42\ntx_bytes=1\n\
                 rx_bytes=18446744073709551615\npersistent_keepalive_interval=25\nerrno=0\n\n"
            )
        );
    }

    #[test]
    fn thousands_of_peers_grow_the_text_without_loss() {
        let mut device = Device::new(None, 1, 0);
        let status = |number: u32| PeerStatus {
            public_key: PublicKey::from_bytes([number as u8; 32]),
            preshared_key: None,
            endpoint: None,
            last_handshake_unix_ns: 0,
            tx_bytes: 0,
            rx_bytes: 0,
            keepalive: 0,
            allowed_ips: &[],
        };
        for number in 0..3000 {
            device.peer(&status(number));
        }
        assert_eq!(device.finish().matches("public_key=").count(), 3000);
    }
}
