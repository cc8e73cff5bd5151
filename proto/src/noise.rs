//! The WireGuard handshake: Noise IKpsk2, through `snow`.
//!
//! Two messages, and both sides have the keys of a session. This module seals
//! and opens their Noise part; MACs are the business of `cookie`, and who is a
//! peer, what time stamp is too old and which index is free that of meta.
//!
//! Nobody may be able to end a handshake that is under way by a forged response:
//! `snow` takes its hash and chaining key back when a message fails, and the key
//! of its cipher is set anew by each mixing before it is used, so that an
//! [`InitiatorHandshake`] is as it was.

mod primitives;

use std::sync::LazyLock;

use snow::params::NoiseParams;
use snow::resolvers::DefaultResolver;
use snow::{Builder, HandshakeState};
use zeroize::{Zeroize, ZeroizeOnDrop};

use crate::keys::{KEY_LEN, PresharedKey, PrivateKey, PublicKey};
use crate::low_order::is_low_order;
use crate::tai64n::Tai64n;
use crate::wire::{Initiation, MAC_LEN, Response, TAG_LEN};
use primitives::Primitives;

/// The prologue that sets WireGuard apart from other users of the pattern.
const IDENTIFIER: &[u8] = b"WireGuard v1 zx2c4 Jason@zx2c4.com";
/// The slot of the preshared key in a pattern that ends in `psk2`.
const PSK_SLOT: usize = 2;

/// Why a handshake goes no further.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NoiseError {
    /// A tag does not fit: a wrong key (of a response, most often the preshared
    /// one) or an altered message.
    #[error("handshake message does not decrypt: check both public keys and the preshared key")]
    Decrypt,
    /// A public key that would make the shared secret known to everybody.
    #[error("public key is a point of low order: give the peer a new key pair")]
    LowOrderPoint,
    /// A response to another initiation.
    #[error("response is for index {0:#x}, which is not that of this handshake")]
    ForeignIndex(u32),
    /// The handshake had its response already.
    #[error("handshake has ended already")]
    Ended,
    /// The system gave no random bytes.
    #[error("the system gave no random bytes for a handshake")]
    Random,
    /// `snow` refused for a reason that no message can cause.
    #[error("handshake is in a state that should not occur")]
    State,
}

/// The two keys of a session, each for one direction. Zeroized when dropped.
#[derive(Clone, PartialEq, Eq, Zeroize, ZeroizeOnDrop)]
pub struct SessionKeys {
    /// Seals what this side sends.
    pub send: [u8; KEY_LEN],
    /// Opens what the other side sends.
    pub receive: [u8; KEY_LEN],
}

/// Begins a handshake; the MACs of the message are left zero.
///
/// The preshared key enters only with the response, so a change of it in between counts.
pub fn initiate(
    local: &PrivateKey,
    remote: &PublicKey,
    local_index: u32,
    timestamp: Tai64n,
) -> Result<(InitiatorHandshake, Initiation), NoiseError> {
    initiate_with(local, remote, local_index, timestamp, None)
}

/// Opens the first message of somebody's handshake.
///
/// That it opens proves nothing of its freshness: the caller looks the remote key
/// up and compares the time stamp with the greatest that this peer has sent.
pub fn receive_initiation(
    local: &PrivateKey,
    message: &Initiation,
) -> Result<ReceivedInitiation, NoiseError> {
    receive_initiation_with(local, message, None)
}

/// What the initiator keeps between its message and the response.
#[derive(Debug)]
pub struct InitiatorHandshake {
    /// None once the response was accepted.
    state: Option<Wiped>,
    local_index: u32,
}

impl InitiatorHandshake {
    /// The index that the response has to name.
    pub fn local_index(&self) -> u32 {
        self.local_index
    }

