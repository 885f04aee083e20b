//! How many sessions one connection may have at a time.
//!
//! sshd allows 10 by default (MaxSessions) and refuses the next; some sites allow fewer, down to one. The limit begins
//! low and only ever sinks: each refusal that repeats itself takes one off, so that the next caller waits here rather
//! than being refused there.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The sessions of one connection.
#[derive(Debug)]
pub(super) struct Slots {
    free: Arc<Semaphore>,
    limit: AtomicUsize,
}

impl Slots {
    pub(super) fn new(limit: usize) -> Self {
        let limit = limit.max(1);
        Self {
            free: Arc::new(Semaphore::new(limit)),
            limit: AtomicUsize::new(limit),
        }
    }

    pub(super) fn limit(&self) -> usize {
        self.limit.load(Ordering::Relaxed)
    }

    /// Sessions in use.
    pub(super) fn in_use(&self) -> usize {
        self.limit().saturating_sub(self.free.available_permits())
    }

    /// Waits for a free one; `None` if none becomes free in time.
    pub(super) async fn acquire(&self, wait: Duration) -> Option<OwnedSemaphorePermit> {
        tokio::time::timeout(wait, Arc::clone(&self.free).acquire_owned())
            .await
            .ok()?
            .ok()
    }

    /// Learns from a refusal: gives `slot` up for good, unless it is the only one in use, which must stay.
    pub(super) fn shrink(&self, slot: OwnedSemaphorePermit) -> Option<OwnedSemaphorePermit> {
        if self.in_use() <= 1 {
            return Some(slot);
        }
        slot.forget();
        self.limit.fetch_sub(1, Ordering::Relaxed);
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_limit_sinks_to_one_and_no_further() {
        let slots = Slots::new(3);
        let wait = Duration::from_millis(20);
        let held = slots.acquire(wait).await.unwrap();
        let second = slots.acquire(wait).await.unwrap();
        assert!(slots.shrink(second).is_none());
        let third = slots.acquire(wait).await.unwrap();
        assert!(slots.shrink(third).is_none());
        assert_eq!(slots.limit(), 1);
        assert!(slots.acquire(wait).await.is_none());
        let held = slots.shrink(held).expect("the last one stays");
        assert_eq!((slots.limit(), slots.in_use()), (1, 1));
        drop(held);
        assert!(slots.acquire(wait).await.is_some());
    }
}
