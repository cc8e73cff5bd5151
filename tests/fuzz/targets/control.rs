//! Messages between processes, in and out of their frames.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ringway_proto::codec::{FRAME_HEADER, decode, encode, unframe};
use ringway_proto::config::Config;
use ringway_proto::control::{Request, Response};
use serde::Serialize;
use serde::de::DeserializeOwned;

const LIMIT: usize = 1 << 16;

fuzz_target!(|bytes: &[u8]| {
    same_again::<Request>(bytes);
    same_again::<Response>(bytes);
    same_again::<Config>(bytes);
    if let Ok(Some((_, used))) = unframe::<Request>(bytes, LIMIT) {
        assert!(FRAME_HEADER <= used && used <= bytes.len());
    }
});

fn same_again<T: Serialize + DeserializeOwned>(bytes: &[u8]) {
    let Ok(value) = decode::<T>(bytes, LIMIT) else {
        return;
    };
    let Ok(once) = encode(&value) else { return };
    // Compared as bytes, since not every message can be compared itself.
    let twice = decode::<T>(&once, LIMIT)
        .ok()
        .and_then(|value| encode(&value).ok());
    assert_eq!(Some(once), twice);
}
