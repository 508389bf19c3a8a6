//! A node's side of the order: how its transactions are proposed, and what every node does with
//! what the order delivers (`order` has the rules).
//!
//! One thread, the *applier*, calls [`Manager::deliver`] for position after position. For each it
//! 1. judges locks ([`Standing`]) and reads (the certifier), both functions of the order;
//! 2. if it commits, takes its locks by force, and strikes whoever holds one against them;
//! 3. installs its changes under its position and moves the visible mark;
//! 4. lets go of the locks, which wakes who waits for them: they look again, and see it;
//! 5. moves `applied`, and tells the origin's client, if the origin is here.
//!
//! The applier waits for nobody. Whoever has a lock against a delivered request is either running,
//! and is struck, or sealed, and its own delivery will refuse it: it looked (`bot`) before.
//!
//! ```text
//! node 1: T1 has locked x                              running
//! order 7: T9 of node 2, which wrote x
//! node 1: T9 holds x beside T1; T1 is struck           its next step is 40001, naming T9 and x
//! node 1: T9's x is installed and shown, T9 lets go    T3, who waited for x, has it and sees T9's
//! ```
//!
//! *Sealing.* `applied` is read before a transaction is sealed. A stroke that comes in between
//! makes sealing fail; one that comes afterwards finds it sealed, and its position is above `bot`.
//!
//! Mutex order: `standing` (the applier's alone), the commit mutex, then those of the lock table
//! and of `fates`, one after the other. `sealed` is a leaf.

use std::collections::HashMap;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use foldhash::fast::RandomState;

use crate::durable::Commit;
use crate::fate::{Fate, Stroke};
use crate::key::SmallKey;
use crate::level::Isolation;
use crate::lock::mode::FamilySlot;
use crate::lock::table::{Held, HeldLock};
use crate::manager::{Manager, Request as Ended};
use crate::order::{Level, Operation, Purpose, Refusal, Request, Standing};
use crate::planted::{self, Planted};
use crate::prepared::ordered::Arrived;
use crate::prepared::record::Parts;
use crate::proposed::{Outcome, Proposed, Sealed};
use crate::sequencer::{Delivery, Place};
use crate::storage::StagedRun;
use crate::storage::images::Images;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{CachePadded, Mutex};
use crate::total_order::Node;
use crate::transaction::Transaction;
use crate::txn::bulk::unload;
use crate::txn::readset::ReadSet;
use crate::txn::writeset::{Changes, WriteSet};
use crate::{Csn, Error, Key, TransactionId, TreeId};

/// Shards of the table of running transactions.
const SHARDS: usize = 16;
/// The graph is pruned at every so manieth position.
const PRUNE_EVERY: Csn = 64;
/// The trees of which it is remembered when they changed: the system's.
pub(crate) const FIRST_TREES: usize = 8;
/// A node that is not heard of for so many positions announces its oldest snapshot.
const ANNOUNCE_AFTER: Csn = crate::order::SILENCE_MAX / 4;

/// What became of a position.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivered {
    /// The transaction whose request it was.
    pub transaction: TransactionId,
    /// Whether it commits.
    pub committed: bool,
}

/// What a node of a cluster has besides a database of its own.
pub(crate) struct Cluster {
    pub(crate) node: Node,
    /// The base had everything up to here when the database was opened.
    pub(crate) standing: Mutex<Standing>,
    /// How things stood at earlier positions.
    pub(crate) images: Images,
    /// Everything up to here is judged, shown, and has struck whom it strikes.
    pub(crate) applied: CachePadded<AtomicU64>,
    /// Who waits for a position to be applied.
    waiters: Mutex<Vec<(Csn, Waker)>>,
    /// The last positions that changed the first trees.
    pub(crate) changed: [AtomicU64; FIRST_TREES],
    pub(crate) sealed: Mutex<HashMap<TransactionId, Sealed, RandomState>>,
    fates: [Mutex<HashMap<TransactionId, Arc<Fate>, RandomState>>; SHARDS],
}

