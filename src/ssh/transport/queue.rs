//! The queue between a connection and the reader of one command.
//!
//! A connection carries all commands, and the library beneath delivers inbound data of all of them from one loop: a
//! command whose output nobody takes would stop that loop and with it every other command and the keep-alives. So a
//! task per command moves its output into this queue at once. The queue is bounded in bytes: beyond [`READ_BUDGET`]
//! the task waits, which slows the whole connection to the pace of a slow but living reader; a reader that takes
//! nothing at all for [`READ_GRACE`] is taken for dead and its command is given up, so that the others go on.

use std::time::Duration;

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use super::channel::{ChannelReader, Event, RemoteExit};

/// How many unread bytes one command may have in memory.
pub const READ_BUDGET: usize = 64 << 20;
/// How long a full queue may stand still before its command is given up.
pub const READ_GRACE: Duration = Duration::from_secs(10);

/// Bytes per permit: a semaphore counts at most `u32::MAX >> 3`, and small chunks have a cost of their own.
const UNIT: usize = 256;

/// One event and the budget that it occupies until it is taken.
#[derive(Debug)]
pub(super) struct Queued {
    pub(super) event: Event,
    _room: Option<OwnedSemaphorePermit>,
}

/// The backend's end of the queue.
#[derive(Debug)]
pub struct EventQueue {
    events: mpsc::UnboundedSender<Queued>,
    room: Arc<Semaphore>,
    budget: u32,
    grace: Duration,
}

/// The reader does not take its output: it was dropped, or it stood still for too long.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Overrun {
    /// The reader was dropped.
    #[error("the reader was dropped")]
    Dropped,
    /// The reader took nothing while its queue was full.
    #[error("the output was not read")]
    Unread,
}

/// A queue of at most `budget` unread bytes whose reader may stand still for `grace` once it is full.
pub fn event_queue(budget: usize, grace: Duration) -> (EventQueue, ChannelReader) {
    let (sender, receiver) = mpsc::unbounded_channel();
    let budget = u32::try_from((budget / UNIT).max(1)).unwrap_or(u32::MAX >> 3);
    let queue = EventQueue {
        events: sender,
        room: Arc::new(Semaphore::new(budget as usize)),
        budget,
        grace,
    };
    (queue, ChannelReader::new(receiver))
}

impl EventQueue {
    /// Hands over output.
    ///
    /// # Errors
    /// The reader is gone or dead; give the command up.
    pub async fn push(&self, event: Event) -> Result<(), Overrun> {
        let size = match &event {
            Event::Stdout(data) | Event::Stderr(data) => data.len(),
            Event::Exit(_) => 0,
        };
        let units = u32::try_from(size / UNIT + 1)
            .unwrap_or(u32::MAX)
            .min(self.budget);
        let wait = Arc::clone(&self.room).acquire_many_owned(units);
        let room = tokio::select! {
            biased;
            room = wait => room.map_err(|_| Overrun::Dropped)?,
            () = self.events.closed() => return Err(Overrun::Dropped),
            () = tokio::time::sleep(self.grace) => return Err(Overrun::Unread),
        };
        self.events
            .send(Queued {
                event,
                _room: Some(room),
            })
            .map_err(|_| Overrun::Dropped)
    }

    /// Hands over the end. It needs no room.
    pub fn finish(self, exit: RemoteExit) {
        let _gone = self.events.send(Queued {
            event: Event::Exit(exit),
            _room: None,
        });
    }

    /// Waits until the reader is dropped.
    pub async fn dropped(&self) {
        self.events.closed().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    #[tokio::test]
    async fn a_dead_reader_is_given_up_after_the_grace_and_a_slow_one_is_not() {
        let (queue, mut reader) = event_queue(4096, Duration::from_millis(300));
        let chunk = || Event::Stdout(Bytes::from(vec![0; 2000]));
        queue.push(chunk()).await.unwrap();
        queue.push(chunk()).await.unwrap();
        let slow = async {
            tokio::time::sleep(Duration::from_millis(100)).await;
            reader.next().await
        };
        let (pushed, taken) = tokio::join!(queue.push(chunk()), slow);
        pushed.unwrap();
        assert_eq!(taken, Some(chunk()));
        assert_eq!(queue.push(chunk()).await, Err(Overrun::Unread));
        queue.finish(RemoteExit::Code(0));
        assert_eq!(reader.next().await, Some(chunk()));
        assert_eq!(reader.next().await, Some(chunk()));
        assert_eq!(reader.next().await, Some(Event::Exit(RemoteExit::Code(0))));
        assert_eq!(reader.next().await, None);
    }

    #[tokio::test]
    async fn a_chunk_larger_than_the_budget_passes_alone() {
        let (queue, mut reader) = event_queue(1024, Duration::from_secs(1));
        let large = Event::Stdout(Bytes::from(vec![7; 100_000]));
        queue.push(large.clone()).await.unwrap();
        assert_eq!(reader.next().await, Some(large));
        drop(reader);
        assert_eq!(
            queue.push(Event::Stderr(Bytes::new())).await,
            Err(Overrun::Dropped)
        );
    }
}
