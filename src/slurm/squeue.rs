//! Queue rows: `squeue --noheader --format` (squeue(1)), and what a query that failed means.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::sacct::time;
use super::state::SlurmState;

/// Job id, state, reason, nodes, end time, start time (expected, while pending), time limit; the name comes last.
pub const FORMAT: &str = "%i|%T|%r|%N|%e|%S|%l|%j";

/// One job in the queue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueRow {
    /// Its id.
    pub job: u64,
    /// Its state.
    pub state: SlurmState,
    /// Why it waits.
    pub reason: String,
    /// Its nodes.
    pub nodes: String,
    /// When it ends at the latest.
    pub end: Option<Timestamp>,
    /// When it started, or is expected to.
    pub start: Option<Timestamp>,
    /// Its time limit as printed.
    pub limit: String,
    /// Its name.
    pub name: String,
}

/// What a query of the queue came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum QueueAnswer {
    /// The rows; none is an answer too, and no proof of an end.
    Rows(Vec<QueueRow>),
    /// Slurm does not know the id (any more).
    NotInQueue,
    /// The query itself failed: nothing was observed.
    NoObservation(String),
}

/// Reads what `squeue` printed with its exit code.
pub fn parse(code: u8, stdout: &str, stderr: &str) -> QueueAnswer {
    if code != 0 {
        return if stderr.contains("Invalid job id specified") {
            QueueAnswer::NotInQueue
        } else {
            QueueAnswer::NoObservation(stderr.trim().to_owned())
        };
    }
    QueueAnswer::Rows(stdout.lines().filter_map(row).collect())
}

fn row(line: &str) -> Option<QueueRow> {
    let fields: Vec<&str> = line.splitn(8, '|').collect();
    let [job, state, reason, nodes, end, start, limit, name] = fields[..] else {
        return None;
    };
    Some(QueueRow {
        job: job.trim().parse().ok()?,
        state: SlurmState::parse(state),
        reason: reason.to_owned(),
        nodes: nodes.to_owned(),
        end: time(end),
        start: time(start),
        limit: limit.to_owned(),
        name: name.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_failures_and_absence_are_three_things() {
        let text = "7|PENDING|Resources||N/A|1700000000|1:00:00|a|b\n8|RUNNING|None|nid001|1700003600|1700000000|UNLIMITED|x\n";
        let QueueAnswer::Rows(rows) = parse(0, text, "") else {
            panic!("no rows")
        };
        assert_eq!((rows[0].name.as_str(), rows[0].end), ("a|b", None));
        assert_eq!(rows[1].end.unwrap().as_second(), 1_700_003_600);
        assert_eq!(parse(0, "", ""), QueueAnswer::Rows(vec![]));
        assert_eq!(
            parse(1, "", "slurm_load_jobs error: Invalid job id specified"),
            QueueAnswer::NotInQueue
        );
        let down = "slurm_load_jobs error: Unable to contact slurm controller (connect failure)";
        assert_eq!(parse(1, "", down), QueueAnswer::NoObservation(down.to_owned()));
    }
}
