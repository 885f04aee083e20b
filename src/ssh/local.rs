//! The transport to this very machine: for a run on the login node itself and for the `local` runner.

use std::os::unix::process::ExitStatusExt;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use rustix::process::{Pid, Signal};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, ChildStdin, Command};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::transport::{
    Channel, ChannelNotOpened, ChannelWriter, Event, EventQueue, OpenError, Overrun, Peer, READ_BUDGET,
    READ_GRACE, RemoteExit, Transport, WriteError, WriteHalf, event_queue,
};

/// Bytes read from a pipe at a time.
const READ_CHUNK: usize = 64 << 10;

/// Starts commands on this machine by `sh -c`, each in a process group of its own.
#[derive(Debug)]
pub struct LocalTransport {
    closed: CancellationToken,
    grace: Duration,
}

impl Default for LocalTransport {
    fn default() -> Self {
        Self::new()
    }
}

impl LocalTransport {
    /// A transport to this machine; it needs no connection.
    pub fn new() -> Self {
        Self {
            closed: CancellationToken::new(),
            grace: READ_GRACE,
        }
    }
}

#[async_trait]
impl Transport for LocalTransport {
    async fn open(&self, command: &str) -> Result<Channel, OpenError> {
        if self.closed.is_cancelled() {
            return Err(ChannelNotOpened::Closed {
                reason: CLOSED.to_owned(),
            }
            .into());
        }
        let mut child = Command::new("sh")
            .arg("-c")
            .arg(command)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()
            .map_err(ChannelNotOpened::Spawn)?;
        let ended = CancellationToken::new();
        let (queue, reader) = event_queue(READ_BUDGET, self.grace);
        let (sender, receiver) = mpsc::channel(WRITES_QUEUED);
        if let Some(pipe) = child.stdin.take() {
            tokio::spawn(feed(pipe, receiver, ended.clone()));
        }
        tokio::spawn(pump(child, queue, ended.clone(), self.closed.clone()));
        let writer = ChannelWriter::new(Box::new(Stdin { queue: Some(sender) }), ended);
        Ok(Channel { writer, reader })
    }

    fn describe(&self) -> Peer {
        Peer {
            user: String::new(),
            host: "this machine".to_owned(),
            via: Vec::new(),
            facts: Vec::new(),
        }
    }

    fn is_closed(&self) -> bool {
        self.closed.is_cancelled()
    }

    async fn closed(&self) -> String {
        self.closed.cancelled().await;
        CLOSED.to_owned()
    }

    async fn close(&self) {
        self.closed.cancel();
    }
}

const CLOSED: &str = "we closed it";

/// Writes that may wait for the pipe before the writer has to.
const WRITES_QUEUED: usize = 4;

#[derive(Debug)]
struct Stdin {
    queue: Option<mpsc::Sender<Bytes>>,
}

#[async_trait]
impl WriteHalf for Stdin {
    async fn write(&mut self, data: Bytes) -> Result<(), WriteError> {
        let queue = self.queue.as_ref().ok_or(WriteError::AfterEof)?;
        queue.send(data).await.map_err(|_| WriteError::Ended)
    }

    async fn eof(&mut self) -> Result<(), WriteError> {
        self.queue = None;
        Ok(())
    }
}

/// Moves input into the pipe until the writer closes it or the command ends; a broken pipe ends the queue, which the
/// writer notices.
async fn feed(mut pipe: ChildStdin, mut queue: mpsc::Receiver<Bytes>, ended: CancellationToken) {
    let copy = async {
        while let Some(data) = queue.recv().await {
            pipe.write_all(&data).await?;
        }
        std::io::Result::Ok(())
    };
    tokio::select! {
        () = ended.cancelled() => {}
        _broken = copy => {}
    }
}

/// Moves output into the queue, waits for the end, and kills the group when nobody wants the output any more.
async fn pump(mut child: Child, queue: EventQueue, ended: CancellationToken, closed: CancellationToken) {
    let group = child.id().and_then(|id| Pid::from_raw(id.cast_signed()));
    let _end_writer = ended.clone().drop_guard();
    let stdout = child.stdout.take();
    let stderr = child.stderr.take();
    let moved = async {
        tokio::try_join!(
            drain(stdout, &queue, Event::Stdout),
            drain(stderr, &queue, Event::Stderr),
            async {
                let status = child.wait().await;
                ended.cancel();
                Ok(status)
            }
        )
    };
    let exit = tokio::select! {
        moved = moved => match moved {
            Ok(((), (), Ok(status))) => exit_of(status),
            Ok(((), (), Err(error))) => RemoteExit::Lost { reason: format!("cannot wait for the command: {error}") },
            Err(overrun) => RemoteExit::Lost { reason: format!("{overrun}, so the command was killed") },
        },
        () = queue.dropped() => RemoteExit::Lost { reason: Overrun::Dropped.to_string() },
        () = closed.cancelled() => RemoteExit::Lost { reason: CLOSED.to_owned() },
    };
    if let (RemoteExit::Lost { .. }, Some(group)) = (&exit, group) {
        // It may be gone already, and then there is nothing to kill.
        let _gone = rustix::process::kill_process_group(group, Signal::KILL);
        let _reaped = child.wait().await;
    }
    queue.finish(exit);
}

async fn drain(
    pipe: Option<impl AsyncRead + Unpin>,
    queue: &EventQueue,
    event: fn(Bytes) -> Event,
) -> Result<(), Overrun> {
    let Some(mut pipe) = pipe else { return Ok(()) };
    loop {
        let mut chunk = BytesMut::with_capacity(READ_CHUNK);
        match pipe.read_buf(&mut chunk).await {
            // A read error of a pipe is an end like any other: the exit status says what became of the command.
            Ok(0) | Err(_) => return Ok(()),
            Ok(_) => queue.push(event(chunk.freeze())).await?,
        }
    }
}

fn exit_of(status: ExitStatus) -> RemoteExit {
    if let Some(code) = status.code() {
        return RemoteExit::Code(code.cast_unsigned());
    }
    match status.signal() {
        Some(number) => RemoteExit::Signal(signal_name(number)),
        None => RemoteExit::Lost {
            reason: format!("an end of an unknown kind: {status}"),
        },
    }
}

/// The name of a signal as SSH writes it (RFC 4254, 6.10), without `SIG`; the number where that has no name.
fn signal_name(number: i32) -> String {
    let name = match number {
        1 => "HUP",
        2 => "INT",
        3 => "QUIT",
        4 => "ILL",
        6 => "ABRT",
        7 => "BUS",
        8 => "FPE",
        9 => "KILL",
        10 => "USR1",
        11 => "SEGV",
        12 => "USR2",
        13 => "PIPE",
        14 => "ALRM",
        15 => "TERM",
        24 => "XCPU",
        _ => return number.to_string(),
    };
    name.to_owned()
}
