//! How a transaction of a node becomes a request: what it comes to is put together, it is sealed
//! (`delivery` says what that means), encoded, and proposed.
//!
//! The steps are apart since what is too large for one request goes ahead in parts between the
//! first and the second (`ahead`).

use std::sync::Arc;

use bytes::Bytes;

use crate::delivery::Cluster;
use crate::key::SmallKey;
use crate::level::Isolation;
use crate::lock::table::Held;
use crate::manager::{Manager, Request as Ended};
use crate::order::{Level, Purpose, Request};
use crate::planted::{self, Planted};
use crate::prepared::record::Parts;
use crate::proposed::{Outcome, Proposed, Sealed};
use crate::sibling::Member;
use crate::sight::Sight;
use crate::storage::StagedRun;
use crate::sync::atomic::Ordering;
use crate::transaction::Transaction;
use crate::txn::bulk::unload;
use crate::txn::readset::{Point, ReadSet};
use crate::txn::writeset::{Changes, WriteSet};
use crate::{Csn, Error, TransactionId, TreeId};

/// What a transaction wrote: its write set, what that comes to, and dropped trees.
type Wrote = (WriteSet, Vec<(TreeId, Changes)>, Vec<TreeId>);

/// What a transaction comes to, before it is sealed.
pub(crate) struct Composed {
    /// With 0 as its `bot`.
    pub(crate) request: Request,
    /// About how many bytes its changes are.
    pub(crate) size: u64,
    /// What its writes have of the budget.
    pub(crate) writes: Option<WriteSet>,
    /// What it read, if only this node judges that.
    pub(crate) reads: Option<ReadSet>,
}

/// A request that goes out, and what stays here until it is delivered.
pub(crate) struct Encoded {
    request: Bytes,
    writes: Option<WriteSet>,
    reads: Option<ReadSet>,
}

/// What a transaction leaves behind that is about to be ordered.
struct Leaving {
    id: TransactionId,
    /// The last commit that it looked at.
    rests_on: Csn,
    held: Held,
    sight: Arc<Sight>,
    member: Option<Box<Member>>,
}

/// Whether nothing was read but what is written, too.
fn is_covered(reads: &ReadSet, changes: &[(TreeId, Changes)]) -> bool {
    let is_written = |point: &Point| {
        let tree = changes.iter().find(|(tree, _)| *tree == point.tree);
        tree.is_some_and(|(_, changes)| changes.get(&SmallKey::new(reads.key(point))).is_some())
    };
    reads.ranges().is_empty() && reads.points().iter().all(is_written)
}

impl Transaction {
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
        let rests_on = self.rests_on();
        let (held, sealed) = match self.ahead.take() {
            Some(ahead) => {
                let sealed = manager.seal_ahead(cluster, *ahead);
                (std::mem::take(&mut self.held), sealed.map(Some))
            }
            None => self.seal_here(&manager, cluster, purpose),
        };
        let (sight, member) = (Arc::clone(&self.sight), self.member.take());
        self.end();
        manager.send(cluster, Leaving { id: self.id, rests_on, held, sight, member }, sealed)
    }

    /// Seals it with all that it comes to, unless its end concerns nobody else. Its locks are
    /// given back.
    fn seal_here(
        &mut self,
        manager: &Manager,
        cluster: &Cluster,
        purpose: Purpose,
    ) -> (Held, Result<Option<Encoded>, Error>) {
        let name = self.name.take();
        let mut ended = Ended { purpose, name, ..self.request() };
        let held = std::mem::take(&mut ended.held);
        let writes = std::mem::replace(&mut self.writes, WriteSet::new(Arc::clone(&manager.budget)));
        let limit = cluster.node.order.request_bytes_max();
        let composed = manager.compose(&mut ended, self.isolation(), &held, writes, limit);
        let sealed = match composed {
            Ok(Some(composed)) => manager.encode(cluster, composed).map(Some),
            Ok(None) => Ok(None),
            Err(error) => Err(error),
        };
        (held, sealed)
    }
}

impl Manager {
    /// What was sealed goes out, and its transaction waits for the verdict.
    fn send(
        &self,
        cluster: &Cluster,
        leaving: Leaving,
        sealed: Result<Option<Encoded>, Error>,
    ) -> Result<Proposed, Error> {
        let Leaving { id, rests_on, held, sight, member } = leaving;
        match sealed {
            Ok(None) => {
                self.release(id, held);
                let outcome = Arc::<Outcome>::default();
                outcome.tell(Ok(rests_on));
                Ok(Proposed(outcome))
            }
            Ok(Some(Encoded { request, writes, reads })) => {
                let outcome = Arc::<Outcome>::default();
                let (_sight, outcome_here) = (Some(sight), Arc::clone(&outcome));
                let sealed = Sealed { held, _sight, writes, reads, member, outcome: outcome_here };
                cluster.sealed.lock().insert(id, sealed);
                cluster.node.order.propose(request);
                Ok(Proposed(outcome))
            }
            Err(error) => {
                self.release(id, held);
                if let Some(member) = member {
                    self.part_sibling(&member, id);
                }
                Err(error)
            }
        }
    }

