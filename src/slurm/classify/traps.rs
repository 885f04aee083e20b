//! One test for each way in which an end looks like another one.

use jiff::Timestamp;

use super::captured::{captured, ended, is, killed_by, told_to_end};
use super::*;
use crate::slurm::squeue::{self, QueueAnswer};
use crate::slurm::{AccountingRow, ExitStatus, RowKind, Scheduler, StepResult};

fn at(second: i64) -> Option<Timestamp> {
    Timestamp::from_second(1_700_000_000 + second).ok()
}

fn row(kind: RowKind, state: &str, exit: &str, end: i64) -> AccountingRow {
    AccountingRow {
        start: at(0),
        end: at(end),
        exit: ExitStatus::parse(exit),
        ..AccountingRow::new(7, kind, SlurmState::parse(state))
    }
}

#[expect(clippy::unnecessary_wraps, reason = "what evidence holds")]
fn step(state: &str, exit: &str, end: i64) -> Option<AccountingRow> {
    Some(row(RowKind::Step(0), state, exit, end))
}

#[expect(clippy::unnecessary_wraps, reason = "what evidence holds")]
fn allocation(state: &str, end: i64) -> Option<AccountingRow> {
    Some(row(RowKind::Allocation, state, "0:0", end))
}

fn queue(state: &str) -> Option<crate::slurm::QueueRow> {
    let line = format!("7|{state}|None|nid001|1:00:00|1700000000|1700003600|1700000000|mi300||x");
    let QueueAnswer::Rows { mut rows, .. } = squeue::parse(0, &line, "") else {
        panic!("{line}")
    };
    rows.pop()
}

fn with(result: StepResult) -> Evidence {
    Evidence {
        result: Some(result),
        ..Evidence::default()
    }
}

fn settled(evidence: &Evidence) -> Verdict {
    let evidence = Evidence {
        settled: true,
        ..evidence.clone()
    };
    let Decision::Final(verdict) = classify(&evidence) else {
        panic!("{evidence:?}")
    };
    verdict
}

fn application(cause: Cause) -> Decision {
    Decision::of(Outcome::ApplicationFailed, cause)
}

#[test]
fn a_result_that_all_agree_on_needs_no_accounting() {
    for (code, outcome) in [(0, Outcome::Completed), (7, Outcome::ApplicationFailed)] {
        let decision = classify(&with(ended(code, u16::from(code))));
        assert_eq!(decision, Decision::of(outcome, Cause::Exit { code }));
    }
    assert_eq!(
        classify(&with(killed_by(11))),
        application(Cause::Signal { signal: 11 })
    );
    // A command may exit with srun's own code, or with one that only looks like a signal.
    for code in [222, 223, 139, 255] {
        assert_eq!(
            classify(&with(ended(code, u16::from(code)))),
            application(Cause::Exit { code })
        );
    }
}

#[test]
fn doubt_waits_for_accounting_and_then_settles() {
    let no_code = StepResult {
        exit: None,
        ..ended(0, 1)
    };
    for result in [killed_by(9), told_to_end(), ended(0, 222), ended(3, 222), no_code] {
        let evidence = with(result);
        assert_eq!(classify(&evidence), Decision::NeedAccounting, "{evidence:?}");
        assert!(!settled(&evidence).outcome.is_infrastructure());
    }
    assert_eq!(classify(&Evidence::default()), Decision::NeedAccounting);
    assert_eq!(settled(&Evidence::default()).outcome, Outcome::TransportLost);
}

#[test]
fn a_container_that_did_not_start_is_not_the_application() {
    let mut evidence = with(StepResult {
        launch: Some(1),
        ..StepResult::default()
    });
    evidence.launch_said = "srun: error: nid001: task 0: Exited with exit code 1".into();
    evidence.stderr_tail = "slurmstepd: error: pyxis: container start failed with error code: 1".into();
    // Somebody may have cancelled it, or the allocation may have died under it.
    assert_eq!(classify(&evidence), Decision::NeedAccounting);
    evidence.allocation = allocation("RUNNING", 0);
    evidence.step = step("FAILED", "1:0", 5);
    let Decision::Final(verdict) = classify(&evidence) else {
        panic!("not decided")
    };
    assert_eq!(verdict.outcome, Outcome::NodeFailed);
    assert!(
        verdict
            .cause
            .to_string()
            .contains("pyxis: container start failed")
    );
    evidence.step = step("CANCELLED by 42", "0:9", 5);
    let by = Cause::CancelledBy { uid: Some(42) };
    assert_eq!(classify(&evidence), Decision::of(Outcome::Cancelled, by));
}

