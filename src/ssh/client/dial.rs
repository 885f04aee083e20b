//! From a route to an established connection: hop after hop.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use russh::ChannelOpenFailure;
use tokio::task::{AbortHandle, JoinHandle};

use super::auth::log_in;
use super::config::{Settings, config};
use super::handler::{Handle, Handler, HandlerError, HopState};
use super::jump::JumpStream;
use super::nudge::nudged;
use super::session::{describe, jitter};
use super::{Hop as LiveHop, Trust};
use crate::ssh::error::{DialError, DialReason, HopName, Phase};
use crate::ssh::route::{Hop, Route};
use crate::ssh::signer::Offers;
use crate::ssh::socket::{Complaints, ConnectError, HopStream, ProxyStream, Stream, connect};

/// The pause between attempts to connect (ConnectionAttempts).
const ATTEMPT_PAUSE: Duration = Duration::from_secs(1);
/// How long to wait for the server's words on a refusal, which the library tells just after the refusal.
const WORDS_WAIT: Duration = Duration::from_millis(100);

pub(super) fn empty_route() -> DialError {
    let hop = HopName {
        alias: String::new(),
        host: String::new(),
        port: 0,
        user: String::new(),
    };
    DialError {
        hop,
        phase: Phase::Connect,
        reason: Box::new(DialReason::EmptyRoute),
    }
}

pub(super) async fn dial(
    route: &Route,
    trust: &Trust,
    settings: &Settings,
) -> Result<Vec<LiveHop>, DialError> {
    // The credentials of all hops are looked up while the first hop is being reached.
    let mut offers: Vec<Gathering> = route
        .hops
        .iter()
        .map(|hop| Gathering::start(hop, trust))
        .collect();
    let mut live: Vec<LiveHop> = Vec::with_capacity(route.hops.len());
    for (hop, offers) in route.hops.iter().zip(offers.drain(..)) {
        let state = HopState::new();
        let guard = CutOnDrop(Some(Arc::clone(&state)));
        let (stream, complaints) = match live.last() {
            None => reach(hop, settings).await?,
            Some(jump) => (forward(jump, hop, settings).await?, Complaints::default()),
        };
        let mut handle = shake_hands(hop, stream, &state, &complaints, trust, settings).await?;
        let offers = offers.finish().await;
        let limit = settings.auth_timeout;
        tokio::time::timeout(limit, log_in(&mut handle, hop, offers, &state, settings))
            .await
            .unwrap_or(Err(DialReason::Timeout(limit)))
            .map_err(|reason| DialError::new(hop, Phase::Authenticate, reason))?;
        guard.disarm();
        live.push(LiveHop {
            name: hop.into(),
            state,
            handle: Arc::new(handle),
        });
    }
    Ok(live)
}

/// Ends a half-established hop when dialling fails or is given up: the library would go on waiting by itself.
struct CutOnDrop(Option<Arc<HopState>>);

impl CutOnDrop {
    fn disarm(mut self) {
        self.0 = None;
    }
}

impl Drop for CutOnDrop {
    fn drop(&mut self) {
        if let Some(state) = &self.0 {
            state.cut();
        }
    }
}

/// Credentials being looked up.
struct Gathering(JoinHandle<Offers>, AbortHandle);

impl Gathering {
    fn start(hop: &Hop, trust: &Trust) -> Self {
        let credentials = Arc::clone(&trust.credentials);
        let hop = hop.clone();
        let task = tokio::spawn(async move { credentials.offers(&hop).await });
        let abort = task.abort_handle();
        Self(task, abort)
    }

    async fn finish(mut self) -> Offers {
        (&mut self.0).await.unwrap_or_default()
    }
}

impl Drop for Gathering {
    fn drop(&mut self) {
        self.1.abort();
    }
}

/// The stream to the first hop.
async fn reach(hop: &Hop, settings: &Settings) -> Result<(Box<dyn Stream>, Complaints), DialError> {
    let failed = |reason| DialError::new(hop, Phase::Connect, reason);
    if let Some(command) = &hop.proxy_command {
        let (stream, complaints) =
            ProxyStream::start(command).map_err(|error| failed(DialReason::Proxy(error)))?;
        return Ok((Box::new(stream), complaints));
    }
    let limit = hop.connect_timeout.unwrap_or(settings.connect_timeout);
    let mut attempt = 1;
    loop {
        let reason = match tokio::time::timeout(limit, connect(hop)).await {
            Ok(Ok(stream)) => return Ok((Box::new(stream), Complaints::default())),
            Ok(Err(error)) => connect_reason(error),
            Err(_) => DialReason::Timeout(limit),
        };
        if attempt >= hop.connection_attempts {
            return Err(failed(reason));
        }
        attempt += 1;
        tokio::time::sleep(jitter(ATTEMPT_PAUSE)).await;
    }
}

