//! Owns the way of one connection: accepted, dialled on, carried until both sides have ended. Knows nothing of Services.

use super::target::Target;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tracing::debug;

/// How long an endpoint may take to answer.
const DIAL: Duration = Duration::from_secs(5);

/// How long to wait when a connection cannot be accepted, such as for want of files.
const PAUSE: Duration = Duration::from_millis(100);

/// Accepts for ever. Its connections end with it.
pub(super) async fn serve(listener: TcpListener, target: Arc<Target>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((client, _)) => {
                    connections.spawn(carry(client, target.clone()));
                }
                Err(error) => {
                    debug!("a connection to a NodePort on loopback: {error}");
                    tokio::time::sleep(PAUSE).await;
                }
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

/// Dials once; if that fails the client is told by the end of its connection, as upstream.
async fn carry(mut client: TcpStream, target: Arc<Target>) {
    let Some(endpoint) = target.choose(Instant::now()) else { return };
    let mut server = match timeout(DIAL, TcpStream::connect(endpoint)).await {
        Ok(Ok(server)) => server,
        Ok(Err(error)) => return debug!("{endpoint}, for a NodePort on loopback: {error}"),
        Err(_) => return debug!("{endpoint}, for a NodePort on loopback: no answer in {DIAL:?}"),
    };
    // What either side writes goes on at once, as over a wire.
    let _ = client.set_nodelay(true);
    let _ = server.set_nodelay(true);
    // One side may end what it says and still listen.
    let _ = copy_bidirectional(&mut client, &mut server).await;
}
