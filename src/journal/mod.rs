//! The journal: one strict, versioned JSON record an invocation, written before every remote effect and after every end.
//!
//! A record is replaced as a whole and synced ([`crate::durable::write_atomic`]), so a crash leaves the record of before
//! or of after. A malformed record is an error, never "missing".

mod record;
mod store;

pub use record::{Attempt, Phase, Record, TransitionError};
pub use store::{Journal, JournalError};
