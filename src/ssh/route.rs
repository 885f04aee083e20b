//! Where the connection goes: the target and the jump hosts before it, with every setting resolved.

use std::path::PathBuf;
use std::time::Duration;

/// The hops of one connection in the order in which they are dialled; the last one is the target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    /// At least one hop.
    pub hops: Vec<Hop>,
    /// Options in the configuration that matter to a connection and that we do not honour, in words, with their place.
    pub remarks: Vec<String>,
}

/// One host on the way, resolved as ssh_config(5) says: first obtained value wins, tokens expanded, no `~` left.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hop {
    /// The name that the user or a ProxyJump gave.
    pub alias: String,
    /// HostName: what is dialled.
    pub host: String,
    /// Port.
    pub port: u16,
    /// User.
    pub user: String,
    /// HostKeyAlias: the name to look up in known_hosts instead of `host`.
    pub host_key_alias: Option<String>,
    /// IdentityFile, in order; configured ones, or OpenSSH's defaults if none is.
    pub identity_files: Vec<PathBuf>,
    /// Whether `identity_files` was configured (a missing configured file is worth a word, a missing default is not).
    pub identities_configured: bool,
    /// CertificateFile, in order; `<identity>-cert.pub` is tried besides these, as ssh does.
    pub certificate_files: Vec<PathBuf>,
    /// IdentityAgent or SSH_AUTH_SOCK; `None` means no agent.
    pub agent_socket: Option<PathBuf>,
    /// IdentitiesOnly.
    pub identities_only: bool,
    /// UserKnownHostsFile then GlobalKnownHostsFile.
    pub known_hosts_files: Vec<PathBuf>,
    /// StrictHostKeyChecking.
    pub strict_host_keys: StrictHostKeys,
    /// HostKeyAlgorithms, if configured, as a list of names.
    pub host_key_algorithms: Option<Vec<String>>,
    /// CASignatureAlgorithms, if configured.
    pub ca_signature_algorithms: Option<Vec<String>>,
    /// ConnectTimeout.
    pub connect_timeout: Option<Duration>,
    /// ConnectionAttempts, at least 1.
    pub connection_attempts: u32,
    /// ServerAliveInterval, if not 0.
    pub server_alive_interval: Option<Duration>,
    /// ServerAliveCountMax.
    pub server_alive_count_max: u32,
    /// AddressFamily: `any`, `inet` or `inet6`.
    pub address_family: AddressFamily,
    /// BindAddress.
    pub bind_address: Option<String>,
    /// ProxyCommand with tokens expanded; only ever on the first hop.
    pub proxy_command: Option<String>,
}

/// StrictHostKeyChecking of ssh_config(5).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum StrictHostKeys {
    /// `yes`, and what `ask` becomes where nobody can be asked: only known keys.
    #[default]
    Yes,
    /// `accept-new`: an unknown key is accepted and written down, a changed one is refused.
    AcceptNew,
    /// `no` or `off`.
    No,
}

/// AddressFamily of ssh_config(5).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AddressFamily {
    /// Both.
    #[default]
    Any,
    /// IPv4 only.
    Inet,
    /// IPv6 only.
    Inet6,
}
