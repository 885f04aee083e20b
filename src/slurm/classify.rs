//! From evidence to a verdict: pure and total.
//!
//! The step's own result decides what the command did; Slurm's rows decide what became of its allocation. When the two
//! agree the verdict is there at once; everything else waits for accounting. Absence of a row is never evidence.

use serde::{Deserialize, Serialize};

use super::sacct::AccountingRow;
use super::squeue::QueueRow;
use super::state::{Phase, SlurmState};
use crate::job::{Cause, Outcome, Verdict};

/// srun's exit code when srun itself failed; the launcher sets SLURM_EXIT_ERROR to it (srun(1)).
const SRUN_ERROR: u16 = 222;

/// What runs the steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scheduler {
    /// Slurm: there is accounting to ask.
    #[default]
    Slurm,
    /// The launcher itself: there is none.
    Local,
}

/// The launcher's `result.json`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is one independent observation of the launcher"
)]
pub struct StepResult {
    /// Version of the format, 1.
    pub version: u32,
    /// INVOCATION.ATTEMPT.
    pub attempt: String,
    /// The command's exit code as the wrapper inside the step saw it.
    pub exit: Option<u8>,
    /// The command was killed by signal `exit - 128`.
    pub signalled: bool,
    /// The command does not exist (127) or cannot be executed (126).
    pub missing: bool,
    /// The wrapper of every task ran: the container came up.
    pub started: bool,
    /// The wrapper saw SIGTERM.
    pub term_seen: bool,
    /// The launcher was told to cancel.
    pub cancelled: bool,
    /// The invocation's own time limit was reached.
    pub timed_out: bool,
    /// The command had not started when the start limit was reached.
    pub start_timed_out: bool,
    /// The whole batch step was told to end.
    pub launcher_term: bool,
    /// srun's exit code; of the local runner, the wrapper's.
    pub launch: Option<u16>,
    /// `unpack`: no tree could be made; `launcher`: the attempt's own supervisor died.
    pub launch_error: Option<String>,
    /// The step number.
    pub step: Option<u32>,
    /// The node of the first task.
    pub host: Option<String>,
    /// Its visible GPUs, as the environment says.
    pub gpus: Option<String>,
    /// Its CPU affinity.
    pub cpus: Option<String>,
    /// When the command started, in seconds since the epoch on the node.
    pub start: Option<f64>,
    /// When it ended.
    pub end: Option<f64>,
    /// Bytes of standard output.
    pub stdout: u64,
    /// Bytes of standard error.
    pub stderr: u64,
    /// Bytes of the list of artifacts.
    pub artifacts: u64,
}

/// Everything that was observed of one attempt.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Evidence {
    /// What runs the steps.
    pub scheduler: Scheduler,
    /// The launcher's record of the end.
    pub result: Option<StepResult>,
    /// The last words of srun, or of the unpacking.
    pub launch_said: String,
    /// The last lines of the command's standard error, where slurmstepd writes too. It can be forged by the command,
    /// so it never makes a success.
    pub stderr_tail: String,
    /// The step's accounting row.
    pub step: Option<AccountingRow>,
    /// The allocation's accounting row.
    pub allocation: Option<AccountingRow>,
    /// The allocation in the queue.
    pub queue: Option<QueueRow>,
    /// Why accounting could not be asked.
    pub accounting_error: Option<String>,
    /// We asked for the end of this attempt.
    pub cancel_requested: bool,
    /// Our uid on the cluster.
    pub own_uid: Option<u32>,
    /// Accounting had its time: decide from what there is.
    pub settled: bool,
}

/// Whether the evidence is enough.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// It is.
    Final(Verdict),
    /// Ask accounting, or wait for it.
    NeedAccounting,
}

fn verdict(outcome: Outcome, cause: Cause) -> Decision {
    Decision::Final(Verdict { outcome, cause })
}

