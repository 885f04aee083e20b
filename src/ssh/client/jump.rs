//! The stream to the next hop, inside a channel of the jump host's connection.
//!
//! The library has one of its own, with two faults that matter here. Its reading side is a bounded queue that the outer
//! connection waits for, while the inner connection waits to write to the outer one: two uploads and two downloads at a
//! time come to a standstill. Here a task moves what arrives into an unbounded queue, so the outer connection never
//! waits for the inner; the queue is bounded all the same, by the windows that the inner connection grants, since
//! nothing else is sent to it. And its writing side is not woken when the outer connection ends; here it is.

use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use russh::client::Msg;
use russh::{Channel, ChannelMsg};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::mpsc;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

/// A forwarded connection. Dropping it closes its channel.
pub(super) struct JumpStream {
    inbound: mpsc::UnboundedReceiver<Bytes>,
    current: Bytes,
    outbound: Pin<Box<dyn AsyncWrite + Send>>,
    ended: Pin<Box<WaitForCancellationFutureOwned>>,
}

impl fmt::Debug for JumpStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JumpStream").finish_non_exhaustive()
    }
}

impl JumpStream {
    /// Takes over an opened channel.
    pub(super) fn new(channel: Channel<Msg>) -> Self {
        let (mut read, write) = channel.split();
        let outbound = Box::pin(write.make_writer());
        let (sender, inbound) = mpsc::unbounded_channel();
        let ended = CancellationToken::new();
        let stream = Self {
            inbound,
            current: Bytes::new(),
            outbound,
            ended: Box::pin(ended.clone().cancelled_owned()),
        };
        tokio::spawn(async move {
            let _wake_writer = ended.drop_guard();
            loop {
                let message = tokio::select! {
                    message = read.wait() => message,
                    () = sender.closed() => break,
                };
                match message {
                    Some(ChannelMsg::Data { data }) => {
                        if sender.send(data).is_err() {
                            break;
                        }
                    }
                    Some(ChannelMsg::Eof | ChannelMsg::Close) | None => break,
                    Some(_) => {}
                }
            }
            // If the connection is gone, so is the channel.
            let _gone = write.close().await;
        });
        stream
    }
}

impl AsyncRead for JumpStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        while self.current.is_empty() {
            match ready!(self.inbound.poll_recv(cx)) {
                Some(data) => self.current = data,
                None => return Poll::Ready(Ok(())),
            }
        }
        let length = self.current.len().min(buf.remaining());
        buf.put_slice(&self.current[..length]);
        self.current.advance(length);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for JumpStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        if buf.is_empty() {
            return Poll::Ready(Ok(0));
        }
        if self.ended.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        self.outbound.as_mut().poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.outbound.as_mut().poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // The drop that follows closes the channel. To wait here for a jump host that is stuck would keep back the news
        // that this connection has ended.
        Poll::Ready(Ok(()))
    }
}
