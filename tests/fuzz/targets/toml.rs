//! Configuration files: an error is one line, and what is written is read as the same.
#![no_main]

use std::path::Path;

use libfuzzer_sys::fuzz_target;
use ringway_proto::config::{parse_toml, write_toml};

fuzz_target!(|text: &str| {
    let file = Path::new("fuzz.toml");
    match parse_toml(text, file) {
        Ok(loaded) => {
            let again = parse_toml(&write_toml(&loaded.config), file);
            assert!(again.is_ok_and(|again| again.config == loaded.config));
        }
        Err(error) => assert_eq!(error.to_string().lines().count(), 1),
    }
});
