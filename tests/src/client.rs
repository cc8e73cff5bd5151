//! A WireGuard peer in a few lines over one UDP socket, for what needs hundreds of them, or one that
//! misbehaves. It has no timers and no interface: the test is its clock and its application.

use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant as Clock, SystemTime, UNIX_EPOCH};

use chacha20poly1305::aead::AeadInPlace;
use chacha20poly1305::{ChaCha20Poly1305, KeyInit, Nonce, Tag};
use ringway_proto::cookie::MacMaker;
use ringway_proto::keys::{PresharedKey, PrivateKey, PublicKey};
use ringway_proto::noise::{self, InitiatorHandshake, SessionKeys};
use ringway_proto::tai64n::Tai64n;
use ringway_proto::time::Instant;
use ringway_proto::wire::{CookieReply, DataHeader, Message, Response};

use crate::config::KeyPair;

/// The peer.
pub struct Client {
    /// Its socket; replace it to roam.
    pub socket: UdpSocket,
    /// Where the gateway is.
    pub gateway: SocketAddr,
    /// Its keys.
    pub keys: KeyPair,
    gateway_key: PublicKey,
    psk: PresharedKey,
    macs: MacMaker,
    pending: Option<InitiatorHandshake>,
    session: Option<Session>,
    /// The one before: what was under way, or sealed before the new one was confirmed, still opens.
    previous: Option<Session>,
    /// Cookie replies taken so far.
    pub cookies: usize,
}

struct Session {
    local_index: u32,
    keys: SessionKeys,
    remote_index: u32,
    counter: u64,
}

/// What came in.
#[derive(Debug)]
pub enum Received {
    /// A session is there.
    Response,
    /// A cookie, for the next initiation.
    Cookie,
    /// An inner packet; empty for a keepalive.
    Data(Vec<u8>),
    /// Something that does not open.
    Other(Vec<u8>),
}

impl Client {
    /// A peer with new keys.
    pub fn new(socket: UdpSocket, gateway: SocketAddr, gateway_key: &str) -> Client {
        Client::with_keys(socket, gateway, gateway_key, KeyPair::new())
    }

    /// A peer with these keys.
    pub fn with_keys(
        socket: UdpSocket,
        gateway: SocketAddr,
        gateway_key: &str,
        keys: KeyPair,
    ) -> Client {
        let gateway_key = PublicKey::from_base64(gateway_key).unwrap();
        Client {
            socket,
            gateway,
            keys,
            gateway_key,
            psk: PresharedKey::from_bytes([0; 32]),
            macs: MacMaker::new(&gateway_key),
            pending: None,
            session: None,
            previous: None,
            cookies: 0,
        }
    }

    /// The gateway's public key in base64.
    pub fn gateway_key(&self) -> String {
        self.gateway_key.to_base64()
    }

    /// Uses a preshared key from the next response on.
    pub fn preshared(&mut self, key: &str) {
        self.psk = PresharedKey::from_base64(key).unwrap();
    }

    /// An initiation, with MACs, ready to be sent.
    pub fn initiation(&mut self) -> Vec<u8> {
        self.initiation_at(unix_ns())
    }

    /// An initiation whose time stamp is `unix_ns`.
    pub fn initiation_at(&mut self, unix_ns: u64) -> Vec<u8> {
        let index = random_index();
        let stamp = Tai64n::from_unix_ns(unix_ns);
        let (handshake, message) =
            noise::initiate(&self.keys.key(), &self.gateway_key, index, stamp).unwrap();
        self.pending = Some(handshake);
        let mut bytes = message.to_bytes().to_vec();
        self.macs.seal(&mut bytes, boot_now());
        bytes
    }

    /// Writes MAC1 (and MAC2, with a cookie) anew, after a test changed the message.
    pub fn seal_again(&mut self, message: &mut [u8]) {
        self.macs.seal(message, boot_now());
    }

    /// Sends bytes as they are. A socket may be connected, and then hears from nobody else.
    pub fn send_raw(&self, bytes: &[u8]) {
        let sent = match self.socket.peer_addr() {
            Ok(_) => self.socket.send(bytes),
            Err(_) => self.socket.send_to(bytes, self.gateway),
        };
        sent.unwrap();
    }

    /// Handshakes until there is a session, as a stock peer repeats it; true within `limit`.
    pub fn handshake(&mut self, limit: Duration) -> bool {
        let end = Clock::now() + limit;
        while Clock::now() < end {
            let initiation = self.initiation();
            self.send_raw(&initiation);
            let patience = end.min(Clock::now() + Duration::from_secs(1));
            while let Some(left) = patience.checked_duration_since(Clock::now()) {
                match self.receive(left) {
                    Some(Received::Response) => {
                        self.send(&[]);
                        return true;
                    }
                    Some(Received::Data(_) | Received::Other(_)) => {}
                    // With the cookie, or after a loss: again.
                    Some(Received::Cookie) | None => break,
                }
            }
        }
        false
    }

