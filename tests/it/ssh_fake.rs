//! The SSH transport against a server that misbehaves on demand.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use russh::keys::{PrivateKey, PublicKey, decode_secret_key};
use russh::server::{Auth, ChannelOpenHandle, Msg, Session, VerifiedPublicKey};
use russh::{Channel, ChannelId, ChannelOpenFailure, MethodKind, MethodSet};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use vibesys::ssh::client::{Settings, SshTransport};
use vibesys::ssh::error::{DialError, DialReason, Phase};
use vibesys::ssh::transport::{ChannelNotOpened, OpenError, RemoteExit, RunLimits, Transport, run};

use crate::ssh_bed::{TestHostKeys, connect, hop};

/// What the server does wrong.
#[derive(Debug, Clone, Default)]
struct Faults {
    /// Refuse so many sessions before one is allowed.
    refuse_sessions: Arc<AtomicUsize>,
    /// Never answer a login.
    silent_login: bool,
    /// Accept the key but want a password, too.
    second_factor: bool,
    /// Never answer a request for a session.
    silent_sessions: bool,
    /// What became of channels that the server opened.
    opened: Option<mpsc::UnboundedSender<bool>>,
}

struct Handler {
    faults: Faults,
    bytes: usize,
}

fn key(dir: &tempfile::TempDir, name: &str) -> PrivateKey {
    let path = dir.path().join(name);
    let made = std::process::Command::new("ssh-keygen")
        .args(["-q", "-t", "ed25519", "-N", "", "-f"])
        .arg(&path)
        .status()
        .unwrap();
    assert!(made.success());
    decode_secret_key(&std::fs::read_to_string(path).unwrap(), None).unwrap()
}

/// A server, and where it is.
struct Fake {
    port: u16,
    host_key: PublicKey,
    dir: tempfile::TempDir,
}

impl Fake {
    async fn start(faults: Faults, window: u32, packet: u32) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let host = key(&dir, "host");
        let host_key = host.public_key().clone();
        key(&dir, "id");
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let config = Arc::new(russh::server::Config {
            keys: vec![host],
            window_size: window,
            maximum_packet_size: packet,
            auth_rejection_time: Duration::ZERO,
            ..russh::server::Config::default()
        });
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let handler = Handler {
                    faults: faults.clone(),
                    bytes: 0,
                };
                let session = russh::server::run_stream(Arc::clone(&config), stream, handler);
                tokio::spawn(async move {
                    if let Ok(session) = session.await {
                        let _ended = session.await;
                    }
                });
            }
        });
        Self { port, host_key, dir }
    }

    async fn connect(&self, settings: &Settings) -> Result<SshTransport, DialError> {
        let hop = hop(self.port, "someone", vec![self.dir.path().join("id")]);
        let keys = TestHostKeys {
            keys: vec![self.host_key.clone()],
            ..TestHostKeys::default()
        };
        connect(vec![hop], keys, settings).await
    }
}

fn quick() -> Settings {
    let short = Duration::from_millis(400);
    Settings {
        connect_timeout: short,
        handshake_timeout: short,
        auth_timeout: short,
        open_timeout: short,
        slot_wait: short,
        ..Settings::default()
    }
}

impl russh::server::Handler for Handler {
    type Error = russh::Error;

    async fn auth_publickey(
        &mut self,
        _user: &str,
        _key: VerifiedPublicKey<'_>,
    ) -> Result<Auth, Self::Error> {
        if self.faults.silent_login {
            std::future::pending::<()>().await;
        }
        if self.faults.second_factor {
            let methods = MethodSet::from(&[MethodKind::Password][..]);
            return Ok(Auth::Reject {
                proceed_with_methods: Some(methods),
                partial_success: true,
            });
        }
        Ok(Auth::Accept)
    }

    async fn channel_open_session(
        &mut self,
        _channel: Channel<Msg>,
        reply: ChannelOpenHandle,
        _session: &mut Session,
    ) -> Result<(), Self::Error> {
        if self.faults.silent_sessions {
            std::mem::forget(reply);
            return Ok(());
        }
        let refused = self
            .faults
            .refuse_sessions
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        if refused.is_ok() {
            reply.reject(ChannelOpenFailure::ResourceShortage).await;
        } else {
            reply.accept().await;
        }
        Ok(())
    }

