//! `ExitCode` and `DerivedExitCode` of accounting (sacct(1)).

use std::fmt;

use serde::{Deserialize, Serialize};

/// The signal number that sacct prints for a process killed for lack of memory (`0:125`, raw code 253).
pub const OUT_OF_MEMORY_SIGNAL: u16 = 125;

/// `CODE:SIGNAL` as sacct(1) prints it: a witness of a command's end, never the source of its exit code.
///
/// sacct subtracts 128 from every code of 128 and above in ExitCode: 137 is printed `9:0`, and 128 as `0:0`, which
/// looks like a success. DerivedExitCode is not cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExitStatus {
    /// The code.
    pub code: u16,
    /// The signal; [`OUT_OF_MEMORY_SIGNAL`] stands for lack of memory.
    pub signal: u16,
}

impl ExitStatus {
    /// Reads `CODE:SIGNAL`; the field is empty for a batch step whose node died.
    pub fn parse(text: &str) -> Option<Self> {
        let (code, signal) = text.trim().split_once(':')?;
        Some(Self {
            code: code.parse().ok()?,
            signal: signal.parse().ok()?,
        })
    }

    /// `0:0`. Of ExitCode this may also be a code of 128: look at the state, too.
    pub fn is_zero(self) -> bool {
        self.code == 0 && self.signal == 0
    }

    /// `0:125`: killed for lack of memory.
    pub fn is_out_of_memory(self) -> bool {
        self.signal == OUT_OF_MEMORY_SIGNAL
    }

    /// The signal that ended the process, if a real one did.
    pub fn killed_by(self) -> Option<u8> {
        let signal = u8::try_from(self.signal).ok()?;
        (1..=64).contains(&signal).then_some(signal)
    }

    /// What a shell would have said, as far as `ExitCode` can tell. `failed` is whether the state was FAILED:
    /// then `0:0` was 128. Codes from 129 up are not told apart from those that are 128 less.
    pub fn shell_code(self, failed: bool) -> Option<u8> {
        if self.is_out_of_memory() {
            return None;
        }
        if let Some(signal) = self.killed_by() {
            return Some(128_u8.saturating_add(signal));
        }
        match u8::try_from(self.code).ok()? {
            0 if failed => Some(128),
            code => Some(code),
        }
    }
}

impl fmt::Display for ExitStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{}:{}", self.code, self.signal))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(text: &str) -> ExitStatus {
        ExitStatus::parse(text).unwrap()
    }

    #[test]
    fn codes_and_signals_are_told_apart() {
        assert_eq!(status("3:0").shell_code(true), Some(3));
        assert_eq!(status("0:15").killed_by(), Some(15));
        assert_eq!(status("0:11").shell_code(false), Some(139));
        assert!(status("0:125").is_out_of_memory());
        assert_eq!(status("0:125").killed_by(), None);
        assert_eq!(status("0:125").to_string(), "0:125");
    }

    #[test]
    fn zero_after_a_failure_was_128() {
        assert!(status("0:0").is_zero());
        assert_eq!(status("0:0").shell_code(true), Some(128));
        assert_eq!(status("0:0").shell_code(false), Some(0));
    }

    #[test]
    fn an_empty_field_is_no_status() {
        for text in ["", ":", "0", "0:", "a:b", "-1:0", "0:0:0"] {
            assert_eq!(ExitStatus::parse(text), None, "{text}");
        }
    }
}
