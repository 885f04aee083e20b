//! The command line: the only module that prints, reads the environment or picks a backend.

use std::process::ExitCode;

/// Runs the command that the process arguments name.
pub fn main() -> ExitCode {
    ExitCode::SUCCESS
}
