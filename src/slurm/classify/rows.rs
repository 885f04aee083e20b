//! What Slurm's rows say of the end of a step.

use jiff::Timestamp;

use super::Decision;
use crate::job::{Cause, Outcome};
use crate::slurm::evidence::Evidence;
use crate::slurm::sacct::AccountingRow;
use crate::slurm::state::SlurmState;
use crate::slurm::witness::{EndWords, end_words, says_out_of_memory};

/// How long before the end of its allocation a step may have ended and still have been ended by it, in seconds. Slurm
/// notes the end of an allocation when it begins to kill the steps, so those end later.
const SLACK: i64 = 2;

/// The same by the node's clock, which need not be the controller's.
const SLACK_OF_NODE: i64 = 30;

/// The same for a step that was told to end (sbatch(1) --signal: the batch script hears of it a minute or two early).
const SLACK_WHEN_TOLD: i64 = 180;

/// How long before its time limit an allocation may be told to end, in seconds (sbatch(1) --signal: up to 60 early).
const LIMIT_SLACK: i64 = 90;

/// Whether the step's row says that memory ran out. The allocation's row does not count: it is about the batch script.
///
/// A command that exits with 253 by itself gets the same row (srun(1)), so there Slurm has to say it in words as well.
pub(super) fn out_of_memory(evidence: &Evidence) -> bool {
    let row = evidence
        .step
        .as_ref()
        .is_some_and(|row| row.state == SlurmState::OutOfMemory);
    let own_253 = evidence
        .result
        .as_ref()
        .is_some_and(|result| result.exit == Some(253) && !result.signalled);
    row && (!own_253 || oom_words(evidence))
}

/// Slurm's own words for it, in what srun or slurmstepd said.
pub(super) fn oom_words(evidence: &Evidence) -> bool {
    says_out_of_memory(&evidence.launch_said) || says_out_of_memory(&evidence.stderr_tail)
}

/// What the rows, and what the controller itself says, explain of the end of the step.
pub(super) fn explain(evidence: &Evidence) -> Option<Decision> {
    if out_of_memory(evidence) {
        let code = evidence.result.as_ref().and_then(|result| result.exit);
        return Some(Decision::of(
            Outcome::ApplicationFailed,
            Cause::OutOfMemory { code },
        ));
    }
    allocation(evidence).or_else(|| step(evidence))
}

/// What the end of the allocation says, if it ended in a way that explains the end of a step.
fn allocation(evidence: &Evidence) -> Option<Decision> {
    let row = evidence.ended_allocation();
    // Without `-D` accounting shows only the life after the requeue, whose state says nothing of this one.
    if evidence.requeued && row.is_none_or(|row| row.start.is_none()) {
        return Some(requeued(evidence));
    }
    if let Some(row) = row {
        return if ended_long_before(evidence, row.end, &row.state) {
            None
        } else {
            ending(evidence, &row.state)
        };
    }
    // The grace time of a preemption: the steps were told to end, and the state is still RUNNING.
    if evidence.preempted_at.is_some() && evidence.was_told_to_end() {
        return Some(Decision::of(Outcome::Preempted, Cause::Preemption));
    }
    let queue = evidence.queue.as_ref()?;
    // The queue does not name who cancelled; accounting does.
    let unnamed = matches!(queue.state, SlurmState::Cancelled { .. }) && !evidence.is_settled();
    if unnamed || ended_long_before(evidence, queue.end, &queue.state) {
        return None;
    }
    ending(evidence, &queue.state)
}

/// The step was over before its allocation was, so that does not explain it.
fn ended_long_before(evidence: &Evidence, end: Option<Timestamp>, state: &SlurmState) -> bool {
    let told = evidence.was_told_to_end();
    if told && *state == SlurmState::Preempted {
        // The grace time of a preemption can be as long as a site likes.
        return false;
    }
    let Some(end) = end.map(Timestamp::as_second) else {
        return false;
    };
    let before = |time: i64, slack: i64| time + if told { SLACK_WHEN_TOLD } else { slack } < end;
    match (evidence.step_end(), evidence.command_end()) {
        (Some(step), _) => before(step, SLACK),
        (None, Some(command)) => before(command, SLACK_OF_NODE),
        (None, None) => false,
    }
}

