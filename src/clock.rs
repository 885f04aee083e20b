//! Wall-clock time behind a seam, so that expiry and lease margins can be tested without waiting.

use std::fmt;

use jiff::Timestamp;

/// A source of wall-clock time.
pub trait Clock: fmt::Debug + Send + Sync {
    /// The time now.
    fn now(&self) -> Timestamp;
}

/// The machine's own clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }
}
