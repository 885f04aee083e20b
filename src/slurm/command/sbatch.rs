//! The arguments of `sbatch` (sbatch(1)).

use super::without;
use crate::slurm::time::Walltime;

/// How accelerators are asked for: sites accept one or the other, and both reach the same resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Accelerators {
    /// `--gres=gpu:4`
    Gres(String),
    /// `--gpus-per-node=4`
    GpusPerNode(String),
}

impl Accelerators {
    /// As an option.
    pub fn argument(&self) -> String {
        match self {
            Self::Gres(gres) => format!("--gres={gres}"),
            Self::GpusPerNode(gpus) => format!("--gpus-per-node={gpus}"),
        }
    }
}

/// A job to submit. The script goes to standard input.
///
/// All of it are options and none a `#SBATCH` line, because those lose against `SBATCH_*` variables.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SbatchOptions {
    /// The name, by which an unclear submission is looked for. Accounting always keeps it.
    pub job_name: String,
    /// The same mark once more; accounting keeps it only where the site says so.
    pub comment: Option<String>,
    /// The partition; the default one of a site is nobody's choice.
    pub partition: Option<String>,
    /// The account.
    pub account: Option<String>,
    /// The QOS.
    pub qos: Option<String>,
    /// The time limit: always a finite one.
    pub time: Walltime,
    /// How many nodes.
    pub nodes: u32,
    /// Accelerators of each node.
    pub accelerators: Option<Accelerators>,
    /// CPUs of the batch script's task.
    pub cpus_per_task: Option<u32>,
    /// Memory of each node; `0` is all of it.
    pub memory: Option<String>,
    /// Whole nodes.
    pub exclusive: bool,
    /// Features that the nodes have to have.
    pub constraint: Option<String>,
    /// Nodes that are not wanted, for example after they failed.
    pub exclude: Vec<String>,
    /// A reservation.
    pub reservation: Option<String>,
    /// Where the batch script's output goes; `%j` is the job. Its directory has to exist.
    pub output: Option<String>,
    /// The directory that the batch script starts in.
    pub chdir: Option<String>,
    /// A signal before the end, for example `B:TERM@60`.
    pub signal: Option<String>,
    /// What travels of the environment, for example `NIL`.
    pub export: Option<String>,
    /// A cluster of several (`--clusters`).
    pub cluster: Option<String>,
    /// Only ask whether it would be accepted (`--test-only`).
    pub test_only: bool,
    /// Names of options to leave out, for example `--mem`.
    pub remove: Vec<String>,
    /// Further options, as they are; sbatch takes the last of two.
    pub extra: Vec<String>,
}

impl SbatchOptions {
    /// A job with a name, so many nodes and a limit, and nothing else said.
    pub fn new(job_name: impl Into<String>, nodes: u32, time: Walltime) -> Self {
        Self {
            job_name: job_name.into(),
            comment: None,
            partition: None,
            account: None,
            qos: None,
            time,
            nodes,
            accelerators: None,
            cpus_per_task: None,
            memory: None,
            exclusive: false,
            constraint: None,
            exclude: Vec::new(),
            reservation: None,
            output: None,
            chdir: None,
            signal: None,
            export: None,
            cluster: None,
            test_only: false,
            remove: Vec::new(),
            extra: Vec::new(),
        }
    }

    /// The argument list, the program's name first. `--parsable` cannot be removed: the answer would not be understood.
    /// Neither can `--no-requeue`: a second life of the job would run its requests again.
    pub fn argv(&self) -> Vec<String> {
        let mut options = vec![
            format!("--job-name={}", self.job_name),
            format!("--nodes={}", self.nodes),
            "--ntasks-per-node=1".to_owned(),
            format!("--time={}", self.time),
            // Without it a second life would truncate the output of the first.
            "--open-mode=append".to_owned(),
        ];
        let named = [
            ("comment", &self.comment),
            ("clusters", &self.cluster),
            ("partition", &self.partition),
            ("account", &self.account),
            ("qos", &self.qos),
            ("mem", &self.memory),
            ("constraint", &self.constraint),
            ("reservation", &self.reservation),
            ("output", &self.output),
            ("chdir", &self.chdir),
            ("signal", &self.signal),
            ("export", &self.export),
        ];
        let given = named
            .iter()
            .filter_map(|(name, value)| Some(format!("--{name}={}", value.as_ref()?)));
        options.extend(given);
        options.extend(self.accelerators.as_ref().map(Accelerators::argument));
        options.extend(self.cpus_per_task.map(|cpus| format!("--cpus-per-task={cpus}")));
        if self.exclusive {
            options.push("--exclusive".to_owned());
        }
        if !self.exclude.is_empty() {
            options.push(format!("--exclude={}", self.exclude.join(",")));
        }
        if self.test_only {
            options.push("--test-only".to_owned());
        }
        let mut argv = vec![
            "sbatch".to_owned(),
            "--parsable".to_owned(),
            "--no-requeue".to_owned(),
        ];
        argv.extend(without(options, &self.remove));
        argv.extend(self.extra.iter().cloned());
        argv
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_is_one_word() {
        let mut options = SbatchOptions::new("vs-a1b2", 2, Walltime::from_seconds(28_800));
        options.comment = Some("vs-a1b2".into());
        options.partition = Some("mi300".into());
        options.accelerators = Some(Accelerators::Gres("gpu:4".into()));
        options.memory = Some("0".into());
        options.exclusive = true;
        options.exclude = vec!["nid001".into(), "nid007".into()];
        options.output = Some("/scratch/a b/%j.out".into());
        assert_eq!(
            options.argv(),
            [
                "sbatch",
                "--parsable",
                "--no-requeue",
                "--job-name=vs-a1b2",
                "--nodes=2",
                "--ntasks-per-node=1",
                "--time=0-08:00:00",
                "--open-mode=append",
                "--comment=vs-a1b2",
                "--partition=mi300",
                "--mem=0",
                "--output=/scratch/a b/%j.out",
                "--gres=gpu:4",
                "--exclusive",
                "--exclude=nid001,nid007",
            ]
        );
    }

    #[test]
    fn a_profile_can_take_away_and_add() {
        let mut options = SbatchOptions::new("n", 1, Walltime::from_seconds(60));
        options.memory = Some("0".into());
        options.remove = vec!["--mem".into(), "--open-mode".into(), "--no-requeue".into()];
        options.extra = vec!["--mem-per-cpu=2G".into()];
        let argv = options.argv();
        assert!(
            !argv
                .iter()
                .any(|word| word.starts_with("--mem=") || word.starts_with("--open-mode"))
        );
        assert!(argv.contains(&"--no-requeue".to_owned()));
        assert_eq!(argv.last().unwrap(), "--mem-per-cpu=2G");
    }
}
