//! Accounting rows: `sacct --parsable2 --noheader` (sacct(1)).
//!
//! Text, not `--json`: that of 22.05 reports code 0 for failed jobs. Rows are found by their id, never by their place.

use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde::{Deserialize, Serialize};

use super::exit::ExitStatus;
use super::id::{JobPart, JobRef, RowKind, parse_id};
use super::state::SlurmState;
use super::time::{TimeLimit, epoch, time_in};

/// The fields that we ask for. Every release from 21.08 on has them; FailedNode and Restarts it does not.
/// A job's name can hold the delimiter, so it comes last; no other field of these can.
pub const FORMAT: &str = "JobIDRaw,JobID,State,ExitCode,DerivedExitCode,Start,End,ElapsedRaw,TimelimitRaw,Submit,NodeList,Reason,JobName";

/// One row. A field that was not asked for, or that says nothing, is `None`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AccountingRow {
    /// The job.
    pub job: JobRef,
    /// What of the job the row is about.
    pub kind: RowKind,
    /// Its state.
    pub state: SlurmState,
    /// Its exit code; empty for a batch step whose node died.
    pub exit: Option<ExitStatus>,
    /// The highest exit code of all steps; only rows of allocations have it.
    pub derived_exit: Option<ExitStatus>,
    /// When it started; `None` for a job that was cancelled while it waited.
    pub start: Option<Timestamp>,
    /// When it ended.
    pub end: Option<Timestamp>,
    /// How many seconds it ran.
    pub elapsed: Option<u64>,
    /// Its time limit.
    pub limit: Option<TimeLimit>,
    /// When it was submitted; a requeue sets it anew.
    pub submit: Option<Timestamp>,
    /// Its nodes.
    pub nodes: Option<String>,
    /// Slurm's reason.
    pub reason: Option<String>,
    /// The node whose failure ended it (not in 22.05).
    pub failed_node: Option<String>,
    /// How often it was requeued (not in 22.05).
    pub restarts: Option<u32>,
    /// Its comment, where the site stores comments.
    pub comment: Option<String>,
    /// Its name.
    pub name: String,
}

impl AccountingRow {
    /// A row that says no more than this.
    pub fn new(job: u64, kind: RowKind, state: SlurmState) -> Self {
        Self {
            job: JobRef::whole(job),
            kind,
            state,
            exit: None,
            derived_exit: None,
            start: None,
            end: None,
            elapsed: None,
            limit: None,
            submit: None,
            nodes: None,
            reason: None,
            failed_node: None,
            restarts: None,
            comment: None,
            name: String::new(),
        }
    }
}

/// A line that is no row of the format that was asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("unreadable row `{line}`: {why}")]
#[serde(deny_unknown_fields)]
pub struct BadRow {
    /// The line as it came.
    pub line: String,
    /// What is wrong with it.
    pub why: String,
}

/// How rows are laid out.
#[derive(Debug, Clone)]
pub struct Layout {
    fields: Vec<String>,
    delimiter: char,
    zone: Option<TimeZone>,
}

impl Layout {
    /// The fields of a `--format` list, delimited by `|`, with times in seconds since the epoch.
    pub fn new(format: &str) -> Self {
        Self {
            // `JobName%30` asks for a width.
            fields: format
                .split(',')
                .map(|field| {
                    field
                        .trim()
                        .split('%')
                        .next()
                        .unwrap_or_default()
                        .to_ascii_lowercase()
                })
                .collect(),
            delimiter: '|',
            zone: None,
        }
    }

    /// With another delimiter (`--delimiter`).
    #[must_use]
    pub fn delimited_by(mut self, delimiter: char) -> Self {
        self.delimiter = delimiter;
        self
    }

    /// Reads local times, too, in the cluster's zone. Without it they are left out: they lack their zone.
    #[must_use]
    pub fn in_zone(mut self, zone: TimeZone) -> Self {
        self.zone = Some(zone);
        self
    }

