//! The listening socket for PostgreSQL clients.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::watch;

use crate::crew::Incoming;
use crate::pg::door::{Door, turn_away};
use crate::pg::handshake;
use crate::server::Server;

/// Connections that wait to be accepted.
const BACKLOG: u32 = 4096;
/// Pause after an accept that failed for want of file descriptors or memory: there is nothing to do
/// but wait.
const ACCEPT_PAUSE: Duration = Duration::from_millis(20);

/// Binds `address`. Clients that vanish without a word are found by keep-alive probes.
pub(crate) fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.set_reuseaddr(true)?;
    socket.set_keepalive(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Accepts clients until `stop` becomes true; then the socket is closed.
pub(crate) async fn accept(listener: TcpListener, server: Arc<Server>, mut stop: watch::Receiver<bool>) {
    loop {
        let next = async {
            server.registry.room().await;
            listener.accept().await
        };
        let accepted = tokio::select! {
            accepted = next => accepted,
            _ = stop.wait_for(|stop| *stop) => return,
        };
        match accepted {
            Ok((socket, _)) => greet(socket, &server),
            Err(error) => pause_after(&error).await,
        }
    }
}

/// Has clients told that the server is starting, until `is_open` becomes true or whoever starts it
/// has given up; then the socket is given back, and who waits in its queue is for [`accept`].
pub(crate) async fn refuse(
    listener: TcpListener,
    door: Arc<Door>,
    mut is_open: watch::Receiver<bool>,
) -> TcpListener {
    loop {
        let next = async {
            door.registry.room().await;
            listener.accept().await
        };
        let accepted = tokio::select! {
            biased;
            _ = is_open.wait_for(|is_open| *is_open) => break,
            accepted = next => accepted,
        };
        match accepted {
            Ok((socket, _)) => {
                let open = door.registry.open();
                tokio::spawn(turn_away(Arc::clone(&door), socket, open));
            }
            Err(error) => pause_after(&error).await,
        }
    }
    listener
}

/// After an accept that failed: there is nothing to wait for if it concerns one client.
async fn pause_after(error: &io::Error) {
    if !is_of_the_client(error) {
        tracing::warn!("cannot accept a connection: {error}");
        tokio::time::sleep(ACCEPT_PAUSE).await;
    }
}

fn greet(socket: TcpStream, server: &Arc<Server>) {
    // Answers are written in one piece; waiting for more would only delay them.
    if socket.set_nodelay(true).is_err() {
        return;
    }
    let (open, shared) = (server.registry.open(), server.clone());
    server.crew.serve(Incoming::Tcp(socket), move |socket| handshake::serve(shared, socket, open));
}

/// Errors of `accept` that concern one client which has already gone.
fn is_of_the_client(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionReset, Interrupted};
    matches!(error.kind(), ConnectionAborted | ConnectionReset | Interrupted)
}
