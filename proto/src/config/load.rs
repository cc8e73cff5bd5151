//! Reading a configuration file.

use std::path::Path;

use super::error::Fault;
use super::{Config, ConfigError, Warning, parse_conf, parse_toml};

/// The longest file that is read.
pub const MAX_FILE_BYTES: u64 = 64 << 20;

/// A configuration and what a person should know about its file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loaded {
    /// The configuration.
    pub config: Config,
    /// One line each.
    pub warnings: Vec<Warning>,
}

/// Reads `NAME.conf` or `NAME.toml`.
pub fn load(path: &Path) -> Result<Config, ConfigError> {
    load_with_warnings(path).map(|loaded| loaded.config)
}

/// Reads a file and tells what is doubtful about it too.
pub fn load_with_warnings(path: &Path) -> Result<Loaded, ConfigError> {
    let text = std::fs::read_to_string(path).map_err(|error| Fault::new("cannot be read", error.to_string()).of(path))?;
    parse(&text, path)
}

/// Reads text in the format that the name of `file` says.
pub fn parse(text: &str, file: &Path) -> Result<Loaded, ConfigError> {
    match file.extension().and_then(|extension| extension.to_str()) {
        Some("toml") => parse_toml(text, file),
        _ => parse_conf(text, file),
    }
}

/// The name of the interface that a configuration file is for: the file's own without `.conf` or `.toml`.
pub fn interface_name(path: &Path) -> Result<String, ConfigError> {
    let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    if valid_interface_name(&name) {
        return Ok(name);
    }
    Err(Fault::new("bad interface name", "name the file with 1 to 15 letters, digits and _ = + . -, then .conf or .toml").value(&name).of(path))
}

/// Whether wg-quick and the kernel take this as an interface's name.
pub fn valid_interface_name(name: &str) -> bool {
    (1..=15).contains(&name.len())
        && name != "."
        && name != ".."
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_=+.-".contains(&byte))
}