    /// Reads the output. A line that cannot be read does not hide the others.
    pub fn parse(&self, text: &str) -> Vec<Result<AccountingRow, BadRow>> {
        text.lines()
            .filter(|line| !line.trim().is_empty())
            .map(|line| {
                self.row(line).map_err(|why| BadRow {
                    line: line.to_owned(),
                    why: why.to_owned(),
                })
            })
            .collect()
    }

    fn row(&self, line: &str) -> Result<AccountingRow, &'static str> {
        let values: Vec<&str> = line.splitn(self.fields.len(), self.delimiter).collect();
        if values.len() != self.fields.len() {
            return Err("fields are missing");
        }
        // A delimiter is left over in the last field only; that of anything but a name is a row of another format.
        let last_is_text = self
            .fields
            .last()
            .is_some_and(|field| ["jobname", "comment", "submitline", "workdir"].contains(&field.as_str()));
        if !last_is_text && values.last().is_some_and(|value| value.contains(self.delimiter)) {
            return Err("too many fields");
        }
        let cells = Cells {
            layout: self,
            values: &values,
        };
        cells.row()
    }
}

struct Cells<'a> {
    layout: &'a Layout,
    values: &'a [&'a str],
}

impl<'a> Cells<'a> {
    fn raw(&self, name: &str) -> Option<&'a str> {
        let at = self.layout.fields.iter().position(|field| field == name)?;
        self.values.get(at).copied()
    }

    /// The value, unless it is one of the words for nothing.
    fn said(&self, name: &str) -> Option<&'a str> {
        let value = self.raw(name)?.trim();
        let nothing = ["", "None", "Unknown", "N/A", "None assigned", "(null)"].contains(&value);
        (!nothing).then_some(value)
    }

    fn text(&self, name: &str) -> Option<String> {
        self.said(name).map(str::to_owned)
    }

    fn time(&self, name: &str) -> Option<Timestamp> {
        let text = self.said(name)?;
        match &self.layout.zone {
            Some(zone) => time_in(text, zone),
            None => epoch(text),
        }
    }

    fn row(&self) -> Result<AccountingRow, &'static str> {
        // JobID shows the parts of arrays and heterogeneous jobs, JobIDRaw the number of each part.
        let id = self.said("jobid").or_else(|| self.said("jobidraw"));
        let (job, kind) = id.and_then(parse_id).ok_or("no job id")?;
        let state = SlurmState::parse(self.said("state").ok_or("no state")?);
        Ok(AccountingRow {
            job,
            kind,
            state,
            exit: self.said("exitcode").and_then(ExitStatus::parse),
            derived_exit: self.said("derivedexitcode").and_then(ExitStatus::parse),
            start: self.time("start"),
            end: self.time("end"),
            elapsed: self
                .said("elapsedraw")
                .and_then(|text| text.parse().ok())
                .or_else(|| {
                    Some(
                        self.said("elapsed")?
                            .parse::<super::time::Walltime>()
                            .ok()?
                            .seconds(),
                    )
                }),
            limit: self
                .said("timelimitraw")
                .map(TimeLimit::parse_minutes)
                .or_else(|| self.said("timelimit").map(TimeLimit::parse)),
            submit: self.time("submit"),
            nodes: self.text("nodelist"),
            reason: self.text("reason"),
            failed_node: self.text("failednode"),
            restarts: self.said("restarts").and_then(|text| text.parse().ok()),
            comment: self
                .raw("comment")
                .filter(|text| !text.is_empty())
                .map(str::to_owned),
            name: self.raw("jobname").unwrap_or_default().to_owned(),
        })
    }
}

/// Reads the output for a `--format` list, times in seconds since the epoch.
pub fn parse(format: &str, text: &str) -> Vec<Result<AccountingRow, BadRow>> {
    Layout::new(format).parse(text)
}

/// The step that is looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wanted<'a> {
    /// By its number.
    Number(u32),
    /// By its name (`srun --job-name`).
    Name(&'a str),
}

