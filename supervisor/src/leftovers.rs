//! What outlives a supervisor that was killed: policy rules and the record of name servers. A note
//! of them lies beside the gateway's other files, and the next start under the name takes them back.

use std::fs;
use std::io;
use std::path::Path;

/// The note's name.
pub(crate) const FILE: &str = "leftovers";

/// What is to be taken back.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Leftovers {
    /// The default routes that have rules: whether of IPv4, and the mark.
    pub(crate) diversions: Vec<(bool, u32)>,
    /// Whether name servers are set.
    pub(crate) dns: bool,
}

impl Leftovers {
    /// Notes them in the gateway's directory.
    pub(crate) fn write(&self, directory: &Path) -> io::Result<()> {
        let path = directory.join(FILE);
        if *self == Leftovers::default() {
            return match fs::remove_file(path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
                _ => Ok(()),
            };
        }
        let mut text = String::new();
        for (ipv4, mark) in &self.diversions {
            let family = if *ipv4 { "ipv4" } else { "ipv6" };
            text.extend([family, " ", &mark.to_string(), "\n"]);
        }
        if self.dns {
            text.push_str("dns\n");
        }
        fs::write(path, text)
    }

    /// What a predecessor noted and did not take back.
    pub(crate) fn read(directory: &Path) -> Leftovers {
        let text = fs::read_to_string(directory.join(FILE)).unwrap_or_default();
        let mut found = Leftovers::default();
        for line in text.lines() {
            match line.split_once(' ') {
                Some((family @ ("ipv4" | "ipv6"), mark)) => {
                    let mark = mark.parse();
                    found
                        .diversions
                        .extend(mark.map(|mark| (family == "ipv4", mark)));
                }
                _ => found.dns |= line == "dns",
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_noted_is_read() {
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(Leftovers::read(directory.path()), Leftovers::default());
        let all = Leftovers {
            diversions: vec![(true, 51820), (false, u32::MAX)],
            dns: true,
        };
        all.write(directory.path()).unwrap();
        assert_eq!(Leftovers::read(directory.path()), all);
        Leftovers::default().write(directory.path()).unwrap();
        assert!(!directory.path().join(FILE).exists());
    }
}
