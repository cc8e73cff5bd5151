//! IPv4 fragmentation (RFC 791, section 3.2) of an inner packet that the path to a peer is too small for and
//! whose sender allows it: the inner packet is cut, each piece travels as a packet of its own and the final
//! receiver puts them together.

use crate::inner::{self, IPV4_HEADER, Inner, InnerError};

/// The smallest MTU that IPv4 knows.
pub const MINIMUM_MTU: usize = 68;

/// Why a packet cannot be cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FragmentError {
    /// Its header is broken.
    #[error(transparent)]
    Broken(#[from] InnerError),
    /// IPv6, or IPv4 with "don't fragment": its sender is to be told instead
    /// ([`too_big`](crate::too_big)).
    #[error("its sender does not allow it")]
    NotAllowed,
    /// The MTU holds no header and eight bytes.
    #[error("an MTU of {0} bytes holds no fragment")]
    Mtu(usize),
}

/// The pieces of one packet, in order. One that fits comes out as a single piece, unchanged.
#[derive(Debug)]
pub struct Fragments<'a> {
    packet: &'a [u8],
    inner: Inner,
    mtu: usize,
    /// Payload bytes already given out.
    done: usize,
    finished: bool,
}

/// Prepares to cut `packet` into pieces of at most `mtu` bytes.
///
/// # Errors
/// [`FragmentError`].
pub fn fragment(packet: &[u8], mtu: usize) -> Result<Fragments<'_>, FragmentError> {
    let inner = inner::parse(packet)?;
    if inner.length > mtu && inner.dont_fragment {
        return Err(FragmentError::NotAllowed);
    }
    if mtu < MINIMUM_MTU {
        return Err(FragmentError::Mtu(mtu));
    }
    Ok(Fragments {
        packet: &packet[..inner.length],
        inner,
        mtu,
        done: 0,
        finished: false,
    })
}

impl Fragments<'_> {
    /// Writes the next piece to `out` and returns its length; `None` when all are out, or when `out` is
    /// smaller than the piece.
    pub fn next_into(&mut self, out: &mut [u8]) -> Option<usize> {
        if self.finished {
            return None;
        }
        if self.packet.len() <= self.mtu {
            self.finished = true;
            out.get_mut(..self.packet.len())?
                .copy_from_slice(self.packet);
            return Some(self.packet.len());
        }
        let payload = &self.packet[self.inner.header_length..];
        let rest = payload.len() - self.done;
        let header_length = self.write_header(out)?;
        let room = self.mtu - header_length;
        let last = rest <= room;
        let size = if last { rest } else { room & !7 };
        let length = header_length + size;
        out.get_mut(header_length..length)?
            .copy_from_slice(&payload[self.done..self.done + size]);

        let word = u16::from_be_bytes([self.packet[6], self.packet[7]]);
        let offset = (word & 0x1fff).wrapping_add((self.done / 8) as u16) & 0x1fff;
        let more = if last { word & 0x2000 } else { 0x2000 };
        out[0] = 0x40 | (header_length / 4) as u8;
        out[2..4].copy_from_slice(&(length as u16).to_be_bytes());
        out[6..8].copy_from_slice(&(word & 0x8000 | more | offset).to_be_bytes());
        out[10..12].fill(0);
        let sum = checksum(&[&out[..header_length]]);
        out[10..12].copy_from_slice(&sum.to_be_bytes());

        self.done += size;
        self.finished = last;
        Some(length)
    }

    /// The header with all options for the first piece, with those that ask to be copied for the others.
    fn write_header(&self, out: &mut [u8]) -> Option<usize> {
        let full = self.inner.header_length;
        out.get_mut(..full)?.copy_from_slice(&self.packet[..full]);
        if self.done == 0 || full == IPV4_HEADER {
            return Some(full);
        }
        let options = &self.packet[IPV4_HEADER..full];
        let mut end = IPV4_HEADER;
        let mut at = 0;
        while let Some(&kind) = options.get(at) {
            let size = match kind {
                0 => break,
                1 => 1,
                _ => options.get(at + 1).map_or(0, |&size| usize::from(size)),
            };
            let Some(option) = options
                .get(at..at + size)
                .filter(|_| size > 0 && (kind == 1 || size > 1))
            else {
                break;
            };
            if kind & 0x80 != 0 {
                out[end..end + size].copy_from_slice(option);
                end += size;
            }
            at += size;
        }
        let padded = end.next_multiple_of(4);
        out[end..padded].fill(0);
        Some(padded)
    }
}

