//! The TCP connection to the first hop.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpSocket, TcpStream, lookup_host};
use tokio::task::JoinSet;

use crate::ssh::route::{AddressFamily, Hop};

/// How long sent data may stay unacknowledged before the kernel gives the connection up. Keep-alives cannot notice a
/// dead peer while a write is stuck; this does.
const USER_TIMEOUT: Duration = Duration::from_secs(60);
/// The head start of an address before the next one is tried besides it (RFC 8305, 5).
const NEXT_ADDRESS: Duration = Duration::from_millis(250);

/// Why there is no TCP connection.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The name has no address, or none of the wanted family.
    #[error("{0}")]
    Resolve(String),
    /// The last address that was tried failed in this way.
    #[error("{address}: {error}")]
    Connect {
        /// The address.
        address: SocketAddr,
        /// What the system says.
        error: io::Error,
    },
}

/// Connects to the hop's host and port. All addresses are tried, each with a short head start before the next, and the
/// first connection wins. The caller sets the time limit.
///
/// # Errors
/// The name does not resolve, or no address accepts the connection; the error is that of the last failure.
pub async fn connect(hop: &Hop) -> Result<QuickAck, ConnectError> {
    let bind = match &hop.bind_address {
        Some(address) => resolve(address, 0, hop.address_family).await?,
        None => Vec::new(),
    };
    let addresses = resolve(&hop.host, hop.port, hop.address_family).await?;
    let mut attempts = JoinSet::new();
    let mut waiting = addresses.into_iter();
    let mut last = ConnectError::Resolve(format!("no address to connect to for {}", hop.host));
    loop {
        if let Some(address) = waiting.next() {
            let source = bind
                .iter()
                .copied()
                .find(|bind| bind.is_ipv4() == address.is_ipv4());
            let bound = !bind.is_empty();
            attempts.spawn(async move {
                let attempt = if bound && source.is_none() {
                    Err(io::Error::other("the bind address is of another family"))
                } else {
                    connect_one(address, source).await
                };
                attempt.map_err(|error| ConnectError::Connect { address, error })
            });
        }
        let more = waiting.len() > 0;
        tokio::select! {
            done = attempts.join_next() => match done {
                Some(Ok(Ok(stream))) => return Ok(QuickAck(stream)),
                Some(Ok(Err(error))) => last = error,
                Some(Err(_)) => {}
                None => return Err(last),
            },
            () = tokio::time::sleep(NEXT_ADDRESS), if more => {}
        }
    }
}

async fn connect_one(address: SocketAddr, source: Option<SocketAddr>) -> io::Result<TcpStream> {
    let socket = if address.is_ipv4() {
        TcpSocket::new_v4()?
    } else {
        TcpSocket::new_v6()?
    };
    if let Some(source) = source {
        socket.bind(source)?;
    }
    let stream = socket.connect(address).await?;
    stream.set_nodelay(true)?;
    SockRef::from(&stream).set_tcp_user_timeout(Some(USER_TIMEOUT))?;
    Ok(stream)
}

async fn resolve(host: &str, port: u16, family: AddressFamily) -> Result<Vec<SocketAddr>, ConnectError> {
    let found = lookup_host((host, port))
        .await
        .map_err(|error| ConnectError::Resolve(format!("cannot resolve {host}: {error}")))?;
    let wanted: Vec<SocketAddr> = found
        .filter(|address| match family {
            AddressFamily::Any => true,
            AddressFamily::Inet => address.is_ipv4(),
            AddressFamily::Inet6 => address.is_ipv6(),
        })
        .collect();
    if wanted.is_empty() {
        return Err(ConnectError::Resolve(format!(
            "{host} has no address of the wanted family"
        )));
    }
    Ok(wanted)
}

/// A TCP connection that acknowledges at once.
///
/// sshd turns Nagle's algorithm off only when a session starts. A connection that is used for forwarding alone, as
/// that to a jump host is, keeps it, and Nagle waits for acknowledgements that a delayed-ACK receiver holds back for
/// 40 ms. TCP_QUICKACK on our side removes the wait; the kernel clears it again, so it is set after every read.
#[derive(Debug)]
pub struct QuickAck(TcpStream);

impl QuickAck {
    fn rearm(&self) {
        // A connection that cannot do this is slower, not broken.
        let _slower = SockRef::from(&self.0).set_tcp_quickack(true);
    }
}

impl AsyncRead for QuickAck {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.0).poll_read(cx, buf))?;
        self.rearm();
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for QuickAck {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}