impl Cluster {
    /// One that begins with the first position.
    pub(crate) fn new(node: Node, images: Images) -> Cluster {
        Cluster {
            node,
            images,
            standing: Mutex::default(),
            applied: CachePadded::new(AtomicU64::new(0)),
            waiters: Mutex::default(),
            changed: std::array::from_fn(|_| AtomicU64::new(0)),
            sealed: Mutex::default(),
            fates: std::array::from_fn(|_| Mutex::default()),
        }
    }

    /// Goes on where an image says how things stand, and when the first trees changed last.
    pub(crate) fn begin_at(&self, standing: Standing, changed: &[Csn]) {
        self.applied.store(standing.applied(), Ordering::Release);
        *self.standing.lock() = standing;
        for (last, position) in self.changed.iter().zip(changed) {
            last.store(*position, Ordering::Release);
        }
    }

    /// Blocks until everything up to a position is on this node's disk.
    ///
    /// # Errors
    /// `ShuttingDown` if that will not be.
    pub(crate) fn wait_synced(&self, position: Csn) -> Result<(), Error> {
        if self.node.order.wait_synced(position) { Ok(()) } else { Err(Error::ShuttingDown) }
    }

    /// The last positions that changed the first trees.
    pub(crate) fn changed_at(&self) -> [Csn; FIRST_TREES] {
        std::array::from_fn(|tree| self.changed[tree].load(Ordering::Acquire))
    }

    /// Everything up to here is judged and shown.
    fn apply(&self, position: Csn) {
        self.applied.store(position, Ordering::Release);
        let woken: Vec<Waker> = {
            let mut waiters = self.waiters.lock();
            let due = waiters.extract_if(.., |(wanted, _)| *wanted <= position);
            due.map(|(_, waker)| waker).collect()
        };
        woken.into_iter().for_each(Waker::wake);
    }

    fn fates(&self, id: TransactionId) -> &Mutex<HashMap<TransactionId, Arc<Fate>, RandomState>> {
        &self.fates[id as usize % SHARDS]
    }

    /// A transaction begins.
    pub(crate) fn enter(&self, id: TransactionId) -> Arc<Fate> {
        let fate = Arc::<Fate>::default();
        self.fates(id).lock().insert(id, Arc::clone(&fate));
        fate
    }

    /// A transaction has ended.
    pub(crate) fn leave(&self, id: TransactionId) {
        self.fates(id).lock().remove(&id);
    }

    fn strike(&self, victim: TransactionId, stroke: Stroke) -> bool {
        let fate = self.fates(victim).lock().get(&victim).cloned();
        fate.is_some_and(|fate| fate.strike(stroke))
    }
}

/// Who was faster, as an error.
pub(crate) fn overtaken(stroke: Stroke) -> Error {
    let Stroke { by, position, tree, key } = stroke;
    Error::Overtaken { by, position, tree, key: key.map(|key| Key::copy_from_slice(&key)) }
}

impl Transaction {
    /// What its client calls it: no two transactions of one name commit in a cluster, and its
    /// outcome can be asked for by it. Without effect in a database of its own.
    pub fn name_request(&mut self, name: &str) {
        self.name = Some(name.into());
    }

    /// Commits, in a cluster as elsewhere: resolves once the transaction has its place in the
    /// order and its verdict.
    ///
    /// # Errors
    /// As `commit`; `Overtaken`.
    pub async fn commit_in_order(mut self) -> Result<Commit, Error> {
        if self.manager.cluster.is_none() {
            return self.commit();
        }
        let proposed = self.propose(Purpose::Commit);
        let manager = Arc::clone(&self.manager);
        drop(self);
        manager.committed(proposed?.await?)
    }

    /// The same for callers that may block their thread.
    pub(crate) fn commit_in_order_blocking(mut self) -> Result<Commit, Error> {
        let proposed = self.propose(Purpose::Commit);
        let manager = Arc::clone(&self.manager);
        drop(self);
        manager.committed(crate::durable::block_on(proposed?)?)
    }

