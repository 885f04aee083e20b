//! What real Slurm left of every captured case, with what the wrapper would have left, and the verdict that is right.

use jiff::tz::TimeZone;

use super::*;
use crate::slurm::StepResult;
use crate::slurm::sacct::{AccountingRow, Layout, Wanted, witnesses};

pub(super) const FORMAT: &str =
    "JobID,JobName,State,ExitCode,DerivedExitCode,Start,End,Elapsed,NodeList,Reason";

pub(super) fn folder(version: &str) -> String {
    format!("{}/tests/fixtures/slurm/{version}", env!("CARGO_MANIFEST_DIR"))
}

fn rows(version: &str, case: &str, file: &str) -> Option<Vec<AccountingRow>> {
    let folder = folder(version);
    let text = std::fs::read_to_string(format!("{folder}/{case}/{file}.psv")).ok()?;
    let layout = Layout::new(FORMAT).in_zone(TimeZone::UTC);
    Some(layout.parse(&text).into_iter().map(Result::unwrap).collect())
}

/// What accounting says of step `step` of the case.
pub(super) fn captured(version: &str, case: &str, file: &str, step: Option<u32>) -> Option<Evidence> {
    let rows = rows(version, case, file)?;
    let mut evidence = Evidence::default();
    if let Some(first) = rows.first() {
        evidence.take_accounting(&witnesses(&rows, first.job.number, step.map(Wanted::Number)));
    }
    Some(evidence)
}

/// The wrapper saw the command end, and srun agreed or not.
pub(super) fn ended(exit: u8, launch: u16) -> StepResult {
    StepResult {
        exit: Some(exit),
        launch: Some(launch),
        started: true,
        step: Some(0),
        ..StepResult::default()
    }
}

/// The whole allocation was told to end, and the command died of it.
pub(super) fn told_to_end() -> StepResult {
    StepResult {
        term_seen: true,
        launcher_term: true,
        signalled: true,
        ..ended(143, 143)
    }
}

pub(super) fn killed_by(signal: u8) -> StepResult {
    StepResult {
        signalled: true,
        ..ended(128 + signal, u16::from(128 + signal))
    }
}

pub(super) fn is(outcome: Outcome, cause: Cause) -> Verdict {
    Verdict { outcome, cause }
}

enum Left {
    /// Neither a result nor a sign of a start.
    Nothing,
    /// The command was seen to start.
    Started,
    Result(Box<StepResult>),
}

use Left::{Nothing, Started};
use Outcome::{
    AllocationExpired, ApplicationFailed, Cancelled, Completed, NodeFailed, Preempted, TransportLost,
};

fn with(result: StepResult) -> Left {
    Left::Result(Box::new(result))
}

fn signal(signal: u8) -> Verdict {
    is(ApplicationFailed, Cause::Signal { signal })
}

fn exit(code: u8) -> Verdict {
    let outcome = if code == 0 { Completed } else { ApplicationFailed };
    is(outcome, Cause::Exit { code })
}

fn by(uid: u32) -> Verdict {
    is(Cancelled, Cause::CancelledBy { uid: Some(uid) })
}

fn oom(code: Option<u8>) -> Verdict {
    is(ApplicationFailed, Cause::OutOfMemory { code })
}

fn expired() -> Verdict {
    is(AllocationExpired, Cause::TimeLimit)
}

fn preempted() -> Verdict {
    is(Preempted, Cause::Preemption)
}

fn node() -> Verdict {
    is(NodeFailed, Cause::NodeFailure { node: None })
}

fn launcher_gone() -> Verdict {
    let message = "the launcher ended without a record of the command".to_owned();
    is(NodeFailed, Cause::LaunchFailed { message })
}

fn lost(message: &str) -> Verdict {
    let message = message.to_owned();
    is(TransportLost, Cause::NoObservation { message })
}

/// The case, the file, the step, what the wrapper left, and the verdict.
type Line = (&'static str, &'static str, Option<u32>, Left, Verdict);

