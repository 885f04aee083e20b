//! What a runner is: one contract for `slurm-ssh`, `skypilot` and `local`.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

use crate::ids::InvocationId;
use crate::job::Verdict;
use crate::redact::Secret;
use crate::remote::Stream;
use crate::slurm::Evidence;
use crate::snapshot::artifact::ArtifactPath;

/// One requested evaluation.
#[derive(Debug, Clone)]
pub struct EvaluationRequest {
    /// The candidate's directory.
    pub candidate: PathBuf,
    /// The command, as an argument sequence; never a shell string.
    pub argv: Vec<String>,
    /// Environment variables of the command; values may be secrets.
    pub environment: Vec<(String, Secret<String>)>,
    /// How long the command may run.
    pub time_limit: Option<Duration>,
    /// Files or directories to bring back from the workspace.
    pub artifacts: Vec<ArtifactPath>,
    /// Where artifacts go.
    pub artifact_target: PathBuf,
    /// Nodes; the command runs once on each.
    pub nodes: u32,
    /// Accelerators a node; `None` is all that the profile provides.
    pub accelerators: Option<u32>,
}

/// What an evaluation is doing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Phase {
    /// Reading the candidate.
    Snapshot,
    /// Reaching the cluster.
    Connecting {
        /// Where.
        to: String,
        /// Why again, if it is not the first time.
        after: Option<String>,
    },
    /// Sending the candidate.
    Staging {
        /// Bytes that were handed over.
        sent: u64,
        /// Bytes there are, once known.
        total: Option<u64>,
    },
    /// Asking for an allocation.
    Submitting,
    /// The allocation waits in the queue.
    Queued {
        /// The job.
        job: u64,
        /// Why, in words.
        reason: String,
        /// Slurm's estimate of its start.
        start: Option<jiff::Timestamp>,
    },
    /// The launcher has the request and makes its workspace.
    Preparing,
    /// srun was called; the container is starting.
    Starting,
    /// The command runs.
    Running {
        /// Where.
        node: Option<String>,
    },
    /// Waiting for Slurm's final word.
    Settling,
    /// Bringing artifacts back.
    Collecting,
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Snapshot => write!(f, "reading the candidate"),
            Self::Connecting { to, after: None } => write!(f, "connecting to {to}"),
            Self::Connecting { to, after: Some(why) } => write!(f, "connecting to {to} again ({why})"),
            Self::Staging {
                sent,
                total: Some(total),
            } => {
                write!(
                    f,
                    "staging, {} of {} KiB",
                    sent.div_ceil(1024),
                    total.div_ceil(1024)
                )
            }
            Self::Staging { sent, total: None } => write!(f, "staging, {} KiB", sent.div_ceil(1024)),
            Self::Submitting => write!(f, "asking for an allocation"),
            Self::Queued {
                job,
                reason,
                start: None,
            } => write!(f, "job {job} is queued: {reason}"),
            Self::Queued {
                job,
                reason,
                start: Some(start),
            } => {
                write!(f, "job {job} is queued: {reason}; expected to start {start:.0}")
            }
            Self::Preparing => write!(f, "preparing the workspace"),
            Self::Starting => write!(f, "starting the container"),
            Self::Running { node: Some(node) } => write!(f, "running on {node}"),
            Self::Running { node: None } => write!(f, "running"),
            Self::Settling => write!(f, "waiting for accounting"),
            Self::Collecting => write!(f, "bringing artifacts back"),
        }
    }
}

/// Watches an evaluation. Called from the runner's own tasks: it must not block.
pub trait Observer: Send + Sync {
    /// The phase changed.
    fn phase(&self, phase: &Phase);
    /// The local copy of a stream, at `path`, holds `size` bytes now.
    fn output(&self, stream: Stream, path: &std::path::Path, size: u64);
}

