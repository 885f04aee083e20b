//! What it means that a query of Slurm failed.

use serde::{Deserialize, Serialize};

/// What a failed `squeue`, `sacct`, `scontrol` or `sinfo` says. None of it is a state of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum QueryFailure {
    /// The controller does not know the job (any more): it forgets an ended one after MinJobAge.
    UnknownJob,
    /// The controller or the database cannot be reached or is busy: ask again later.
    Transient,
    /// The query is not allowed.
    Denied,
    /// The query itself is wrong, for example an option or field that this version lacks.
    Usage,
    /// Something else; no more is known than if nothing had been asked.
    Other,
}

impl QueryFailure {
    /// Reads what the tool wrote to standard error.
    pub fn classify(stderr: &str) -> Self {
        let has = |words: &[&str]| words.iter().any(|word| stderr.contains(word));
        // "Unable to contact" comes first: srun adds "Expired or invalid job" to it.
        if has(TRANSIENT) {
            Self::Transient
        } else if has(&["Invalid job id specified"]) {
            Self::UnknownJob
        } else if has(&["Access/permission denied", "Permission denied"]) {
            Self::Denied
        } else if has(USAGE) {
            Self::Usage
        } else {
            Self::Other
        }
    }

    /// Whether the same query may succeed later.
    pub fn is_transient(self) -> bool {
        match self {
            Self::Transient | Self::Other => true,
            Self::UnknownJob | Self::Denied | Self::Usage => false,
        }
    }
}

/// Words of a controller or database that is down, restarting or overloaded (slurm_errno.c).
pub(super) const TRANSIENT: &[&str] = &[
    "Unable to contact slurm controller",
    "Socket timed out on send/recv operation",
    "Zero Bytes were transmitted or received",
    "Rate limit exceeded",
    "RPC rate limited",
    "Unexpected message received",
    "Transport endpoint is not connected",
    "Resource temporarily unavailable",
    "Problem talking to the database",
    "Sending PersistInit msg",
    "failed to open persistent connection",
    "Connection refused",
    "Connection timed out",
    "Connection reset by peer",
    "Slurm backup controller in standby mode",
    "Slurm temporarily unable to accept job",
    "Communication connection failure",
    "Message receive failure",
    "Message send failure",
    "Insane message length",
];

const USAGE: &[&str] = &[
    "unrecognized option",
    "invalid option",
    "Invalid field requested",
    "Bad job/step specified",
    "Invalid job id ",
    "Unknown option",
    "Invalid entity",
    "invalid entity",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn captured_words_are_understood() {
        for (text, expected) in [
            (
                "slurm_load_jobs error: Invalid job id specified",
                QueryFailure::UnknownJob,
            ),
            (
                "slurm_load_jobs error: Unable to contact slurm controller (connect failure)",
                QueryFailure::Transient,
            ),
            (
                "sacct: error: Problem talking to the database: Connection refused",
                QueryFailure::Transient,
            ),
            (
                "srun: error: Unable to confirm allocation for job 70: Unable to contact slurm controller (connect failure)\n\
                 srun: Check SLURM_JOB_ID environment variable. Expired or invalid job 70",
                QueryFailure::Transient,
            ),
            (
                "scancel: error: Kill job error on job id 63: Access/permission denied",
                QueryFailure::Denied,
            ),
            (
                "sacct: error: Invalid field requested: \"NoSuch\"",
                QueryFailure::Usage,
            ),
            ("scancel: error: Invalid job id banana", QueryFailure::Usage),
            (
                "sacct: fatal: Bad job/step specified: banana",
                QueryFailure::Usage,
            ),
            ("", QueryFailure::Other),
        ] {
            assert_eq!(QueryFailure::classify(text), expected, "{text}");
        }
    }
}
