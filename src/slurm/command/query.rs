//! The arguments of `squeue`, `sacct`, `scontrol` and `scancel` (the manual page of each).

use crate::slurm::{sacct, squeue};

/// Variables of the user that change what the tools print, or where they ask: to be unset for every query.
pub const ENVIRONMENT: &[&str] = &[
    "SQUEUE_ACCOUNT",
    "SQUEUE_ALL",
    "SQUEUE_ARRAY",
    "SQUEUE_FORMAT",
    "SQUEUE_FORMAT2",
    "SQUEUE_LICENSES",
    "SQUEUE_LOCAL",
    "SQUEUE_NAMES",
    "SQUEUE_PARTITION",
    "SQUEUE_PRIORITY",
    "SQUEUE_QOS",
    "SQUEUE_SIBLING",
    "SQUEUE_SORT",
    "SQUEUE_STATES",
    "SQUEUE_USERS",
    "SACCT_FEDERATION",
    "SACCT_FORMAT",
    "SACCT_LOCAL",
    "SCONTROL_ALL",
    "SCONTROL_FUTURE",
    "SINFO_ALL",
    "SINFO_FORMAT",
    "SINFO_PARTITION",
    "SINFO_SORT",
    "SLURM_CLUSTERS",
];

/// Variables to set for every query: times in seconds since the epoch, words in English.
pub fn query_environment() -> [(&'static str, &'static str); 2] {
    [("SLURM_TIME_FORMAT", "%s"), ("LC_ALL", "C")]
}

/// A signal that `scancel` sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    /// SIGTERM
    Term,
    /// SIGKILL
    Kill,
    /// SIGUSR1
    Usr1,
}

impl Signal {
    fn name(self) -> &'static str {
        match self {
            Self::Term => "TERM",
            Self::Kill => "KILL",
            Self::Usr1 => "USR1",
        }
    }
}

fn words(parts: &[&str]) -> Vec<String> {
    parts.iter().map(|part| (*part).to_owned()).collect()
}

fn with_cluster(mut argv: Vec<String>, cluster: Option<&str>) -> Vec<String> {
    if let Some(cluster) = cluster {
        argv.insert(1, format!("--clusters={cluster}"));
    }
    argv
}

/// One job in every state that the controller remembers. Read with [`squeue::parse`].
pub fn squeue_job(job: u64, cluster: Option<&str>) -> Vec<String> {
    let mut argv = words(&["squeue", "--noheader", "--states=all"]);
    argv.push(format!("--jobs={job}"));
    argv.push(format!("--format={}", squeue::FORMAT));
    with_cluster(argv, cluster)
}

/// Our jobs of a name, in every state that the controller remembers. Read with [`squeue::parse`].
pub fn squeue_named(name: &str, cluster: Option<&str>) -> Vec<String> {
    let mut argv = words(&["squeue", "--noheader", "--states=all", "--me"]);
    argv.push(format!("--name={name}"));
    argv.push(format!("--format={}", squeue::FORMAT));
    with_cluster(argv, cluster)
}

/// The running steps of a job. Read with [`squeue::parse_steps`].
pub fn squeue_steps(job: u64, cluster: Option<&str>) -> Vec<String> {
    let mut argv = words(&["squeue", "--noheader", "--steps"]);
    argv.push(format!("--jobs={job}"));
    argv.push(format!("--format={}", squeue::STEP_FORMAT));
    with_cluster(argv, cluster)
}

/// All rows of a job; with `lives`, those of the lives before a requeue, too. Read with [`sacct::parse`].
pub fn sacct_job(job: u64, lives: bool, cluster: Option<&str>) -> Vec<String> {
    let mut argv = words(&["sacct", "--noheader", "--parsable2"]);
    if lives {
        argv.push("--duplicates".to_owned());
    }
    argv.push(format!("--jobs={job}"));
    argv.push(format!("--format={}", sacct::FORMAT));
    with_cluster(argv, cluster)
}