fn ends_of_commands() -> Vec<Line> {
    let missing = StepResult {
        missing: true,
        ..ended(127, 127)
    };
    vec![
        (
            "exec_not_found",
            "sacct",
            Some(0),
            with(missing),
            is(ApplicationFailed, Cause::CommandNotFound { code: 127 }),
        ),
        ("exec_not_found", "sacct", Some(0), Started, exit(2)),
        (
            "exec_not_found",
            "sacct",
            Some(0),
            Nothing,
            lost("the step failed and left no result"),
        ),
        ("failed_exit3", "sacct", None, with(ended(3, 3)), exit(3)),
        ("failed_exit3", "sacct", None, Nothing, launcher_gone()),
        (
            "step_failed_batch_ok",
            "sacct",
            Some(0),
            with(ended(7, 7)),
            exit(7),
        ),
        ("step_failed_batch_ok", "sacct", Some(0), Started, exit(7)),
        (
            "step_failed_batch_ok",
            "sacct",
            Some(1),
            with(ended(0, 0)),
            exit(0),
        ),
        (
            "step_failed_batch_ok",
            "sacct",
            Some(1),
            Started,
            lost("the step completed, but its result is not there"),
        ),
        ("step_signal11", "sacct", Some(0), with(killed_by(11)), signal(11)),
        ("step_signal11", "sacct", Some(0), Started, signal(11)),
        (
            "step_signal11",
            "sacct",
            Some(0),
            Nothing,
            lost("the step was ended, and neither a result nor Slurm says why"),
        ),
        ("oom_step", "sacct", Some(0), with(killed_by(9)), oom(Some(137))),
        ("oom_step", "sacct", Some(0), with(ended(0, 0)), oom(Some(0))),
        ("oom_step", "sacct", Some(0), with(ended(1, 253)), oom(Some(1))),
        ("oom_step", "sacct", Some(0), Nothing, oom(None)),
        ("oom_batch", "sacct", None, Nothing, launcher_gone()),
        ("oom_batch", "sacct", None, with(ended(7, 7)), exit(7)),
        ("signal9_self", "sacct", None, Nothing, launcher_gone()),
        ("drain", "sacct", Some(0), with(ended(0, 0)), exit(0)),
        ("link_cut_short", "sacct", Some(0), with(ended(0, 0)), exit(0)),
        ("suspended", "sacct", None, Nothing, launcher_gone()),
        ("scancel_usr1_batch", "sacct", None, Nothing, launcher_gone()),
        ("overlap", "sacct", Some(0), with(ended(0, 0)), exit(0)),
        // The allocation was cancelled minutes later; that says nothing of these.
        ("overlap", "sacct", Some(5), Started, exit(9)),
        ("overlap", "sacct", Some(8), Started, exit(5)),
        (
            "overlap",
            "sacct",
            Some(9),
            Started,
            is(ApplicationFailed, Cause::TimedOut),
        ),
        ("overlap", "sacct", Some(17), Started, by(20001)),
        ("overlap", "sacct", Some(20), Started, by(20001)),
        ("scancel_step_only", "sacct", Some(0), Started, by(20001)),
        (
            "scancel_step_only",
            "sacct",
            Some(0),
            with(StepResult {
                exit: None,
                ..ended(0, 137)
            }),
            by(20001),
        ),
        ("scancel_step_only", "sacct", Some(1), with(ended(0, 0)), exit(0)),
    ]
}

fn ends_of_allocations() -> Vec<Line> {
    vec![
        ("timeout", "sacct", Some(0), with(told_to_end()), expired()),
        ("timeout", "sacct", Some(0), Started, expired()),
        (
            "timeout",
            "sacct",
            Some(0),
            with(StepResult {
                launcher_term: false,
                ..told_to_end()
            }),
            expired(),
        ),
        // It trapped SIGTERM and exited 0: no measurement.
        (
            "timeout",
            "sacct",
            Some(0),
            with(StepResult {
                exit: Some(0),
                launch: Some(0),
                ..told_to_end()
            }),
            expired(),
        ),
        ("timeout_trap_term", "sacct", None, Nothing, expired()),
        (
            "preempted_low",
            "sacct",
            Some(0),
            with(told_to_end()),
            preempted(),
        ),
        ("preempted_low", "sacct", Some(0), Nothing, preempted()),
        ("preempted_lowrq", "sacct-dup", Some(0), Started, preempted()),
        ("preempted_lowrq", "during.sacct", Some(0), Started, preempted()),
        (
            "preempted_lowrq",
            "rerun.sacct-dup",
            Some(0),
            with(told_to_end()),
            preempted(),
        ),
        ("node_fail_requeue", "sacct-dup", Some(0), Started, node()),
        (
            "node_fail_requeue",
            "down.sacct",
            Some(0),
            with(told_to_end()),
            node(),
        ),
        // Without -D the life in which the step ran is not shown.
        ("preempted_lowrq", "sacct", Some(0), Nothing, by(20001)),
        ("node_fail_requeue", "sacct", Some(0), Nothing, by(20001)),
        ("special_exit", "sacct", None, Nothing, by(20001)),
        ("special_exit", "sacct-dup", None, Nothing, preempted()),
        ("special_exit", "held.sacct-dup", None, Nothing, preempted()),
        ("node_fail_batchhost", "sacct", Some(0), Started, node()),
        (
            "node_fail_norequeue",
            "sacct",
            Some(0),
            with(told_to_end()),
            node(),
        ),
        ("node_fail_norequeue", "down.sacct", Some(0), Nothing, node()),
        ("link_cut_long", "sacct", Some(0), Started, node()),
        ("link_cut_long", "down.sacct", Some(0), Started, node()),
        ("node_fail_no_kill", "sacct", Some(0), Nothing, node()),
        ("node_fail_no_kill", "sacct", Some(1), with(ended(0, 0)), exit(0)),
        (
            "cancelled_running",
            "sacct",
            Some(0),
            with(told_to_end()),
            by(20001),
        ),
        ("cancelled_running", "sacct", Some(0), Started, by(20001)),
        ("cancelled_by_root", "sacct", Some(0), Nothing, by(0)),
        ("cancelled_pending", "sacct", None, Nothing, by(20001)),
    ]
}

