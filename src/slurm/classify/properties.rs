//! What holds of every verdict, whatever the evidence.

use jiff::Timestamp;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

use super::*;
use crate::slurm::{AccountingRow, ExitStatus, QueueRow, RowKind, Scheduler, StepResult, TimeLimit};

fn states() -> impl Strategy<Value = SlurmState> {
    let mut all = SlurmState::NAMED.to_vec();
    for word in ["CANCELLED", "CANCELLED by 7", "CANCELLED by 0", "BRAND_NEW", ""] {
        all.push(SlurmState::parse(word));
    }
    proptest::sample::select(all)
}

fn times() -> impl Strategy<Value = Option<Timestamp>> {
    option::of((1_700_000_000_i64..1_700_001_000).prop_map(|second| Timestamp::from_second(second).unwrap()))
}

fn row(kind: RowKind) -> impl Strategy<Value = AccountingRow> {
    let exits = option::of((0_u16..140, proptest::sample::select(vec![0_u16, 9, 11, 15, 125])));
    (states(), exits, times(), times()).prop_map(move |(state, exit, start, end)| AccountingRow {
        exit: exit.map(|(code, signal)| ExitStatus { code, signal }),
        start,
        end,
        ..AccountingRow::new(7, kind.clone(), state)
    })
}

fn queue() -> impl Strategy<Value = QueueRow> {
    (states(), times()).prop_map(|(state, end)| QueueRow {
        job: 7,
        state,
        reason: String::new(),
        nodes: String::new(),
        limit: TimeLimit::Unlimited,
        start: None,
        end,
        submit: None,
        partition: String::new(),
        comment: None,
        name: String::new(),
    })
}

fn codes() -> impl Strategy<Value = Option<u8>> {
    option::of(prop_oneof![
        any::<u8>(),
        Just(0),
        Just(1),
        Just(137),
        Just(143),
        Just(253)
    ])
}

fn results() -> impl Strategy<Value = StepResult> {
    let launches = option::of(prop_oneof![0_u16..256, Just(0), Just(1), Just(222)]);
    let errors = option::of(proptest::sample::select(vec![
        "unpack".to_owned(),
        "launcher".to_owned(),
    ]));
    (
        codes(),
        launches,
        any::<bool>(),
        vec(any::<bool>(), 8),
        errors,
        times(),
    )
        .prop_map(|(exit, launch, agree, flags, launch_error, end)| StepResult {
            exit,
            launch: if agree { exit.map(u16::from) } else { launch },
            started: flags[0],
            term_seen: flags[1],
            cancelled: flags[2],
            timed_out: flags[3],
            start_timed_out: flags[4],
            launcher_term: flags[5],
            signalled: flags[6],
            missing: flags[7],
            launch_error,
            end: end.map(|end| f64::from(u32::try_from(end.as_second()).unwrap())),
            ..StepResult::default()
        })
}

fn words() -> impl Strategy<Value = String> {
    proptest::sample::select(
        [
            "",
            "slurmstepd: error: *** STEP 7.0 ON nid001 CANCELLED AT 2026-12-01T04:42:21 DUE TO TIME LIMIT ***",
            "slurmstepd: error: *** STEP 7.0 ON nid001 CANCELLED AT 2026-12-01T04:42:21 DUE TO PREEMPTION ***",
            "srun: error: Node failure on nid002",
            "slurmstepd: error: Detected 1 oom_kill event in StepId=7.0.",
            "slurmstepd: error: pyxis: container start failed",
            "anything else",
        ]
        .map(str::to_owned)
        .to_vec(),
    )
}

fn evidences() -> impl Strategy<Value = Evidence> {
    let rows = (
        option::of(row(RowKind::Step(0))),
        option::of(row(RowKind::Allocation)),
        option::of(row(RowKind::Batch)),
        option::of(queue()),
    );
    let rest = (
        vec(any::<bool>(), 6),
        times(),
        times(),
        words(),
        words(),
        option::of(Just(7_u32)),
    );
    (option::of(results()), rows, rest).prop_map(|(result, (step, allocation, batch, queue), rest)| {
        let (flags, preempted_at, allocation_end, launch_said, stderr_tail, own_uid) = rest;
        Evidence {
            scheduler: if flags[0] && flags[1] {
                Scheduler::Local
            } else {
                Scheduler::Slurm
            },
            result,
            started: flags[2],
            launch_said,
            stderr_tail,
            step,
            allocation,
            batch,
            requeued: flags[0] && flags[3],
            resized: flags[1],
            queue,
            preempted_at,
            allocation_end,
            accounting_error: None,
            queue_error: None,
            cancel_requested: flags[4],
            own_uid,
            settled: flags[5],
        }
    })
}