#[test]
fn a_time_limit_that_ran_out_before_the_start_is_a_failed_start() {
    let mut evidence = with(StepResult {
        timed_out: true,
        launch: Some(137),
        ..StepResult::default()
    });
    assert_eq!(settled(&evidence).outcome, Outcome::NodeFailed);
    evidence.started = true;
    assert_eq!(classify(&evidence), application(Cause::TimedOut));
}

#[test]
fn what_an_unpack_left_is_no_end_of_a_step() {
    let evidence = with(StepResult {
        launch_error: Some("unpack".into()),
        ..StepResult::default()
    });
    let Decision::Final(verdict) = classify(&evidence) else {
        panic!("not decided")
    };
    assert_eq!(
        verdict.cause,
        Cause::LaunchFailed {
            message: "unpack failed".into()
        }
    );
}

#[test]
fn memory_that_ran_out_counts_though_the_command_exited_0() {
    let early = is(Outcome::Completed, Cause::Exit { code: 0 });
    let late = captured("22.05", "oom_step", "sacct", Some(0)).unwrap();
    let late = Evidence {
        result: Some(ended(0, 0)),
        ..late
    };
    assert_eq!(
        amend(&early, &late).unwrap().cause,
        Cause::OutOfMemory { code: Some(0) }
    );
    let fine = captured("22.05", "drain", "sacct", Some(0)).unwrap();
    assert_eq!(amend(&early, &fine), None);
    // The words come before the row does.
    let mut evidence = with(ended(0, 0));
    evidence.stderr_tail = "slurmstepd: error: Detected 1 oom_kill event in StepId=7.0.".into();
    assert_eq!(classify(&evidence), Decision::NeedAccounting);
    assert_eq!(settled(&evidence).cause, Cause::OutOfMemory { code: Some(0) });
    // The row says that they were forged.
    evidence.step = step("COMPLETED", "0:0", 5);
    assert_eq!(classify(&evidence), Decision::Final(early));
}

#[test]
fn an_exit_code_of_253_is_not_out_of_memory() {
    let mut evidence = with(ended(253, 253));
    evidence.step = step("OUT_OF_MEMORY", "0:125", 5);
    assert_eq!(classify(&evidence), application(Cause::Exit { code: 253 }));
    evidence.stderr_tail = "slurmstepd: error: Detected 1 oom_kill event in StepId=7.0.".into();
    assert_eq!(
        classify(&evidence),
        application(Cause::OutOfMemory { code: Some(253) })
    );
}

#[test]
fn memory_of_the_batch_script_is_not_the_commands() {
    let mut evidence = with(ended(7, 7));
    evidence.allocation = allocation("OUT_OF_MEMORY", 9);
    assert_eq!(classify(&evidence), application(Cause::Exit { code: 7 }));
    evidence.result = None;
    assert_eq!(settled(&evidence).outcome, Outcome::NodeFailed);
}

#[test]
fn an_allocation_that_ended_later_does_not_explain_an_earlier_end() {
    let mut evidence = Evidence {
        started: true,
        step: step("CANCELLED", "0:9", 10),
        allocation: allocation("TIMEOUT", 3600),
        ..Evidence::default()
    };
    assert_eq!(classify(&evidence), application(Cause::Signal { signal: 9 }));
    evidence.step = step("CANCELLED by 42", "0:9", 10);
    let by = Cause::CancelledBy { uid: Some(42) };
    assert_eq!(classify(&evidence), Decision::of(Outcome::Cancelled, by));
    evidence.step = step("CANCELLED", "0:9", 3601);
    assert_eq!(
        classify(&evidence),
        Decision::of(Outcome::AllocationExpired, Cause::TimeLimit)
    );
}

#[test]
fn a_kill_of_the_end_waits_for_the_row_of_the_allocation() {
    let mut evidence = Evidence {
        started: true,
        step: step("CANCELLED", "0:15", 10),
        allocation: allocation("RUNNING", 0),
        queue: queue("COMPLETING"),
        ..Evidence::default()
    };
    assert_eq!(classify(&evidence), Decision::NeedAccounting);
    assert_eq!(settled(&evidence).cause, Cause::Signal { signal: 15 });
    evidence.queue = queue("PREEMPTED");
    assert_eq!(
        classify(&evidence),
        Decision::of(Outcome::Preempted, Cause::Preemption)
    );
}

