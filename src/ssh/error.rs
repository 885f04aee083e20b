//! Why there is no connection, in words that say what to do.

use std::fmt;
use std::time::Duration;

use super::host_key::{HostKeyProblem, HostKeyProblemKind};
use super::route::Hop;

/// No connection: at which hop, in which phase, and why.
#[derive(Debug, thiserror::Error)]
#[error("{hop}: {phase}: {reason}")]
pub struct DialError {
    /// The hop that failed.
    pub hop: HopName,
    /// How far it came.
    pub phase: Phase,
    /// Why.
    pub reason: Box<DialReason>,
}

/// A hop as messages name it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HopName {
    /// The name the user knows it by.
    pub alias: String,
    /// What was dialled.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// The user there.
    pub user: String,
}

impl From<&Hop> for HopName {
    fn from(hop: &Hop) -> Self {
        Self {
            alias: hop.alias.clone(),
            host: hop.host.clone(),
            port: hop.port,
            user: hop.user.clone(),
        }
    }
}

impl fmt::Display for HopName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.alias != self.host {
            write!(f, "{} (", self.alias)?;
        }
        write!(f, "{}@{}:{}", self.user, self.host, self.port)?;
        if self.alias != self.host {
            f.write_str(")")?;
        }
        Ok(())
    }
}

/// The phases of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Reaching it by TCP or a ProxyCommand.
    Connect,
    /// Being passed on by the jump host before it.
    Forward,
    /// Versions, key exchange and the host key.
    Handshake,
    /// Proving who we are.
    Authenticate,
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Connect => "connecting",
            Self::Forward => "passing through the jump host",
            Self::Handshake => "key exchange",
            Self::Authenticate => "logging in",
        })
    }
}

/// Why a hop failed.
#[derive(Debug, thiserror::Error)]
pub enum DialReason {
    /// The route has no hops.
    #[error("the route is empty")]
    EmptyRoute,
    /// The name has no address.
    #[error("{0}")]
    Resolve(String),
    /// Nothing listens there.
    #[error("connection refused ({0})")]
    Refused(String),
    /// There is no way there.
    #[error("unreachable ({0})")]
    Unreachable(String),
    /// No answer.
    #[error("no answer in {:.1} s", .0.as_secs_f64())]
    Timeout(Duration),
    /// The ProxyCommand could not be started.
    #[error("the ProxyCommand cannot be started: {0}")]
    Proxy(std::io::Error),
    /// The jump host would not, or could not, pass us on.
    #[error("{by} does not pass us on: {description}{}", if *by_certificate { " (our certificate does not permit port forwarding)" } else { "" })]
    Jump {
        /// The jump host.
        by: HopName,
        /// Whether its rules forbid it; otherwise it tried and failed.
        forbidden: bool,
        /// Whether the certificate we logged in by lacks `permit-port-forwarding`.
        by_certificate: bool,
        /// Its words.
        description: String,
    },
    /// The host is not trusted.
    #[error("{0}")]
    HostKey(HostKeyProblem),
    /// The server accepts none of what we offered.
    #[error("{0}")]
    AuthRefused(AuthRefusal),
    /// There is nothing to offer.
    #[error("there is no key or certificate to offer{}", list(.remarks))]
    NoIdentity {
        /// What was looked at and why it does not serve.
        remarks: Vec<String>,
    },
    /// The other side ended the connection.
    #[error("the connection was closed: {detail}{}", words(.said.as_ref()))]
    Closed {
        /// How it ended.
        detail: String,
        /// What the server said in plain text, if anything.
        said: Option<String>,
    },
    /// The two sides do not understand each other.
    #[error("{0}")]
    Protocol(String),
}

/// What happened at the login.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AuthRefusal {
    /// What the offered credentials themselves say against their use; the server never says why it refuses one.
    pub problems: Vec<String>,
    /// What was offered, and what became of it.
    pub offered: Vec<String>,
    /// What was not offered, and why.
    pub remarks: Vec<String>,
    /// The methods by which the server would go on.
    pub methods: Vec<String>,
    /// Whether the server accepted a credential and wants another one besides.
    pub wants_more: bool,
    /// What the server said when it closed the connection, or its banner.
    pub said: Option<String>,
}

impl fmt::Display for AuthRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for problem in &self.problems {
            write!(f, "{problem}; ")?;
        }
        if self.wants_more {
            write!(
                f,
                "the server accepted a credential but wants another one besides"
            )?;
        } else {
            write!(f, "the server refused every credential")?;
        }
        write!(f, " (offered: {}", self.offered.join(", "))?;
        if !self.methods.is_empty() {
            write!(f, "; it accepts: {}", self.methods.join(", "))?;
        }
        if !self.remarks.is_empty() {
            write!(f, "; not offered: {}", self.remarks.join(", "))?;
        }
        f.write_str(")")?;
        f.write_str(&words(self.said.as_ref()))
    }
}

