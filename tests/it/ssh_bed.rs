//! An OpenSSH server of our own on the loopback interface: keys, authorities, certificates, jump host and target.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use russh::keys::ssh_key::Fingerprint;
use russh::keys::{Algorithm, Certificate, HashAlg, PublicKey, PublicKeyOrCertificate};
use vibesys::clock::SystemClock;
use vibesys::ssh::client::{Settings, SshTransport, Trust};
use vibesys::ssh::error::DialError;
use vibesys::ssh::host_key::{HostKeyProblem, HostKeyProblemKind, HostKeys, Known};
use vibesys::ssh::route::{AddressFamily, Hop, Route, StrictHostKeys};
use vibesys::ssh::signer::FileAndAgent;

const SSHD: &str = "/usr/sbin/sshd";

/// Whether there is a server to test with.
pub(crate) fn available() -> bool {
    Path::new(SSHD).exists()
}

/// Keys and certificates, and the servers that were started with them.
pub(crate) struct Bed {
    pub(crate) dir: tempfile::TempDir,
    pub(crate) user: String,
    servers: Vec<Child>,
}

impl Drop for Bed {
    fn drop(&mut self) {
        for server in &mut self.servers {
            let _dead = server.kill();
            let _reaped = server.wait();
        }
    }
}

fn tool(program: &str, args: &[&str]) -> String {
    let output = Command::new(program)
        .args(args)
        .stdin(Stdio::null())
        .output()
        .expect(program);
    assert!(
        output.status.success(),
        "{program} {args:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}

impl Bed {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let user = tool("id", &["-un"]).trim().to_owned();
        let bed = Self {
            dir,
            user,
            servers: Vec::new(),
        };
        for (name, kind) in [
            ("user_ca", "ed25519"),
            ("host_ca", "ed25519"),
            ("other_ca", "ed25519"),
            ("host", "ed25519"),
            ("host_ecdsa", "ecdsa"),
            ("id", "ed25519"),
            ("id_rsa", "rsa"),
            ("id_plain", "ed25519"),
            ("id_expired", "ed25519"),
            ("id_stranger", "ed25519"),
        ] {
            let path = bed.path(name);
            tool(
                "ssh-keygen",
                &["-q", "-t", kind, "-N", "", "-C", name, "-f", &path],
            );
        }
        bed.sign_user("id", "-5m:+1h", &bed.user);
        bed.sign_user("id_rsa", "-5m:+1h", &bed.user);
        bed.sign_user("id_expired", "-10m:-5m", &bed.user);
        bed.sign_user("id_stranger", "-5m:+1h", "somebody-else");
        let ca = bed.path("host_ca");
        tool(
            "ssh-keygen",
            &[
                "-q",
                "-s",
                &ca,
                "-I",
                "the host",
                "-h",
                "-n",
                "127.0.0.1",
                "-V",
                "-5m:+1h",
                &bed.path("host.pub"),
            ],
        );
        bed
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.dir.path().join(name).to_str().unwrap().to_owned()
    }

    fn sign_user(&self, name: &str, validity: &str, principal: &str) {
        let (ca, public) = (self.path("user_ca"), self.path(&format!("{name}.pub")));
        tool(
            "ssh-keygen",
            &[
                "-q", "-s", &ca, "-I", name, "-n", principal, "-V", validity, &public,
            ],
        );
    }

    pub(crate) fn public(&self, name: &str) -> PublicKey {
        PublicKey::from_openssh(&std::fs::read_to_string(self.path(&format!("{name}.pub"))).unwrap()).unwrap()
    }

    /// Starts a server with `extra` lines of configuration and waits until it listens.
    pub(crate) fn start(&mut self, extra: &str) -> u16 {
        if self.user == "root" {
            std::fs::create_dir_all("/run/sshd").unwrap();
        }
        let port = TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap()
            .port();
        let config = self.path(&format!("sshd_{port}.conf"));
        let startups = if extra.contains("MaxStartups") {
            ""
        } else {
            "MaxStartups 200\n"
        };
        let text = format!(
            "{extra}\n{startups}Port {port}\nListenAddress 127.0.0.1\nPidFile none\nStrictModes no\nUsePAM no\n\
             HostKey {host}\nHostKey {ecdsa}\nHostCertificate {host}-cert.pub\nTrustedUserCAKeys {ca}.pub\n\
             AuthorizedKeysFile none\nPasswordAuthentication no\nKbdInteractiveAuthentication no\n\
             PermitRootLogin yes\nLogLevel VERBOSE\nSetEnv HOME={home}\n",
            home = self.dir.path().display(),
            host = self.path("host"),
            ecdsa = self.path("host_ecdsa"),
            ca = self.path("user_ca"),
        );
        std::fs::write(&config, text).unwrap();
        let log = std::fs::File::create(self.path(&format!("sshd_{port}.log"))).unwrap();
        let server = Command::new(SSHD)
            .args(["-D", "-e", "-f", &config])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        self.servers.push(server);
        let begun = Instant::now();
        while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(begun.elapsed() < Duration::from_secs(10), "sshd does not listen");
            std::thread::sleep(Duration::from_millis(20));
        }
        port
    }

    /// A hop to `port` with the identity of this name.
    pub(crate) fn hop(&self, port: u16, identity: &str) -> Hop {
        hop(port, &self.user, vec![PathBuf::from(self.path(identity))])
    }

    /// The keys that are really the servers'.
    pub(crate) fn trusting(&self) -> TestHostKeys {
        TestHostKeys {
            keys: vec![self.public("host")],
            ..TestHostKeys::default()
        }
    }

    pub(crate) async fn connect(&self, hops: Vec<Hop>) -> SshTransport {
        match connect(hops, self.trusting(), &Settings::default()).await {
            Ok(transport) => transport,
            Err(error) => panic!("{error}"),
        }
    }
}