/// The Internet checksum (RFC 1071) of `parts`, each of even length but for the last.
pub(crate) fn checksum(parts: &[&[u8]]) -> u16 {
    let mut total: u64 = 0;
    for part in parts {
        let mut words = part.chunks_exact(2);
        for word in &mut words {
            total += u64::from(u16::from_be_bytes([word[0], word[1]]));
        }
        if let [last] = words.remainder() {
            total += u64::from(*last) << 8;
        }
    }
    while total > 0xffff {
        total = (total & 0xffff) + (total >> 16);
    }
    !(total as u16)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A packet of `length` bytes, its `options` in the header.
    fn packet(length: usize, options: &[u8]) -> Vec<u8> {
        let header = IPV4_HEADER + options.len();
        let mut packet: Vec<u8> = (0..length).map(|byte| (byte * 7) as u8).collect();
        packet[..header].fill(0);
        packet[0] = 0x40 | (header / 4) as u8;
        packet[2..4].copy_from_slice(&(length as u16).to_be_bytes());
        packet[4..6].copy_from_slice(&[0xab, 0xcd]);
        packet[8] = 64;
        packet[9] = 17;
        packet[20..header].copy_from_slice(options);
        let sum = checksum(&[&packet[..header]]);
        packet[10..12].copy_from_slice(&sum.to_be_bytes());
        packet
    }

    fn pieces(packet: &[u8], mtu: usize) -> Vec<Vec<u8>> {
        let mut fragments = fragment(packet, mtu).unwrap();
        let mut out = vec![0; 70_000];
        let mut pieces = Vec::new();
        while let Some(length) = fragments.next_into(&mut out) {
            pieces.push(out[..length].to_vec());
        }
        pieces
    }

    /// What the receiver makes of the pieces: the payload, and whether more is to come.
    fn together(pieces: &[Vec<u8>], base: usize) -> (Vec<u8>, bool) {
        let mut payload = Vec::new();
        let mut more = true;
        for piece in pieces {
            assert!(more, "a piece after the last");
            let inner = inner::parse(piece).unwrap();
            assert_eq!(inner.length, piece.len());
            assert_eq!(checksum(&[&piece[..inner.header_length]]), 0);
            assert_eq!(piece[4..6], [0xab, 0xcd]);
            let word = u16::from_be_bytes([piece[6], piece[7]]);
            assert_eq!(usize::from(word & 0x1fff) * 8, base + payload.len());
            more = word & 0x2000 != 0;
            payload.extend_from_slice(&piece[inner.header_length..]);
        }
        (payload, more)
    }

    #[test]
    fn one_that_fits_comes_out_unchanged() {
        let packet = packet(1400, &[]);
        assert_eq!(pieces(&packet, 1400), [packet]);
    }

    #[test]
    fn who_says_no_is_not_cut() {
        let mut packet = packet(1400, &[]);
        packet[6] = 0x40;
        assert_eq!(
            fragment(&packet, 1399).unwrap_err(),
            FragmentError::NotAllowed
        );
        assert!(fragment(&packet, 1400).is_ok());
        packet[6] = 0;
        assert_eq!(fragment(&packet, 67).unwrap_err(), FragmentError::Mtu(67));
        assert_eq!(
            fragment(&packet[..9], 1400).unwrap_err(),
            FragmentError::Broken(InnerError::Truncated)
        );
    }

    #[test]
    fn a_piece_is_cut_again_and_keeps_its_place() {
        let mut packet = packet(820, &[]);
        packet[6..8].copy_from_slice(&(0x2000_u16 + 100).to_be_bytes());
        let (payload, more) = together(&pieces(&packet, 300), 800);
        assert!(more, "the original was not the last");
        assert_eq!(payload, packet[20..]);
    }

    #[test]
    fn options_that_ask_for_it_are_in_every_piece() {
        // No-operation, record route (not copied), router alert (copied), end.
        let options = [1, 7, 3, 4, 0x94, 4, 0, 0, 0, 0, 0, 0];
        let packet = packet(500, &options);
        let pieces = pieces(&packet, 200);
        assert_eq!(pieces[0][20..32], options);
        assert_eq!(pieces[1][0], 0x46);
        assert_eq!(pieces[1][20..24], [0x94, 4, 0, 0]);
        assert_eq!(together(&pieces, 0).0, packet[32..]);
    }

    proptest! {
        #[test]
        fn the_pieces_fit_and_make_the_packet(
            length in 20_usize..3000,
            mtu in MINIMUM_MTU..3000,
            options in prop::collection::vec(any::<u8>(), 0..=10),
        ) {
            let options: Vec<u8> = options.iter().flat_map(|byte| [*byte, 4, 0, 0]).collect();
            let length = length.max(IPV4_HEADER + options.len());
            let packet = packet(length, &options);
            let pieces = pieces(&packet, mtu);
            prop_assert!(pieces.iter().all(|piece| piece.len() <= mtu));
            let (payload, more) = together(&pieces, 0);
            prop_assert!(!more);
            prop_assert_eq!(&payload[..], &packet[IPV4_HEADER + options.len()..]);
        }

        #[test]
        fn hostile_options_and_small_buffers_cause_no_panic(
            mut bytes in prop::collection::vec(any::<u8>(), 20..400),
            mtu in 0_usize..200,
            room in 0_usize..200,
        ) {
            bytes[0] = 0x40 | bytes[0] & 0xf;
            let length = bytes.len() as u16;
            bytes[2..4].copy_from_slice(&length.to_be_bytes());
            bytes[6] &= 0x3f;
            if let Ok(mut fragments) = fragment(&bytes, mtu) {
                let mut out = vec![0; room];
                while fragments.next_into(&mut out).is_some() {}
            }
        }
    }
}
