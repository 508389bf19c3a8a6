//! How a node of a cluster is set up.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use cognate_engine::storage::LogOptions;

use crate::entry::NodeNumber;
use crate::error::StartError;
use crate::pace::PaceBounds;

/// How a node is set up.
#[derive(Debug, Clone)]
pub struct Settings {
    /// This node's number.
    pub node: NodeNumber,
    /// The address between nodes of each node, this one included. It listens on its own entry and
    /// dials the others', never an address that it learned from somebody.
    pub peers: BTreeMap<NodeNumber, String>,
    /// When a leader counts as lost, and how long who proposes waits.
    pub timing: Timing,
    /// Bounds of memory, frames and log.
    pub limits: Limits,
    /// Which nodes are slow.
    pub pace: PaceBounds,
    /// How the log's segments are kept.
    pub log: LogOptions,
    /// If a write to the log waits for its flush at once, on the caller's thread: how long that
    /// takes. For simulations on one thread, whose time stands still otherwise.
    pub flushes_inline: Option<FlushTime>,
}

/// How long flushes take on a simulation's clock; clones are the same disk's. Nothing else of the
/// node's order happens meanwhile: so a long one is a process that stands still, too.
#[derive(Debug, Clone, Default)]
pub struct FlushTime(Arc<Times>);

/// In microseconds.
#[derive(Debug, Default)]
struct Times {
    each: AtomicU64,
    next: AtomicU64,
}

impl FlushTime {
    /// From now on each takes so long.
    pub fn set(&self, each: Duration) {
        self.0.each.store(each.as_micros() as u64, Ordering::Relaxed);
    }

    /// The next one takes so much longer.
    pub fn delay_next(&self, by: Duration) {
        self.0.next.store(by.as_micros() as u64, Ordering::Relaxed);
    }

    /// Waits as long as the next one takes, before anything of it is done.
    pub(crate) async fn pass(&self) {
        let time = self.0.each.load(Ordering::Relaxed) + self.0.next.swap(0, Ordering::Relaxed);
        if time > 0 {
            tokio::time::sleep(Duration::from_micros(time)).await;
        }
    }
}

/// When a leader counts as lost, and how long who proposes waits.
#[derive(Debug, Clone)]
pub struct Timing {
    /// How often a leader says that it leads.
    pub heartbeat: Duration,
    /// A leader that was not heard of for `election_max` may be replaced; who wants to lead waits
    /// for a random time from here to `election_max` more.
    pub election_min: Duration,
    /// At most 400 ms.
    pub election_max: Duration,
    /// How long a proposal waits for a leader before it is refused, and how long a leader may be
    /// heard and not be reached before this node says that it has none.
    pub no_leader: Duration,
    /// How long a proposal that was sent waits before its answer counts as lost.
    pub answer: Duration,
}

impl Default for Timing {
    fn default() -> Timing {
        Timing {
            heartbeat: Duration::from_millis(50),
            election_min: Duration::from_millis(150),
            election_max: Duration::from_millis(300),
            no_leader: Duration::from_secs(3),
            answer: Duration::from_secs(10),
        }
    }
}

/// Bounds of memory, frames and log.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Largest request.
    pub request_bytes: usize,
    /// Requests that wait are packed into one entry up to this size; a larger one is an entry of
    /// its own.
    pub entry_bytes: usize,
    /// Entries of a message from leader to follower, together; one may be larger.
    pub append_bytes: usize,
    /// Requests that wait to be proposed, together; who proposes more waits.
    pub waiting_bytes: usize,
    /// Entries that a node has proposed and that are not settled yet.
    pub entries_in_flight: usize,
    /// Entries that are kept in memory for who needs them soon.
    pub cache_bytes: usize,
    /// Requests that stay in the log although a checkpoint covers them, so that a node that was
    /// away for a moment needs no snapshot.
    pub kept_bytes: u64,
    /// Largest chunk of a snapshot.
    pub chunk_bytes: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            request_bytes: 16 << 20,
            entry_bytes: 1 << 20,
            append_bytes: 4 << 20,
            waiting_bytes: 64 << 20,
            entries_in_flight: 16,
            cache_bytes: 64 << 20,
            kept_bytes: 64 << 20,
            chunk_bytes: 1 << 20,
        }
    }
}

impl Limits {
    /// The largest frame between nodes.
    pub fn frame_bytes(&self) -> usize {
        let entry = self.entry_bytes + self.request_bytes;
        self.append_bytes.max(self.chunk_bytes) + entry + (64 << 10)
    }
}

impl Settings {
    /// A node with the usual bounds.
    pub fn new(node: NodeNumber, peers: BTreeMap<NodeNumber, String>) -> Settings {
        Settings {
            node,
            peers,
            timing: Timing::default(),
            limits: Limits::default(),
            pace: PaceBounds::default(),
            log: LogOptions::default(),
            flushes_inline: None,
        }
    }

    /// The numbers of all nodes.
    pub fn numbers(&self) -> BTreeSet<NodeNumber> {
        self.peers.keys().copied().collect()
    }

    /// Looks for contradictions.
    pub fn check(&self) -> Result<(), StartError> {
        let wrong = |what: String| Err(StartError::Settings(what));
        if !self.peers.contains_key(&self.node) {
            return wrong(format!("node {} is not in its own list of peers", self.node));
        }
        if self.peers.contains_key(&0) {
            return wrong("nodes are numbered from 1".to_owned());
        }
        let timing = &self.timing;
        if timing.election_max > Duration::from_millis(400) {
            return wrong("a leader must count as lost after 400 ms at most".to_owned());
        }
        if timing.heartbeat >= timing.election_min || timing.election_min >= timing.election_max {
            return wrong("heartbeats must be more frequent than elections".to_owned());
        }
        if self.limits.request_bytes > self.limits.waiting_bytes {
            return wrong("the largest request must fit among those that wait".to_owned());
        }
        Ok(())
    }
}
