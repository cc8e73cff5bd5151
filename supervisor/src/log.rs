//! Messages, on standard error. Nothing is logged per packet, and never a key.

use crate::cli::LogFormat;
use std::io::IsTerminal;
use tracing::level_filters::LevelFilter;

/// Lets messages of this level and above through; colours only where they will reach a terminal
/// for good, which the standard error of a future daemon does not.
pub(crate) fn start(level: LevelFilter, format: LogFormat, detaches: bool) {
    let builder = tracing_subscriber::fmt()
        .with_max_level(level)
        .with_target(false)
        .with_writer(std::io::stderr)
        .with_ansi(!detaches && std::io::stderr().is_terminal());
    match format {
        LogFormat::Human => builder.init(),
        LogFormat::Json => builder.json().init(),
    }
}
