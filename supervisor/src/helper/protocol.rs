//! What meta asks of the helper, and the framing of the stream between them.
//!
//! Frames are those of [`ringway_proto::codec`].

use ringway_proto::codec::{self, CodecError};
use ringway_proto::config::Config;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::path::PathBuf;
use zeroize::{Zeroize, Zeroizing};

/// The greatest frame in bytes: a configuration of the greatest size.
pub(crate) const FRAME_LIMIT: usize = 64 * 1024 * 1024;

/// Something to do.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct HelperJob {
    /// Repeated in the answer.
    pub(crate) id: u64,
    /// What.
    pub(crate) work: Work,
}

/// The kinds of work.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) enum Work {
    /// Look a host name up.
    Resolve {
        /// The name.
        host: String,
        /// The port to put beside each address.
        port: u16,
    },
    /// Read and check a configuration file.
    ReadConfig {
        /// The file.
        path: PathBuf,
    },
    /// Replace a configuration file atomically.
    WriteConfig {
        /// The file.
        path: PathBuf,
        /// Its whole new text.
        contents: String,
    },
    /// Run a command with `sh -c`.
    Script {
        /// The command.
        command: String,
        /// Added to a bare environment.
        environment: Vec<(String, String)>,
        /// The command and all its children are killed after this time.
        timeout_ms: u32,
    },
}

/// What came of a job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct HelperAnswer {
    /// The job's number.
    pub(crate) id: u64,
    /// The outcome, or one line that says why not.
    pub(crate) result: Result<Outcome, String>,
}

/// The outcomes, one a kind of work.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) enum Outcome {
    /// The addresses of a name, in the resolver's order; never empty.
    Addresses(Vec<SocketAddr>),
    /// A configuration.
    Config(Box<Config>),
    /// The file is written.
    Written,
    /// The script ended with success.
    ScriptDone,
}

/// One message as a frame.
pub(crate) fn frame<T: Serialize>(message: &T) -> Result<Zeroizing<Vec<u8>>, CodecError> {
    codec::frame(message, FRAME_LIMIT).map(Zeroizing::new)
}

/// Puts frames together from what a stream gives.
#[derive(Default)]
pub(crate) struct FrameReader {
    buffer: Zeroizing<Vec<u8>>,
}

impl FrameReader {
    /// Appends what was read.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// The next whole message.
    pub(crate) fn next<T: DeserializeOwned>(&mut self) -> Result<Option<T>, CodecError> {
        let Some((message, length)) = codec::unframe(&self.buffer, FRAME_LIMIT)? else {
            return Ok(None);
        };
        // A frame may have held a private key.
        self.buffer[..length].zeroize();
        self.buffer.drain(..length);
        Ok(Some(message))
    }
}

impl std::fmt::Debug for FrameReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FrameReader")
            .field("waiting", &self.buffer.len())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_survive_any_chunking() {
        let job = HelperJob {
            id: 7,
            work: Work::Resolve {
                host: "vpn.example".into(),
                port: 51820,
            },
        };
        let bytes = [frame(&job).unwrap().to_vec(), frame(&job).unwrap().to_vec()].concat();
        for chunk in [1, 3, 1000] {
            let mut reader = FrameReader::default();
            let mut seen = 0;
            for part in bytes.chunks(chunk) {
                reader.push(part);
                while let Some(got) = reader.next::<HelperJob>().unwrap() {
                    assert_eq!(got, job);
                    seen += 1;
                }
            }
            assert_eq!(seen, 2);
        }
    }

    #[test]
    fn an_impossible_length_is_refused() {
        let mut reader = FrameReader::default();
        reader.push(&u32::MAX.to_le_bytes());
        assert!(reader.next::<HelperJob>().is_err());
    }
}
