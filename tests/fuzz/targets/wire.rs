//! Any datagram: what is read as a message is written as the same bytes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ringway_proto::wire::{Message, MessageType};

fuzz_target!(|datagram: &[u8]| {
    let Ok(message) = Message::parse(datagram) else {
        return;
    };
    let kind = match &message {
        Message::Initiation(message) => {
            assert_eq!(message.to_bytes(), datagram);
            MessageType::Initiation
        }
        Message::Response(message) => {
            assert_eq!(message.to_bytes(), datagram);
            MessageType::Response
        }
        Message::CookieReply(message) => {
            assert_eq!(message.to_bytes(), datagram);
            MessageType::CookieReply
        }
        Message::Data(data) => {
            assert_eq!(
                [&data.header().to_bytes()[..], data.body()].concat(),
                datagram
            );
            MessageType::Data
        }
    };
    assert_eq!(MessageType::of(datagram), Some(kind));
});
