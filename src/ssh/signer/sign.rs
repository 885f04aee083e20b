//! Signing the login request, by a key from a file or by the agent: one path for keys and certificates.
//!
//! The library's own way of sending a certificate with a key file names `ssh-rsa-cert-v01@openssh.com`, a SHA-1
//! signature that OpenSSH refuses since 8.8, and its agent client asks for the certificate where an agent knows only
//! the plain key. A signer of our own has neither problem.

use std::path::Path;
use std::sync::Arc;

use russh::keys::agent::client::AgentClient;
use russh::keys::agent::{AgentIdentity, AgentSessionBinding};
use russh::keys::signature::Signer as _;
use russh::keys::ssh_encoding::Encode;
use russh::keys::{HashAlg, PrivateKey, ssh_encoding, ssh_key};
use tokio::net::UnixStream;

use super::Held;

/// Signs one login request. The error must be convertible from the library's own.
#[derive(Debug, thiserror::Error)]
pub(in crate::ssh) enum SignError {
    /// The connection ended meanwhile.
    #[error("the connection ended")]
    Gone(#[from] russh::SendError),
    /// The agent does not sign.
    #[error("the agent does not sign: {0}")]
    Agent(#[from] russh::keys::Error),
    /// The key does not sign.
    #[error("the key does not sign: {0}")]
    Key(#[from] ssh_key::Error),
    /// The signature cannot be written.
    #[error("the signature cannot be written: {0}")]
    Encoding(#[from] ssh_encoding::Error),
}

pub(in crate::ssh) enum OfferSigner {
    File(Arc<PrivateKey>),
    Agent {
        client: AgentClient<UnixStream>,
        plain: bool,
    },
}

impl OfferSigner {
    /// A signer for a credential. An agent connection is bound to the SSH session, which is what lets an agent use keys
    /// that are restricted to some destinations.
    pub(in crate::ssh) async fn new(
        held: &Held,
        agent: Option<&Path>,
        binding: Option<&AgentSessionBinding>,
    ) -> Result<Self, SignError> {
        let plain = match held {
            Held::File(key) => return Ok(Self::File(Arc::clone(key))),
            Held::AgentKey => true,
            Held::AgentCertificate => false,
        };
        let socket = agent.ok_or(russh::keys::Error::BadAuthSock)?;
        let mut client = AgentClient::connect_uds(socket).await?;
        if let Some(binding) = binding {
            // An agent that knows no bindings has no restricted keys either.
            let _unbound = client.bind_session(binding, false).await;
        }
        Ok(Self::Agent { client, plain })
    }
}

impl russh::Signer for OfferSigner {
    type Error = SignError;

    async fn auth_sign(
        &mut self,
        identity: &AgentIdentity,
        hash: Option<HashAlg>,
        to_sign: Vec<u8>,
    ) -> Result<Vec<u8>, SignError> {
        match self {
            Self::File(key) => append_signature(key, to_sign),
            Self::Agent { client, plain: false } => Ok(client.sign_request(identity, hash, to_sign).await?),
            Self::Agent { client, plain: true } => {
                let plain = AgentIdentity::from(identity.public_key().into_owned());
                Ok(client.sign_request(&plain, hash, to_sign).await?)
            }
        }
    }
}

/// The request with its signature as an SSH string behind it. An RSA key signs with SHA-512.
fn append_signature(key: &PrivateKey, mut request: Vec<u8>) -> Result<Vec<u8>, SignError> {
    let signature = key.try_sign(&request).map_err(ssh_key::Error::from)?;
    let mut blob = Vec::new();
    signature.encode(&mut blob)?;
    blob.encode(&mut request)?;
    Ok(request)
}
