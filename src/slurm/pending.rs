//! Why a job waits, in words, and whether waiting helps (Slurm documentation, job_reason_codes).

/// A reason that will not go away by itself: the job waits for ever unless somebody acts.
pub fn never_starts(reason: &str) -> bool {
    let reason = reason.trim();
    matches!(
        reason,
        "JobHeldUser"
            | "JobHeldAdmin"
            | "DependencyNeverSatisfied"
            | "BadConstraints"
            | "PartitionTimeLimit"
            | "PartitionNodeLimit"
            | "PartitionDown"
            | "AccountNotAllowed"
            | "InvalidAccount"
            | "InvalidQOS"
            | "QOSNotAllowed"
            | "AssocMaxWallDurationPerJobLimit"
            | "QOSMaxWallDurationPerJobLimit"
            | "QOSMaxNodePerJobLimit"
            | "QOSMaxCpuPerJobLimit"
            | "AssocMaxNodePerJobLimit"
    ) || reason.contains("launch failed requeued held")
}

/// The reason as a sentence; an unknown one is shown as it is.
pub fn sentence(reason: &str) -> String {
    let words = match reason.trim() {
        "None" | "" => "not yet looked at by the scheduler",
        "Priority" => "other jobs have a higher priority",
        "Resources" => "waiting for free nodes",
        "Dependency" => "waiting for another job",
        "BeginTime" => "its begin time has not come",
        "JobHeldUser" | "JobHeldAdmin" => "held: it will not start until it is released",
        "PartitionTimeLimit" => "asks for more time than the partition allows: it will never start",
        "PartitionNodeLimit" => "asks for more nodes than the partition allows: it will never start",
        "PartitionDown" | "PartitionInactive" => "the partition is down",
        "QOSMaxJobsPerUserLimit" | "QOSMaxNodePerUserLimit" => "your QOS limit is used up by your other jobs",
        "AssocGrpCPUMinutesLimit" | "AssocGrpGRESMinutes" => "the account's budget is used up",
        other if other.starts_with("ReqNodeNotAvail") => "the nodes are down, drained or reserved",
        other => return other.to_owned(),
    };
    format!(
        "{} ({})",
        words,
        if reason.trim().is_empty() {
            "None"
        } else {
            reason.trim()
        }
    )
}