    async fn exec_request(
        &mut self,
        channel: ChannelId,
        command: &[u8],
        session: &mut Session,
    ) -> Result<(), Self::Error> {
        match command {
            b"refuse" => return session.channel_failure(channel),
            b"die" => return Err(russh::Error::Disconnect),
            _ => session.channel_success(channel)?,
        }
        match command {
            b"code first" => {
                session.exit_status_request(channel, 3)?;
                session.data(channel, Bytes::from_static(b"late words"))?;
                session.eof(channel)?;
                session.close(channel)?;
            }
            b"code last" => {
                session.data(channel, Bytes::from_static(b"words"))?;
                session.eof(channel)?;
                session.exit_status_request(channel, 4)?;
                session.close(channel)?;
            }
            b"nothing" => session.close(channel)?,
            b"farewell" => {
                session.disconnect(russh::Disconnect::ByApplication, "maintenance begins", "")?;
            }
            b"intrude" => {
                let handle = session.handle();
                let opened = self.faults.opened.clone().unwrap();
                tokio::spawn(async move {
                    let agent = handle.channel_open_agent().await.is_ok();
                    let forwarded = handle.channel_open_forwarded_tcpip("a", 1, "b", 2).await.is_ok();
                    opened.send(agent || forwarded).unwrap();
                });
            }
            _ => {}
        }
        Ok(())
    }

    async fn data(
        &mut self,
        _channel: ChannelId,
        data: &[u8],
        _session: &mut Session,
    ) -> Result<(), Self::Error> {
        self.bytes += data.len();
        Ok(())
    }

    async fn channel_eof(&mut self, channel: ChannelId, session: &mut Session) -> Result<(), Self::Error> {
        session.data(channel, Bytes::from(self.bytes.to_string()))?;
        session.exit_status_request(channel, 0)?;
        session.eof(channel)?;
        session.close(channel)
    }
}

async fn said(transport: &SshTransport, command: &str) -> (Vec<u8>, RemoteExit) {
    let limits = RunLimits {
        deadline: Duration::from_secs(30),
        ..RunLimits::default()
    };
    let output = run(transport, command, Bytes::new(), limits).await.unwrap();
    (output.stdout, output.exit)
}

#[tokio::test]
async fn the_code_may_come_before_or_after_the_end_of_the_output_or_not_at_all() {
    let fake = Fake::start(Faults::default(), 2 << 20, 32768).await;
    let transport = fake.connect(&Settings::default()).await.unwrap();
    assert_eq!(
        said(&transport, "code first").await,
        (b"late words".to_vec(), RemoteExit::Code(3))
    );
    assert_eq!(
        said(&transport, "code last").await,
        (b"words".to_vec(), RemoteExit::Code(4))
    );
    assert!(matches!(
        said(&transport, "nothing").await.1,
        RemoteExit::Lost { .. }
    ));
}

#[tokio::test]
async fn a_tiny_window_slows_an_upload_and_loses_nothing() {
    let fake = Fake::start(Faults::default(), 700, 300).await;
    let transport = fake.connect(&Settings::default()).await.unwrap();
    let input = Bytes::from(vec![1; 300_001]);
    let output = run(&transport, "count", input, RunLimits::default())
        .await
        .unwrap();
    assert_eq!(
        (output.stdout, output.exit),
        (b"300001".to_vec(), RemoteExit::Code(0))
    );
}