fn connect_reason(error: ConnectError) -> DialReason {
    match error {
        ConnectError::Resolve(text) => DialReason::Resolve(text),
        ConnectError::Connect { error, address } if error.kind() == io::ErrorKind::ConnectionRefused => {
            DialReason::Refused(address.to_string())
        }
        other @ ConnectError::Connect { .. } => DialReason::Unreachable(other.to_string()),
    }
}

/// The stream to the next hop, through the one before it.
async fn forward(jump: &LiveHop, hop: &Hop, settings: &Settings) -> Result<Box<dyn Stream>, DialError> {
    let failed = |reason| DialError::new(hop, Phase::Forward, reason);
    let limit = hop.connect_timeout.unwrap_or(settings.connect_timeout);
    let _stale = jump.state.take_open_failure();
    let open = jump
        .handle
        .channel_open_direct_tcpip(hop.host.as_str(), u32::from(hop.port), "127.0.0.1", 0);
    match tokio::time::timeout(limit, nudged(&jump.handle, open)).await {
        Ok(Ok(channel)) => Ok(Box::new(JumpStream::new(channel))),
        Ok(Err(russh::Error::ChannelOpenFailure(refusal))) => {
            let forbidden = matches!(refusal, ChannelOpenFailure::AdministrativelyProhibited);
            let words = words(&jump.state).await.filter(|words| !words.trim().is_empty());
            let kind = describe(&refusal);
            let description = words.map_or_else(|| kind.to_owned(), |words| format!("{kind}: {words}"));
            let by_certificate = forbidden && jump.state.forwarding_denied();
            Err(failed(DialReason::Jump {
                by_certificate,
                by: jump.name.clone(),
                forbidden,
                description,
            }))
        }
        Ok(Err(error)) => {
            let detail = jump.state.closed_reason().unwrap_or_else(|| error.to_string());
            Err(failed(DialReason::Closed {
                detail,
                said: jump.state.said(),
            }))
        }
        Err(_) => Err(failed(DialReason::Timeout(limit))),
    }
}

async fn words(state: &HopState) -> Option<String> {
    let begun = tokio::time::Instant::now();
    loop {
        let words = state.take_open_failure();
        if words.is_some() || begun.elapsed() > WORDS_WAIT {
            return words;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// Versions, key exchange and the host key.
async fn shake_hands(
    hop: &Hop,
    stream: Box<dyn Stream>,
    state: &Arc<HopState>,
    complaints: &Complaints,
    trust: &Trust,
    settings: &Settings,
) -> Result<Handle, DialError> {
    let failed = |reason| DialError::new(hop, Phase::Handshake, reason);
    let known = trust.host_keys.known(hop);
    let stream = HopStream::new(stream, state.greeting.clone(), state.cut_token());
    let handler = Handler::new(hop.clone(), Arc::clone(&trust.host_keys), Arc::clone(state));
    let limit = settings
        .handshake_timeout
        .max(hop.connect_timeout.unwrap_or_default());
    let shake = russh::client::connect_stream(config(hop, &known, settings), stream, handler);
    match tokio::time::timeout(limit, shake).await {
        Ok(Ok(handle)) => Ok(handle),
        Ok(Err(HandlerError::HostKey(problem))) => Err(failed(DialReason::HostKey(problem))),
        Ok(Err(HandlerError::Library(error))) => {
            complaints.settle().await;
            Err(failed(handshake_reason(error, state, complaints)))
        }
        Err(_) => Err(failed(DialReason::Timeout(limit))),
    }
}

#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "the library's list of errors grows with every release"
)]
fn handshake_reason(error: russh::Error, state: &HopState, complaints: &Complaints) -> DialReason {
    match error {
        russh::Error::HUP
        | russh::Error::Disconnect
        | russh::Error::IO(_)
        | russh::Error::SendError
        | russh::Error::RecvError => {
            let said = complaints.text().or_else(|| state.said());
            DialReason::Closed {
                detail: error.to_string(),
                said,
            }
        }
        russh::Error::NoCommonAlgo { kind, ours, theirs } => DialReason::Protocol(format!(
            "no common {kind:?} algorithm; ours: {}; the server's: {}",
            ours.join(", "),
            theirs.join(", ")
        )),
        other => DialReason::Protocol(other.to_string()),
    }
}
