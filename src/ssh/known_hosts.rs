//! Host keys: what the known_hosts files say about a key or certificate (sshd(8), SSH_KNOWN_HOSTS FILE FORMAT).
//!
//! Of the lines whose names match, revocations are looked at first, then certificate authorities, then plain keys.

use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use hmac::{Hmac, KeyInit, Mac};
use russh::keys::ssh_key::certificate::CertType;
use russh::keys::ssh_key::known_hosts::{Entry, HostPatterns, KnownHosts, Marker};
use russh::keys::ssh_key::public::KeyData;
use russh::keys::{Certificate, HashAlg, PublicKey, PublicKeyOrCertificate};
use sha1::Sha1;

use super::config::matching_list;
use super::host_key::{HostKeyProblem, HostKeyProblemKind, HostKeys, Known};
use super::route::{Hop, StrictHostKeys};
use crate::clock::Clock;

/// Judges hosts by the files that their configuration names.
#[derive(Debug, Clone)]
pub struct KnownHostsFiles {
    clock: Arc<dyn Clock>,
}

impl KnownHostsFiles {
    /// Judges the validity of certificates by `clock`.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock }
    }
}

/// One line that is about the host.
struct Line {
    place: String,
    marker: Option<Marker>,
    key: PublicKey,
}

/// The name that stands in the files: the alias or host, with the port unless it is 22 (ssh_known_hosts).
fn lookup_name(hop: &Hop) -> String {
    match (&hop.host_key_alias, hop.port) {
        (Some(alias), _) => alias.clone(),
        (None, 22) => hop.host.clone(),
        (None, port) => format!("[{}]:{port}", hop.host),
    }
}

fn lines(hop: &Hop) -> Vec<Line> {
    let name = lookup_name(hop);
    let mut found = Vec::new();
    for file in &hop.known_hosts_files {
        // A file that is not there knows nobody.
        let Ok(bytes) = fs::read(file) else { continue };
        let text = String::from_utf8_lossy(&bytes);
        for (number, line) in text.lines().enumerate() {
            let trimmed = line.trim();
            if trimmed.is_empty() || trimmed.starts_with('#') {
                continue;
            }
            let place = format!("{}:{}", file.display(), number + 1);
            // A line that cannot be read is no reason not to read the others.
            let Some(Ok(entry)) = KnownHosts::new(trimmed).next() else {
                tracing::warn!(place, "a line of known_hosts cannot be read");
                continue;
            };
            if names(&entry, &name) {
                found.push(Line {
                    place,
                    marker: entry.marker().copied(),
                    key: entry.public_key().clone(),
                });
            }
        }
    }
    found
}

fn names(entry: &Entry, name: &str) -> bool {
    match entry.host_patterns() {
        HostPatterns::Patterns(patterns) => matching_list(patterns.iter().map(String::as_str), name, true),
        HostPatterns::HashedName { salt, hash } => {
            // The protocol is HMAC-SHA1 of the name under the salt (ssh-keygen(1), -H).
            Hmac::<Sha1>::new_from_slice(salt)
                .is_ok_and(|mac| mac.chain_update(name).verify_slice(hash).is_ok())
        }
    }
}

fn fingerprint(key: &KeyData) -> String {
    key.fingerprint(HashAlg::Sha256).to_string()
}

fn problem(kind: HostKeyProblemKind, text: impl Into<String>) -> HostKeyProblem {
    HostKeyProblem {
        kind,
        text: text.into(),
    }
}

impl HostKeys for KnownHostsFiles {
    fn known(&self, hop: &Hop) -> Known {
        let mut known = Known::default();
        for line in lines(hop) {
            match line.marker {
                Some(Marker::CertAuthority) => known.authority = true,
                Some(Marker::Revoked) => {}
                None => {
                    let algorithm = line.key.algorithm();
                    if !known.algorithms.contains(&algorithm) {
                        known.algorithms.push(algorithm);
                    }
                }
            }
        }
        known
    }

    fn check(&self, hop: &Hop, presented: &PublicKeyOrCertificate) -> Result<(), HostKeyProblem> {
        let lines = lines(hop);
        match presented {
            PublicKeyOrCertificate::PublicKey { key, .. } => judge_key(hop, &lines, key),
            PublicKeyOrCertificate::Certificate(certificate) => {
                let now = u64::try_from(self.clock.now().as_second()).unwrap_or_default();
                judge_certificate(hop, &lines, certificate, now)
            }
        }
    }
}

fn refuse_revoked(lines: &[Line], key: &KeyData, what: &str) -> Result<(), HostKeyProblem> {
    let revoked = |line: &&Line| line.marker == Some(Marker::Revoked) && line.key.key_data() == key;
    match lines.iter().find(revoked) {
        None => Ok(()),
        Some(line) => Err(problem(
            HostKeyProblemKind::Revoked,
            format!("{what} {} is marked @revoked at {}", fingerprint(key), line.place),
        )),
    }
}

