//! The `vibesys` command: everything is in the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    vibesys::cli::main()
}
