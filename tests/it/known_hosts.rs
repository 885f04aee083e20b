//! Host keys against files and certificates that the real ssh-keygen made.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;

use russh::keys::{Certificate, HashAlg, PublicKey, PublicKeyOrCertificate};
use vibesys::clock::SystemClock;
use vibesys::ssh::host_key::{HostKeyProblem, HostKeyProblemKind, HostKeys};
use vibesys::ssh::known_hosts::KnownHostsFiles;
use vibesys::ssh::route::{AddressFamily, Hop, StrictHostKeys};

struct Files(tempfile::TempDir);

impl Files {
    fn new() -> Self {
        let files = Self(tempfile::tempdir().unwrap());
        for name in ["host", "other", "ca", "ca2"] {
            files.keygen(&["-q", "-t", "ed25519", "-N", "", "-C", "", "-f", &files.path(name)]);
        }
        files
    }

    fn path(&self, name: &str) -> String {
        self.0.path().join(name).to_str().unwrap().to_owned()
    }

    fn keygen(&self, arguments: &[&str]) {
        let output = Command::new("ssh-keygen")
            .args(arguments)
            .current_dir(self.0.path())
            .stdin(Stdio::null())
            .output()
            .unwrap();
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
    }

    fn line(&self, name: &str) -> String {
        fs::read_to_string(self.path(&format!("{name}.pub")))
            .unwrap()
            .trim()
            .to_owned()
    }

    fn key(&self, name: &str) -> PublicKey {
        PublicKey::from_openssh(&self.line(name)).unwrap()
    }

    fn presented(&self, name: &str) -> PublicKeyOrCertificate {
        PublicKeyOrCertificate::PublicKey {
            key: self.key(name),
            hash_alg: None,
        }
    }

    /// A certificate on `host` by `ca`, with further options of ssh-keygen.
    fn certificate(&self, ca: &str, options: &[&str]) -> PublicKeyOrCertificate {
        let mut arguments = vec!["-q", "-s", ca, "-I", "id"];
        arguments.extend(options);
        arguments.push("host.pub");
        self.keygen(&arguments);
        let text = fs::read_to_string(self.path("host-cert.pub")).unwrap();
        PublicKeyOrCertificate::Certificate(Certificate::from_openssh(&text).unwrap())
    }

    fn judge(
        &self,
        known: &str,
        hop: &Hop,
        presented: &PublicKeyOrCertificate,
    ) -> Result<(), HostKeyProblem> {
        fs::write(self.path("known_hosts"), known).unwrap();
        KnownHostsFiles::new(Arc::new(SystemClock)).check(hop, presented)
    }

    fn hop(&self) -> Hop {
        Hop {
            alias: "h".into(),
            host: "h.example".into(),
            port: 22,
            user: "u".into(),
            host_key_alias: None,
            identity_files: Vec::new(),
            identities_configured: true,
            certificate_files: Vec::new(),
            agent_socket: None,
            identities_only: true,
            known_hosts_files: vec![PathBuf::from(self.path("known_hosts")), "/no/such/file".into()],
            strict_host_keys: StrictHostKeys::Yes,
            host_key_algorithms: None,
            ca_signature_algorithms: None,
            connect_timeout: None,
            connection_attempts: 1,
            server_alive_interval: None,
            server_alive_count_max: 3,
            address_family: AddressFamily::Any,
            bind_address: None,
            proxy_command: None,
        }
    }
}

fn kind(result: Result<(), HostKeyProblem>) -> Option<HostKeyProblemKind> {
    result.err().map(|problem| problem.kind)
}

#[test]
fn plain_keys_are_judged_by_the_lines_that_name_the_host() {
    use HostKeyProblemKind::{Changed, Revoked, Unknown};
    let files = Files::new();
    let (host, other) = (files.line("host"), files.line("other"));
    let hop = files.hop();
    let presented = files.presented("host");
    for (known, expected) in [
        (format!("h.example {host}\n"), None),
        (format!("H.Example {host} comment\n"), None),
        (format!("*.example {host}\n"), None),
        (format!("*.example,!h.example {host}\n"), Some(Unknown)),
        (format!("[h.example]:22 {host}\n"), Some(Unknown)),
        (format!("h.example {other}\nh.example {host}\n"), None),
        (
            format!("rubbish\n# comment\n\nh.example not-a-key\nh.example {host}\n"),
            None,
        ),
        (format!("elsewhere {host}\n"), Some(Unknown)),
        (String::new(), Some(Unknown)),
        (format!("h.example {other}\n"), Some(Changed)),
        (format!("@revoked * {host}\nh.example {host}\n"), Some(Revoked)),
        (format!("@revoked other.example {host}\nh.example {host}\n"), None),
    ] {
        assert_eq!(kind(files.judge(&known, &hop, &presented)), expected, "{known}");
    }
    let changed = files
        .judge(&format!("# x\nh.example {other}\n"), &hop, &presented)
        .unwrap_err()
        .text;
    for print in ["host", "other"] {
        assert!(
            changed.contains(&files.key(print).fingerprint(HashAlg::Sha256).to_string()),
            "{changed}"
        );
    }
    assert!(changed.contains("known_hosts:2"), "{changed}");
}

