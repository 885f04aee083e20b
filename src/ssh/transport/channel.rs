//! A running command: what goes in, what comes out, and how it ended.

use std::fmt;

use async_trait::async_trait;
use bytes::Bytes;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::error::WriteError;
use super::queue::Queued;

/// A running command. The halves may be used from different tasks.
#[derive(Debug)]
pub struct Channel {
    /// Its standard input.
    pub writer: ChannelWriter,
    /// Its output, and its end.
    pub reader: ChannelReader,
}

/// What a command says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// Bytes of standard output.
    Stdout(Bytes),
    /// Bytes of standard error.
    Stderr(Bytes),
    /// The end: all output has been delivered before it, and nothing comes after it.
    Exit(RemoteExit),
}

/// How a command ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RemoteExit {
    /// It exited.
    Code(u32),
    /// It was killed by a signal; the name is without `SIG`.
    Signal(String),
    /// The channel ended with neither: the command may be running, may have succeeded, may have failed.
    Lost {
        /// What is known about the end of the channel.
        reason: String,
    },
}

impl RemoteExit {
    /// Whether this is exit code 0.
    pub fn success(&self) -> bool {
        *self == Self::Code(0)
    }
}

impl fmt::Display for RemoteExit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Code(code) => write!(f, "exit code {code}"),
            Self::Signal(name) => write!(f, "signal {name}"),
            Self::Lost { reason } => write!(f, "lost ({reason})"),
        }
    }
}

/// The backend's end of a command's standard input.
#[async_trait]
pub trait WriteHalf: fmt::Debug + Send {
    /// Writes all of `data`; returns when the transport has taken it, which may be long before the command reads it.
    async fn write(&mut self, data: Bytes) -> Result<(), WriteError>;
    /// Closes standard input.
    async fn eof(&mut self) -> Result<(), WriteError>;
}

/// The standard input of a command. Dropping it closes the input, as [`eof`](Self::eof) does.
pub struct ChannelWriter {
    half: Box<dyn WriteHalf>,
    ended: CancellationToken,
    closed: bool,
}

impl fmt::Debug for ChannelWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChannelWriter")
            .field("half", &self.half)
            .finish_non_exhaustive()
    }
}

impl ChannelWriter {
    /// Puts a backend's half behind the guard that wakes a waiting writer: the backend cancels `ended` as soon as
    /// the command or the connection is over.
    pub fn new(half: Box<dyn WriteHalf>, ended: CancellationToken) -> Self {
        Self {
            half,
            ended,
            closed: false,
        }
    }

    /// Writes all of `data`. Waits while the command does not read (back-pressure), but never longer than the
    /// command and its connection live. Not cancel-safe: a dropped write may have sent a part of `data`.
    ///
    /// # Errors
    /// The command, or its connection, has ended; read on to learn how.
    pub async fn write(&mut self, data: Bytes) -> Result<(), WriteError> {
        if self.closed {
            return Err(WriteError::AfterEof);
        }
        tokio::select! {
            biased;
            () = self.ended.cancelled() => Err(WriteError::Ended),
            done = self.half.write(data) => done,
        }
    }

    /// Closes standard input: the command reads an end of file after what was written.
    ///
    /// # Errors
    /// The command, or its connection, has ended.
    pub async fn eof(&mut self) -> Result<(), WriteError> {
        if self.closed {
            return Ok(());
        }
        self.closed = true;
        tokio::select! {
            biased;
            () = self.ended.cancelled() => Err(WriteError::Ended),
            done = self.half.eof() => done,
        }
    }

    /// Waits until nothing can be written any more because the command, or its connection, has ended.
    pub async fn ended(&self) {
        self.ended.cancelled().await;
    }
}

/// The output of a command.
///
/// Dropping the reader abandons the command: it is sent a KILL signal (to its whole process group, where the server
/// can do that) and its channel is closed. A process that has to outlive the channel must be in a session of its own.
#[derive(Debug)]
pub struct ChannelReader {
    events: mpsc::UnboundedReceiver<Queued>,
    over: bool,
}

impl ChannelReader {
    pub(super) fn new(events: mpsc::UnboundedReceiver<Queued>) -> Self {
        Self { events, over: false }
    }

    /// The next event: any number of `Stdout` and `Stderr`, then exactly one `Exit`, then `None` for ever.
    /// Cancel-safe: a dropped call loses nothing.
    pub async fn next(&mut self) -> Option<Event> {
        if self.over {
            return None;
        }
        let event = match self.events.recv().await {
            Some(queued) => queued.event,
            None => Event::Exit(RemoteExit::Lost {
                reason: "the task that reads the channel is gone".to_owned(),
            }),
        };
        self.over = matches!(event, Event::Exit(_));
        Some(event)
    }
}
