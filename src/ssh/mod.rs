//! The way in: how a host is reached, who we are there, whom we trust, and one connection that carries everything.

pub mod client;
pub mod config;
pub mod error;
pub mod host_key;
pub mod known_hosts;
pub mod local;
pub mod route;
pub mod signer;
pub mod socket;
pub mod transport;

/// russh-keys was merged into russh in 0.50, and the crate of that name carries RUSTSEC-2026-0153;
/// its name stays in use here (docs/architecture.md, decisions).
pub use russh::keys as russh_keys;
