//! What only Ringway has: `ringway`, its files and its counters.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::binaries;
use crate::command::{self, Said};

/// `ringway ARGUMENTS`, whatever the outcome.
pub fn ringway(arguments: &[&str]) -> Said {
    let mut words = vec![binaries::ringway()];
    words.extend(arguments.iter().map(|&argument| argument.to_owned()));
    command::attempt_with_input(&words, &[], "")
}

/// `ringway VIEW NAME --json`.
///
/// # Panics
/// If it fails or prints no JSON.
pub fn json(view: &str, name: &str) -> Value {
    let said = ringway(&[view, name, "--json"]);
    assert!(said.ok(), "ringway {view} {name}: {}{}", said.out, said.err);
    serde_json::from_str(&said.out)
        .unwrap_or_else(|error| panic!("ringway {view} --json: {error}: {}", said.out))
}

/// The drops by reason, over all processes.
pub fn drops(name: &str) -> BTreeMap<String, u64> {
    let document = json("drops", name);
    let list = document["drops"].as_array().cloned().unwrap_or_default();
    let mut drops = BTreeMap::new();
    for drop in list {
        let reason = drop["reason"].as_str().unwrap_or_default().to_owned();
        *drops.entry(reason).or_default() += drop["count"].as_u64().unwrap_or(0);
    }
    drops
}

/// The count of one drop reason.
pub fn dropped(name: &str, reason: &str) -> u64 {
    drops(name).get(reason).copied().unwrap_or(0)
}

/// Where a gateway's runtime files are.
pub fn runtime_directory(name: &str) -> String {
    format!("/run/ringway/{name}")
}
