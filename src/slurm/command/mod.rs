//! Argument lists for Slurm's tools, word by word. Nothing here is a shell string: whoever sends one quotes each word.

mod query;
mod sbatch;
mod srun;

pub use query::{
    ENVIRONMENT, Signal, query_environment, sacct_job, sacct_named, scancel_batch, scancel_job, scancel_step,
    scontrol_config, scontrol_job, scontrol_partition, squeue_job, squeue_named, squeue_steps,
};
pub use sbatch::{Accelerators, SbatchOptions};
pub use srun::{CpuBind, EXIT_ERROR, EXIT_IMMEDIATE, SrunOptions, launcher_environment};

/// Drops every option of `arguments` that `names` names (`--mem`, `--comment`), in the form `--NAME` or `--NAME=VALUE`.
///
/// A site can refuse an option that others need, so the profile can take away as well as add.
pub(crate) fn without(arguments: Vec<String>, names: &[String]) -> Vec<String> {
    arguments
        .into_iter()
        .filter(|argument| {
            let name = argument.split('=').next().unwrap_or_default();
            !names.iter().any(|removed| removed == name)
        })
        .collect()
}
