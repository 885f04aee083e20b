//! Facts about a cluster and a job in `key=value` form: `scontrol show config|partition|job`, `sinfo --version`.

use std::fmt;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde::{Deserialize, Serialize};

use super::state::SlurmState;
use super::time::{TimeLimit, time_in};

/// Splits a record of `scontrol show` (one line with `-o`, or several) into its keys and values.
///
/// Values can hold blanks, `=` and even what looks like a key, and nothing is quoted. A key starts the record or follows
/// a blank, begins with an upper-case letter, and has no other characters than letters, digits, `_`, `/`, `:` and `&`;
/// everything up to the next key is the value. `JobName=a B=c` cannot be told from two keys: never believe such a text
/// for more than its first key, and ask squeue(1) for names.
pub fn key_values(record: &str) -> Vec<(String, String)> {
    let mut found: Vec<(String, String)> = Vec::new();
    for word in record.split_whitespace() {
        match word.split_once('=') {
            Some((key, value)) if is_key(key) => found.push((key.to_owned(), value.to_owned())),
            Some(_) | None => {
                if let Some((_, value)) = found.last_mut() {
                    value.push(' ');
                    value.push_str(word);
                }
            }
        }
    }
    found
}

fn is_key(text: &str) -> bool {
    text.starts_with(|char: char| char.is_ascii_uppercase())
        && text
            .chars()
            .all(|char| char.is_ascii_alphanumeric() || "_/:&".contains(char))
}

/// The first value of a key: a name that looks like a later key cannot take its place.
fn value<'a>(pairs: &'a [(String, String)], key: &str) -> Option<&'a str> {
    let (_, value) = pairs.iter().find(|(name, _)| name.eq_ignore_ascii_case(key))?;
    let nothing = ["", "(null)", "N/A", "None", "Unknown"].contains(&value.as_str());
    (!nothing).then_some(value.as_str())
}

/// What of `scontrol show config` matters to us (slurm.conf(5)). What a release does not print is `None`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ClusterConfig {
    /// The cluster's name.
    pub cluster: Option<String>,
    /// Seconds between SIGTERM and SIGKILL at the end of a job.
    pub kill_wait: Option<u64>,
    /// Seconds for which the controller remembers a job that ended.
    pub min_job_age: Option<u64>,
    /// Seconds after which a message to the controller counts as lost.
    pub message_timeout: Option<u64>,
    /// Minutes by which a job may exceed its limit.
    pub over_time_limit: Option<u64>,
    /// Seconds until a silent node counts as down.
    pub slurmd_timeout: Option<u64>,
    /// How many steps a job may have.
    pub max_step_count: Option<u64>,
    /// Whether jobs are requeued unless they say otherwise.
    pub job_requeue: Option<bool>,
    /// What others may not see.
    pub private_data: Option<String>,
    /// What happens to preempted jobs.
    pub preempt_mode: Option<String>,
    /// What accounting keeps besides, for example `job_comment`.
    pub accounting_store_flags: Vec<String>,
    /// Options of the controller, for example `rl_enable`.
    pub slurmctld_parameters: Vec<String>,
    /// Where accounting is kept; `accounting_storage/none` keeps none.
    pub accounting_storage: Option<String>,
    /// The release.
    pub version: Option<SlurmVersion>,
}

impl ClusterConfig {
    /// Reads `Key = value` lines.
    pub fn parse(text: &str) -> Self {
        let pairs: Vec<(String, String)> = text
            .lines()
            .filter_map(|line| line.split_once('='))
            .map(|(key, value)| (key.trim().to_owned(), value.trim().to_owned()))
            .collect();
        let text = |key: &str| value(&pairs, key).map(str::to_owned);
        // `KillWait = 30 sec`, `OverTimeLimit = 0 min`, `MaxStepCount = 40000`
        let number = |key: &str| value(&pairs, key)?.split_whitespace().next()?.parse().ok();
        let list = |key: &str| {
            value(&pairs, key).map_or_else(Vec::new, |list| list.split(',').map(str::to_owned).collect())
        };
        Self {
            cluster: text("ClusterName"),
            kill_wait: number("KillWait"),
            min_job_age: number("MinJobAge"),
            message_timeout: number("MessageTimeout"),
            over_time_limit: number("OverTimeLimit"),
            slurmd_timeout: number("SlurmdTimeout"),
            max_step_count: number("MaxStepCount"),
            job_requeue: number("JobRequeue").map(|number| number != 0),
            private_data: text("PrivateData").filter(|data| data != "none"),
            preempt_mode: text("PreemptMode"),
            accounting_store_flags: list("AccountingStoreFlags"),
            slurmctld_parameters: list("SlurmctldParameters"),
            accounting_storage: text("AccountingStorageType"),
            version: value(&pairs, "SLURM_VERSION").and_then(SlurmVersion::parse),
        }
    }