/// The rows that say something about one step of one job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Witnesses<'a> {
    /// The row of the allocation, of the life in which the step ran.
    pub allocation: Option<&'a AccountingRow>,
    /// Its batch script.
    pub batch: Option<&'a AccountingRow>,
    /// The step.
    pub step: Option<&'a AccountingRow>,
    /// How many more lives the job had after that one: it was requeued.
    pub later_lives: u32,
    /// The job went on with fewer nodes (`--no-kill`, or `scontrol update`).
    pub resized: bool,
}

/// Finds the rows for a step, or only those of the job.
///
/// A job has several allocation rows of one id when it was resized (even without `-D`) or requeued (with `-D`). A step
/// belongs to the life whose rows it stands among; a step that is not found, to the first. RESIZING closes a part of a
/// life, not a life. Rows of other jobs, and parts of arrays and heterogeneous jobs, are not ours and are skipped.
pub fn witnesses<'a>(rows: &'a [AccountingRow], job: u64, wanted: Option<Wanted<'_>>) -> Witnesses<'a> {
    let mut lives: Vec<Witnesses<'a>> = Vec::new();
    let mut open = false;
    for row in rows {
        if row.job.number != job || row.job.part != JobPart::Whole {
            continue;
        }
        if row.kind == RowKind::Allocation {
            if !open {
                lives.push(Witnesses::default());
            }
            open = row.state == SlurmState::Resizing;
        }
        if lives.is_empty() {
            lives.push(Witnesses::default());
        }
        let Some(life) = lives.last_mut() else { continue };
        match &row.kind {
            RowKind::Allocation => {
                life.allocation = Some(row);
                life.resized |= open;
            }
            RowKind::Batch => life.batch = Some(row),
            RowKind::Step(number) => {
                let found = match wanted {
                    Some(Wanted::Number(wanted)) => wanted == *number,
                    Some(Wanted::Name(wanted)) => wanted == row.name,
                    None => false,
                };
                if found {
                    life.step = Some(row);
                }
            }
            RowKind::Extern
            | RowKind::Interactive
            | RowKind::ToBeDetermined
            | RowKind::Component { .. }
            | RowKind::Other(_) => {}
        }
    }
    let at = lives.iter().position(|life| life.step.is_some()).unwrap_or(0);
    let later = u32::try_from(lives.len().saturating_sub(at + 1)).unwrap_or(u32::MAX);
    let mut found = lives.get(at).copied().unwrap_or_default();
    found.later_lives = later;
    found
}

