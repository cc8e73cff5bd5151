//! What `ringway up --check` tells.

use std::fmt;

use super::Config;

/// What starting a configuration would do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Check {
    /// What would be done, in order.
    pub steps: Vec<String>,
    /// What wg-quick would do otherwise with the same file.
    pub differences: Vec<String>,
}

/// Says what `ringway up` would do for the interface `name`; does nothing.
pub fn check(_config: &Config, _name: &str) -> Check {
    Check::default()
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, step) in self.steps.iter().enumerate() {
            writeln!(f, "{:>3}. {step}", number + 1)?;
        }
        if !self.differences.is_empty() {
            writeln!(f, "\nDifferent from wg-quick:")?;
        }
        for difference in &self.differences {
            writeln!(f, "  - {difference}")?;
        }
        Ok(())
    }
}
