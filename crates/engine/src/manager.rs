//! The transaction manager, and nothing else: what a transaction needs on its way and at its end.
//! What looks after the database behind it is in `upkeep`.
//!
//! Step 5 of the corridor in ARCHITECTURE.md.
//!
//! Everything committed is in the store (`store`), and comes there by way of the sequencer
//! (`sequencer`), which has the steps of the commit path from the record to the visible versions.
//! Around them lies here what one database has besides: locks, families, prepared transactions,
//! budgets, counters, and who is running.
//!
//! A commit, seen from here: what the transaction spilled is in staged runs, durable already; what
//! is left of its write set becomes changes; both go to the sequencer with its part in the graph.
//! When that has answered, *locks* are released, the log thread is woken (before that if there are
//! many locks), and the future of durability goes back to the caller.
//!
//! Mutex order: a shard of families, then whatever the sequencer takes. Lock-table mutexes are
//! never taken with any of these held but the families'.

use std::sync::Arc;

use crate::active::{Active, Running, Slot};
use crate::certifier::Candidate;
use crate::delivery::Cluster;
use crate::durable::{Commit, DurableWait};
use crate::hash::Seed;
use crate::image::open_images;
use crate::key::SmallKey;
use crate::lock::mode::FamilySlot;
use crate::lock::table::{Held, LockTable};
use crate::notes::noted_tree;
use crate::options::Options;
use crate::order::Purpose;
use crate::own::SavedNumbers;
use crate::prepared::PreparedTable;
use crate::pressure::Pressure;
use crate::reads::ReadBudget;
use crate::recovery::Recovered;
use crate::sequencer::{Entry, Sequencer, Writing};
use crate::sibling::Families;
use crate::storage::StagedRun;
use crate::store::Store;
use crate::sync::CachePadded;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::txn::budget::Budget;
use crate::txn::change::Effects;
use crate::txn::columns::Columns;
use crate::txn::id::Numbers;
use crate::txn::readset::{Moment, ReadSet};
use crate::txn::writeset::{Changes, WriteSet, key_writes};
use crate::{Csn, Error, TransactionId, TreeId};

/// Whoever holds more locks on rows than these wakes the log thread before he releases them: that
/// takes longer than to wake it, and the log would stand still meanwhile.
const FEW_LOCKS: usize = 64;

/// What the transactions of one open database share: each holds it until its end.
pub(crate) struct Manager {
    pub(crate) options: Options,
    /// Of the hashes of what was locked, read and written.
    pub(crate) seed: Seed,
    pub(crate) store: Arc<Store>,
    pub(crate) sequencer: Sequencer,
    pub(crate) active: Active,
    pub(crate) locks: Arc<LockTable>,
    pub(crate) prepared: PreparedTable,
    pub(crate) families: Families,
    pub(crate) counters: CachePadded<Counters>,
    /// Memory of write sets.
    pub(crate) budget: Arc<Budget>,
    /// Memory of what running transactions have read.
    pub(crate) read_budget: Arc<ReadBudget>,
    pub(crate) pressure: Arc<Pressure>,
    transactions: CachePadded<Numbers>,
    /// Its part in a cluster, if it has one.
    pub(crate) cluster: Option<Cluster>,
}

/// Counts since the database was opened.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) commits: AtomicU64,
    pub(crate) empty_commits: AtomicU64,
    pub(crate) rollbacks: AtomicU64,
}

/// A transaction that asks to commit, besides its write set.
#[derive(Default)]
pub(crate) struct Request {
    pub(crate) id: TransactionId,
    pub(crate) family: Option<FamilySlot>,
    pub(crate) snapshot: Csn,
    /// Its first snapshot, if it has moved since.
    pub(crate) began: Csn,
    /// What it asks for at a node of a cluster, if that is not to commit.
    pub(crate) purpose: Purpose,
    /// What its client calls it.
    pub(crate) name: Option<Box<str>>,
    /// The last commit that it looked at.
    pub(crate) rests_on: Csn,
    /// What it read, if it is to be certified.
    pub(crate) reads: Option<ReadSet>,
    /// Keys that it changed and that are no rows.
    pub(crate) notes: Vec<(TreeId, SmallKey)>,
    /// What it changed of rows, where that is known.
    pub(crate) effects: Effects,
    pub(crate) held: Held,
}

