//! What is too large for one request of a node: it goes ahead in parts before its transaction is
//! sealed, and is put together at every node (`order::arriving` has the rules).
//!
//! # At the origin
//!
//! ```text
//! running ─ put together, encoded ─ part 0 ─ delivered here ─ part 1 ─ … ─ sealed ─ the whole ─▶ verdict
//!                  │                  │                          │
//!                  ▼                  └── struck, given up ──────┴──▶ the order is told: given up
//!             too large: 54000
//! ```
//!
//! What is loaded into trees of the transaction's own, such as an index that is built, is refused
//! while it runs, once that is too large.
//!
//! Each part is proposed when the one before was delivered here, so the order has them in their
//! order, and one transaction has no more than one part on its way: others come in between. All the
//! while it can be struck, and it is looked at that before each part.
//!
//! Whoever ends before the whole is proposed says so in the order. A request that says so may be
//! lost, too, at a node without a majority; it is made again with the next position that is
//! decided here. If the node itself ends, the others hear that from its next start; if it was
//! removed from the cluster, one of them says it instead ([`Manager::give_up_of_others`]).
//!
//! # At every node
//!
//! A part becomes a row of the engine's own at its position. At the delivery of the whole the rows
//! are read, and the request that they are takes its place: those who are behind it in the queue
//! have to know what it writes. All parts are decided then, at every node: the origin had to have
//! decided them before it proposed the whole, and what a node has decided at a position follows
//! from what it was delivered up to there, or is more, if it has begun at an image since. As what
//! is decided meanwhile may be the end of it, it is asked again at its turn whether the parts are
//! there (`order::standing`); before that, nothing of it is a verdict.

use std::sync::Arc;

use crate::delivery::{Cluster, overtaken};
use crate::manager::{Manager, Request as Ended};
use crate::order::{Part, Purpose, Request, Whole};
use crate::own::{OwnRow, PARTS_TREE, part_key};
use crate::prepared::record::Parts;
use crate::sealing::{Composed, Encoded};
use crate::sequencer::{Decision, Place};
use crate::sync::atomic::Ordering;
use crate::transaction::Transaction;
use crate::txn::change::Effects;
use crate::txn::writeset::WriteSet;
use crate::{Csn, Error, TransactionId, TreeId, Value};

/// A part has this share of the largest request: others need not wait for long behind it.
const SHARE: u64 = 16;
/// A transaction comes in so many parts at most. Every node has all of it in memory at once when it
/// is judged.
const PARTS_MAX: u64 = 8 * SHARE;
/// `bot` has at most so many bytes more than the 0 that stands for it.
const BOT_BYTES: u64 = 9;

/// A transaction whose parts are of no use, and what its client calls it.
pub(crate) type GivenUp = (TransactionId, Option<Box<str>>);

/// What a transaction comes to that may be too large for one request.
pub(crate) struct Ahead {
    /// Without what has gone ahead, once everything has.
    composed: Composed,
    /// Trees that it has made.
    made: Vec<TreeId>,
    /// Parts that were proposed.
    parts: u64,
    /// Of all parts that there are to be; 0 if one request is enough.
    bytes: u64,
    /// All parts.
    encoded: Value,
}

impl Ahead {
    /// The part that is to be proposed next, if there is one.
    fn next_part(&self, of: TransactionId, part_bytes: u64) -> Option<Part> {
        let from = self.parts * part_bytes;
        let upto = self.bytes.min(from + part_bytes);
        let bytes = (from < upto).then(|| self.encoded.slice(from as usize..upto as usize))?;
        Some(Part { of, number: self.parts, all: self.bytes, bytes })
    }
}

fn part_bytes(request_bytes_max: u64) -> u64 {
    (request_bytes_max / SHARE).max(1)
}

/// Bytes of the largest transaction that goes in parts.
fn largest(cluster: &Cluster) -> u64 {
    PARTS_MAX * part_bytes(cluster.node.order.request_bytes_max())
}

impl Transaction {
    /// Moves what it has written into trees of its own to disk.
    ///
    /// # Errors
    /// As `WriteSet::spill`; `RequestTooLarge` once that is more than goes in parts. Its commit
    /// would be refused for the same, but only after all the work that is still to come.
    pub(crate) fn spill(&mut self) -> Result<(), Error> {
        self.writes.spill(&self.manager.store.base)?;
        let Some(cluster) = &self.manager.cluster else { return Ok(()) };
        let limit = largest(cluster);
        // What every node executes itself goes to nobody.
        let is_too_large = self.recorded.is_none() && self.writes.spilled_bytes() > limit;
        if is_too_large { Err(Error::RequestTooLarge { limit }) } else { Ok(()) }
    }

