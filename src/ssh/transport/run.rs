//! One command from start to end, its output collected.

use std::pin::pin;
use std::time::Duration;

use bytes::Bytes;

use super::{Channel, ChannelWriter, Event, OpenError, RemoteExit, Transport, WriteError};

/// Bytes handed to a writer at a time, so that an early end is noticed between them.
const WRITE_CHUNK: usize = 256 << 10;

/// What a collected command may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunLimits {
    /// From the request to the end.
    pub deadline: Duration,
    /// Bytes of standard output that are kept; what is beyond is read, counted and thrown away.
    pub stdout: usize,
    /// The same for standard error.
    pub stderr: usize,
}

impl Default for RunLimits {
    fn default() -> Self {
        Self {
            deadline: Duration::from_secs(60),
            stdout: 4 << 20,
            stderr: 64 << 10,
        }
    }
}

/// A command that came to an end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Output {
    /// The kept part of standard output.
    pub stdout: Vec<u8>,
    /// The kept part of standard error.
    pub stderr: Vec<u8>,
    /// Bytes of standard output that were thrown away.
    pub stdout_dropped: u64,
    /// Bytes of standard error that were thrown away.
    pub stderr_dropped: u64,
    /// How it ended.
    pub exit: RemoteExit,
}

/// Why there is no [`Output`].
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// It was not started, or nobody knows whether it was.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// It had not ended at the deadline; it was sent a KILL, so how far it came is not known.
    #[error("the command had not ended after {:.1} s", .after.as_secs_f64())]
    Deadline {
        /// The deadline.
        after: Duration,
        /// What it had said by then; the exit in it is `Lost`.
        so_far: Box<Output>,
    },
}

/// Runs `command` with `stdin` to its end. Input and output move at the same time, so neither can block the other,
/// and an end of the command or of the connection ends both.
///
/// # Errors
/// The command could not be started, or did not end in time. A command that fails is no error here.
pub async fn run(
    transport: &dyn Transport,
    command: &str,
    stdin: Bytes,
    limits: RunLimits,
) -> Result<Output, RunError> {
    let mut output = Output {
        stdout: Vec::new(),
        stderr: Vec::new(),
        stdout_dropped: 0,
        stderr_dropped: 0,
        exit: RemoteExit::Lost {
            reason: "it had not ended at the deadline".to_owned(),
        },
    };
    let collected = tokio::time::timeout(limits.deadline, async {
        let channel = transport.open(command).await?;
        collect(channel, stdin, limits, &mut output).await;
        Ok::<(), OpenError>(())
    })
    .await;
    match collected {
        Ok(done) => done.map(|()| output).map_err(RunError::Open),
        Err(_) => Err(RunError::Deadline {
            after: limits.deadline,
            so_far: Box::new(output),
        }),
    }
}

async fn collect(channel: Channel, stdin: Bytes, limits: RunLimits, output: &mut Output) {
    let Channel {
        mut writer,
        mut reader,
    } = channel;
    let mut writing = pin!(feed(&mut writer, stdin));
    let mut fed = false;
    loop {
        let event = tokio::select! {
            event = reader.next() => event,
            // An error only means that the command reads no more; its end says the rest.
            _written = &mut writing, if !fed => {
                fed = true;
                continue;
            }
        };
        match event {
            Some(Event::Stdout(data)) => {
                output.stdout_dropped += keep(&mut output.stdout, &data, limits.stdout);
            }
            Some(Event::Stderr(data)) => {
                output.stderr_dropped += keep(&mut output.stderr, &data, limits.stderr);
            }
            Some(Event::Exit(exit)) => {
                output.exit = exit;
                return;
            }
            None => return,
        }
    }
}

async fn feed(writer: &mut ChannelWriter, mut stdin: Bytes) -> Result<(), WriteError> {
    while !stdin.is_empty() {
        writer.write(stdin.split_to(stdin.len().min(WRITE_CHUNK))).await?;
    }
    writer.eof().await
}

/// Appends what fits and returns how much did not.
fn keep(kept: &mut Vec<u8>, data: &[u8], limit: usize) -> u64 {
    let (fits, rest) = data.split_at(data.len().min(limit.saturating_sub(kept.len())));
    kept.extend_from_slice(fits);
    rest.len() as u64
}
