//! Finding the credentials of a hop in files and in the agent.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use russh::keys::agent::AgentIdentity;
use russh::keys::agent::client::AgentClient;
use russh::keys::ssh_key::public::KeyData;
use russh::keys::{Certificate, PrivateKey, PublicKey, decode_secret_key};

use super::problems::{certificate_limits, certificate_problems};
use super::{Credentials, Held, Offer, Offers, Public};
use crate::clock::Clock;
use crate::ssh::route::Hop;

/// How long the agent may take to list what it has.
const AGENT_LIMIT: Duration = Duration::from_secs(5);

/// The credentials that the configuration of a hop names: its files, and what its agent holds.
#[derive(Debug, Clone)]
pub struct FileAndAgent {
    clock: Arc<dyn Clock>,
}

impl FileAndAgent {
    /// Judges the validity of certificates by `clock`.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock }
    }
}

#[async_trait]
impl Credentials for FileAndAgent {
    async fn offers(&self, hop: &Hop) -> Offers {
        let identities = hop.identity_files.clone();
        let certificates = hop.certificate_files.clone();
        let configured = hop.identities_configured;
        let (files, agent) = tokio::join!(
            tokio::task::spawn_blocking(move || Files::read(&identities, &certificates, configured)),
            list_agent(hop.agent_socket.as_deref()),
        );
        let files = files.unwrap_or_default();
        let mut remarks = files.remarks.clone();
        let agent = agent.unwrap_or_else(|remark| {
            remarks.push(remark);
            Vec::new()
        });
        let mut offers = arrange(&files, &agent, hop.identities_only, &mut remarks);
        for offer in &mut offers {
            if let Public::Certificate(certificate) = &offer.public {
                offer.limits = certificate_limits(certificate);
                offer.problems = certificate_problems(certificate, &hop.user, self.clock.now());
            }
        }
        // What has something against it is still offered, since our clock may be wrong, but last: a refused credential
        // costs round trips and some servers shut out an address after a few.
        offers.sort_by_key(|offer| !offer.problems.is_empty());
        Offers { offers, remarks }
    }
}

/// What the files hold.
#[derive(Debug, Default)]
struct Files {
    keys: Vec<FileKey>,
    certificates: Vec<(PathBuf, Certificate)>,
    remarks: Vec<String>,
}

#[derive(Debug)]
struct FileKey {
    path: PathBuf,
    public: PublicKey,
    /// Missing where the file is encrypted or holds only the public half; the agent may have it.
    private: Option<Arc<PrivateKey>>,
}

impl Files {
    fn read(identities: &[PathBuf], certificates: &[PathBuf], configured: bool) -> Self {
        let mut files = Self::default();
        for path in identities {
            files.read_identity(path, configured);
        }
        for path in certificates {
            files.read_certificate(path, true);
        }
        for path in identities {
            files.read_certificate(&with_suffix(path, "-cert.pub"), false);
        }
        files
    }

    fn read_identity(&mut self, path: &Path, configured: bool) {
        let text = std::fs::read_to_string(path);
        let private = text
            .as_ref()
            .ok()
            .and_then(|text| decode_secret_key(text, None).ok());
        if let Some(private) = private {
            let public = private.public_key().clone();
            self.keys.push(FileKey {
                path: path.to_owned(),
                public,
                private: Some(Arc::new(private)),
            });
            return;
        }
        let public = text
            .as_ref()
            .ok()
            .and_then(|text| {
                let encrypted = PrivateKey::from_openssh(text)
                    .ok()
                    .map(|key| key.public_key().clone());
                encrypted.or_else(|| PublicKey::from_openssh(text).ok())
            })
            .or_else(|| {
                let public = std::fs::read_to_string(with_suffix(path, ".pub")).ok()?;
                PublicKey::from_openssh(&public).ok()
            });
        match (public, text) {
            (Some(public), _) => self.keys.push(FileKey {
                path: path.to_owned(),
                public,
                private: None,
            }),
            (None, Ok(_)) => self
                .remarks
                .push(format!("{} is not a key we can read", path.display())),
            (None, Err(error)) if configured => self.remarks.push(format!("{}: {error}", path.display())),
            (None, Err(_)) => {}
        }
    }

