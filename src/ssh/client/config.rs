//! How a connection behaves: limits, intervals and algorithms.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use russh::client::Config;
use russh::{Preferred, SshId, cipher, compression};

use crate::ssh::host_key::{Known, wanted};
use crate::ssh::route::Hop;
use crate::ssh::transport::{READ_BUDGET, READ_GRACE};

/// What the SSH configuration says nothing about, or only sometimes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Per attempt to reach a hop, where ConnectTimeout is not set.
    pub connect_timeout: Duration,
    /// For versions, key exchange and host key of a hop; hops behind others are slower to begin.
    pub handshake_timeout: Duration,
    /// For the whole login at a hop; an agent may have to wait for a touch.
    pub auth_timeout: Duration,
    /// Silence after which a hop is asked whether it lives, where ServerAliveInterval is not set.
    pub alive_interval: Duration,
    /// Unanswered questions after which it is taken for dead, where ServerAliveInterval is not set.
    pub alive_count: u32,
    /// How long a write may be stuck before the connection is taken for dead: the questions above cannot be asked
    /// while it is. At least a little more than the time that the questions take.
    pub stuck_timeout: Duration,
    /// Sessions at a time; lowered when the server refuses.
    pub sessions: usize,
    /// How long to wait for one of them to become free.
    pub slot_wait: Duration,
    /// For each answer of the server when a session is opened.
    pub open_timeout: Duration,
    /// Credentials offered to a hop; servers close the connection after a few (MaxAuthTries, 6 by default).
    pub auth_tries: usize,
    /// Unread output that one command may have in memory.
    pub read_budget: usize,
    /// How long its reader may stand still then.
    pub read_grace: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(15),
            handshake_timeout: Duration::from_secs(30),
            auth_timeout: Duration::from_secs(60),
            alive_interval: Duration::from_secs(15),
            alive_count: 3,
            stuck_timeout: Duration::from_secs(60),
            sessions: 8,
            slot_wait: Duration::from_secs(30),
            open_timeout: Duration::from_secs(30),
            auth_tries: 5,
            read_budget: READ_BUDGET,
            read_grace: READ_GRACE,
        }
    }
}

/// What a server may send on one channel before it has to wait for us. The library's 2 MiB halve a download at 100 ms.
const WINDOW: u32 = 16 << 20;
/// Messages of one channel that the library holds until the task takes them that moves them on; that task never waits
/// for anyone but a dead or slow reader.
const CHANNEL_BUFFER: usize = 1024;

/// GCM with hardware AES is about twice as fast as the library's first choice.
const CIPHERS: &[cipher::Name] = &[
    cipher::AES_128_GCM,
    cipher::AES_256_GCM,
    cipher::CHACHA20_POLY1305,
];

/// What goes in is compressed already.
const COMPRESSION: &[compression::Name] = &[compression::NONE];

pub(super) fn config(hop: &Hop, known: &Known, settings: &Settings) -> Arc<Config> {
    let wanted = wanted(hop.host_key_algorithms.as_deref(), known);
    let (interval, count) = match hop.server_alive_interval {
        Some(interval) => (interval, hop.server_alive_count_max),
        None => (settings.alive_interval, settings.alive_count),
    };
    let alive = interval * count.saturating_add(2);
    Arc::new(Config {
        client_id: SshId::Standard(Cow::Borrowed(concat!(
            "SSH-2.0-vibesys_",
            env!("CARGO_PKG_VERSION")
        ))),
        window_size: WINDOW,
        channel_buffer_size: CHANNEL_BUFFER,
        preferred: Preferred {
            key: wanted.keys,
            host_key_certificates: wanted.certificates,
            cipher: Cow::Borrowed(CIPHERS),
            compression: Cow::Borrowed(COMPRESSION),
            ..Preferred::DEFAULT
        },
        inactivity_timeout: Some(settings.stuck_timeout.max(alive)),
        keepalive_interval: Some(interval),
        keepalive_max: usize::try_from(count).unwrap_or(usize::MAX),
        nodelay: true,
        ..Config::default()
    })
}
