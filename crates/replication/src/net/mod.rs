//! What is between nodes: requests with answers, over a real network ([`tcp`]) or a simulated one
//! ([`sim`]).
//!
//! A request either was certainly not sent, or its answer came, or nobody knows
//! ([`CallError`]). Nothing is sent twice by this room.

pub(crate) mod frame;
pub(crate) mod handshake;
mod presence;
pub mod sim;
pub mod tcp;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use parking_lot::{Mutex, RwLock};
use tokio::time::Instant;

use self::presence::Presence;
use crate::application::Answer;
use crate::entry::{ClusterId, NodeNumber};
use crate::error::StartError;
use crate::log::OrderLog;

/// What is said of a node that comes again and is not the one that was here.
pub(crate) const OTHER_DATA: &str = "was here before with other data";

/// What is said of a node that has not what it confirmed.
pub(crate) const LOST: &str = "has lost what it had confirmed";

/// The same, and what to do.
pub(crate) fn lost(node: NodeNumber) -> String {
    format!("node {node} {LOST}: stop it, remove its folder, and rebuild it")
}

/// Why a request has no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// It was not sent.
    #[error("{0}")]
    NotSent(String),
    /// It may have been sent, and may have been answered.
    #[error("{0}")]
    Lost(String),
}

/// The ways to the other nodes.
pub trait Wire: Send + Sync + 'static {
    /// Sends a request and waits for its answer. No answer in time is the caller's to judge.
    fn call(&self, to: NodeNumber, request: Bytes) -> Answer<'static, Result<Bytes, CallError>>;

    /// Why `node` cannot be reached now; `None` if it can, as far as is known.
    fn problem(&self, node: NodeNumber) -> Option<String>;

    /// Ends all connections.
    fn close(&self) -> Answer<'static, ()>;
}

/// Answers the requests of other nodes.
pub trait Serve: Send + Sync + 'static {
    /// Answers a request.
    fn serve(&self, from: NodeNumber, request: Bytes) -> Answer<'static, Bytes>;
}

/// A network that a node can join.
pub trait Network: Send + 'static {
    /// Joins it as `identity`; `server` answers what others ask.
    fn open(
        self: Box<Self>,
        identity: Arc<Identity>,
        server: Arc<dyn Serve>,
    ) -> Answer<'static, Result<Arc<dyn Wire>, StartError>>;
}

/// Who a node is, to the others.
#[derive(Debug)]
pub struct Identity {
    node: NodeNumber,
    incarnation: u64,
    /// Of this process, as `incarnation` is of the folder.
    life: u64,
    numbers: BTreeSet<NodeNumber>,
    cluster: RwLock<Option<ClusterId>>,
    log: Arc<OrderLog>,
    presence: Mutex<Presence>,
    /// Whether a node ever was found to have lost what it confirmed: mostly none was, and each
    /// message asks.
    is_any_lost: AtomicBool,
    /// What other nodes have said that they have for good: the incarnation, and the last entry.
    kept: Mutex<BTreeMap<NodeNumber, (u64, u64)>>,
    since: Instant,
}

impl Identity {
    pub(crate) fn new(
        node: NodeNumber,
        incarnation: u64,
        numbers: BTreeSet<NodeNumber>,
        log: Arc<OrderLog>,
    ) -> Identity {
        let cluster = RwLock::new(log.birth().map(|birth| birth.cluster));
        let presence = Mutex::default();
        let is_any_lost = AtomicBool::new(!log.lost().is_empty());
        Identity {
            node,
            incarnation,
            life: rand::random(),
            numbers,
            cluster,
            log,
            presence,
            is_any_lost,
            kept: Mutex::default(),
            since: Instant::now(),
        }
    }

    /// The node's number.
    pub fn node(&self) -> NodeNumber {
        self.node
    }

    /// Its cluster; none before that was founded.
    pub fn cluster(&self) -> Option<ClusterId> {
        *self.cluster.read()
    }

    /// The cluster, once it has begun as far as this node knows: until then it may join another.
    pub(crate) fn begun(&self) -> Option<ClusterId> {
        self.cluster().filter(|_| !self.log.is_untouched())
    }

    pub(crate) fn incarnation(&self) -> u64 {
        self.incarnation
    }

    pub(crate) fn life(&self) -> u64 {
        self.life
    }

    /// A process wants to speak as another node; each time that is granted, [`Identity::leave`]
    /// follows ([`handshake::Entered`]).
    pub(crate) fn enter(&self, node: NodeNumber, life: u64) -> Result<(), String> {
        self.presence.lock().enter(node, life, self.since.elapsed())
    }

