//! Slurm's words: states, accounting and queue rows, submission answers, and what they say about an evaluation. Pure.

pub mod classify;
pub mod pending;
pub mod sacct;
pub mod squeue;
pub mod state;
pub mod submit;

pub use classify::{Decision, Evidence, Scheduler, StepResult, amend, classify};
pub use sacct::{AccountingRow, RowKind};
pub use squeue::QueueRow;
pub use state::SlurmState;
