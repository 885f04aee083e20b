//! Exit codes: one table, which `docs/exit-codes.md` repeats and a test compares.

use std::process::ExitCode;

use crate::job::{Outcome, Verdict};
use crate::runner::FailureKind;

macro_rules! exit_codes {
    ($($name:ident = $code:literal, $meaning:literal;)+) => {
        /// What the process ends with when the command's own exit code is not the answer.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum ExitStatus {
            $(#[doc = $meaning] $name,)+
        }

        impl ExitStatus {
            /// Every code with its meaning.
            pub const TABLE: &[(u8, &str)] = &[$(($code, $meaning),)+];

            /// The code.
            pub fn code(self) -> u8 {
                match self {
                    $(Self::$name => $code,)+
                }
            }
        }
    };
}

exit_codes! {
    Usage = 64, "The command line is wrong";
    Candidate = 65, "The candidate cannot be staged";
    Unreachable = 69, "The cluster cannot be reached, or was lost and did not come back";
    Internal = 70, "Something that should not be possible";
    RemoteStorage = 73, "The cluster's storage is full or refused the files";
    LocalStorage = 74, "The local disk refused the files";
    Refused = 76, "Slurm refused the allocation, or would never start it";
    Access = 77, "A key, certificate, host key or account was refused";
    Config = 78, "The profile, or the request against it, does not fit";
    AllocationExpired = 80, "ALLOCATION_EXPIRED: the allocation reached its time limit";
    NodeFailed = 81, "NODE_FAILED: a node was lost, or the container never started";
    Preempted = 82, "PREEMPTED: another job took the allocation";
    TransportLost = 83, "TRANSPORT_LOST: nothing is known of the end";
    ArtifactMissing = 84, "The command exited 0, but a declared artifact did not come back";
    TimedOut = 124, "APPLICATION_FAILED: the command was ended at its own --timeout, as timeout(1) says it";
    Cancelled = 130, "CANCELLED: by us (Ctrl-C) or by somebody else";
}

impl ExitStatus {
    /// The code for a failure without a report.
    pub fn of(kind: FailureKind) -> Self {
        match kind {
            FailureKind::Config => Self::Config,
            FailureKind::Candidate => Self::Candidate,
            FailureKind::Access => Self::Access,
            FailureKind::Unreachable => Self::Unreachable,
            FailureKind::Refused => Self::Refused,
            FailureKind::RemoteStorage => Self::RemoteStorage,
            FailureKind::LocalStorage => Self::LocalStorage,
            FailureKind::Internal => Self::Internal,
        }
    }
}

impl From<ExitStatus> for ExitCode {
    fn from(status: ExitStatus) -> Self {
        Self::from(status.code())
    }
}

/// The code for a verdict: the command's own where it has one.
pub fn for_verdict(verdict: &Verdict) -> u8 {
    match verdict.outcome {
        Outcome::Completed => 0,
        Outcome::ApplicationFailed => verdict.command_code().unwrap_or(ExitStatus::TimedOut.code()),
        Outcome::AllocationExpired => ExitStatus::AllocationExpired.code(),
        Outcome::NodeFailed => ExitStatus::NodeFailed.code(),
        Outcome::Preempted => ExitStatus::Preempted.code(),
        Outcome::TransportLost => ExitStatus::TransportLost.code(),
        Outcome::Cancelled => ExitStatus::Cancelled.code(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_document_has_the_table() {
        let document = include_str!("../../docs/exit-codes.md");
        for (code, meaning) in ExitStatus::TABLE {
            assert!(
                document.contains(&format!("| {code} | {meaning} |")),
                "{code} is not in docs/exit-codes.md"
            );
        }
        let rows = document
            .lines()
            .filter(|line| line.starts_with("| ") && line.as_bytes()[2].is_ascii_digit())
            .count();
        assert_eq!(rows, ExitStatus::TABLE.len());
    }
}
