//! Where the programs under test and the peers are.

use std::path::{Path, PathBuf};

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .unwrap()
        .to_path_buf()
}

fn from_environment(variable: &str) -> Option<PathBuf> {
    std::env::var_os(variable)
        .filter(|value| !value.is_empty())
        .map(PathBuf::from)
}

fn built(name: &str) -> PathBuf {
    // A test runs from TARGET/PROFILE/deps.
    let here = std::env::current_exe().unwrap();
    let profile = here.parent().and_then(Path::parent).unwrap();
    profile.join(name)
}

fn existing(path: &Path, what: &str) -> String {
    assert!(path.exists(), "{} is missing: {what}", path.display());
    path.to_str().unwrap().to_owned()
}

/// The daemon: `$RINGWAYD`, else the one built beside the tests.
pub fn ringwayd() -> String {
    let path = from_environment("RINGWAYD").unwrap_or_else(|| built("ringwayd"));
    existing(
        &path,
        "run `make test`, or `cargo build -p ringway-supervisor --features test-timers`",
    )
}

/// The tool: `$RINGWAY`, else the one built beside the tests.
pub fn ringway() -> String {
    let path = from_environment("RINGWAY").unwrap_or_else(|| built("ringway"));
    existing(&path, "run `make test`, or `cargo build -p ringway-tools`")
}

/// `boringtun-cli` of crates.io: `$BORINGTUN`, else where `make test` installs it.
pub fn boringtun() -> String {
    let path = from_environment("BORINGTUN")
        .unwrap_or_else(|| workspace().join("target/peers/bin/boringtun-cli"));
    existing(&path, "run `make peers`")
}

/// Debian's `wireguard-go`.
pub fn wireguard_go() -> String {
    existing(
        Path::new("/usr/bin/wireguard-go"),
        "apt-get install wireguard-go",
    )
}
