//! The arguments of `srun` for one step of an allocation (srun(1)).

use super::sbatch::Accelerators;
use super::without;

/// What srun exits with when srun itself failed; without it, it would be the application's 1. It does not cover a
/// container that did not start: that is a task that exited 1.
pub const EXIT_ERROR: u8 = 222;

/// What srun exits with when `--immediate` ran out.
pub const EXIT_IMMEDIATE: u8 = 223;

/// The variables that give srun exit codes of its own (srun(1), SLURM_EXIT_ERROR).
pub fn launcher_environment() -> [(&'static str, String); 2] {
    [
        ("SLURM_EXIT_ERROR", EXIT_ERROR.to_string()),
        ("SLURM_EXIT_IMMEDIATE", EXIT_IMMEDIATE.to_string()),
    ]
}

/// How tasks are bound to CPUs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CpuBind {
    /// Not at all: the command, or the operator's prefix, binds for itself.
    None,
    /// As Slurm names it, for example `cores`.
    Named(String),
}

/// One step. Every size is given: nothing may come from what the caller's environment happens to say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SrunOptions {
    /// The job, if srun does not run inside it.
    pub job: Option<u64>,
    /// The step's name, by which it is found.
    pub job_name: String,
    /// Share what other steps use.
    pub overlap: bool,
    /// How many nodes.
    pub nodes: u32,
    /// How many tasks.
    pub tasks: u32,
    /// CPUs of each task; without it a task gets one.
    pub cpus_per_task: Option<u32>,
    /// How tasks are bound.
    pub cpu_bind: CpuBind,
    /// Accelerators of each node; a step inherits only what the job asked for by name.
    pub accelerators: Option<Accelerators>,
    /// Memory of each node; `0` is all of the job's.
    pub memory: String,
    /// Nodes to run on. Where the node matters it has to be named: releases choose differently.
    pub nodelist: Option<String>,
    /// Where standard output goes.
    pub output: Option<String>,
    /// Where standard error goes.
    pub error: Option<String>,
    /// The directory that the command starts in. srun only warns if it is not there, and exits 0.
    pub chdir: Option<String>,
    /// Seconds to wait for resources; without it srun tries for ever.
    pub immediate: Option<u32>,
    /// A container's environment file (`--environment`), an absolute path.
    pub environment: Option<String>,
    /// Names of options to leave out.
    pub remove: Vec<String>,
    /// The operator's further options, as they are.
    pub extra: Vec<String>,
    /// The command that the operator puts before every command, for example `apptainer exec IMAGE`.
    pub prefix: Vec<String>,
}

impl SrunOptions {
    /// One task on each of so many nodes, with all memory and no binding.
    pub fn new(job_name: impl Into<String>, nodes: u32) -> Self {
        Self {
            job: None,
            job_name: job_name.into(),
            overlap: true,
            nodes,
            tasks: nodes,
            cpus_per_task: None,
            cpu_bind: CpuBind::None,
            accelerators: None,
            memory: "0".to_owned(),
            nodelist: None,
            output: None,
            error: None,
            chdir: None,
            immediate: None,
            environment: None,
            remove: Vec::new(),
            extra: Vec::new(),
            prefix: Vec::new(),
        }
    }

    /// The options, without the program and the command.
    pub fn options(&self) -> Vec<String> {
        let mut options = Vec::new();
        if self.overlap {
            options.push("--overlap".to_owned());
        }
        options.extend(self.job.map(|job| format!("--jobid={job}")));
        options.extend([
            format!("--job-name={}", self.job_name),
            format!("--nodes={}", self.nodes),
            format!("--ntasks={}", self.tasks),
            format!("--mem={}", self.memory),
            match &self.cpu_bind {
                CpuBind::None => "--cpu-bind=none".to_owned(),
                CpuBind::Named(how) => format!("--cpu-bind={how}"),
            },
            // srun would otherwise read what is meant for the caller.
            "--input=none".to_owned(),
            "--unbuffered".to_owned(),
            "--kill-on-bad-exit=1".to_owned(),
        ]);
        options.extend(self.cpus_per_task.map(|cpus| format!("--cpus-per-task={cpus}")));
        options.extend(self.accelerators.as_ref().map(Accelerators::argument));
        options.extend(self.immediate.map(|seconds| format!("--immediate={seconds}")));
        let named = [
            ("nodelist", &self.nodelist),
            ("output", &self.output),
            ("error", &self.error),
            ("chdir", &self.chdir),
            ("environment", &self.environment),
        ];
        let given = named
            .iter()
            .filter_map(|(name, value)| Some(format!("--{name}={}", value.as_ref()?)));
        options.extend(given);
        let mut options = without(options, &self.remove);
        options.extend(self.extra.iter().cloned());
        options
    }

    /// The argument list, the program's name first.
    pub fn argv(&self, command: &[String]) -> Vec<String> {
        let mut argv = vec!["srun".to_owned()];
        argv.extend(self.options());
        argv.extend(self.prefix.iter().chain(command).cloned());
        argv
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_says_every_size() {
        let mut options = SrunOptions::new("vs-1", 1);
        options.job = Some(62);
        options.cpus_per_task = Some(192);
        options.accelerators = Some(Accelerators::GpusPerNode("4".into()));
        options.immediate = Some(60);
        options.nodelist = Some("nid001".into());
        options.output = Some("/s/out".into());
        options.extra = vec!["--mpi=pmi2".into()];
        options.prefix = vec!["apptainer".into(), "exec".into(), "a b.sif".into()];
        assert_eq!(
            options.argv(&["sh".into(), "-c".into(), "echo $HOME".into()]),
            [
                "srun",
                "--overlap",
                "--jobid=62",
                "--job-name=vs-1",
                "--nodes=1",
                "--ntasks=1",
                "--mem=0",
                "--cpu-bind=none",
                "--input=none",
                "--unbuffered",
                "--kill-on-bad-exit=1",
                "--cpus-per-task=192",
                "--gpus-per-node=4",
                "--immediate=60",
                "--nodelist=nid001",
                "--output=/s/out",
                "--mpi=pmi2",
                "apptainer",
                "exec",
                "a b.sif",
                "sh",
                "-c",
                "echo $HOME",
            ]
        );
    }

    #[test]
    fn an_option_that_a_site_refuses_can_go() {
        let mut options = SrunOptions::new("vs-1", 1);
        options.remove = vec!["--mem".into(), "--cpu-bind".into()];
        assert!(
            !options
                .options()
                .iter()
                .any(|word| word.starts_with("--mem") || word.starts_with("--cpu-bind"))
        );
    }

    #[test]
    fn srun_gets_exit_codes_of_its_own() {
        assert_eq!(launcher_environment()[0], ("SLURM_EXIT_ERROR", "222".to_owned()));
    }
}
