//! Helping the first answer of a fresh connection along.
//!
//! sshd has Nagle's algorithm on until the first session of a connection starts, and has just sent its list of host keys
//! when it answers our first request. That answer then waits for an acknowledgement, which our own socket sends at once
//! but the socket of a jump host, or of a ProxyCommand, delays by up to 40 ms unless it has something to send. So it is
//! given something: a message that wants no answer.

use std::pin::pin;
use std::time::Duration;

use russh::Channel;
use russh::client::Msg;

use super::handler::Handle;

/// How often, and after which pauses.
const TIMES: u32 = 4;
const PAUSE: Duration = Duration::from_millis(3);

/// Waits for `opened`, the answer to the first request on `handle`.
pub(super) async fn nudged(
    handle: &Handle,
    opened: impl Future<Output = Result<Channel<Msg>, russh::Error>>,
) -> Result<Channel<Msg>, russh::Error> {
    let mut opened = pin!(opened);
    for _ in 0..TIMES {
        tokio::select! {
            biased;
            opened = &mut opened => return opened,
            () = tokio::time::sleep(PAUSE) => {}
        }
        handle.send_keepalive(false).await?;
    }
    opened.await
}
