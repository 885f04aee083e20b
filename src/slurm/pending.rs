//! Why a job waits, whether waiting helps, and the sentence for it (squeue(1), job_reason_codes).

use std::fmt;

use serde::{Deserialize, Serialize};

/// Whether a reason goes away by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outlook {
    /// The job starts when others end, a time comes or usage goes down.
    Resolves,
    /// Somebody has to repair something first, a partition or a node; then it starts.
    NeedsOperator,
    /// The job as it was asked for never starts.
    Never,
    /// A reason that is not known here.
    Unknown,
}

/// Why a job waits, or why it ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub struct PendingReason {
    text: String,
}

/// Reasons by their exact word: what becomes of them, and in words.
const REASONS: &[(&str, Outlook, &str)] = {
    use Outlook::{NeedsOperator, Never, Resolves};
    &[
        ("None", Resolves, "not yet looked at by the scheduler"),
        ("", Resolves, "not yet looked at by the scheduler"),
        (
            "WaitingForScheduling",
            Resolves,
            "not yet looked at by the scheduler",
        ),
        (
            "SchedDefer",
            Resolves,
            "the scheduler looks at it in its next round",
        ),
        ("Priority", Resolves, "other jobs have a higher priority"),
        ("Resources", Resolves, "waiting for free nodes"),
        ("Dependency", Resolves, "waiting for another job"),
        (
            "BeginTime",
            Resolves,
            "its begin time has not come, or it was requeued and rests for a while",
        ),
        ("Licenses", Resolves, "waiting for a licence"),
        ("Cleaning", Resolves, "still cleaning up after its earlier run"),
        ("Prolog", Resolves, "its prolog is running"),
        ("Reservation", Resolves, "its reservation has not begun"),
        (
            "ReqNodeNotAvail",
            Resolves,
            "the nodes are in use, down, drained or reserved, perhaps for maintenance",
        ),
        (
            "JobArrayTaskLimit",
            Resolves,
            "the array runs as many tasks as it may",
        ),
        ("BurstBufferResources", Resolves, "waiting for burst buffer space"),
        ("BurstBufferStageIn", Resolves, "its data are being staged in"),
        ("PowerNotAvail", Resolves, "waiting for electric power"),
        ("PowerReserved", Resolves, "waiting for electric power"),
        (
            "MaxPoweredUpNodes",
            Resolves,
            "as many nodes are powered up as may be",
        ),
        ("FedJobLock", Resolves, "waiting for the federation"),
        (
            "QOSUsageThreshold",
            Resolves,
            "the usage of the account is above the QOS's threshold",
        ),
        (
            "AssociationJobLimit",
            Resolves,
            "your account runs as many jobs as it may",
        ),
        (
            "AssociationResourceLimit",
            Resolves,
            "your account uses as much as it may",
        ),
        ("AssociationTimeLimit", Resolves, "your account has used its time"),
        ("QOSJobLimit", Resolves, "the QOS runs as many jobs as it may"),
        ("QOSResourceLimit", Resolves, "the QOS is used up to its limit"),
        ("QOSTimeLimit", Resolves, "the QOS has used its time"),
        ("AccountingPolicy", Resolves, "an accounting limit is reached"),
        ("NodeDown", NeedsOperator, "a node that it needs is down"),
        ("FrontEndDown", NeedsOperator, "no front end node is up"),
        ("PartitionDown", NeedsOperator, "the partition is down"),
        ("PartitionInactive", NeedsOperator, "the partition is inactive"),
        (
            "JobHeldAdmin",
            Never,
            "held by an administrator: it does not start until it is released",
        ),
        (
            "SystemFailure",
            NeedsOperator,
            "Slurm, a file system or the network failed",
        ),
        (
            "BurstBufferOperation",
            NeedsOperator,
            "a burst buffer operation failed",
        ),
        ("JobLaunchFailure", NeedsOperator, "its launch failed"),
        (
            "launch failed requeued held",
            Never,
            "its launch failed, and it is held",
        ),
        (
            "JobHeldUser",
            Never,
            "held: it does not start until it is released",
        ),
        ("JobHoldMaxRequeue", Never, "requeued too often, and held"),
        ("RequeueExitHold", Never, "its exit code has it held"),
        ("RequeueExit", Resolves, "its exit code has it requeued"),
        ("job requeued in held state", Never, "requeued and held"),
        (
            "DependencyNeverSatisfied",
            Never,
            "the job that it depends on did not end as it has to",
        ),
        ("BadConstraints", Never, "no node has what it asks for"),
        (
            "PartitionTimeLimit",
            Never,
            "asks for more time than the partition allows",
        ),
        (
            "PartitionNodeLimit",
            Never,
            "asks for more nodes than the partition allows, or nodes that are down",
        ),
        (
            "PartitionConfig",
            Never,
            "asks for what the partition does not allow",
        ),
        (
            "AccountNotAllowed",
            Never,
            "the account may not use the partition",
        ),
        ("InvalidAccount", Never, "the account is not valid"),
        ("InvalidQOS", Never, "the QOS is not valid"),
        (
            "QOSNotAllowed",
            Never,
            "the QOS may not be used with this account or partition",
        ),
        ("ReservationDeleted", Never, "its reservation was deleted"),
        (
            "RequiresReservation",
            Never,
            "the partition can be used with a reservation only",
        ),
        (
            "MaxMemPerLimit",
            Never,
            "asks for more memory than the partition allows",
        ),
        ("DeadLine", Never, "cannot end before its deadline"),
        ("NonZeroExitCode", Never, "ended with a non-zero exit code"),
        ("RaisedSignal", Never, "ended by a signal"),
        ("OutOfMemory", Never, "ran out of memory"),
        ("TimeLimit", Never, "reached its time limit"),
        ("InactiveLimit", Never, "reached the limit for inactivity"),
    ]
};

