//! One connection, kept: two remote shells at most, made anew when the connection is lost.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use tokio::sync::Mutex;

use crate::remote::{Agent, AgentError, StartError};
use crate::runner::{FailureKind, Observer, Phase, RunError};
use crate::slurm::Scheduler;
use crate::ssh::transport::Transport;

/// Makes the connection.
#[async_trait]
pub trait Connector: fmt::Debug + Send + Sync {
    /// Where it leads, in words.
    fn target(&self) -> String;

    /// Connects.
    ///
    /// # Errors
    /// With the kind, the reason and what to do.
    async fn connect(&self) -> Result<Arc<dyn Transport>, RunError>;
}

/// A live connection.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) transport: Arc<dyn Transport>,
    /// Carries evaluations.
    pub(super) agent: Agent,
    /// Asks Slurm, which can take seconds, without holding up the other.
    control: Mutex<Option<Arc<Agent>>>,
    scheduler: &'static str,
}

impl Session {
    /// The shell for queries.
    pub(super) async fn control(&self) -> Result<Arc<Agent>, RunError> {
        let mut control = self.control.lock().await;
        if let Some(agent) = control.as_ref().filter(|agent| !agent.is_lost()) {
            return Ok(Arc::clone(agent));
        }
        let root = &self.agent.login().root;
        let agent = Agent::start(self.transport.as_ref(), root, self.scheduler)
            .await
            .map_err(start_error)?;
        let agent = Arc::new(agent);
        *control = Some(Arc::clone(&agent));
        Ok(agent)
    }

    fn is_lost(&self) -> bool {
        self.agent.is_lost() || self.transport.is_closed()
    }
}

/// The connection of a runner.
#[derive(Debug)]
pub(super) struct Sessions {
    connector: Box<dyn Connector>,
    root: String,
    scheduler: Scheduler,
    current: Mutex<Option<Arc<Session>>>,
}

impl Sessions {
    pub(super) fn new(connector: Box<dyn Connector>, root: &str, scheduler: Scheduler) -> Self {
        Self {
            connector,
            root: root.to_owned(),
            scheduler,
            current: Mutex::new(None),
        }
    }

    pub(super) fn scheduler(&self) -> Scheduler {
        self.scheduler
    }

    /// The live session; connects if there is none. Callers queue here, so only one of them dials.
    pub(super) async fn get(&self, observer: &dyn Observer) -> Result<Arc<Session>, RunError> {
        let mut current = self.current.lock().await;
        if let Some(session) = current.as_ref().filter(|session| !session.is_lost()) {
            return Ok(Arc::clone(session));
        }
        let after = current.take().map(|_| "the connection was lost".to_owned());
        observer.phase(&Phase::Connecting {
            to: self.connector.target(),
            after,
        });
        let transport = self.connector.connect().await?;
        let scheduler = match self.scheduler {
            Scheduler::Slurm => "slurm",
            Scheduler::Local => "local",
        };
        let agent = Agent::start(transport.as_ref(), &self.root, scheduler)
            .await
            .map_err(start_error)?;
        let session = Arc::new(Session {
            transport,
            agent,
            control: Mutex::new(None),
            scheduler,
        });
        *current = Some(Arc::clone(&session));
        Ok(session)
    }

    pub(super) async fn close(&self) {
        if let Some(session) = self.current.lock().await.take() {
            session.transport.close().await;
        }
    }
}

fn start_error(error: StartError) -> RunError {
    match &error {
        StartError::Root { words } if words.contains("No space left") || words.contains("quota") => {
            RunError::new(FailureKind::RemoteStorage, "the cluster's storage is full")
                .hint("free space or inodes there, or set another `remote_artifact_root` in the profile")
                .caused_by(error)
        }
        StartError::Root { .. } => {
            RunError::new(FailureKind::Config, "the remote artifact root cannot be used")
                .hint("check `remote_artifact_root` in the profile")
                .caused_by(error)
        }
        StartError::Open(_) | StartError::NoHello { .. } | StartError::Random(_) => RunError::new(
            FailureKind::Unreachable,
            "no shell could be started on the login node",
        )
        .caused_by(error),
    }
}

pub(super) fn lost(error: AgentError) -> RunError {
    RunError::new(FailureKind::Unreachable, "the cluster was lost").caused_by(error)
}