/// The row of the allocation and that of the step of the job that the first row is about (see [`witnesses`]).
pub fn select(rows: &[AccountingRow], step: Option<u32>) -> (Option<&AccountingRow>, Option<&AccountingRow>) {
    let Some(first) = rows.first() else {
        return (None, None);
    };
    let found = witnesses(rows, first.job.number, step.map(Wanted::Number));
    (found.allocation, found.step)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const CAPTURED: &str = "JobID,JobName,State,ExitCode,DerivedExitCode,Start,End,Elapsed,NodeList,Reason";

    fn captured(text: &str) -> Vec<AccountingRow> {
        Layout::new(CAPTURED)
            .in_zone(TimeZone::UTC)
            .parse(text)
            .into_iter()
            .map(Result::unwrap)
            .collect()
    }

    #[test]
    fn rows_of_our_format_are_read_and_bad_ones_hide_nothing() {
        let text = "42|42|CANCELLED by 20001|0:0|0:15|1700000000|1700000009|9|480|1699999990|nid[001-002]|None|a|b\n\
                    42.batch|42.batch|CANCELLED|||Unknown|Unknown|||||||batch\n\
                    rubbish\n\
                    |||||||||||\n\
                    42.0|42.0|OUT_OF_MEMORY|0:125||1700000001|1700000002|1||1|nid001||x\n";
        let rows = parse(FORMAT, text);
        assert_eq!(rows.len(), 5);
        let first = rows[0].as_ref().unwrap();
        assert_eq!(first.name, "a|b");
        assert_eq!(first.state, SlurmState::Cancelled { by: Some(20001) });
        assert_eq!(first.elapsed, Some(9));
        assert_eq!(first.limit.as_ref().unwrap().to_string(), "0-08:00:00");
        assert_eq!(first.reason, None);
        assert_eq!(rows[1].as_ref().unwrap().exit, None);
        assert_eq!(rows[2].as_ref().unwrap_err().line, "rubbish");
        assert!(rows[3].is_err());
        assert_eq!(rows[4].as_ref().unwrap().kind, RowKind::Step(0));
        assert!(parse(FORMAT, "\n").is_empty());
    }

    #[test]
    fn a_delimiter_in_another_field_is_a_bad_row() {
        let rows = Layout::new("JobID,JobName,State").parse("1|a|b|COMPLETED\n2|x|COMPLETED\n");
        assert!(rows[0].is_err());
        assert!(rows[1].is_ok());
        let spaced = Layout::new("JobID,JobName,State").delimited_by('\u{1f}');
        let rows = spaced.parse("1\u{1f}a|b\u{1f}COMPLETED\n");
        assert_eq!(rows[0].as_ref().unwrap().name, "a|b");
    }

    #[test]
    fn every_captured_row_is_read() {
        let mut seen = 0;
        for version in ["22.05", "24.11"] {
            let folder = format!("{}/tests/fixtures/slurm/{version}", env!("CARGO_MANIFEST_DIR"));
            for entry in std::fs::read_dir(folder).unwrap() {
                let Ok(files) = std::fs::read_dir(entry.unwrap().path()) else {
                    continue;
                };
                for file in files {
                    let path = file.unwrap().path();
                    if path.extension().is_none_or(|extension| extension != "psv") {
                        continue;
                    }
                    for row in captured(&std::fs::read_to_string(&path).unwrap()) {
                        seen += 1;
                        assert!(!matches!(row.state, SlurmState::Unknown(_)), "{path:?} {row:?}");
                        assert!(!matches!(row.kind, RowKind::Other(_)), "{path:?} {row:?}");
                        assert!(row.elapsed.is_some(), "{path:?} {row:?}");
                    }
                }
            }
        }
        assert!(seen > 250, "only {seen} rows");
    }

    #[test]
    fn a_resized_job_is_one_life_with_two_rows() {
        let rows = captured(include_str!(
            "../../tests/fixtures/slurm/22.05/node_fail_no_kill/sacct.psv"
        ));
        let zero = witnesses(&rows, 64, Some(Wanted::Number(0)));
        assert!(zero.resized);
        assert_eq!(zero.later_lives, 0);
        assert_eq!(zero.allocation.unwrap().state, SlurmState::Completed);
        assert_eq!(zero.step.unwrap().state, SlurmState::Resizing);
        let one = witnesses(&rows, 64, Some(Wanted::Name("hostname")));
        assert_eq!(one.step.unwrap().kind, RowKind::Step(1));
    }

    #[test]
    fn a_requeued_job_is_two_lives_and_the_step_keeps_its_own() {
        let rows = captured(include_str!(
            "../../tests/fixtures/slurm/24.11/node_fail_requeue/sacct-dup.psv"
        ));
        let found = witnesses(&rows, 39, Some(Wanted::Number(0)));
        assert_eq!(found.allocation.unwrap().state, SlurmState::NodeFail);
        assert_eq!(found.batch.unwrap().exit.unwrap().signal, 15);
        assert_eq!(found.later_lives, 1);
        assert_eq!(witnesses(&rows, 40, None), Witnesses::default());
    }

    #[test]
    fn array_rows_are_nobodys_step() {
        let rows = captured(include_str!("../../tests/fixtures/slurm/22.05/array/sacct.psv"));
        assert_eq!(rows[0].job.part, JobPart::ArrayTask(1));
        assert_eq!(witnesses(&rows, 65, None), Witnesses::default());
    }

    proptest! {
        #[test]
        fn no_output_is_too_odd(text in "(\\PC|\n|\\|)*") {
            for format in [FORMAT, CAPTURED, "", "JobName"] {
                let rows: Vec<AccountingRow> = parse(format, &text).into_iter().filter_map(Result::ok).collect();
                let _ = select(&rows, Some(0));
            }
        }
    }
}
