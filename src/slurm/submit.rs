//! What `sbatch` answered: an id, a refusal, or nothing that is certain (sbatch(1), slurm_errno.c).

use std::fmt;

use serde::{Deserialize, Serialize};

use super::failure::TRANSIENT;

/// The answer to a submission.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SubmitAnswer {
    /// The job exists.
    Accepted(Submitted),
    /// The job does not exist, and the same request will be refused again.
    Refused(SubmitRefusal),
    /// The job may exist: look for it by its name, more than once, before anything else.
    Ambiguous {
        /// What came back.
        message: String,
    },
    /// The request never reached a controller, or the controller said that it cannot take it now: the job does not
    /// exist, and the same request can succeed later.
    ControllerDown {
        /// What came back.
        message: String,
    },
}

/// What `--parsable` prints: `JOB` or `JOB;CLUSTER`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Submitted {
    /// The number of the job.
    pub job: u64,
    /// The cluster that took it; every later command has to name it (`--clusters`).
    pub cluster: Option<String>,
}

/// Why a submission was refused, with Slurm's own words.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SubmitRefusal {
    /// Why.
    pub kind: RefusalKind,
    /// What sbatch wrote.
    pub message: String,
}

/// Why a submission was refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RefusalKind {
    /// The account does not exist, is not ours, or may not use the partition.
    InvalidAccount,
    /// There is no such partition.
    InvalidPartition,
    /// There is no such QOS, or not for us.
    InvalidQos,
    /// There is no such reservation, or not for us.
    InvalidReservation,
    /// The time limit is missing or too long.
    TimeLimit,
    /// No node, or not so many, can give what was asked for.
    NodeConfiguration,
    /// A limit of the association, by the name that Slurm gives it.
    AssocLimit(String),
    /// A limit of the QOS, by the name that Slurm gives it.
    QosLimit(String),
    /// We may not.
    PermissionDenied,
    /// sbatch itself refused: an option or the script is wrong.
    Usage,
    /// Something else, with the reason in sbatch's words.
    Other,
}

impl RefusalKind {
    /// The key of the profile to look at.
    pub fn profile_key(&self) -> &'static str {
        match self {
            Self::AssocLimit(name) | Self::QosLimit(name) if name.contains("Wall") => "allocation_time",
            Self::AssocLimit(name) | Self::QosLimit(name) if name.contains("Node") => "max_nodes",
            Self::InvalidAccount | Self::AssocLimit(_) => "slurm.account",
            Self::InvalidPartition | Self::PermissionDenied => "slurm.partition",
            Self::InvalidQos | Self::QosLimit(_) => "slurm.qos",
            Self::InvalidReservation => "slurm.reservation",
            Self::TimeLimit => "allocation_time",
            Self::NodeConfiguration => "slurm.gres",
            Self::Usage => "slurm.extra_sbatch_args",
            Self::Other => "slurm",
        }
    }

    /// A sentence for the user.
    pub fn sentence(&self) -> String {
        match self {
            Self::InvalidAccount => {
                "the account does not exist, is not yours, or may not use this partition".to_owned()
            }
            Self::InvalidPartition => "there is no such partition".to_owned(),
            Self::InvalidQos => "there is no such QOS, or your account may not use it".to_owned(),
            Self::InvalidReservation => "there is no such reservation, or it is not yours".to_owned(),
            Self::TimeLimit => "the time limit is longer than the partition or QOS allows".to_owned(),
            Self::NodeConfiguration => {
                "no node, or not so many, can give the GPUs, CPUs, memory or features that were asked for"
                    .to_owned()
            }
            Self::AssocLimit(name) => format!("a limit of your account is reached ({name})"),
            Self::QosLimit(name) => format!("a limit of the QOS is reached ({name})"),
            Self::PermissionDenied => "you may not do this on this cluster".to_owned(),
            Self::Usage => "sbatch did not accept its options or the script".to_owned(),
            Self::Other => "Slurm refused the submission".to_owned(),
        }
    }
}

impl fmt::Display for SubmitRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.kind.sentence(), self.message)
    }
}

