//! What a client finds at a node that is starting: it is told why nobody gets in yet, once it has
//! said what it wants, as PostgreSQL does. A node may wait for the others of its cluster for long,
//! and a client that was left to wait in the socket's queue would know neither for what nor whether
//! anybody is there.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use cognate_replication::status::NodeState;
use cognate_sql::{SqlError, sqlstate};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::conversation::{End, farewell};
use super::handshake::first_packet;
use super::registry::{Open, Registry, Stop};
use super::socket::Socket;
use super::transport::{Budget, Transport};
use crate::config::Config;
use crate::http::Starting;
use crate::server::Access;

/// What those who come before there is a server share.
pub(crate) struct Door {
    pub(crate) registry: Arc<Registry>,
    access: Access,
    budget: Arc<Budget>,
    starting: Starting,
}

impl Door {
    pub(crate) fn new(config: &Config, access: Access, starting: Starting) -> Door {
        let registry = Registry::new(config.max_connections as usize);
        // Nobody here sends more than a start-up packet.
        Door { registry, access, budget: Budget::new(0), starting }
    }

    /// What the node waits for. It is said to whoever asks, so it names nobody.
    fn why(&self) -> &'static str {
        let order = self.starting.lock().clone();
        match order.map(|order| order.state().0) {
            None => "This node opens its database.",
            Some(NodeState::CatchingUp | NodeState::Serving) => "This node is catching up with its cluster.",
            Some(NodeState::Minority) => {
                "This node has no way to a majority of its cluster, or is no member of it yet."
            }
            Some(NodeState::Diverged) => "This node differs from its cluster.",
            Some(NodeState::Stopping) => "This node takes no part in its cluster any more.",
        }
    }

    async fn tell(&self, socket: TcpStream) {
        let first = first_packet(&self.registry, &self.access, Socket::Plain(socket)).await;
        let Some((socket, packet)) = first else { return };
        let end = match packet {
            Ok(_) => {
                let error = SqlError::new(sqlstate::CANNOT_CONNECT_NOW, "the database system is starting up");
                End::Denied(Box::new(error.with_detail(self.why())))
            }
            Err(end) => end,
        };
        farewell(&mut Transport::new(socket, Arc::clone(&self.budget)), &end).await;
    }
}

/// Serves a client that comes too early, from its first byte to its end.
pub(crate) async fn turn_away(door: Arc<Door>, socket: TcpStream, open: Open) {
    let entry = open.entry().clone();
    let mut telling = pin!(door.tell(socket));
    let told = poll_fn(|cx| {
        entry.wake_with(cx.waker());
        // Where too many say nothing, the oldest of them has to go.
        if entry.stop() == Stop::No { telling.as_mut().poll(cx) } else { Poll::Ready(()) }
    });
    // Who says nothing is not waited for.
    let _ = timeout(door.access.authentication_timeout, told).await;
}
