//! Active transactions: a program is ordered, executed at every node when its turn comes, and what
//! it did is put into its request, as if the request had come with it.

use std::sync::Arc;

use bytes::Bytes;
use sha2::{Digest as _, Sha256};

use super::verdict::voted_against;
use super::{Executed, Execution, Progress, Turns, Waiting, is_alone, refused};
use crate::delivery::Cluster;
use crate::level::{Access, Isolation};
use crate::manager::{Manager, Request as Ended};
use crate::order::{Footprint, Level, Purpose, Request};
use crate::payload::Encoder;
use crate::prepared::record::encode_parts;
use crate::proposed::{Proposed, Sealed};
use crate::sync::atomic::Ordering;
use crate::transaction::Transaction;
use crate::txn::bulk::unload;
use crate::txn::writeset::{WriteSet, key_writes};
use crate::{Error, TransactionId};

impl Manager {
    /// Has a program ordered. `id` is of [`Manager::transaction_id`].
    ///
    /// # Errors
    /// `RequestTooLarge`.
    pub(crate) fn order_program(
        &self,
        id: TransactionId,
        isolation: Isolation,
        name: Option<&str>,
        program: &[u8],
    ) -> Result<Proposed, Error> {
        let Some(cluster) = &self.cluster else {
            return Err(Error::Defect("a database of its own orders no programs"));
        };
        let purpose = Purpose::Execute(program.into());
        let mut request = self.request_about(cluster.applied.load(Ordering::Acquire), purpose);
        (request.id, request.level, request.name) = (id, Level::of(isolation), name.map(Box::from));
        let bytes = request.encode(program.len() as u64);
        let limit = cluster.node.order.request_bytes_max();
        if bytes.len() as u64 > limit {
            return Err(Error::RequestTooLarge { limit });
        }
        let sealed = Sealed::default();
        let proposed = Proposed(Arc::clone(&sealed.outcome));
        cluster.sealed.lock().insert(id, sealed);
        cluster.node.order.propose(bytes.into());
        Ok(proposed)
    }

    pub(super) fn begin_ordered(self: &Arc<Self>, level: Level) -> Transaction {
        // Reads need not be noted: nothing comes in between.
        let isolation = match level {
            Level::ReadCommitted => Isolation::ReadCommitted,
            Level::Snapshot | Level::Serializable => Isolation::Snapshot,
        };
        let mut transaction = Transaction::begin(Arc::clone(self), isolation, Access::ReadWrite);
        transaction.record_locks();
        // How much it may write must not depend on what else this node has in memory.
        transaction.writes = WriteSet::new(Arc::new(self.budget.apart()));
        transaction
    }

    pub(super) fn execution(
        self: &Arc<Self>,
        cluster: &Cluster,
        turns: &mut Turns,
    ) -> Result<Progress, Error> {
        let first = turns.queue.front_mut();
        let Some(Waiting { position, request, early, .. }) = first else {
            return Err(Error::Defect("nobody is there to be executed"));
        };
        let Purpose::Execute(program) = &request.purpose else {
            return Err(Error::Defect("what is executed is a program"));
        };
        let isolation = match request.level {
            Level::ReadCommitted => Isolation::ReadCommitted,
            Level::Snapshot => Isolation::Snapshot,
            Level::Serializable => Isolation::Serializable,
        };
        let transaction = match early.take() {
            Some(early) => *early,
            None => self.begin_ordered(request.level),
        };
        turns.executing = Some(self.options.clock.monotonic());
        Ok(Progress::Execute(Box::new(Execution {
            position: *position,
            id: request.id,
            is_here: cluster.sealed.lock().contains_key(&request.id),
            isolation,
            program: Bytes::copy_from_slice(program),
            transaction,
        })))
    }

    /// The first in the queue was executed: it commits, or has come to nothing; and so on with
    /// those behind it.
    ///
    /// # Errors
    /// As `deliver`; also if the execution could not be brought to an end here: then this node must
    /// not go on, for others may have.
    pub(crate) fn finish(self: &Arc<Self>, executed: Executed) -> Result<Progress, Error> {
        let Executed { mut transaction, trees, commits } = executed;
        let Some(cluster) = &self.cluster else {
            return Err(Error::Defect("a database of its own executes no programs"));
        };
        let mut turns = cluster.turns.lock();
        let Some(Waiting { position, mut request, bytes, .. }) = turns.queue.pop_front() else {
            return Err(Error::Defect("nobody was executed"));
        };
        turns.executing = None;
        let submitted = request.snapshot;
        (request.snapshot, request.bot) = (position - 1, position - 1);
        let mut digest = Sha256::new();
        let mut locks = Vec::new();
        if commits {
            self.take_what_it_did(&mut transaction, &mut request)?;
            locks = request.all_locks();
            let mut did = Encoder::with_capacity(64);
            encode_parts(&mut did, &[], &request.parts.notes, None, &request.parts.changes);
            digest.update(did.finish());
        }
        transaction.end();
        drop(transaction);
        digest.update(&bytes);
        let digest = digest.finalize();
        // Nobody has to know what it wrote if nobody is behind it.
        let is_asked = commits && !turns.queue.is_empty() && !is_alone();
        let wrote = is_asked.then(|| {
            let writes = key_writes(&self.seed, &request.parts.changes, request.parts.notes.clone());
            Footprint::new(&locks, writes, &request.dropped)
        });
        let mut standing = cluster.standing.lock();
        if let Some(sealed) = cluster.sealed.lock().get(&request.id) {
            sealed.outcome.note_met(standing.was_met(&locks, submitted, cluster.node.number));
        }
        let verdict = match standing.judge(&request, &locks) {
            Ok(()) if !commits => Err(voted_against(None)),
            Ok(()) => match standing.in_doubt_over(&request, &trees) {
                Some(refusal) => Err(refused(refusal)),
                None => self.do_what_it_asks(cluster, &standing, position, &mut request, &locks, bytes.len()),
            },
            Err(refusal) => Err(refused(refusal)),
        };
        let delivered =
            self.conclude(cluster, &mut standing, position, &request, &locks, &digest, verdict)?;
        drop(standing);
        let mut effects = Vec::new();
        turns.lists.end(position, delivered.committed, wrote, &mut effects);
        self.carry_out(cluster, &mut turns, effects)?;
        if turns.queue.is_empty() {
            return Ok(Progress::Decided(delivered));
        }
        self.advance(cluster, &mut turns)
    }

    /// Puts what an executed transaction has locked and changed into its request.
    fn take_what_it_did(&self, transaction: &mut Transaction, request: &mut Request) -> Result<(), Error> {
        let locks = transaction.take_recorded();
        let Ended { mut notes, effects, .. } = transaction.request();
        let budget = Arc::clone(&self.budget);
        let mut writes = std::mem::replace(&mut transaction.writes, WriteSet::new(budget));
        let (loads, mut changes) = self.settle(&mut writes, &mut notes, None)?;
        if !loads.is_empty() {
            let unloaded = unload(&self.store.base, &loads, &mut changes);
            self.discard(&loads);
            unloaded?;
        }
        // As plans may differ between nodes, so may the order of what they do, and nothing else.
        changes.sort_by_key(|(tree, _)| *tree);
        notes.sort_unstable();
        request.dropped = writes.dropped().to_vec();
        request.effects = effects;
        request.parts.locks = locks;
        request.parts.notes = notes;
        request.parts.changes = changes;
        Ok(())
    }
}