    /// Seals the transaction and has it ordered. Whatever comes of that, it has ended.
    pub(crate) fn propose(&mut self, purpose: Purpose) -> Result<Proposed, Error> {
        let manager = Arc::clone(&self.manager);
        let Some(cluster) = &manager.cluster else {
            return Err(Error::Defect("a database of its own proposes nothing"));
        };
        if self.member.is_some() && purpose.is_commit() {
            return Err(Error::CannotPrepare {
                reason: "an instance of a family is prepared before it commits",
            });
        }
        let name = self.name.take();
        let mut ended = Ended { purpose, name, ..self.request() };
        let member = self.member.take();
        let isolation = self.isolation();
        let writes = std::mem::replace(&mut self.writes, WriteSet::new(Arc::clone(&manager.budget)));
        let sight = Arc::clone(&self.sight);
        let fate = self.fate.clone();
        self.end();
        let held = std::mem::take(&mut ended.held);
        let sealed = manager.seal(cluster, &mut ended, isolation, &held, writes, fate.as_deref());
        match sealed {
            Ok(None) => {
                manager.release(ended.id, held);
                let outcome = Arc::<Outcome>::default();
                outcome.tell(Ok(ended.rests_on));
                Ok(Proposed(outcome))
            }
            Ok(Some((request, writes))) => {
                let outcome = Arc::<Outcome>::default();
                let (_sight, outcome_here) = (Some(sight), Arc::clone(&outcome));
                let sealed = Sealed { held, _sight, writes, member, outcome: outcome_here };
                cluster.sealed.lock().insert(ended.id, sealed);
                cluster.node.order.propose(request);
                Ok(Proposed(outcome))
            }
            Err(error) => {
                manager.release(ended.id, held);
                if let Some(member) = member {
                    manager.part_sibling(&member, ended.id);
                }
                Err(error)
            }
        }
    }
}

/// What a transaction wrote: its write set, what that comes to, and dropped trees.
type Wrote = (WriteSet, Vec<(TreeId, Changes)>, Vec<TreeId>);

/// A request, and what its writes have of the budget.
type Encoded = (Bytes, Option<WriteSet>);

impl Manager {
    pub(crate) fn committed(&self, csn: Csn) -> Result<Commit, Error> {
        Ok(Commit { csn, durable: self.wait_durable_with_room(csn) })
    }

    /// Makes a request of an ended transaction, unless its end concerns nobody else.
    fn seal(
        &self,
        cluster: &Cluster,
        ended: &mut Ended,
        isolation: Isolation,
        held: &Held,
        mut writes: WriteSet,
        fate: Option<&Fate>,
    ) -> Result<Option<Encoded>, Error> {
        let mut reads = ended.reads.take();
        if writes.is_empty() && ended.purpose.is_commit() {
            self.counters.empty_commits.fetch_add(1, Ordering::Relaxed);
            let snapshot = ended.snapshot;
            let Some(reads) = reads.filter(|reads| !self.sequencer.is_free_to_read(snapshot, reads)) else {
                return Ok(None);
            };
            if planted::is(Planted::ReadersStayHome) {
                return self.sequencer.certify_reader(ended.id, snapshot, reads).map(|()| None);
            }
            return self.encode(cluster, ended, isolation, held, Some(reads), None, fate).map(Some);
        }
        let (loads, mut changes) = self.settle(&mut writes, &mut ended.notes, reads.as_mut())?;
        if !loads.is_empty() {
            // Other nodes have none of its runs.
            let limit = cluster.node.order.request_bytes_max();
            let unloaded = match loads.iter().map(StagedRun::bytes).sum::<u64>() <= limit {
                true => unload(&self.store.base, &loads, &mut changes),
                false => Err(Error::RequestTooLarge { limit }),
            };
            self.discard(&loads);
            unloaded?;
        }
        let dropped = writes.dropped().to_vec();
        self.encode(cluster, ended, isolation, held, reads, Some((writes, changes, dropped)), fate).map(Some)
    }