    /// Whether there is any accounting to ask.
    pub fn has_accounting(&self) -> bool {
        self.accounting_storage
            .as_ref()
            .is_none_or(|storage| !storage.ends_with("/none"))
    }
}

/// The release of Slurm.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SlurmVersion {
    /// The year.
    pub year: u16,
    /// The month.
    pub month: u16,
    /// The maintenance release.
    pub patch: u16,
}

impl SlurmVersion {
    /// Reads `slurm 24.11.5`, `slurm-wlm 22.05.8` or the bare number (`sinfo --version`); what follows is dropped.
    pub fn parse(text: &str) -> Option<Self> {
        let number = text
            .split_whitespace()
            .find(|word| word.starts_with(|char: char| char.is_ascii_digit()))?;
        let mut parts = number.split(['.', '-']);
        Some(Self {
            year: parts.next()?.parse().ok()?,
            month: parts.next()?.parse().ok()?,
            patch: parts.next().map_or(0, |patch| {
                let digits: String = patch.chars().take_while(char::is_ascii_digit).collect();
                digits.parse().unwrap_or(0)
            }),
        })
    }
}

impl fmt::Display for SlurmVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:02}.{:02}.{}", self.year, self.month, self.patch)
    }
}

/// What of a partition matters to us (`scontrol -o show partition`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Partition {
    /// Its name.
    pub name: String,
    /// `UP`, `DOWN`, `DRAIN` or `INACTIVE`.
    pub state: String,
    /// Whether jobs go there that name none.
    pub default: bool,
    /// The longest time limit.
    pub max_time: TimeLimit,
    /// The time limit of a job that gives none.
    pub default_time: TimeLimit,
    /// The most nodes a job can have; `None` for no limit.
    pub max_nodes: Option<u64>,
    /// How many nodes it has.
    pub total_nodes: Option<u64>,
    /// What happens to preempted jobs in it.
    pub preempt_mode: Option<String>,
    /// Seconds between a preempted job's SIGTERM and its end.
    pub grace_time: Option<u64>,
    /// Whether nodes are shared.
    pub over_subscribe: Option<String>,
}

impl Partition {
    /// Reads one record a line; lines without a name are skipped.
    pub fn parse_all(text: &str) -> Vec<Self> {
        text.lines().filter_map(Self::parse).collect()
    }

    fn parse(line: &str) -> Option<Self> {
        let pairs = key_values(line);
        let text = |key: &str| value(&pairs, key).map(str::to_owned);
        let limit = |key: &str| value(&pairs, key).map_or(TimeLimit::NotSet, TimeLimit::parse);
        let number = |key: &str| value(&pairs, key)?.parse().ok();
        Some(Self {
            name: text("PartitionName")?,
            state: text("State").unwrap_or_default(),
            default: value(&pairs, "Default") == Some("YES"),
            max_time: limit("MaxTime"),
            // `NONE` means MaxTime (slurm.conf(5)).
            default_time: limit("DefaultTime"),
            max_nodes: number("MaxNodes"),
            total_nodes: number("TotalNodes"),
            preempt_mode: text("PreemptMode"),
            grace_time: number("GraceTime"),
            over_subscribe: text("OverSubscribe"),
        })
    }

    /// Whether jobs in it can start.
    pub fn is_up(&self) -> bool {
        self.state == "UP"
    }
}

/// What of a job matters to us (`scontrol -o show job`): what was granted, and what squeue(1) does not print.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JobFacts {
    /// Its number.
    pub job: u64,
    /// Its state.
    pub state: SlurmState,
    /// Why it waits or ended.
    pub reason: Option<String>,
    /// The limit that was granted, which need not be the one that was asked for.
    pub limit: TimeLimit,
    /// When it started.
    pub start: Option<Timestamp>,
    /// When it ended, or ends at the latest.
    pub end: Option<Timestamp>,
    /// When it was chosen to be preempted. Already there in the grace time, while the state is still RUNNING.
    pub preempted_at: Option<Timestamp>,
    /// How often it was requeued.
    pub restarts: Option<u32>,
    /// Whether it can be.
    pub requeue: Option<bool>,
    /// Its nodes.
    pub nodes: Option<String>,
    /// The node of its batch script.
    pub batch_host: Option<String>,
    /// What it was given, for example `cpu=576,gres/gpu=12`.
    pub tres: Option<String>,
}