impl PendingReason {
    /// The reason as squeue(1) `%r` prints it; `%R` puts it in parentheses.
    pub fn parse(text: &str) -> Self {
        let text = text.trim();
        let inner = text.strip_prefix('(').and_then(|text| text.strip_suffix(')'));
        Self {
            text: inner.unwrap_or(text).to_owned(),
        }
    }

    /// As Slurm said it.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    fn known(&self) -> Option<(Outlook, &'static str)> {
        // `ReqNodeNotAvail, UnavailableNodes:nid001`, `RaisedSignal:9`; scontrol(1) writes `_` for a blank.
        let text = self.text.replace('_', " ");
        let word = text.split([',', ':']).next().unwrap_or_default().trim();
        let found = REASONS
            .iter()
            .find(|(reason, _, _)| *reason == text || *reason == word);
        found.map(|(_, outlook, words)| (*outlook, *words))
    }

    /// Whether it goes away by itself.
    ///
    /// Limits are a family of more than a hundred words with a common grammar: `Max…PerJob`, `Max…PerNode` and `Min…`
    /// are about this job alone and never change; those per user, per account and of a group do when other jobs end.
    pub fn outlook(&self) -> Outlook {
        match (self.known(), self.limit()) {
            (Some((outlook, _)), _) => outlook,
            (None, Some(limit)) => limit.outlook,
            (None, None) => Outlook::Unknown,
        }
    }

    /// Never starts as it was asked for, or not without somebody who acts: giving the submission up is right.
    pub fn is_hopeless(&self) -> bool {
        match self.outlook() {
            Outlook::Never => true,
            Outlook::Resolves | Outlook::NeedsOperator | Outlook::Unknown => false,
        }
    }

    /// A sentence with Slurm's word in it; an unknown word is shown as it is.
    pub fn sentence(&self) -> String {
        let shown = if self.text.is_empty() { "None" } else { &self.text };
        let words = match (self.known(), self.limit()) {
            (Some((_, words)), _) => words,
            (None, Some(limit)) => limit.words,
            (None, None) => return shown.to_owned(),
        };
        let end = match self.outlook() {
            Outlook::Never => ": it will never start",
            Outlook::NeedsOperator => ": somebody at the site has to act",
            Outlook::Resolves | Outlook::Unknown => "",
        };
        format!("{words} ({shown}){end}")
    }

    /// The grammar of limits: (Assoc|QOS)(Grp|Max|Min)WHAT[Per(Job|Node|User|Account)][Limit], and Max…PerAccount.
    fn limit(&self) -> Option<Limit> {
        let text = self.text.as_str();
        let (owner, rest) = if let Some(rest) = text.strip_prefix("QOS") {
            ("QOS", rest)
        } else if let Some(rest) = text.strip_prefix("Assoc") {
            ("account", rest)
        } else {
            let per_account = text.starts_with("Max") && text.ends_with("PerAccount");
            return per_account.then_some(Limit {
                outlook: Outlook::Resolves,
                words: "your account uses as much of the QOS as it may",
            });
        };
        let own_fault = |words| Limit {
            outlook: Outlook::Never,
            words,
        };
        let passing = |words| Limit {
            outlook: Outlook::Resolves,
            words,
        };
        Some(match (owner, rest) {
            ("QOS", rest) if rest.starts_with("Grp") => {
                passing("the QOS is used up to its limit by all who use it")
            }
            (_, rest) if rest.starts_with("Grp") => {
                passing("your account is used up to its limit by all who use it")
            }
            (_, rest) if rest.starts_with("Min") => own_fault("asks for less than the QOS demands"),
            (_, rest) if rest.starts_with("Max") => {
                let of_jobs = rest.starts_with("MaxJobs") || rest.starts_with("MaxSubmit");
                if of_jobs || rest.contains("PerUser") || rest.contains("PerAccount") {
                    passing("your other jobs use the limit up")
                } else if owner == "QOS" {
                    own_fault("asks for more than the QOS allows one job")
                } else {
                    own_fault("asks for more than your account allows one job")
                }
            }
            (_, _) => return None,
        })
    }
}

