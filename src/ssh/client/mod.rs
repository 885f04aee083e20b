//! The connection to a cluster over SSH, through any number of jump hosts, without the `ssh` program.

mod auth;
mod config;
mod dial;
mod handler;
mod jump;
mod nudge;
mod pump;
mod session;
mod slots;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::oneshot;

use self::handler::HopState;
use self::session::Session;
use super::error::{DialError, HopName};
use super::host_key::HostKeys;
use super::route::Route;
use super::signer::Credentials;
use super::transport::{Channel, OpenError, Peer, Transport};

pub use config::Settings;

/// How long an orderly end may take, for each hop.
const CLOSE_LIMIT: Duration = Duration::from_secs(1);

/// What a connection needs to know from others.
#[derive(Debug, Clone)]
pub struct Trust {
    /// Whom we trust.
    pub host_keys: Arc<dyn HostKeys>,
    /// Who we are.
    pub credentials: Arc<dyn Credentials>,
}

/// One SSH connection. It is never re-established: a caller that still needs one connects again.
pub struct SshTransport {
    session: Arc<Session>,
    hops: Vec<Hop>,
    peer: Peer,
}

/// One hop of an established connection.
struct Hop {
    name: HopName,
    state: Arc<HopState>,
    handle: Arc<handler::Handle>,
}

impl fmt::Debug for SshTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SshTransport")
            .field("peer", &self.peer)
            .finish_non_exhaustive()
    }
}

impl SshTransport {
    /// Connects along `route` and logs in at every hop.
    ///
    /// # Errors
    /// Which hop failed, in which phase, and why.
    pub async fn connect(route: &Route, trust: &Trust, settings: &Settings) -> Result<Self, DialError> {
        let hops = dial::dial(route, trust, settings).await?;
        let Some((target, via)) = hops.split_last() else {
            return Err(dial::empty_route());
        };
        let mut facts = Vec::new();
        for hop in &hops {
            facts.extend(
                hop.state
                    .facts()
                    .into_iter()
                    .map(|(name, value)| (format!("{} {name}", hop.name.alias), value)),
            );
        }
        let peer = Peer {
            user: target.name.user.clone(),
            host: target.name.alias.clone(),
            via: via.iter().map(|hop| hop.name.to_string()).collect(),
            facts,
        };
        let session = Session::new(Arc::clone(&target.handle), Arc::clone(&target.state), settings);
        Ok(Self {
            session: Arc::new(session),
            hops,
            peer,
        })
    }

    /// How many sessions the connection takes at a time, as learned so far.
    pub fn session_limit(&self) -> usize {
        self.session.limit()
    }
}

#[async_trait]
impl Transport for SshTransport {
    async fn open(&self, command: &str) -> Result<Channel, OpenError> {
        let session = Arc::clone(&self.session);
        let command = command.to_owned();
        let (sender, receiver) = oneshot::channel();
        // In a task of its own, so that a caller who gives up half-way leaves no half-open session behind: the channel
        // that nobody takes is dropped, which abandons its command.
        tokio::spawn(async move {
            let opened = session.open(&command).await;
            let _unwanted = sender.send(opened);
        });
        receiver.await.unwrap_or_else(|_| {
            Err(OpenError::Lost {
                reason: "the task that opens the session is gone".to_owned(),
            })
        })
    }

    fn describe(&self) -> Peer {
        self.peer.clone()
    }

    fn is_closed(&self) -> bool {
        self.hops
            .iter()
            .any(|hop| hop.handle.is_closed() || hop.state.closed_reason().is_some())
    }

    async fn closed(&self) -> String {
        // The target ends whenever a hop before it does, and the outermost hop that ended is the cause.
        if let Some(target) = self.hops.last() {
            target.state.wait_closed().await;
        }
        for hop in &self.hops {
            if let Some(reason) = hop.state.closed_reason() {
                return format!("{}: {reason}", hop.name.alias);
            }
        }
        "the connection has ended".to_owned()
    }

    async fn close(&self) {
        for hop in self.hops.iter().rev() {
            hop.state.note_closed("we closed it");
            let goodbye = hop.handle.disconnect(russh::Disconnect::ByApplication, "", "");
            let _late = tokio::time::timeout(CLOSE_LIMIT, goodbye).await;
            let _late = tokio::time::timeout(CLOSE_LIMIT, hop.state.wait_ended()).await;
            hop.state.cut();
        }
    }
}

impl Drop for SshTransport {
    fn drop(&mut self) {
        for hop in &self.hops {
            hop.state.note_closed("it was dropped");
            hop.state.cut();
        }
    }
}