impl JobFacts {
    /// Reads one record. Times are local unless `SLURM_TIME_FORMAT=%s` was set.
    pub fn parse(text: &str, zone: &TimeZone) -> Option<Self> {
        // The name and everything of free text stands before or after the keys that are read here; each is read at
        // its first place after `JobState`, which no name in front of it can forge.
        let start = text.find("JobState=")?;
        let (head, tail) = text.split_at_checked(start)?;
        let job = value(&key_values(head), "JobId")?
            .split_whitespace()
            .next()?
            .parse()
            .ok()?;
        let pairs = key_values(tail);
        let text = |key: &str| value(&pairs, key).map(str::to_owned);
        let time = |key: &str| time_in(value(&pairs, key)?, zone);
        let number = |key: &str| value(&pairs, key)?.parse::<u32>().ok();
        Some(Self {
            job,
            state: SlurmState::parse(value(&pairs, "JobState")?),
            reason: text("Reason"),
            limit: value(&pairs, "TimeLimit").map_or(TimeLimit::NotSet, TimeLimit::parse),
            start: time("StartTime"),
            end: time("EndTime"),
            preempted_at: time("PreemptTime"),
            restarts: number("Restarts"),
            requeue: number("Requeue").map(|number| number != 0),
            nodes: text("NodeList"),
            batch_host: text("BatchHost"),
            tres: text("AllocTRES").or_else(|| text("TRES")),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn values_keep_their_blanks_and_equal_signs() {
        let pairs = key_values(
            "JobId=7 Reason=launch failed requeued held TRES=cpu=2,gres/gpu=4 ReqB:S:C:T=0:0:*:* CPUs/Task=1 \
             Comment=see x=y and =z Power=",
        );
        let get = |key| value(&pairs, key);
        assert_eq!(get("Reason"), Some("launch failed requeued held"));
        assert_eq!(get("TRES"), Some("cpu=2,gres/gpu=4"));
        assert_eq!(get("ReqB:S:C:T"), Some("0:0:*:*"));
        assert_eq!(get("CPUs/Task"), Some("1"));
        assert_eq!(get("Comment"), Some("see x=y and =z"));
        assert_eq!(get("Power"), None);
    }

    #[test]
    fn a_captured_job_is_read() {
        let text = include_str!("../../tests/fixtures/slurm/22.05/timeout/scontrol-job.txt");
        let job = JobFacts::parse(text, &TimeZone::UTC).unwrap();
        assert_eq!((job.job, job.state), (9, SlurmState::Timeout));
        assert_eq!(job.limit.finite().unwrap().seconds(), 60);
        assert_eq!(job.end.unwrap().to_string(), "2026-12-01T04:32:21Z");
        assert_eq!(
            (job.preempted_at, job.restarts, job.requeue),
            (None, Some(0), Some(true))
        );
        assert_eq!(job.batch_host.as_deref(), Some("nid001"));
        assert_eq!(job.tres.as_deref(), Some("cpu=2,mem=200M,node=1,billing=2"));
    }

    #[test]
    fn preemption_shows_in_the_grace_time() {
        for text in [
            include_str!("../../tests/fixtures/slurm/22.05/preempted_low/during.scontrol-job.txt"),
            include_str!("../../tests/fixtures/slurm/24.11/preempted_low/during.scontrol-job.txt"),
        ] {
            let job = JobFacts::parse(text, &TimeZone::UTC).unwrap();
            assert_eq!(job.state, SlurmState::Running);
            assert!(job.preempted_at.is_some());
        }
    }

    #[test]
    fn every_captured_job_is_read() {
        let mut seen = 0;
        for version in ["22.05", "24.11"] {
            let folder = format!("{}/tests/fixtures/slurm/{version}", env!("CARGO_MANIFEST_DIR"));
            for entry in std::fs::read_dir(folder).unwrap() {
                let Ok(files) = std::fs::read_dir(entry.unwrap().path()) else {
                    continue;
                };
                for file in files {
                    let path = file.unwrap().path();
                    if !path.to_str().unwrap().ends_with("scontrol-job.txt") {
                        continue;
                    }
                    let text = std::fs::read_to_string(&path).unwrap();
                    for record in text.split("\n\n").filter(|record| record.contains("JobId=")) {
                        let job = JobFacts::parse(record, &TimeZone::UTC).unwrap();
                        assert!(!matches!(job.state, SlurmState::Unknown(_)), "{path:?}");
                        assert!(!matches!(job.limit, TimeLimit::Unknown(_)), "{path:?}");
                        assert!(job.restarts.is_some(), "{path:?}");
                        seen += 1;
                    }
                }
            }
        }
        assert!(seen > 60, "only {seen}");
    }

    #[test]
    fn a_name_cannot_forge_the_state() {
        let text = "JobId=7 JobName=x Restarts=9 TimeLimit=1 UserId=a(1) JobState=RUNNING Reason=None Restarts=0 \
                    TimeLimit=08:00:00 EndTime=1700000000 Comment=y JobState=COMPLETED";
        let job = JobFacts::parse(text, &TimeZone::UTC).unwrap();
        assert_eq!((job.state, job.restarts), (SlurmState::Running, Some(0)));
        assert_eq!(job.limit.to_string(), "0-08:00:00");
        assert_eq!(job.end.unwrap().as_second(), 1_700_000_000);
    }

    // Written by hand in the form of scontrol(1); only the keys that are read.
    const CONFIG: &str = "Configuration data as of 2026-12-01T11:00:00\n\
        AccountingStorageType   = accounting_storage/slurmdbd\n\
        AccountingStoreFlags    = job_comment,job_script\n\
        ClusterName             = beverin\n\
        JobRequeue              = 1\n\
        KillWait                = 30 sec\n\
        MaxStepCount            = 40000\n\
        MessageTimeout          = 10 sec\n\
        MinJobAge               = 300 sec\n\
        OverTimeLimit           = 0 min\n\
        PreemptMode             = CANCEL\n\
        PrivateData             = none\n\
        SlurmctldParameters     = rl_enable,rl_bucket_size=30\n\
        SLURM_VERSION           = 24.11.5\n\
        \n\
        Slurmctld(primary) at slurmctl is UP\n";

    #[test]
    fn a_configuration_is_read() {
        let config = ClusterConfig::parse(CONFIG);
        assert_eq!((config.kill_wait, config.min_job_age), (Some(30), Some(300)));
        assert_eq!(
            (config.over_time_limit, config.max_step_count),
            (Some(0), Some(40_000))
        );
        assert_eq!(config.job_requeue, Some(true));
        assert_eq!(config.private_data, None);
        assert_eq!(config.accounting_store_flags, ["job_comment", "job_script"]);
        assert_eq!(config.slurmctld_parameters, ["rl_enable", "rl_bucket_size=30"]);
        assert_eq!(config.version.unwrap().to_string(), "24.11.5");
        assert!(config.has_accounting());
        assert_eq!(ClusterConfig::parse("nothing"), ClusterConfig::default());
    }

    #[test]
    fn partitions_are_read() {
        let text = "PartitionName=mi300 AllowGroups=ALL AllowAccounts=ALL AllowQos=ALL Default=YES QoS=N/A \
            DefaultTime=01:00:00 DisableRootJobs=NO GraceTime=0 MaxNodes=UNLIMITED MaxTime=1-00:00:00 MinNodes=0 \
            Nodes=nid[001-004] OverSubscribe=EXCLUSIVE PreemptMode=OFF State=UP TotalCPUs=768 TotalNodes=4\n\
            PartitionName=debug Default=NO DefaultTime=NONE MaxNodes=2 MaxTime=UNLIMITED State=DOWN TotalNodes=4\n";
        let [mi300, debug] = Partition::parse_all(text).try_into().unwrap();
        assert_eq!(mi300.max_time.finite().unwrap().seconds(), 86_400);
        assert_eq!((mi300.max_nodes, mi300.total_nodes), (None, Some(4)));
        assert!(mi300.is_up() && mi300.default);
        assert_eq!(debug.default_time, TimeLimit::NotSet);
        assert_eq!(
            (debug.max_nodes, &debug.max_time),
            (Some(2), &TimeLimit::Unlimited)
        );
        assert!(!debug.is_up());
    }

    #[test]
    fn versions_can_be_compared() {
        let version = |text| SlurmVersion::parse(text).unwrap();
        assert_eq!(version("slurm-wlm 22.05.8").to_string(), "22.05.8");
        assert_eq!(version("slurm 24.11.0-0rc1").patch, 0);
        assert!(version("slurm 25.05.9-1") > version("slurm 24.11.5"));
        assert_eq!(SlurmVersion::parse("sinfo: command not found"), None);
    }

    proptest! {
        #[test]
        fn no_record_is_too_odd(text in ".*") {
            drop(key_values(&text));
            drop(JobFacts::parse(&format!("JobId=1 JobState={text}"), &TimeZone::UTC));
            drop((Partition::parse_all(&text), ClusterConfig::parse(&text), SlurmVersion::parse(&text)));
        }
    }
}