pub(crate) fn hop(port: u16, user: &str, identity_files: Vec<PathBuf>) -> Hop {
    Hop {
        alias: format!("port-{port}"),
        host: "127.0.0.1".to_owned(),
        port,
        user: user.to_owned(),
        host_key_alias: None,
        identity_files,
        identities_configured: true,
        certificate_files: Vec::new(),
        agent_socket: None,
        identities_only: true,
        known_hosts_files: Vec::new(),
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

pub(crate) async fn connect(
    hops: Vec<Hop>,
    host_keys: TestHostKeys,
    settings: &Settings,
) -> Result<SshTransport, DialError> {
    let trust = Trust {
        host_keys: Arc::new(host_keys),
        credentials: Arc::new(FileAndAgent::new(Arc::new(SystemClock))),
    };
    SshTransport::connect(
        &Route {
            hops,
            remarks: Vec::new(),
        },
        &trust,
        settings,
    )
    .await
}

/// As much of known_hosts as the client has to be tested with.
#[derive(Debug, Clone, Default)]
pub(crate) struct TestHostKeys {
    pub(crate) keys: Vec<PublicKey>,
    pub(crate) authorities: Vec<Fingerprint>,
    pub(crate) revoked: Vec<PublicKey>,
}

impl HostKeys for TestHostKeys {
    fn known(&self, _hop: &Hop) -> Known {
        let algorithms: Vec<Algorithm> = self.keys.iter().map(PublicKey::algorithm).collect();
        Known {
            algorithms,
            authority: !self.authorities.is_empty(),
        }
    }

    fn check(&self, hop: &Hop, presented: &PublicKeyOrCertificate) -> Result<(), HostKeyProblem> {
        let key = presented.public_key();
        let is = |other: &PublicKey| other.key_data() == key.key_data();
        let problem = |kind| {
            let text = format!(
                "{} is {kind:?} for {}",
                key.fingerprint(HashAlg::Sha256),
                hop.alias
            );
            Err(HostKeyProblem { kind, text })
        };
        if self.revoked.iter().any(is) {
            return problem(HostKeyProblemKind::Revoked);
        }
        let now = jiff::Timestamp::now().as_second().unsigned_abs();
        let vouched = |certificate: &Certificate| certificate.validate_at(now, &self.authorities).is_ok();
        match presented.certificate() {
            Some(certificate) if vouched(certificate) => Ok(()),
            Some(_) => problem(HostKeyProblemKind::Certificate),
            None if self.keys.iter().any(is) => Ok(()),
            None if self.keys.is_empty() => problem(HostKeyProblemKind::Unknown),
            None => problem(HostKeyProblemKind::Changed),
        }
    }
}
