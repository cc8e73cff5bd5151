//! Writing a configuration.

use zeroize::Zeroizing;

use super::Config;

/// Why a configuration cannot be written in a format.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}: {value}: {remedy}")]
pub struct WriteError {
    what: &'static str,
    value: String,
    remedy: &'static str,
}

/// The text of a wg-quick file.
pub fn write_conf(_config: &Config) -> Result<Zeroizing<String>, WriteError> {
    Ok(Zeroizing::new(String::new()))
}

/// The text of a TOML file.
pub fn write_toml(_config: &Config) -> Zeroizing<String> {
    Zeroizing::new(String::new())
}