    /// Makes a request of an ended transaction, unless its end concerns nobody else. What it has
    /// loaded in bulk may have so many bytes.
    ///
    /// # Errors
    /// `RequestTooLarge`; from the base store; where memory is full.
    pub(crate) fn compose(
        &self,
        ended: &mut Ended,
        isolation: Isolation,
        held: &Held,
        mut writes: WriteSet,
        limit: u64,
    ) -> Result<Option<Composed>, Error> {
        let mut reads = ended.reads.take();
        if writes.is_empty() && ended.purpose.is_commit() {
            self.counters.empty_commits.fetch_add(1, Ordering::Relaxed);
            let snapshot = ended.snapshot;
            let is_free = |reads: &ReadSet| {
                planted::is(Planted::ReadersGoUnjudged) || self.sequencer.is_free_to_read(snapshot, reads)
            };
            let Some(reads) = reads.filter(|reads| !is_free(reads)) else { return Ok(None) };
            // Others judge it as well as this node could. Its client's name is left to what writes.
            ended.purpose = Purpose::Commit;
            ended.name = None;
            if planted::is(Planted::ReadersStayHome) {
                let (id, began) = (ended.id, ended.began);
                return self.sequencer.certify_reader(id, snapshot, began, reads).map(|()| None);
            }
            return Ok(Some(self.put_together(ended, isolation, held, Some(reads), None)));
        }
        let (notes, read) = (&mut ended.notes, reads.as_mut());
        let settled = self.admit().and_then(|()| self.settle(&mut writes, notes, read));
        // What it has spilled, if it did not come to be settled.
        let settled = settled.inspect_err(|_| writes.discard_spilled(&self.store.base));
        let (loads, mut changes) = settled?;
        if !loads.is_empty() {
            // Other nodes have none of its runs.
            let unloaded = match loads.iter().map(StagedRun::bytes).sum::<u64>() <= limit {
                true => unload(&self.store.base, &loads, &mut changes),
                false => Err(Error::RequestTooLarge { limit }),
            };
            self.discard(&loads);
            unloaded?;
        }
        let dropped = writes.dropped().to_vec();
        Ok(Some(self.put_together(ended, isolation, held, reads, Some((writes, changes, dropped)))))
    }

    fn put_together(
        &self,
        ended: &mut Ended,
        isolation: Isolation,
        held: &Held,
        reads: Option<ReadSet>,
        wrote: Option<Wrote>,
    ) -> Composed {
        let (writes, changes, dropped) = match wrote {
            Some((writes, changes, dropped)) => (Some(writes), changes, dropped),
            None => (None, Vec::new(), Vec::new()),
        };
        let (reads, kept) = match (&ended.purpose, reads) {
            (Purpose::Voting, Some(reads)) if !is_covered(&reads, &changes) => (None, Some(reads)),
            (Purpose::Voting, _) => {
                // Whoever comes between has to change what this one changes.
                ended.purpose = Purpose::Commit;
                (None, None)
            }
            (_, reads) => (reads, None),
        };
        let request = Request {
            id: ended.id,
            name: ended.name.take(),
            level: Level::of(isolation),
            snapshot: ended.snapshot,
            began: ended.began,
            bot: 0,
            oldest: self.store.oldest_snapshot().min(ended.began),
            next_tree: self.store.trees.next(),
            dropped,
            whole: None,
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
        let size = writes.as_ref().map_or(0, WriteSet::bytes);
        Composed { request, size, writes, reads: kept }
    }

    /// Seals what was put together: from here on only its delivery decides.
    ///
    /// # Errors
    /// Who was faster; `RequestTooLarge`.
    pub(crate) fn encode(&self, cluster: &Cluster, composed: Composed) -> Result<Encoded, Error> {
        let Composed { mut request, size, writes, reads } = composed;
        request.bot = cluster.seal(request.id)?;
        let bytes = request.encode(size);
        let limit = cluster.node.order.request_bytes_max();
        if bytes.len() as u64 > limit {
            return Err(Error::RequestTooLarge { limit });
        }
        Ok(Encoded { request: bytes.into(), writes, reads })
    }
}