fn list(remarks: &[String]) -> String {
    if remarks.is_empty() {
        String::new()
    } else {
        format!(": {}", remarks.join("; "))
    }
}

fn words(said: Option<&String>) -> String {
    said.map(|text| format!("; the server says: \"{text}\""))
        .unwrap_or_default()
}

impl DialError {
    pub(super) fn new(hop: &Hop, phase: Phase, reason: DialReason) -> Self {
        Self {
            hop: hop.into(),
            phase,
            reason: Box::new(reason),
        }
    }

    /// One sentence that says what to do.
    pub fn hint(&self) -> String {
        let hop = &self.hop;
        match &*self.reason {
            DialReason::EmptyRoute => "Name a host to connect to.".to_owned(),
            DialReason::Resolve(_) => {
                format!("Check HostName of `{}` in the SSH configuration, and the network or VPN.", hop.alias)
            }
            DialReason::Refused(_) => {
                format!("Check that port {} is right and that the host's SSH service is up.", hop.port)
            }
            DialReason::Unreachable(_) => {
                "Check the network or VPN; if the host is only reachable from another one, set ProxyJump.".to_owned()
            }
            DialReason::Timeout(_) => match self.phase {
                Phase::Connect | Phase::Forward => {
                    "Check the network, a firewall, and whether the host is up; ConnectTimeout sets the limit."
                        .to_owned()
                }
                Phase::Handshake | Phase::Authenticate => {
                    "The host accepts connections but does not answer: it is overloaded or in maintenance; try later."
                        .to_owned()
                }
            },
            DialReason::Proxy(_) => {
                format!("Run the ProxyCommand of `{}` by hand to see what is wrong with it.", hop.alias)
            }
            DialReason::Jump { by_certificate: true, .. } => {
                "Get a certificate with the permit-port-forwarding extension: a jump host needs it.".to_owned()
            }
            DialReason::Jump { by, forbidden: true, .. } => {
                format!("{} does not allow connections to {}:{}; ask its operators.", by.alias, hop.host, hop.port)
            }
            DialReason::Jump { by, forbidden: false, .. } => format!(
                "Check that {}:{} is right as seen from {}, and that the host is up.",
                hop.host, hop.port, by.alias
            ),
            DialReason::HostKey(problem) => self.host_key_hint(problem.kind),
            DialReason::AuthRefused(refusal) => auth_hint(refusal, hop),
            DialReason::NoIdentity { .. } => format!(
                "Set IdentityFile and CertificateFile of `{}`, or load the key into the agent with ssh-add.",
                hop.alias
            ),
            DialReason::Closed { said: Some(text), .. } if text.contains("MaxStartups") => {
                "The host has too many connections that are just beginning; wait a little and try again.".to_owned()
            }
            DialReason::Closed { .. } => {
                "The host, or something before it, closed the connection: after refused logins it may shut out an \
                 address for some minutes; wait, then try `ssh -v` by hand."
                    .to_owned()
            }
            DialReason::Protocol(_) => {
                format!("Compare with `ssh -v {}`: the host may not be an SSH server, or a very old one.", hop.alias)
            }
        }
    }

    fn host_key_hint(&self, kind: HostKeyProblemKind) -> String {
        let hop = &self.hop;
        match kind {
            HostKeyProblemKind::Unknown => format!(
                "Get the host key of {0} from its operators and add it to known_hosts, or connect once with `ssh {0}` \
                 and compare the fingerprint.",
                hop.alias
            ),
            HostKeyProblemKind::Changed => format!(
                "Ask the operators of {} whether the key was changed; only if they confirm it, replace the old entry.",
                hop.alias
            ),
            HostKeyProblemKind::Revoked => {
                format!(
                    "Do not connect: ask the operators of {} for the new key.",
                    hop.alias
                )
            }
            HostKeyProblemKind::Certificate => format!(
                "Check HostName and HostKeyAlias of `{}` against the certificate, and the @cert-authority lines in \
                 known_hosts.",
                hop.alias
            ),
            HostKeyProblemKind::Files => "Make the known_hosts files readable and well-formed.".to_owned(),
        }
    }
}

fn auth_hint(refusal: &AuthRefusal, hop: &HopName) -> String {
    if !refusal.problems.is_empty() {
        return format!(
            "Get a new certificate that names `{}` (or set User to a name that this one has), then try again.",
            hop.user
        );
    }
    if refusal.wants_more {
        return format!(
            "{} wants a second factor, which cannot be answered here; ask for a certificate that needs none.",
            hop.alias
        );
    }
    if !refusal.methods.is_empty() && !refusal.methods.iter().any(|method| method == "publickey") {
        return format!(
            "{} accepts no keys at all, only: {}.",
            hop.alias,
            refusal.methods.join(", ")
        );
    }
    format!(
        "Check that User `{}` is right and that the site accepts this key or certificate (`ssh -v {}`).",
        hop.user, hop.alias
    )
}
