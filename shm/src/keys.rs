//! The `keys` segment: session keys by lane, and each peer's greatest time stamp. Meta writes, workers read; the tools
//! never map it.

use crate::{
    ids::{LaneSlot, PeerSlot},
    segment::{Segment, SegmentError, SegmentKind, View},
    seqlock::{Record, Repair},
};
use std::fmt;
use zeroize::{Zeroize, Zeroizing};

/// A lane's keys in shared memory: peer, indices, two keys, time of birth, flags.
pub(crate) type KeyRecord = Record<12>;
/// A TAI64N time stamp in shared memory.
pub(crate) type TimestampRecord = Record<2>;

/// The record has keys: a retired one is all zeros.
const VALID: u64 = 1;
const INITIATOR: u64 = 2;

/// What a lane needs to seal and open. Wiped when dropped.
pub struct LaneKeys {
    /// Whose lane it is.
    pub peer: PeerSlot,
    /// Which user of that slot.
    pub incarnation: u32,
    /// The receiver index that the peer puts into its messages.
    pub local_index: u32,
    /// The receiver index that goes into messages to the peer.
    pub remote_index: u32,
    /// The key to send with.
    pub send_key: [u8; 32],
    /// The key to receive with.
    pub receive_key: [u8; 32],
    /// When the session was made, boot nanoseconds.
    pub born_ns: u64,
    /// Whether this side began the handshake.
    pub initiator: bool,
}

impl Drop for LaneKeys {
    fn drop(&mut self) {
        self.send_key.zeroize();
        self.receive_key.zeroize();
    }
}

impl fmt::Debug for LaneKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LaneKeys")
            .field("peer", &self.peer)
            .field("incarnation", &self.incarnation)
            .field("local_index", &self.local_index)
            .field("remote_index", &self.remote_index)
            .field("born_ns", &self.born_ns)
            .field("initiator", &self.initiator)
            .finish_non_exhaustive()
    }
}

/// The `keys` segment for readers.
#[derive(Clone, Debug)]
pub struct Keys {
    keys: View<[KeyRecord]>,
}

impl Keys {
    /// The view of an attached `keys` segment.
    pub fn attach(segment: &Segment) -> Result<Keys, SegmentError> {
        segment.expect_kind(SegmentKind::Keys)?;
        Ok(Keys {
            keys: segment.table("keys")?,
        })
    }

    /// A lane's keys; `None`: the lane is not in use.
    pub fn read(&self, lane: LaneSlot) -> Option<LaneKeys> {
        let words = Zeroizing::new(self.keys.get(lane.index())?.read()?);
        from_words(&words)
    }

    /// Changes whenever the lane's keys do. Take it before [`read`](Self::read); as long as it stays the same, what
    /// was read is current.
    #[inline]
    pub fn generation(&self, lane: LaneSlot) -> u32 {
        // Lane slots are given out so slowly that 2³² writes to one can't pass between two looks.
        self.keys
            .get(lane.index())
            .map_or(0, |record| record.sequence() as u32)
    }
}

/// The `keys` segment for its one writer, meta.
#[derive(Debug)]
pub struct KeysWriter {
    reader: Keys,
    timestamps: View<[TimestampRecord]>,
}

impl KeysWriter {
    /// Takes the segment over; a key that a dead meta left half written is retired.
    pub fn attach(segment: &Segment) -> Result<KeysWriter, SegmentError> {
        segment.expect_writable()?;
        let reader = Keys::attach(segment)?;
        for record in reader.keys.iter() {
            if record.repair() == Repair::Undone {
                record.write(&[0; 12]);
            }
        }
        let timestamps = segment.table::<TimestampRecord>("timestamps")?;
        for record in timestamps.iter() {
            record.repair();
        }
        Ok(KeysWriter { reader, timestamps })
    }

    /// Publishes a lane's keys. A slot beyond the table is nobody's: nothing happens.
    pub fn publish(&mut self, lane: LaneSlot, keys: &LaneKeys) {
        if let Some(record) = self.reader.keys.get(lane.index()) {
            record.write(&Zeroizing::new(to_words(keys)));
        }
    }

    /// Takes a lane's keys away and wipes them.
    pub fn retire(&mut self, lane: LaneSlot) {
        if let Some(record) = self.reader.keys.get(lane.index()) {
            record.write(&[0; 12]);
        }
    }

    /// The greatest TAI64N time stamp that a peer has shown; zeros: none.
    pub fn greatest_timestamp(&self, peer: PeerSlot) -> [u8; 12] {
        let words = self.timestamps.get(peer.index()).and_then(Record::read);
        let [high, low] = words.unwrap_or_default();
        let mut timestamp = [0; 12];
        timestamp[..8].copy_from_slice(&high.to_be_bytes());
        timestamp[8..].copy_from_slice(&(low as u32).to_be_bytes());
        timestamp
    }

    /// Remembers a peer's time stamp, also beyond the life of this meta.
    pub fn set_greatest_timestamp(&mut self, peer: PeerSlot, timestamp: [u8; 12]) {
        let number = |bytes: &[u8]| {
            bytes
                .iter()
                .fold(0, |number, byte| number << 8 | u64::from(*byte))
        };
        if let Some(record) = self.timestamps.get(peer.index()) {
            record.write(&[number(&timestamp[..8]), number(&timestamp[8..])]);
        }
    }

