//! Everything that was observed of one attempt, as it is stored beside the verdict.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::sacct::{AccountingRow, Witnesses};
use super::squeue::QueueRow;
use super::state::SlurmState;

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
    /// The wrapper saw SIGTERM before the command had ended.
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
///
/// A source that was not asked, or did not answer, is `None`; an error says that it was asked in vain. Clocks of two
/// machines are never compared: times here are the controller's, but for those in [`StepResult`].
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is one independent observation"
)]
pub struct Evidence {
    /// What runs the steps.
    pub scheduler: Scheduler,
    /// The launcher's record of the end.
    pub result: Option<StepResult>,
    /// The wrapper was seen to start the command, whether or not a result followed.
    pub started: bool,
    /// The last words of srun, or of the unpacking.
    pub launch_said: String,
    /// The last lines of the command's standard error, where slurmstepd writes, too. The command can forge them, so
    /// they never make a success.
    pub stderr_tail: String,
    /// The step's accounting row.
    pub step: Option<AccountingRow>,
    /// The accounting row of the allocation, of the life in which the step ran.
    pub allocation: Option<AccountingRow>,
    /// The accounting row of its batch script.
    pub batch: Option<AccountingRow>,
    /// The job had another life after that one, or is on its way to it.
    pub requeued: bool,
    /// The allocation went on with fewer nodes.
    pub resized: bool,
    /// The allocation in the queue.
    pub queue: Option<QueueRow>,
    /// When the controller chose the job to be preempted (scontrol(1) PreemptTime).
    pub preempted_at: Option<Timestamp>,
    /// When the allocation reaches its time limit.
    pub allocation_end: Option<Timestamp>,
    /// Why accounting could not be asked.
    pub accounting_error: Option<String>,
    /// Why the queue could not be asked.
    pub queue_error: Option<String>,
    /// We asked for the end of this attempt.
    pub cancel_requested: bool,
    /// Our uid on the cluster.
    pub own_uid: Option<u32>,
    /// Accounting had its time: decide from what there is.
    pub settled: bool,
}

impl Evidence {
    /// Takes in what accounting said.
    pub fn take_accounting(&mut self, found: &Witnesses<'_>) {
        self.allocation = found.allocation.cloned();
        self.batch = found.batch.cloned();
        self.step = found.step.cloned();
        let restarts = found.allocation.and_then(|row| row.restarts).unwrap_or(0);
        self.requeued |= found.later_lives > 0 || restarts > 0;
        self.resized |= found.resized;
        self.accounting_error = None;
    }

    /// The command was seen to start.
    pub(super) fn has_started(&self) -> bool {
        self.started || self.result.as_ref().is_some_and(|result| result.started)
    }

    /// Nobody is left to be asked.
    pub(super) fn is_settled(&self) -> bool {
        self.settled || self.scheduler == Scheduler::Local
    }

    /// The step's accounting row, if it is about an end.
    pub(super) fn ended_step(&self) -> Option<&AccountingRow> {
        self.step
            .as_ref()
            .filter(|row| row.state.is_terminal() || row.state == SlurmState::Resizing)
    }

    /// The allocation's accounting row, if it is about an end.
    pub(super) fn ended_allocation(&self) -> Option<&AccountingRow> {
        self.allocation
            .as_ref()
            .filter(|row| row.state.is_terminal() || row.state.is_requeue())
    }

    /// The step was told to end before it ended: the wrapper or the launcher heard SIGTERM, or the step's row shows it.
    /// The wrapper makes it 143, of which sacct takes 128.
    pub(super) fn was_told_to_end(&self) -> bool {
        let by_result = |result: &StepResult| result.term_seen || result.launcher_term;
        let by_row = |row: &AccountingRow| {
            let left = row.exit.is_some_and(|exit| exit.signal == 15 || exit.code == 15);
            left && row.state != SlurmState::Timeout
        };
        self.result.as_ref().is_some_and(by_result) || self.ended_step().is_some_and(by_row)
    }

    /// When the step ended by the controller's clock, in seconds since the epoch.
    pub(super) fn step_end(&self) -> Option<i64> {
        self.ended_step()
            .and_then(|row| row.end)
            .map(Timestamp::as_second)
    }

    /// When the command ended by the node's clock, in seconds since the epoch.
    pub(super) fn command_end(&self) -> Option<i64> {
        let end = self.result.as_ref()?.end?;
        // NaN becomes 0 and is dropped.
        #[expect(
            clippy::cast_possible_truncation,
            reason = "the cast saturates, which is what is wanted"
        )]
        let seconds = end as i64;
        (seconds > 0).then_some(seconds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn evidence_survives_being_stored_and_is_strict() {
        let mut evidence = Evidence {
            result: Some(StepResult {
                exit: Some(3),
                end: Some(1_700_000_000.25),
                ..StepResult::default()
            }),
            preempted_at: Timestamp::from_second(1_700_000_000).ok(),
            step: Some(AccountingRow::new(
                7,
                crate::slurm::RowKind::Step(0),
                SlurmState::Cancelled { by: Some(3) },
            )),
            ..Evidence::default()
        };
        let json = serde_json::to_string(&evidence).unwrap();
        assert_eq!(serde_json::from_str::<Evidence>(&json).unwrap(), evidence);
        assert!(serde_json::from_str::<Evidence>("{\"novel\":1}").is_err());
        assert_eq!(
            serde_json::from_str::<Evidence>("{}").unwrap(),
            Evidence::default()
        );
        assert_eq!(
            (evidence.command_end(), evidence.step_end()),
            (Some(1_700_000_000), None)
        );
        for end in [Some(f64::NAN), Some(-1.0), None] {
            evidence.result.as_mut().unwrap().end = end;
            assert_eq!(evidence.command_end(), None);
        }
    }
}
