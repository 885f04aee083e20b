//! The integration tests: one binary.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    clippy::disallowed_methods,
    reason = "tests stop at the first surprise, say what they skip, and read the environment of their run"
)]

mod cluster;
mod contract;
mod known_hosts;
mod layering;
mod snapshot;
mod ssh_bed;
mod ssh_config;
mod ssh_contract;
mod ssh_fake;
mod ssh_sshd;
mod support;
