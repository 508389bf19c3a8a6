//! What the order needs from the application beside its taking of requests: snapshots for nodes
//! that are too far behind, and answers to what others of its kind ask.

use std::future::Future;
use std::pin::Pin;

use bytes::Bytes;

use crate::entry::{NodeNumber, Position};

/// A future behind a pointer.
pub type Answer<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A failure of the application, in words.
pub type Failure = String;

/// The state machine above an order.
pub trait Application: Send + Sync + 'static {
    /// Opens the application's durable state for a node that is too far behind: a checkpoint that
    /// stays as it is while it is read. Must be quick; nothing else is delivered meanwhile.
    fn open_snapshot(&self) -> Answer<'_, Result<Snapshot, Failure>>;

    /// Has a newer durable state made, to be opened soon: the one that was opened is from before
    /// somebody left who has come again. Must not block. It is asked for again and again until
    /// there is one, so what is under way, or has just failed, need not be begun anew.
    fn renew_snapshot(&self) {}

    /// Begins to take in a state that another node sends.
    fn begin_install(&self, position: Position) -> Answer<'_, Result<Box<dyn SnapshotSink>, Failure>>;

    /// Answers what the application of another node asks ([`crate::TotalOrder::ask`]).
    fn answer(&self, from: NodeNumber, question: Bytes) -> Answer<'_, Result<Bytes, Failure>> {
        let _ = (from, question);
        Box::pin(async { Err("this node answers no questions".to_owned()) })
    }
}

/// A durable state of the application, to be read.
pub struct Snapshot {
    /// Up to where requests are in it.
    pub position: Position,
    /// Its bytes.
    pub source: Box<dyn SnapshotSource>,
}

/// Bytes of a state, in chunks of the application's choice.
pub trait SnapshotSource: Send + Sync {
    /// The next chunk, of at most [`crate::settings::Limits::chunk_bytes`]; `None` at the end.
    fn next(&mut self) -> Answer<'_, Result<Option<Bytes>, Failure>>;
}

/// Takes in a state. Dropped before [`SnapshotSink::finish`], nothing has changed.
pub trait SnapshotSink: Send + Sync {
    /// Keeps the next chunk.
    fn put(&mut self, chunk: Bytes) -> Answer<'_, Result<(), Failure>>;

    /// Makes what was sent the application's state, durably and at once: after a crash it is either
    /// the state before or this one. What was delivered and not applied yet is void from now on;
    /// delivery goes on behind the state's position.
    fn finish(self: Box<Self>) -> Answer<'static, Result<(), Failure>>;
}

impl std::fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Snapshot").field("position", &self.position).finish_non_exhaustive()
    }
}
