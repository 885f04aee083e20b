//! Accounting rows: `sacct --parsable2 --noheader` (sacct(1)). Text, because `--json` of 22.05 reports 0 for failed jobs.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::state::SlurmState;

/// The fields we ask for, all known to every release from 21.08 on (FailedNode is not). The job name may hold the delimiter and comes last.
pub const FORMAT: &str = "JobID,State,ExitCode,DerivedExitCode,Start,End,NodeList,Reason,JobName";

/// What a row is about.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RowKind {
    /// The allocation.
    Allocation,
    /// The batch script.
    Batch,
    /// The external step that every allocation has.
    Extern,
    /// One `srun`.
    Step(u32),
    /// Interactive, to be determined, heterogeneous: nothing we start.
    Other(String),
}

/// `rc:signal` of sacct. sacct subtracts 128 from codes of 128 and above, so this is a witness, never the source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExitPair {
    /// The code.
    pub code: u16,
    /// The signal; 125 stands for out of memory.
    pub signal: u16,
}

/// One row.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AccountingRow {
    /// The job id as printed before the first dot.
    pub job: String,
    /// What it is about.
    pub kind: RowKind,
    /// Its state.
    pub state: SlurmState,
    /// Its exit code; empty for a batch step whose node died.
    pub exit: Option<ExitPair>,
    /// The highest code of all steps.
    pub derived_exit: Option<ExitPair>,
    /// When it started.
    pub start: Option<Timestamp>,
    /// When it ended.
    pub end: Option<Timestamp>,
    /// Its nodes.
    pub nodes: Option<String>,
    /// Slurm's reason.
    pub reason: Option<String>,
    /// The node whose failure ended it.
    pub failed_node: Option<String>,
    /// Its name.
    pub name: String,
}

/// Reads the output for [`FORMAT`], or for the `format` it was asked with. A row that cannot be read does not hide the others.
pub fn parse(format: &str, text: &str) -> Vec<Result<AccountingRow, String>> {
    let fields: Vec<&str> = format.split(',').collect();
    text.lines()
        .filter(|line| !line.trim().is_empty())
        .map(|line| row(&fields, line).ok_or_else(|| line.to_owned()))
        .collect()
}

fn row(fields: &[&str], line: &str) -> Option<AccountingRow> {
    let values: Vec<&str> = line.splitn(fields.len(), '|').collect();
    if values.len() != fields.len() {
        return None;
    }
    let field = |name: &str| -> Option<&str> {
        let at = fields.iter().position(|field| *field == name)?;
        let value = values.get(at)?.trim();
        let nothing = ["", "None", "Unknown", "N/A", "None assigned", "(null)"].contains(&value);
        (!nothing).then_some(value)
    };
    let id = field("JobID")?;
    let (job, kind) = match id.split_once('.') {
        None => (id, RowKind::Allocation),
        Some((job, "batch")) => (job, RowKind::Batch),
        Some((job, "extern")) => (job, RowKind::Extern),
        Some((job, step)) => (
            job,
            step.parse()
                .map_or_else(|_| RowKind::Other(step.to_owned()), RowKind::Step),
        ),
    };
    if !job.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    Some(AccountingRow {
        job: job.to_owned(),
        kind,
        state: SlurmState::parse(field("State")?),
        exit: field("ExitCode").and_then(exit_pair),
        derived_exit: field("DerivedExitCode").and_then(exit_pair),
        start: field("Start").and_then(time),
        end: field("End").and_then(time),
        nodes: field("NodeList").map(str::to_owned),
        reason: field("Reason").map(str::to_owned),
        failed_node: field("FailedNode").map(str::to_owned),
        name: field("JobName").unwrap_or_default().to_owned(),
    })
}

fn exit_pair(text: &str) -> Option<ExitPair> {
    let (code, signal) = text.split_once(':')?;
    Some(ExitPair {
        code: code.parse().ok()?,
        signal: signal.parse().ok()?,
    })
}

/// Seconds since the epoch (SLURM_TIME_FORMAT=%s). A local time without a zone says nothing certain and is left out.
pub(super) fn time(text: &str) -> Option<Timestamp> {
    Timestamp::from_second(text.parse().ok()?).ok()
}

/// The row of the allocation and that of the step. A job that lost a node under `--no-kill` or was requeued has several
/// rows of one id; the last is the one that counts.
pub fn select(rows: &[AccountingRow], step: Option<u32>) -> (Option<&AccountingRow>, Option<&AccountingRow>) {
    let last = |kind: RowKind| rows.iter().rev().find(|row| row.kind == kind);
    (
        last(RowKind::Allocation),
        step.and_then(|step| last(RowKind::Step(step))),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn odd_rows_are_read_and_bad_ones_do_not_hide_the_others() {
        let text = "42|CANCELLED by 20001|0:0|0:15|1700000000|1700000009|nid[001-002]|None|a|b\n\
                    42.batch|CANCELLED|||||||batch\nrubbish\n42.0|OUT_OF_MEMORY|0:125||||nid001||x\n";
        let rows = parse(FORMAT, text);
        assert_eq!(rows.len(), 4);
        let first = rows[0].as_ref().unwrap();
        assert_eq!(first.name, "a|b");
        assert_eq!(first.start.unwrap().as_second(), 1_700_000_000);
        assert_eq!(rows[1].as_ref().unwrap().exit, None);
        assert_eq!(rows[2].as_ref().unwrap_err(), "rubbish");
        assert_eq!(rows[3].as_ref().unwrap().kind, RowKind::Step(0));
        assert!(parse(FORMAT, "\n").is_empty());
    }
}