/// Words that say that no job was made, because no controller took the request.
const NEVER_TAKEN: &[&str] = &[
    "Unable to contact slurm controller",
    "Rate limit exceeded",
    "Slurm temporarily unable to accept job",
    "Slurm backup controller in standby mode",
    "I/O error writing script/environment to file",
    "Unable to establish a configuration source",
    "Could not establish a configuration source",
];

const REFUSALS: &[(&str, RefusalKind)] = &[
    (
        "Invalid account or account/partition combination specified",
        RefusalKind::InvalidAccount,
    ),
    ("Invalid account specified", RefusalKind::InvalidAccount),
    ("Invalid partition name specified", RefusalKind::InvalidPartition),
    ("invalid partition specified", RefusalKind::InvalidPartition),
    (
        "No partition specified or system default partition",
        RefusalKind::InvalidPartition,
    ),
    ("Invalid qos", RefusalKind::InvalidQos),
    (
        "Requested reservation is invalid",
        RefusalKind::InvalidReservation,
    ),
    (
        "Access denied to requested reservation",
        RefusalKind::InvalidReservation,
    ),
    ("Requested time limit is invalid", RefusalKind::TimeLimit),
    ("Invalid --time specification", RefusalKind::TimeLimit),
    (
        "Requested node configuration is not available",
        RefusalKind::NodeConfiguration,
    ),
    (
        "Requested partition configuration not available now",
        RefusalKind::NodeConfiguration,
    ),
    (
        "Invalid generic resource (gres) specification",
        RefusalKind::NodeConfiguration,
    ),
    (
        "Invalid Trackable RESource (TRES) specification",
        RefusalKind::NodeConfiguration,
    ),
    ("Invalid node name specified", RefusalKind::NodeConfiguration),
    ("Invalid feature specification", RefusalKind::NodeConfiguration),
    (
        "Memory specification can not be satisfied",
        RefusalKind::NodeConfiguration,
    ),
    (
        "CPU count per node can not be satisfied",
        RefusalKind::NodeConfiguration,
    ),
    ("CPU count specification invalid", RefusalKind::NodeConfiguration),
    ("Node count specification invalid", RefusalKind::NodeConfiguration),
    (
        "More processors requested than permitted",
        RefusalKind::NodeConfiguration,
    ),
    (
        "Memory required by task is not available",
        RefusalKind::NodeConfiguration,
    ),
    ("Access/permission denied", RefusalKind::PermissionDenied),
    (
        "User's group not permitted to use this partition",
        RefusalKind::PermissionDenied,
    ),
    ("Job dependency problem", RefusalKind::Other),
    ("Required partition not available", RefusalKind::InvalidPartition),
    ("unrecognized option", RefusalKind::Usage),
    ("invalid option", RefusalKind::Usage),
    ("requires an argument", RefusalKind::Usage),
    ("Unable to open file", RefusalKind::Usage),
    ("Batch script is empty", RefusalKind::Usage),
    ("DOS line breaks", RefusalKind::Usage),
    ("does not look like a batch script", RefusalKind::Usage),
    (
        "Pathname of a file, directory or other parameter too long",
        RefusalKind::Usage,
    ),
];