    #[allow(clippy::too_many_arguments, reason = "the parts of one transaction, each used once")]
    fn encode(
        &self,
        cluster: &Cluster,
        ended: &mut Ended,
        isolation: Isolation,
        held: &Held,
        reads: Option<ReadSet>,
        wrote: Option<Wrote>,
        fate: Option<&Fate>,
    ) -> Result<Encoded, Error> {
        // Before it is sealed: whatever is delivered in between strikes it.
        let bot = cluster.applied.load(Ordering::Acquire);
        if let Some(fate) = fate {
            fate.seal().map_err(overtaken)?;
        }
        let (writes, changes, dropped) = match wrote {
            Some((writes, changes, dropped)) => (Some(writes), changes, dropped),
            None => (None, Vec::new(), Vec::new()),
        };
        let size = writes.as_ref().map_or(0, WriteSet::bytes);
        let request = Request {
            id: ended.id,
            name: ended.name.take(),
            level: Level::of(isolation),
            snapshot: ended.snapshot,
            bot,
            oldest: self.store.oldest_snapshot().min(ended.snapshot),
            next_tree: self.store.trees.next(),
            dropped,
            effects: std::mem::take(&mut ended.effects),
            parts: Parts {
                locks: match planted::is(Planted::SendsNoLocks) {
                    true => Vec::new(),
                    false => self.locks.held_by(ended.id, held),
                },
                notes: std::mem::take(&mut ended.notes),
                reads,
                changes,
            },
            purpose: std::mem::take(&mut ended.purpose),
        };
        let bytes = request.encode(size);
        let limit = cluster.node.order.request_bytes_max();
        if bytes.len() as u64 > limit {
            return Err(Error::RequestTooLarge { limit });
        }
        Ok((bytes.into(), writes))
    }

    /// Delivers position `position` of the order, the next one. To be called by one thread.
    ///
    /// # Errors
    /// `Undecodable` if the bytes are no request; `LogPoisoned`. This node must not go on then.
    pub(crate) fn deliver(&self, position: Csn, bytes: &[u8]) -> Result<Delivered, Error> {
        let Some(cluster) = &self.cluster else {
            return Err(Error::Defect("a database of its own has no order to follow"));
        };
        let mut request = Request::decode(bytes)
            .map_err(|what| Error::undecodable(format!("the request at position {position}: {what}")))?;
        let mut standing = cluster.standing.lock();
        let locks = request.all_locks();
        let verdict = match standing.judge(&request, &locks) {
            Ok(()) => {
                let horizon = position.is_multiple_of(PRUNE_EVERY).then(|| {
                    match planted::is(Planted::PrunesByItself) {
                        true => self.store.oldest_snapshot(),
                        false => standing.horizon(),
                    }
                });
                match request.purpose {
                    Purpose::Commit => {
                        self.decide_delivered(cluster, position, &mut request, &locks, bytes.len(), horizon)
                    }
                    _ => {
                        let place = Place { csn: position, bytes: bytes.len() as u64, horizon };
                        let arrived = Arrived { place, request: &request, locks: &locks };
                        self.decide_prepared(cluster, standing.undecided(), &arrived)
                    }
                }
            }
            Err(Refusal::Known { position: first, committed }) => {
                tracing::debug!(position, first, committed, "a request was delivered again");
                standing.pass(position, bytes);
                self.pass(cluster, position, bytes.len())?;
                return Ok(Delivered { transaction: request.id, committed });
            }
            Err(refusal) => Err(refused(refusal)),
        };
        let committed = match &verdict {
            Ok(()) => true,
            Err(error) if is_verdict(error) => false,
            Err(error) => return Err(error.clone()),
        };
        standing.enter(position, &request, &locks, committed, bytes);
        self.store.trees.raise(request.next_tree);
        match committed {
            true => cluster.apply(position),
            false => self.pass(cluster, position, bytes.len())?,
        }
        if let Some(sealed) = cluster.sealed.lock().remove(&request.id) {
            self.release(request.id, sealed.held);
            match committed {
                true => self.count(&request),
                false if request.purpose.is_of_transaction() => self.rolled_back(),
                false => {}
            }
            if let Some(member) = sealed.member.filter(|_| !committed) {
                self.part_sibling(&member, request.id);
            }
            sealed.outcome.tell(verdict.map(|()| position));
        }
        self.announce(cluster, &standing);
        Ok(Delivered { transaction: request.id, committed })
    }

