//! From evidence to a verdict: pure and total.
//!
//! The step's own result decides what the command did; Slurm's rows decide what became of its allocation. When the
//! wrapper, which saw the command end, and srun agree, the verdict is there at once. Everything else waits for
//! accounting, for a bounded time. The absence of a row is never evidence, an unknown state is never a success, and a
//! success needs a result.

mod rows;
mod with_result;
mod without_result;

#[cfg(test)]
mod captured;
#[cfg(test)]
mod properties;
#[cfg(test)]
mod traps;

use std::fmt::Write;

use super::evidence::Evidence;
use super::state::SlurmState;
use crate::job::{Cause, Outcome, Verdict};

/// Whether the evidence is enough.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// It is.
    Final(Verdict),
    /// Ask accounting, or wait for it.
    NeedAccounting,
    /// The allocation waits or runs, and nothing says that the attempt ended.
    StillRunning,
}

impl Decision {
    fn of(outcome: Outcome, cause: Cause) -> Self {
        Self::Final(Verdict { outcome, cause })
    }
}

/// Decides what the evidence says. Settled evidence always gets a final verdict.
pub fn classify(evidence: &Evidence) -> Decision {
    match &evidence.result {
        Some(result) => with_result::decide(evidence, result),
        None => without_result::decide(evidence),
    }
}

/// What rows that came late change about a verdict, if they contradict it.
///
/// They do when a process of the step was killed for lack of memory though the command exited in order, and when a
/// verdict had been given without knowing the cause.
pub fn amend(verdict: &Verdict, evidence: &Evidence) -> Option<Verdict> {
    let amended = match &verdict.cause {
        Cause::Exit { .. } | Cause::Signal { .. } | Cause::CommandNotFound { .. } => {
            let code = evidence
                .result
                .as_ref()
                .map_or_else(|| verdict.command_code(), |result| result.exit);
            if !rows::out_of_memory(evidence) {
                return None;
            }
            Verdict {
                outcome: Outcome::ApplicationFailed,
                cause: Cause::OutOfMemory { code },
            }
        }
        Cause::NoObservation { .. } | Cause::CancelledBy { uid: None } => match classify(evidence) {
            Decision::Final(verdict) => verdict,
            Decision::NeedAccounting | Decision::StillRunning => return None,
        },
        Cause::OutOfMemory { .. }
        | Cause::TimedOut
        | Cause::TimeLimit
        | Cause::LaunchFailed { .. }
        | Cause::NodeFailure { .. }
        | Cause::Preemption
        | Cause::CancelledByUs
        | Cause::CancelledBy { uid: Some(_) } => return None,
    };
    let unknown = matches!(amended.cause, Cause::NoObservation { .. });
    (amended != *verdict && !unknown).then_some(amended)
}

/// Nothing is known of the end, and why.
fn lost(evidence: &Evidence, what: &str) -> Decision {
    let mut message = what.to_owned();
    for (source, error) in [
        ("sacct", &evidence.accounting_error),
        ("squeue", &evidence.queue_error),
    ] {
        if let Some(error) = error {
            let _infallible = write!(message, " ({source}: {error})");
        }
    }
    for (what, row) in [("step", &evidence.step), ("allocation", &evidence.allocation)] {
        if let Some(row) = row
            && let SlurmState::Unknown(word) = &row.state
        {
            let _infallible = write!(message, " (the {what}'s state `{word}` is not known)");
        }
    }
    Decision::of(Outcome::TransportLost, Cause::NoObservation { message })
}
