//! The messages of fixed length: initiation, response and cookie reply.

use super::{Fields, MAC_LEN, MessageType, TAG_LEN, WireError, exact};
use crate::keys::KEY_LEN;
use crate::tai64n::Tai64n;

/// First message of a handshake (white paper, section 5.4.2).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Initiation {
    /// Index by which the initiator wants to be addressed.
    pub sender: u32,
    /// The initiator's key for this handshake alone.
    pub ephemeral: [u8; KEY_LEN],
    /// The initiator's static key, sealed.
    pub encrypted_static: [u8; KEY_LEN + TAG_LEN],
    /// The TAI64N time stamp, sealed.
    pub encrypted_timestamp: [u8; Tai64n::LEN + TAG_LEN],
    /// Proof that the sender knows the responder's public key.
    pub mac1: [u8; MAC_LEN],
    /// Proof that the sender got a cookie at its address; zero without one.
    pub mac2: [u8; MAC_LEN],
}

impl Initiation {
    /// Length on the wire.
    pub const LEN: usize = 148;

    /// Reads a datagram that may hold anything.
    pub fn parse(datagram: &[u8]) -> Result<Initiation, WireError> {
        let bytes: &[u8; Self::LEN] = exact(datagram, MessageType::Initiation)?;
        let mut fields = Fields(&bytes[4..]);
        Ok(Initiation {
            sender: fields.u32(),
            ephemeral: fields.array(),
            encrypted_static: fields.array(),
            encrypted_timestamp: fields.array(),
            mac1: fields.array(),
            mac2: fields.array(),
        })
    }

    /// The message as it goes on the wire.
    pub fn to_bytes(&self) -> [u8; Self::LEN] {
        concatenate(&[
            &MessageType::Initiation.bytes(),
            &self.sender.to_le_bytes(),
            &self.ephemeral,
            &self.encrypted_static,
            &self.encrypted_timestamp,
            &self.mac1,
            &self.mac2,
        ])
    }
}

/// Second message of a handshake (white paper, section 5.4.3).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Response {
    /// Index by which the responder wants to be addressed.
    pub sender: u32,
    /// The initiator's index, from its message.
    pub receiver: u32,
    /// The responder's key for this handshake alone.
    pub ephemeral: [u8; KEY_LEN],
    /// Nothing, sealed: its tag proves the responder's keys.
    pub encrypted_nothing: [u8; TAG_LEN],
    /// Proof that the sender knows the initiator's public key.
    pub mac1: [u8; MAC_LEN],
    /// Proof that the sender got a cookie at its address; zero without one.
    pub mac2: [u8; MAC_LEN],
}

impl Response {
    /// Length on the wire.
    pub const LEN: usize = 92;

    /// Reads a datagram that may hold anything.
    pub fn parse(datagram: &[u8]) -> Result<Response, WireError> {
        let bytes: &[u8; Self::LEN] = exact(datagram, MessageType::Response)?;
        let mut fields = Fields(&bytes[4..]);
        Ok(Response {
            sender: fields.u32(),
            receiver: fields.u32(),
            ephemeral: fields.array(),
            encrypted_nothing: fields.array(),
            mac1: fields.array(),
            mac2: fields.array(),
        })
    }

    /// The message as it goes on the wire.
    pub fn to_bytes(&self) -> [u8; Self::LEN] {
        concatenate(&[
            &MessageType::Response.bytes(),
            &self.sender.to_le_bytes(),
            &self.receiver.to_le_bytes(),
            &self.ephemeral,
            &self.encrypted_nothing,
            &self.mac1,
            &self.mac2,
        ])
    }
}

/// Answer to a handshake message while under load (white paper, section 5.4.7).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CookieReply {
    /// The sender index of the message that this answers.
    pub receiver: u32,
    /// Random, since the key is the same for every reply.
    pub nonce: [u8; CookieReply::NONCE_LEN],
    /// The cookie, sealed with the MAC1 that this answers as associated data.
    pub encrypted_cookie: [u8; MAC_LEN + TAG_LEN],
}

