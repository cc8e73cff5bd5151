//! Records out of a ring whose other end may be hostile.
//!
//! Input: two bytes that are the record's kind, then the record.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ringway_shm::messages::{Command, Event, MESSAGE_MAX, PacketHeader};

fuzz_target!(|input: &[u8]| {
    let Some((kind, record)) = input.split_first_chunk::<2>() else {
        return;
    };
    let kind = u16::from_le_bytes(*kind);
    if let Some(event) = Event::decode(kind, record) {
        let mut bytes = [0; MESSAGE_MAX];
        let length = event.encode(&mut bytes);
        assert_eq!(event.kind(), kind);
        assert_eq!(Event::decode(kind, &bytes[..length]), Some(event));
    }
    if let Some(command) = Command::decode(kind, record) {
        let mut bytes = [0; MESSAGE_MAX];
        let length = command.encode(&mut bytes);
        assert_eq!(command.kind(), kind);
        assert_eq!(Command::decode(kind, &bytes[..length]), Some(command));
    }
    if let Some((header, packet)) = PacketHeader::decode(record) {
        assert!(record.ends_with(packet));
        let again = [&header.encode()[..], packet].concat();
        assert_eq!(PacketHeader::decode(&again), Some((header, packet)));
    }
});