/// Reads what sbatch left. It exits with 1 for almost everything, so its words decide; words that are not known say
/// that the submission failed only if sbatch itself says so.
pub fn parse(code: u8, stdout: &str, stderr: &str) -> SubmitAnswer {
    let message = || {
        let (err, out) = (stderr.trim(), stdout.trim());
        match (err.is_empty(), out.is_empty()) {
            (false, _) => err.to_owned(),
            (true, false) => out.to_owned(),
            (true, true) => format!("sbatch ended with exit code {code} and without a word"),
        }
    };
    if code == 0 {
        return match submitted(stdout) {
            Some(submitted) => SubmitAnswer::Accepted(submitted),
            None => SubmitAnswer::Ambiguous { message: message() },
        };
    }
    // sbatch tries again by itself, so a later failure can follow an earlier, unanswered attempt.
    if stderr.contains("Socket timed out") || stderr.contains("Zero Bytes were transmitted") {
        return SubmitAnswer::Ambiguous { message: message() };
    }
    if NEVER_TAKEN.iter().any(|words| stderr.contains(words)) {
        return SubmitAnswer::ControllerDown { message: message() };
    }
    let refusal = limit_name(stderr)
        .map(|name| {
            if name.starts_with("QOS") {
                RefusalKind::QosLimit(name.to_owned())
            } else {
                RefusalKind::AssocLimit(name.to_owned())
            }
        })
        .or_else(|| {
            let found = REFUSALS.iter().find(|(words, _)| stderr.contains(words));
            found.map(|(_, kind)| kind.clone())
        })
        .or_else(|| {
            stderr
                .contains("Job violates accounting/QOS policy")
                .then(|| RefusalKind::AssocLimit("not named".to_owned()))
        });
    if let Some(kind) = refusal {
        return SubmitAnswer::Refused(SubmitRefusal {
            kind,
            message: message(),
        });
    }
    if TRANSIENT.iter().any(|words| stderr.contains(words)) {
        return SubmitAnswer::Ambiguous { message: message() };
    }
    if stderr.contains("Batch job submission failed:") {
        return SubmitAnswer::Refused(SubmitRefusal {
            kind: RefusalKind::Other,
            message: message(),
        });
    }
    SubmitAnswer::Ambiguous { message: message() }
}

/// The last line that is nothing but an id. Banners of login shells and site wrappers print other things on stdout, and
/// some of them end in a number, so a line has to match as a whole.
fn submitted(stdout: &str) -> Option<Submitted> {
    stdout.lines().rev().find_map(|line| {
        let line = line.trim();
        let line = match line.strip_prefix("Submitted batch job ") {
            // `Submitted batch job 12 on cluster alps`
            Some(rest) => return sentence(rest),
            None => line,
        };
        let (job, cluster) = match line.split_once(';') {
            Some((job, cluster)) => (job, Some(cluster)),
            None => (line, None),
        };
        id(job, cluster)
    })
}

fn sentence(rest: &str) -> Option<Submitted> {
    match rest.split_once(" on cluster ") {
        Some((job, cluster)) => id(job, Some(cluster)),
        None => id(rest, None),
    }
}

fn id(job: &str, cluster: Option<&str>) -> Option<Submitted> {
    let digits = !job.is_empty() && job.bytes().all(|byte| byte.is_ascii_digit());
    let job = digits
        .then(|| job.parse().ok())
        .flatten()
        .filter(|job| *job > 0)?;
    let named = |name: &str| {
        !name.is_empty()
            && name
                .chars()
                .all(|char| char.is_ascii_alphanumeric() || "_.-".contains(char))
    };
    if !cluster.is_none_or(named) {
        return None;
    }
    Some(Submitted {
        job,
        cluster: cluster.map(str::to_owned),
    })
}