impl CookieReply {
    /// Length on the wire.
    pub const LEN: usize = 64;
    /// Length of a nonce of XChaCha20-Poly1305.
    pub const NONCE_LEN: usize = 24;

    /// Reads a datagram that may hold anything.
    pub fn parse(datagram: &[u8]) -> Result<CookieReply, WireError> {
        let bytes: &[u8; Self::LEN] = exact(datagram, MessageType::CookieReply)?;
        let mut fields = Fields(&bytes[4..]);
        Ok(CookieReply {
            receiver: fields.u32(),
            nonce: fields.array(),
            encrypted_cookie: fields.array(),
        })
    }

    /// The message as it goes on the wire.
    pub fn to_bytes(&self) -> [u8; Self::LEN] {
        concatenate(&[
            &MessageType::CookieReply.bytes(),
            &self.receiver.to_le_bytes(),
            &self.nonce,
            &self.encrypted_cookie,
        ])
    }
}

/// The fields of a message one after the other; they add up to its length.
fn concatenate<const N: usize>(fields: &[&[u8]]) -> [u8; N] {
    let mut bytes = [0; N];
    let mut rest = &mut bytes[..];
    for field in fields {
        let (head, tail) = rest.split_at_mut(field.len());
        head.copy_from_slice(field);
        rest = tail;
    }
    debug_assert!(rest.is_empty(), "a message has a field for each byte");
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_byte_of_an_initiation_survives(body in proptest::array::uniform32(any::<u8>()), repeat in 0_usize..5) {
            let mut bytes = [0_u8; Initiation::LEN];
            fill(&mut bytes, 1, &body, repeat);
            prop_assert_eq!(Initiation::parse(&bytes).unwrap().to_bytes(), bytes);
        }

        #[test]
        fn every_byte_of_a_response_survives(body in proptest::array::uniform32(any::<u8>()), repeat in 0_usize..5) {
            let mut bytes = [0_u8; Response::LEN];
            fill(&mut bytes, 2, &body, repeat);
            prop_assert_eq!(Response::parse(&bytes).unwrap().to_bytes(), bytes);
        }

        #[test]
        fn every_byte_of_a_cookie_reply_survives(body in proptest::array::uniform32(any::<u8>()), repeat in 0_usize..5) {
            let mut bytes = [0_u8; CookieReply::LEN];
            fill(&mut bytes, 3, &body, repeat);
            prop_assert_eq!(CookieReply::parse(&bytes).unwrap().to_bytes(), bytes);
        }
    }

    fn fill(bytes: &mut [u8], kind: u8, body: &[u8; 32], turn: usize) {
        for (position, byte) in bytes.iter_mut().enumerate() {
            *byte = body[(position * 7 + turn) % 32];
        }
        bytes[..4].copy_from_slice(&[kind, 0, 0, 0]);
    }

    #[test]
    fn fields_lie_where_the_white_paper_puts_them() {
        let mut bytes = [0_u8; Initiation::LEN];
        for (position, byte) in bytes.iter_mut().enumerate().skip(4) {
            *byte = position as u8;
        }
        bytes[0] = 1;
        let message = Initiation::parse(&bytes).unwrap();
        assert_eq!(message.sender, u32::from_le_bytes([4, 5, 6, 7]));
        assert_eq!(message.ephemeral[0], 8);
        assert_eq!(message.encrypted_static[0], 40);
        assert_eq!(message.encrypted_timestamp[0], 88);
        assert_eq!(message.mac1[0], 116);
        assert_eq!(message.mac2[0], 132);
        bytes[0] = 2;
        let message = Response::parse(&bytes[..92]).unwrap();
        assert_eq!(message.receiver, u32::from_le_bytes([8, 9, 10, 11]));
        assert_eq!(message.ephemeral[0], 12);
        assert_eq!(message.encrypted_nothing[0], 44);
        assert_eq!(message.mac1[0], 60);
        assert_eq!(message.mac2[0], 76);
        bytes[0] = 3;
        let message = CookieReply::parse(&bytes[..64]).unwrap();
        assert_eq!(message.nonce[0], 8);
        assert_eq!(message.encrypted_cookie[0], 32);
    }
}