/// The job went back into the queue: preempted, unless Slurm said that it was for a node.
fn requeued(evidence: &Evidence) -> Decision {
    match end_words(&evidence.stderr_tail).or_else(|| end_words(&evidence.launch_said)) {
        Some(EndWords::NodeFailure(_)) => node_failed(evidence),
        Some(
            EndWords::TimeLimit
            | EndWords::Preemption
            | EndWords::Requeue
            | EndWords::OutOfMemory
            | EndWords::Cancelled,
        )
        | None => Decision::of(Outcome::Preempted, Cause::Preemption),
    }
}

/// A state of the allocation that ends its steps.
fn ending(evidence: &Evidence, state: &SlurmState) -> Option<Decision> {
    match state {
        SlurmState::Timeout | SlurmState::Deadline => {
            Some(Decision::of(Outcome::AllocationExpired, Cause::TimeLimit))
        }
        SlurmState::Preempted
        | SlurmState::Revoked
        | SlurmState::Requeued
        | SlurmState::RequeueHold
        | SlurmState::SpecialExit
        | SlurmState::RequeueFed
        | SlurmState::Expediting => Some(Decision::of(Outcome::Preempted, Cause::Preemption)),
        SlurmState::NodeFail | SlurmState::BootFail | SlurmState::LaunchFailed | SlurmState::ReconfigFail => {
            Some(node_failed(evidence))
        }
        SlurmState::Cancelled { by } => Some(cancelled(evidence, *by)),
        // The batch script ended; how a step ended is not said by that.
        SlurmState::Completed
        | SlurmState::Failed
        | SlurmState::OutOfMemory
        // No ends at all.
        | SlurmState::Pending
        | SlurmState::Running
        | SlurmState::Suspended
        | SlurmState::Resizing
        | SlurmState::Configuring
        | SlurmState::Completing
        | SlurmState::Stopped
        | SlurmState::PowerUpNode
        | SlurmState::ResvDelHold
        | SlurmState::Signaling
        | SlurmState::StageOut
        | SlurmState::UpdateDb
        | SlurmState::Unknown(_) => None,
    }
}

/// What the step's own row says, where the allocation's does not explain it.
fn step(evidence: &Evidence) -> Option<Decision> {
    let row = evidence.step.as_ref()?;
    match &row.state {
        // Accounting closes a step like this when its allocation lost a node and went on.
        SlurmState::NodeFail | SlurmState::Resizing => Some(node_failed(evidence)),
        SlurmState::Preempted => Some(Decision::of(Outcome::Preempted, Cause::Preemption)),
        SlurmState::Timeout | SlurmState::Deadline => step_timeout(evidence),
        SlurmState::Cancelled { by: Some(uid) } => Some(step_cancelled(evidence, *uid)),
        SlurmState::Cancelled { by: None } => step_signalled(evidence, row),
        SlurmState::OutOfMemory
        | SlurmState::Failed
        | SlurmState::Completed
        | SlurmState::Pending
        | SlurmState::Running
        | SlurmState::Suspended
        | SlurmState::BootFail
        | SlurmState::LaunchFailed
        | SlurmState::Requeued
        | SlurmState::RequeueHold
        | SlurmState::SpecialExit
        | SlurmState::Configuring
        | SlurmState::Completing
        | SlurmState::Stopped
        | SlurmState::ReconfigFail
        | SlurmState::PowerUpNode
        | SlurmState::Revoked
        | SlurmState::RequeueFed
        | SlurmState::ResvDelHold
        | SlurmState::Signaling
        | SlurmState::StageOut
        | SlurmState::UpdateDb
        | SlurmState::Expediting
        | SlurmState::Unknown(_) => None,
    }
}

/// TIMEOUT of a step is the allocation's while that ends, and the step's own (`srun --time`) where that goes on.
fn step_timeout(evidence: &Evidence) -> Option<Decision> {
    let expired = Decision::of(Outcome::AllocationExpired, Cause::TimeLimit);
    let own = Decision::of(Outcome::ApplicationFailed, Cause::TimedOut);
    if evidence.ended_allocation().is_some() {
        // It did not explain the end of the step, so it went on after it.
        return Some(own);
    }
    if let (Some(end), Some(limit)) = (evidence.step_end(), evidence.allocation_end) {
        let early = end + LIMIT_SLACK < limit.as_second();
        return Some(if early { own } else { expired });
    }
    let goes_on = evidence
        .allocation
        .as_ref()
        .is_some_and(|row| row.state.is_active());
    match (goes_on, evidence.is_settled()) {
        (true, true) => Some(own),
        (true, false) => None,
        (false, _) => Some(expired),
    }
}

