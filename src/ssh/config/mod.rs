//! `ssh_config` as OpenSSH resolves it (ssh_config(5)): the first value wins, and what is not honoured is said.

mod lexer;
mod matching;
mod options;
mod resolve;

use std::path::PathBuf;

pub(crate) use matching::list as matching_list;
pub use resolve::resolve;

/// The files.
#[derive(Debug, Clone)]
pub struct Sources {
    /// The user's file.
    pub user: PathBuf,
    /// Whether `user` was named (as by `ssh -F`): then it must exist, and the system's file is not read.
    pub named: bool,
    /// The system's file.
    pub system: Option<PathBuf>,
}

/// What the resolution needs to know of this machine and user.
#[derive(Debug, Clone)]
pub struct Environment {
    /// The home directory.
    pub home: PathBuf,
    /// The local user name.
    pub user: String,
    /// The local user id.
    pub uid: u32,
    /// The local host name.
    pub hostname: String,
    /// SSH_AUTH_SOCK.
    pub agent: Option<PathBuf>,
}

/// A configuration that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}{message}", place.as_ref().map_or_else(String::new, |place| format!("{place}: ")))]
pub struct ConfigError {
    /// File and line.
    pub place: Option<String>,
    /// What is wrong and what was expected.
    pub message: String,
}
