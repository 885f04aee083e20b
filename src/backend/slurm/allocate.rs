//! Having an allocation: use the one there is, find the one that was submitted without an answer, or submit.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::request::{LAUNCHER, sbatch_options};
use super::session::{Session, lost};
use super::stage::storage_error;
use super::{SlurmRunner, blocking, internal, local_storage};
use crate::ids::LeaseId;
use crate::lease::{self, Action, LeaseError, LeasePhase, LeaseRecord, LockedLease, Lookup, decide};
use crate::quote;
use crate::remote::{Agent, call};
use crate::runner::{FailureKind, LeaseStatus, Observer, Phase, RunError};
use crate::slurm::squeue;
use crate::slurm::state::Phase as JobPhase;
use crate::slurm::submit::{self, SubmitAnswer};
use crate::slurm::{AccountingRow, QueueRow, Scheduler, sacct};

/// Time between two looks for a job whose submission was not answered: slurmctld may still have the request in hand.
const LOOK_AGAIN: Duration = Duration::from_secs(10);
/// How long a release may take before it is reported as a leak; an epilog can take minutes.
const RELEASE_LIMIT: Duration = Duration::from_secs(120);

fn lease_error(error: LeaseError) -> RunError {
    local_storage(error)
}

fn quoted(error: quote::NulByte) -> RunError {
    RunError::new(FailureKind::Config, error.to_string())
}

async fn lock(runner: &SlurmRunner, lease: &LeaseId) -> Result<LockedLease, RunError> {
    let (state, lease, profile) = (runner.state.clone(), lease.clone(), runner.profile.name.clone());
    blocking(move || LockedLease::open(&state, &lease, &profile))
        .await?
        .map_err(lease_error)
}

async fn save(lease: LockedLease) -> Result<LockedLease, RunError> {
    blocking(move || lease.save().map(|()| lease))
        .await?
        .map_err(lease_error)
}

/// An allocation of the lease: one that is held, or a new one. `not` is one that proved to be over.
pub(super) async fn ensure(
    runner: &SlurmRunner,
    session: &Session,
    nodes: u32,
    not: Option<&LeaseRecord>,
    observer: &dyn Observer,
) -> Result<LeaseRecord, RunError> {
    let id = runner.lease_id(nodes)?;
    let mut lease = lock(runner, &id).await?;
    if not.is_some_and(|over| over.sequence == lease.record.sequence) {
        lease.record.phase = LeasePhase::Ended;
        lease = save(lease).await?;
    }
    let mut lookup = Lookup::NotAsked;
    loop {
        match decide(&lease.record, &lookup) {
            Action::Use => return Ok(lease.record),
            Action::Look => lookup = look(runner, session, &lease.record).await?,
            Action::Adopt { job, surplus } => {
                for job in surplus {
                    cancel_job(session, job).await?;
                }
                lease.record.job = Some(job);
                lease.record.phase = LeasePhase::Held;
                return Ok(save(lease).await?.record);
            }
            Action::Submit => {
                observer.phase(&Phase::Submitting);
                lease.record.begin_submit(runner.clock.now());
                lease = save(lease).await?;
                return submit(runner, session, nodes, lease).await;
            }
            Action::Resubmit => {
                observer.phase(&Phase::Submitting);
                return submit(runner, session, nodes, lease).await;
            }
        }
    }
}

async fn submit(
    runner: &SlurmRunner,
    session: &Session,
    nodes: u32,
    mut lease: LockedLease,
) -> Result<LeaseRecord, RunError> {
    let (generation, name) = (lease.record.generation(), lease.record.job_name());
    let launcher = format!("{name}.launcher");
    let mut arguments = vec![
        generation.clone(),
        runner.profile.idle_timeout().as_secs().to_string(),
    ];
    if runner.scheduler() == Scheduler::Slurm {
        arguments.extend(sbatch_options(&runner.profile, &name, nodes));
    }
    let mut batch = session.agent.batch();
    let put = batch.put(&launcher, 0, LAUNCHER.as_bytes());
    let open = batch.run(&call("open_generation", &[&generation, &launcher]).map_err(quoted)?);
    // Nothing is submitted for a directory that could not be made.
    let script = format!(
        "[[ -f $root/leases/{generation}/launcher.sh ]] || exit 1; {}",
        call("submit", &arguments).map_err(quoted)?
    );
    let submitted = batch.run(&script);
    session.agent.send(batch).await.map_err(lost)?;
    for answer in [put, open] {
        let done = answer.answer().await.map_err(lost)?;
        if done.code != 0 {
            return Err(storage_error(&done));
        }
    }
    // A connection that is lost here leaves the record in SUBMITTING: the next one looks for the name.
    let done = submitted.answer().await.map_err(lost)?;
    match submit::parse(done.code, &done.text(), &done.complaint()) {
        SubmitAnswer::Accepted(submitted) => {
            lease.record.job = Some(submitted.job);
            lease.record.phase = LeasePhase::Held;
            Ok(save(lease).await?.record)
        }
        SubmitAnswer::Refused(refusal) => {
            lease.record.phase = LeasePhase::Ended;
            save(lease).await?;
            Err(RunError::new(
                FailureKind::Refused,
                format!("Slurm refused the allocation: {}", refusal.message),
            )
            .hint(format!(
                "{}: check `{}` of profile `{}`",
                refusal.kind.sentence(),
                refusal.kind.profile_key(),
                runner.profile.name
            )))
        }
        SubmitAnswer::ControllerDown { message } => {
            // The request never arrived, so there is nothing to look for.
            lease.record.phase = LeasePhase::Ended;
            save(lease).await?;
            Err(RunError::new(
                FailureKind::Unreachable,
                format!("Slurm's controller does not answer: {message}"),
            )
            .hint("try again when `squeue` answers on the login node"))
        }
        SubmitAnswer::Ambiguous { message } => Err(RunError::new(
            FailureKind::Unreachable,
            format!("Slurm did not say whether it took the allocation: {message}"),
        )
        .hint("run the same command again: it looks for the job by its name before it submits another")),
    }
}