    /// Opens the response: the session's keys and the index by which to address
    /// the other side. After an error the handshake is as it was.
    pub fn receive_response(
        &mut self,
        psk: &PresharedKey,
        message: &Response,
    ) -> Result<(SessionKeys, u32), NoiseError> {
        if message.receiver != self.local_index {
            return Err(NoiseError::ForeignIndex(message.receiver));
        }
        refuse_low_order(&message.ephemeral)?;
        let state = &mut self.state.as_mut().ok_or(NoiseError::Ended)?.0;
        state.set_psk(PSK_SLOT, psk.as_bytes())?;
        let mut noise = [0; KEY_LEN + TAG_LEN];
        noise[..KEY_LEN].copy_from_slice(&message.ephemeral);
        noise[KEY_LEN..].copy_from_slice(&message.encrypted_nothing);
        state.read_message(&noise, &mut [])?;
        let (mut send, mut receive) = state.dangerously_get_raw_split();
        let keys = SessionKeys { send, receive };
        send.zeroize();
        receive.zeroize();
        self.state = None;
        Ok((keys, message.sender))
    }
}

/// A first message that opened, and what it takes to respond.
#[derive(Debug)]
pub struct ReceivedInitiation {
    /// Who sent it, if it is no replay.
    pub remote: PublicKey,
    /// When, by the sender's clock.
    pub timestamp: Tai64n,
    /// The index by which the sender wants to be addressed.
    pub remote_index: u32,
    state: Wiped,
}

impl ReceivedInitiation {
    /// Ends the handshake on this side; the MACs of the message are left zero.
    ///
    /// The keys may seal nothing until something sealed with them has come from
    /// the initiator: only that proves that it is there.
    pub fn respond(
        mut self,
        psk: &PresharedKey,
        local_index: u32,
    ) -> Result<(Response, SessionKeys), NoiseError> {
        let state = &mut self.state.0;
        state.set_psk(PSK_SLOT, psk.as_bytes())?;
        let mut noise = [0; KEY_LEN + TAG_LEN];
        if state.write_message(&[], &mut noise)? != noise.len() {
            return Err(NoiseError::State);
        }
        let (mut receive, mut send) = state.dangerously_get_raw_split();
        let keys = SessionKeys { send, receive };
        send.zeroize();
        receive.zeroize();
        let (ephemeral, encrypted_nothing) = split(&noise);
        let message = Response {
            sender: local_index,
            receiver: self.remote_index,
            ephemeral,
            encrypted_nothing,
            mac1: [0; MAC_LEN],
            mac2: [0; MAC_LEN],
        };
        Ok((message, keys))
    }
}

impl std::fmt::Debug for SessionKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SessionKeys(redacted)")
    }
}

impl From<snow::Error> for NoiseError {
    fn from(error: snow::Error) -> NoiseError {
        match error {
            snow::Error::Decrypt => NoiseError::Decrypt,
            snow::Error::Dh => NoiseError::LowOrderPoint,
            snow::Error::Rng => NoiseError::Random,
            _ => NoiseError::State,
        }
    }
}

/// An ephemeral key that is not random; only tests have one.
type FixedEphemeral<'a> = Option<&'a [u8; KEY_LEN]>;

fn initiate_with(
    local: &PrivateKey,
    remote: &PublicKey,
    local_index: u32,
    timestamp: Tai64n,
    ephemeral: FixedEphemeral<'_>,
) -> Result<(InitiatorHandshake, Initiation), NoiseError> {
    refuse_low_order(remote.as_bytes())?;
    let builder = builder(local, ephemeral)?.remote_public_key(remote.as_bytes())?;
    let mut state = Wiped(Box::new(builder.build_initiator()?));
    let mut noise = [0; KEY_LEN + (KEY_LEN + TAG_LEN) + (Tai64n::LEN + TAG_LEN)];
    if state.0.write_message(&timestamp.to_bytes(), &mut noise)? != noise.len() {
        return Err(NoiseError::State);
    }
    let (ephemeral, rest) = split::<_, KEY_LEN, { KEY_LEN + 2 * TAG_LEN + Tai64n::LEN }>(&noise);
    let (encrypted_static, encrypted_timestamp) = split(&rest);
    let message = Initiation {
        sender: local_index,
        ephemeral,
        encrypted_static,
        encrypted_timestamp,
        mac1: [0; MAC_LEN],
        mac2: [0; MAC_LEN],
    };
    Ok((
        InitiatorHandshake {
            state: Some(state),
            local_index,
        },
        message,
    ))
}

