//! The one place where Ringway's processes turn values into bytes and back.
//!
//! The bytes are those of `bincode` 2.0.1 with its standard configuration: little endian, variable-length
//! integers, no padding. On a stream socket each message follows its length as a `u32`, little endian
//! ([`frame`], [`unframe`]); on SOCK_SEQPACKET one datagram is one message.
//!
//! What is decoded may come from a hostile process: the length is bounded by the caller, memory is bounded by
//! the length, and bytes left over are an error.

use bincode::config::{Configuration, Limit, standard};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// The bytes of the length before a message on a stream.
pub const FRAME_HEADER: usize = 4;

/// Why a message could not be written or read.
#[derive(Debug, thiserror::Error)]
pub enum CodecError {
    /// The message is longer than its receiver takes.
    #[error("message of {length} bytes: at most {limit} are taken")]
    TooLong {
        /// The length that was found or announced.
        length: usize,
        /// The greatest length that is allowed.
        limit: usize,
    },
    /// The value has no encoding.
    #[error("message cannot be encoded: {0}")]
    Encode(#[from] bincode::error::EncodeError),
    /// The bytes are not the encoding of such a value.
    #[error("message cannot be decoded: {0}")]
    Decode(#[from] bincode::error::DecodeError),
    /// The value ended before the message did.
    #[error("message has {0} bytes after its value")]
    Trailing(usize),
}

/// The encoding of `value`.
pub fn encode<T: Serialize>(value: &T) -> Result<Vec<u8>, CodecError> {
    Ok(bincode::serde::encode_to_vec(value, standard())?)
}

/// The value that `bytes` encode, all of them; more than `limit` bytes are refused unread.
pub fn decode<T: DeserializeOwned>(bytes: &[u8], limit: usize) -> Result<T, CodecError> {
    if bytes.len() > limit {
        return Err(CodecError::TooLong {
            length: bytes.len(),
            limit,
        });
    }
    // bincode counts what it reads in memory sizes, so the allowance must exceed the bytes by the widest
    // integer; it must not exceed them by much, since a claimed string length is allocated before it is read.
    let (value, used) = match bytes.len() {
        0..=0x1000 => decode_bounded(bytes, standard().with_limit::<0x1_0000>()),
        0x1001..=0x1_0000 => decode_bounded(bytes, standard().with_limit::<0x10_0000>()),
        0x1_0001..=0x10_0000 => decode_bounded(bytes, standard().with_limit::<0x100_0000>()),
        0x10_0001..=0x100_0000 => decode_bounded(bytes, standard().with_limit::<0x1000_0000>()),
        _ => decode_bounded(bytes, standard().with_limit::<0x1_0000_0000>()),
    }?;
    if used != bytes.len() {
        return Err(CodecError::Trailing(bytes.len() - used));
    }
    Ok(value)
}

/// `value` as a stream carries it: its length, then its bytes.
pub fn frame<T: Serialize>(value: &T, limit: usize) -> Result<Vec<u8>, CodecError> {
    let body = encode(value)?;
    if body.len() > limit {
        return Err(CodecError::TooLong {
            length: body.len(),
            limit,
        });
    }
    let length = u32::try_from(body.len()).map_err(|_| CodecError::TooLong {
        length: body.len(),
        limit,
    })?;
    let mut framed = Vec::with_capacity(FRAME_HEADER + body.len());
    framed.extend_from_slice(&length.to_le_bytes());
    framed.extend_from_slice(&body);
    Ok(framed)
}

/// The first message in `buffer` and how many bytes it took; `None` while it is not all there.
///
/// A length beyond `limit` is an error at once, so a receiver never buffers more than
/// `FRAME_HEADER + limit` bytes.
pub fn unframe<T: DeserializeOwned>(
    buffer: &[u8],
    limit: usize,
) -> Result<Option<(T, usize)>, CodecError> {
    let Some(header) = buffer.first_chunk::<FRAME_HEADER>() else {
        return Ok(None);
    };
    let length = u32::from_le_bytes(*header) as usize;
    if length > limit {
        return Err(CodecError::TooLong { length, limit });
    }
    let Some(body) = buffer[FRAME_HEADER..].get(..length) else {
        return Ok(None);
    };
    Ok(Some((decode(body, limit)?, FRAME_HEADER + length)))
}

type Bounded<const N: usize> =
    Configuration<bincode::config::LittleEndian, bincode::config::Varint, Limit<N>>;

fn decode_bounded<T: DeserializeOwned, const N: usize>(
    bytes: &[u8],
    config: Bounded<N>,
) -> Result<(T, usize), bincode::error::DecodeError> {
    bincode::serde::decode_from_slice(bytes, config)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_bytes_are_the_documented_ones() {
        assert_eq!(
            encode(&(1u8, 250u32, 251u32, "ab")).unwrap(),
            [1, 250, 251, 251, 0, 2, b'a', b'b']
        );
        assert_eq!(frame(&7u8, 1).unwrap(), [1, 0, 0, 0, 7]);
    }

    #[test]
    fn all_bytes_must_be_used() {
        assert!(matches!(
            decode::<u8>(&[1, 2], 8),
            Err(CodecError::Trailing(1))
        ));
        assert!(matches!(decode::<u16>(&[], 8), Err(CodecError::Decode(_))));
    }

    #[test]
    fn a_claimed_length_allocates_nothing_great() {
        let mut bytes = vec![253];
        bytes.extend_from_slice(&u64::MAX.to_le_bytes());
        assert!(decode::<String>(&bytes, 64).is_err());
        assert!(decode::<Vec<u8>>(&bytes, 64).is_err());
        assert!(decode::<Vec<()>>(&[1, 2], 64).is_err());
    }

    #[test]
    fn limits_hold_on_both_ends() {
        let long = "x".repeat(100);
        assert!(matches!(
            frame(&long, 100),
            Err(CodecError::TooLong {
                length: 101,
                limit: 100
            })
        ));
        let framed = frame(&long, 101).unwrap();
        assert!(matches!(
            unframe::<String>(&framed, 100),
            Err(CodecError::TooLong { .. })
        ));
        assert!(matches!(
            decode::<String>(&framed, 100),
            Err(CodecError::TooLong { .. })
        ));
    }

    #[test]
    fn small_integers_fit_the_allowance() {
        for length in [10usize, 5_000, 100_000, 2_000_000] {
            let values: Vec<u64> = vec![1; length];
            let bytes = encode(&values).unwrap();
            assert_eq!(
                decode::<Vec<u64>>(&bytes, bytes.len()).unwrap().len(),
                length
            );
        }
    }

    proptest! {
        #[test]
        fn a_frame_arrives_in_any_pieces(text in ".{0,200}", number: u64, cut in 0usize..400) {
            let value = (text, number);
            let framed = frame(&value, 4096).unwrap();
            let cut = cut.min(framed.len());
            if cut < framed.len() {
                prop_assert!(unframe::<(String, u64)>(&framed[..cut], 4096).unwrap().is_none());
            }
            let mut more = framed.clone();
            more.extend_from_slice(&framed[..cut]);
            let (read, used) = unframe::<(String, u64)>(&more, 4096).unwrap().unwrap();
            prop_assert_eq!(read, value);
            prop_assert_eq!(used, framed.len());
        }

        #[test]
        fn garbage_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = decode::<(String, Vec<u64>, Option<(u8, String)>)>(&bytes, 4096);
            let _ = unframe::<Vec<String>>(&bytes, 4096);
        }
    }
}
