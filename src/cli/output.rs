//! What people and programs read: the one place that prints.
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "this is the module that prints"
)]

use std::error::Error;
use std::io::IsTerminal;

use serde::Serialize;

use super::environment::Environment;
use super::exit::ExitStatus;
use crate::runner::{Report, RunError};

/// Control characters in remote text could rewrite the terminal.
pub(super) fn printable(text: &str) -> String {
    text.chars()
        .map(|c| {
            if c.is_control() && c != '\n' && c != '\t' {
                '\u{fffd}'
            } else {
                c
            }
        })
        .collect()
}

pub(super) fn line(text: &str) {
    eprintln!("{}", printable(text));
}

/// Help and version go to standard output with code 0; a mistake to standard error.
pub(super) fn usage(error: &clap::Error) -> UsageCode {
    // A closed pipe is no reason to fail.
    drop(error.print());
    if error.use_stderr() {
        UsageCode::Wrong
    } else {
        UsageCode::Fine
    }
}

pub(super) enum UsageCode {
    Wrong,
    Fine,
}

impl From<UsageCode> for std::process::ExitCode {
    fn from(code: UsageCode) -> Self {
        match code {
            UsageCode::Wrong => ExitStatus::Usage.into(),
            UsageCode::Fine => Self::SUCCESS,
        }
    }
}

/// The chain of an error, then what to do.
pub(super) fn error(error: &RunError) {
    line(&format!("error: {error}"));
    let mut cause = error.source();
    while let Some(source) = cause {
        line(&format!("  caused by: {source}"));
        cause = source.source();
    }
    if let Some(hint) = &error.hint {
        line(&format!("hint: {hint}"));
    }
}

/// The verdict with its evidence, for people.
pub(super) fn report(report: &Report) {
    let verdict = &report.verdict;
    let place = match (
        report.provenance.job,
        report.provenance.step,
        &report.provenance.node,
    ) {
        (Some(job), Some(step), Some(node)) => format!("step {job}.{step} on {node}"),
        (Some(job), None, Some(node)) => format!("job {job} on {node}"),
        (Some(job), _, None) => format!("job {job}"),
        (None, _, Some(node)) => format!("on {node}"),
        (None, _, None) => "nowhere".to_owned(),
    };
    line(&format!(
        "{}: {} ({place}, attempt {})",
        verdict.outcome, verdict.cause, report.provenance.attempt
    ));
    let result = report.evidence.result.as_ref();
    let mut evidence = Vec::new();
    if let Some(result) = result {
        let exit = result
            .exit
            .map_or_else(|| "none".to_owned(), |code| code.to_string());
        let launch = result
            .launch
            .map_or_else(|| "none".to_owned(), |code| code.to_string());
        evidence.push(format!(
            "the step's own exit code {exit}, its launcher's {launch}"
        ));
    } else {
        evidence.push("no result from the step".to_owned());
    }
    for (what, row) in [
        ("step", &report.evidence.step),
        ("allocation", &report.evidence.allocation),
    ] {
        if let Some(row) = row {
            let exit = row
                .exit
                .map_or_else(String::new, |exit| format!(" {}:{}", exit.code, exit.signal));
            evidence.push(format!("sacct {what} {}{exit}", row.state));
        }
    }
    if let Some(error) = &report.evidence.accounting_error {
        evidence.push(format!("sacct could not be asked ({error})"));
    }
    line(&format!("  evidence: {}", evidence.join("; ")));
    if verdict.outcome != crate::job::Outcome::Completed && !report.evidence.launch_said.trim().is_empty() {
        for said in report.evidence.launch_said.trim().lines().take(5) {
            line(&format!("  srun: {said}"));
        }
    }
    for path in &report.artifacts {
        line(&format!("  artifact: {}", path.display()));
    }
    for missing in &report.missing_artifacts {
        line(&format!("  artifact missing: {missing}"));
    }
    line(&format!(
        "  invocation {}, snapshot {}",
        report.invocation,
        &report.provenance.snapshot[..12]
    ));
}

/// One JSON document, in the envelope that every command shares.
pub(super) fn json<T: Serialize>(data: &T) {
    match serde_json::to_string_pretty(&serde_json::json!({ "schema_version": 1, "data": data })) {
        Ok(text) => println!("{text}"),
        Err(error) => line(&format!("error: the result cannot be written as JSON: {error}")),
    }
}

/// A listing, as JSON or a line each.
pub(super) fn listing<T: Serialize>(as_json: bool, items: &[T], row: impl Fn(&T) -> String) {
    if as_json {
        json(&items);
        return;
    }
    for item in items {
        println!("{}", printable(&row(item)));
    }
}

pub(super) fn stderr_is_terminal() -> bool {
    std::io::stderr().is_terminal()
}

/// Diagnostics go to standard error: `-v` for ours, more for the libraries', or whatever VIBESYS_LOG says.
pub(super) fn logging(verbose: u8, environment: &Environment) {
    let filter = environment.text("VIBESYS_LOG").map_or_else(
        || {
            match verbose {
                0 => "error",
                1 => "vibesys=info,warn",
                2 => "vibesys=debug,info",
                _ => "trace",
            }
            .to_owned()
        },
        str::to_owned,
    );
    let subscriber = tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_ansi(stderr_is_terminal())
        .with_env_filter(tracing_subscriber::EnvFilter::new(filter))
        .finish();
    // Only a second call could fail, and there is none.
    drop(tracing::subscriber::set_global_default(subscriber));
}