    /// Second part of the verdict, and what a commit does.
    fn decide_delivered(
        &self,
        cluster: &Cluster,
        position: Csn,
        request: &mut Request,
        locks: &[(HeldLock, bool)],
        bytes: usize,
        horizon: Option<Csn>,
    ) -> Result<(), Error> {
        let is_own = cluster.sealed.lock().contains_key(&request.id);
        let candidate = self.sequencer.certifies().then(|| request.take_candidate());
        let changes = request.take_changes();
        let request = &*request;
        let delivery = Delivery { candidate, changes, dropped: &request.dropped, bytes: bytes as u64 };
        let trees = request.parts.changes.iter().map(|(tree, _)| *tree as usize);
        let first = trees.filter(|tree| *tree < FIRST_TREES);
        let mut granted = Held::default();
        let verdict = self.sequencer.deliver(position, delivery, horizon, || {
            // What ran here has these locks itself.
            if !is_own && request.writes() {
                granted = self.grant(cluster, position, request.id, None, locks);
            }
            // Before it can be seen.
            first.for_each(|tree| cluster.changed[tree].store(position, Ordering::Release));
        });
        self.release(request.id, granted);
        verdict
    }

    /// Takes a delivered request's locks, and strikes whoever holds one against them.
    pub(crate) fn grant(
        &self,
        cluster: &Cluster,
        position: Csn,
        id: TransactionId,
        family: Option<FamilySlot>,
        locks: &[(HeldLock, bool)],
    ) -> Held {
        let mut against = Vec::new();
        let held = self.locks.force(id, family, locks.iter().map(|(lock, _)| lock), &mut against);
        let writes = |tree: TreeId, key: &Option<SmallKey>| {
            locks.iter().any(|(lock, writes)| *writes && (lock.tree, &lock.key) == (tree, key))
        };
        against.retain(|(_, tree, key)| {
            !planted::is(Planted::StrikesNobody)
                && (!planted::is(Planted::StrikesForWritesOnly) || writes(*tree, key))
        });
        for (victim, tree, key) in against {
            cluster.strike(victim, Stroke { by: id, position, tree, key });
        }
        held
    }

    /// A request of this node was granted.
    fn count(&self, request: &Request) {
        match &request.purpose {
            Purpose::Commit if !request.writes() => {}
            Purpose::Commit | Purpose::Decide { commits: true, .. } => {
                self.counters.commits.fetch_add(1, Ordering::Relaxed);
            }
            Purpose::Decide { commits: false, .. } => self.rolled_back(),
            Purpose::OnFamily(on) if matches!(on.operation, Operation::Commit(_)) => {
                self.counters.commits.fetch_add(1, Ordering::Relaxed);
            }
            Purpose::Prepare(_) | Purpose::OnFamily(_) => {}
        }
    }

    fn pass(&self, cluster: &Cluster, position: Csn, bytes: usize) -> Result<(), Error> {
        self.sequencer.pass(position, bytes as u64)?;
        cluster.apply(position);
        Ok(())
    }

    /// Says which snapshots there are here, if nobody here has said so for long.
    fn announce(&self, cluster: &Cluster, standing: &Standing) {
        let silent = standing.applied().saturating_sub(standing.announced_at(cluster.node.number));
        if silent < ANNOUNCE_AFTER || !silent.is_multiple_of(ANNOUNCE_AFTER) {
            return;
        }
        let request = self.request_about(standing.applied(), Purpose::Commit);
        cluster.node.order.propose(request.encode(0).into());
    }