/// Looks for the job by its name, in the queue and in accounting, twice.
async fn look(runner: &SlurmRunner, session: &Session, record: &LeaseRecord) -> Result<Lookup, RunError> {
    if runner.scheduler() == Scheduler::Local {
        // The launcher leaves its process id in the state it writes; a second one ends at the claimed directory.
        return Ok(Lookup::Absent);
    }
    let control = session.control().await?;
    let name = quote::sh(&record.job_name()).map_err(quoted)?;
    for round in 0..2 {
        if round > 0 {
            tokio::time::sleep(LOOK_AGAIN).await;
        }
        let script = format!(
            "squeue -h --me -t all -n {name} -o '%i' && sacct -nPX --name={name} -S now-2days -o JobID"
        );
        let done = control.run(&script).await.map_err(lost)?;
        if done.code != 0 {
            return Err(RunError::new(
                FailureKind::Unreachable,
                format!(
                    "an earlier submission is unclear, and Slurm cannot be asked about it: {}",
                    done.complaint()
                ),
            )
            .hint("try again when squeue and sacct answer on the login node"));
        }
        let mut jobs: Vec<u64> = done
            .text()
            .lines()
            .filter_map(|line| line.trim().parse().ok())
            .collect();
        jobs.sort_unstable();
        jobs.dedup();
        if !jobs.is_empty() {
            return Ok(Lookup::Found(jobs));
        }
    }
    Ok(Lookup::Absent)
}

async fn cancel_job(session: &Session, job: u64) -> Result<(), RunError> {
    let control = session.control().await?;
    control
        .run(&format!("scancel {job}"))
        .await
        .map_err(lost)
        .map(drop)
}

/// The allocation in the queue. `None`: Slurm says that it is not there; an error: nothing was observed.
pub(super) async fn queue_row(
    control: &Agent,
    job: u64,
) -> Result<Result<Option<QueueRow>, String>, RunError> {
    let done = control
        .run(&format!("squeue -h -j {job} -t all -o '{}'", squeue::FORMAT))
        .await
        .map_err(lost)?;
    Ok(squeue::parse(done.code, &done.text(), &done.complaint()).job(job))
}

/// The accounting rows of a job, or why there was no answer.
pub(super) async fn accounting(
    control: &Agent,
    job: u64,
) -> Result<Result<Vec<AccountingRow>, String>, RunError> {
    let done = control
        .run(&format!("timeout 60 sacct -nPD -j {job} -o {}", sacct::FORMAT))
        .await
        .map_err(lost)?;
    if done.code != 0 {
        return Ok(Err(done.complaint()));
    }
    Ok(Ok(sacct::parse(sacct::FORMAT, &done.text())
        .into_iter()
        .filter_map(Result::ok)
        .collect()))
}

fn records(runner: &SlurmRunner) -> Result<Vec<LeaseId>, RunError> {
    lease::known(&runner.state).map_err(lease_error)
}

struct Quiet;

impl Observer for Quiet {
    fn phase(&self, _: &Phase) {}
    fn output(&self, _: crate::remote::Stream, _: &std::path::Path, _: u64) {}
}

/// The leases of this runner's profile with what the cluster says of each.
pub(super) async fn statuses(runner: &SlurmRunner) -> Result<Vec<LeaseStatus>, RunError> {
    let mut held = Vec::new();
    for id in records(runner)? {
        let lease = lock(runner, &id).await?;
        if lease.record.profile == runner.profile.name && lease.record.phase != LeasePhase::Ended {
            held.push(lease.record.clone());
        }
    }
    if held.is_empty() {
        return Ok(Vec::new());
    }
    let session = runner.session.get(&Quiet).await?;
    let mut statuses = Vec::new();
    for record in held {
        statuses.push(status(runner, &session, &record).await?.0);
    }
    Ok(statuses)
}

