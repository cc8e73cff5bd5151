//! What is wrong with a configuration, in one line.

use std::fmt;
use std::path::{Path, PathBuf};

/// Why a configuration is refused: `FILE:LINE: what: value: what to do`.
///
/// The value of a key is never part of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError(Notice);

/// Something that a person should know about a configuration that is taken all the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning(Notice);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Notice {
    file: PathBuf,
    line: Option<usize>,
    fault: Fault,
}

/// What is wrong, before it is known where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fault {
    what: String,
    value: Option<String>,
    remedy: String,
}

impl Fault {
    pub(super) fn new(what: impl Into<String>, remedy: impl Into<String>) -> Fault {
        Fault {
            what: one_line(&what.into()),
            value: None,
            remedy: one_line(&remedy.into()),
        }
    }

    /// Adds the value, on one line and not too much of it.
    pub(super) fn value(mut self, value: &str) -> Fault {
        self.value = Some(shortened(&one_line(value)));
        self
    }

    pub(super) fn at(self, file: &Path, line: usize) -> ConfigError {
        ConfigError(Notice {
            file: file.to_owned(),
            line: Some(line),
            fault: self,
        })
    }

    pub(super) fn of(self, file: &Path) -> ConfigError {
        ConfigError(Notice {
            file: file.to_owned(),
            line: None,
            fault: self,
        })
    }

    pub(super) fn warn(self, file: &Path, line: Option<usize>) -> Warning {
        Warning(Notice {
            file: file.to_owned(),
            line,
            fault: self,
        })
    }
}

impl ConfigError {
    /// The line, counted from 1, where one is to blame.
    pub fn line(&self) -> Option<usize> {
        self.0.line
    }

    /// The file as it was given.
    pub fn file(&self) -> &Path {
        &self.0.file
    }
}

impl std::error::Error for ConfigError {}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&one_line(&self.file.to_string_lossy()))?;
        if let Some(line) = self.line {
            write!(f, ":{line}")?;
        }
        write!(f, ": {}: ", self.fault.what)?;
        if let Some(value) = &self.fault.value {
            write!(f, "{value}: ")?;
        }
        f.write_str(&self.fault.remedy)
    }
}

fn one_line(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect()
}

fn shortened(text: &str) -> String {
    const MAX_CHARS: usize = 80;
    match text.char_indices().nth(MAX_CHARS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
