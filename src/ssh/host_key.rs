//! Whom we trust: what the client asks of whoever knows the trusted host keys, and what it offers the server for it.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use super::route::Hop;
use super::russh_keys::{Algorithm, EcdsaCurve, HashAlg, PublicKeyOrCertificate};

/// Decides about host keys. Never asks a person.
pub trait HostKeys: fmt::Debug + Send + Sync {
    /// What is known about a host before it is spoken to.
    fn known(&self, hop: &Hop) -> Known;

    /// Judges the key or certificate that the host presented and proved to hold.
    ///
    /// # Errors
    /// It is not to be trusted.
    fn check(&self, hop: &Hop, presented: &PublicKeyOrCertificate) -> Result<(), HostKeyProblem>;
}

/// What is known about a host.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Known {
    /// The algorithms of its known plain keys. They are asked for first: a host asked for a key of another algorithm
    /// answers with one that looks changed.
    pub algorithms: Vec<Algorithm>,
    /// Whether a trusted authority signs for it. Only then is a certificate asked for: a host that is known by its
    /// plain key alone would present a certificate that nobody can judge.
    pub authority: bool,
}

/// Why a host is not trusted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct HostKeyProblem {
    /// The kind.
    pub kind: HostKeyProblemKind,
    /// The verdict in words: which key was presented (by its fingerprint), and what the files say, with their lines.
    pub text: String,
}

/// The kinds of distrust.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HostKeyProblemKind {
    /// No entry for this host.
    Unknown,
    /// Entries for this host, none of them with this key.
    Changed,
    /// The key, or the authority that signed it, is marked as revoked.
    Revoked,
    /// A certificate that does not hold for this host.
    Certificate,
    /// The files cannot be used.
    Files,
}

/// The algorithms to offer, most wanted first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Wanted {
    /// For plain keys.
    pub(super) keys: Cow<'static, [Algorithm]>,
    /// For certificates.
    pub(super) certificates: Cow<'static, [Algorithm]>,
}

/// Without `ssh-rsa`: it signs with SHA-1.
const DEFAULT: &[Algorithm] = &[
    Algorithm::Ed25519,
    Algorithm::Ecdsa {
        curve: EcdsaCurve::NistP256,
    },
    Algorithm::Ecdsa {
        curve: EcdsaCurve::NistP384,
    },
    Algorithm::Ecdsa {
        curve: EcdsaCurve::NistP521,
    },
    Algorithm::Rsa {
        hash: Some(HashAlg::Sha512),
    },
    Algorithm::Rsa {
        hash: Some(HashAlg::Sha256),
    },
];

/// The configured algorithms in their order, or the default ones with those of the known keys first.
pub(super) fn wanted(configured: Option<&[String]>, known: &Known) -> Wanted {
    let Some(names) = configured else {
        let (mut keys, others): (Vec<_>, Vec<_>) = DEFAULT
            .iter()
            .cloned()
            .partition(|offered| known.algorithms.iter().any(|key| same(offered, key)));
        keys.extend(others);
        let certificates = if known.authority {
            DEFAULT.into()
        } else {
            Cow::Borrowed(&[][..])
        };
        return Wanted {
            keys: keys.into(),
            certificates,
        };
    };
    let is_certificate = |name: &&String| name.contains("-cert-");
    let keys = names
        .iter()
        .filter(|name| !is_certificate(name))
        .filter_map(|name| Algorithm::from_str(name).ok());
    let certificates = names
        .iter()
        .filter(|name| known.authority && is_certificate(name))
        .filter_map(|name| {
            DEFAULT
                .iter()
                .find(|known| known.to_certificate_type() == **name)
                .cloned()
        });
    Wanted {
        keys: keys.collect::<Vec<_>>().into(),
        certificates: certificates.collect::<Vec<_>>().into(),
    }
}

/// An RSA key is one key for all its signature algorithms.
fn same(offered: &Algorithm, known: &Algorithm) -> bool {
    offered == known || matches!((offered, known), (Algorithm::Rsa { .. }, Algorithm::Rsa { .. }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_algorithms_of_known_keys_come_first() {
        let known = Known {
            algorithms: vec![Algorithm::Rsa { hash: None }],
            authority: false,
        };
        let wanted = wanted(None, &known);
        assert_eq!(
            wanted.keys[0],
            Algorithm::Rsa {
                hash: Some(HashAlg::Sha512)
            }
        );
        assert_eq!(wanted.keys[2], Algorithm::Ed25519);
        assert_eq!(wanted.keys.len(), DEFAULT.len());
        assert!(wanted.certificates.is_empty());
    }

    #[test]
    fn configured_algorithms_keep_their_order_and_certificates_need_an_authority() {
        let names = [
            "ssh-ed25519-cert-v01@openssh.com",
            "rsa-sha2-512",
            "ssh-ed25519",
            "nonsense",
        ];
        let names = names.map(str::to_owned);
        let mut known = Known {
            algorithms: vec![Algorithm::Ed25519],
            authority: true,
        };
        let with = wanted(Some(&names), &known);
        assert_eq!(
            *with.keys,
            [
                Algorithm::Rsa {
                    hash: Some(HashAlg::Sha512)
                },
                Algorithm::Ed25519
            ]
        );
        assert_eq!(*with.certificates, [Algorithm::Ed25519]);
        known.authority = false;
        assert!(wanted(Some(&names), &known).certificates.is_empty());
    }
}
