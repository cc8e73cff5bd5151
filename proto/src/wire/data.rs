//! The message that carries a packet: a header, then what the key seals.

use super::{MessageType, TAG_LEN, WireError};

/// The header of a data message (white paper, section 5.4.6).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DataHeader {
    /// The receiver's index for the key that seals the body.
    pub receiver: u32,
    /// The nonce: how many packets the key sealed before this one.
    pub counter: u64,
}

impl DataHeader {
    /// Length on the wire.
    pub const LEN: usize = 16;

    /// The header as it goes on the wire.
    pub fn to_bytes(self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[..4].copy_from_slice(&MessageType::Data.bytes());
        bytes[4..8].copy_from_slice(&self.receiver.to_le_bytes());
        bytes[8..].copy_from_slice(&self.counter.to_le_bytes());
        bytes
    }
}

/// A view of a data message where it lies.
#[derive(Clone, Copy, Debug)]
pub struct Data<T> {
    header: DataHeader,
    message: T,
}

impl<T: AsRef<[u8]>> Data<T> {
    /// Header and tag: the length of an empty data message, a keepalive.
    pub const MIN_LEN: usize = DataHeader::LEN + TAG_LEN;

    /// Reads a datagram that may hold anything.
    pub fn parse(message: T) -> Result<Data<T>, WireError> {
        let bytes = message.as_ref();
        let length = bytes.len();
        if MessageType::of(bytes) != Some(MessageType::Data) {
            return Err(WireError::unknown_type(bytes));
        }
        match bytes.first_chunk::<{ DataHeader::LEN }>() {
            Some(&[_, _, _, _, r0, r1, r2, r3, counter @ ..]) if length >= Self::MIN_LEN => {
                let receiver = u32::from_le_bytes([r0, r1, r2, r3]);
                let header = DataHeader {
                    receiver,
                    counter: u64::from_le_bytes(counter),
                };
                Ok(Data { header, message })
            }
            _ => Err(WireError::Truncated {
                length,
                expected: Self::MIN_LEN,
            }),
        }
    }

    /// The header.
    pub fn header(&self) -> DataHeader {
        self.header
    }

    /// The sealed packet with its tag: at least [`TAG_LEN`] bytes.
    pub fn body(&self) -> &[u8] {
        &self.message.as_ref()[DataHeader::LEN..]
    }

    /// Whether the body can only be a keepalive.
    pub fn is_keepalive(&self) -> bool {
        self.message.as_ref().len() == Self::MIN_LEN
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> Data<T> {
    /// The sealed packet with its tag, to be opened in place.
    pub fn body_mut(&mut self) -> &mut [u8] {
        &mut self.message.as_mut()[DataHeader::LEN..]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_header_survives(receiver: u32, counter: u64, body in proptest::collection::vec(any::<u8>(), 16..64)) {
            let header = DataHeader { receiver, counter };
            let mut bytes = header.to_bytes().to_vec();
            bytes.extend_from_slice(&body);
            let mut data = Data::parse(bytes).unwrap();
            prop_assert_eq!(data.header(), header);
            prop_assert_eq!(data.body(), &body[..]);
            prop_assert_eq!(data.is_keepalive(), body.len() == TAG_LEN);
            prop_assert_eq!(data.body_mut().len(), body.len());
        }
    }

    #[test]
    fn a_message_without_a_whole_tag_is_truncated() {
        let bytes = DataHeader {
            receiver: 1,
            counter: 2,
        }
        .to_bytes();
        for extra in 0..TAG_LEN {
            let mut message = bytes.to_vec();
            message.resize(DataHeader::LEN + extra, 0);
            let error = Data::parse(&message[..]).unwrap_err();
            assert_eq!(
                error,
                WireError::Truncated {
                    length: 16 + extra,
                    expected: 32
                }
            );
        }
    }
}
