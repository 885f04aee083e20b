//! Arguments.

use std::path::PathBuf;

use clap::{Args as ClapArgs, Parser, Subcommand};

/// Measure a dirty working tree on a Slurm cluster that is reachable only by SSH
#[derive(Debug, Parser)]
#[command(name = "vibesys", version, max_term_width = 100)]
pub(super) struct Args {
    #[command(flatten)]
    pub(super) global: Global,
    #[command(subcommand)]
    pub(super) command: Command,
}

#[derive(Debug, ClapArgs)]
pub(super) struct Global {
    /// Cluster profiles [default: ~/.config/vibesys/clusters.toml]
    #[arg(long, global = true, value_name = "FILE")]
    pub(super) cluster_profiles_file: Option<PathBuf>,
    /// SSH configuration, as `ssh -F` [default: ~/.ssh/config and /etc/ssh/ssh_config]
    #[arg(long, global = true, value_name = "FILE")]
    pub(super) ssh_config: Option<PathBuf>,
    /// Where records and logs are kept [default: ~/.local/state/vibesys; also VIBESYS_STATE_HOME]
    #[arg(long, global = true, value_name = "DIR")]
    pub(super) state_dir: Option<PathBuf>,
    /// Print one JSON document instead of words
    #[arg(long, global = true)]
    pub(super) json: bool,
    /// Say more on standard error; repeat for more
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub(super) verbose: u8,
    /// Print no progress
    #[arg(long, global = true)]
    pub(super) quiet: bool,
}

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Stage this working tree and run one command on the cluster
    Exec(Exec),
    /// Show or give back the allocation that is kept for the next command
    Lease(Lease),
    /// List the cluster profiles
    Profiles,
}

#[derive(Debug, ClapArgs)]
pub(super) struct Exec {
    /// The cluster profile; `local` is this machine
    #[arg(long, value_name = "PROFILE")]
    pub(super) cluster_profile: String,
    /// The working tree
    #[arg(short = 'C', long = "directory", value_name = "DIR", default_value = ".")]
    pub(super) directory: PathBuf,
    /// A file or directory to bring back, relative to the working tree; may be repeated
    #[arg(long = "artifact", value_name = "PATH")]
    pub(super) artifacts: Vec<String>,
    /// Where artifacts go [default: the working tree]
    #[arg(long, value_name = "DIR")]
    pub(super) artifact_dir: Option<PathBuf>,
    /// A variable for the command: K=V, or K to pass on its value here; may be repeated
    #[arg(long = "env", value_name = "K[=V]")]
    pub(super) environment: Vec<String>,
    /// End the command after this time, for example 30m or 1h30m
    #[arg(long, value_name = "TIME")]
    pub(super) timeout: Option<String>,
    /// Nodes; the command runs once on each
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) nodes: u32,
    /// Accelerators per node [default: all of them]
    #[arg(long, value_name = "N")]
    pub(super) gpus: Option<u32>,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    pub(super) command: Vec<String>,
}

#[derive(Debug, ClapArgs)]
pub(super) struct Lease {
    #[command(subcommand)]
    pub(super) action: LeaseAction,
}

#[derive(Debug, Subcommand)]
pub(super) enum LeaseAction {
    /// Show what is held
    List(LeaseProfile),
    /// Give it back, and wait until Slurm says that it is gone
    Release(LeaseProfile),
}

#[derive(Debug, ClapArgs)]
pub(super) struct LeaseProfile {
    /// The cluster profile
    #[arg(long, value_name = "PROFILE")]
    pub(super) cluster_profile: String,
}