    /// Everything up to here is judged and shown. 0 in a database of its own.
    pub(crate) fn applied(&self) -> Csn {
        self.cluster.as_ref().map_or(0, |cluster| cluster.applied.load(Ordering::Acquire))
    }

    /// What was committed before is not in the graph any more; 0 in a database of its own.
    pub(crate) fn horizon(&self) -> Csn {
        self.cluster.as_ref().map_or(0, |cluster| cluster.standing.lock().horizon())
    }

    /// The last position that changed one of the first trees.
    pub(crate) fn changed_at(&self, tree: TreeId) -> Csn {
        let changed = self.cluster.as_ref().and_then(|cluster| cluster.changed.get(tree as usize));
        changed.map_or(0, |position| position.load(Ordering::Acquire))
    }

    /// The last position that was delivered, and the digest of all requests and verdicts up to it.
    pub(crate) fn digest(&self) -> Option<(Csn, [u8; 32])> {
        let cluster = self.cluster.as_ref()?;
        let standing = cluster.standing.lock();
        Some((standing.applied(), standing.digest()))
    }

    /// The digest up to one of the last positions.
    pub(crate) fn digest_at(&self, position: Csn) -> Option<[u8; 32]> {
        self.cluster.as_ref()?.standing.lock().digest_at(position)
    }

    /// Ready once `position` is judged and shown; at once in a database of its own.
    pub(crate) fn poll_applied(&self, position: Csn, context: &mut Context<'_>) -> Poll<()> {
        let Some(cluster) = &self.cluster else { return Poll::Ready(()) };
        if cluster.applied.load(Ordering::Acquire) >= position {
            return Poll::Ready(());
        }
        let mut waiters = cluster.waiters.lock();
        // Again under the mutex: who moved the mark in between has not seen this one.
        if cluster.applied.load(Ordering::Acquire) >= position {
            return Poll::Ready(());
        }
        waiters.push((position, context.waker().clone()));
        Poll::Pending
    }

    /// A proposal was never ordered, and never will be.
    pub(crate) fn not_ordered(&self, bytes: &[u8]) {
        let (Some(cluster), Ok(request)) = (&self.cluster, Request::decode(bytes)) else { return };
        let Some(sealed) = cluster.sealed.lock().remove(&request.id) else { return };
        self.release(request.id, sealed.held);
        if request.purpose.is_of_transaction() {
            self.rolled_back();
        }
        if let Some(member) = sealed.member {
            self.part_sibling(&member, request.id);
        }
        sealed.outcome.tell(Err(Error::NotOrdered));
    }

    /// The same of a request by the name that its client has given it.
    pub(crate) fn outcome_of(&self, name: &str) -> Option<(Csn, bool)> {
        self.cluster.as_ref()?.standing.lock().outcome_of(name)
    }

    /// What became of a transaction, as long as it is remembered: its position, and whether it
    /// committed.
    pub(crate) fn outcome(&self, id: TransactionId) -> Option<(Csn, bool)> {
        self.cluster.as_ref()?.standing.lock().outcome(id)
    }
}

/// Whether a request that ends so was refused, as it is everywhere.
fn is_verdict(error: &Error) -> bool {
    let refused = matches!(
        error,
        Error::RequestKnown { .. } | Error::AlreadyPrepared | Error::NotPrepared | Error::Refused(_)
    );
    refused || error.is_retryable()
}

/// A refusal, as its client is told.
fn refused(refusal: Refusal) -> Error {
    match refusal {
        Refusal::Overtaken { by, position, tree, key } => overtaken(Stroke { by, position, tree, key }),
        Refusal::TooOld { horizon } => Error::SerializationFailure {
            detail: format!(
                "The snapshot is too old: nothing is known any more of what was before {horizon}."
            ),
        },
        Refusal::Named { position } => Error::RequestKnown { position },
        Refusal::Known { .. } => Error::Defect("a known request is not refused"),
    }
}
