//! Owns how this program's HTTP servers come to listen; knows nothing of what they answer.

use axum::Router;
use socket2::{Domain, Protocol, Socket, Type};
use std::io;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::net::TcpListener;
use tracing::{error, info};

/// How long to wait before a server that could not listen tries again.
const RETRY: Duration = Duration::from_secs(5);

/// How many connections may wait to be accepted.
const BACKLOG: i32 = 128;

/// A server that could not listen, where that is fatal.
#[derive(Debug, thiserror::Error)]
#[error("{name} {addr}: cannot listen: {source}")]
pub struct ListenError {
    /// The option that names the address.
    pub name: &'static str,
    /// The address.
    pub addr: SocketAddr,
    /// What the system says.
    pub source: io::Error,
}

/// Listens. The unspecified IPv6 address takes IPv4 as well unless `only_ipv6`.
pub fn listen(addr: SocketAddr, only_ipv6: bool) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(addr), Type::STREAM.nonblocking(), Some(Protocol::TCP))?;
    if addr.is_ipv6() {
        socket.set_only_v6(only_ipv6)?;
    }
    // A restart may meet connections of the process before.
    socket.set_reuse_address(true)?;
    socket.bind(&addr.into())?;
    socket.listen(BACKLOG)?;
    TcpListener::from_std(socket.into())
}

/// Serves for ever. Where it cannot listen it tries again each 5 s, or fails if that is to be fatal. `name` is the option
/// that names the address.
pub async fn serve(
    name: &'static str,
    addr: SocketAddr,
    router: Router,
    hard_fail: bool,
) -> Result<(), ListenError> {
    loop {
        let source = match listen(addr, false) {
            Ok(listener) => {
                info!("{name}: listening on {addr}");
                match axum::serve(listener, router.clone()).await {
                    Ok(()) => return Ok(()),
                    Err(cause) => cause,
                }
            }
            Err(cause) => cause,
        };
        let error = ListenError { name, addr, source };
        if hard_fail {
            return Err(error);
        }
        error!("{error}; trying again in {RETRY:?}");
        tokio::time::sleep(RETRY).await;
    }
}