/// Our allocations of a name since a time such as `now-2days`; without one sacct(1) starts at midnight.
pub fn sacct_named(name: &str, since: &str, cluster: Option<&str>) -> Vec<String> {
    let mut argv = words(&[
        "sacct",
        "--noheader",
        "--parsable2",
        "--allocations",
        "--duplicates",
    ]);
    argv.push(format!("--name={name}"));
    argv.push(format!("--starttime={since}"));
    argv.push(format!("--format={}", sacct::FORMAT));
    with_cluster(argv, cluster)
}

/// The record of a job, for [`crate::slurm::cluster::JobFacts`].
pub fn scontrol_job(job: u64, cluster: Option<&str>) -> Vec<String> {
    let mut argv = words(&["scontrol", "--oneliner", "show", "job"]);
    argv.push(job.to_string());
    with_cluster(argv, cluster)
}

/// The records of all partitions, or of one, for [`crate::slurm::cluster::Partition`].
pub fn scontrol_partition(partition: Option<&str>, cluster: Option<&str>) -> Vec<String> {
    let mut argv = words(&["scontrol", "--oneliner", "show", "partition"]);
    argv.extend(partition.map(str::to_owned));
    with_cluster(argv, cluster)
}

/// The configuration, for [`crate::slurm::cluster::ClusterConfig`].
pub fn scontrol_config(cluster: Option<&str>) -> Vec<String> {
    with_cluster(words(&["scontrol", "show", "config"]), cluster)
}

/// Ends a job. Without a signal, as a waiting job needs it. scancel(1) exits 0 for a job that is over or unknown, so
/// only the job's state afterwards says what came of it.
pub fn scancel_job(job: u64, cluster: Option<&str>) -> Vec<String> {
    let mut argv = words(&["scancel"]);
    argv.push(job.to_string());
    with_cluster(argv, cluster)
}

/// Signals one step; without a signal, kills it.
pub fn scancel_step(job: u64, step: u32, signal: Option<Signal>, cluster: Option<&str>) -> Vec<String> {
    let mut argv = words(&["scancel"]);
    argv.extend(signal.map(|signal| format!("--signal={}", signal.name())));
    argv.push(format!("{job}.{step}"));
    with_cluster(argv, cluster)
}

/// Signals the batch script alone.
pub fn scancel_batch(job: u64, signal: Signal, cluster: Option<&str>) -> Vec<String> {
    let mut argv = words(&["scancel", "--batch"]);
    argv.push(format!("--signal={}", signal.name()));
    argv.push(job.to_string());
    with_cluster(argv, cluster)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_name_their_format_and_window() {
        assert_eq!(
            squeue_job(7, None),
            [
                "squeue",
                "--noheader",
                "--states=all",
                "--jobs=7",
                "--format=%i|%T|%r|%N|%l|%S|%e|%V|%P|%k|%j"
            ]
        );
        let argv = sacct_named("vs-1", "now-2days", Some("alps"));
        assert_eq!(argv[1], "--clusters=alps");
        assert!(argv.contains(&"--starttime=now-2days".to_owned()));
        assert!(sacct_job(7, true, None).contains(&"--duplicates".to_owned()));
        assert!(squeue_steps(7, None).contains(&"--steps".to_owned()));
        assert_eq!(
            scontrol_job(7, None),
            ["scontrol", "--oneliner", "show", "job", "7"]
        );
        assert_eq!(scontrol_partition(Some("mi300"), None).last().unwrap(), "mi300");
        assert_eq!(scontrol_config(None), ["scontrol", "show", "config"]);
        assert!(squeue_named("vs-1", None).contains(&"--me".to_owned()));
    }

    #[test]
    fn a_cancel_says_what_it_is_for() {
        assert_eq!(scancel_job(7, None), ["scancel", "7"]);
        assert_eq!(
            scancel_step(7, 3, Some(Signal::Term), None),
            ["scancel", "--signal=TERM", "7.3"]
        );
        assert_eq!(scancel_step(7, 3, None, None), ["scancel", "7.3"]);
        assert_eq!(
            scancel_batch(7, Signal::Usr1, None),
            ["scancel", "--batch", "--signal=USR1", "7"]
        );
        assert_eq!(scancel_batch(7, Signal::Kill, None)[2], "--signal=KILL");
    }
}
