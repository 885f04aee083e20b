//! The file as it is written: keys are checked against these tables before a value is looked at.

use serde::Deserialize;
use toml::Spanned;

/// Keys at the top of the file.
pub(super) const TOP: &[&str] = &["schema_version", "profiles"];
/// Keys of `[profiles.NAME]`.
pub(super) const PROFILE: &[&str] = &[
    "runner",
    "infra",
    "accelerator_backend",
    "accelerator_type",
    "accelerators_per_node",
    "cpus_per_node",
    "memory_gb_per_node",
    "max_nodes",
    "exclusive",
    "remote_runtime_image",
    "command_prefix",
    "allocation_time",
    "remote_artifact_root",
    "ssh",
    "slurm",
];
/// Keys of `[profiles.NAME.ssh]`.
pub(super) const SSH: &[&str] = &["host", "renew_hint"];
/// Keys of `[profiles.NAME.slurm]`.
pub(super) const SLURM: &[&str] = &[
    "partition",
    "account",
    "qos",
    "gres",
    "gpus_per_node",
    "environment",
    "memory",
    "constraint",
    "reservation",
    "exclude",
    "idle_timeout",
    "start_timeout",
    "extra_sbatch_args",
    "extra_srun_args",
];

#[derive(Debug, Deserialize)]
pub(super) struct RawProfile {
    pub(super) runner: Spanned<String>,
    pub(super) infra: Option<String>,
    pub(super) accelerator_backend: Option<Spanned<String>>,
    pub(super) accelerator_type: Option<String>,
    pub(super) accelerators_per_node: Option<Spanned<u32>>,
    pub(super) cpus_per_node: Option<Spanned<u32>>,
    pub(super) memory_gb_per_node: Option<u32>,
    pub(super) max_nodes: Option<Spanned<u32>>,
    #[serde(default = "yes")]
    pub(super) exclusive: bool,
    pub(super) remote_runtime_image: Option<String>,
    pub(super) command_prefix: Option<Spanned<Vec<String>>>,
    pub(super) allocation_time: Option<Spanned<String>>,
    pub(super) remote_artifact_root: Option<Spanned<String>>,
    pub(super) ssh: Option<RawSsh>,
    pub(super) slurm: Option<RawSlurm>,
}

fn yes() -> bool {
    true
}

#[derive(Debug, Deserialize)]
pub(super) struct RawSsh {
    pub(super) host: Spanned<String>,
    pub(super) renew_hint: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(super) struct RawSlurm {
    pub(super) partition: Spanned<String>,
    pub(super) account: Option<String>,
    pub(super) qos: Option<String>,
    pub(super) gres: Option<String>,
    pub(super) gpus_per_node: Option<Spanned<u32>>,
    pub(super) environment: Option<Spanned<String>>,
    pub(super) memory: Option<String>,
    pub(super) constraint: Option<String>,
    pub(super) reservation: Option<String>,
    pub(super) exclude: Option<String>,
    pub(super) idle_timeout: Option<Spanned<String>>,
    pub(super) start_timeout: Option<Spanned<String>>,
    #[serde(default)]
    pub(super) extra_sbatch_args: Vec<String>,
    #[serde(default)]
    pub(super) extra_srun_args: Vec<String>,
}
