//! Slurm's words: what its tools print, how they are called, and what all of it says about an evaluation. Pure: no I/O,
//! no clock, no randomness. What is read here came from a machine that lags, cuts, lies and goes away, so every field
//! is optional, unknown words are kept as they came, and the absence of an answer is an answer of its own.

pub mod classify;
pub mod cluster;
pub mod command;
pub mod evidence;
pub mod exit;
pub mod failure;
pub mod id;
pub mod pending;
pub mod sacct;
pub mod squeue;
pub mod state;
pub mod submit;
pub mod time;
pub mod witness;

pub use classify::{Decision, amend, classify};
pub use evidence::{Evidence, Scheduler, StepResult};
pub use exit::ExitStatus;
pub use id::{JobPart, JobRef, RowKind};
pub use sacct::{AccountingRow, BadRow};
pub use squeue::{QueueAnswer, QueueRow};
pub use state::{Phase, SlurmState};
pub use submit::{RefusalKind, SubmitAnswer, SubmitRefusal, Submitted};
pub use time::{TimeLimit, Walltime};