struct Limit {
    outlook: Outlook,
    words: &'static str,
}

impl fmt::Display for PendingReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.text)
    }
}

impl From<String> for PendingReason {
    fn from(text: String) -> Self {
        Self::parse(&text)
    }
}

impl From<PendingReason> for String {
    fn from(reason: PendingReason) -> Self {
        reason.text
    }
}

/// Whether the reason will not go away by itself and is about the job as it was asked for.
pub fn never_starts(reason: &str) -> bool {
    PendingReason::parse(reason).is_hopeless()
}

/// The reason as a sentence; an unknown one is shown as it is.
pub fn sentence(reason: &str) -> String {
    PendingReason::parse(reason).sentence()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn outlook(reason: &str) -> Outlook {
        PendingReason::parse(reason).outlook()
    }

    #[test]
    fn limits_of_one_job_never_change_and_those_of_many_do() {
        for never in [
            "AssocMaxWallDurationPerJobLimit",
            "AssocMaxGRESPerJob",
            "AssocMaxNodePerJobLimit",
            "AssocMaxMemPerNode",
            "QOSMaxWallDurationPerJobLimit",
            "QOSMaxCpuPerJobLimit",
            "QOSMaxGRESMinutesPerJob",
            "QOSMaxCpuPerNode",
            "QOSMinCpuNotSatisfied",
            "QOSMinGRES",
        ] {
            assert_eq!(outlook(never), Outlook::Never, "{never}");
        }
        for resolves in [
            "AssocGrpCPUMinutesLimit",
            "AssocGrpGRES",
            "AssocMaxJobsLimit",
            "QOSGrpNodeLimit",
            "QOSMaxJobsPerUserLimit",
            "QOSMaxGRESPerUser",
            "MaxGRESPerAccount",
            "ReqNodeNotAvail, UnavailableNodes:nid[001-004]",
            "ReqNodeNotAvail,_Reserved_for_maintenance",
            "(Resources)",
        ] {
            assert_eq!(outlook(resolves), Outlook::Resolves, "{resolves}");
        }
    }

    #[test]
    fn words_nobody_knows_are_kept_and_do_not_end_a_wait() {
        assert_eq!(outlook("PhaseOfTheMoon"), Outlook::Unknown);
        assert_eq!(sentence("PhaseOfTheMoon"), "PhaseOfTheMoon");
        assert!(!never_starts("PhaseOfTheMoon"));
        assert_eq!(sentence(""), "not yet looked at by the scheduler (None)");
        assert!(never_starts("launch failed requeued held"));
        assert!(sentence("PartitionDown").contains("somebody at the site"));
        assert!(!never_starts("PartitionDown"));
        assert!(never_starts("PartitionTimeLimit"));
        assert!(sentence("BadConstraints").ends_with("it will never start"));
    }

    #[test]
    fn every_captured_reason_is_known() {
        let mut seen = 0;
        for version in ["22.05", "24.11"] {
            let folder = format!(
                "{}/tests/fixtures/slurm/{version}/pending_reasons",
                env!("CARGO_MANIFEST_DIR")
            );
            for entry in std::fs::read_dir(folder).unwrap() {
                let entry = entry.unwrap();
                let name = entry.file_name().into_string().unwrap();
                let row = std::fs::read_to_string(entry.path().join("squeue.txt")).unwrap();
                let cells: Vec<&str> = row.trim().split('|').collect();
                assert_eq!(cells[2], name);
                assert_ne!(outlook(cells[2]), Outlook::Unknown, "{name}");
                assert_eq!(PendingReason::parse(cells[3]), PendingReason::parse(cells[2]));
                seen += 1;
            }
        }
        assert_eq!(seen, 20);
        assert_eq!(outlook("DependencyNeverSatisfied"), Outlook::Never);
        assert_eq!(outlook("JobHeldUser"), Outlook::Never);
        assert_eq!(outlook("JobHeldAdmin"), Outlook::Never);
        assert_eq!(outlook("PartitionDown"), Outlook::NeedsOperator);
    }

    proptest! {
        #[test]
        fn no_reason_is_too_odd(text in ".*") {
            prop_assert!(!sentence(&text).is_empty());
            let _ = never_starts(&text);
        }
    }
}