#[test]
fn every_captured_case_gets_the_outcome_it_has() {
    let table: Vec<Line> = ends_of_commands()
        .into_iter()
        .chain(ends_of_allocations())
        .collect();
    let mut seen = 0;
    for version in ["22.05", "24.11"] {
        for (case, file, step, left, expected) in &table {
            let Some(mut evidence) = captured(version, case, file, *step) else {
                continue;
            };
            seen += 1;
            match left {
                Nothing => {}
                Started => evidence.started = true,
                Left::Result(result) => evidence.result = Some((**result).clone()),
            }
            let decision = classify(&evidence);
            assert_eq!(
                decision,
                Decision::Final(expected.clone()),
                "{version} {case} {file} {step:?}"
            );
            // What we asked for ourselves is never somebody else's doing, nor a reason to run it again.
            evidence.cancel_requested = true;
            let Decision::Final(asked) = classify(&evidence) else {
                panic!("{version} {case} {file}")
            };
            assert!(
                !asked.outcome.is_infrastructure(),
                "{version} {case} {file} {asked:?}"
            );
            assert!(
                !matches!(asked.cause, Cause::CancelledBy { .. }),
                "{version} {case} {file} {asked:?}"
            );
        }
    }
    assert!(seen > 90, "only {seen} lines were tried");
}

#[test]
fn every_captured_case_is_in_the_table() {
    let table: Vec<Line> = ends_of_commands()
        .into_iter()
        .chain(ends_of_allocations())
        .collect();
    // An array is never submitted here, the reasons are of jobs that wait, the errors of queries.
    let elsewhere = ["array", "pending_reasons", "errors"];
    for version in ["22.05", "24.11"] {
        for entry in std::fs::read_dir(folder(version)).unwrap() {
            let entry = entry.unwrap();
            let name = entry.file_name().into_string().unwrap();
            if entry.path().is_dir() && !elsewhere.contains(&name.as_str()) {
                assert!(table.iter().any(|line| line.0 == name), "{version} {name}");
            }
        }
    }
}

#[test]
fn nothing_that_accounting_says_alone_is_a_success_or_final_too_early() {
    let mut seen = 0;
    for version in ["22.05", "24.11"] {
        for entry in std::fs::read_dir(folder(version)).unwrap() {
            let case = entry.unwrap().file_name().into_string().unwrap();
            let files = [
                "sacct",
                "running.sacct",
                "early.sacct",
                "suspended.sacct",
                "draining.sacct",
                "pending.sacct",
            ];
            for file in files {
                for step in 0..22 {
                    let Some(mut evidence) = captured(version, &case, file, Some(step)) else {
                        continue;
                    };
                    seen += 1;
                    for started in [false, true] {
                        evidence.started = started;
                        let decision = classify(&evidence);
                        if let Decision::Final(verdict) = &decision {
                            assert_ne!(verdict.outcome, Completed, "{version} {case} {file} {step}");
                        }
                        let transient = file != "sacct" && evidence.ended_step().is_none();
                        if transient {
                            assert!(
                                !matches!(decision, Decision::Final(_)),
                                "{version} {case} {file} {decision:?}"
                            );
                        }
                        evidence.settled = true;
                        assert!(matches!(classify(&evidence), Decision::Final(_)));
                        evidence.settled = false;
                    }
                }
            }
        }
    }
    assert!(seen > 800, "only {seen}");
}
