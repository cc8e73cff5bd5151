//! The TOML format.
use std::path::Path;

use super::{Config, ConfigError, Loaded};

/// Reads the text of a TOML file.
pub fn parse_toml(_text: &str, _file: &Path) -> Result<Loaded, ConfigError> {
    Ok(Loaded { config: Config::default(), warnings: Vec::new() })
}
