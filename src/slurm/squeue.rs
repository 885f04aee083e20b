//! Queue rows: `squeue --noheader --format` (squeue(1)), and what no row means.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::failure::QueryFailure;
use super::id::{JobPart, RowKind, parse_id};
use super::sacct::BadRow;
use super::state::SlurmState;
use super::time::{TimeLimit, epoch};

/// Id, state, reason, nodes, time limit, start (expected, while pending), end, submit time, partition, comment, name.
///
/// Widths are left out: squeue then prints a value whole. A name can hold the delimiter and comes last; our own
/// comments never hold it, and one of somebody else's job would only spoil that job's name.
pub const FORMAT: &str = "%i|%T|%r|%N|%l|%S|%e|%V|%P|%k|%j";

/// Id, nodes, start, time limit, name: the fields that `squeue --steps` has.
pub const STEP_FORMAT: &str = "%i|%N|%S|%l|%j";

/// One job in the queue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QueueRow {
    /// Its number.
    pub job: u64,
    /// Its state.
    pub state: SlurmState,
    /// Why it waits; `None` in Slurm's word when it does not.
    pub reason: String,
    /// Its nodes, empty before it has any. While COMPLETING only those that are not yet free.
    pub nodes: String,
    /// Its time limit.
    pub limit: TimeLimit,
    /// When it started, or is expected to.
    pub start: Option<Timestamp>,
    /// When it ended, or ends at the latest.
    pub end: Option<Timestamp>,
    /// When it was submitted; a requeue sets it anew.
    pub submit: Option<Timestamp>,
    /// Its partition.
    pub partition: String,
    /// Its comment.
    pub comment: Option<String>,
    /// Its name.
    pub name: String,
}

/// One running step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StepRow {
    /// The number of its job.
    pub job: u64,
    /// Which step.
    pub kind: RowKind,
    /// Its nodes.
    pub nodes: String,
    /// When it started.
    pub start: Option<Timestamp>,
    /// Its time limit.
    pub limit: TimeLimit,
    /// Its name.
    pub name: String,
}

/// What a query came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum QueueAnswer<R = QueueRow> {
    /// There are rows.
    Rows {
        /// Those that could be read.
        rows: Vec<R>,
        /// Those that could not.
        bad: Vec<BadRow>,
    },
    /// The query succeeded and named nothing. One such answer proves no end.
    Empty,
    /// Slurm does not know the id (any more). Accounting has the last word.
    NotInQueue,
    /// The query failed: nothing was observed.
    NoObservation(String),
}

/// Reads what `squeue` printed for [`FORMAT`], with its exit code.
pub fn parse(code: u8, stdout: &str, stderr: &str) -> QueueAnswer {
    read(code, stdout, stderr, job_row)
}

/// Reads what `squeue --steps` printed for [`STEP_FORMAT`], with its exit code.
pub fn parse_steps(code: u8, stdout: &str, stderr: &str) -> QueueAnswer<StepRow> {
    read(code, stdout, stderr, step_row)
}

fn read<R>(code: u8, stdout: &str, stderr: &str, row: fn(&str) -> Option<R>) -> QueueAnswer<R> {
    let complaint = stderr.trim();
    // Not every release ends with an error when it complains, so a complaint without any row is no answer either.
    if code != 0 || (stdout.trim().is_empty() && complaint.contains("error")) {
        return match QueryFailure::classify(complaint) {
            QueryFailure::UnknownJob => QueueAnswer::NotInQueue,
            QueryFailure::Transient | QueryFailure::Denied | QueryFailure::Usage | QueryFailure::Other => {
                QueueAnswer::NoObservation(if complaint.is_empty() {
                    format!("squeue ended with exit code {code} and without a word")
                } else {
                    complaint.to_owned()
                })
            }
        };
    }
    let (mut rows, mut bad) = (Vec::new(), Vec::new());
    for line in stdout.lines().filter(|line| !line.trim().is_empty()) {
        match row(line) {
            Some(row) => rows.push(row),
            None => bad.push(BadRow {
                line: line.to_owned(),
                why: "not a row of the format that was asked for".to_owned(),
            }),
        }
    }
    if rows.is_empty() && bad.is_empty() {
        QueueAnswer::Empty
    } else {
        QueueAnswer::Rows { rows, bad }
    }
}

impl QueueAnswer {
    /// The row of a job; `Ok(None)` if squeue said that it is not there.
    ///
    /// # Errors
    /// Nothing was observed: the query failed, or a row that could be the job's cannot be read.
    pub fn job(self, job: u64) -> Result<Option<QueueRow>, String> {
        match self {
            Self::Rows { rows, bad } => match (rows.into_iter().find(|row| row.job == job), bad.first()) {
                (Some(row), _) => Ok(Some(row)),
                (None, None) => Ok(None),
                (None, Some(bad)) => Err(bad.to_string()),
            },
            Self::Empty | Self::NotInQueue => Ok(None),
            Self::NoObservation(words) => Err(words),
        }
    }
}

