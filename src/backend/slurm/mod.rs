//! The `slurm-ssh` runner, and `local`: the same launcher, with the scheduler left out.
//!
//! An evaluation is one batch of requests to the agent on the login node (archive, request, follow), whose answers are
//! the whole story: see `docs/architecture.md`.

mod allocate;
mod attempt;
mod collect;
mod request;
mod session;
mod spool;
mod stage;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;
use sha2::{Digest, Sha256};
use tokio_util::sync::CancellationToken;

use crate::clock::Clock;
use crate::config::{Profile, RunnerKind};
use crate::durable;
use crate::ids::{InvocationId, LeaseId, hex};
use crate::journal::{Journal, Record};
use crate::runner::{
    EvaluationRequest, FailureKind, JobRunner, LeaseStatus, Observer, Phase, Report, RunError,
};
use crate::slurm::Scheduler;
use crate::snapshot::{self, Limits, Manifest, SnapshotError};

pub use session::Connector;

/// A runner for one profile and one run.
#[derive(Debug)]
pub struct SlurmRunner {
    profile: Profile,
    state: PathBuf,
    installation: String,
    run: String,
    journal: Journal,
    clock: Arc<dyn Clock>,
    session: session::Sessions,
}

fn internal(what: &str) -> impl Fn(String) -> RunError + '_ {
    move |error| RunError::new(FailureKind::Internal, format!("{what}: {error}"))
}

fn local_storage(error: impl std::error::Error + Send + Sync + 'static) -> RunError {
    RunError::new(FailureKind::LocalStorage, "the state directory cannot be used")
        .hint("choose another one with --state-dir or VIBESYS_STATE_HOME")
        .caused_by(error)
}

impl SlurmRunner {
    /// A runner that keeps its records below `state`. `run` names what its lease is for; runners of the same run share it.
    ///
    /// # Errors
    /// The state directory cannot be used.
    pub fn open(
        profile: Profile,
        run: &str,
        state: &Path,
        connector: Box<dyn Connector>,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, RunError> {
        let journal = Journal::open(state).map_err(local_storage)?;
        let installation = installation(state)?;
        let scheduler = match profile.runner {
            RunnerKind::Local => Scheduler::Local,
            RunnerKind::SlurmSsh | RunnerKind::Skypilot => Scheduler::Slurm,
        };
        let session = session::Sessions::new(connector, &profile.remote_artifact_root, scheduler);
        Ok(Self {
            profile,
            state: state.to_owned(),
            installation,
            run: run.to_owned(),
            journal,
            clock,
            session,
        })
    }

    fn scheduler(&self) -> Scheduler {
        self.session.scheduler()
    }

    /// The lease for a shape of allocation: the same for everybody who asks the same of the same profile here.
    fn lease_id(&self, nodes: u32) -> Result<LeaseId, RunError> {
        let mut profile = self.profile.clone();
        // Neither changes what an allocation can do.
        profile.name.clear();
        profile.ssh = None;
        let shape = serde_json::json!({ "profile": profile, "nodes": nodes });
        let mut hasher = Sha256::new();
        for part in [
            self.run.as_str(),
            &self.installation,
            &self.profile.name,
            &shape.to_string(),
        ] {
            hasher.update(part);
            hasher.update([0]);
        }
        hex(&hasher.finalize())[..12]
            .parse()
            .map_err(|error| internal("lease id")(format!("{error}")))
    }

    async fn take(&self, candidate: &Path) -> Result<Manifest, RunError> {
        let root = candidate.canonicalize().unwrap_or_else(|_| candidate.to_owned());
        let key = hex(&Sha256::digest(root.as_os_str().as_encoded_bytes()));
        let cache = self.state.join("cache").join(format!("stat-{}", &key[..16]));
        blocking(move || snapshot::take(&root, Some(&cache), Limits::default()))
            .await?
            .map_err(candidate_error)
    }
}

/// Runs file work where it may block.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, RunError> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|error| internal("file work")(error.to_string()))
}

fn candidate_error(error: SnapshotError) -> RunError {
    let hint = error.hint();
    let run_error = RunError::new(FailureKind::Candidate, "the candidate cannot be staged").caused_by(error);
    match hint {
        Some(hint) => run_error.hint(hint),
        None => run_error,
    }
}

/// A random name of this state directory: two laptops of one user do not share their leases by accident.
fn installation(state: &Path) -> Result<String, RunError> {
    let path = state.join("installation");
    if let Ok(text) = std::fs::read_to_string(&path)
        && text.trim().len() == 16
    {
        return Ok(text.trim().to_owned());
    }
    let fresh = crate::ids::random_hex(8).map_err(|error| internal("randomness")(error.to_string()))?;
    // Whoever is second reads what the first wrote.
    match std::fs::File::options().write(true).create_new(true).open(&path) {
        Ok(_) => durable::write_atomic(&path, fresh.as_bytes()).map_err(local_storage)?,
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
            for _ in 0..100 {
                let text = std::fs::read_to_string(&path).unwrap_or_default();
                if text.trim().len() == 16 {
                    return Ok(text.trim().to_owned());
                }
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
            // Its maker died between creating and filling it.
            durable::write_atomic(&path, fresh.as_bytes()).map_err(local_storage)?;
        }
        Err(error) => return Err(local_storage(durable::FileError::at("create", &path)(error))),
    }
    Ok(fresh)
}

/// When each stage was reached, for the report.
#[derive(Debug)]
struct Stopwatch {
    start: Instant,
    marks: Vec<(String, u64)>,
}

impl Stopwatch {
    fn mark(&mut self, stage: &str) {
        let elapsed = u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.marks.push((stage.to_owned(), elapsed));
    }
}

#[async_trait]
impl JobRunner for SlurmRunner {
    async fn evaluate(
        &self,
        request: EvaluationRequest,
        observer: &dyn Observer,
        cancel: CancellationToken,
    ) -> Result<Report, RunError> {
        let mut watch = Stopwatch {
            start: Instant::now(),
            marks: Vec::new(),
        };
        if request.nodes > self.profile.max_nodes {
            return Err(RunError::new(
                FailureKind::Config,
                format!(
                    "profile `{}` permits at most {} nodes (max_nodes), but the request asks for {} (--nodes)",
                    self.profile.name, self.profile.max_nodes, request.nodes
                ),
            ));
        }
        if let Some(wanted) = request.accelerators
            && wanted > self.profile.accelerators_per_node
        {
            return Err(RunError::new(
                FailureKind::Config,
                format!(
                    "profile `{}` provides at most {} accelerators per node (accelerators_per_node), but the request asks for {wanted} (--gpus)",
                    self.profile.name, self.profile.accelerators_per_node
                ),
            ));
        }
        observer.phase(&Phase::Snapshot);
        // The candidate is read while the connection is made.
        let (manifest, session) = tokio::join!(self.take(&request.candidate), self.session.get(observer));
        let (manifest, session) = (manifest?, session?);
        watch.mark("connected");
        let invocation = InvocationId::random().map_err(|error| internal("randomness")(error.to_string()))?;
        let record = Record::prepared(
            invocation,
            self.profile.name.clone(),
            request.argv.clone(),
            manifest.id(),
            self.clock.now(),
        );
        attempt::Evaluation::new(self, request, manifest, record, observer, cancel, watch)
            .run(session)
            .await
    }

    async fn leases(&self) -> Result<Vec<LeaseStatus>, RunError> {
        allocate::statuses(self).await
    }

    async fn release(&self) -> Result<Vec<LeaseStatus>, RunError> {
        allocate::release(self).await
    }

    async fn close(&self) {
        self.session.close().await;
    }
}