fn receive_initiation_with(
    local: &PrivateKey,
    message: &Initiation,
    ephemeral: FixedEphemeral<'_>,
) -> Result<ReceivedInitiation, NoiseError> {
    refuse_low_order(&message.ephemeral)?;
    let mut state = Wiped(Box::new(builder(local, ephemeral)?.build_responder()?));
    let noise = [
        &message.ephemeral[..],
        &message.encrypted_static,
        &message.encrypted_timestamp,
    ];
    let mut timestamp = [0; Tai64n::LEN];
    state.0.read_message(&noise.concat(), &mut timestamp)?;
    let remote = state
        .0
        .get_remote_static()
        .and_then(|key| key.try_into().ok());
    Ok(ReceivedInitiation {
        remote: PublicKey::from_bytes(remote.ok_or(NoiseError::State)?),
        timestamp: Tai64n::from_bytes(timestamp),
        remote_index: message.sender,
        state,
    })
}

fn builder<'a>(
    local: &'a PrivateKey,
    ephemeral: FixedEphemeral<'a>,
) -> Result<Builder<'a>, NoiseError> {
    let builder = Builder::with_resolver(parameters(&WIREGUARD)?, Box::new(Primitives::new(local)))
        .prologue(IDENTIFIER)?
        .local_private_key(local.as_bytes())?;
    Ok(match ephemeral {
        Some(key) => builder.fixed_ephemeral_key_for_testing_only(key),
        None => builder,
    })
}

/// A pattern, parsed once.
type Pattern = LazyLock<Option<NoiseParams>>;

static WIREGUARD: Pattern = LazyLock::new(|| "Noise_IKpsk2_25519_ChaChaPoly_BLAKE2s".parse().ok());
static BLANK: Pattern = LazyLock::new(|| "Noise_NN_25519_ChaChaPoly_BLAKE2s".parse().ok());

fn parameters(pattern: &Pattern) -> Result<NoiseParams, NoiseError> {
    Option::clone(pattern).ok_or(NoiseError::State)
}

fn refuse_low_order(key: &[u8; KEY_LEN]) -> Result<(), NoiseError> {
    if is_low_order(&PublicKey::from_bytes(*key)) {
        return Err(NoiseError::LowOrderPoint);
    }
    Ok(())
}

/// Cuts an array in two whose lengths add up to its own.
fn split<const N: usize, const A: usize, const B: usize>(bytes: &[u8; N]) -> ([u8; A], [u8; B]) {
    const { assert!(A + B == N) };
    let mut parts = ([0; A], [0; B]);
    parts.0.copy_from_slice(&bytes[..A]);
    parts.1.copy_from_slice(&bytes[A..]);
    parts
}

/// A handshake whose chaining key and preshared key don't outlive it in memory.
///
/// `snow` holds both in the struct and frees them as they are; from the chaining
/// key of a finished handshake the session's keys follow. So the struct, which
/// stays in its box, is overwritten by one that has no secrets.
#[derive(Debug)]
struct Wiped(Box<HandshakeState>);

impl Drop for Wiped {
    fn drop(&mut self) {
        if let Ok(blank) = blank() {
            *self.0 = blank;
        }
        // Without a reader the overwriting could be optimized away.
        std::hint::black_box(&*self.0);
    }
}

/// A handshake without any key, of a pattern that asks for none.
fn blank() -> Result<HandshakeState, NoiseError> {
    let builder = Builder::with_resolver(parameters(&BLANK)?, Box::new(DefaultResolver));
    Ok(builder.build_responder()?)
}

#[cfg(test)]
mod tests;
