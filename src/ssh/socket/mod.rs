//! The byte stream to the first hop: a TCP connection, or the standard streams of a ProxyCommand.

mod hop;
mod proxy;
mod tcp;

use tokio::io::{AsyncRead, AsyncWrite};

pub use hop::{Greeting, HopStream};
pub use proxy::{Complaints, ProxyStream};
pub use tcp::{ConnectError, QuickAck, connect};

/// Anything that an SSH session can run over.
pub trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}