    fn read_certificate(&mut self, path: &Path, configured: bool) {
        if self.certificates.iter().any(|(known, _)| known == path) {
            return;
        }
        let read = std::fs::read_to_string(path)
            .map_err(|error| error.to_string())
            .and_then(|text| Certificate::from_openssh(&text).map_err(|error| error.to_string()));
        match read {
            Ok(certificate) => self.certificates.push((path.to_owned(), certificate)),
            Err(_) if !configured && !path.exists() => {}
            Err(error) => self
                .remarks
                .push(format!("certificate {}: {error}", path.display())),
        }
    }

    fn key(&self, public: &KeyData) -> Option<&FileKey> {
        self.keys.iter().find(|key| key.public.key_data() == public)
    }
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

async fn list_agent(socket: Option<&Path>) -> Result<Vec<AgentIdentity>, String> {
    let Some(socket) = socket else {
        return Ok(Vec::new());
    };
    let list = async { AgentClient::connect_uds(socket).await?.request_identities().await };
    match tokio::time::timeout(AGENT_LIMIT, list).await {
        Ok(Ok(identities)) => Ok(identities),
        Ok(Err(error)) => Err(format!(
            "the agent at {} cannot be used: {error}",
            socket.display()
        )),
        Err(_) => Err(format!("the agent at {} does not answer", socket.display())),
    }
}

/// Certificates first, since a site that signs them rarely knows plain keys; then configured keys; then whatever else
/// the agent holds, unless only configured identities may be used.
fn arrange(files: &Files, agent: &[AgentIdentity], only: bool, remarks: &mut Vec<String>) -> Vec<Offer> {
    let mut offers = Vec::new();
    let agent_key = |public: &KeyData| {
        agent
            .iter()
            .any(|held| matches!(held, AgentIdentity::PublicKey { key, .. } if key.key_data() == public))
    };
    for (path, certificate) in &files.certificates {
        let public = certificate.public_key();
        let file = files.key(public).and_then(|key| key.private.clone());
        let in_agent = agent.iter().any(
            |held| matches!(held, AgentIdentity::Certificate { certificate: other, .. } if same(other, certificate)),
        );
        let (held, place) = match file {
            Some(private) => (Held::File(private), "its key from a file"),
            None if in_agent => (Held::AgentCertificate, "its key in the agent"),
            None if agent_key(public) => (Held::AgentKey, "its key in the agent"),
            None => {
                remarks.push(format!(
                    "certificate {}: its private key is in no file or agent",
                    path.display()
                ));
                continue;
            }
        };
        offers.push(Offer {
            label: format!("certificate {} ({place})", path.display()),
            public: Public::Certificate(Box::new(certificate.clone())),
            held,
            problems: Vec::new(),
            limits: Vec::new(),
        });
    }
    for held in agent {
        let AgentIdentity::Certificate { certificate, comment } = held else {
            continue;
        };
        let listed = files
            .certificates
            .iter()
            .any(|(_, other)| same(other, certificate));
        if !listed && (!only || files.key(certificate.public_key()).is_some()) {
            offers.push(Offer {
                label: format!(
                    "certificate \"{}\" of the agent ({comment})",
                    certificate.key_id()
                ),
                public: Public::Certificate(Box::new(certificate.clone())),
                held: Held::AgentCertificate,
                problems: Vec::new(),
                limits: Vec::new(),
            });
        }
    }
    for key in &files.keys {
        let held = match &key.private {
            Some(private) => Held::File(Arc::clone(private)),
            None if agent_key(key.public.key_data()) => Held::AgentKey,
            None => {
                remarks.push(format!(
                    "{}: encrypted, or only its public half, and not in the agent (ssh-add it)",
                    key.path.display()
                ));
                continue;
            }
        };
        let label = format!("key {}", key.path.display());
        offers.push(Offer {
            label,
            public: Public::Key(key.public.clone()),
            held,
            problems: Vec::new(),
            limits: Vec::new(),
        });
    }
    for held in agent {
        let AgentIdentity::PublicKey { key, comment } = held else {
            continue;
        };
        if !only && files.key(key.key_data()).is_none() {
            let label = format!("key of the agent ({comment})");
            let public = Public::Key(key.clone());
            offers.push(Offer {
                label,
                public,
                held: Held::AgentKey,
                problems: Vec::new(),
                limits: Vec::new(),
            });
        }
    }
    offers
}

/// Whether two certificates are one: by their signed content, since comments differ.
fn same(one: &Certificate, other: &Certificate) -> bool {
    one.public_key() == other.public_key() && one.signature() == other.signature()
}
