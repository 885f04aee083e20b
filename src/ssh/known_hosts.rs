//! Host keys: what the known_hosts files say about a key or certificate (sshd(8), SSH_KNOWN_HOSTS FILE FORMAT).
//!
//! Of the lines whose names match, revocations are looked at first, then certificate authorities, then plain keys.

use std::fmt::Write as _;
use std::fs;
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;

use hmac::{Hmac, KeyInit, Mac};
use russh::keys::ssh_key::certificate::CertType;
use russh::keys::ssh_key::known_hosts::{Entry, HostPatterns, Marker};
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

/// The lines of a host.
struct Lines {
    /// Of its own name.
    own: Vec<Line>,
    /// Of its name without the port: as for ssh, they count if those of its own name know nothing.
    portless: Vec<Line>,
}

impl Lines {
    fn of(hop: &Hop) -> Self {
        let name = lookup_name(hop);
        let portless = if hop.host_key_alias.is_none() && name != hop.host {
            lines(hop, &hop.host)
        } else {
            Vec::new()
        };
        Self {
            own: lines(hop, &name),
            portless,
        }
    }

    fn all(&self) -> impl Iterator<Item = &Line> {
        self.own.iter().chain(&self.portless)
    }

    fn authority(&self) -> bool {
        self.all().any(|line| line.marker == Some(Marker::CertAuthority))
    }

    /// The plain keys of the host's own name, or else of its name without the port.
    fn plain(&self) -> Vec<&Line> {
        fn plain(lines: &[Line]) -> Vec<&Line> {
            lines.iter().filter(|line| line.marker.is_none()).collect()
        }
        let own = plain(&self.own);
        if own.is_empty() {
            plain(&self.portless)
        } else {
            own
        }
    }

    fn knows(&self, key: &KeyData) -> bool {
        self.plain().iter().any(|line| line.key.key_data() == key)
    }
}

/// The name that stands in the files: the alias or host, with the port unless it is 22 (ssh_known_hosts).
fn lookup_name(hop: &Hop) -> String {
    match (&hop.host_key_alias, hop.port) {
        (Some(alias), _) => alias.clone(),
        (None, 22) => hop.host.clone(),
        (None, port) => format!("[{}]:{port}", hop.host),
    }
}

fn lines(hop: &Hop, name: &str) -> Vec<Line> {
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
            let spaced = trimmed.split_whitespace().collect::<Vec<_>>().join(" ");
            let Ok(entry) = spaced.parse::<Entry>() else {
                tracing::warn!(place, "a line of known_hosts cannot be read");
                continue;
            };
            if names(&entry, name) {
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
        HostPatterns::Patterns(patterns) => matching_list(patterns.iter().map(String::as_str), name),
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
        let lines = Lines::of(hop);
        let mut algorithms = Vec::new();
        for line in lines.plain() {
            let algorithm = line.key.algorithm();
            if !algorithms.contains(&algorithm) {
                algorithms.push(algorithm);
            }
        }
        Known {
            algorithms,
            authority: lines.authority(),
        }
    }

    fn check(&self, hop: &Hop, presented: &PublicKeyOrCertificate) -> Result<(), HostKeyProblem> {
        let lines = Lines::of(hop);
        match presented {
            PublicKeyOrCertificate::PublicKey { key, .. } => judge_key(hop, &lines, key),
            PublicKeyOrCertificate::Certificate(certificate) => {
                let now = u64::try_from(self.clock.now().as_second()).unwrap_or_default();
                judge_certificate(hop, &lines, certificate, now)
            }
        }
    }
}

fn refuse_revoked(lines: &Lines, key: &KeyData, what: &str) -> Result<(), HostKeyProblem> {
    let revoked = |line: &&Line| line.marker == Some(Marker::Revoked) && line.key.key_data() == key;
    match lines.all().find(revoked) {
        None => Ok(()),
        Some(line) => Err(problem(
            HostKeyProblemKind::Revoked,
            format!("{what} {} is marked @revoked at {}", fingerprint(key), line.place),
        )),
    }
}

