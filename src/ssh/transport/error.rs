//! What can go wrong on an open connection.

use std::io;
use std::time::Duration;

/// Why a command was not started, or why nobody knows whether it was.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The command certainly never ran: the call is safe to repeat.
    #[error(transparent)]
    NotOpened(#[from] ChannelNotOpened),
    /// The connection ended after the request had been sent and before it was answered: the command may have run.
    #[error("the connection was lost while the command was being started, it may have run: {reason}")]
    Lost {
        /// How the connection ended.
        reason: String,
    },
}

impl OpenError {
    /// Whether the command certainly never ran.
    pub fn never_ran(&self) -> bool {
        matches!(self, Self::NotOpened(_))
    }
}

/// Why a command certainly never ran.
#[derive(Debug, thiserror::Error)]
pub enum ChannelNotOpened {
    /// The server refused a further session, several times over.
    #[error("the server refused a session {attempts} times, with {open} others open: {description}")]
    Refused {
        /// The server's own words, or the name of its reason.
        description: String,
        /// Sessions that were open on this connection at the last refusal.
        open: usize,
        /// How often it was asked.
        attempts: u32,
    },
    /// Every session this connection may have was in use for the whole wait.
    #[error("all {limit} sessions of the connection stayed in use for {}", seconds(*.waited))]
    NoSlot {
        /// How many sessions there may be.
        limit: usize,
        /// How long we waited.
        waited: Duration,
    },
    /// The session was opened but the server would not start a command in it.
    #[error("the server refused to start a command (a forced command, or `PermitTTY`/subsystem rules?)")]
    ExecRefused,
    /// The connection was over before the request could be sent.
    #[error("the connection has ended: {reason}")]
    Closed {
        /// How it ended.
        reason: String,
    },
    /// No answer to the request for a session.
    #[error("no answer to the request for a session in {}", seconds(*.0))]
    Timeout(Duration),
    /// The local shell could not be started.
    #[error("cannot start `sh`: {0}")]
    Spawn(#[from] io::Error),
}

/// The command takes no more input. How much of what was written before has been read, nobody knows.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WriteError {
    /// The command has ended, or its connection has.
    #[error("the command no longer takes input: it, or its connection, has ended")]
    Ended,
    /// Input was already closed by [`eof`](super::ChannelWriter::eof).
    #[error("the input of the command was already closed")]
    AfterEof,
}

fn seconds(duration: Duration) -> String {
    format!("{:.1} s", duration.as_secs_f64())
}
