//! Why a command did not do its work, and the exit code that says so to a script.

use std::fmt;

/// A command's failure: one line for a person and an exit code for a script.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Failure {
    /// Exit code 1: it was tried and did not work.
    Failed(String),
    /// Exit code 2: the command line makes no sense.
    Usage(String),
    /// Exit code 3: there is no such gateway.
    NotRunning(String),
    /// Exit with this code; the reason was already told (by a child, or by the help).
    Told(u8),
}

/// What a command returns.
pub(crate) type Outcome<T = ()> = Result<T, Failure>;

impl Failure {
    /// The process's exit code.
    pub(crate) fn code(&self) -> u8 {
        match self {
            Failure::Failed(_) => 1,
            Failure::Usage(_) => 2,
            Failure::NotRunning(_) => 3,
            Failure::Told(code) => *code,
        }
    }

    /// A failure with exit code 1.
    pub(crate) fn failed(message: impl Into<String>) -> Failure {
        Failure::Failed(message.into())
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Failed(message) | Failure::Usage(message) | Failure::NotRunning(message) => {
                f.write_str(message)
            }
            Failure::Told(_) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_codes_are_the_documented_ones() {
        assert_eq!(Failure::failed("x").code(), 1);
        assert_eq!(Failure::Usage("x".into()).code(), 2);
        assert_eq!(Failure::NotRunning("x".into()).code(), 3);
    }
}
