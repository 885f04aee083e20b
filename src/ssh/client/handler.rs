//! What the library tells about a hop while it lives, kept where others can ask for it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use russh::client::{ChannelOpenHandle, DisconnectReason, Msg, Session};
use russh::keys::{HashAlg, PublicKeyOrCertificate};
use russh::{Channel, ChannelId, ChannelOpenFailure};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::ssh::host_key::{HostKeyProblem, HostKeys};
use crate::ssh::route::Hop;
use crate::ssh::socket::Greeting;

pub(super) type Handle = russh::client::Handle<Handler>;

/// What is known about a hop.
#[derive(Debug)]
pub(super) struct HopState {
    pub(super) greeting: Greeting,
    cut: CancellationToken,
    /// Why the connection ended, as soon as that is known.
    closed: watch::Sender<Option<String>>,
    /// The library has let go of the connection.
    ended: CancellationToken,
    notes: Mutex<Notes>,
}

#[derive(Debug, Default)]
struct Notes {
    banner: String,
    farewell: Option<String>,
    open_failure: Option<String>,
    facts: Vec<(String, String)>,
    /// The certificate we logged in by does not allow what a jump host does.
    forwarding_denied: bool,
}

/// How much of a banner is kept.
const BANNER_LIMIT: usize = 2048;

impl HopState {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self {
            greeting: Greeting::default(),
            cut: CancellationToken::new(),
            closed: watch::Sender::new(None),
            ended: CancellationToken::new(),
            notes: Mutex::default(),
        })
    }

    fn notes(&self) -> MutexGuard<'_, Notes> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Cancelled when the stream of this hop is to be cut.
    pub(super) fn cut_token(&self) -> CancellationToken {
        self.cut.clone()
    }

    /// Ends the stream of this hop at once.
    pub(super) fn cut(&self) {
        self.cut.cancel();
    }

    /// The first reason stays.
    pub(super) fn note_closed(&self, reason: &str) {
        self.closed.send_if_modified(|closed| {
            let first = closed.is_none();
            if first {
                *closed = Some(reason.to_owned());
            }
            first
        });
    }

    pub(super) fn closed_reason(&self) -> Option<String> {
        self.closed.borrow().clone()
    }

    pub(super) async fn wait_closed(&self) {
        // The sender is ours, so the only way on is a reason.
        let mut closed = self.closed.subscribe();
        let _reason = closed.wait_for(Option::is_some).await;
    }

    pub(super) async fn wait_ended(&self) {
        self.ended.cancelled().await;
    }

    /// What the server said in its own words: before the protocol, when it said goodbye, or as a banner.
    pub(super) fn said(&self) -> Option<String> {
        let notes = self.notes();
        let banner = || Some(notes.banner.trim().to_owned()).filter(|banner| !banner.is_empty());
        notes
            .farewell
            .clone()
            .or_else(|| self.greeting.text())
            .or_else(banner)
    }

    /// The server's words for the last refused channel.
    pub(super) fn take_open_failure(&self) -> Option<String> {
        self.notes().open_failure.take()
    }

    pub(super) fn set_forwarding(&self, permitted: bool) {
        self.notes().forwarding_denied = !permitted;
    }

    pub(super) fn forwarding_denied(&self) -> bool {
        self.notes().forwarding_denied
    }

    pub(super) fn add_fact(&self, name: &str, value: String) {
        self.notes().facts.push((name.to_owned(), value));
    }

    pub(super) fn facts(&self) -> Vec<(String, String)> {
        self.notes().facts.clone()
    }
}

/// Receives the library's calls for one hop. It never waits: the loop that calls it serves every channel.
#[derive(Debug)]
pub(super) struct Handler {
    hop: Hop,
    host_keys: Arc<dyn HostKeys>,
    state: Arc<HopState>,
}

