//! What a job is: the request for one evaluation and how it ended. Pure vocabulary, no I/O.

pub mod duration;
pub mod outcome;

pub use outcome::{Cause, Outcome, Verdict};