    /// The same segment for reading.
    pub fn reader(&self) -> Keys {
        self.reader.clone()
    }
}

fn to_words(keys: &LaneKeys) -> [u64; 12] {
    let mut words = [0; 12];
    words[0] = u64::from(keys.peer.0) | u64::from(keys.incarnation) << 32;
    words[1] = u64::from(keys.local_index) | u64::from(keys.remote_index) << 32;
    let key_bytes = keys
        .send_key
        .chunks_exact(8)
        .chain(keys.receive_key.chunks_exact(8));
    for (word, bytes) in words[2..10].iter_mut().zip(key_bytes) {
        *word = bytes
            .iter()
            .rev()
            .fold(0, |word, byte| word << 8 | u64::from(*byte));
    }
    words[10] = keys.born_ns;
    words[11] = VALID | if keys.initiator { INITIATOR } else { 0 };
    words
}

fn from_words(words: &[u64; 12]) -> Option<LaneKeys> {
    if words[11] & VALID == 0 {
        return None;
    }
    let mut keys = LaneKeys {
        peer: PeerSlot(words[0] as u32),
        incarnation: (words[0] >> 32) as u32,
        local_index: words[1] as u32,
        remote_index: (words[1] >> 32) as u32,
        send_key: [0; 32],
        receive_key: [0; 32],
        born_ns: words[10],
        initiator: words[11] & INITIATOR != 0,
    };
    let LaneKeys {
        send_key,
        receive_key,
        ..
    } = &mut keys;
    let key_bytes = send_key
        .chunks_exact_mut(8)
        .chain(receive_key.chunks_exact_mut(8));
    for (bytes, word) in key_bytes.zip(&words[2..10]) {
        bytes.copy_from_slice(&word.to_le_bytes());
    }
    Some(keys)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::segment::{Access, Geometry, create};
    use std::os::fd::AsFd;

    type Result = std::result::Result<(), Box<dyn std::error::Error>>;

    fn keys(number: u8) -> LaneKeys {
        LaneKeys {
            peer: PeerSlot(3),
            incarnation: 7,
            local_index: 0xfedc_ba98,
            remote_index: 0x0123_4567,
            send_key: std::array::from_fn(|i| number.wrapping_add(i as u8)),
            receive_key: std::array::from_fn(|i| number.wrapping_mul(3).wrapping_add(i as u8)),
            born_ns: u64::MAX - 5,
            initiator: number % 2 == 1,
        }
    }

    fn assert_same(a: &LaneKeys, b: &LaneKeys) {
        assert_eq!(format!("{a:?}"), format!("{b:?}"));
        assert!(a.send_key == b.send_key && a.receive_key == b.receive_key);
    }

    #[test]
    fn a_key_is_published_and_wiped() -> Result {
        let fds = create(SegmentKind::Keys, Geometry::new(4, 8, 16)?)?;
        let segment = Segment::attach(fds.writable.as_fd(), SegmentKind::Keys, Access::ReadWrite)?;
        let mut writer = KeysWriter::attach(&segment)?;
        let reader = Segment::attach(fds.readable.as_fd(), SegmentKind::Keys, Access::ReadOnly)?;
        let reader = Keys::attach(&reader)?;
        let lane = LaneSlot(5);
        assert!(reader.read(lane).is_none());
        let generation = reader.generation(lane);

        for number in [1, 2] {
            writer.publish(lane, &keys(number));
            assert_same(&reader.read(lane).ok_or("no key")?, &keys(number));
        }
        assert_ne!(reader.generation(lane), generation);

        writer.retire(lane);
        assert!(reader.read(lane).is_none());
        let file = std::fs::File::from(fds.readable.try_clone()?);
        let mut contents = vec![0; segment.bytes() as usize];
        std::os::unix::fs::FileExt::read_exact_at(&file, &mut contents, 0)?;
        for number in [1, 2] {
            for key in [keys(number).send_key, keys(number).receive_key] {
                assert!(!contents.windows(8).any(|window| window == &key[..8]));
            }
        }

        writer.publish(LaneSlot(u32::MAX), &keys(1));
        assert!(reader.read(LaneSlot(u32::MAX)).is_none());
        assert_eq!(reader.generation(LaneSlot(u32::MAX)), 0);
        Ok(())
    }

    #[test]
    fn debug_shows_no_key() {
        let shown = format!("{:?}", keys(0xab));
        assert!(!shown.contains("171") && !shown.contains("send_key"));
    }

    #[test]
    fn a_time_stamp_outlives_its_writer() -> Result {
        let fds = create(SegmentKind::Keys, Geometry::new(4, 8, 16)?)?;
        let segment = Segment::attach(fds.writable.as_fd(), SegmentKind::Keys, Access::ReadWrite)?;
        let timestamp = [0x40, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8];
        let mut writer = KeysWriter::attach(&segment)?;
        assert_eq!(writer.greatest_timestamp(PeerSlot(7)), [0; 12]);
        writer.set_greatest_timestamp(PeerSlot(7), timestamp);
        writer.set_greatest_timestamp(PeerSlot(8), timestamp);
        drop(writer);
        let writer = KeysWriter::attach(&segment)?;
        assert_eq!(writer.greatest_timestamp(PeerSlot(7)), timestamp);
        assert_eq!(writer.greatest_timestamp(PeerSlot(8)), [0; 12]);
        Ok(())
    }
}