fn job_row(line: &str) -> Option<QueueRow> {
    let cells: Vec<&str> = line.splitn(11, '|').collect();
    let [
        id,
        state,
        reason,
        nodes,
        limit,
        start,
        end,
        submit,
        partition,
        comment,
        name,
    ] = cells.as_slice()
    else {
        return None;
    };
    let (job, kind) = parse_id(id)?;
    if kind != RowKind::Allocation || state.trim().is_empty() {
        return None;
    }
    Some(QueueRow {
        job: job.number,
        state: SlurmState::parse(state),
        reason: reason.trim().to_owned(),
        nodes: nodes.trim().to_owned(),
        limit: TimeLimit::parse(limit),
        start: epoch(start),
        end: epoch(end),
        submit: epoch(submit),
        partition: partition.trim().to_owned(),
        comment: match *comment {
            "" | "(null)" => None,
            comment => Some(comment.to_owned()),
        },
        name: (*name).to_owned(),
    })
}

fn step_row(line: &str) -> Option<StepRow> {
    let cells: Vec<&str> = line.splitn(5, '|').collect();
    let [id, nodes, start, limit, name] = cells.as_slice() else {
        return None;
    };
    let (job, kind) = parse_id(id)?;
    if kind == RowKind::Allocation || job.part != JobPart::Whole {
        return None;
    }
    Some(StepRow {
        job: job.number,
        kind,
        nodes: nodes.trim().to_owned(),
        start: epoch(start),
        limit: TimeLimit::parse(limit),
        name: (*name).to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TWO: &str = "7|PENDING|Resources||1:00:00|N/A|N/A|1700000000|mi300||a|b\n\
                       8|RUNNING|None|nid[001-002]|UNLIMITED|1700000000|1700003600|1699999999|mi300|(null)|x\n";

    #[test]
    fn rows_absence_and_failure_are_four_things() {
        let QueueAnswer::Rows { rows, bad } = parse(0, TWO, "") else {
            panic!("no rows")
        };
        assert!(bad.is_empty());
        assert_eq!((rows[0].name.as_str(), rows[0].start), ("a|b", None));
        assert_eq!(rows[0].limit.to_string(), "0-01:00:00");
        assert_eq!(rows[1].end.unwrap().as_second(), 1_700_003_600);
        assert_eq!(
            (rows[1].comment.as_deref(), &rows[1].limit),
            (None, &TimeLimit::Unlimited)
        );
        assert_eq!(parse(0, "\n", ""), QueueAnswer::Empty);
        assert_eq!(
            parse(1, "", "slurm_load_jobs error: Invalid job id specified"),
            QueueAnswer::NotInQueue
        );
        let down = "slurm_load_jobs error: Unable to contact slurm controller (connect failure)";
        assert_eq!(parse(1, "", down), QueueAnswer::NoObservation(down.to_owned()));
        assert!(matches!(parse(0, "", down), QueueAnswer::NoObservation(_)));
        assert!(matches!(parse(124, "", ""), QueueAnswer::NoObservation(_)));
    }

    #[test]
    fn a_row_that_cannot_be_read_is_not_an_absence() {
        assert_eq!(parse(0, TWO, "").job(8).unwrap().unwrap().nodes, "nid[001-002]");
        assert_eq!(parse(0, TWO, "").job(9), Ok(None));
        let cut = format!("{TWO}9|RUNN\n");
        assert!(parse(0, &cut, "").job(9).is_err());
        assert!(parse(0, &cut, "").job(7).unwrap().is_some());
        assert_eq!(parse(0, "", "").job(9), Ok(None));
        assert!(
            parse(1, "", "Socket timed out on send/recv operation")
                .job(9)
                .is_err()
        );
    }

    #[test]
    fn steps_are_found_by_their_name() {
        let text = "62.extern|nid[001-003]|1700000000|UNLIMITED|extern\n\
                    62.11|nid001|1700000000|UNLIMITED|vs-1|2\n62.TBD|nid001|N/A|UNLIMITED|y\n";
        let QueueAnswer::Rows { rows, bad } = parse_steps(0, text, "") else {
            panic!("no rows")
        };
        assert!(bad.is_empty());
        let ours = rows.iter().find(|row| row.name == "vs-1|2").unwrap();
        assert_eq!((ours.job, &ours.kind), (62, &RowKind::Step(11)));
        assert_eq!(rows[2].kind, RowKind::ToBeDetermined);
    }

    #[test]
    fn every_captured_failure_of_a_query_is_no_state() {
        for text in [
            include_str!("../../tests/fixtures/slurm/22.05/errors/daemons.txt"),
            include_str!("../../tests/fixtures/slurm/24.11/errors/daemons.txt"),
        ] {
            let mut seen = 0;
            for case in text.split("$ ").filter(|case| case.starts_with("squeue")) {
                let Some((_, output)) = case.split_once('\n') else {
                    continue;
                };
                if output.contains("rc=1") {
                    seen += 1;
                    assert!(
                        matches!(parse(1, "", output), QueueAnswer::NoObservation(_)),
                        "{case}"
                    );
                }
            }
            assert_eq!(seen, 1);
        }
    }

    proptest! {
        #[test]
        fn no_output_is_too_odd(code in any::<u8>(), out in "(\\PC|\n|\\|)*", err in ".*") {
            drop(parse(code, &out, &err).job(1));
            drop(parse_steps(code, &out, &err));
        }
    }
}
