//! Who we are: what may be offered to a hop, and who signs for it.

mod gather;
mod problems;
mod sign;

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;

use super::route::Hop;
use super::russh_keys::{Algorithm, Certificate, HashAlg, PrivateKey, PublicKey};

pub use gather::FileAndAgent;
pub use problems::{certificate_limits, certificate_problems, permits_forwarding};
pub(super) use sign::{OfferSigner, SignError};

/// Finds what may be offered to a hop. Never asks a person.
#[async_trait]
pub trait Credentials: fmt::Debug + Send + Sync {
    /// What to offer, in order.
    async fn offers(&self, hop: &Hop) -> Offers;
}

/// What may be offered to a hop.
#[derive(Debug, Clone, Default)]
pub struct Offers {
    /// In the order in which they are to be offered.
    pub offers: Vec<Offer>,
    /// What was looked at and does not serve, and why, in words.
    pub remarks: Vec<String>,
}

/// One credential.
#[derive(Debug, Clone)]
pub struct Offer {
    /// How messages name it: its kind and its file, never its content.
    pub label: String,
    /// What the server is shown.
    pub public: Public,
    /// Who signs.
    pub held: Held,
    /// What it says itself against its use, in words (expired, not for this user).
    pub problems: Vec<String>,
    /// What it is limited to, in words; a limit may be why a server refuses it, and need not be.
    pub limits: Vec<String>,
}

/// What the server is shown.
#[derive(Debug, Clone)]
pub enum Public {
    /// A plain key.
    Key(PublicKey),
    /// A certificate.
    Certificate(Box<Certificate>),
}

impl Public {
    /// The hash of the signature: SHA-512 for RSA, where it is a choice. Every OpenSSH since 7.2 accepts it, and to
    /// ask the server first would cost a wait for its extension message.
    pub(super) fn hash(&self) -> Option<HashAlg> {
        let algorithm = match self {
            Self::Key(key) => key.algorithm(),
            Self::Certificate(certificate) => certificate.algorithm(),
        };
        matches!(algorithm, Algorithm::Rsa { .. }).then_some(HashAlg::Sha512)
    }
}

/// Where the private key is.
#[derive(Clone)]
pub enum Held {
    /// Read from a file.
    File(Arc<PrivateKey>),
    /// In the agent, under its plain public key.
    AgentKey,
    /// In the agent, together with this certificate.
    AgentCertificate,
}

impl fmt::Debug for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::File(_) => "File",
            Self::AgentKey => "AgentKey",
            Self::AgentCertificate => "AgentCertificate",
        })
    }
}