/// The bulk loads and the changes of a write set.
pub(crate) type Settled = (Vec<StagedRun>, Vec<(TreeId, Changes)>);

impl Manager {
    /// Opens the folder and recovers. The answer also has what was replayed.
    pub(crate) fn open(options: Options) -> Result<(Manager, Recovered), Error> {
        Manager::open_with(options, Seed::of_database())
    }

    /// The same with a seed that was drawn.
    pub(crate) fn open_with(options: Options, seed: Seed) -> Result<(Manager, Recovered), Error> {
        let pressure = Arc::new(Pressure::new(options.memory_bytes));
        let (store, numbers, recovered) = Store::open(&options, &seed, pressure.soft(), cores())?;
        let store = Arc::new(store);
        let (method, early) = (options.serializable, options.early_lock_release);
        let cluster = match options.node.clone() {
            None => None,
            Some(node) => {
                let images = open_images(&options.disk, &options.path)?;
                Some(Cluster::new(node, images))
            }
        };
        // What a summary joins depends on sizes, so nodes of a cluster make none: the horizon keeps
        // the graph small.
        let certifier_bytes = if cluster.is_some() { u64::MAX } else { options.certifier_bytes };
        let manager = Manager {
            sequencer: Sequencer::new(Arc::clone(&store), method, certifier_bytes, early),
            cluster,
            store,
            active: Active::default(),
            locks: Arc::new(LockTable::new(&seed)),
            prepared: PreparedTable::default(),
            families: Families::default(),
            counters: CachePadded::default(),
            budget: Arc::new(Budget::new(
                options.memory_bytes / 2,
                options.transaction_bytes,
                options.spill_bytes,
            )),
            read_budget: Arc::new(ReadBudget::new(options.certifier_bytes, &seed)),
            pressure,
            transactions: CachePadded::new(Numbers::starting_at(numbers.transaction)),
            seed,
            options,
        };
        manager.restore_image()?;
        Ok((manager, recovered))
    }

    pub(crate) fn set_certifier_bytes(&self, bytes: u64) {
        self.read_budget.set_limit(bytes);
        if self.cluster.is_none() {
            self.sequencer.set_limit(bytes);
        }
    }

    pub(crate) fn transaction_id(&self) -> TransactionId {
        self.transactions.take()
    }

    /// Gives a transaction its id and counts it among those that run.
    pub(crate) fn enter(&self, running: Running) -> (TransactionId, Slot) {
        self.active.enter(&self.transactions, running)
    }

    /// The allocators' marks: nothing committed names a number at or above them.
    pub(crate) fn numbers(&self) -> SavedNumbers {
        SavedNumbers { transaction: self.transactions.next(), next_tree: self.store.trees.next() }
    }

    /// Commits a write set and releases the locks.
    pub(crate) fn commit(&self, mut request: Request, writes: &mut WriteSet) -> Result<Commit, Error> {
        let id = request.id;
        if writes.is_empty() {
            let reads = request.reads.take();
            let Request { snapshot, began, .. } = request;
            let certify = |reads| self.sequencer.certify_reader(id, snapshot, began, reads);
            let verdict = reads.map_or(Ok(()), certify);
            self.release(id, request.held);
            verdict?;
            self.counters.empty_commits.fetch_add(1, Ordering::Relaxed);
            return Ok(Commit::new(request.rests_on, self.wait_durable(request.rests_on)));
        }
        let size = writes.bytes();
        let (notes, reads) = (&mut request.notes, request.reads.as_mut());
        let settled = self.admit().and_then(|()| self.settle(writes, notes, reads));
        let (loads, changes) = match settled {
            Ok(settled) => settled,
            Err(error) => {
                self.release(id, request.held);
                return Err(error);
            }
        };
        let candidate = self.candidate(&mut request, &changes, writes.whole_trees(&loads));
        let (held, dropped) = (Some(request.held), writes.dropped());
        let mut writing = Writing { id, candidate, loads: &loads, dropped, changes, size, held };
        let (appended, rest) = self.sequencer.append_quietly(Entry::Commit(&mut writing));
        let mut rest = Some(rest);
        // Before the log thread is woken, which may take this thread's processor: who waits for a
        // row that many change keeps all the others waiting.
        if let Some(held) = writing.held {
            if held.count() > FEW_LOCKS {
                rest = None;
            }
            self.release(id, held);
        }
        drop(rest);
        let csn = appended.inspect_err(|_| self.discard(&loads))?;
        self.counters.commits.fetch_add(1, Ordering::Relaxed);
        Ok(Commit::new(csn, self.wait_durable_with_room(csn)))
    }

