//! The four messages of WireGuard on the wire.
//!
//! The three handshake messages have one length each and are read into plain
//! structs; a data message is looked at where it lies through [`Data`], since
//! its body is opened in place. Reading checks type, reserved bytes and length
//! and nothing else: what the fields mean is the business of `noise`, `cookie`
//! and the worker. Integers are little-endian (white paper, section 5.4).

mod data;
mod handshake;

pub use data::{Data, DataHeader};
pub use handshake::{CookieReply, Initiation, Response};

/// Length of an authentication tag of ChaCha20-Poly1305 and AES-256-GCM.
pub const TAG_LEN: usize = 16;
/// Length of MAC1 and of MAC2, which end both messages that carry them.
pub const MAC_LEN: usize = 16;

/// The first byte of a message; the three after it are reserved and zero.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum MessageType {
    /// First message of a handshake.
    Initiation = 1,
    /// Second message of a handshake.
    Response = 2,
    /// Answer of a responder under load: prove your address first.
    CookieReply = 3,
    /// A sealed packet, or a keepalive when it is empty.
    Data = 4,
}

impl MessageType {
    /// The type of a datagram by its first four bytes, whatever its length.
    pub fn of(datagram: &[u8]) -> Option<MessageType> {
        match datagram.get(..4)? {
            [1, 0, 0, 0] => Some(MessageType::Initiation),
            [2, 0, 0, 0] => Some(MessageType::Response),
            [3, 0, 0, 0] => Some(MessageType::CookieReply),
            [4, 0, 0, 0] => Some(MessageType::Data),
            _ => None,
        }
    }

    /// The four bytes that begin a message of this type.
    pub const fn bytes(self) -> [u8; 4] {
        [self as u8, 0, 0, 0]
    }
}

/// A datagram that is a message of WireGuard by its shape.
#[derive(Debug)]
pub enum Message<'a> {
    /// First message of a handshake.
    Initiation(Initiation),
    /// Second message of a handshake.
    Response(Response),
    /// Answer of a responder under load.
    CookieReply(CookieReply),
    /// A sealed packet.
    Data(Data<&'a [u8]>),
}

impl<'a> Message<'a> {
    /// Reads a datagram that may hold anything.
    pub fn parse(datagram: &'a [u8]) -> Result<Message<'a>, WireError> {
        match MessageType::of(datagram) {
            Some(MessageType::Initiation) => Initiation::parse(datagram).map(Message::Initiation),
            Some(MessageType::Response) => Response::parse(datagram).map(Message::Response),
            Some(MessageType::CookieReply) => {
                CookieReply::parse(datagram).map(Message::CookieReply)
            }
            Some(MessageType::Data) => Data::parse(datagram).map(Message::Data),
            None => Err(WireError::unknown_type(datagram)),
        }
    }
}

/// Why a datagram is no message of WireGuard.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum WireError {
    /// The first four bytes are not those of the expected, or of any, message.
    #[error("message begins with {0:02x?}, which is not the expected type")]
    Type([u8; 4]),
    /// Fewer bytes than the message has.
    #[error("message of {length} bytes is shorter than the {expected} it needs")]
    Truncated {
        /// Bytes that are there.
        length: usize,
        /// Bytes that the message has (at least, for a data message).
        expected: usize,
    },
    /// More bytes than the message has.
    #[error("message of {length} bytes is longer than its {expected}")]
    Oversized {
        /// Bytes that are there.
        length: usize,
        /// Bytes that the message has.
        expected: usize,
    },
}

impl WireError {
    fn unknown_type(datagram: &[u8]) -> WireError {
        match datagram.first_chunk::<4>() {
            Some(first) => WireError::Type(*first),
            None => WireError::Truncated {
                length: datagram.len(),
                expected: 4,
            },
        }
    }

    fn length(length: usize, expected: usize) -> WireError {
        if length < expected {
            WireError::Truncated { length, expected }
        } else {
            WireError::Oversized { length, expected }
        }
    }
}

/// The datagram as an array, when type and length are those of the message.
fn exact<const N: usize>(datagram: &[u8], kind: MessageType) -> Result<&[u8; N], WireError> {
    if MessageType::of(datagram) != Some(kind) {
        return Err(WireError::unknown_type(datagram));
    }
    datagram
        .try_into()
        .map_err(|_| WireError::length(datagram.len(), N))
}

/// Takes fields off the front of a message whose length is already known.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn array<const N: usize>(&mut self) -> [u8; N] {
        match self.0.split_first_chunk::<N>() {
            Some((field, rest)) => {
                self.0 = rest;
                *field
            }
            None => unreachable!("the fields of a message add up to its length"),
        }
    }

    fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.array())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn parsing_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = Message::parse(&bytes);
        }

        #[test]
        fn what_begins_like_a_message_is_judged_by_length(kind in 1_u8..=4, length in 0_usize..200) {
            let mut bytes = vec![0_u8; length];
            if let Some(first) = bytes.first_mut() {
                *first = kind;
            }
            let fits = match kind {
                1 => length == 148,
                2 => length == 92,
                3 => length == 64,
                _ => length >= 32,
            };
            prop_assert_eq!(Message::parse(&bytes).is_ok(), fits);
        }
    }

    #[test]
    fn reserved_bytes_are_zero() {
        for position in 1..4 {
            let mut bytes = [0_u8; 148];
            bytes[0] = 1;
            assert!(Message::parse(&bytes).is_ok());
            bytes[position] = 1;
            assert!(matches!(Message::parse(&bytes), Err(WireError::Type(_))));
        }
    }

    #[test]
    fn the_error_says_which_way_the_length_is_wrong() {
        let mut bytes = [0_u8; 149];
        bytes[0] = 1;
        let oversized = WireError::Oversized {
            length: 149,
            expected: 148,
        };
        assert_eq!(Message::parse(&bytes).unwrap_err(), oversized);
        let truncated = WireError::Truncated {
            length: 147,
            expected: 148,
        };
        assert_eq!(Message::parse(&bytes[..147]).unwrap_err(), truncated);
        let empty = WireError::Truncated {
            length: 0,
            expected: 4,
        };
        assert_eq!(Message::parse(&[]).unwrap_err(), empty);
    }
}
