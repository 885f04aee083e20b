//! What every hop's stream has in common, whatever carries it: it can be cut, and its beginning is kept.
//!
//! A server that turns a connection away before the key exchange can only do so in plain text ("Exceeded MaxStartups",
//! "Not allowed at this time"), on lines before its version (RFC 4253, 4.2). The library beneath skips these lines, so
//! this wrapper keeps them for the error message.

use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use super::Stream;

/// How much is kept.
const LIMIT: usize = 1024;

/// The beginning of what a server sent: shared by the stream and whoever has to explain a failure.
#[derive(Debug, Clone, Default)]
pub struct Greeting(Arc<Mutex<Vec<u8>>>);

impl Greeting {
    /// The server's version line, once it has been sent.
    pub fn version(&self) -> Option<String> {
        self.lines().into_iter().find(|line| line.starts_with("SSH-"))
    }

    /// The lines before the version, as one text; `None` if there is none.
    pub fn text(&self) -> Option<String> {
        let lines: Vec<String> = self
            .lines()
            .into_iter()
            .take_while(|line| !line.starts_with("SSH-"))
            .collect();
        let text = lines.join(" ");
        (!text.trim().is_empty()).then(|| text.trim().to_owned())
    }

    fn lines(&self) -> Vec<String> {
        let bytes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&bytes)
            .lines()
            .map(|line| line.chars().filter(|c| !c.is_control()).collect())
            .collect()
    }

    fn record(&self, data: &[u8]) -> bool {
        let mut bytes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let room = LIMIT - bytes.len().min(LIMIT);
        bytes.extend_from_slice(&data[..data.len().min(room)]);
        let version = bytes.starts_with(b"SSH-") || bytes.windows(5).any(|window| window == b"\nSSH-");
        bytes.len() < LIMIT && !(version && bytes.ends_with(b"\n"))
    }
}

/// The stream of one hop. Its first bytes are kept in a [`Greeting`], and `cut` ends it at once, whatever it waits for:
/// the library beneath has no time limits of its own and goes on by itself when a caller gives up.
pub struct HopStream {
    inner: Box<dyn Stream>,
    greeting: Greeting,
    recording: bool,
    cut: Pin<Box<WaitForCancellationFutureOwned>>,
}

impl fmt::Debug for HopStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HopStream")
            .field("greeting", &self.greeting)
            .finish_non_exhaustive()
    }
}

impl HopStream {
    /// Records the beginning of `inner` in `greeting` and ends it when `cut` is cancelled.
    pub fn new(inner: Box<dyn Stream>, greeting: Greeting, cut: CancellationToken) -> Self {
        Self {
            inner,
            greeting,
            recording: true,
            cut: Box::pin(cut.cancelled_owned()),
        }
    }

    fn poll_cut(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        match self.cut.as_mut().poll(cx) {
            Poll::Ready(()) => Err(io::Error::new(
                io::ErrorKind::ConnectionAborted,
                "we gave up on it",
            )),
            Poll::Pending => Ok(()),
        }
    }
}

impl AsyncRead for HopStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        if Pin::new(&mut self.inner).poll_read(cx, buf)?.is_pending() {
            self.poll_cut(cx)?;
            return Poll::Pending;
        }
        if self.recording {
            self.recording = self.greeting.record(&buf.filled()[before..]);
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for HopStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.inner).poll_write(cx, buf);
        if written.is_pending() {
            self.poll_cut(cx)?;
        }
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncReadExt;

    fn greeted(text: &'static str) -> Greeting {
        let greeting = Greeting::default();
        for byte in text.as_bytes().chunks(1) {
            if !greeting.record(byte) {
                break;
            }
        }
        greeting
    }

    #[test]
    fn lines_before_the_version_are_kept() {
        let greeting = greeted("Exceeded MaxStartups\r\nplease wait\r\n");
        assert_eq!(
            greeting.text().as_deref(),
            Some("Exceeded MaxStartups please wait")
        );
        assert_eq!(greeting.version(), None);

        let greeting = greeted("SSH-2.0-OpenSSH_9.2p1\r\n\0\0\x05");
        assert_eq!(greeting.text(), None);
        assert_eq!(greeting.version().as_deref(), Some("SSH-2.0-OpenSSH_9.2p1"));
    }

    #[tokio::test]
    async fn cutting_ends_a_waiting_read() {
        let (_silent, near) = tokio::io::duplex(64);
        let cut = CancellationToken::new();
        let mut stream = HopStream::new(Box::new(near), Greeting::default(), cut.clone());
        let read = tokio::spawn(async move { stream.read(&mut [0; 8]).await });
        tokio::task::yield_now().await;
        cut.cancel();
        assert_eq!(
            read.await.unwrap().unwrap_err().kind(),
            io::ErrorKind::ConnectionAborted
        );
    }
}
