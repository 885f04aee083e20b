//! `vibesys lease`: the allocation that is kept for the next command.

use std::process::ExitCode;

use super::args::{Global, Lease, LeaseAction};
use super::environment::Environment;
use super::{output, profile, runner};
use crate::runner::{JobRunner, LeaseStatus, RunError};

pub(super) async fn run(
    lease: &Lease,
    global: &Global,
    environment: &Environment,
) -> Result<ExitCode, RunError> {
    let (wanted, release) = match &lease.action {
        LeaseAction::List(wanted) => (wanted, false),
        LeaseAction::Release(wanted) => (wanted, true),
    };
    let profile = profile(&wanted.cluster_profile, global, environment)?;
    let runner = runner(profile, "exec", global, environment)?;
    let leases = if release {
        runner.release().await?
    } else {
        runner.leases().await?
    };
    output::listing(global.json, &leases, row);
    if leases.is_empty() && !global.quiet && !global.json {
        output::line("no allocation is held");
    }
    runner.close().await;
    Ok(ExitCode::SUCCESS)
}

fn row(lease: &LeaseStatus) -> String {
    let job = lease.job.map_or_else(|| "-".to_owned(), |job| job.to_string());
    let end = lease
        .end
        .map_or_else(String::new, |end| format!("  until {end:.0}"));
    format!(
        "{}  job {job}  {}  {}{end}",
        lease.lease, lease.state, lease.nodes
    )
}