/// The word for an association or QOS limit, for example `QOSMaxNodePerUserLimit`, which sbatch prints on a line of its own.
fn limit_name(stderr: &str) -> Option<&str> {
    stderr
        .split(|char: char| !char.is_ascii_alphanumeric())
        .find(|word| {
            ["QOSMax", "QOSMin", "QOSGrp", "AssocMax", "AssocMin", "AssocGrp"]
                .iter()
                .any(|start| word.starts_with(start))
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn job(stdout: &str) -> Option<u64> {
        match parse(0, stdout, "") {
            SubmitAnswer::Accepted(submitted) => Some(submitted.job),
            SubmitAnswer::Refused(_)
            | SubmitAnswer::Ambiguous { .. }
            | SubmitAnswer::ControllerDown { .. } => None,
        }
    }

    #[test]
    fn an_id_is_found_among_banners_and_never_in_them() {
        assert_eq!(job("4711\n"), Some(4711));
        assert_eq!(job("Welcome to Stampede3\n4711;alps\n"), Some(4711));
        assert_eq!(job("12\n34\n"), Some(34));
        assert_eq!(job("Submitted batch job 12\n"), Some(12));
        for banner in [
            "Welcome to Stampede3\n",
            "job 12 that will run\n",
            "",
            "0\n",
            "12 13\n",
            "-3\n",
            "1;\n",
        ] {
            assert_eq!(job(banner), None, "{banner}");
        }
        let on = parse(
            0,
            "Submitted batch job 12 on cluster alps\n",
            "sbatch: warning: x",
        );
        let SubmitAnswer::Accepted(submitted) = on else {
            panic!("{on:?}")
        };
        assert_eq!(submitted.cluster.as_deref(), Some("alps"));
    }

    #[test]
    fn what_may_have_made_a_job_is_never_called_a_refusal() {
        for text in [
            "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation",
            "sbatch: error: Batch job submission failed: Zero Bytes were transmitted or received",
            "Connection to beverin closed by remote host.",
            "",
        ] {
            assert!(
                matches!(parse(1, "", text), SubmitAnswer::Ambiguous { .. }),
                "{text}"
            );
        }
        let down = "sbatch: error: Batch job submission failed: Unable to contact slurm controller (connect failure)";
        assert!(matches!(parse(1, "", down), SubmitAnswer::ControllerDown { .. }));
        let other = "sbatch: error: Batch job submission failed: Novel words";
        assert!(matches!(
            parse(1, "", other),
            SubmitAnswer::Refused(SubmitRefusal {
                kind: RefusalKind::Other,
                ..
            })
        ));
    }

    fn kind_of(command: &str) -> RefusalKind {
        let has = |words: &[&str]| words.iter().any(|word| command.contains(word));
        if has(&["-A nosuch", "-A notmine"]) {
            RefusalKind::InvalidAccount
        } else if has(&["-A lp99"]) {
            RefusalKind::AssocLimit("AssocMaxSubmitJobLimit".into())
        } else if has(&["-p nosuch"]) {
            RefusalKind::InvalidPartition
        } else if has(&["-q nosuch"]) {
            RefusalKind::InvalidQos
        } else if has(&["-q tiny -t"]) {
            RefusalKind::QosLimit("QOSMaxWallDurationPerJobLimit".into())
        } else if has(&["-q tiny -N"]) {
            RefusalKind::QosLimit("QOSMaxNodePerUserLimit".into())
        } else if has(&["-t 48", "-t 02:", "-t banana"]) {
            RefusalKind::TimeLimit
        } else if has(&[
            "--gres",
            "-w nid099",
            "--mem=",
            "-c 500",
            "-C nosuch",
            "-N9",
            "-N3",
        ]) {
            RefusalKind::NodeConfiguration
        } else if has(&["--dependency"]) {
            RefusalKind::Other
        } else {
            RefusalKind::Usage
        }
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
                let (command, rest) = case.split_once('\n').unwrap();
                let (output, code) = rest.split_once("rc=").unwrap();
                let code: u8 = code.split_whitespace().next().unwrap().parse().unwrap();
                if command.contains("--test-only") {
                    continue;
                }
                seen += 1;
                if code == 0 {
                    assert!(job(output).is_some(), "{case}");
                    continue;
                }
                let answer = parse(code, "", output);
                let SubmitAnswer::Refused(refusal) = answer else {
                    panic!("{case}: {answer:?}")
                };
                assert_eq!(refusal.kind, kind_of(command), "{case}");
                assert!(!refusal.kind.profile_key().is_empty() && refusal.to_string().contains(": "));
            }
        }
        assert_eq!(seen, 62);
    }

    #[test]
    fn the_key_to_look_at_fits_the_limit() {
        let key = |name: &str| RefusalKind::QosLimit(name.to_owned()).profile_key();
        assert_eq!(key("QOSMaxWallDurationPerJobLimit"), "allocation_time");
        assert_eq!(key("QOSMaxNodePerUserLimit"), "max_nodes");
        assert_eq!(key("QOSMaxSubmitJobPerUserLimit"), "slurm.qos");
    }

    proptest! {
        #[test]
        fn only_a_success_gives_a_job(code in 1_u8.., out in "(\\PC|\n)*", err in ".*") {
            prop_assert!(!matches!(parse(code, &out, &err), SubmitAnswer::Accepted(_)));
        }
    }
}
