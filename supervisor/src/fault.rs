//! Failures and stops on demand, for the tests that look what a start leaves behind that ended.
//!
//! Only in a build with the feature `test-timers`, which nobody installs.

use crate::supervisor::SupervisorError;

/// Fails when `RINGWAY_TEST_FAIL` names this step of the start, is asked to stop when
/// `RINGWAY_TEST_STOP` does.
#[cfg(feature = "test-timers")]
pub(crate) fn at(step: &'static str) -> Result<(), SupervisorError> {
    if std::env::var_os("RINGWAY_TEST_FAIL").is_some_and(|wanted| wanted == step) {
        return Err(SupervisorError::Failed(format!("test: {step} fails")));
    }
    if std::env::var_os("RINGWAY_TEST_STOP").is_some_and(|wanted| wanted == step) {
        nix::sys::signal::raise(nix::sys::signal::Signal::SIGTERM).map_err(|error| {
            SupervisorError::System {
                what: "raise",
                error: error.into(),
            }
        })?;
    }
    Ok(())
}

/// Nothing fails on demand.
#[cfg(not(feature = "test-timers"))]
#[allow(clippy::unnecessary_wraps)]
pub(crate) fn at(_: &'static str) -> Result<(), SupervisorError> {
    Ok(())
}
