//! The integration tests: one binary.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests stop at the first surprise"
)]

mod snapshot;
mod ssh_bed;
mod ssh_contract;
mod ssh_fake;
mod ssh_sshd;
