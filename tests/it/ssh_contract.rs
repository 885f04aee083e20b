//! What every transport promises, run against each of them.

use std::time::{Duration, Instant};

use bytes::Bytes;
use sha2::{Digest, Sha256};
use vibesys::ssh::local::LocalTransport;
use vibesys::ssh::transport::{
    Channel, Event, Output, RemoteExit, RunError, RunLimits, Transport, WriteError, run,
};

const MEGABYTE: usize = 1 << 20;

/// Runs every case. `kills` says whether the server passes signals on: sshd does not to a process of root.
pub(crate) async fn fulfils_the_contract(transport: &dyn Transport, kills: bool) {
    exit_codes_and_streams(transport).await;
    an_early_exit_ends_the_writer(transport).await;
    a_signal_is_named(transport).await;
    fifty_megabytes_each_way(transport).await;
    a_background_child_keeps_the_output_open(transport).await;
    a_detached_child_does_not(transport).await;
    a_deadline_ends_it(transport, kills).await;
    output_is_bounded(transport).await;
    an_unread_command_stops_nobody(transport).await;
    a_dropped_writer_closes_the_input(transport).await;
    a_conversation(transport).await;
    many_at_once(transport).await;
}

pub(crate) async fn ask(transport: &dyn Transport, command: &str, input: &[u8]) -> Output {
    let limits = RunLimits {
        deadline: Duration::from_secs(60),
        stdout: 64 * MEGABYTE,
        stderr: MEGABYTE,
    };
    run(transport, command, Bytes::copy_from_slice(input), limits)
        .await
        .unwrap_or_else(|error| panic!("{command}: {error}"))
}

async fn exit_codes_and_streams(transport: &dyn Transport) {
    for code in [0_u32, 1, 7, 255] {
        let output = ask(transport, &format!("echo out; echo err >&2; exit {code}"), b"").await;
        assert_eq!(output.exit, RemoteExit::Code(code));
        assert_eq!(
            (output.stdout.as_slice(), output.stderr.as_slice()),
            (&b"out\n"[..], &b"err\n"[..])
        );
    }
    let closed_first = ask(transport, "exec >&- 2>&-; sleep 0.2; exit 3", b"").await;
    assert_eq!(
        closed_first.exit,
        RemoteExit::Code(3),
        "the code may come after the end of the output"
    );
}

async fn an_early_exit_ends_the_writer(transport: &dyn Transport) {
    let input = vec![b'x'; 20 * MEGABYTE];
    let output = ask(transport, "head -c 1000 | wc -c; echo quota >&2; exit 7", &input).await;
    assert_eq!(output.exit, RemoteExit::Code(7));
    assert_eq!(output.stderr, b"quota\n");
    let Channel {
        mut writer,
        mut reader,
    } = transport.open("exit 0").await.unwrap();
    while reader.next().await.is_some() {}
    let written = writer.write(Bytes::from_static(b"late")).await;
    assert_eq!(written, Err(WriteError::Ended));
}

async fn a_signal_is_named(transport: &dyn Transport) {
    let output = ask(transport, "echo before; kill -TERM $$; sleep 5", b"").await;
    assert_eq!(output.exit, RemoteExit::Signal("TERM".to_owned()));
    assert_eq!(output.stdout, b"before\n");
}

async fn fifty_megabytes_each_way(transport: &dyn Transport) {
    let mut input = Vec::with_capacity(50 * MEGABYTE);
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    while input.len() < 50 * MEGABYTE {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        input.extend_from_slice(&state.to_le_bytes());
    }
    let output = ask(transport, "cat", &input).await;
    assert_eq!(output.exit, RemoteExit::Code(0));
    assert_eq!(output.stdout.len(), input.len());
    assert_eq!(Sha256::digest(&output.stdout), Sha256::digest(&input));
    let sum = ask(transport, "sha256sum", &input).await;
    let wanted = vibesys::ids::hex(&Sha256::digest(&input));
    assert!(String::from_utf8_lossy(&sum.stdout).starts_with(&wanted));
}

async fn a_background_child_keeps_the_output_open(transport: &dyn Transport) {
    let begun = Instant::now();
    let output = ask(transport, "(sleep 1; echo late) & echo early; exit 5", b"").await;
    assert_eq!(output.stdout, b"early\nlate\n");
    assert_eq!(output.exit, RemoteExit::Code(5));
    assert!(begun.elapsed() >= Duration::from_secs(1));
}

async fn a_detached_child_does_not(transport: &dyn Transport) {
    let begun = Instant::now();
    let output = ask(
        transport,
        "setsid sleep 60 </dev/null >/dev/null 2>&1 & echo gone",
        b"",
    )
    .await;
    assert_eq!(output.stdout, b"gone\n");
    assert!(begun.elapsed() < Duration::from_secs(30));
}

