//! How Slurm's tools write the ids of jobs and steps (sacct(1) JobID, squeue(1) `%i`).

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::ids::IdError;

/// Which part of a job an id names.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum JobPart {
    /// `123`
    Whole,
    /// `123_4`: one task of an array.
    ArrayTask(u32),
    /// `123_[1-3%2]`: the tasks of an array that have not started, as printed between the brackets.
    ArrayRest(String),
    /// `123+0`: one component of a heterogeneous job.
    Component(u32),
}

/// A job as the tools print it, before the dot of a step.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct JobRef {
    /// The number that `sbatch` gave.
    pub number: u64,
    /// The part that is meant.
    pub part: JobPart,
}

impl JobRef {
    /// A whole job.
    pub fn whole(number: u64) -> Self {
        Self {
            number,
            part: JobPart::Whole,
        }
    }

    fn read(text: &str) -> Option<Self> {
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        let (number, rest) = text.split_at(digits);
        let part = match rest.as_bytes().first() {
            None => JobPart::Whole,
            Some(b'+') => JobPart::Component(rest.get(1..)?.parse().ok()?),
            Some(b'_') => match rest.strip_prefix("_[") {
                Some(list) => JobPart::ArrayRest(list.trim_end_matches(']').to_owned()),
                None => JobPart::ArrayTask(rest.get(1..)?.parse().ok()?),
            },
            Some(_) => return None,
        };
        Some(Self {
            number: number.parse().ok()?,
            part,
        })
    }
}

impl fmt::Display for JobRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.part {
            JobPart::Whole => f.pad(&self.number.to_string()),
            JobPart::ArrayTask(task) => write!(f, "{}_{task}", self.number),
            JobPart::ArrayRest(list) => write!(f, "{}_[{list}]", self.number),
            JobPart::Component(component) => write!(f, "{}+{component}", self.number),
        }
    }
}

impl FromStr for JobRef {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        Self::read(text).ok_or_else(|| IdError {
            text: text.to_owned(),
            expected: "a Slurm job id",
        })
    }
}

impl TryFrom<String> for JobRef {
    type Error = IdError;

    fn try_from(text: String) -> Result<Self, IdError> {
        text.parse()
    }
}

impl From<JobRef> for String {
    fn from(job: JobRef) -> Self {
        job.to_string()
    }
}

/// What a row of accounting, or of the list of steps, is about.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RowKind {
    /// The allocation: no dot in the id.
    Allocation,
    /// `.batch`: the batch script.
    Batch,
    /// `.extern`: the external step that every allocation can have.
    Extern,
    /// `.interactive`: the step of an interactive `salloc`.
    Interactive,
    /// `.TBD`: a step that has no number yet.
    ToBeDetermined,
    /// `.N`: one `srun`.
    Step(u32),
    /// `.N+M`: one component of an `srun` over a heterogeneous job.
    Component {
        /// The number of the step.
        step: u32,
        /// The component.
        component: u32,
    },
    /// Anything else, as printed after the dot.
    Other(String),
}

/// Reads `JOB` or `JOB.STEP`.
pub fn parse_id(text: &str) -> Option<(JobRef, RowKind)> {
    let text = text.trim();
    let Some((job, step)) = text.split_once('.') else {
        return Some((text.parse().ok()?, RowKind::Allocation));
    };
    let kind = match step {
        "batch" => RowKind::Batch,
        "extern" => RowKind::Extern,
        "interactive" => RowKind::Interactive,
        "TBD" => RowKind::ToBeDetermined,
        number => numbered(number).unwrap_or_else(|| RowKind::Other(number.to_owned())),
    };
    Some((job.parse().ok()?, kind))
}

fn numbered(text: &str) -> Option<RowKind> {
    match text.split_once('+') {
        None => text.parse().ok().map(RowKind::Step),
        Some((step, component)) => Some(RowKind::Component {
            step: step.parse().ok()?,
            component: component.parse().ok()?,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn every_documented_form_is_read_and_printed_back() {
        for (text, part) in [
            ("123", JobPart::Whole),
            ("123_4", JobPart::ArrayTask(4)),
            ("123_[1-3%2]", JobPart::ArrayRest("1-3%2".into())),
            ("123+1", JobPart::Component(1)),
        ] {
            let job: JobRef = text.parse().unwrap();
            assert_eq!((job.number, &job.part), (123, &part));
            assert_eq!(job.to_string(), text);
        }
        for text in ["", "x", "123x", "_4", "123_", "123+", "Welcome"] {
            assert!(text.parse::<JobRef>().is_err(), "{text}");
        }
    }

    #[test]
    fn steps_are_told_apart() {
        let kind = |text: &str| parse_id(text).unwrap().1;
        assert_eq!(kind("9"), RowKind::Allocation);
        assert_eq!(kind("9.batch"), RowKind::Batch);
        assert_eq!(kind("9_1.extern"), RowKind::Extern);
        assert_eq!(kind("9.interactive"), RowKind::Interactive);
        assert_eq!(kind("9.TBD"), RowKind::ToBeDetermined);
        assert_eq!(kind("9.17"), RowKind::Step(17));
        assert_eq!(
            kind("9.0+1"),
            RowKind::Component {
                step: 0,
                component: 1
            }
        );
        assert_eq!(kind("9.novel"), RowKind::Other("novel".into()));
    }

    proptest! {
        #[test]
        fn no_id_is_too_odd(text in ".*") {
            drop(parse_id(&text));
        }
    }
}
