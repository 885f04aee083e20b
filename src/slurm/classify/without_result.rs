//! There is no result: only Slurm can say what became of the attempt.

use super::rows::{batch_died, explain, guess, launcher_died};
use super::{Decision, lost};
use crate::job::{Cause, Outcome};
use crate::slurm::evidence::Evidence;
use crate::slurm::state::{Phase, SlurmState};
use crate::slurm::witness::launch_words;

pub(super) fn decide(evidence: &Evidence) -> Decision {
    if evidence.cancel_requested {
        return ours(undisturbed(evidence));
    }
    undisturbed(evidence)
}

fn undisturbed(evidence: &Evidence) -> Decision {
    if let Some(decision) = explain(evidence) {
        return decision;
    }
    let over = evidence
        .allocation
        .as_ref()
        .is_some_and(|row| row.state.is_terminal());
    if over {
        // The batch script is gone, and nobody will write a result any more.
        return allocation_over(evidence);
    }
    if evidence.is_settled() {
        // Words can explain an end. They cannot prove one: the attempt may still be running.
        let ended = evidence.ended_step().is_some();
        return ended
            .then(|| guess(evidence))
            .flatten()
            .unwrap_or_else(|| lost(evidence, "no result, and no final word from accounting"));
    }
    match evidence.queue.as_ref().map(|row| row.state.phase()) {
        Some(Phase::Waiting | Phase::Active | Phase::Stuck) => Decision::StillRunning,
        // Its real state is hidden, or in accounting.
        Some(Phase::Between | Phase::Ended) => Decision::NeedAccounting,
        None => {
            let step_runs = evidence.step.as_ref().is_some_and(|row| row.state.is_active());
            let allocation_runs = evidence
                .allocation
                .as_ref()
                .is_some_and(|row| row.state.is_active());
            if step_runs && allocation_runs {
                Decision::StillRunning
            } else {
                Decision::NeedAccounting
            }
        }
    }
}

/// An end that we asked for is ours, unless the command was already over in its own way.
fn ours(decision: Decision) -> Decision {
    match decision {
        Decision::Final(verdict) => match verdict.outcome {
            // That the attempt is over has to be seen first.
            Outcome::TransportLost | Outcome::Completed | Outcome::ApplicationFailed | Outcome::Cancelled => {
                Decision::Final(verdict)
            }
            Outcome::AllocationExpired | Outcome::NodeFailed | Outcome::Preempted => {
                Decision::of(Outcome::Cancelled, Cause::CancelledByUs)
            }
        },
        Decision::NeedAccounting => Decision::NeedAccounting,
        Decision::StillRunning => Decision::StillRunning,
    }
}

fn allocation_over(evidence: &Evidence) -> Decision {
    match evidence.step.as_ref().map(|row| (&row.state, row.exit)) {
        Some((SlurmState::Failed, exit)) => {
            if evidence.has_started() {
                let code = exit.and_then(|exit| exit.shell_code(true));
                return code.map_or_else(
                    || {
                        lost(
                            evidence,
                            "the step failed and left neither a result nor an exit code",
                        )
                    },
                    |code| Decision::of(Outcome::ApplicationFailed, Cause::Exit { code }),
                );
            }
            // A container that did not start and a command that exited 1 look the same from here.
            let words = launch_words(&[&evidence.launch_said, &evidence.stderr_tail]);
            match words.filter(|line| is_launch_failure(line)) {
                Some(line) => Decision::of(
                    Outcome::NodeFailed,
                    Cause::LaunchFailed {
                        message: line.to_owned(),
                    },
                ),
                None => lost(evidence, "the step failed and left no result"),
            }
        }
        Some((SlurmState::Completed, _)) => lost(evidence, "the step completed, but its result is not there"),
        Some(_) if !batch_died(evidence) => lost(
            evidence,
            "the step was ended, and neither a result nor Slurm says why",
        ),
        Some(_) | None => launcher_died(evidence),
    }
}

fn is_launch_failure(line: &str) -> bool {
    [
        "pyxis",
        "enroot",
        "edf",
        "spank",
        "Unable to create step",
        "execve",
    ]
    .iter()
    .any(|word| line.contains(word))
}