    /// It has said something. Says whether it may.
    pub(crate) fn hear(&self, node: NodeNumber, life: u64) -> bool {
        self.presence.lock().hear(node, life, self.since.elapsed())
    }

    /// Its connection has ended.
    pub(crate) fn leave(&self, node: NodeNumber, life: u64) {
        self.presence.lock().leave(node, life);
    }

    /// The incarnation of a node, if it was met before.
    pub(crate) fn met(&self, node: NodeNumber) -> Option<u64> {
        self.log.met(node)
    }

    /// An incarnation of a node has not what it confirmed to the one that leads: as if its folder
    /// were emptied, it cannot be relied on until it is rebuilt. None where nobody asks who is who.
    pub(crate) fn disown(&self, node: NodeNumber, incarnation: Option<u64>) {
        match self.log.note_lost(node, incarnation.unwrap_or_default()) {
            Ok(true) => tracing::warn!(why = lost(node), "a node does not take part any more"),
            Ok(false) => {}
            Err(error) => tracing::warn!(why = lost(node), %error, "it is not noted for later"),
        }
        self.is_any_lost.store(true, Ordering::Release);
    }

    /// Another node says who was disowned. Who has come again since is somebody else.
    pub(crate) fn learn_lost(&self, lost: &BTreeMap<NodeNumber, u64>) {
        for (&node, &incarnation) in lost {
            if self.met(node) == Some(incarnation) && !self.has_lost(node) {
                self.disown(node, Some(incarnation));
            }
        }
    }

    /// An incarnation of a node has said that it has everything up to an entry, for good. None
    /// where nobody asks who is who.
    pub(crate) fn note_kept(&self, node: NodeNumber, incarnation: Option<u64>, last: Option<u64>) {
        let (Some(incarnation), Some(last)) = (incarnation, last) else { return };
        let mut kept = self.kept.lock();
        let known = kept.entry(node).or_default();
        *known = match known.0 == incarnation {
            true => (incarnation, last.max(known.1)),
            false => (incarnation, last),
        };
    }

    /// The incarnation of a node, and the last entry that it is to have, since it has said so: the
    /// greatest of those that were settled and on its disk. If it has less in an election, an older
    /// copy of its folder has taken the place of its own, and by its vote one might lead who lacks
    /// what was acknowledged. The node that leads knows better, but it may be the one that is away.
    pub(crate) fn kept(&self, node: NodeNumber) -> Option<(u64, u64)> {
        let known = self.kept.lock().get(&node).copied();
        known.filter(|(incarnation, _)| self.met(node) == Some(*incarnation))
    }

    /// Whether a node was disowned and is still the same one.
    pub(crate) fn has_lost(&self, node: NodeNumber) -> bool {
        self.is_any_lost.load(Ordering::Acquire) && self.log.has_lost(node)
    }

    /// Who was disowned, with the incarnation of each.
    pub(crate) fn lost(&self) -> BTreeMap<NodeNumber, u64> {
        match self.is_any_lost.load(Ordering::Acquire) {
            true => self.log.lost(),
            false => BTreeMap::new(),
        }
    }

    pub(crate) fn numbers(&self) -> BTreeSet<NodeNumber> {
        self.numbers.clone()
    }

    pub(crate) fn set_cluster(&self, cluster: ClusterId) {
        *self.cluster.write() = Some(cluster);
    }

    /// Whether `node` is a member again that was forgotten when it was removed.
    pub(crate) fn forgot(&self, node: NodeNumber) -> bool {
        self.log.is_unmet_member(node)
    }

    /// How often nodes were forgotten ([`OrderLog::forgettings`]).
    pub(crate) fn forgettings(&self) -> u64 {
        self.log.forgettings()
    }

    /// Whether the node that calls itself `node` is the one that was here before.
    pub(crate) fn meet(&self, node: NodeNumber, is_born: bool, incarnation: u64) -> Result<(), String> {
        if self.lost().get(&node) == Some(&incarnation) {
            return Err(lost(node));
        }
        let is_known = if is_born && self.begun().is_some() {
            self.log.meet(node, incarnation)
        } else {
            self.log.met(node).is_none_or(|known| known == incarnation)
        };
        if is_known {
            return Ok(());
        }
        Err(format!("node {node} {OTHER_DATA}: if they are lost, remove the node and add it again"))
    }
}