/// Decides what the evidence says.
pub fn classify(evidence: &Evidence) -> Decision {
    let Some(result) = &evidence.result else {
        return without_result(evidence);
    };
    if evidence.cancel_requested || result.cancelled {
        // A command that had already ended by itself was not cancelled by us.
        return by_itself(evidence, result)
            .unwrap_or_else(|| verdict(Outcome::Cancelled, Cause::CancelledByUs));
    }
    if result.timed_out {
        return verdict(Outcome::ApplicationFailed, Cause::TimedOut);
    }
    if let Some(decision) = by_itself(evidence, result) {
        return decision;
    }
    if let Some(decision) = allocation_ended(evidence) {
        return decision;
    }
    if let Some(decision) = step_ended(evidence) {
        return decision;
    }
    if !result.started {
        // The container's failure is certain; whether the allocation died under it is not, until accounting says so.
        let told =
            evidence.scheduler == Scheduler::Local || evidence.settled || evidence.allocation.is_some();
        let told = told || !(result.launcher_term || evidence.result.is_none());
        return if told {
            verdict(
                Outcome::NodeFailed,
                Cause::LaunchFailed {
                    message: launch_message(evidence, result),
                },
            )
        } else {
            Decision::NeedAccounting
        };
    }
    if evidence.scheduler == Scheduler::Slurm && !evidence.settled {
        return Decision::NeedAccounting;
    }
    settled(evidence, result)
}

/// The fast path: the wrapper saw the command end, nothing had been told to end before, and srun agrees.
fn by_itself(evidence: &Evidence, result: &StepResult) -> Option<Decision> {
    let code = result.exit?;
    if !result.started || result.term_seen || result.launcher_term || result.launch != Some(u16::from(code)) {
        return None;
    }
    if out_of_memory(evidence) {
        return Some(verdict(
            Outcome::ApplicationFailed,
            Cause::OutOfMemory { code: Some(code) },
        ));
    }
    // SIGKILL is what the kernel sends when memory runs out, and what a dying node leaves behind.
    let doubtful = oom_words(evidence) || (result.signalled && code == 137);
    if doubtful && evidence.scheduler == Scheduler::Slurm && evidence.step.is_none() && !evidence.settled {
        return None;
    }
    if oom_words(evidence) && evidence.step.is_none() {
        return Some(verdict(
            Outcome::ApplicationFailed,
            Cause::OutOfMemory { code: Some(code) },
        ));
    }
    if doubtful && let Some(decision) = allocation_ended(evidence) {
        return Some(decision);
    }
    Some(command_ended(code, result))
}

fn command_ended(code: u8, result: &StepResult) -> Decision {
    match code {
        0 => verdict(Outcome::Completed, Cause::Exit { code }),
        126 | 127 if result.missing => verdict(Outcome::ApplicationFailed, Cause::CommandNotFound { code }),
        129.. if result.signalled => {
            verdict(Outcome::ApplicationFailed, Cause::Signal { signal: code - 128 })
        }
        _ => verdict(Outcome::ApplicationFailed, Cause::Exit { code }),
    }
}

fn out_of_memory(evidence: &Evidence) -> bool {
    [&evidence.step, &evidence.allocation]
        .into_iter()
        .flatten()
        .any(|row| row.state == SlurmState::OutOfMemory)
}

/// Slurm's own words for it, in what srun or slurmstepd said.
fn oom_words(evidence: &Evidence) -> bool {
    ["oom_kill event", "oom-kill event", "Out Of Memory"]
        .iter()
        .any(|words| evidence.launch_said.contains(words) || evidence.stderr_tail.contains(words))
}

