//! Keys and files in the formats of `wg`.

use std::fmt::Write;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use ringway_proto::keys::{PresharedKey, PrivateKey};

/// A key pair in base64.
#[derive(Debug, Clone)]
pub struct KeyPair {
    /// The private key.
    pub private: String,
    /// The public key.
    pub public: String,
}

impl KeyPair {
    /// A new one.
    pub fn new() -> KeyPair {
        let key = PrivateKey::generate().unwrap();
        KeyPair {
            private: key.to_base64().to_string(),
            public: key.public().to_base64(),
        }
    }

    /// The private key as a type.
    pub fn key(&self) -> PrivateKey {
        PrivateKey::from_base64(&self.private).unwrap()
    }
}

impl Default for KeyPair {
    fn default() -> KeyPair {
        KeyPair::new()
    }
}

/// A new preshared key in base64.
pub fn preshared_key() -> String {
    PresharedKey::generate().unwrap().to_base64().to_string()
}

/// A peer, as a section of a `wg` file.
#[derive(Debug, Clone, Default)]
pub struct PeerSection {
    /// `PublicKey`.
    pub public_key: String,
    /// `PresharedKey`.
    pub preshared_key: Option<String>,
    /// `Endpoint`.
    pub endpoint: Option<String>,
    /// `AllowedIPs`.
    pub allowed_ips: String,
    /// `PersistentKeepalive`.
    pub keepalive: Option<u16>,
}

impl PeerSection {
    /// The section's text.
    pub fn text(&self) -> String {
        let mut text = format!("[Peer]\nPublicKey = {}\n", self.public_key);
        let mut line = |name: &str, value: Option<String>| {
            if let Some(value) = value {
                let _ = writeln!(text, "{name} = {value}");
            }
        };
        line("PresharedKey", self.preshared_key.clone());
        line("Endpoint", self.endpoint.clone());
        line(
            "AllowedIPs",
            (!self.allowed_ips.is_empty()).then(|| self.allowed_ips.clone()),
        );
        line(
            "PersistentKeepalive",
            self.keepalive.map(|seconds| seconds.to_string()),
        );
        text
    }
}

/// A file for `wg setconf`.
pub fn wg_file(private_key: &str, listen_port: Option<u16>, peers: &[PeerSection]) -> String {
    let mut text = format!("[Interface]\nPrivateKey = {private_key}\n");
    if let Some(port) = listen_port {
        let _ = writeln!(text, "ListenPort = {port}");
    }
    for peer in peers {
        text.push('\n');
        text.push_str(&peer.text());
    }
    text
}

/// Writes a file that holds keys: for its owner alone.
pub fn write_private(path: &Path, text: &str) {
    std::fs::write(path, text).unwrap();
    std::fs::set_permissions(path, Permissions::from_mode(0o600)).unwrap();
}