fn judge_key(hop: &Hop, lines: &[Line], key: &PublicKey) -> Result<(), HostKeyProblem> {
    refuse_revoked(lines, key.key_data(), "the host key")?;
    let plain: Vec<&Line> = lines.iter().filter(|line| line.marker.is_none()).collect();
    if plain.iter().any(|line| line.key.key_data() == key.key_data()) {
        return Ok(());
    }
    let (name, print) = (lookup_name(hop), fingerprint(key.key_data()));
    if plain.is_empty() {
        return unknown(hop, &name, key, lines);
    }
    let mut text = format!("the host key of {name} has changed: it presents {print}, but known are");
    for line in &plain {
        // Writing to a string does not fail.
        let _infallible = write!(text, " {} ({})", fingerprint(line.key.key_data()), line.place);
    }
    text.push_str(
        "; if the change is announced by the site, remove those lines, else somebody is in between",
    );
    if hop.strict_host_keys == StrictHostKeys::No {
        tracing::warn!(text, "accepted because StrictHostKeyChecking is no");
        return Ok(());
    }
    Err(problem(HostKeyProblemKind::Changed, text))
}

fn unknown(hop: &Hop, name: &str, key: &PublicKey, lines: &[Line]) -> Result<(), HostKeyProblem> {
    match hop.strict_host_keys {
        StrictHostKeys::Yes => {
            let files: Vec<String> = hop
                .known_hosts_files
                .iter()
                .map(|file| file.display().to_string())
                .collect();
            let authority = if lines
                .iter()
                .any(|line| line.marker == Some(Marker::CertAuthority))
            {
                "it did not present a certificate of the authority that is trusted for it; "
            } else {
                ""
            };
            Err(problem(
                HostKeyProblemKind::Unknown,
                format!(
                    "no key of {name} is known ({authority}looked in {}); it presents {}: compare that with what the \
                     site publishes, then add it with `ssh {}`",
                    files.join(", "),
                    fingerprint(key.key_data()),
                    hop.alias
                ),
            ))
        }
        StrictHostKeys::AcceptNew | StrictHostKeys::No => {
            if let Some(file) = hop.known_hosts_files.first()
                && let Err(error) = append(file, name, key)
            {
                tracing::warn!(%error, file = %file.display(), "a new host key cannot be written down");
            }
            Ok(())
        }
    }
}

/// Adds a line as OpenSSH does, creating the file with mode 0600.
fn append(file: &PathBuf, name: &str, key: &PublicKey) -> std::io::Result<()> {
    let key = key.to_openssh().map_err(std::io::Error::other)?;
    let bare: Vec<&str> = key.split_whitespace().take(2).collect();
    if let Some(directory) = Path::new(file).parent() {
        fs::create_dir_all(directory)?;
    }
    let mut file = fs::File::options()
        .append(true)
        .create(true)
        .mode(0o600)
        .open(file)?;
    file.write_all(format!("{name} {}\n", bare.join(" ")).as_bytes())
}

fn judge_certificate(
    hop: &Hop,
    lines: &[Line],
    certificate: &Certificate,
    now: u64,
) -> Result<(), HostKeyProblem> {
    let authority = certificate.signature_key();
    refuse_revoked(lines, authority, "the authority")?;
    refuse_revoked(lines, certificate.public_key(), "the host key")?;
    let trusted = lines
        .iter()
        .any(|line| line.marker == Some(Marker::CertAuthority) && line.key.key_data() == authority);
    if !trusted {
        // As ssh does: a certificate of an authority that nobody trusts is as good as the plain key in it.
        return judge_key(hop, lines, &PublicKey::new(certificate.public_key().clone(), ""));
    }
    let name = hop.host_key_alias.as_deref().unwrap_or(&hop.host);
    let bad = |what: String| {
        problem(
            HostKeyProblemKind::Certificate,
            format!(
                "the certificate `{}` of {name} does not hold: {what}",
                certificate.key_id()
            ),
        )
    };
    if certificate.cert_type() != CertType::Host {
        return Err(bad("it is not a host certificate".to_owned()));
    }
    if let Some((option, _)) = certificate.critical_options().iter().next() {
        return Err(bad(format!("its critical option `{option}` is not known")));
    }
    let principals = certificate.valid_principals();
    if !principals
        .iter()
        .any(|principal| matching_list([principal.as_str()], name, true))
    {
        return Err(bad(format!(
            "it is for {}",
            if principals.is_empty() {
                "nobody".to_owned()
            } else {
                principals.join(", ")
            }
        )));
    }
    if now < certificate.valid_after() {
        return Err(bad(
            "it is not valid yet; is this machine's clock right?".to_owned()
        ));
    }
    if now >= certificate.valid_before() {
        return Err(bad("it has expired; is this machine's clock right?".to_owned()));
    }
    let prints = [authority.fingerprint(HashAlg::Sha256)];
    certificate
        .validate_at(now, prints.iter())
        .map_err(|error| bad(error.to_string()))
}