/// Why the library gave up.
#[derive(Debug, thiserror::Error)]
pub(super) enum HandlerError {
    /// The host is not trusted.
    #[error(transparent)]
    HostKey(#[from] HostKeyProblem),
    /// Anything else.
    #[error(transparent)]
    Library(#[from] russh::Error),
}

impl Handler {
    pub(super) fn new(hop: Hop, host_keys: Arc<dyn HostKeys>, state: Arc<HopState>) -> Self {
        Self {
            hop,
            host_keys,
            state,
        }
    }
}

impl Drop for Handler {
    fn drop(&mut self) {
        // The library does not always say that it ends, but it always lets go of us.
        self.state.note_closed("the connection ended");
        self.state.ended.cancel();
    }
}

impl russh::client::Handler for Handler {
    type Error = HandlerError;

    async fn check_server_key(&mut self, presented: &PublicKeyOrCertificate) -> Result<bool, HandlerError> {
        self.host_keys.check(&self.hop, presented)?;
        let fingerprint = presented.public_key().fingerprint(HashAlg::Sha256);
        let shown = match presented.certificate() {
            Some(certificate) => format!("{fingerprint} (certificate \"{}\")", certificate.key_id()),
            None => fingerprint.to_string(),
        };
        self.state.add_fact("host key", shown);
        Ok(true)
    }

    async fn kex_done(
        &mut self,
        _secret: Option<&[u8]>,
        names: &russh::Names,
        _session: &mut Session,
    ) -> Result<(), HandlerError> {
        if self.state.greeting.version().is_some()
            && self.state.facts().iter().all(|(name, _)| name != "cipher")
        {
            self.state
                .add_fact("software", self.state.greeting.version().unwrap_or_default());
            self.state.add_fact("key exchange", names.kex.as_ref().to_owned());
            self.state.add_fact("cipher", names.cipher.as_ref().to_owned());
        }
        Ok(())
    }

    async fn auth_banner(&mut self, banner: &str, _session: &mut Session) -> Result<(), HandlerError> {
        let mut notes = self.state.notes();
        let room = BANNER_LIMIT.saturating_sub(notes.banner.len());
        notes.banner.extend(
            banner
                .chars()
                .filter(|c| !c.is_control() || *c == '\n')
                .take(room),
        );
        Ok(())
    }

    async fn channel_open_failure(
        &mut self,
        _channel: ChannelId,
        _reason: ChannelOpenFailure,
        description: &str,
        _language: &str,
        _session: &mut Session,
    ) -> Result<(), HandlerError> {
        let plain = description
            .chars()
            .filter(|c| !c.is_control())
            .take(BANNER_LIMIT)
            .collect();
        self.state.notes().open_failure = Some(plain);
        Ok(())
    }

    async fn disconnected(&mut self, reason: DisconnectReason<HandlerError>) -> Result<(), HandlerError> {
        match reason {
            DisconnectReason::ReceivedDisconnect(info) => {
                let words: String = info.message.chars().filter(|c| !c.is_control()).collect();
                self.state.notes().farewell = Some(words.clone());
                self.state
                    .note_closed(&format!("the server ended the connection: {words}"));
                Ok(())
            }
            DisconnectReason::Error(error) => {
                self.state.note_closed(&error.to_string());
                Err(error)
            }
        }
    }

    // A server has no business to open channels to us; the library's own answer would be to accept them.

    async fn server_channel_open_forwarded_tcpip(
        &mut self,
        _channel: Channel<Msg>,
        _connected_address: &str,
        _connected_port: u32,
        _originator_address: &str,
        _originator_port: u32,
        reply: ChannelOpenHandle,
        _session: &mut Session,
    ) -> Result<(), HandlerError> {
        reject(reply).await
    }

    async fn server_channel_open_forwarded_streamlocal(
        &mut self,
        _channel: Channel<Msg>,
        _socket_path: &str,
        reply: ChannelOpenHandle,
        _session: &mut Session,
    ) -> Result<(), HandlerError> {
        reject(reply).await
    }

    async fn server_channel_open_agent_forward(
        &mut self,
        _channel: Channel<Msg>,
        reply: ChannelOpenHandle,
        _session: &mut Session,
    ) -> Result<(), HandlerError> {
        reject(reply).await
    }

    async fn server_channel_open_session(
        &mut self,
        _channel: Channel<Msg>,
        reply: ChannelOpenHandle,
        _session: &mut Session,
    ) -> Result<(), HandlerError> {
        reject(reply).await
    }

    async fn server_channel_open_direct_tcpip(
        &mut self,
        _channel: Channel<Msg>,
        _host: &str,
        _port: u32,
        _originator_address: &str,
        _originator_port: u32,
        reply: ChannelOpenHandle,
        _session: &mut Session,
    ) -> Result<(), HandlerError> {
        reject(reply).await
    }

    async fn server_channel_open_direct_streamlocal(
        &mut self,
        _channel: Channel<Msg>,
        _socket_path: &str,
        reply: ChannelOpenHandle,
        _session: &mut Session,
    ) -> Result<(), HandlerError> {
        reject(reply).await
    }

    async fn server_channel_open_x11(
        &mut self,
        _channel: Channel<Msg>,
        _originator_address: &str,
        _originator_port: u32,
        reply: ChannelOpenHandle,
        _session: &mut Session,
    ) -> Result<(), HandlerError> {
        reject(reply).await
    }
}

async fn reject(reply: ChannelOpenHandle) -> Result<(), HandlerError> {
    reply.reject(ChannelOpenFailure::AdministrativelyProhibited).await;
    Ok(())
}