    /// A transaction as the certifier sees it, if there is one.
    pub(crate) fn candidate(
        &self,
        request: &mut Request,
        changes: &[(TreeId, Changes)],
        whole_trees: Vec<TreeId>,
    ) -> Option<Candidate> {
        self.sequencer.certifies().then(|| {
            let (reads, notes) = (request.reads.take(), std::mem::take(&mut request.notes));
            let writes = key_writes(&self.seed, changes, notes);
            Candidate::new(request.id, request.snapshot, reads, writes, whole_trees)
                .with_effects(std::mem::take(&mut request.effects))
                .begun_at(request.began)
                .of_family(request.family)
        })
    }

    /// The wait for a commit; while memory is full, also for a checkpoint.
    pub(crate) fn wait_durable_with_room(&self, csn: Csn) -> DurableWait {
        // The thread may be the one that takes part in the order of all nodes, which must not stand
        // still; and to hold back who commits here would keep out nothing that comes from others.
        if self.cluster.is_none() {
            self.pressure.hold_back(self.store.memory.bytes());
        }
        let room = self.pressure.note(self.store.memory.bytes());
        self.sequencer.wait_durable(csn, room)
    }

    /// Refuses a transaction that only this database knows of yet, where memory is full and cannot
    /// be emptied.
    pub(crate) fn admit(&self) -> Result<(), Error> {
        self.pressure.admit(self.store.memory.bytes())
    }

    /// What a write set comes to: its bulk loads and its changes; and notes and reads to what is
    /// noted in the end. Waits for nothing, and asks nobody for room: what is in the order of all
    /// nodes is not refused by one of them.
    pub(crate) fn settle(
        &self,
        writes: &mut WriteSet,
        notes: &mut Vec<(TreeId, SmallKey)>,
        reads: Option<&mut ReadSet>,
    ) -> Result<Settled, Error> {
        let private = writes.private().cloned();
        let loads = writes.take_loads(&self.store.base)?;
        let mut changes = writes.take();
        // What was spilled of the transaction's own trees may be what a deletion is of; and what
        // was written into dropped trees is not known any more.
        let dropped = writes.dropped();
        let shared = |tree: TreeId| {
            private.as_ref().is_none_or(|private| !private.has(tree)) && !dropped.contains(&tree)
        };
        let noted = self.drop_notes(notes, &changes, shared);
        if let Err(error) = noted.and_then(|()| self.take_nothing(&mut changes, reads, shared)) {
            self.discard(&loads);
            return Err(error);
        }
        Ok((loads, changes))
    }

    /// Removes the loads of a transaction that did not commit.
    ///
    /// Not if the log has failed: whoever was refused because of a defect may have a record in it
    /// by then, which attaches them. The next start knows, and removes what no record names.
    pub(crate) fn discard(&self, loads: &[StagedRun]) {
        if self.store.log.poisoned().is_some() {
            return;
        }
        if let Err(error) = self.store.base.discard(loads) {
            tracing::warn!(%error, "could not discard the load of a transaction that did not commit");
        }
    }