    /// Bytes that its writes hold, as `bytes`, and those that it has written to disk, which are
    /// read back to make a request to the other nodes of it.
    pub fn request_bytes(&self) -> u64 {
        self.writes.bytes() + self.writes.spilled_bytes()
    }

    /// Before a commit at a node of a cluster: sends what is too large for one request ahead.
    ///
    /// # Errors
    /// As `send_part_ahead`.
    pub(crate) async fn send_ahead(&mut self) -> Result<(), Error> {
        while self.send_part_ahead().await? {}
        Ok(())
    }

    /// Before a commit at a node of a cluster: sends the next part of what is too large for one
    /// request ahead, and waits until it has come. False if there is none: without effect in a
    /// database of its own, and where one request is enough. To be called until it says so, which
    /// a commit does, too; nothing but that or a rollback may follow. If this is given up, or has
    /// failed, the transaction is to be rolled back, and certainly does not commit.
    ///
    /// # Errors
    /// `RequestTooLarge` with the largest that goes in parts; `Overtaken`; `SerializationFailure`
    /// if there is no room for it at the nodes; `NotOrdered`; as `commit`.
    pub async fn send_part_ahead(&mut self) -> Result<bool, Error> {
        let manager = Arc::clone(&self.manager);
        let Some(cluster) = &manager.cluster else { return Ok(false) };
        self.set_out(cluster)?;
        let part_bytes = part_bytes(cluster.node.order.request_bytes_max());
        let part = self.ahead.as_ref().and_then(|ahead| ahead.next_part(self.id, part_bytes));
        let Some(part) = part else { return Ok(false) };
        if let Some(stroke) = self.fate.as_ref().and_then(|fate| fate.struck()) {
            return Err(overtaken(stroke));
        }
        // From here on the order has to be told if it comes to nothing.
        if let Some(ahead) = &mut self.ahead {
            ahead.parts += 1;
        }
        manager.propose_about(cluster, Purpose::Part(Box::new(part)))?.await?;
        Ok(true)
    }

    /// Puts together what it comes to, if one request may not be enough for it.
    fn set_out(&mut self, cluster: &Cluster) -> Result<(), Error> {
        let limit = cluster.node.order.request_bytes_max();
        // In memory it takes more than in a request.
        let may_be_large = self.writes.has_spilled() || self.bytes() + self.read_bytes() > limit / 2;
        if !may_be_large || self.ahead.is_some() || self.member.is_some() || self.writes.is_empty() {
            return Ok(());
        }
        let manager = Arc::clone(&self.manager);
        let mut ended = Ended { name: self.name.clone(), ..self.request() };
        // It goes on to hold them.
        self.held = std::mem::take(&mut ended.held);
        let made = self.writes.made();
        let writes = std::mem::replace(&mut self.writes, WriteSet::new(Arc::clone(&manager.budget)));
        let largest = largest(cluster);
        let composed = manager.compose(&mut ended, self.isolation(), &self.held, writes, largest)?;
        let Some(mut composed) = composed else {
            return Err(Error::Defect("a transaction that has written comes to nothing"));
        };
        let encoded = composed.request.encode(composed.size);
        let bytes = encoded.len() as u64;
        if bytes > largest {
            return Err(Error::RequestTooLarge { limit: largest });
        }
        let is_large = bytes + BOT_BYTES > limit;
        if is_large {
            let (locks, notes, changes) = (Vec::new(), Vec::new(), Vec::new());
            composed.request.parts = Parts { locks, notes, reads: None, changes };
            composed.request.effects = Effects::default();
            composed.request.dropped = Vec::new();
            composed.size = 0;
        }
        let (bytes, encoded) = if is_large { (bytes, encoded.into()) } else { (0, Value::new()) };
        self.ahead = Some(Box::new(Ahead { composed, made, parts: 0, bytes, encoded }));
        Ok(())
    }
}

impl Manager {
    /// Seals a transaction of which as much has gone ahead as had to.
    ///
    /// # Errors
    /// Who was faster.
    pub(crate) fn seal_ahead(&self, cluster: &Cluster, ahead: Ahead) -> Result<Encoded, Error> {
        let Ahead { mut composed, made, parts, bytes, .. } = ahead;
        if bytes == 0 {
            return self.encode(cluster, composed);
        }
        let given_up = (composed.request.id, composed.request.name.clone());
        composed.request.purpose = Purpose::Whole(Box::new(Whole { parts, bytes, made }));
        let sealed = self.encode(cluster, composed);
        sealed.inspect_err(|_| self.give_up(cluster, given_up))
    }