    /// Seals an inner packet.
    pub fn seal(&mut self, packet: &[u8]) -> Vec<u8> {
        let session = self.session.as_mut().expect("a session");
        let counter = session.counter;
        session.counter += 1;
        seal(&session.keys.send, session.remote_index, counter, packet)
    }

    /// Sends an inner packet, empty for a keepalive.
    pub fn send(&mut self, packet: &[u8]) {
        let bytes = self.seal(packet);
        self.send_raw(&bytes);
    }

    /// The next message, `None` after `limit`.
    pub fn receive(&mut self, limit: Duration) -> Option<Received> {
        self.socket
            .set_read_timeout(Some(limit.max(Duration::from_millis(1))))
            .unwrap();
        let mut bytes = vec![0; 65536];
        let (length, _) = self.socket.recv_from(&mut bytes).ok()?;
        bytes.truncate(length);
        Some(self.accept(bytes))
    }

    /// What a message means.
    pub fn accept(&mut self, mut bytes: Vec<u8>) -> Received {
        match Message::parse(&bytes) {
            Ok(Message::Response(message)) if self.take_response(&message) => Received::Response,
            Ok(Message::CookieReply(reply)) if self.take_cookie(&reply) => Received::Cookie,
            Ok(Message::Data(_)) => match self.open(&mut bytes) {
                Some(packet) => Received::Data(packet),
                None => Received::Other(bytes),
            },
            _ => Received::Other(bytes),
        }
    }

    /// Waits for an inner packet that `wanted` accepts.
    pub fn expect<T>(&mut self, limit: Duration, wanted: impl Fn(&[u8]) -> Option<T>) -> Option<T> {
        let end = Clock::now() + limit;
        while let Some(left) = end.checked_duration_since(Clock::now()) {
            if let Some(Received::Data(packet)) = self.receive(left) {
                if let Some(value) = wanted(&packet) {
                    return Some(value);
                }
            }
        }
        None
    }

    fn take_response(&mut self, message: &Response) -> bool {
        let Some(handshake) = &mut self.pending else {
            return false;
        };
        match handshake.receive_response(&self.psk, message) {
            Ok((keys, remote_index)) => {
                self.previous = self.session.take();
                self.session = Some(Session {
                    local_index: message.receiver,
                    keys,
                    remote_index,
                    counter: 0,
                });
                true
            }
            Err(_) => false,
        }
    }

    fn take_cookie(&mut self, reply: &CookieReply) -> bool {
        let taken = self.macs.receive_cookie_reply(reply, boot_now()).is_ok();
        self.cookies += usize::from(taken);
        taken
    }

    fn open(&self, bytes: &mut [u8]) -> Option<Vec<u8>> {
        let index = u32::from_le_bytes(bytes.get(4..8)?.try_into().ok()?);
        let known = [self.session.as_ref(), self.previous.as_ref()];
        let session = known
            .into_iter()
            .flatten()
            .find(|session| session.local_index == index)?;
        let counter = u64::from_le_bytes(bytes.get(8..16)?.try_into().ok()?);
        let (_, body) = bytes.split_at_mut(DataHeader::LEN);
        let at = body.len().checked_sub(16)?;
        let (packet, tag) = body.split_at_mut(at);
        ChaCha20Poly1305::new((&session.keys.receive).into())
            .decrypt_in_place_detached(&nonce(counter), &[], packet, Tag::from_slice(tag))
            .ok()?;
        Some(packet.to_vec())
    }
}

fn seal(key: &[u8; 32], index: u32, counter: u64, packet: &[u8]) -> Vec<u8> {
    let mut bytes = vec![4, 0, 0, 0];
    bytes.extend_from_slice(&index.to_le_bytes());
    bytes.extend_from_slice(&counter.to_le_bytes());
    let mut body = packet.to_vec();
    body.resize(packet.len().next_multiple_of(16), 0);
    let tag = ChaCha20Poly1305::new(key.into())
        .encrypt_in_place_detached(&nonce(counter), &[], &mut body)
        .unwrap();
    bytes.extend_from_slice(&body);
    bytes.extend_from_slice(&tag);
    bytes
}

fn nonce(counter: u64) -> Nonce {
    let mut nonce = [0; 12];
    nonce[4..].copy_from_slice(&counter.to_le_bytes());
    nonce.into()
}

fn random_index() -> u32 {
    // A public key is as good a random number as any.
    let key = PrivateKey::generate().unwrap().public();
    u32::from_le_bytes(key.as_bytes()[..4].try_into().unwrap())
}

/// The wall clock.
pub fn unix_ns() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap()
        .as_nanos() as u64
}

fn boot_now() -> Instant {
    let time = nix::time::clock_gettime(nix::time::ClockId::CLOCK_BOOTTIME).unwrap();
    Instant(Duration::from(time).as_nanos() as u64)
}
