//! One running command: moves what arrives to its reader at once, and cleans up when nobody wants it any more.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use russh::client::Msg;
use russh::{ChannelMsg, ChannelReadHalf, ChannelWriteHalf, Sig};
use tokio::sync::{OwnedSemaphorePermit, oneshot};
use tokio_util::sync::CancellationToken;

use super::handler::HopState;
use crate::ssh::transport::{
    Channel, ChannelWriter, Event, EventQueue, Overrun, RemoteExit, WriteError, WriteHalf, event_queue,
};

/// How long the server may take to let go of an abandoned command, before its session is counted as free.
const ABANDON_LIMIT: Duration = Duration::from_secs(5);

pub(super) struct Pump {
    read: ChannelReadHalf,
    write: Arc<ChannelWriteHalf<Msg>>,
    state: Arc<HopState>,
    slot: OwnedSemaphorePermit,
}

impl Pump {
    pub(super) fn new(
        read: ChannelReadHalf,
        write: ChannelWriteHalf<Msg>,
        state: Arc<HopState>,
        slot: OwnedSemaphorePermit,
    ) -> Self {
        Self {
            read,
            write: Arc::new(write),
            state,
            slot,
        }
    }

    /// Begins to move messages, the `early` ones first.
    pub(super) fn start(self, early: Vec<ChannelMsg>, budget: usize, grace: Duration) -> Channel {
        let (queue, reader) = event_queue(budget, grace);
        let ended = CancellationToken::new();
        let (alive, gone) = oneshot::channel();
        let half = Writer {
            half: Arc::clone(&self.write),
            _alive: alive,
        };
        let writer = ChannelWriter::new(Box::new(half), ended.clone());
        tokio::spawn(self.run(early, queue, ended, gone));
        Channel { writer, reader }
    }

    /// Kills the command and waits until the server has closed the session.
    pub(super) fn abandon_in_background(self) {
        tokio::spawn(self.abandon());
    }

    async fn run(
        mut self,
        early: Vec<ChannelMsg>,
        queue: EventQueue,
        ended: CancellationToken,
        gone: oneshot::Receiver<()>,
    ) {
        let _wake_writer = ended.clone().drop_guard();
        let mut early = early.into_iter();
        let mut exit = None;
        let mut gone = Some(gone);
        loop {
            let message = if let Some(message) = early.next() {
                Some(message)
            } else {
                tokio::select! {
                    message = self.read.wait() => message,
                    () = queue.dropped() => return self.abandon().await,
                    () = dropped(&mut gone) => {
                        // If the connection is gone, there is nothing left to close.
                        let _gone = self.write.eof().await;
                        continue;
                    }
                }
            };
            let moved = match message {
                Some(ChannelMsg::Data { data }) => queue.push(Event::Stdout(data)).await,
                Some(ChannelMsg::ExtendedData { data, .. }) => queue.push(Event::Stderr(data)).await,
                Some(ChannelMsg::ExitStatus { exit_status }) => {
                    exit = Some(RemoteExit::Code(exit_status));
                    ended.cancel();
                    Ok(())
                }
                Some(ChannelMsg::ExitSignal { signal_name, .. }) => {
                    exit = Some(RemoteExit::Signal(name(&signal_name)));
                    ended.cancel();
                    Ok(())
                }
                Some(_) => Ok(()),
                None => {
                    let lost = || RemoteExit::Lost {
                        reason: self.why_lost(),
                    };
                    queue.finish(exit.unwrap_or_else(lost));
                    return;
                }
            };
            match moved {
                Ok(()) => {}
                Err(Overrun::Dropped) => return self.abandon().await,
                Err(overrun @ Overrun::Unread) => {
                    queue.finish(RemoteExit::Lost {
                        reason: format!("{overrun}, so the command was killed"),
                    });
                    return self.abandon().await;
                }
            }
        }
    }

    fn why_lost(&self) -> String {
        self.state.closed_reason().unwrap_or_else(|| {
            "the server closed the session and did not say how the command ended".to_owned()
        })
    }

    /// A closed channel alone neither ends the command nor frees its session at the server; a signal does both.
    async fn abandon(self) {
        let Self {
            mut read,
            write,
            state: _,
            slot,
        } = self;
        let goodbye = async {
            write.signal(Sig::KILL).await?;
            write.close().await
        };
        // Both at once: the connection may be waiting for us to take what has arrived.
        let goodbye = async { tokio::join!(goodbye, async { while read.wait().await.is_some() {} }) };
        let _late_or_gone = tokio::time::timeout(ABANDON_LIMIT, goodbye).await;
        drop(slot);
    }
}

/// Resolves once, when the writer has been dropped.
async fn dropped(gone: &mut Option<oneshot::Receiver<()>>) {
    match gone {
        Some(receiver) => {
            let _nothing_is_sent = receiver.await;
            *gone = None;
        }
        None => std::future::pending().await,
    }
}

fn name(signal: &Sig) -> String {
    if let Sig::Custom(name) = signal {
        return name.clone();
    }
    format!("{signal:?}")
}

#[derive(Debug)]
struct Writer {
    half: Arc<ChannelWriteHalf<Msg>>,
    /// Dropped with the writer, which tells the pump to close the input.
    _alive: oneshot::Sender<()>,
}

#[async_trait]
impl WriteHalf for Writer {
    async fn write(&mut self, data: Bytes) -> Result<(), WriteError> {
        self.half.data_bytes(data).await.map_err(|_| WriteError::Ended)
    }

    async fn eof(&mut self) -> Result<(), WriteError> {
        self.half.eof().await.map_err(|_| WriteError::Ended)
    }
}