/// The status of one lease, and whether its allocation is certainly over.
async fn status(
    runner: &SlurmRunner,
    session: &Arc<Session>,
    record: &LeaseRecord,
) -> Result<(LeaseStatus, bool), RunError> {
    let mut status = LeaseStatus {
        lease: record.lease.to_string(),
        profile: record.profile.clone(),
        job: record.job,
        state: String::new(),
        nodes: String::new(),
        end: None,
    };
    let control = session.control().await?;
    if runner.scheduler() == Scheduler::Local {
        let script = format!(
            "IFS= read -r s <$root/leases/{} && printf %s \"$s\"; read -r _ p _ <<<\"$s\"; [[ $s == waiting ]] || kill -0 \"$p\"",
            record.generation() + "/state"
        );
        let done = control.run(&script).await.map_err(lost)?;
        let over = done.code != 0 || done.text().starts_with("closed");
        status.state = if over {
            "ended".to_owned()
        } else {
            "RUNNING".to_owned()
        };
        status.nodes.clone_from(&session.agent.login().host);
        return Ok((status, over));
    }
    let Some(job) = record.job else {
        "submission not answered".clone_into(&mut status.state);
        return Ok((status, false));
    };
    match queue_row(&control, job).await? {
        Ok(Some(row)) => {
            let over = row.state.phase() == JobPhase::Ended;
            status.state = row.state.to_string();
            status.nodes = row.nodes;
            status.end = row.end;
            Ok((status, over))
        }
        // Slurm forgets an ended job after MinJobAge; accounting has the last word.
        Ok(None) => match accounting(&control, job).await? {
            Ok(rows) => {
                let row = sacct::select(&rows, None).0.cloned();
                let over = row
                    .as_ref()
                    .is_some_and(|row| row.state.phase() == JobPhase::Ended);
                status.state = row.map_or_else(|| "not in the queue".to_owned(), |row| row.state.to_string());
                Ok((status, over))
            }
            Err(words) => {
                status.state = format!("not in the queue; accounting: {words}");
                Ok((status, false))
            }
        },
        Err(words) => {
            status.state = format!("unknown: {words}");
            Ok((status, false))
        }
    }
}

/// Gives every allocation of the profile back and waits until Slurm says that it is over.
pub(super) async fn release(runner: &SlurmRunner) -> Result<Vec<LeaseStatus>, RunError> {
    let mut released = Vec::new();
    for id in records(runner)? {
        let mut lease = lock(runner, &id).await?;
        if lease.record.profile != runner.profile.name || lease.record.phase == LeasePhase::Ended {
            continue;
        }
        let session = runner.session.get(&Quiet).await?;
        if lease.record.phase == LeasePhase::Submitting {
            match look(runner, &session, &lease.record).await? {
                Lookup::Found(jobs) => lease.record.job = jobs.first().copied(),
                Lookup::Absent | Lookup::NotAsked => {}
            }
        }
        let control = session.control().await?;
        let tell = call("tell", &[lease.record.generation().as_str(), "close"]).map_err(quoted)?;
        // The launcher closes in order if it is there; scancel is for a job that waits, or whose launcher is stuck.
        control.run(&tell).await.map_err(lost)?;
        let begun = Instant::now();
        let mut asked = false;
        let status = loop {
            let (status, over) = status(runner, &session, &lease.record).await?;
            if over || (lease.record.job.is_none() && runner.scheduler() == Scheduler::Slurm) {
                break status;
            }
            if begun.elapsed() > RELEASE_LIMIT {
                return Err(RunError::new(
                    FailureKind::Unreachable,
                    format!(
                        "job {:?} is still {} after {} s",
                        lease.record.job,
                        status.state,
                        RELEASE_LIMIT.as_secs()
                    ),
                )
                .hint("look at it with `squeue --me` on the login node: as it stands, it costs node hours"));
            }
            let patience = if status.state == "PENDING" {
                Duration::ZERO
            } else {
                Duration::from_secs(3)
            };
            if !asked && begun.elapsed() >= patience {
                asked = true;
                if let (Some(job), Scheduler::Slurm) = (lease.record.job, runner.scheduler()) {
                    cancel_job(&session, job).await?;
                }
            }
            tokio::time::sleep(Duration::from_millis(250)).await;
        };
        lease.record.phase = LeasePhase::Ended;
        save(lease).await?;
        released.push(status);
    }
    Ok(released)
}

/// What a remote function's odd exit codes mean; the numbers stand in `agent.sh`.
pub(super) mod codes {
    pub(crate) const MISSING_SNAPSHOT: u8 = 20;
    pub(crate) const GENERATION_CLOSED: u8 = 21;
    pub(crate) const GENERATION_MISSING: u8 = 22;
}

/// A call with its quoting checked.
pub(super) fn checked_call(function: &str, arguments: &[&str]) -> Result<String, RunError> {
    call(function, arguments).map_err(|error| internal("call")(error.to_string()))
}