    /// A transaction ends before it was sealed.
    #[cold]
    pub(crate) fn end_ahead(&self, ahead: Ahead) {
        let Ahead { composed, parts, .. } = ahead;
        if let Some(cluster) = self.cluster.as_ref().filter(|_| parts > 0) {
            self.give_up(cluster, (composed.request.id, composed.request.name));
        }
    }

    fn give_up(&self, cluster: &Cluster, (of, name): GivenUp) {
        let applied = cluster.applied.load(Ordering::Acquire);
        let request = self.request_about(applied, Purpose::GiveUp { of, name });
        cluster.node.order.propose(request.encode(0).into());
    }

    /// A request was never ordered, and never will be: if the parts of a transaction are of no use
    /// by that, or if it was to say so, the order has to be told.
    pub(crate) fn parts_not_ordered(&self, cluster: &Cluster, request: &Request) {
        let given_up = match &request.purpose {
            Purpose::Whole(_) => (request.id, request.name.clone()),
            Purpose::GiveUp { of, name } => (*of, name.clone()),
            _ => return,
        };
        cluster.given_up.lock().push(given_up);
    }

    /// Gives up whatever has begun to come in parts from nodes that are no members any more: nobody
    /// is left there who could ask for the whole. To be asked again until there is none, since what
    /// says so may be lost. Without harm if such a node is one again: what it sends then is of a
    /// later start. How many there are.
    pub(crate) fn give_up_of_others(&self, is_member: impl Fn(u16) -> bool) -> usize {
        let Some(cluster) = &self.cluster else { return 0 };
        let lost = cluster.standing.lock().arriving_from(|node| !is_member(node));
        // What their clients have called them came with none of the parts.
        lost.iter().for_each(|of| self.give_up(cluster, (*of, None)));
        lost.len()
    }

    /// Says again what was lost on its way into the order, which is there now.
    pub(crate) fn give_up_again(&self, cluster: &Cluster) {
        let given_up = std::mem::take(&mut *cluster.given_up.lock());
        given_up.into_iter().for_each(|one| self.give_up(cluster, one));
    }

    /// A part has its place in the order: it is kept.
    ///
    /// # Errors
    /// `LogPoisoned`.
    pub(crate) fn keep_part(&self, place: Place, part: &Part) -> Result<(), Error> {
        let rows = vec![(PARTS_TREE, part_key(part.of, part.number), Some(part.bytes.clone()))];
        let decision = Decision { commits: false, decided: Default::default(), rows };
        self.sequencer.deliver_decision(place, decision, || {})
    }

    /// Removes parts at the next position, whatever that is.
    ///
    /// # Errors
    /// `LogPoisoned`.
    pub(crate) fn remove_parts(&self, position: Csn, left: Vec<(TransactionId, u64)>) -> Result<(), Error> {
        if left.is_empty() {
            return Ok(());
        }
        let parts = left.into_iter().flat_map(|(of, parts)| (0..parts).map(move |number| (of, number)));
        let rows: Vec<OwnRow> = parts.map(|(of, number)| (PARTS_TREE, part_key(of, number), None)).collect();
        self.sequencer.install_with_next(position, rows)
    }

    /// What a delivered request stands for: the one that has come in parts, if it has come, or
    /// itself.
    ///
    /// # Errors
    /// `Undecodable` if the parts are no request; from the base store. This node must not go on
    /// then.
    pub(crate) fn assembled(
        &self,
        cluster: &Cluster,
        position: Csn,
        head: Request,
    ) -> Result<Request, Error> {
        let Purpose::Whole(whole) = &head.purpose else { return Ok(head) };
        if !cluster.standing.lock().has_all_parts(head.id, whole) {
            // It is refused at its turn.
            return Ok(head);
        }
        let wrong =
            |what: String| Error::undecodable(format!("the request in parts at position {position}: {what}"));
        let mut bytes = Vec::with_capacity(whole.bytes as usize);
        for number in 0..whole.parts {
            let part = self.store.get_latest(PARTS_TREE, &part_key(head.id, number))?.value;
            let part = part.ok_or_else(|| wrong(format!("part {number} is missing")))?;
            bytes.extend_from_slice(&part);
        }
        let request = Request::decode(&bytes, &self.seed).map_err(wrong)?;
        if request.id != head.id || !matches!(request.purpose, Purpose::Commit) {
            return Err(wrong(format!("not the commit of transaction {}", head.id)));
        }
        let (bot, oldest, next_tree) = (head.bot, head.oldest, head.next_tree);
        Ok(Request { bot, oldest, next_tree, whole: Some(whole.clone()), ..request })
    }
}

/// Of a whole whose parts are not there.
#[cold]
pub(crate) fn not_whole() -> Error {
    Error::unserializable(
        "What the transaction has changed came in parts, and was given up before the last of them.",
    )
}