#[tokio::test]
async fn what_never_ran_is_told_apart_from_what_may_have_run() {
    let faults = Faults::default();
    let refuse = Arc::clone(&faults.refuse_sessions);
    let fake = Fake::start(faults, 2 << 20, 32768).await;
    let transport = fake.connect(&Settings::default()).await.unwrap();

    refuse.store(2, Ordering::SeqCst);
    assert_eq!(
        said(&transport, "code last").await.1,
        RemoteExit::Code(4),
        "two refusals are repeated"
    );
    assert_eq!(
        transport.session_limit(),
        8,
        "a shortage while nothing is open is not our doing"
    );

    refuse.store(usize::MAX, Ordering::SeqCst);
    let error = transport.open("code last").await.unwrap_err();
    assert!(
        matches!(
            error,
            OpenError::NotOpened(ChannelNotOpened::Refused { open: 0, .. })
        ),
        "{error}"
    );
    refuse.store(0, Ordering::SeqCst);

    let error = transport.open("refuse").await.unwrap_err();
    assert!(
        matches!(error, OpenError::NotOpened(ChannelNotOpened::ExecRefused)),
        "{error}"
    );

    let error = transport.open("die").await.unwrap_err();
    assert!(matches!(error, OpenError::Lost { .. }), "{error}");
    let error = transport.open("code last").await.unwrap_err();
    assert!(
        matches!(error, OpenError::NotOpened(ChannelNotOpened::Closed { .. })),
        "{error}"
    );
}

#[tokio::test]
async fn a_farewell_is_the_reason_of_everything_that_ends_with_it() {
    let fake = Fake::start(Faults::default(), 2 << 20, 32768).await;
    let transport = fake.connect(&Settings::default()).await.unwrap();
    let (_, exit) = said(&transport, "farewell").await;
    assert!(exit.to_string().contains("maintenance begins"), "{exit}");
    assert!(transport.closed().await.contains("maintenance begins"));
}

#[tokio::test]
async fn a_server_opens_no_channels_to_us() {
    let (sender, mut opened) = mpsc::unbounded_channel();
    let fake = Fake::start(
        Faults {
            opened: Some(sender),
            ..Faults::default()
        },
        2 << 20,
        32768,
    )
    .await;
    let transport = fake.connect(&Settings::default()).await.unwrap();
    let _channel = transport.open("intrude").await.unwrap();
    let accepted = tokio::time::timeout(Duration::from_secs(5), opened.recv())
        .await
        .unwrap();
    assert_eq!(accepted, Some(false));
}

#[tokio::test]
async fn every_phase_has_its_time_limit() {
    // Accepts and says nothing.
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut fake = Fake::start(
        Faults {
            silent_login: true,
            ..Faults::default()
        },
        2 << 20,
        32768,
    )
    .await;
    let begun = Instant::now();
    let error = fake.connect(&quick()).await.unwrap_err();
    assert_eq!(error.phase, Phase::Authenticate);
    assert!(matches!(&*error.reason, DialReason::Timeout(_)), "{error}");
    fake.port = silent.local_addr().unwrap().port();
    let error = fake.connect(&quick()).await.unwrap_err();
    assert_eq!(error.phase, Phase::Handshake);
    assert!(matches!(&*error.reason, DialReason::Timeout(_)), "{error}");
    assert!(begun.elapsed() < Duration::from_secs(20));
    assert!(
        error.to_string().contains("key exchange: no answer in 0.4 s"),
        "{error}"
    );

    let fake = Fake::start(
        Faults {
            silent_sessions: true,
            ..Faults::default()
        },
        2 << 20,
        32768,
    )
    .await;
    let transport = fake.connect(&quick()).await.unwrap();
    let error = transport.open("count").await.unwrap_err();
    assert!(
        matches!(error, OpenError::NotOpened(ChannelNotOpened::Timeout(_))),
        "{error}"
    );
}

#[tokio::test]
async fn a_second_factor_is_named() {
    let fake = Fake::start(
        Faults {
            second_factor: true,
            ..Faults::default()
        },
        2 << 20,
        32768,
    )
    .await;
    let error = fake.connect(&Settings::default()).await.unwrap_err();
    let DialReason::AuthRefused(refusal) = &*error.reason else {
        panic!("{error}")
    };
    assert!(refusal.wants_more);
    assert_eq!(refusal.methods, ["password"]);
    assert!(error.hint().contains("second factor"), "{}", error.hint());
}