async fn a_deadline_ends_it(transport: &dyn Transport, kills: bool) {
    let limits = RunLimits {
        deadline: Duration::from_millis(800),
        ..RunLimits::default()
    };
    let error = run(transport, "echo $$; exec sleep 30", Bytes::new(), limits)
        .await
        .unwrap_err();
    let RunError::Deadline { so_far, .. } = error else {
        panic!("{error}")
    };
    let process = String::from_utf8(so_far.stdout).unwrap();
    let process = process.trim();
    assert!(!process.is_empty(), "what was said by the deadline is kept");
    for _ in 0..if kills { 50 } else { 0 } {
        tokio::time::sleep(Duration::from_millis(100)).await;
        if !ask(transport, &format!("kill -0 {process}"), b"")
            .await
            .exit
            .success()
        {
            return;
        }
    }
    assert!(!kills, "process {process} still lives");
    ask(transport, &format!("kill {process}"), b"").await;
}

async fn output_is_bounded(transport: &dyn Transport) {
    let limits = RunLimits {
        stdout: 1000,
        ..RunLimits::default()
    };
    let output = run(transport, "head -c 300000 /dev/zero", Bytes::new(), limits)
        .await
        .unwrap();
    assert_eq!((output.stdout.len(), output.stdout_dropped), (1000, 299_000));
    assert!(output.exit.success());
}

async fn an_unread_command_stops_nobody(transport: &dyn Transport) {
    let unread = transport.open("head -c 40000000 /dev/zero").await.unwrap();
    tokio::time::sleep(Duration::from_millis(500)).await;
    let begun = Instant::now();
    assert_eq!(ask(transport, "echo here", b"").await.stdout, b"here\n");
    assert!(begun.elapsed() < Duration::from_secs(30));
    let Channel {
        writer: _writer,
        mut reader,
    } = unread;
    let mut bytes = 0;
    while let Some(event) = reader.next().await {
        match event {
            Event::Stdout(data) => bytes += data.len(),
            Event::Stderr(data) => panic!("{}", String::from_utf8_lossy(&data)),
            Event::Exit(exit) => assert_eq!(exit, RemoteExit::Code(0)),
        }
    }
    assert_eq!(bytes, 40_000_000);
}

async fn a_dropped_writer_closes_the_input(transport: &dyn Transport) {
    let Channel {
        mut writer,
        mut reader,
    } = transport.open("cat; echo end").await.unwrap();
    writer.write(Bytes::from_static(b"some\n")).await.unwrap();
    drop(writer);
    let mut said = Vec::new();
    while let Some(event) = reader.next().await {
        if let Event::Stdout(data) = event {
            said.extend_from_slice(&data);
        }
    }
    assert_eq!(said, b"some\nend\n");
}

async fn a_conversation(transport: &dyn Transport) {
    let Channel {
        mut writer,
        mut reader,
    } = transport.open("exec bash --noprofile --norc -s").await.unwrap();
    for number in 0..20 {
        writer
            .write(Bytes::from(format!("echo {number}\n")))
            .await
            .unwrap();
        let wanted = format!("{number}\n");
        let mut said = Vec::new();
        while said.len() < wanted.len() {
            match reader.next().await {
                Some(Event::Stdout(data)) => said.extend_from_slice(&data),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(said, wanted.as_bytes());
    }
    writer.eof().await.unwrap();
    assert_eq!(
        writer.write(Bytes::from_static(b"x")).await,
        Err(WriteError::AfterEof)
    );
    assert_eq!(reader.next().await, Some(Event::Exit(RemoteExit::Code(0))));
    assert_eq!(reader.next().await, None);
}

async fn many_at_once(transport: &dyn Transport) {
    let runs = (0..20).map(|number| async move {
        let output = ask(transport, &format!("sleep 0.1; echo {number}"), b"").await;
        assert_eq!(output.stdout, format!("{number}\n").as_bytes());
    });
    futures_all(runs).await;
}

/// Drives all futures on this task.
pub(crate) async fn futures_all<F: Future<Output = ()>>(all: impl Iterator<Item = F>) {
    let mut all: Vec<_> = all.map(|one| Some(Box::pin(one))).collect();
    std::future::poll_fn(|cx| {
        let mut pending = false;
        for slot in &mut all {
            if let Some(future) = slot {
                match future.as_mut().poll(cx) {
                    std::task::Poll::Ready(()) => *slot = None,
                    std::task::Poll::Pending => pending = true,
                }
            }
        }
        if pending {
            std::task::Poll::Pending
        } else {
            std::task::Poll::Ready(())
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_local_transport_fulfils_the_contract() {
    let transport = LocalTransport::new();
    fulfils_the_contract(&transport, true).await;
    transport.close().await;
    assert!(transport.is_closed());
    assert!(transport.open("true").await.unwrap_err().never_ran());
}