#[test]
fn the_grace_time_of_a_preemption_is_one() {
    let mut evidence = captured("24.11", "preempted_low", "during.sacct", Some(0)).unwrap();
    evidence.started = true;
    assert_eq!(classify(&evidence), Decision::NeedAccounting);
    evidence.preempted_at = at(0);
    assert_eq!(
        classify(&evidence),
        Decision::of(Outcome::Preempted, Cause::Preemption)
    );
    // A command that ended before it was told to is not preempted.
    evidence.result = Some(ended(3, 3));
    assert_eq!(classify(&evidence), application(Cause::Exit { code: 3 }));
}

#[test]
fn a_requeued_job_is_told_by_its_count() {
    let mut evidence = captured("24.11", "node_fail_requeue", "sacct", Some(0)).unwrap();
    evidence.requeued = true;
    assert_eq!(
        classify(&evidence),
        Decision::of(Outcome::Preempted, Cause::Preemption)
    );
    evidence.stderr_tail = "srun: error: Node failure on nid102".into();
    let node = Some("nid102".to_owned());
    assert_eq!(
        classify(&evidence),
        Decision::of(Outcome::NodeFailed, Cause::NodeFailure { node })
    );
    for state in ["REQUEUED", "REQUEUE_HOLD", "SPECIAL_EXIT"] {
        let evidence = Evidence {
            queue: queue(state),
            ..Evidence::default()
        };
        assert_eq!(
            classify(&evidence),
            Decision::of(Outcome::Preempted, Cause::Preemption)
        );
    }
}

#[test]
fn a_launcher_that_dies_takes_its_steps_along_in_our_name() {
    let mut evidence = Evidence {
        started: true,
        own_uid: Some(42),
        step: step("CANCELLED by 42", "0:9", 10),
        allocation: allocation("FAILED", 9),
        batch: Some(row(RowKind::Batch, "CANCELLED", "0:9", 10)),
        ..Evidence::default()
    };
    assert_eq!(settled(&evidence).outcome, Outcome::NodeFailed);
    evidence.own_uid = Some(43);
    assert_eq!(settled(&evidence).outcome, Outcome::Cancelled);
    let mut evidence = with(StepResult {
        exit: None,
        launch_error: Some("launcher".into()),
        ..ended(0, 0)
    });
    evidence.own_uid = Some(42);
    evidence.step = step("CANCELLED by 42", "0:9", 10);
    assert_eq!(settled(&evidence).outcome, Outcome::NodeFailed);
}

#[test]
fn a_step_that_was_signalled_by_somebody_is_no_measurement() {
    for code in [0, 143] {
        let mut evidence = with(StepResult {
            term_seen: true,
            ..ended(code, u16::from(code))
        });
        evidence.allocation = allocation("RUNNING", 0);
        assert_eq!(classify(&evidence), Decision::NeedAccounting);
        let verdict = settled(&evidence);
        assert_eq!(verdict, is(Outcome::Cancelled, Cause::CancelledBy { uid: None }));
        // It was a preemption, and the row came late.
        evidence.allocation = allocation("PREEMPTED", 300);
        assert_eq!(amend(&verdict, &evidence).unwrap().outcome, Outcome::Preempted);
    }
}

#[test]
fn an_end_at_the_limit_needs_no_row_in_the_end() {
    let mut evidence = with(StepResult {
        end: Some(1_700_003_590.5),
        ..told_to_end()
    });
    assert_eq!(settled(&evidence).outcome, Outcome::TransportLost);
    evidence.allocation_end = at(3600);
    assert_eq!(classify(&evidence), Decision::NeedAccounting);
    assert_eq!(settled(&evidence).outcome, Outcome::AllocationExpired);
    evidence.allocation_end = at(36_000);
    evidence.accounting_error = Some("Connection refused".into());
    let verdict = settled(&evidence);
    assert_eq!(verdict.outcome, Outcome::TransportLost);
    assert!(verdict.cause.to_string().contains("sacct: Connection refused"));
}

#[test]
fn what_we_asked_for_is_ours_unless_the_command_was_faster() {
    let mut evidence = with(told_to_end());
    evidence.cancel_requested = true;
    assert_eq!(
        classify(&evidence),
        Decision::of(Outcome::Cancelled, Cause::CancelledByUs)
    );
    evidence.result = Some(ended(3, 3));
    assert_eq!(classify(&evidence), application(Cause::Exit { code: 3 }));
    evidence.result = Some(ended(0, 0));
    assert_eq!(
        classify(&evidence),
        Decision::of(Outcome::Completed, Cause::Exit { code: 0 })
    );
}

