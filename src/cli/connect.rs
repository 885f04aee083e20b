//! How a runner reaches its machine.

use std::sync::Arc;

use async_trait::async_trait;

use super::args::Global;
use super::environment::Environment;
use crate::backend::slurm::Connector;
use crate::config::Profile;
use crate::runner::{FailureKind, RunError};
use crate::ssh::local::LocalTransport;
use crate::ssh::transport::Transport;

#[derive(Debug)]
struct Local;

#[async_trait]
impl Connector for Local {
    fn target(&self) -> String {
        "this machine".to_owned()
    }

    async fn connect(&self) -> Result<Arc<dyn Transport>, RunError> {
        Ok(Arc::new(LocalTransport::new()))
    }
}

/// This machine.
pub(super) fn local() -> Box<dyn Connector> {
    Box::new(Local)
}

/// The login node of the profile.
pub(super) fn ssh(_profile: &Profile, _global: &Global, _environment: &Environment) -> Result<Box<dyn Connector>, RunError> {
    Err(RunError::new(FailureKind::Internal, "not yet"))
}