#[test]
fn hashed_names_ports_and_aliases_are_looked_up_as_ssh_does() {
    let files = Files::new();
    let presented = files.presented("host");
    fs::write(
        files.path("hashed"),
        format!("h.example {}\n", files.line("host")),
    )
    .unwrap();
    files.keygen(&["-H", "-f", "hashed"]);
    let hashed = fs::read_to_string(files.path("hashed")).unwrap();
    assert!(hashed.starts_with("|1|"));
    assert!(files.judge(&hashed, &files.hop(), &presented).is_ok());
    let elsewhere = Hop {
        host: "i.example".into(),
        ..files.hop()
    };
    assert!(files.judge(&hashed, &elsewhere, &presented).is_err());
    let port = Hop {
        port: 2222,
        ..files.hop()
    };
    assert!(
        files
            .judge(
                &format!("[h.example]:2222 {}\n", files.line("host")),
                &port,
                &presented
            )
            .is_ok()
    );
    assert!(
        files
            .judge(&format!("h.example {}\n", files.line("host")), &port, &presented)
            .is_err()
    );
    let alias = Hop {
        host_key_alias: Some("cluster".into()),
        port: 2222,
        ..files.hop()
    };
    assert!(
        files
            .judge(&format!("cluster {}\n", files.line("host")), &alias, &presented)
            .is_ok()
    );
}

#[test]
fn a_certificate_is_as_good_as_its_authority_its_names_and_its_time() {
    use HostKeyProblemKind::{Certificate as Bad, Changed, Revoked, Unknown};
    let files = Files::new();
    let hop = files.hop();
    let authority = format!("@cert-authority *.example {}\n", files.line("ca"));
    let always = ["-h", "-n", "h.example"];
    for (certificate, known, expected) in [
        (files.certificate("ca", &always), authority.clone(), None),
        (
            files.certificate("ca", &["-h", "-n", "x,*.example"]),
            authority.clone(),
            None,
        ),
        (
            files.certificate("ca", &["-h", "-n", "i.example"]),
            authority.clone(),
            Some(Bad),
        ),
        (files.certificate("ca", &["-h"]), authority.clone(), Some(Bad)),
        (
            files.certificate("ca", &["-n", "h.example"]),
            authority.clone(),
            Some(Bad),
        ),
        (
            files.certificate("ca", &[&always[..], &["-V", "-2h:-1h"]].concat()),
            authority.clone(),
            Some(Bad),
        ),
        (
            files.certificate("ca", &[&always[..], &["-V", "+1h:+2h"]].concat()),
            authority.clone(),
            Some(Bad),
        ),
        (
            files.certificate("ca2", &always),
            authority.clone(),
            Some(Unknown),
        ),
        (
            files.certificate("ca2", &always),
            format!("{authority}h.example {}\n", files.line("host")),
            None,
        ),
        (
            files.certificate("ca2", &always),
            format!("{authority}h.example {}\n", files.line("other")),
            Some(Changed),
        ),
        (
            files.certificate("ca", &always),
            format!("{authority}@revoked * {}\n", files.line("ca")),
            Some(Revoked),
        ),
        (
            files.certificate("ca", &always),
            format!("{authority}@revoked * {}\n", files.line("host")),
            Some(Revoked),
        ),
    ] {
        let result = files.judge(&known, &hop, &certificate);
        assert_eq!(
            result.as_ref().err().map(|problem| problem.kind),
            expected,
            "{result:?}\n{known}"
        );
    }
    fs::write(files.path("known_hosts"), &authority).unwrap();
    let known = KnownHostsFiles::new(Arc::new(SystemClock)).known(&hop);
    assert!(known.authority && known.algorithms.is_empty());
}

#[test]
fn a_new_key_is_written_down_only_where_the_user_said_so() {
    let files = Files::new();
    let path = files.path("known_hosts");
    let judge = KnownHostsFiles::new(Arc::new(SystemClock));
    let hop = Hop {
        strict_host_keys: StrictHostKeys::AcceptNew,
        ..files.hop()
    };
    assert!(judge.check(&files.hop(), &files.presented("host")).is_err());
    assert!(!PathBuf::from(&path).exists());
    judge.check(&hop, &files.presented("host")).unwrap();
    let written = fs::read_to_string(&path).unwrap();
    assert_eq!(written, format!("h.example {}\n", files.line("host")));
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    judge.check(&hop, &files.presented("host")).unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), written, "and only once");
    let changed = judge.check(&hop, &files.presented("other")).unwrap_err();
    assert_eq!(changed.kind, HostKeyProblemKind::Changed);
}
