//! The launcher left a result.

use super::rows::{cancelled, explain, guess, oom_words, out_of_memory};
use super::{Decision, lost};
use crate::job::{Cause, Outcome};
use crate::slurm::evidence::{Evidence, Scheduler, StepResult};
use crate::slurm::state::SlurmState;
use crate::slurm::witness::launch_words;

pub(super) fn decide(evidence: &Evidence, result: &StepResult) -> Decision {
    let asked_for = asked_for(evidence, result);
    if let Some(code) = own_end(result)
        && let Some(decision) = by_itself(evidence, result, code, asked_for.is_some())
    {
        return decision;
    }
    if let Some(decision) = asked_for {
        return decision;
    }
    if let Some(decision) = explain(evidence) {
        return decision;
    }
    if !evidence.has_started() {
        return not_started(evidence, result);
    }
    if !evidence.is_settled() {
        return Decision::NeedAccounting;
    }
    settled(evidence, result)
}

/// An end that we, or the invocation's own limit, asked for. A limit that ran out before the container was up is a
/// failed start, not the command's.
fn asked_for(evidence: &Evidence, result: &StepResult) -> Option<Decision> {
    if evidence.cancel_requested || result.cancelled {
        return Some(Decision::of(Outcome::Cancelled, Cause::CancelledByUs));
    }
    (result.timed_out && evidence.has_started())
        .then(|| Decision::of(Outcome::ApplicationFailed, Cause::TimedOut))
}

/// The exit code of a command that ended before anything told it to.
fn own_end(result: &StepResult) -> Option<u8> {
    let code = result.exit?;
    // A success that was not even told to end is none the less one because the allocation was.
    let undisturbed = !result.launcher_term || (code == 0 && result.launch == Some(0));
    (result.started && !result.term_seen && undisturbed).then_some(code)
}

/// The verdict on a command that ended by itself; `None` if it may not have after all.
fn by_itself(evidence: &Evidence, result: &StepResult, code: u8, asked_for: bool) -> Option<Decision> {
    if out_of_memory(evidence) {
        return Some(oom(code));
    }
    let told = evidence.is_settled() || evidence.ended_step().is_some();
    let agreed = result.launch == Some(u16::from(code));
    // Nothing but SIGKILL ends a command so that its wrapper cannot tell who did it: the kernel for lack of memory, a
    // node or step that is being ended, or the command itself.
    let killed = result.signalled && code == 137;
    let words = oom_words(evidence);
    if agreed && !killed && !words {
        return Some(command_ended(code, result));
    }
    if asked_for && (!agreed || killed) {
        return None;
    }
    if !told {
        return Some(Decision::NeedAccounting);
    }
    if words && evidence.ended_step().is_none() {
        return Some(oom(code));
    }
    if killed && let Some(decision) = explain(evidence) {
        return Some(decision);
    }
    let step_completed = evidence
        .step
        .as_ref()
        .is_some_and(|row| row.state == SlurmState::Completed);
    // The command succeeded and srun did not say so: Slurm's own row has to.
    (code != 0 || agreed || step_completed).then(|| command_ended(code, result))
}

fn oom(code: u8) -> Decision {
    Decision::of(
        Outcome::ApplicationFailed,
        Cause::OutOfMemory { code: Some(code) },
    )
}

fn command_ended(code: u8, result: &StepResult) -> Decision {
    match code {
        0 => Decision::of(Outcome::Completed, Cause::Exit { code }),
        126 | 127 if result.missing => {
            Decision::of(Outcome::ApplicationFailed, Cause::CommandNotFound { code })
        }
        129.. if result.signalled => {
            Decision::of(Outcome::ApplicationFailed, Cause::Signal { signal: code - 128 })
        }
        _ => Decision::of(Outcome::ApplicationFailed, Cause::Exit { code }),
    }
}

/// The container, or the step, did not get as far as the command. That is certain; whether the allocation died under
/// it, or somebody cancelled it, is not, until accounting was asked.
fn not_started(evidence: &Evidence, result: &StepResult) -> Decision {
    let step_alive = evidence.step.is_some() && evidence.ended_step().is_none();
    let allocation_told = match &evidence.allocation {
        Some(row) => !result.launcher_term || row.state.is_terminal(),
        None => false,
    };
    let no_step = result.launch_error.as_deref() == Some("unpack") && !result.launcher_term;
    if !(evidence.is_settled() || no_step || (allocation_told && !step_alive)) {
        return Decision::NeedAccounting;
    }
    if result.launcher_term
        && let Some(decision) = guess(evidence)
    {
        return decision;
    }
    Decision::of(
        Outcome::NodeFailed,
        Cause::LaunchFailed {
            message: launch_message(evidence, result),
        },
    )
}

fn launch_message(evidence: &Evidence, result: &StepResult) -> String {
    if result.start_timed_out || result.timed_out {
        return "the container did not start in time".to_owned();
    }
    match (
        launch_words(&[&evidence.launch_said, &evidence.stderr_tail]),
        &result.launch_error,
        result.launch,
    ) {
        (Some(line), _, _) => line.to_owned(),
        (None, Some(error), _) => format!("{error} failed"),
        (None, None, Some(code)) => format!("srun ended with exit code {code} and without a word"),
        (None, None, None) => "srun left no exit code".to_owned(),
    }
}

/// The command started, something told it to end or took its wrapper away, and accounting had its time.
fn settled(evidence: &Evidence, result: &StepResult) -> Decision {
    if let Some(decision) = guess(evidence) {
        return decision;
    }
    match result.exit {
        Some(_) if result.launcher_term => lost(
            evidence,
            "the allocation was told to end, and accounting does not say why",
        ),
        // Somebody sent SIGTERM to the step. What the command made of it is no measurement, even if it exited 0.
        Some(_) if result.term_seen => cancelled(evidence, None),
        Some(0) => lost(
            evidence,
            "the command exited 0, but its step did not end in order",
        ),
        Some(code) => command_ended(code, result),
        None => without_code(evidence, result),
    }
}

/// The wrapper left no exit code: the step's row is all there is.
fn without_code(evidence: &Evidence, result: &StepResult) -> Decision {
    let row = evidence
        .step
        .as_ref()
        .filter(|row| row.state == SlurmState::Failed);
    let code = row.and_then(|row| row.exit?.shell_code(true));
    match code {
        Some(code) if !result.launcher_term && !result.term_seen => {
            Decision::of(Outcome::ApplicationFailed, Cause::Exit { code })
        }
        Some(_) | None => {
            let scheduler = match evidence.scheduler {
                Scheduler::Slurm => "the command started and left no exit code",
                Scheduler::Local => "the command's wrapper was killed and left no exit code",
            };
            lost(evidence, scheduler)
        }
    }
}
