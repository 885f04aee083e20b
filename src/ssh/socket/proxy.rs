//! A ProxyCommand: a local process whose standard streams are the connection.

use std::io;
use std::pin::Pin;
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

/// How much of the command's complaints is kept.
const STDERR_LIMIT: usize = 2048;

/// The connection through a ProxyCommand. Dropping it kills the command.
#[derive(Debug)]
pub struct ProxyStream {
    stdin: ChildStdin,
    stdout: ChildStdout,
    _child: Child,
}

/// What a ProxyCommand wrote to its standard error.
#[derive(Debug, Clone, Default)]
pub struct Complaints(Arc<Mutex<Vec<u8>>>);

impl Complaints {
    /// The text so far, on one line; `None` if there is none.
    pub fn text(&self) -> Option<String> {
        let bytes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let text = String::from_utf8_lossy(&bytes);
        let words: Vec<&str> = text.split_whitespace().collect();
        (!words.is_empty()).then(|| words.join(" "))
    }
}

impl ProxyStream {
    /// Starts `command` as ssh does: by a shell that it replaces.
    ///
    /// # Errors
    /// The shell cannot be started. A command that fails shows by the end of the stream.
    pub fn start(command: &str) -> io::Result<(Self, Complaints)> {
        let mut child = Command::new("sh")
            .arg("-c")
            .arg(format!("exec {command}"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let missing = || io::Error::other("a standard stream of the command is missing");
        let stdin = child.stdin.take().ok_or_else(missing)?;
        let stdout = child.stdout.take().ok_or_else(missing)?;
        let mut stderr = child.stderr.take().ok_or_else(missing)?;
        let complaints = Complaints::default();
        let kept = Arc::clone(&complaints.0);
        tokio::spawn(async move {
            let mut chunk = [0; 512];
            while let Ok(read @ 1..) = stderr.read(&mut chunk).await {
                let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
                let room = STDERR_LIMIT - kept.len().min(STDERR_LIMIT);
                kept.extend_from_slice(&chunk[..read.min(room)]);
            }
        });
        Ok((
            Self {
                stdin,
                stdout,
                _child: child,
            },
            complaints,
        ))
    }
}

impl AsyncRead for ProxyStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stdout).poll_read(cx, buf)
    }
}

impl AsyncWrite for ProxyStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stdin).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stdin).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stdin).poll_shutdown(cx)
    }
}
