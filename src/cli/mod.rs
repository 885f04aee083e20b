//! The command line: the only module that prints, reads the environment or picks a backend.

mod args;
mod connect;
mod environment;
mod exec;
pub mod exit;
mod lease;
mod output;
mod progress;

use std::process::ExitCode;
use std::sync::Arc;

use clap::Parser;

use crate::backend::slurm::SlurmRunner;
use crate::clock::SystemClock;
use crate::config::{ConfigError, Document, LOCAL, Profile, RunnerKind};
use crate::runner::{FailureKind, RunError};

use args::{Args, Command, Global};
use environment::Environment;
use exit::ExitStatus;

/// Runs the command that the process arguments name.
pub fn main() -> ExitCode {
    let environment = Environment::read();
    let args = match Args::try_parse() {
        Ok(args) => args,
        Err(error) => return output::usage(&error).into(),
    };
    output::logging(args.global.verbose, &environment);
    // One thread drives the connection; file work has threads of its own.
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            output::error(&RunError::new(FailureKind::Internal, "cannot start the runtime").caused_by(error));
            return ExitStatus::Internal.into();
        }
    };
    let status = runtime.block_on(run(&args, &environment));
    // A file task that is still blocked (a slow disk, a full pipe) must not keep the process.
    runtime.shutdown_background();
    status
}

async fn run(args: &Args, environment: &Environment) -> ExitCode {
    let result = match &args.command {
        Command::Exec(exec) => exec::run(exec, &args.global, environment).await,
        Command::Lease(lease) => lease::run(lease, &args.global, environment).await,
        Command::Profiles => profiles(&args.global, environment),
    };
    result.unwrap_or_else(|error| {
        output::error(&error);
        ExitStatus::of(error.kind).into()
    })
}

#[expect(clippy::needless_pass_by_value, reason = "an adapter for `map_err`")]
fn config_error(error: ConfigError) -> RunError {
    let hint = error.hint();
    let run_error = RunError::new(FailureKind::Config, error.to_string());
    match hint {
        Some(hint) => run_error.hint(hint),
        None => run_error,
    }
}

/// The profile of that name: the built-in one, or one of the file.
fn profile(name: &str, global: &Global, environment: &Environment) -> Result<Profile, RunError> {
    if name == LOCAL {
        let root = environment.state_dir(global)?.join("local");
        return Ok(Profile::local(&root.to_string_lossy()));
    }
    let document = Document::load(&environment.profiles_file(global)?).map_err(config_error)?;
    document.profile(name).cloned().map_err(config_error)
}

/// The runner that the profile names.
fn runner(
    profile: Profile,
    run: &str,
    global: &Global,
    environment: &Environment,
) -> Result<SlurmRunner, RunError> {
    let connector = match profile.runner {
        RunnerKind::Local => connect::local(),
        RunnerKind::SlurmSsh => connect::ssh(&profile, global, environment)?,
        RunnerKind::Skypilot => {
            return Err(RunError::new(
                FailureKind::Config,
                format!(
                    "profile `{}` has runner = \"skypilot\", which this version cannot drive yet",
                    profile.name
                ),
            )
            .hint(
                "set runner = \"slurm-ssh\" and add the tables [profiles.NAME.ssh] and [profiles.NAME.slurm]",
            ));
        }
    };
    let state = environment.state_dir(global)?;
    SlurmRunner::open(profile, run, &state, connector, Arc::new(SystemClock))
}

fn profiles(global: &Global, environment: &Environment) -> Result<ExitCode, RunError> {
    let document = match Document::load(&environment.profiles_file(global)?) {
        Ok(document) => Some(document),
        Err(ConfigError::Missing { .. }) => None,
        Err(error) => return Err(config_error(error)),
    };
    let mut names: Vec<String> = document
        .iter()
        .flat_map(Document::names)
        .map(str::to_owned)
        .collect();
    names.push(LOCAL.to_owned());
    output::listing(global.json, &names, std::clone::Clone::clone);
    Ok(ExitCode::SUCCESS)
}
