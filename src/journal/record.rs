//! The record of one invocation and its legal transitions.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::ids::{InvocationId, SnapshotId};
use crate::job::Verdict;
use crate::runner::Report;

/// How far an invocation is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Phase {
    /// Known here only.
    Prepared,
    /// About to be sent, or sent and not answered.
    Submitting,
    /// The cluster has it.
    Submitted,
    /// The command runs, or ran.
    Running,
    /// It has an outcome.
    Completed,
    /// The outcome was delivered to whoever asked.
    Acknowledged,
}

/// One attempt.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Attempt {
    /// From 1.
    pub number: u32,
    /// The allocation's directory, `LEASE/SEQUENCE`: also the mark that the remote effect bears.
    pub generation: String,
    /// When it was about to be sent.
    pub submitting_at: Timestamp,
    /// How it ended, if it did.
    pub verdict: Option<Verdict>,
}

/// The record of one invocation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    /// Version of the format, 1.
    pub schema_version: u32,
    /// Its id.
    pub invocation: InvocationId,
    /// The profile it was asked of.
    pub profile: String,
    /// The command. Values of the environment are never written.
    pub argv: Vec<String>,
    /// What is measured.
    pub snapshot: SnapshotId,
    /// When it was asked for.
    pub created_at: Timestamp,
    /// How far it is.
    pub phase: Phase,
    /// Its attempts, in order.
    pub attempts: Vec<Attempt>,
    /// How it ended.
    pub report: Option<Report>,
}

/// A transition that the order of things does not allow.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invocation {invocation} is {from:?} and cannot become {to:?}")]
pub struct TransitionError {
    /// The invocation.
    pub invocation: InvocationId,
    /// Where it is.
    pub from: Phase,
    /// Where it should go.
    pub to: Phase,
}

impl Record {
    /// A record of an invocation that nobody has heard of yet.
    pub fn prepared(
        invocation: InvocationId,
        profile: String,
        argv: Vec<String>,
        snapshot: SnapshotId,
        now: Timestamp,
    ) -> Self {
        Self {
            schema_version: 1,
            invocation,
            profile,
            argv,
            snapshot,
            created_at: now,
            phase: Phase::Prepared,
            attempts: Vec::new(),
            report: None,
        }
    }

    fn step(&mut self, to: Phase, from: &[Phase]) -> Result<(), TransitionError> {
        if !from.contains(&self.phase) {
            return Err(TransitionError {
                invocation: self.invocation.clone(),
                from: self.phase,
                to,
            });
        }
        self.phase = to;
        Ok(())
    }

    /// The intent to send attempt n+1; comes before the effect.
    ///
    /// # Errors
    /// Only a prepared invocation may be sent.
    pub fn submitting(&mut self, generation: String, now: Timestamp) -> Result<u32, TransitionError> {
        self.step(Phase::Submitting, &[Phase::Prepared])?;
        let number = u32::try_from(self.attempts.len())
            .unwrap_or(u32::MAX)
            .saturating_add(1);
        self.attempts.push(Attempt {
            number,
            generation,
            submitting_at: now,
            verdict: None,
        });
        Ok(number)
    }

    /// The attempt was provably never taken by a launcher: it goes back as if it had not been sent.
    ///
    /// # Errors
    /// It is not in the cluster's hands.
    pub fn withdrawn(&mut self) -> Result<(), TransitionError> {
        self.step(Phase::Prepared, &[Phase::Submitting, Phase::Submitted])?;
        self.attempts.pop();
        Ok(())
    }

    /// The cluster has it.
    ///
    /// # Errors
    /// It was not being sent.
    pub fn submitted(&mut self) -> Result<(), TransitionError> {
        if self.phase == Phase::Running {
            return Ok(()); // told again after a lost connection
        }
        self.step(Phase::Submitted, &[Phase::Submitting, Phase::Submitted])
    }

    /// The command runs.
    ///
    /// # Errors
    /// It was not sent.
    pub fn running(&mut self) -> Result<(), TransitionError> {
        self.step(
            Phase::Running,
            &[Phase::Submitting, Phase::Submitted, Phase::Running],
        )
    }

    /// It has an outcome.
    ///
    /// # Errors
    /// It has one already.
    pub fn completed(&mut self, report: Report) -> Result<(), TransitionError> {
        self.step(
            Phase::Completed,
            &[
                Phase::Prepared,
                Phase::Submitting,
                Phase::Submitted,
                Phase::Running,
            ],
        )?;
        if let Some(attempt) = self.attempts.last_mut() {
            attempt.verdict = Some(report.verdict.clone());
        }
        self.report = Some(report);
        Ok(())
    }

    /// The outcome was delivered.
    ///
    /// # Errors
    /// There is none.
    pub fn acknowledged(&mut self) -> Result<(), TransitionError> {
        self.step(Phase::Acknowledged, &[Phase::Completed, Phase::Acknowledged])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> Record {
        let snapshot = "0".repeat(64).parse().unwrap();
        Record::prepared(
            InvocationId::random().unwrap(),
            "p".into(),
            vec!["true".into()],
            snapshot,
            Timestamp::UNIX_EPOCH,
        )
    }

    #[test]
    fn an_attempt_is_counted_when_it_is_intended_and_only_a_prepared_one_is_sent() {
        let mut record = record();
        assert_eq!(record.submitting("l/1".into(), Timestamp::UNIX_EPOCH).unwrap(), 1);
        assert!(record.submitting("l/1".into(), Timestamp::UNIX_EPOCH).is_err());
        record.submitted().unwrap();
        record.withdrawn().unwrap();
        assert_eq!(record.submitting("l/2".into(), Timestamp::UNIX_EPOCH).unwrap(), 1);
        record.running().unwrap();
        assert!(record.withdrawn().is_err());
        assert!(record.acknowledged().is_err());
    }

    #[test]
    fn a_record_of_another_shape_is_refused() {
        let mut value = serde_json::to_value(record()).unwrap();
        value["surprise"] = 1.into();
        assert!(serde_json::from_value::<Record>(value).is_err());
    }
}
