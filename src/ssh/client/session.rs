//! Opening sessions on an established connection.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use russh::client::Msg;
use russh::{Channel, ChannelMsg, ChannelOpenFailure};
use tokio::sync::OwnedSemaphorePermit;

use super::config::Settings;
use super::handler::{Handle, HopState};
use super::nudge::nudged;
use super::pump::Pump;
use super::slots::Slots;
use crate::ssh::transport::{self, ChannelNotOpened, OpenError};

/// How often a refused session is asked for.
const ATTEMPTS: u32 = 6;
/// The pause after the first refusal; it doubles. A session that has just ended still counts for a moment.
const PAUSE: Duration = Duration::from_millis(50);

/// The target's end of the connection.
#[derive(Debug)]
pub(super) struct Session {
    handle: Arc<HandleBox>,
    state: Arc<HopState>,
    slots: Slots,
    settings: Settings,
    /// Nothing was asked of it yet.
    fresh: AtomicBool,
}

/// The library's handle has no `Debug`.
struct HandleBox(Arc<Handle>);

impl std::fmt::Debug for HandleBox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Handle")
    }
}

impl Session {
    pub(super) fn new(handle: Arc<Handle>, state: Arc<HopState>, settings: &Settings) -> Self {
        Self {
            handle: Arc::new(HandleBox(handle)),
            state,
            slots: Slots::new(settings.sessions),
            settings: settings.clone(),
            fresh: AtomicBool::new(true),
        }
    }

    pub(super) fn limit(&self) -> usize {
        self.slots.limit()
    }

    pub(super) async fn open(&self, command: &str) -> Result<transport::Channel, OpenError> {
        let (channel, slot) = self.open_session().await?;
        self.exec(channel, slot, command).await
    }

    async fn slot(&self) -> Result<OwnedSemaphorePermit, ChannelNotOpened> {
        let waited = self.settings.slot_wait;
        tokio::select! {
            slot = self.slots.acquire(waited) => {
                slot.ok_or_else(|| ChannelNotOpened::NoSlot { limit: self.slots.limit(), waited })
            }
            () = self.state.wait_closed() => Err(self.closed()),
        }
    }

    /// A session on which nothing was started yet: whatever fails here is safe to repeat.
    async fn open_session(&self) -> Result<(Channel<Msg>, OwnedSemaphorePermit), ChannelNotOpened> {
        let mut slot = None;
        let mut attempts = 0;
        // Refusals of the slot in hand. The first may be chance; the second says that there are too many.
        let mut strikes = 0;
        loop {
            let held = if let Some(slot) = slot.take() {
                slot
            } else {
                strikes = 0;
                self.slot().await?
            };
            let limit = self.settings.open_timeout;
            let opened = tokio::time::timeout(limit, self.request()).await;
            attempts += 1;
            match opened {
                Ok(Ok(channel)) => return Ok((channel, held)),
                Ok(Err(russh::Error::ChannelOpenFailure(reason))) => {
                    let open = self.slots.in_use().saturating_sub(1);
                    if attempts == ATTEMPTS {
                        let description = self.state.take_open_failure();
                        let description = description.unwrap_or_else(|| describe(&reason).to_owned());
                        return Err(ChannelNotOpened::Refused {
                            description,
                            open,
                            attempts,
                        });
                    }
                    tokio::time::sleep(pause(attempts)).await;
                    strikes += 1;
                    slot = if strikes == 1 {
                        Some(held)
                    } else {
                        self.slots.shrink(held)
                    };
                }
                Ok(Err(_)) => return Err(self.closed()),
                Err(_) => return Err(ChannelNotOpened::Timeout(limit)),
            }
        }
    }

    /// Asks for a session.
    async fn request(&self) -> Result<Channel<Msg>, russh::Error> {
        let opened = self.handle.0.channel_open_session();
        if self.fresh.swap(false, Ordering::Relaxed) {
            return nudged(&self.handle.0, opened).await;
        }
        opened.await
    }

    async fn exec(
        &self,
        channel: Channel<Msg>,
        slot: OwnedSemaphorePermit,
        command: &str,
    ) -> Result<transport::Channel, OpenError> {
        if channel.exec(true, command).await.is_err() {
            return Err(self.closed().into());
        }
        let (mut read, write) = channel.split();
        let mut early = Vec::new();
        let answer = tokio::time::timeout(self.settings.open_timeout, async {
            loop {
                match read.wait().await {
                    Some(ChannelMsg::Success) => return Ok(()),
                    Some(ChannelMsg::Failure) => return Err(ChannelNotOpened::ExecRefused.into()),
                    Some(ChannelMsg::WindowAdjusted { .. }) => {}
                    Some(ChannelMsg::Close) | None => {
                        return Err(OpenError::Lost {
                            reason: self.why_closed(),
                        });
                    }
                    Some(message) => early.push(message),
                }
            }
        });
        let answer = answer.await.unwrap_or_else(|_| {
            let limit = self.settings.open_timeout.as_secs_f64();
            Err(OpenError::Lost {
                reason: format!("no answer in {limit:.1} s"),
            })
        });
        let pump = Pump::new(read, write, Arc::clone(&self.state), slot);
        match answer {
            Ok(()) => Ok(pump.start(early, self.settings.read_budget, self.settings.read_grace)),
            Err(error) => {
                pump.abandon_in_background();
                Err(error)
            }
        }
    }

    fn why_closed(&self) -> String {
        self.state
            .closed_reason()
            .unwrap_or_else(|| "the server closed the session".to_owned())
    }

    fn closed(&self) -> ChannelNotOpened {
        let reason = self
            .state
            .closed_reason()
            .unwrap_or_else(|| "the connection ended".to_owned());
        ChannelNotOpened::Closed { reason }
    }
}

/// What a refusal means where the server gives no words.
pub(super) fn describe(reason: &ChannelOpenFailure) -> &str {
    match reason {
        ChannelOpenFailure::AdministrativelyProhibited => "administratively prohibited",
        ChannelOpenFailure::ConnectFailed => "connect failed",
        ChannelOpenFailure::UnknownChannelType => "unknown channel type",
        ChannelOpenFailure::ResourceShortage => "resource shortage",
        ChannelOpenFailure::Other { reason, .. } => reason,
    }
}

/// The pause after the given refusal, from half to all of its length, so that callers spread.
fn pause(attempt: u32) -> Duration {
    jitter(PAUSE * 2_u32.saturating_pow(attempt.saturating_sub(1)))
}

/// Between half of `duration` and all of it.
pub(super) fn jitter(duration: Duration) -> Duration {
    let mut byte = [128];
    // Without randomness the pause is just not spread.
    let _even = getrandom::fill(&mut byte);
    duration.mul_f64(0.5 + f64::from(byte[0]) / 512.0)
}
