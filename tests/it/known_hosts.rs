//! Host keys and certificates as the real ssh-keygen makes them, judged by known_hosts files.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use russh_keys::{Algorithm, Certificate, HashAlg, PublicKey, PublicKeyOrCertificate};
use tempfile::TempDir;
use vibesys::clock::SystemClock;
use vibesys::ssh::host_key::{HostKeyProblem, HostKeyProblemKind as Kind, HostKeys};
use vibesys::ssh::known_hosts::KnownHostsFiles;
use vibesys::ssh::route::{AddressFamily, Hop, StrictHostKeys};
use vibesys::ssh::russh_keys;

const HOST: &str = "web.example.org";

/// A directory with the keys and the files of one test.
struct Bench {
    directory: TempDir,
}

impl Bench {
    fn new() -> Self {
        Self {
            directory: TempDir::new().unwrap(),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn keygen(&self, arguments: &[&str]) {
        let output = Command::new("ssh-keygen")
            .arg("-q")
            .args(arguments)
            .current_dir(self.directory.path())
            .stdin(Stdio::null())
            .output()
            .expect("ssh-keygen");
        assert!(
            output.status.success(),
            "ssh-keygen {arguments:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
    }

    /// A new key; gives its type and blob.
    fn key(&self, name: &str, kind: &str) -> String {
        self.keygen(&["-t", kind, "-N", "", "-C", "", "-f", name]);
        fs::read_to_string(self.path(&format!("{name}.pub")))
            .unwrap()
            .trim()
            .to_owned()
    }

    fn ed25519(&self, name: &str) -> String {
        self.key(name, "ed25519")
    }

    fn presented(&self, name: &str) -> PublicKeyOrCertificate {
        let key = fs::read_to_string(self.path(&format!("{name}.pub"))).unwrap();
        PublicKeyOrCertificate::PublicKey {
            key: PublicKey::from_openssh(&key).unwrap(),
            hash_alg: None,
        }
    }

    /// A host certificate for `name`, unless the arguments say more.
    fn certificate(&self, authority: &str, name: &str, arguments: &[&str]) -> PublicKeyOrCertificate {
        let public = format!("{name}.pub");
        self.keygen(&[&["-s", authority, "-I", "the-id"], arguments, &[&public]].concat());
        let text = fs::read_to_string(self.path(&format!("{name}-cert.pub"))).unwrap();
        PublicKeyOrCertificate::Certificate(Certificate::from_openssh(&text).unwrap())
    }

    fn file(&self, text: &str) -> PathBuf {
        let path = self.path("known_hosts");
        fs::write(&path, text).unwrap();
        path
    }

    /// A host whose one file says `text`.
    fn hop(&self, text: &str) -> Hop {
        hop(self.file(text))
    }
}

fn hop(file: PathBuf) -> Hop {
    Hop {
        alias: "web".to_owned(),
        host: HOST.to_owned(),
        port: 22,
        user: "jane".to_owned(),
        host_key_alias: None,
        identity_files: Vec::new(),
        identities_configured: false,
        certificate_files: Vec::new(),
        agent_socket: None,
        identities_only: false,
        known_hosts_files: vec![file],
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

fn judge() -> KnownHostsFiles {
    KnownHostsFiles::new(Arc::new(SystemClock))
}

fn check(hop: &Hop, presented: &PublicKeyOrCertificate) -> Result<(), HostKeyProblem> {
    judge().check(hop, presented)
}

#[track_caller]
fn accepted(hop: &Hop, presented: &PublicKeyOrCertificate) {
    if let Err(problem) = check(hop, presented) {
        panic!("refused: {problem}");
    }
}

#[track_caller]
fn refused(hop: &Hop, presented: &PublicKeyOrCertificate, kind: Kind) -> String {
    let problem = check(hop, presented).expect_err("accepted");
    assert_eq!(problem.kind, kind, "{problem}");
    problem.text
}

fn print(presented: &PublicKeyOrCertificate) -> String {
    presented.public_key().fingerprint(HashAlg::Sha256).to_string()
}

#[test]
fn known_hosts_plain_unknown_and_changed() {
    let bench = Bench::new();
    let (good, other) = (bench.ed25519("good"), bench.ed25519("other"));
    let (key, strange) = (bench.presented("good"), bench.presented("other"));
    let hop = bench.hop(&format!("# keys\n\n{HOST} {good} a comment\ndb {other}\n"));
    accepted(&hop, &key);
    assert_eq!(judge().known(&hop).algorithms, [Algorithm::Ed25519]);
    assert!(!judge().known(&hop).authority);
    // Changed: what it presents, what is known, and where.
    let text = refused(&hop, &strange, Kind::Changed);
    let place = format!("{}:3", hop.known_hosts_files[0].display());
    for part in [&print(&key), &print(&strange), &place, HOST] {
        assert!(text.contains(part), "no {part} in: {text}");
    }
    assert!(!text.contains(":4"), "{text}");

    let unknown = bench.hop(&format!("db {good}\n"));
    let text = refused(&unknown, &key, Kind::Unknown);
    for part in [
        &print(&key),
        &*unknown.known_hosts_files[0].to_string_lossy(),
        HOST,
    ] {
        assert!(text.contains(part), "no {part} in: {text}");
    }
    // A file that is not there knows nobody, and hides no other.
    let mut missing = hop.clone();
    missing.known_hosts_files = vec![bench.path("nowhere")];
    refused(&missing, &key, Kind::Unknown);
    missing
        .known_hosts_files
        .push(bench.file(&format!("{HOST} {good}\n")));
    accepted(&missing, &key);
}

#[test]
fn known_hosts_names() {
    let bench = Bench::new();
    let good = bench.ed25519("good");
    let key = bench.presented("good");
    for (names, known) in [
        ("web.example.org", true),
        ("WEB.Example.org", true),
        ("db,web.example.org,192.0.2.1", true),
        ("*.example.org", true),
        ("web.example.???", true),
        ("*", true),
        ("*.example.org,!web.*", false),
        ("!web.example.org,*", false),
        ("!db.example.org,*.example.org", true),
        ("!db.example.org", false),
        ("web", false),
        ("example.org", false),
        ("[web.example.org]:2222", false),
    ] {
        let hop = bench.hop(&format!("{names} {good}\n"));
        assert_eq!(check(&hop, &key).is_ok(), known, "{names}");
    }
    for (names, known) in [
        ("[web.example.org]:2222", true),
        ("[*.example.org]:2222", true),
        ("[web.example.org]:2223", false),
        // As ssh does, if nothing is known of the port.
        ("web.example.org", true),
    ] {
        let mut hop = bench.hop(&format!("{names} {good}\n"));
        hop.port = 2222;
        assert_eq!(check(&hop, &key).is_ok(), known, "{names}");
        assert_eq!(!judge().known(&hop).algorithms.is_empty(), known, "{names}");
    }
    // An alias stands alone, without the port.
    let mut hop = bench.hop(&format!("the-alias {good}\n"));
    refused(&hop, &key, Kind::Unknown);
    hop.host_key_alias = Some("the-alias".to_owned());
    hop.port = 2222;
    accepted(&hop, &key);
    hop.known_hosts_files = vec![bench.file(&format!("{HOST} {good}\n"))];
    refused(&hop, &key, Kind::Unknown);
}

#[test]
fn known_hosts_hashed() {
    let bench = Bench::new();
    let (good, other) = (bench.ed25519("good"), bench.ed25519("other"));
    let file = bench.file(&format!("{HOST} {good}\n[{HOST}]:2222 {other}\n"));
    bench.keygen(&["-H", "-f", "known_hosts"]);
    let text = fs::read_to_string(&file).unwrap();
    assert!(text.starts_with("|1|") && !text.contains(HOST), "{text}");
    let mut hop = hop(file);
    let (key, strange) = (bench.presented("good"), bench.presented("other"));
    accepted(&hop, &key);
    let text = refused(&hop, &strange, Kind::Changed);
    assert!(text.contains("known_hosts:1"), "{text}");
    hop.port = 2222;
    accepted(&hop, &strange);
    refused(&hop, &key, Kind::Changed);
    hop.host = "elsewhere".to_owned();
    refused(&hop, &key, Kind::Unknown);
}

#[test]
fn known_hosts_several_keys_and_bad_lines() {
    let bench = Bench::new();
    let (a, b, c) = (bench.ed25519("a"), bench.key("b", "ecdsa"), bench.key("c", "rsa"));
    bench.ed25519("d");
    let hop = bench.hop(&format!(
        "{HOST}\n{HOST} ssh-ed25519\n{HOST} ssh-ed25519 AAAA\n{HOST} frob AAAA\n@frob {HOST} {a}\n|1|x|y {a}\n\
         \u{fffd}\n{HOST}\t{a}\n  {HOST}   {b}  \n{HOST} {c}\r\n{HOST} {a}\n"
    ));
    for name in ["a", "b", "c"] {
        accepted(&hop, &bench.presented(name));
    }
    let text = refused(&hop, &bench.presented("d"), Kind::Changed);
    for name in ["a", "b", "c"] {
        assert!(text.contains(&print(&bench.presented(name))), "{text}");
    }
    let known = judge().known(&hop).algorithms;
    assert_eq!(known.len(), 3, "{known:?}");
    // Of two files both count.
    let mut two = bench.hop(&format!("{HOST} {a}\n"));
    two.known_hosts_files.push(bench.path("second"));
    fs::write(bench.path("second"), format!("{HOST} {b}")).unwrap();
    accepted(&two, &bench.presented("a"));
    accepted(&two, &bench.presented("b"));
    let text = refused(&two, &bench.presented("c"), Kind::Changed);
    assert!(
        text.contains("known_hosts:1") && text.contains("second:1"),
        "{text}"
    );
}

#[test]
fn known_hosts_revoked() {
    let bench = Bench::new();
    let (good, ca) = (bench.ed25519("good"), bench.ed25519("ca"));
    let key = bench.presented("good");
    for (strict, lines) in [
        (StrictHostKeys::Yes, format!("{HOST} {good}\n@revoked * {good}\n")),
        (StrictHostKeys::AcceptNew, format!("@revoked {HOST} {good}\n")),
        (
            StrictHostKeys::No,
            format!("@revoked {HOST} {good}\n{HOST} {good}\n"),
        ),
    ] {
        let mut hop = bench.hop(&lines);
        hop.strict_host_keys = strict;
        let text = refused(&hop, &key, Kind::Revoked);
        assert!(
            text.contains(&print(&key)) && text.contains("known_hosts:"),
            "{text}"
        );
    }
    accepted(&bench.hop(&format!("@revoked db {good}\n{HOST} {good}\n")), &key);
    // Of the port too.
    let mut hop = bench.hop(&format!("@revoked {HOST} {good}\n[{HOST}]:2222 {good}\n"));
    hop.port = 2222;
    refused(&hop, &key, Kind::Revoked);

    let certificate = bench.certificate("ca", "good", &["-h", "-n", HOST]);
    let revoked = format!("@cert-authority * {ca}\n@revoked * {ca}\n{HOST} {good}\n");
    let text = refused(&bench.hop(&revoked), &certificate, Kind::Revoked);
    assert!(
        text.contains("authority") && text.contains("known_hosts:2"),
        "{text}"
    );
    let revoked = format!("@cert-authority * {ca}\n@revoked * {good}\n");
    refused(&bench.hop(&revoked), &certificate, Kind::Revoked);
}

#[test]
fn known_hosts_authority() {
    let bench = Bench::new();
    let (ca, wrong, good) = (
        bench.ed25519("ca"),
        bench.key("wrong", "ecdsa"),
        bench.ed25519("good"),
    );
    let trust = format!("@cert-authority *.example.org {ca}\n");
    let certificate = bench.certificate("ca", "good", &["-h", "-n", "db,web.example.org"]);
    let hop = bench.hop(&trust);
    assert!(judge().known(&hop).authority);
    assert!(judge().known(&hop).algorithms.is_empty());
    accepted(&hop, &certificate);
    // The authority's line does not know the plain key, nor is the authority's key one of the host.
    let text = refused(&hop, &bench.presented("good"), Kind::Unknown);
    assert!(text.contains("authority"), "{text}");
    refused(&hop, &bench.presented("ca"), Kind::Unknown);
    // Patterns of an authority have no port.
    let mut port = hop.clone();
    port.port = 2222;
    assert!(judge().known(&port).authority);
    accepted(&port, &certificate);
    // An authority for others.
    refused(
        &bench.hop(&format!("@cert-authority *.example.net {ca}\n")),
        &certificate,
        Kind::Unknown,
    );
    // Of an authority that is not trusted, the plain key counts.
    let mistrust = format!("@cert-authority * {wrong}\n");
    refused(&bench.hop(&mistrust), &certificate, Kind::Unknown);
    accepted(&bench.hop(&format!("{mistrust}{HOST} {good}\n")), &certificate);
    let text = refused(
        &bench.hop(&format!("{mistrust}{HOST} {wrong}\n")),
        &certificate,
        Kind::Changed,
    );
    assert!(text.contains(&print(&bench.presented("good"))), "{text}");
    // The alias is the name that is certified.
    let mut aliased = bench.hop(&format!("@cert-authority db {ca}\n"));
    aliased.host_key_alias = Some("db".to_owned());
    accepted(&aliased, &certificate);
}

#[test]
fn known_hosts_certificates_that_do_not_hold() {
    let bench = Bench::new();
    let (ca, good) = (bench.ed25519("ca"), bench.ed25519("good"));
    let trust = format!("@cert-authority * {ca}\n");
    let of_host = ["-h", "-n", HOST];
    let also = |more: &[&'static str]| [&of_host, more].concat();
    for (arguments, said) in [
        (
            vec!["-h", "-n", "db.example.org,mail"],
            "it is for db.example.org, mail",
        ),
        (vec!["-h", "-n", "*.example.net"], "it is for *.example.net"),
        (vec!["-h"], "it is for nobody"),
        (also(&["-V", "20200101:20210101"]), "expired"),
        (also(&["-V", "+1d:+2d"]), "not valid yet"),
        (vec!["-n", HOST], "not a host certificate"),
        (also(&["-O", "critical:frob@example.org=1"]), "frob@example.org"),
    ] {
        let certificate = bench.certificate("ca", "good", &arguments);
        for strict in [StrictHostKeys::Yes, StrictHostKeys::AcceptNew] {
            let mut hop = bench.hop(&trust);
            hop.strict_host_keys = strict;
            let text = refused(&hop, &certificate, Kind::Certificate);
            assert!(
                text.contains(said) && text.contains("the-id") && text.contains(HOST),
                "{arguments:?}: {text}"
            );
            assert_eq!(
                fs::read_to_string(bench.path("known_hosts")).unwrap(),
                trust,
                "nothing is written"
            );
        }
        // As for ssh, the key in it may be known by itself.
        accepted(&bench.hop(&format!("{trust}{HOST} {good}\n")), &certificate);
    }
    for arguments in [
        vec!["-h", "-n", "*.example.org"],
        vec!["-h", "-n", "WEB.example.org"],
        also(&["-V", "-1h:+1h"]),
        also(&["-V", "always:forever"]),
    ] {
        let certificate = bench.certificate("ca", "good", &arguments);
        accepted(&bench.hop(&trust), &certificate);
    }
}

#[test]
fn known_hosts_signatures_of_authorities() {
    let bench = Bench::new();
    let ca = bench.key("ca", "rsa");
    bench.ed25519("good");
    let trust = format!("@cert-authority * {ca}\n");
    let sound = bench.certificate("ca", "good", &["-h", "-n", HOST, "-t", "rsa-sha2-256"]);
    let mut hop = bench.hop(&trust);
    accepted(&hop, &sound);
    hop.ca_signature_algorithms = Some(vec!["ssh-ed25519".to_owned(), "rsa-sha2-512".to_owned()]);
    let text = refused(&hop, &sound, Kind::Certificate);
    assert!(text.contains("rsa-sha2-256"), "{text}");
    hop.ca_signature_algorithms = None;
    let sha1 = bench.certificate("ca", "good", &["-h", "-n", HOST, "-t", "ssh-rsa"]);
    let text = refused(&hop, &sha1, Kind::Certificate);
    assert!(text.contains("ssh-rsa"), "{text}");
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn known_hosts_accept_new() {
    let bench = Bench::new();
    let good = bench.ed25519("good");
    bench.ed25519("other");
    let (key, strange) = (bench.presented("good"), bench.presented("other"));
    let file = bench.path("home/.ssh/known_hosts");
    let mut hop = hop(file.clone());
    hop.known_hosts_files.push(bench.path("global"));
    refused(&hop, &key, Kind::Unknown);
    assert!(!file.exists());
    hop.strict_host_keys = StrictHostKeys::AcceptNew;
    accepted(&hop, &key);
    assert_eq!(fs::read_to_string(&file).unwrap(), format!("{HOST} {good}\n"));
    assert_eq!((mode(&file), mode(file.parent().unwrap())), (0o600, 0o700));
    assert!(!bench.path("global").exists());
    // Known from now on, and not written twice.
    accepted(&hop, &key);
    hop.strict_host_keys = StrictHostKeys::Yes;
    accepted(&hop, &key);
    hop.strict_host_keys = StrictHostKeys::AcceptNew;
    refused(&hop, &strange, Kind::Changed);
    // A server at another port is another one, also if the last line lacks its end.
    fs::write(&file, format!("{HOST} {good}")).unwrap();
    hop.port = 2222;
    accepted(&hop, &strange);
    let text = fs::read_to_string(&file).unwrap();
    assert!(
        text.starts_with(&format!("{HOST} {good}\n[{HOST}]:2222 ")),
        "{text}"
    );
    assert_eq!(text.lines().count(), 2, "{text}");
    refused(&hop, &key, Kind::Changed);
    // ssh-keygen finds it.
    bench.keygen(&["-F", &format!("[{HOST}]:2222"), "-f", file.to_str().unwrap()]);
    // `no` takes what is new and what has changed.
    hop.strict_host_keys = StrictHostKeys::No;
    accepted(&hop, &key);
    // What cannot be written is accepted all the same.
    hop.known_hosts_files = vec!["/dev/null".into()];
    hop.strict_host_keys = StrictHostKeys::AcceptNew;
    accepted(&hop, &key);
}