/// What a result was measured with and on.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Provenance {
    /// The profile.
    pub profile: String,
    /// `slurm-ssh`, `local` or `skypilot`.
    pub runner: String,
    /// The login node, and how it was reached.
    pub cluster: String,
    /// Facts of the connection, such as the certificate's key id.
    pub connection: Vec<(String, String)>,
    /// The allocation.
    pub job: Option<u64>,
    /// The step.
    pub step: Option<u32>,
    /// The node of the first task.
    pub node: Option<String>,
    /// GPUs that the command could see.
    pub gpus: Option<String>,
    /// CPUs that the command could use.
    pub cpus: Option<String>,
    /// The environment file or wrapper.
    pub container: Option<String>,
    /// The snapshot that was measured.
    pub snapshot: String,
    /// The attempt that gave the result.
    pub attempt: u32,
    /// This program.
    pub version: String,
}

/// How an evaluation ended, with everything it was decided from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// The invocation.
    pub invocation: InvocationId,
    /// How it ended.
    pub verdict: Verdict,
    /// What that was decided from.
    pub evidence: Evidence,
    /// What it was measured with and on.
    pub provenance: Provenance,
    /// The local copy of standard output.
    pub stdout: PathBuf,
    /// The local copy of standard error.
    pub stderr: PathBuf,
    /// Artifacts that were brought back.
    pub artifacts: Vec<PathBuf>,
    /// Artifacts that were declared and did not come, with the reason.
    pub missing_artifacts: Vec<String>,
    /// Milliseconds from the call to each stage, in their order.
    pub timings: Vec<(String, u64)>,
}

/// A promise of compute as `lease list` shows it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LeaseStatus {
    /// The lease.
    pub lease: String,
    /// The profile.
    pub profile: String,
    /// Its allocation.
    pub job: Option<u64>,
    /// Slurm's word for its state, or what we know instead.
    pub state: String,
    /// Its nodes.
    pub nodes: String,
    /// When it ends at the latest.
    pub end: Option<jiff::Timestamp>,
}

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct RunError {
    /// What kind of failure it is: decides the exit code.
    pub kind: FailureKind,
    /// What happened.
    pub message: String,
    /// What to do about it.
    pub hint: Option<String>,
    /// The cause.
    #[source]
    pub source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

/// The kinds of failure that a caller tells apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailureKind {
    /// The profile or the request does not fit.
    Config,
    /// The candidate cannot be staged.
    Candidate,
    /// A key, certificate, host key or account was refused.
    Access,
    /// The cluster cannot be reached, or was lost and did not come back.
    Unreachable,
    /// Slurm refused the allocation.
    Refused,
    /// The cluster's storage refused the files.
    RemoteStorage,
    /// The local disk refused the files.
    LocalStorage,
    /// Something that should not be possible.
    Internal,
}

impl RunError {
    /// An error of `kind` that says `message`.
    pub fn new(kind: FailureKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
            hint: None,
            source: None,
        }
    }

    /// Adds what to do about it.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Adds the cause.
    #[must_use]
    pub fn caused_by(mut self, source: impl std::error::Error + Send + Sync + 'static) -> Self {
        self.source = Some(Box::new(source));
        self
    }
}

/// A way to get evaluations done.
#[async_trait]
pub trait JobRunner: fmt::Debug + Send + Sync {
    /// Runs one evaluation to its end. Cancelling `cancel` ends the step, verified, and yields a report that says so.
    ///
    /// # Errors
    /// The evaluation could not be brought to an outcome at all.
    async fn evaluate(
        &self,
        request: EvaluationRequest,
        observer: &dyn Observer,
        cancel: CancellationToken,
    ) -> Result<Report, RunError>;

    /// The leases of this runner, with what the cluster says of them.
    ///
    /// # Errors
    /// The cluster cannot be asked.
    async fn leases(&self) -> Result<Vec<LeaseStatus>, RunError>;

    /// Gives the allocations back and waits until the cluster says that they are gone.
    ///
    /// # Errors
    /// The cluster cannot be asked, or an allocation is still there; the message names it.
    async fn release(&self) -> Result<Vec<LeaseStatus>, RunError>;

    /// Ends the connection in an orderly way.
    async fn close(&self);
}
