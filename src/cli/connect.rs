//! How a runner reaches its machine.

use std::sync::Arc;

use async_trait::async_trait;

use super::args::Global;
use super::environment::Environment;
use crate::backend::slurm::Connector;
use crate::clock::{Clock, SystemClock};
use crate::config::Profile;
use crate::runner::{FailureKind, RunError};
use crate::ssh::client::{Settings, SshTransport, Trust};
use crate::ssh::config::{self, Sources};
use crate::ssh::error::{DialError, DialReason};
use crate::ssh::known_hosts::KnownHostsFiles;
use crate::ssh::local::LocalTransport;
use crate::ssh::route::Route;
use crate::ssh::signer::FileAndAgent;
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

#[derive(Debug)]
struct Ssh {
    host: String,
    route: Route,
    trust: Trust,
    renew_hint: Option<String>,
}

#[async_trait]
impl Connector for Ssh {
    fn target(&self) -> String {
        let via: Vec<&str> = self
            .route
            .hops
            .iter()
            .rev()
            .skip(1)
            .map(|hop| hop.alias.as_str())
            .collect();
        if via.is_empty() {
            self.host.clone()
        } else {
            format!("{} via {}", self.host, via.join(", "))
        }
    }

    async fn connect(&self) -> Result<Arc<dyn Transport>, RunError> {
        match SshTransport::connect(&self.route, &self.trust, &Settings::default()).await {
            Ok(transport) => Ok(Arc::new(transport)),
            Err(error) => Err(self.failure(error)),
        }
    }
}

impl Ssh {
    fn failure(&self, error: DialError) -> RunError {
        let kind = match &*error.reason {
            DialReason::HostKey(_) | DialReason::AuthRefused(_) | DialReason::NoIdentity { .. } => {
                FailureKind::Access
            }
            DialReason::Jump { forbidden: true, .. } => FailureKind::Access,
            DialReason::EmptyRoute => FailureKind::Config,
            DialReason::Resolve(_)
            | DialReason::Refused(_)
            | DialReason::Unreachable(_)
            | DialReason::Timeout(_)
            | DialReason::Proxy(_)
            | DialReason::Jump { .. }
            | DialReason::Closed { .. }
            | DialReason::Protocol(_) => FailureKind::Unreachable,
        };
        let mut hint = error.hint();
        if let (FailureKind::Access, Some(renew)) = (kind, &self.renew_hint) {
            hint = format!("{hint}; to renew: {renew}");
        }
        RunError::new(kind, format!("cannot reach {}", self.host))
            .hint(hint)
            .caused_by(error)
    }
}

/// The login node of the profile.
pub(super) fn ssh(
    profile: &Profile,
    global: &Global,
    environment: &Environment,
) -> Result<Box<dyn Connector>, RunError> {
    let Some(ssh) = &profile.ssh else {
        return Err(RunError::new(
            FailureKind::Config,
            format!("profile `{}` has no [ssh] table", profile.name),
        ));
    };
    let home = environment.home()?;
    let sources = Sources {
        user: global
            .ssh_config
            .clone()
            .unwrap_or_else(|| home.join(".ssh/config")),
        named: global.ssh_config.is_some(),
        system: Some("/etc/ssh/ssh_config".into()),
    };
    let uid = rustix::process::getuid().as_raw();
    let hostname = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let user = environment
        .text("USER")
        .or(environment.text("LOGNAME"))
        .map(str::to_owned);
    let local = config::Environment {
        home,
        user: user.unwrap_or_else(|| {
            if uid == 0 {
                "root".to_owned()
            } else {
                uid.to_string()
            }
        }),
        uid,
        hostname,
        agent: environment.get("SSH_AUTH_SOCK").map(Into::into),
    };
    let route = config::resolve(&ssh.host, &sources, &local).map_err(|error| {
        RunError::new(
            FailureKind::Config,
            format!("the SSH configuration of `{}` cannot be used", ssh.host),
        )
        .caused_by(error)
    })?;
    for remark in &route.remarks {
        tracing::warn!("{remark}");
    }
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let trust = Trust {
        host_keys: Arc::new(KnownHostsFiles::new(Arc::clone(&clock))),
        credentials: Arc::new(FileAndAgent::new(clock)),
    };
    Ok(Box::new(Ssh {
        host: ssh.host.clone(),
        route,
        trust,
        renew_hint: ssh.renew_hint.clone(),
    }))
}
