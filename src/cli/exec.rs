//! `vibesys exec`: stage this tree, run one command there.

use std::process::ExitCode;

use tokio_util::sync::CancellationToken;

use super::args::{Exec, Global};
use super::environment::Environment;
use super::exit::{self, ExitStatus};
use super::progress::Progress;
use super::{output, profile, runner};
use crate::job::Outcome;
use crate::job::duration::parse_duration;
use crate::redact::Secret;
use crate::runner::{EvaluationRequest, FailureKind, JobRunner, RunError};

pub(super) async fn run(
    exec: &Exec,
    global: &Global,
    environment: &Environment,
) -> Result<ExitCode, RunError> {
    let profile = profile(&exec.cluster_profile, global, environment)?;
    let request = request(exec, environment)?;
    let runner = runner(profile, "exec", global, environment)?;
    let cancel = CancellationToken::new();
    let progress = Progress::start(global.quiet, global.json);
    let result = {
        let evaluation = runner.evaluate(request, &progress, cancel.clone());
        tokio::pin!(evaluation);
        let mut interrupts = Interrupts::listen()?;
        loop {
            tokio::select! {
                result = &mut evaluation => break Some(result),
                () = interrupts.next() => {
                    if cancel.is_cancelled() {
                        break None;
                    }
                    cancel.cancel();
                    output::line("vibesys: cancelling the step; interrupt again to leave it behind");
                }
            }
        }
    };
    progress.finish();
    let Some(result) = result else {
        output::line("left behind: the step may still be running, and the allocation is kept");
        output::line(&format!(
            "hint: `vibesys lease release --cluster-profile {}` ends both",
            exec.cluster_profile
        ));
        return Ok(ExitStatus::Cancelled.into());
    };
    let report = result?;
    if global.json {
        output::json(&report);
    } else if !global.quiet || report.verdict.outcome != Outcome::Completed {
        output::report(&report);
    }
    runner.close().await;
    let code = exit::for_verdict(&report.verdict);
    if code == 0 && !report.missing_artifacts.is_empty() {
        return Ok(ExitStatus::ArtifactMissing.into());
    }
    Ok(ExitCode::from(code))
}

/// Ctrl-C and SIGTERM.
struct Interrupts {
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
}

impl Interrupts {
    fn listen() -> Result<Self, RunError> {
        use tokio::signal::unix::{SignalKind, signal};
        let failed =
            |error| RunError::new(FailureKind::Internal, "cannot listen for signals").caused_by(error);
        Ok(Self {
            interrupt: signal(SignalKind::interrupt()).map_err(failed)?,
            terminate: signal(SignalKind::terminate()).map_err(failed)?,
        })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

fn request(exec: &Exec, environment: &Environment) -> Result<EvaluationRequest, RunError> {
    let config = |message: String| RunError::new(FailureKind::Config, message);
    let time_limit = match &exec.timeout {
        Some(text) => Some(parse_duration(text).map_err(|error| config(format!("--timeout: {error}")))?),
        None => None,
    };
    let mut artifacts = Vec::new();
    for path in &exec.artifacts {
        artifacts.push(
            path.parse()
                .map_err(|error| config(format!("--artifact: {error}")))?,
        );
    }
    let mut variables = Vec::new();
    for item in &exec.environment {
        variables.push(variable(item, environment).map_err(config)?);
    }
    if exec.command.iter().any(|word| word.contains('\0'))
        || exec.command.first().is_none_or(String::is_empty)
    {
        return Err(config("the command is empty, or has a NUL byte".to_owned()));
    }
    Ok(EvaluationRequest {
        candidate: exec.directory.clone(),
        argv: exec.command.clone(),
        environment: variables,
        time_limit,
        artifacts,
        artifact_target: exec
            .artifact_dir
            .clone()
            .unwrap_or_else(|| exec.directory.clone()),
        nodes: exec.nodes,
        accelerators: exec.gpus,
    })
}

/// Names that would change how the step itself is run.
const RESERVED: &[&str] = &[
    "SLURM_",
    "SBATCH_",
    "SRUN_",
    "VIBESYS_",
    "LD_PRELOAD",
    "LD_AUDIT",
    "BASH_ENV",
    "ENV",
    "PATH_MAX",
];

fn variable(item: &str, environment: &Environment) -> Result<(String, Secret<String>), String> {
    let (name, value) = match item.split_once('=') {
        Some((name, value)) => (name, Some(value.to_owned())),
        None => (item, None),
    };
    let valid = !name.is_empty()
        && !name.starts_with(|c: char| c.is_ascii_digit())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    if !valid {
        return Err(format!("--env: `{name}` is not the name of a variable"));
    }
    if RESERVED
        .iter()
        .any(|reserved| name == *reserved || (reserved.ends_with('_') && name.starts_with(reserved)))
    {
        return Err(format!("--env: `{name}` is reserved for the way the step is run"));
    }
    let value = match value {
        Some(value) => value,
        None => environment
            .text(name)
            .map(str::to_owned)
            .ok_or_else(|| format!("--env: `{name}` is not set here; write {name}=VALUE"))?,
    };
    Ok((name.to_owned(), Secret::new(value)))
}
