//! The SSH transport against real servers.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use bytes::Bytes;
use russh::keys::HashAlg;
use vibesys::ssh::client::{Settings, SshTransport};
use vibesys::ssh::error::{DialReason, Phase};
use vibesys::ssh::host_key::HostKeyProblemKind;
use vibesys::ssh::transport::{
    Channel, ChannelNotOpened, Event, OpenError, RemoteExit, RunLimits, Transport, WriteError, run,
};

use crate::ssh_bed::{Bed, TestHostKeys, available, connect};
use crate::ssh_contract::{ask, fulfils_the_contract, futures_all};

macro_rules! needs_sshd {
    () => {
        if !available() {
            eprintln!("skipped: there is no /usr/sbin/sshd");
            return;
        }
    };
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_direct_connection_fulfils_the_contract() {
    needs_sshd!();
    let mut bed = Bed::new();
    let port = bed.start("");
    let transport = bed.connect(vec![bed.hop(port, "id")]).await;
    fulfils_the_contract(&transport, bed.user != "root").await;
    let peer = transport.describe();
    assert_eq!(peer.to_string(), format!("{}@port-{port}", bed.user));
    assert!(
        peer.facts
            .iter()
            .any(|(name, value)| name.ends_with("cipher") && value == "aes128-gcm@openssh.com")
    );
    transport.close().await;
    assert!(transport.is_closed());
    assert!(transport.open("true").await.unwrap_err().never_ran());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_through_a_jump_host_fulfils_the_contract() {
    needs_sshd!();
    let mut bed = Bed::new();
    let (jump, target) = (bed.start(""), bed.start(""));
    let transport = bed
        .connect(vec![bed.hop(jump, "id"), bed.hop(target, "id_rsa")])
        .await;
    fulfils_the_contract(&transport, bed.user != "root").await;
    assert_eq!(transport.describe().via.len(), 1);
    transport.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn up_and_down_at_once_through_the_jump_host_do_not_wedge() {
    needs_sshd!();
    let mut bed = Bed::new();
    let (jump, target) = (bed.start(""), bed.start(""));
    let transport = bed
        .connect(vec![bed.hop(jump, "id"), bed.hop(target, "id")])
        .await;
    let size = 60 << 20;
    let input = vec![7_u8; size];
    let all = (0..4).map(|number| {
        let (transport, input) = (&transport, &input);
        async move {
            if number % 2 == 0 {
                assert!(ask(transport, "cat >/dev/null", input).await.exit.success());
            } else {
                let output = ask(transport, &format!("head -c {size} /dev/zero"), b"").await;
                assert_eq!(output.stdout.len(), size);
            }
        }
    });
    tokio::time::timeout(Duration::from_secs(60), futures_all(all))
        .await
        .expect("it wedged");
}

/// The server's process of this connection.
async fn server_process(transport: &SshTransport) -> String {
    let output = ask(transport, "echo $PPID", b"").await;
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

fn signal(name: &str, process: &str) {
    assert!(
        Command::new("kill")
            .args([name, process])
            .status()
            .unwrap()
            .success()
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_server_wakes_writers_and_loses_commands() {
    needs_sshd!();
    let mut bed = Bed::new();
    let (jump, target) = (bed.start(""), bed.start(""));
    let transport = bed
        .connect(vec![bed.hop(jump, "id"), bed.hop(target, "id")])
        .await;
    let process = server_process(&transport).await;
    // Nobody reads this input, so the writer waits for window.
    let Channel {
        mut writer,
        mut reader,
    } = transport.open("sleep 60").await.unwrap();
    let writing = tokio::spawn(async move {
        loop {
            if let Err(error) = writer.write(Bytes::from(vec![0; 1 << 20])).await {
                return error;
            }
        }
    });
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert!(!writing.is_finished());
    signal("-KILL", &process);
    let begun = Instant::now();
    assert_eq!(writing.await.unwrap(), WriteError::Ended);
    assert!(matches!(
        reader.next().await,
        Some(Event::Exit(RemoteExit::Lost { .. }))
    ));
    assert!(begun.elapsed() < Duration::from_secs(20));
    let reason = tokio::time::timeout(Duration::from_secs(20), transport.closed())
        .await
        .unwrap();
    assert!(!reason.is_empty());
    assert!(transport.is_closed());
    let error = transport.open("true").await.unwrap_err();
    assert!(
        matches!(error, OpenError::NotOpened(ChannelNotOpened::Closed { .. })),
        "{error}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stopped_server_is_noticed_idle_and_in_the_middle_of_a_write() {
    needs_sshd!();
    let mut bed = Bed::new();
    let port = bed.start("");
    for stuck in [false, true] {
        let settings = Settings {
            alive_interval: Duration::from_secs(1),
            alive_count: 2,
            stuck_timeout: Duration::from_secs(4),
            ..Settings::default()
        };
        let transport = connect(vec![bed.hop(port, "id")], bed.trusting(), &settings)
            .await
            .unwrap();
        let process = server_process(&transport).await;
        let mut writers = Vec::new();
        if stuck {
            for _ in 0..4 {
                let Channel { mut writer, reader } = transport.open("cat >/dev/null").await.unwrap();
                writers.push(tokio::spawn(async move {
                    let _reader = reader;
                    while writer.write(Bytes::from(vec![0; 1 << 20])).await.is_ok() {}
                }));
            }
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
        signal("-STOP", &process);
        let begun = Instant::now();
        let reason = tokio::time::timeout(Duration::from_secs(15), transport.closed()).await;
        signal("-KILL", &process);
        assert!(
            reason.is_ok(),
            "not noticed in {:?}, stuck: {stuck}",
            begun.elapsed()
        );
        for writer in writers {
            tokio::time::timeout(Duration::from_secs(20), writer)
                .await
                .expect("a writer hangs")
                .unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refused_sessions_are_learned_from() {
    needs_sshd!();
    let mut bed = Bed::new();
    let port = bed.start("MaxSessions 2");
    let transport = bed.connect(vec![bed.hop(port, "id")]).await;
    let runs = (0..12).map(|_| async {
        assert!(ask(&transport, "sleep 0.3", b"").await.exit.success());
    });
    futures_all(runs).await;
    assert_eq!(transport.session_limit(), 2);

    let _one = transport.open("sleep 30").await.unwrap();
    let _two = transport.open("sleep 30").await.unwrap();
    let settings = Settings {
        slot_wait: Duration::from_millis(300),
        ..Settings::default()
    };
    let other = connect(vec![bed.hop(port, "id")], bed.trusting(), &settings)
        .await
        .unwrap();
    let _three = other.open("sleep 30").await.unwrap();
    let _four = other.open("sleep 30").await.unwrap();
    let error = other.open("true").await.unwrap_err();
    assert!(error.never_ran(), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_reader_is_given_up_and_the_others_go_on() {
    needs_sshd!();
    let mut bed = Bed::new();
    let port = bed.start("");
    let settings = Settings {
        read_budget: 1 << 20,
        read_grace: Duration::from_secs(1),
        ..Settings::default()
    };
    let transport = connect(vec![bed.hop(port, "id")], bed.trusting(), &settings)
        .await
        .unwrap();
    let Channel {
        writer: _writer,
        mut reader,
    } = transport.open("cat /dev/zero").await.unwrap();
    tokio::time::sleep(Duration::from_millis(300)).await;
    let begun = Instant::now();
    assert_eq!(ask(&transport, "echo on", b"").await.stdout, b"on\n");
    assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
    // Nobody has read for longer than the grace.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let mut last = None;
    while let Some(event) = reader.next().await {
        last = Some(event);
    }
    assert!(
        matches!(last, Some(Event::Exit(RemoteExit::Lost { .. }))),
        "{last:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn host_keys_and_host_certificates_are_judged() {
    needs_sshd!();
    let mut bed = Bed::new();
    let port = bed.start("");
    let with = |keys: TestHostKeys| connect(vec![bed.hop(port, "id")], keys, &SETTINGS);
    let kind = |result: Result<SshTransport, _>| {
        let error: vibesys::ssh::error::DialError = result.unwrap_err();
        assert_eq!(error.phase, Phase::Handshake);
        assert!(!error.hint().is_empty());
        let DialReason::HostKey(problem) = &*error.reason else {
            panic!("{error}")
        };
        problem.kind
    };
    let none = TestHostKeys::default();
    assert_eq!(kind(with(none.clone()).await), HostKeyProblemKind::Unknown);
    let wrong = TestHostKeys {
        keys: vec![bed.public("id")],
        ..none.clone()
    };
    assert_eq!(kind(with(wrong).await), HostKeyProblemKind::Changed);
    let revoked = TestHostKeys {
        revoked: vec![bed.public("host")],
        ..bed.trusting()
    };
    assert_eq!(kind(with(revoked).await), HostKeyProblemKind::Revoked);
    let ecdsa = TestHostKeys {
        keys: vec![bed.public("host_ecdsa")],
        ..none.clone()
    };
    with(ecdsa)
        .await
        .expect("the algorithm of the known key is asked for first");
    let authority = |name| vec![bed.public(name).fingerprint(HashAlg::Sha256)];
    let right = TestHostKeys {
        authorities: authority("host_ca"),
        ..none.clone()
    };
    let transport = with(right)
        .await
        .expect("a certificate is asked for where an authority is known");
    assert!(
        transport
            .describe()
            .facts
            .iter()
            .any(|(_, value)| value.contains("certificate \"the host\""))
    );
    let other = TestHostKeys {
        authorities: authority("other_ca"),
        ..none
    };
    assert_eq!(kind(with(other).await), HostKeyProblemKind::Certificate);
}

static SETTINGS: std::sync::LazyLock<Settings> = std::sync::LazyLock::new(Settings::default);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refused_credentials_say_what_speaks_against_them() {
    needs_sshd!();
    let mut bed = Bed::new();
    let port = bed.start("");
    let refusal = async |identity: &str| {
        let error = connect(vec![bed.hop(port, identity)], bed.trusting(), &SETTINGS)
            .await
            .unwrap_err();
        assert_eq!(error.phase, Phase::Authenticate);
        error
    };
    let expired = refusal("id_expired").await;
    assert!(
        expired.to_string().contains("\"id_expired\" expired 5 min ago"),
        "{expired}"
    );
    assert!(expired.to_string().contains("publickey"), "{expired}");
    assert!(expired.hint().contains("new certificate"), "{}", expired.hint());
    let stranger = refusal("id_stranger").await;
    assert!(
        stranger.to_string().contains("names `somebody-else`"),
        "{stranger}"
    );
    let plain = refusal("id_plain").await;
    let DialReason::AuthRefused(refused) = &*plain.reason else {
        panic!("{plain}")
    };
    assert!(refused.problems.is_empty());
    assert_eq!(refused.methods, ["publickey"]);
    let nothing = refusal("missing").await;
    assert!(
        matches!(&*nothing.reason, DialReason::NoIdentity { remarks } if remarks.len() == 1),
        "{nothing}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_way_of_holding_a_certificate_works() {
    needs_sshd!();
    let mut bed = Bed::new();
    let port = bed.start("");
    for identity in ["id", "id_rsa"] {
        bed.connect(vec![bed.hop(port, identity)]).await.close().await;
        for with_certificate in [true, false] {
            let socket = bed.path(&format!("agent-{identity}-{with_certificate}"));
            let mut agent = Command::new("ssh-agent")
                .args(["-D", "-a", &socket])
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .spawn()
                .unwrap();
            while std::os::unix::net::UnixStream::connect(&socket).is_err() {
                std::thread::sleep(Duration::from_millis(10));
            }
            let key = bed.path(identity);
            let added = if with_certificate {
                key.clone()
            } else {
                format!("{key}-alone")
            };
            if !with_certificate {
                std::fs::copy(&key, &added).unwrap();
            }
            let status = Command::new("ssh-add")
                .args(["-q", &added])
                .env("SSH_AUTH_SOCK", &socket)
                .status()
                .unwrap();
            assert!(status.success());
            let mut hop = bed.hop(port, identity);
            hop.agent_socket = Some(PathBuf::from(&socket));
            // The private key is nowhere but in the agent.
            hop.identity_files = vec![PathBuf::from(format!("{key}.pub"))];
            if !with_certificate {
                hop.certificate_files = vec![PathBuf::from(format!("{key}-cert.pub"))];
            }
            let outcome = connect(vec![hop], bed.trusting(), &SETTINGS).await;
            agent.kill().unwrap();
            agent.wait().unwrap();
            let transport = outcome.unwrap_or_else(|error| panic!("{identity}, {with_certificate}: {error}"));
            assert!(ask(&transport, "true", b"").await.exit.success());
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_jump_host_that_does_not_pass_us_on_says_why() {
    needs_sshd!();
    let mut bed = Bed::new();
    let (jump, strict) = (bed.start(""), bed.start("AllowTcpForwarding no"));
    let nobody = bed.hop(1, "id");
    let error = connect(
        vec![bed.hop(jump, "id"), nobody.clone()],
        bed.trusting(),
        &SETTINGS,
    )
    .await
    .unwrap_err();
    assert_eq!((error.phase, error.hop.port), (Phase::Forward, 1));
    assert!(
        matches!(&*error.reason, DialReason::Jump { forbidden: false, .. }),
        "{error}"
    );
    assert!(error.to_string().contains("Connection refused"), "{error}");
    let error = connect(
        vec![bed.hop(strict, "id"), nobody.clone()],
        bed.trusting(),
        &SETTINGS,
    )
    .await
    .unwrap_err();
    assert!(
        matches!(&*error.reason, DialReason::Jump { forbidden: true, .. }),
        "{error}"
    );
    let error = connect(vec![nobody], bed.trusting(), &SETTINGS)
        .await
        .unwrap_err();
    assert!(matches!(&*error.reason, DialReason::Refused(_)), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_proxy_command_carries_the_connection() {
    needs_sshd!();
    let mut bed = Bed::new();
    let (jump, target) = (bed.start(""), bed.start(""));
    let mut hop = bed.hop(target, "id");
    hop.proxy_command = Some(format!(
        "ssh -F none -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR -i {} \
         -p {jump} -W 127.0.0.1:{target} {}@127.0.0.1",
        bed.path("id"),
        bed.user,
    ));
    let transport = bed.connect(vec![hop.clone()]).await;
    let limits = RunLimits::default();
    let output = run(&transport, "echo through", Bytes::new(), limits)
        .await
        .unwrap();
    assert_eq!(output.stdout, b"through\n");
    hop.proxy_command = Some("echo no way there >&2; exit 1".to_owned());
    let error = connect(vec![hop], bed.trusting(), &SETTINGS).await.unwrap_err();
    assert!(error.to_string().contains("no way there"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_too_busy_is_quoted() {
    needs_sshd!();
    let mut bed = Bed::new();
    let port = bed.start("MaxStartups 1:100:1");
    // The connection that waited for the server to listen counts for a moment.
    tokio::time::sleep(Duration::from_secs(1)).await;
    // It takes up the one place of a connection that has not logged in.
    let _idle = std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
    tokio::time::sleep(Duration::from_millis(300)).await;
    let error = connect(vec![bed.hop(port, "id")], bed.trusting(), &SETTINGS)
        .await
        .unwrap_err();
    assert!(error.to_string().contains("Exceeded MaxStartups"), "{error}");
    assert!(error.hint().contains("too many connections"), "{}", error.hint());
}