/// The wrapper saw the command end, and nothing had been told to end before.
fn ended_by_itself(result: &StepResult) -> bool {
    result.started && result.exit.is_some() && !result.term_seen && !result.launcher_term
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn settled_evidence_is_decided_and_evidence_can_be_stored(mut evidence in evidences()) {
        let before = classify(&evidence);
        prop_assert_eq!(classify(&evidence), before);
        let json = serde_json::to_string(&evidence).unwrap();
        prop_assert_eq!(&serde_json::from_str::<Evidence>(&json).unwrap(), &evidence);
        evidence.settled = true;
        prop_assert!(matches!(classify(&evidence), Decision::Final(_)));
    }

    #[test]
    fn a_success_needs_positive_evidence(evidence in evidences()) {
        if let Decision::Final(Verdict { outcome: Outcome::Completed, cause }) = classify(&evidence) {
            prop_assert_eq!(cause, Cause::Exit { code: 0 });
            let result = evidence.result.as_ref().unwrap();
            prop_assert!(result.started && result.exit == Some(0) && !result.term_seen);
            let step = evidence.step.as_ref().map(|row| &row.state);
            prop_assert!(result.launch == Some(0) || step == Some(&SlurmState::Completed));
            prop_assert_ne!(step, Some(&SlurmState::OutOfMemory));
        }
    }

    #[test]
    fn a_commands_own_failure_is_never_retried(evidence in evidences()) {
        let Some(result) = &evidence.result else { return Ok(()) };
        // SIGKILL is never certainly the command's own.
        let killed = result.signalled && result.exit == Some(137);
        if ended_by_itself(result) && result.exit != Some(0) && !killed
            && let Decision::Final(verdict) = classify(&evidence)
        {
            prop_assert!(!verdict.outcome.is_infrastructure(), "{:?}", verdict);
            prop_assert_ne!(verdict.outcome, Outcome::Completed);
        }
    }

    #[test]
    fn what_was_never_started_is_never_the_applications_failure(evidence in evidences()) {
        let started = evidence.started || evidence.result.as_ref().is_some_and(|result| result.started);
        if !started && let Decision::Final(verdict) = classify(&evidence) {
            // Slurm's own word for memory is the one thing that shows a command without its wrapper.
            let memory = matches!(verdict.cause, Cause::OutOfMemory { .. } | Cause::TimedOut);
            prop_assert!(verdict.outcome != Outcome::ApplicationFailed || memory, "{:?}", verdict);
            prop_assert_ne!(verdict.outcome, Outcome::Completed);
        }
    }

    #[test]
    fn what_we_cancelled_is_never_retried(mut evidence in evidences()) {
        evidence.cancel_requested = true;
        if let Decision::Final(verdict) = classify(&evidence) {
            prop_assert!(!verdict.outcome.is_infrastructure(), "{:?}", verdict);
            prop_assert!(!matches!(verdict.cause, Cause::CancelledBy { .. }), "{:?}", verdict);
        }
    }

    #[test]
    fn an_attempt_that_is_not_proven_over_is_never_retried(evidence in evidences()) {
        let over = evidence.result.is_some()
            || evidence.requeued
            || evidence.step.as_ref().is_some_and(|row| row.state.is_terminal() || row.state == SlurmState::Resizing)
            || evidence.allocation.as_ref().is_some_and(|row| row.state.is_terminal() || row.state.is_requeue())
            || evidence.queue.as_ref().is_some_and(|row| row.state.is_terminal() || row.state.is_requeue());
        if !over && let Decision::Final(verdict) = classify(&evidence) {
            prop_assert_eq!(verdict.outcome, Outcome::TransportLost);
        }
    }

    #[test]
    fn rows_that_name_no_end_decide_nothing(mut evidence in evidences(), word in "[A-Z]{3,9}X") {
        evidence.settled = false;
        evidence.scheduler = Scheduler::Slurm;
        evidence.requeued = false;
        evidence.result = None;
        evidence.preempted_at = None;
        evidence.queue = None;
        for row in [&mut evidence.step, &mut evidence.allocation].into_iter().flatten() {
            row.state = SlurmState::parse(&word);
        }
        prop_assert_eq!(classify(&evidence), Decision::NeedAccounting);
    }

    #[test]
    fn a_late_row_only_takes_a_success_away(evidence in evidences()) {
        for verdict in [
            Verdict { outcome: Outcome::Completed, cause: Cause::Exit { code: 0 } },
            Verdict { outcome: Outcome::ApplicationFailed, cause: Cause::Exit { code: 3 } },
        ] {
            if let Some(amended) = amend(&verdict, &evidence) {
                prop_assert_eq!(amended.outcome, Outcome::ApplicationFailed);
                prop_assert_ne!(amended, verdict);
            }
        }
    }
}
