//! Failures on demand, for the tests that look what a failed start leaves behind.
//!
//! Only in a build with the feature `test-timers`, which nobody installs.

use crate::supervisor::SupervisorError;

/// Fails when `RINGWAY_TEST_FAIL` names this step of the start.
#[cfg(feature = "test-timers")]
pub(crate) fn at(step: &'static str) -> Result<(), SupervisorError> {
    if std::env::var_os("RINGWAY_TEST_FAIL").is_some_and(|wanted| wanted == step) {
        return Err(SupervisorError::Failed(format!("test: {step} fails")));
    }
    Ok(())
}

/// Nothing fails on demand.
#[cfg(not(feature = "test-timers"))]
#[allow(clippy::unnecessary_wraps)]
pub(crate) fn at(_: &'static str) -> Result<(), SupervisorError> {
    Ok(())
}
