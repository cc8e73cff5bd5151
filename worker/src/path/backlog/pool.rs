//! Room for frames whose length shows only when they are read.
//!
//! A frame is read into the rest of a chunk, which holds the longest, and takes as much of it as it
//! needs. A chunk is used again when all its frames went; the one in use from its start, where the
//! cache has it.

use crate::tun::{GREATEST_PACKET, VNET_HEADER};

/// The longest frame.
const FRAME: usize = VNET_HEADER + GREATEST_PACKET;
/// A chunk holds a few of the longest, so that the rest that is too short for one is a small part.
const CHUNK: usize = 4 * FRAME;

/// A frame in the pool. It is given back, or its room is lost: not `Clone`.
#[derive(Debug)]
pub(super) struct Frame {
    chunk: u32,
    start: u32,
    length: u32,
}

struct Chunk {
    /// Empty until it is first used.
    bytes: Box<[u8]>,
    used: usize,
    frames: u32,
}

/// The chunks.
pub(super) struct Pool {
    chunks: Vec<Chunk>,
    free: Vec<u32>,
    current: u32,
}

impl Pool {
    /// With at most this many bytes.
    pub(super) fn new(bytes: usize) -> Pool {
        let count = (bytes / CHUNK).max(2);
        let chunk = || Chunk {
            bytes: Box::default(),
            used: 0,
            frames: 0,
        };
        Pool {
            chunks: (0..count).map(|_| chunk()).collect(),
            free: (1..count as u32).rev().collect(),
            current: 0,
        }
    }

    /// Room for the longest frame. `None`: all of it is taken.
    pub(super) fn room(&mut self) -> Option<&mut [u8]> {
        if self.chunks[self.current as usize].used + FRAME > CHUNK {
            // The last of a full chunk's frames gives it back.
            self.current = self.free.pop()?;
        }
        let chunk = &mut self.chunks[self.current as usize];
        if chunk.bytes.is_empty() {
            chunk.bytes = vec![0; CHUNK].into_boxed_slice();
        }
        Some(&mut chunk.bytes[chunk.used..chunk.used + FRAME])
    }

    /// Keeps what was read into the room that was given last.
    pub(super) fn keep(&mut self, length: usize) -> Frame {
        let number = self.current;
        let chunk = &mut self.chunks[number as usize];
        let start = chunk.used;
        // Frames start where a line of the cache may.
        chunk.used = (start + length).next_multiple_of(64);
        chunk.frames += 1;
        Frame {
            chunk: number,
            start: start as u32,
            length: length as u32,
        }
    }

    pub(super) fn bytes(&self, frame: &Frame) -> &[u8] {
        let start = frame.start as usize;
        &self.chunks[frame.chunk as usize].bytes[start..start + frame.length as usize]
    }

    pub(super) fn bytes_mut(&mut self, frame: &Frame) -> &mut [u8] {
        let start = frame.start as usize;
        &mut self.chunks[frame.chunk as usize].bytes[start..start + frame.length as usize]
    }

    /// Takes a frame's room back.
    #[expect(clippy::needless_pass_by_value, reason = "the frame is no more")]
    pub(super) fn release(&mut self, frame: Frame) {
        let Frame { chunk: number, .. } = frame;
        let chunk = &mut self.chunks[number as usize];
        chunk.frames -= 1;
        if chunk.frames == 0 {
            chunk.used = 0;
            if number != self.current {
                self.free.push(number);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_lone_frame_always_lies_in_the_same_place() {
        let mut pool = Pool::new(0);
        for length in [1, 100, FRAME, 65_000] {
            assert_eq!(pool.room().unwrap().len(), FRAME);
            let frame = pool.keep(length);
            assert_eq!((frame.chunk, frame.start), (0, 0));
            pool.release(frame);
        }
    }

    #[test]
    fn a_full_pool_says_so_and_has_room_again() {
        let mut pool = Pool::new(3 * CHUNK);
        let mut frames = Vec::new();
        while pool.room().is_some() {
            frames.push(pool.keep(FRAME));
        }
        assert!(frames.len() >= 9);
        assert!(pool.room().is_none());
        // The first chunk's.
        for frame in frames.drain(..4) {
            pool.release(frame);
        }
        assert!(pool.room().is_some());
        for frame in frames.drain(..) {
            pool.release(frame);
        }
        assert_eq!(pool.free.len() + 1, pool.chunks.len());
    }

    proptest! {
        #[test]
        fn frames_keep_their_bytes(steps in prop::collection::vec((0..6_usize, 1..FRAME, any::<u8>()), 1..300)) {
            let mut pool = Pool::new(4 * CHUNK);
            let mut frames: Vec<(Frame, u8)> = Vec::new();
            for (step, length, byte) in steps {
                if step > 0 {
                    let Some(room) = pool.room() else {
                        frames.drain(..).for_each(|(frame, _)| pool.release(frame));
                        continue;
                    };
                    let length = if step > 3 { length } else { length % 2_000 + 1 };
                    room[..length].fill(byte);
                    frames.push((pool.keep(length), byte));
                } else if !frames.is_empty() {
                    let (frame, byte) = frames.swap_remove(length % frames.len());
                    prop_assert!(pool.bytes(&frame).iter().all(|at| *at == byte));
                    pool.release(frame);
                }
            }
            for (frame, byte) in frames {
                prop_assert!(pool.bytes(&frame).iter().all(|at| *at == byte));
                pool.release(frame);
            }
        }
    }
}
