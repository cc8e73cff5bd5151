//! A list of CPUs as `taskset` writes it.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The greatest CPU number that is taken: the size of the kernel's largest CPU set.
const MAX_CPU: u16 = 8191;

/// CPUs in the order in which worker slots take them, such as `0-3,8` or `0-10:2`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuList(Vec<u16>);

impl CpuList {
    /// The CPUs, never none, no duplicates.
    pub fn cpus(&self) -> &[u16] {
        &self.0
    }

    /// The CPU of a worker slot: slots take the list in turn.
    pub fn of_slot(&self, slot: usize) -> Option<u16> {
        self.0.get(slot % self.0.len().max(1)).copied()
    }
}

/// A text is no list of CPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("give a list such as 0-3,8 or 0-10:2")]
pub struct CpuListError;

impl FromStr for CpuList {
    type Err = CpuListError;

    fn from_str(text: &str) -> Result<CpuList, CpuListError> {
        let mut cpus = Vec::new();
        for part in text.split(',') {
            let (range, stride) = match part.trim().split_once(':') {
                Some((range, stride)) => (
                    range,
                    number(stride)
                        .filter(|stride| *stride > 0)
                        .ok_or(CpuListError)?,
                ),
                None => (part.trim(), 1),
            };
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            let first = number(first).ok_or(CpuListError)?;
            let last = number(last).ok_or(CpuListError)?;
            if first > last {
                return Err(CpuListError);
            }
            for cpu in (first..=last).step_by(stride as usize) {
                if !cpus.contains(&cpu) {
                    cpus.push(cpu);
                }
            }
        }
        Ok(CpuList(cpus))
    }
}

fn number(text: &str) -> Option<u16> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|cpu| digits && *cpu <= MAX_CPU)
}

impl fmt::Display for CpuList {
    /// Runs of three and more print as a range.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.0.as_slice();
        let mut separator = "";
        while let Some(first) = rest.first() {
            let run = rest
                .iter()
                .zip(*first..)
                .take_while(|(cpu, expected)| *cpu == expected)
                .count();
            if run >= 3 {
                write!(f, "{separator}{first}-{}", rest[run - 1])?;
                rest = &rest[run..];
            } else {
                write!(f, "{separator}{first}")?;
                rest = &rest[1..];
            }
            separator = ",";
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn taskset_lists_read() {
        for (text, cpus) in [
            ("0", vec![0]),
            ("0-3,8", vec![0, 1, 2, 3, 8]),
            ("0-10:4", vec![0, 4, 8]),
            ("3,1,3", vec![3, 1]),
            ("1, 2", vec![1, 2]),
        ] {
            assert_eq!(text.parse::<CpuList>().unwrap().cpus(), cpus, "{text}");
        }
        for text in ["", ",", "1,", "3-1", "1-", "-1", "a", "0-4:0", "9999", "+1"] {
            assert!(text.parse::<CpuList>().is_err(), "{text}");
        }
    }

    #[test]
    fn slots_take_turns() {
        let list: CpuList = "2,5".parse().unwrap();
        assert_eq!(
            [0, 1, 2].map(|slot| list.of_slot(slot)),
            [Some(2), Some(5), Some(2)]
        );
    }

    proptest! {
        #[test]
        fn printed_lists_read_back(cpus in proptest::collection::vec(0u16..40, 1..20)) {
            let mut unique = Vec::new();
            for cpu in cpus {
                if !unique.contains(&cpu) {
                    unique.push(cpu);
                }
            }
            let list = CpuList(unique);
            prop_assert_eq!(list.to_string().parse::<CpuList>().unwrap(), list);
        }
    }
}
