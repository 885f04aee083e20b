//! A ProxyCommand: a local process whose standard streams are the connection.

use std::io;
use std::pin::{Pin, pin};
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};
use tokio::process::{ChildStdin, ChildStdout, Command};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

/// How much of the command's complaints is kept.
const STDERR_LIMIT: usize = 2048;
/// How long to wait for its last words.
const LAST_WORDS: Duration = Duration::from_millis(300);

/// The connection through a ProxyCommand. Dropping it kills the command, after a moment for its last words.
#[derive(Debug)]
pub struct ProxyStream {
    stdin: ChildStdin,
    stdout: ChildStdout,
    /// Dropped with the stream, which ends the command.
    _alive: oneshot::Sender<()>,
}

/// What a ProxyCommand wrote to its standard error.
#[derive(Debug, Clone, Default)]
pub struct Complaints {
    text: Arc<Mutex<Vec<u8>>>,
    /// Cancelled when there will be no more; `None` where there is no command.
    complete: Option<CancellationToken>,
}

impl Complaints {
    /// Waits a moment for the last words of a command that has just ended.
    pub async fn settle(&self) {
        if let Some(complete) = &self.complete {
            let _still_talking = tokio::time::timeout(LAST_WORDS, complete.cancelled()).await;
        }
    }

    /// The text so far, on one line; `None` if there is none.
    pub fn text(&self) -> Option<String> {
        let bytes = self.text.lock().unwrap_or_else(PoisonError::into_inner);
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
        let complete = CancellationToken::new();
        let complaints = Complaints {
            text: Arc::default(),
            complete: Some(complete.clone()),
        };
        let kept = Arc::clone(&complaints.text);
        let (alive, gone) = oneshot::channel::<()>();
        tokio::spawn(async move {
            let mut reading = pin!(async {
                let _complete = complete.drop_guard();
                let mut chunk = [0; 512];
                while let Ok(read @ 1..) = stderr.read(&mut chunk).await {
                    let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
                    let room = STDERR_LIMIT - kept.len().min(STDERR_LIMIT);
                    kept.extend_from_slice(&chunk[..read.min(room)]);
                }
            });
            let mut gone = pin!(gone);
            tokio::select! {
                () = &mut reading => {
                    let _stream_dropped = gone.await;
                }
                _stream_dropped = &mut gone => {
                    let _still_talking = tokio::time::timeout(LAST_WORDS, reading).await;
                }
            }
            drop(child);
        });
        Ok((
            Self {
                stdin,
                stdout,
                _alive: alive,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_last_words_of_a_failing_command_are_kept() {
        let (mut stream, complaints) = ProxyStream::start("echo no way there >&2; exit 1").unwrap();
        assert_eq!(stream.read(&mut [0; 8]).await.unwrap(), 0);
        drop(stream);
        complaints.settle().await;
        assert_eq!(complaints.text().as_deref(), Some("no way there"));
    }
}