/// Somebody cancelled the step, or its srun died: then Slurm ends the step in our own name.
fn step_cancelled(evidence: &Evidence, uid: u32) -> Decision {
    let supervisor_died = evidence.result.as_ref().map_or_else(
        || batch_died(evidence),
        |result| result.launch_error.as_deref() == Some("launcher"),
    );
    if supervisor_died && evidence.own_uid == Some(uid) && !evidence.cancel_requested {
        return launcher_died(evidence);
    }
    cancelled(evidence, Some(uid))
}

/// Slurm also calls a step CANCELLED that was killed by a signal, its own SIGSEGV included; nobody is named then.
fn step_signalled(evidence: &Evidence, row: &AccountingRow) -> Option<Decision> {
    let signal = row.exit.and_then(crate::slurm::ExitStatus::killed_by)?;
    // 15 and 9 are what the end of an allocation leaves behind, and its row may still be on its way.
    let slurms = [9, 15].contains(&signal);
    let known = evidence.is_settled() || evidence.ended_allocation().is_some();
    if !evidence.has_started() || (slurms && !known) || batch_died(evidence) {
        return None;
    }
    if slurms && (end_words(&evidence.stderr_tail).is_some() || end_words(&evidence.launch_said).is_some()) {
        return None;
    }
    Some(Decision::of(Outcome::ApplicationFailed, Cause::Signal { signal }))
}

/// The batch script, which the launcher runs in, ended in disorder: every step of it ended with it.
pub(super) fn batch_died(evidence: &Evidence) -> bool {
    let died = |row: &AccountingRow| row.state.is_terminal() && row.state != SlurmState::Completed;
    evidence.batch.as_ref().is_some_and(died)
        || evidence
            .allocation
            .as_ref()
            .is_some_and(|row| row.state == SlurmState::Failed || row.state == SlurmState::OutOfMemory)
}

/// The launcher ended and left no record of the command.
pub(super) fn launcher_died(evidence: &Evidence) -> Decision {
    let cause = if evidence.has_started() {
        let node = evidence.batch.as_ref().and_then(|row| row.nodes.clone());
        Cause::NodeFailure { node }
    } else {
        Cause::LaunchFailed {
            message: "the launcher ended without a record of the command".to_owned(),
        }
    };
    Decision::of(Outcome::NodeFailed, cause)
}

pub(super) fn cancelled(evidence: &Evidence, by: Option<u32>) -> Decision {
    let cause = if evidence.cancel_requested {
        Cause::CancelledByUs
    } else {
        Cause::CancelledBy { uid: by }
    };
    Decision::of(Outcome::Cancelled, cause)
}

fn node_failed(evidence: &Evidence) -> Decision {
    let named = evidence
        .allocation
        .iter()
        .chain(&evidence.step)
        .find_map(|row| row.failed_node.clone());
    let node = named.or_else(|| {
        [&evidence.launch_said, &evidence.stderr_tail]
            .iter()
            .find_map(|text| match end_words(text) {
                Some(EndWords::NodeFailure(node)) => node,
                Some(
                    EndWords::TimeLimit
                    | EndWords::Preemption
                    | EndWords::Requeue
                    | EndWords::OutOfMemory
                    | EndWords::Cancelled,
                )
                | None => None,
            })
    });
    Decision::of(Outcome::NodeFailed, Cause::NodeFailure { node })
}

/// What can be said of an end that accounting did not explain in time: Slurm's words, and how near the limit it was.
pub(super) fn guess(evidence: &Evidence) -> Option<Decision> {
    let words = [&evidence.stderr_tail, &evidence.launch_said]
        .iter()
        .find_map(|text| end_words(text));
    match words {
        Some(EndWords::TimeLimit) => return Some(Decision::of(Outcome::AllocationExpired, Cause::TimeLimit)),
        Some(EndWords::Preemption | EndWords::Requeue) => {
            return Some(Decision::of(Outcome::Preempted, Cause::Preemption));
        }
        Some(EndWords::NodeFailure(_)) => return Some(node_failed(evidence)),
        Some(EndWords::OutOfMemory) => {
            let code = evidence.result.as_ref().and_then(|result| result.exit);
            return Some(Decision::of(
                Outcome::ApplicationFailed,
                Cause::OutOfMemory { code },
            ));
        }
        Some(EndWords::Cancelled) | None => {}
    }
    let end = evidence.step_end().or_else(|| evidence.command_end())?;
    let limit = evidence.allocation_end?;
    (evidence.was_told_to_end() && end + LIMIT_SLACK >= limit.as_second())
        .then(|| Decision::of(Outcome::AllocationExpired, Cause::TimeLimit))
}