    /// What a transaction has made and deleted again was never there, and what it has deleted and
    /// put back as it was has never gone. Its locks keep what was there before as it is: what it
    /// says of these keys is true wherever among the others its commit comes to be. It has not
    /// written them, but has seen what is there: whoever made one that was there would have been
    /// in its way.
    fn take_nothing(
        &self,
        changes: &mut Vec<(TreeId, Changes)>,
        mut reads: Option<&mut ReadSet>,
        shared: impl Fn(TreeId) -> bool,
    ) -> Result<(), Error> {
        for (tree, changes) in changes.iter_mut().filter(|(tree, _)| shared(*tree)) {
            let nothing =
                changes.take_nothing(|key| Ok::<_, Error>(self.store.get_latest(*tree, key)?.value))?;
            if let Some(reads) = &mut reads {
                for key in &nothing {
                    reads.add_point(&self.seed, *tree, key, Moment::Latest, Columns::ALL);
                }
            }
        }
        changes.retain(|(_, changes)| changes.len() > 0);
        Ok(())
    }

    /// Sorts notes, each once. Nothing is noted of a key that is there in the end as it was before:
    /// its writes were taken back, or it has gone and come again, and was noted twice.
    fn drop_notes(
        &self,
        notes: &mut Vec<(TreeId, SmallKey)>,
        changes: &[(TreeId, Changes)],
        shared: impl Fn(TreeId) -> bool,
    ) -> Result<(), Error> {
        if notes.is_empty() {
            return Ok(());
        }
        notes.sort_unstable();
        let mut kept = Vec::with_capacity(notes.len());
        for same in notes.chunk_by(|a, b| a == b) {
            let (noted, key) = &same[0];
            let tree = noted_tree(*noted);
            let written = changes.iter().find(|(of, _)| *of == tree).and_then(|(_, of)| of.get(key));
            let is_as_before = match written {
                _ if !shared(tree) => false,
                None => true,
                Some(now) if same.len() > 1 => {
                    self.store.get_latest(tree, key)?.value.is_some() == now.is_some()
                }
                Some(_) => false,
            };
            if !is_as_before {
                kept.push((*noted, key.clone()));
            }
        }
        *notes = kept;
        Ok(())
    }

    pub(crate) fn release(&self, id: TransactionId, held: Held) {
        if !held.is_empty() {
            self.locks.release_all(id, held);
        }
    }

    pub(crate) fn rolled_back(&self) {
        self.counters.rollbacks.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn wait_durable(&self, csn: Csn) -> DurableWait {
        self.sequencer.wait_durable(csn, None)
    }

    pub(crate) fn close(&self) -> Result<(), Error> {
        self.store.log.close()
    }
}

/// Cores that the machine has for us.
pub(crate) fn cores() -> u32 {
    std::thread::available_parallelism().map_or(1, |cores| cores.get() as u32)
}

#[cfg(test)]
mod tests {
    use cognate_env::sim::SimDisk;

    use super::*;
    use crate::reads::Reads;

    /// What is locked, read and written is hashed alike in one database, and otherwise in another
    /// one of the same process.
    #[test]
    fn each_database_hashes_with_a_seed_of_its_own() {
        let open = |seed: Seed| {
            let options = Options { disk: SimDisk::new(1).handle(), ..Options::new("data") };
            Manager::open_with(options, seed).expect("opened").0
        };
        let numbers = |manager: &Manager| {
            let reads = Reads::new(&manager.read_budget);
            reads.point(7, b"k");
            let changes = vec![(7, Changes::of(vec![(SmallKey::new(b"k"), None)]))];
            let written = key_writes(&manager.seed, &changes, Vec::new());
            [manager.locks.hash(7, Some(b"k")), reads.take().points()[0].hash, written[0].2]
        };
        let (one, other) = (numbers(&open(Seed::drawn())), numbers(&open(Seed::drawn())));
        assert_eq!((one, other), ([one[0]; 3], [other[0]; 3]));
        assert_ne!(one[0], other[0]);
    }
}