#[test]
fn a_success_that_was_not_told_to_end_is_one_though_the_allocation_was() {
    let mut evidence = with(StepResult {
        launcher_term: true,
        ..ended(0, 0)
    });
    evidence.allocation = allocation("TIMEOUT", 10);
    assert_eq!(
        classify(&evidence),
        Decision::of(Outcome::Completed, Cause::Exit { code: 0 })
    );
    evidence.result.as_mut().unwrap().term_seen = true;
    assert_eq!(
        classify(&evidence),
        Decision::of(Outcome::AllocationExpired, Cause::TimeLimit)
    );
}

#[test]
fn a_success_that_srun_does_not_confirm_needs_slurms_row() {
    let mut evidence = with(ended(0, 222));
    assert_eq!(settled(&evidence).outcome, Outcome::TransportLost);
    evidence.step = step("FAILED", "1:0", 5);
    assert_eq!(settled(&evidence).outcome, Outcome::TransportLost);
    evidence.step = step("COMPLETED", "0:0", 5);
    assert_eq!(
        classify(&evidence),
        Decision::of(Outcome::Completed, Cause::Exit { code: 0 })
    );
}

#[test]
fn waiting_and_running_are_no_end() {
    for state in [
        "PENDING",
        "CONFIGURING",
        "RUNNING",
        "SUSPENDED",
        "RESIZING",
        "RESV_DEL_HOLD",
    ] {
        let evidence = Evidence {
            queue: queue(state),
            ..Evidence::default()
        };
        assert_eq!(classify(&evidence), Decision::StillRunning, "{state}");
    }
    for state in [
        "COMPLETING",
        "STAGE_OUT",
        "COMPLETED",
        "FAILED",
        "CANCELLED",
        "HIBERNATING",
    ] {
        let evidence = Evidence {
            queue: queue(state),
            ..Evidence::default()
        };
        assert_eq!(classify(&evidence), Decision::NeedAccounting, "{state}");
    }
    let running = Evidence {
        step: step("RUNNING", "0:0", 0),
        allocation: allocation("RUNNING", 0),
        ..Evidence::default()
    };
    assert_eq!(classify(&running), Decision::StillRunning);
}

#[test]
fn an_unknown_state_is_nothing_but_shown() {
    let evidence = Evidence {
        step: step("HIBERNATED", "0:0", 5),
        allocation: allocation("ASCENDED", 5),
        ..Evidence::default()
    };
    assert_eq!(classify(&evidence), Decision::NeedAccounting);
    let verdict = settled(&evidence);
    assert_eq!(verdict.outcome, Outcome::TransportLost);
    assert!(
        verdict.cause.to_string().contains("`HIBERNATED`"),
        "{}",
        verdict.cause
    );
}

#[test]
fn the_local_runner_has_nobody_to_ask() {
    let local = |result| Evidence {
        scheduler: Scheduler::Local,
        ..with(result)
    };
    let outcome = |result| {
        let decision = classify(&local(result));
        let Decision::Final(verdict) = decision else {
            panic!("{decision:?}")
        };
        verdict.outcome
    };
    assert_eq!(outcome(killed_by(9)), Outcome::ApplicationFailed);
    assert_eq!(outcome(ended(0, 0)), Outcome::Completed);
    assert_eq!(outcome(StepResult::default()), Outcome::NodeFailed);
    assert_eq!(
        outcome(StepResult {
            exit: None,
            ..ended(0, 137)
        }),
        Outcome::TransportLost
    );
}

#[test]
fn a_lost_node_is_named_where_anybody_names_it() {
    let mut evidence = captured("22.05", "node_fail_norequeue", "sacct", Some(0)).unwrap();
    evidence.stderr_tail =
        include_str!("../../../tests/fixtures/slurm/22.05/node_fail_norequeue/slurm-22.out").into();
    let node = Some("nid002".to_owned());
    assert_eq!(
        classify(&evidence),
        Decision::of(Outcome::NodeFailed, Cause::NodeFailure { node })
    );
}

#[test]
fn a_lost_verdict_is_amended_by_what_comes_late() {
    let lost = settled(&with(told_to_end()));
    assert_eq!(lost.outcome, Outcome::TransportLost);
    let mut late = captured("22.05", "timeout", "sacct", Some(0)).unwrap();
    late.result = Some(told_to_end());
    assert_eq!(amend(&lost, &late).unwrap().outcome, Outcome::AllocationExpired);
    assert_eq!(
        amend(
            &lost,
            &Evidence {
                settled: true,
                ..with(told_to_end())
            }
        ),
        None
    );
}
