//! Configuration files: an error is one line, and what is written is read as the same.
#![no_main]

use std::path::Path;

use libfuzzer_sys::fuzz_target;
use ringway_proto::config::{parse_conf, write_conf};

fuzz_target!(|text: &str| {
    let file = Path::new("fuzz.conf");
    match parse_conf(text, file) {
        Ok(loaded) => {
            let Ok(written) = write_conf(&loaded.config) else {
                return;
            };
            let again = parse_conf(&written, file);
            assert!(again.is_ok_and(|again| again.config == loaded.config));
        }
        Err(error) => assert_eq!(error.to_string().lines().count(), 1),
    }
});
