//! The seam between vibesys and a login node: start a command there, write to it, read from it, learn how it ended.
//!
//! The seam is narrow on purpose. Everything above it runs a few long-lived `bash` processes and talks to them by
//! frames on their standard streams, so a transport only has to move bytes and to be honest about endings:
//! "it certainly never ran" ([`ChannelNotOpened`]) and "nobody knows what became of it" ([`RemoteExit::Lost`],
//! [`OpenError::Lost`]) are different types, because only the first is safe to repeat.

mod channel;
mod error;
mod queue;
mod run;

use std::fmt;

use async_trait::async_trait;

pub use channel::{Channel, ChannelReader, ChannelWriter, Event, RemoteExit, WriteHalf};
pub use error::{ChannelNotOpened, OpenError, WriteError};
pub use queue::{EventQueue, Overrun, READ_BUDGET, READ_GRACE, event_queue};
pub use run::{Output, RunError, RunLimits, run};

/// A way to start commands on a host.
#[async_trait]
pub trait Transport: fmt::Debug + Send + Sync {
    /// Starts `command` on the host: fixed words, handed as they are to the login shell (or to `sh -c`).
    ///
    /// `Ok` means that the server accepted the request. Dropping the future abandons the command if it started.
    ///
    /// # Errors
    /// [`OpenError::NotOpened`]: the command certainly never ran. [`OpenError::Lost`]: the connection ended between the
    /// request and its answer, so the command may have run.
    async fn open(&self, command: &str) -> Result<Channel, OpenError>;

    /// Where commands run, for messages and for the record of a run.
    fn describe(&self) -> Peer;

    /// Whether the connection has ended; a transport that says `false` may still fail on the next call.
    fn is_closed(&self) -> bool;

    /// Waits until the connection ends and says why.
    async fn closed(&self) -> String;

    /// Ends the connection in an orderly way. Commands that are still running are abandoned.
    async fn close(&self);
}

/// Where commands run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    /// The user there; empty where it is simply ours.
    pub user: String,
    /// The name the host was asked for by.
    pub host: String,
    /// The hops before it, in order.
    pub via: Vec<String>,
    /// What was negotiated or is known about it, as name and value, outermost hop first.
    pub facts: Vec<(String, String)>,
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.user.is_empty() {
            write!(f, "{}@", self.user)?;
        }
        f.write_str(&self.host)?;
        if !self.via.is_empty() {
            write!(f, " via {}", self.via.join(", "))?;
        }
        Ok(())
    }
}