/// What the end of the allocation says, if it ended in a way that explains the end of a step.
fn allocation_ended(evidence: &Evidence) -> Option<Decision> {
    let row = evidence.allocation.as_ref()?;
    Some(match &row.state {
        SlurmState::Timeout | SlurmState::Deadline => verdict(Outcome::AllocationExpired, Cause::TimeLimit),
        SlurmState::Preempted | SlurmState::Requeued | SlurmState::Revoked => {
            verdict(Outcome::Preempted, Cause::Preemption)
        }
        SlurmState::NodeFail | SlurmState::BootFail | SlurmState::LaunchFailed | SlurmState::ReconfigFail => {
            verdict(
                Outcome::NodeFailed,
                Cause::NodeFailure {
                    node: row.failed_node.clone(),
                },
            )
        }
        SlurmState::Cancelled { by } => cancelled(evidence, *by),
        SlurmState::Pending
        | SlurmState::Running
        | SlurmState::Suspended
        | SlurmState::Completed
        | SlurmState::Failed
        | SlurmState::OutOfMemory
        | SlurmState::RequeueHold
        | SlurmState::SpecialExit
        | SlurmState::Resizing
        | SlurmState::Configuring
        | SlurmState::Completing
        | SlurmState::Stopped
        | SlurmState::PowerUpNode
        | SlurmState::RequeueFed
        | SlurmState::ResvDelHold
        | SlurmState::Signaling
        | SlurmState::StageOut
        | SlurmState::UpdateDb
        | SlurmState::Expediting
        | SlurmState::Unknown(_) => return None,
    })
}

fn cancelled(evidence: &Evidence, by: Option<u32>) -> Decision {
    if evidence.cancel_requested {
        verdict(Outcome::Cancelled, Cause::CancelledByUs)
    } else {
        verdict(Outcome::Cancelled, Cause::CancelledBy { uid: by })
    }
}

