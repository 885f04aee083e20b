//! What `sbatch` answered: an id, a refusal, or nothing that is certain.

use serde::{Deserialize, Serialize};

/// Why a submission was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Refusal {
    /// The account does not exist or is not ours.
    Account,
    /// No such partition.
    Partition,
    /// No such QOS, or not for us.
    Qos,
    /// The time limit does not fit.
    TimeLimit,
    /// No node can give what was asked for.
    Nodes,
    /// An association or QOS limit.
    Limit,
    /// Anything else.
    Other,
}

impl Refusal {
    /// The key of the profile that decides it.
    pub fn profile_key(self) -> &'static str {
        match self {
            Self::Account => "slurm.account",
            Self::Partition => "slurm.partition",
            Self::Qos => "slurm.qos",
            Self::TimeLimit => "allocation_time",
            Self::Nodes => "slurm.gres, slurm.memory, slurm.constraint or cpus_per_node",
            Self::Limit => "allocation_time, slurm.qos or slurm.account",
            Self::Other => "slurm",
        }
    }
}

/// The answer to a submission.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SubmitAnswer {
    /// The job exists.
    Accepted(u64),
    /// The job does not exist, and asking again changes nothing.
    Refused {
        /// Why.
        refusal: Refusal,
        /// Slurm's own words.
        message: String,
    },
    /// The job may exist: look for it by name before anything else.
    Unclear {
        /// What came back.
        message: String,
    },
}

/// Words after which the job cannot exist although nobody decided about it: the controller never had the request.
const NEVER_ARRIVED: &str = "Unable to contact slurm controller (connect failure)";

const REFUSALS: &[(&str, Refusal)] = &[
    (
        "Invalid account or account/partition combination specified",
        Refusal::Account,
    ),
    ("Invalid partition name specified", Refusal::Partition),
    ("invalid partition specified", Refusal::Partition),
    ("Invalid qos specification", Refusal::Qos),
    ("Requested time limit is invalid", Refusal::TimeLimit),
    (
        "Requested partition configuration not available now",
        Refusal::TimeLimit,
    ),
    ("Requested node configuration is not available", Refusal::Nodes),
    ("Invalid generic resource (gres) specification", Refusal::Nodes),
    ("Invalid node name specified", Refusal::Nodes),
    ("Invalid feature specification", Refusal::Nodes),
    ("Memory specification can not be satisfied", Refusal::Nodes),
    ("Node count specification invalid", Refusal::Nodes),
    ("Job violates accounting/QOS policy", Refusal::Limit),
    ("Job exceeds", Refusal::Limit),
    ("Access/permission denied", Refusal::Account),
];

/// Reads the answer. sbatch exits 1 for everything, so the words decide; words that are not known leave it unclear
/// unless they say that the submission itself failed.
pub fn parse(code: u8, stdout: &str, stderr: &str) -> SubmitAnswer {
    if code == 0 {
        let id = stdout.lines().rev().find_map(|line| {
            let line = line.trim();
            let id = line.strip_prefix("Submitted batch job ").unwrap_or(line);
            id.split(';').next()?.parse().ok()
        });
        return match id {
            Some(id) => SubmitAnswer::Accepted(id),
            None => SubmitAnswer::Unclear {
                message: format!("sbatch printed no job id: {}", stdout.trim()),
            },
        };
    }
    let message = stderr.trim().to_owned();
    let found = REFUSALS
        .iter()
        .find(|(words, _)| stderr.contains(words))
        .map(|(_, refusal)| *refusal);
    let before_sending = stderr.contains("Unable to open file")
        || stderr.contains("unrecognized option")
        || stderr.contains("invalid option")
        || stderr.contains(NEVER_ARRIVED);
    match found {
        Some(refusal) => SubmitAnswer::Refused { refusal, message },
        None if before_sending => SubmitAnswer::Refused {
            refusal: Refusal::Other,
            message,
        },
        None => SubmitAnswer::Unclear { message },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_found_among_banners_and_never_in_them() {
        assert_eq!(
            parse(0, "Welcome to Stampede3\n4711;alps\n", ""),
            SubmitAnswer::Accepted(4711)
        );
        assert_eq!(
            parse(0, "Submitted batch job 12\n", ""),
            SubmitAnswer::Accepted(12)
        );
        assert!(matches!(
            parse(0, "Welcome to Stampede3\n", ""),
            SubmitAnswer::Unclear { .. }
        ));
        let timeout = "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation";
        assert!(matches!(parse(1, "", timeout), SubmitAnswer::Unclear { .. }));
    }

    #[test]
    fn every_captured_refusal_is_understood() {
        let mut seen = 0;
        for text in [
            include_str!("../../tests/fixtures/slurm/22.05/rejections.txt"),
            include_str!("../../tests/fixtures/slurm/22.05/rejections_enforced.txt"),
            include_str!("../../tests/fixtures/slurm/24.11/rejections.txt"),
            include_str!("../../tests/fixtures/slurm/24.11/rejections_enforced.txt"),
        ] {
            for case in text.split("$ ").filter(|case| case.starts_with("sbatch")) {
                let (command, rest) = case.split_once('\n').unwrap_or((case, ""));
                let code = u8::from(!(rest.contains("\nrc=0") || rest.starts_with("rc=0")));
                let expected = match command {
                    _ if code == 0 => continue,
                    c if c.contains("-A nosuch") || c.contains("-A notmine") => Refusal::Account,
                    c if c.contains("-p nosuch") => Refusal::Partition,
                    c if c.contains("-q nosuch") => Refusal::Qos,
                    c if c.contains("--gres=gpu:5")
                        || c.contains("--mem=900G")
                        || c.contains("-C nosuch") =>
                    {
                        Refusal::Nodes
                    }
                    _ => continue,
                };
                seen += 1;
                let answer = parse(code, rest, rest);
                assert!(
                    matches!(&answer, SubmitAnswer::Refused { refusal, .. } if *refusal == expected),
                    "{command}: {answer:?}"
                );
            }
        }
        assert!(seen >= 14, "only {seen} cases were found");
    }
}