fn judge_key(hop: &Hop, lines: &Lines, key: &PublicKey) -> Result<(), HostKeyProblem> {
    refuse_revoked(lines, key.key_data(), "the host key")?;
    if lines.knows(key.key_data()) {
        return Ok(());
    }
    // Another key without the port may be that of another server behind the same name: this one is new.
    let plain: Vec<&Line> = lines.own.iter().filter(|line| line.marker.is_none()).collect();
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

fn unknown(hop: &Hop, name: &str, key: &PublicKey, lines: &Lines) -> Result<(), HostKeyProblem> {
    match hop.strict_host_keys {
        StrictHostKeys::Yes => {
            let files: Vec<String> = hop
                .known_hosts_files
                .iter()
                .map(|file| file.display().to_string())
                .collect();
            let authority = if lines.authority() {
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

/// Adds a line as OpenSSH does, creating the file with mode 0600 and its directory with 0700.
fn append(file: &Path, name: &str, key: &PublicKey) -> std::io::Result<()> {
    let key = key.to_openssh().map_err(std::io::Error::other)?;
    let bare: Vec<&str> = key.split_whitespace().take(2).collect();
    if let Some(directory) = file.parent() {
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(directory)?;
    }
    let mut file = fs::File::options()
        .read(true)
        .append(true)
        .create(true)
        .mode(0o600)
        .open(file)?;
    // The last line may lack its end.
    let mut last = [b'\n'];
    if file.metadata()?.len() > 0 {
        file.seek(SeekFrom::End(-1))?;
        file.read_exact(&mut last)?;
    }
    let end = if last == [b'\n'] { "" } else { "\n" };
    file.write_all(format!("{end}{} {}\n", name.to_ascii_lowercase(), bare.join(" ")).as_bytes())
}

fn judge_certificate(
    hop: &Hop,
    lines: &Lines,
    certificate: &Certificate,
    now: u64,
) -> Result<(), HostKeyProblem> {
    let authority = certificate.signature_key();
    refuse_revoked(lines, authority, "the authority")?;
    refuse_revoked(lines, certificate.public_key(), "the host key")?;
    let trusted = lines
        .all()
        .any(|line| line.marker == Some(Marker::CertAuthority) && line.key.key_data() == authority);
    if !trusted {
        // As ssh does: a certificate of an authority that nobody trusts is as good as the plain key in it.
        return judge_key(hop, lines, &PublicKey::new(certificate.public_key().clone(), ""));
    }
    let Err(what) = holds(hop, certificate, now) else {
        return Ok(());
    };
    let text = format!(
        "the certificate `{}` of {} does not hold: {what}",
        certificate.key_id(),
        certified_name(hop)
    );
    // Here too the key in it may be known by itself; but it is never taken for a new one.
    if lines.knows(certificate.public_key()) {
        tracing::warn!(text, "accepted because its key is known");
        return Ok(());
    }
    Err(problem(HostKeyProblemKind::Certificate, text))
}

/// The name that a certificate must be for.
fn certified_name(hop: &Hop) -> &str {
    hop.host_key_alias.as_deref().unwrap_or(&hop.host)
}

/// Whether the certificate of a trusted authority holds for the host, or why not.
fn holds(hop: &Hop, certificate: &Certificate, now: u64) -> Result<(), String> {
    if certificate.cert_type() != CertType::Host {
        return Err("it is not a host certificate".to_owned());
    }
    if let Some((option, _)) = certificate.critical_options().iter().next() {
        return Err(format!("its critical option `{option}` is not known"));
    }
    // Without a configured list: what ssh takes by default, which is all but SHA-1.
    let algorithm = certificate.signature().algorithm();
    let algorithm = algorithm.as_str();
    if !hop.ca_signature_algorithms.as_ref().map_or_else(
        || !["ssh-rsa", "ssh-dss"].contains(&algorithm),
        |names| names.iter().any(|name| name == algorithm),
    ) {
        return Err(format!(
            "it is signed with {algorithm}, which CASignatureAlgorithms does not allow"
        ));
    }
    let (name, principals) = (certified_name(hop), certificate.valid_principals());
    if principals.is_empty() {
        return Err("it is for nobody".to_owned());
    }
    if !principals
        .iter()
        .any(|principal| matching_list([principal.as_str()], name))
    {
        return Err(format!("it is for {}", principals.join(", ")));
    }
    if now < certificate.valid_after() {
        return Err("it is not valid yet; is this machine's clock right?".to_owned());
    }
    if now >= certificate.valid_before() {
        return Err("it has expired; is this machine's clock right?".to_owned());
    }
    let prints = [certificate.signature_key().fingerprint(HashAlg::Sha256)];
    certificate
        .validate_at(now, prints.iter())
        .map_err(|error| error.to_string())
}