/// What the step's own row says, where the allocation's does not explain it.
fn step_ended(evidence: &Evidence) -> Option<Decision> {
    let row = evidence.step.as_ref()?;
    match &row.state {
        SlurmState::OutOfMemory => {
            let code = evidence.result.as_ref().and_then(|result| result.exit);
            Some(verdict(Outcome::ApplicationFailed, Cause::OutOfMemory { code }))
        }
        SlurmState::NodeFail => Some(verdict(
            Outcome::NodeFailed,
            Cause::NodeFailure {
                node: row.failed_node.clone(),
            },
        )),
        SlurmState::Timeout => Some(verdict(Outcome::AllocationExpired, Cause::TimeLimit)),
        SlurmState::Preempted => Some(verdict(Outcome::Preempted, Cause::Preemption)),
        // Named: somebody called scancel. Unnamed: the step was killed by a signal, which Slurm also calls CANCELLED.
        SlurmState::Cancelled { by: Some(uid) } => Some(cancelled(evidence, Some(*uid))),
        SlurmState::Cancelled { by: None } => {
            let started = evidence.result.as_ref().is_none_or(|result| result.started);
            let signal = row
                .exit
                .map(|exit| exit.signal)
                .filter(|signal| *signal > 0 && started);
            // 15 is what the end of an allocation leaves behind, and its row may still be on its way.
            let ours = signal.filter(|signal| *signal != 15 || evidence.settled);
            ours.and_then(|signal| u8::try_from(signal).ok())
                .map(|signal| verdict(Outcome::ApplicationFailed, Cause::Signal { signal }))
        }
        SlurmState::Failed
        | SlurmState::Completed
        | SlurmState::Pending
        | SlurmState::Running
        | SlurmState::Suspended
        | SlurmState::BootFail
        | SlurmState::Deadline
        | SlurmState::LaunchFailed
        | SlurmState::Requeued
        | SlurmState::RequeueHold
        | SlurmState::SpecialExit
        | SlurmState::Resizing
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

/// A result that needs explaining, and accounting had its time.
fn settled(evidence: &Evidence, result: &StepResult) -> Decision {
    if oom_words(evidence) {
        return verdict(
            Outcome::ApplicationFailed,
            Cause::OutOfMemory { code: result.exit },
        );
    }
    if evidence.stderr_tail.contains("DUE TO TIME LIMIT") {
        return verdict(Outcome::AllocationExpired, Cause::TimeLimit);
    }
    if evidence.stderr_tail.contains("DUE TO PREEMPTION") {
        return verdict(Outcome::Preempted, Cause::Preemption);
    }
    if evidence.stderr_tail.contains("DUE TO NODE FAILURE") {
        return verdict(Outcome::NodeFailed, Cause::NodeFailure { node: None });
    }
    match result.exit {
        // It succeeded and then something else went wrong: not proven to be a success, not the command's failure.
        Some(0) if result.launch == Some(SRUN_ERROR) || result.launch.is_none() => lost(
            evidence,
            "the command exited 0, but its step did not end in order",
        ),
        Some(code) if !result.launcher_term => command_ended(code, result),
        Some(_) => lost(
            evidence,
            "the allocation was told to end, and accounting does not say why",
        ),
        None => lost(evidence, "the command started and left no exit code"),
    }
}

fn without_result(evidence: &Evidence) -> Decision {
    if let Some(decision) = allocation_ended(evidence) {
        return decision;
    }
    if let Some(decision) = step_ended(evidence) {
        return decision;
    }
    let ended = evidence
        .allocation
        .as_ref()
        .is_some_and(|row| row.state.phase() == Phase::Ended);
    if ended {
        // The batch script is gone and nobody will write a result any more.
        let message = "the launcher ended without a record of the command".to_owned();
        return verdict(Outcome::NodeFailed, Cause::LaunchFailed { message });
    }
    if evidence.settled || evidence.scheduler == Scheduler::Local {
        return lost(evidence, "no result, and no final word from accounting");
    }
    Decision::NeedAccounting
}

fn lost(evidence: &Evidence, what: &str) -> Decision {
    let more = evidence
        .accounting_error
        .as_ref()
        .map_or_else(String::new, |error| format!(" (sacct: {error})"));
    verdict(
        Outcome::TransportLost,
        Cause::NoObservation {
            message: format!("{what}{more}"),
        },
    )
}

/// The most telling line of what was said about a start that failed.
fn launch_message(evidence: &Evidence, result: &StepResult) -> String {
    if result.start_timed_out {
        return "the container did not start within the start limit".to_owned();
    }
    let said = [evidence.launch_said.as_str(), evidence.stderr_tail.as_str()];
    let lines = || {
        said.iter()
            .flat_map(|text| text.lines())
            .map(str::trim)
            .filter(|line| !line.is_empty())
    };
    let telling = [
        "pyxis",
        "edf",
        "enroot",
        "FATAL",
        "execve",
        "No such file",
        "Unable to create step",
        "error:",
    ];
    let line = telling
        .iter()
        .find_map(|word| lines().find(|line| line.contains(word)))
        .or_else(|| lines().next());
    match (line, &result.launch_error) {
        (Some(line), _) => line.to_owned(),
        (None, Some(error)) => format!("{error} failed"),
        (None, None) => format!("srun ended with {:?} and without a word", result.launch),
    }
}

/// What a late row changes about a verdict, if it contradicts it.
pub fn amend(verdict: &Verdict, evidence: &Evidence) -> Option<Verdict> {
    let explained = matches!(verdict.cause, Cause::Exit { .. } | Cause::Signal { .. });
    if !explained || !out_of_memory(evidence) {
        return None;
    }
    Some(Verdict {
        outcome: Outcome::ApplicationFailed,
        cause: Cause::OutOfMemory {
            code: verdict.command_code(),
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slurm::sacct;
    use proptest::prelude::*;

    const CAPTURED: &str = "JobID,JobName,State,ExitCode,DerivedExitCode,Start,End,Elapsed,NodeList,Reason";

    fn rows(version: &str, case: &str) -> Option<Vec<AccountingRow>> {
        let path = format!(
            "{}/tests/fixtures/slurm/{version}/{case}/sacct.psv",
            env!("CARGO_MANIFEST_DIR")
        );
        let text = std::fs::read_to_string(path).ok()?;
        Some(
            sacct::parse(CAPTURED, &text)
                .into_iter()
                .map(Result::unwrap)
                .collect(),
        )
    }

    /// What Slurm left of step 0 of the case, and what the wrapper would have seen.
    fn evidence(
        version: &str,
        case: &str,
        step: Option<u32>,
        result: Option<StepResult>,
    ) -> Option<Evidence> {
        let rows = rows(version, case)?;
        let (allocation, step) = sacct::select(&rows, step);
        Some(Evidence {
            result,
            allocation: allocation.cloned(),
            step: step.cloned(),
            ..Evidence::default()
        })
    }

    fn ended(exit: u8, launch: u16) -> StepResult {
        StepResult {
            exit: Some(exit),
            launch: Some(launch),
            started: true,
            step: Some(0),
            ..StepResult::default()
        }
    }

    fn told_to_end() -> StepResult {
        StepResult {
            term_seen: true,
            launcher_term: true,
            signalled: true,
            ..ended(143, 143)
        }
    }

    fn is(outcome: Outcome, cause: Cause) -> Verdict {
        Verdict { outcome, cause }
    }

    #[test]
    #[expect(clippy::too_many_lines, reason = "a line a case")]
    fn every_captured_case_gets_the_outcome_it_has() {
        use Outcome::{AllocationExpired, ApplicationFailed, Cancelled, Completed, NodeFailed, Preempted};
        let signal = |signal| Cause::Signal { signal };
        let exit = |code| Cause::Exit { code };
        let node = || Cause::NodeFailure { node: None };
        let by = |uid| Cause::CancelledBy { uid: Some(uid) };
        let gone = || Cause::LaunchFailed {
            message: "the launcher ended without a record of the command".into(),
        };
        let result = StepResult::default;
        // The case, the step, what the wrapper left (if it could), the verdict.
        let table: Vec<(&str, Option<u32>, Option<StepResult>, Verdict)> = vec![
            (
                "exec_not_found",
                Some(0),
                Some(StepResult {
                    missing: true,
                    ..ended(127, 127)
                }),
                is(ApplicationFailed, Cause::CommandNotFound { code: 127 }),
            ),
            (
                "failed_exit3",
                None,
                Some(ended(3, 3)),
                is(ApplicationFailed, exit(3)),
            ),
            (
                "step_failed_batch_ok",
                Some(0),
                Some(ended(7, 7)),
                is(ApplicationFailed, exit(7)),
            ),
            (
                "step_failed_batch_ok",
                Some(1),
                Some(ended(0, 0)),
                is(Completed, exit(0)),
            ),
            (
                "step_signal11",
                Some(0),
                Some(StepResult {
                    signalled: true,
                    ..ended(139, 139)
                }),
                is(ApplicationFailed, signal(11)),
            ),
            ("step_signal11", Some(0), None, is(ApplicationFailed, signal(11))),
            (
                "oom_step",
                Some(0),
                Some(StepResult {
                    signalled: true,
                    ..ended(137, 137)
                }),
                is(ApplicationFailed, Cause::OutOfMemory { code: Some(137) }),
            ),
            (
                "oom_step",
                Some(0),
                Some(ended(0, 0)),
                is(ApplicationFailed, Cause::OutOfMemory { code: Some(0) }),
            ),
            (
                "oom_step",
                Some(0),
                None,
                is(ApplicationFailed, Cause::OutOfMemory { code: None }),
            ),
            ("oom_batch", None, None, is(NodeFailed, gone())),
            (
                "timeout",
                Some(0),
                Some(told_to_end()),
                is(AllocationExpired, Cause::TimeLimit),
            ),
            ("timeout", Some(0), None, is(AllocationExpired, Cause::TimeLimit)),
            (
                "timeout_trap_term",
                None,
                None,
                is(AllocationExpired, Cause::TimeLimit),
            ),
            (
                "preempted_low",
                Some(0),
                Some(told_to_end()),
                is(Preempted, Cause::Preemption),
            ),
            ("preempted_low", Some(0), None, is(Preempted, Cause::Preemption)),
            ("node_fail_batchhost", Some(0), None, is(NodeFailed, node())),
            (
                "node_fail_norequeue",
                Some(0),
                Some(told_to_end()),
                is(NodeFailed, node()),
            ),
            ("link_cut_long", Some(0), None, is(NodeFailed, node())),
            (
                "link_cut_short",
                Some(0),
                Some(ended(0, 0)),
                is(Completed, exit(0)),
            ),
            (
                "cancelled_running",
                Some(0),
                Some(told_to_end()),
                is(Cancelled, by(20001)),
            ),
            ("cancelled_by_root", Some(0), None, is(Cancelled, by(0))),
            ("cancelled_pending", None, None, is(Cancelled, by(20001))),
            ("special_exit", None, None, is(Cancelled, by(20001))),
            ("node_fail_requeue", None, None, is(Cancelled, by(20001))),
            ("preempted_lowrq", None, None, is(Cancelled, by(20001))),
            (
                "scancel_step_only",
                Some(0),
                Some(StepResult {
                    term_seen: true,
                    ..ended(143, 143)
                }),
                is(Cancelled, by(20001)),
            ),
            (
                "scancel_step_only",
                Some(1),
                Some(ended(0, 0)),
                is(Completed, exit(0)),
            ),
            ("signal9_self", None, None, is(NodeFailed, gone())),
            ("drain", Some(0), Some(ended(0, 0)), is(Completed, exit(0))),
            ("overlap", Some(0), Some(ended(0, 0)), is(Completed, exit(0))),
            ("suspended", None, None, is(NodeFailed, gone())),
            ("scancel_usr1_batch", None, None, is(NodeFailed, gone())),
            (
                "node_fail_no_kill",
                Some(1),
                Some(ended(0, 0)),
                is(Completed, exit(0)),
            ),
            (
                "requeued_runs_again",
                Some(0),
                Some(ended(0, 0)),
                is(Completed, exit(0)),
            ),
            (
                "drain",
                Some(0),
                Some(StepResult {
                    launch: Some(1),
                    ..result()
                }),
                is(
                    NodeFailed,
                    Cause::LaunchFailed {
                        message: "srun ended with Some(1) and without a word".into(),
                    },
                ),
            ),
        ];
        let mut seen = 0;
        for version in ["22.05", "24.11"] {
            for (case, step, result, expected) in &table {
                let Some(evidence) = evidence(version, case, *step, result.clone()) else {
                    continue;
                };
                seen += 1;
                assert_eq!(
                    classify(&evidence),
                    Decision::Final(expected.clone()),
                    "{version} {case} {step:?} {result:?}"
                );
            }
        }
        assert!(seen > 50, "only {seen} cases were found");
    }

    #[test]
    fn every_captured_case_is_in_the_table() {
        // `array` is the one kind of job that is never submitted here.
        for version in ["22.05", "24.11"] {
            let folder = format!("{}/tests/fixtures/slurm/{version}", env!("CARGO_MANIFEST_DIR"));
            for entry in std::fs::read_dir(folder).unwrap() {
                let name = entry.unwrap().file_name().into_string().unwrap();
                let source = include_str!("classify.rs");
                let known =
                    source.contains(&format!("\"{name}\",")) || ["array", "errors"].contains(&name.as_str());
                assert!(
                    known || std::path::Path::new(&name).extension().is_some(),
                    "{version}/{name} has no line"
                );
            }
        }
    }

    #[test]
    fn a_result_that_all_agree_on_needs_no_accounting() {
        for (code, outcome) in [(0, Outcome::Completed), (7, Outcome::ApplicationFailed)] {
            let evidence = Evidence {
                result: Some(ended(code, u16::from(code))),
                ..Evidence::default()
            };
            assert_eq!(
                classify(&evidence),
                Decision::Final(is(outcome, Cause::Exit { code }))
            );
        }
    }

    #[test]
    fn doubt_waits_for_accounting_and_then_settles() {
        for result in [
            StepResult {
                signalled: true,
                ..ended(137, 137)
            },
            told_to_end(),
            ended(0, 222),
            StepResult {
                exit: None,
                ..ended(0, 1)
            },
        ] {
            let mut evidence = Evidence {
                result: Some(result),
                ..Evidence::default()
            };
            assert_eq!(classify(&evidence), Decision::NeedAccounting);
            evidence.settled = true;
            assert!(matches!(classify(&evidence), Decision::Final(_)));
        }
        assert_eq!(classify(&Evidence::default()), Decision::NeedAccounting);
    }

    #[test]
    fn a_container_that_did_not_start_is_not_the_application() {
        let result = StepResult {
            launch: Some(1),
            ..StepResult::default()
        };
        let evidence = Evidence {
            result: Some(result),
            launch_said: "srun: error: nid001: task 0: Exited with exit code 1".into(),
            stderr_tail: "slurmstepd: error: pyxis: container start failed with error code: 1".into(),
            ..Evidence::default()
        };
        let Decision::Final(verdict) = classify(&evidence) else {
            panic!("not decided")
        };
        assert_eq!(verdict.outcome, Outcome::NodeFailed);
        assert!(
            verdict
                .cause
                .to_string()
                .contains("pyxis: container start failed"),
            "{}",
            verdict.cause
        );
    }

    #[test]
    fn a_late_row_amends_a_success_that_was_none() {
        let early = is(Outcome::Completed, Cause::Exit { code: 0 });
        let late = evidence("22.05", "oom_step", Some(0), Some(ended(0, 0))).unwrap();
        assert_eq!(amend(&early, &late).unwrap().outcome, Outcome::ApplicationFailed);
        let fine = evidence("22.05", "drain", Some(0), Some(ended(0, 0))).unwrap();
        assert_eq!(amend(&early, &fine), None);
    }

    fn states() -> impl Strategy<Value = SlurmState> {
        proptest::sample::select(vec![
            "PENDING",
            "RUNNING",
            "COMPLETED",
            "FAILED",
            "TIMEOUT",
            "NODE_FAIL",
            "PREEMPTED",
            "OUT_OF_MEMORY",
            "CANCELLED",
            "CANCELLED by 7",
            "COMPLETING",
            "REQUEUE_HOLD",
            "BRAND_NEW",
        ])
        .prop_map(SlurmState::parse)
    }

    fn row(kind: sacct::RowKind, state: SlurmState) -> AccountingRow {
        AccountingRow {
            job: "1".into(),
            kind,
            state,
            exit: None,
            derived_exit: None,
            start: None,
            end: None,
            nodes: None,
            reason: None,
            failed_node: None,
            name: String::new(),
        }
    }

    proptest! {
        #[test]
        fn success_needs_positive_evidence_and_a_commands_own_failure_is_never_retried(
            exit in proptest::option::of(any::<u8>()), launch in proptest::option::of(0_u16..256),
            flags in proptest::array::uniform8(any::<bool>()),
            step in proptest::option::of(states()), allocation in proptest::option::of(states()),
        ) {
            let [started, term_seen, cancelled, timed_out, launcher_term, signalled, settled, has_result] = flags;
            let result = StepResult { exit, signalled, started, term_seen, cancelled, timed_out, launcher_term, launch, ..StepResult::default() };
            let evidence = Evidence {
                result: has_result.then_some(result),
                step: step.map(|state| row(sacct::RowKind::Step(0), state)),
                allocation: allocation.map(|state| row(sacct::RowKind::Allocation, state)),
                settled,
                ..Evidence::default()
            };
            if let Decision::Final(verdict) = classify(&evidence) {
                if verdict.outcome == Outcome::Completed {
                    prop_assert!(has_result && started && exit == Some(0));
                }
                let clean = has_result && started && !term_seen && !launcher_term && !signalled
                    && exit.is_some_and(|code| code != 0) && launch == exit.map(u16::from);
                if clean {
                    prop_assert!(!verdict.outcome.is_infrastructure(), "{:?}", verdict);
                }
            }
        }
    }
}
