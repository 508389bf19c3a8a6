//! The manager: the only file that knows all the others. It keeps the marks and carries a transaction through its end.
//!
//! # The commit path
//!
//! 1. *Request.* The write set is encoded into a log record's payload, and the certifier's node is made, outside every lock. What the transaction
//!    spilled is in staged runs, durable already; the payload names them. If the graph is due to be pruned, the oldest snapshot is looked up, too.
//! 2. *Order.* The commit mutex. On a single node the log is the total order; a replication protocol takes its place
//!    between 1 and 2, and hands over commits in the order it delivers them.
//! 3. *Verdict.* The certifier, which lies in this mutex: test and number assignment are one step. (First updater wins was
//!    enforced by row locks before.) Sibling families and prepared transactions end here.
//! 4. *Number.* `Log::queue` takes the record and answers its ordinal: the commit sequence number.
//! 5. *Versions.* Staged runs are attached to the base for this number, versions are installed in memory, then the visible
//!    mark moves to the number. Still under the mutex: so the mark moves in order, and whoever sees the mark sees all
//!    versions up to it.
//! 6. The mutex is free; the log thread is woken, *locks* are released, and the future of durability goes back to the caller.
//!
//! # Marks
//!
//! A read-write snapshot is taken at `visible`, a read-only one at the lower of `visible` and `durable`: a fast device
//! may have made a record durable before step 5 has installed all its versions. What a transaction without writes saw may not be durable yet, so its commit answers with the last
//! commit that it looked at as the number to wait for; who rolls back, or fails, asks for the same number (`Transaction::rests_on`).
//!
//! # A reader's commit
//!
//! What wrote nothing gets no number, but its reads must fit into a serial order too. If the graph has nothing that was committed before its
//! snapshot (`quiet_below`), nothing can lead to it, so it is in no cycle, now or later, and ends without the mutex. So does what read one key only: it
//! comes after the writer of that version and before the next writer of the key, and these two have an edge of their own, so every cycle through
//! it is one without it.
//!
//! Mutex order: a shard of families, then commit, then the base store's `state` and the list of views (only for a commit with staged runs), then a tree's lock, then the
//! snapshot registry's. Lock-table mutexes are never taken with any of
//! these held.

use std::io;
use std::sync::Arc;

use cognate_env::Lock;
use smallvec::SmallVec;

use crate::active::Active;
use crate::certifier::{Candidate, Certifier, KeyWrites, Method, Removed, Watch};
use crate::checkpoint::SavedNumbers;
use crate::durable::DurableWait;
use crate::governor::Governor;
use crate::key::SmallKey;
use crate::late::Late;
use crate::lent::Lent;
use crate::lock::mode::FamilySlot;
use crate::lock::table::{Held, LockTable};
use crate::memory::Memory;
use crate::options::Options;
use crate::payload::Encoder;
use crate::prepared::PreparedTable;
use crate::pressure::{Pressure, RoundWait};
use crate::reads::ReadBudget;
use crate::recovery::{Recovered, recover};
use crate::sibling::Families;
use crate::statistics::CertifierStatistics;
use crate::storage::{Base, BaseOptions, Log, StagedRun};
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::sync::{Apart, Mutex, spin};
use crate::temporary::Temporary;
use crate::transaction::{Access, Commit, Latest};
use crate::txn::id::Numbers;
use crate::txn::readset::ReadSet;
use crate::txn::snapshot::{Pin, Snapshots};
use crate::txn::version::Needs;
use crate::txn::writeset::{Budget, Changes, WriteSet, key_writes};
use crate::view::Views;
use crate::{Csn, Error, TransactionId, TreeId, Value};

/// Everything of one open database.
pub(crate) struct Manager {
    pub(crate) options: Options,
    pub(crate) memory: Memory,
    pub(crate) snapshots: Arc<Snapshots>,
    pub(crate) active: Active,
    pub(crate) locks: Arc<LockTable>,
    pub(crate) prepared: PreparedTable,
    pub(crate) families: Families,
    pub(crate) counters: Apart<Counters>,
    pub(crate) governor: Arc<Governor>,
    /// Memory of write sets.
    pub(crate) budget: Arc<Budget>,
    /// Memory of what running transactions have read.
    pub(crate) read_budget: Arc<ReadBudget>,
    pub(crate) log: Log,
    pub(crate) base: Base,
    pub(crate) views: Views,
    pub(crate) visible: Apart<AtomicU64>,
    pub(crate) pressure: Arc<Pressure>,
    /// Present if locks are released late.
    pub(crate) late: Option<Arc<Late>>,
    /// Held by the checkpoint that runs.
    pub(crate) checkpointing: Mutex<()>,
    pub(crate) commit: Apart<Mutex<Certifier>>,
    graph: Apart<Graph>,
    transactions: Apart<Numbers>,
    pub(crate) trees: Numbers,
    pub(crate) recovered: Recovered,
    pub(crate) temporary: Temporary,
    _folder: Box<dyn Lock>,
}

/// What is known of the certifier's graph without its mutex.
#[derive(Debug)]
struct Graph {
    /// It has no transaction that a snapshot below this shows.
    quiet_below: AtomicU64,
    /// Whether who commits next shall prune it.
    prune_due: AtomicBool,
}

/// Counts since the database was opened.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) commits: AtomicU64,
    pub(crate) empty_commits: AtomicU64,
    pub(crate) rollbacks: AtomicU64,
    pub(crate) checkpoints: AtomicU64,
    /// Commits refused by the certifier.
    pub(crate) cycles: AtomicU64,
}

/// A transaction that asks to commit, besides its write set.
pub(crate) struct Request {
    pub(crate) id: TransactionId,
    pub(crate) family: Option<FamilySlot>,
    pub(crate) snapshot: Csn,
    /// The last commit that it looked at.
    pub(crate) rests_on: Csn,
    /// What it read, if it is to be certified.
    pub(crate) reads: Option<ReadSet>,
    /// Keys that it changed and that are no rows.
    pub(crate) notes: Vec<(TreeId, SmallKey)>,
    pub(crate) held: Held,
}

/// The bulk loads and the changes of a write set.
pub(crate) type Settled = (Vec<StagedRun>, Vec<(TreeId, Changes)>);

/// The graph is pruned after so many commits, and if it takes more memory than it may, after a quarter of them: often where schedules are explored, since a test has few.
const PRUNE_EVERY: u64 = if cfg!(feature = "shuttle") { 2 } else { 64 };

impl Manager {
    /// Opens the folder and recovers.
    pub(crate) fn open(options: Options) -> Result<Manager, Error> {
        let (disk, path) = (Arc::clone(&options.disk), options.path.clone());
        disk.create_dir_all(&path).map_err(|cause| Error::io("creating", &path, cause))?;
        let lock = path.join("lock");
        let folder = disk.lock(&lock).map_err(|cause| match cause.kind() {
            io::ErrorKind::WouldBlock => Error::InUse { path: path.clone() },
            _ => Error::io("locking", &lock, cause),
        })?;
        let temporary = Temporary::open(Arc::clone(&disk), &path)?;
        let pressure = Arc::new(Pressure::new(options.memory_bytes));
        let base_options = BaseOptions { cache_bytes: options.memory_bytes / 4, ..BaseOptions::default() };
        let base = Base::open(Arc::clone(&disk), &path.join("base"), base_options)?;
        let memory = Memory::new();
        let (log, numbers, recovered) = recover(&options, &memory, &base, pressure.soft())?;
        let last = log.last();
        Ok(Manager {
            memory,
            snapshots: Arc::new(Snapshots::new(cores())),
            active: Active::default(),
            locks: Arc::new(LockTable::new()),
            prepared: PreparedTable::default(),
            families: Families::default(),
            counters: Apart::default(),
            governor: Arc::new(Governor::new(options.active_limit, cores())),
            budget: Arc::new(Budget::new(
                options.memory_bytes / 2,
                options.transaction_bytes,
                options.spill_bytes,
            )),
            read_budget: Arc::new(ReadBudget::new(options.certifier_bytes)),
            views: Views::new(&base),
            visible: Apart::new(AtomicU64::new(last)),
            pressure,
            late: (!options.early_lock_release).then(|| Arc::new(Late::new(last))),
            checkpointing: Mutex::new(()),
            log,
            base,
            commit: Apart::new(Mutex::new(Certifier::new(
                options.serializable,
                options.certifier_bytes as usize,
            ))),
            graph: Apart::new(Graph {
                quiet_below: AtomicU64::new(Csn::MAX),
                prune_due: AtomicBool::new(false),
            }),
            transactions: Apart::new(Numbers::starting_at(numbers.transaction)),
            trees: Numbers::starting_at(numbers.next_tree),
            recovered,
            temporary,
            _folder: folder,
            options,
        })
    }

    pub(crate) fn visible(&self) -> Csn {
        self.visible.load(Ordering::Acquire)
    }

    pub(crate) fn durable(&self) -> Csn {
        self.log.durable()
    }

    /// Where a new snapshot of this kind of transaction would be.
    pub(crate) fn mark(&self, access: Access) -> Csn {
        match access {
            Access::ReadWrite if self.log.poisoned().is_none() => self.visible(),
            // After a failure of the log, what is visible and not durable never will be: readers go on below it.
            Access::ReadWrite | Access::ReadOnly => self.floor(),
        }
    }

    pub(crate) fn pin(&self, access: Access, certified: bool) -> Pin {
        self.snapshots.pin_as(certified, || self.mark(access))
    }

    /// Whether there is a certifier.
    pub(crate) fn certifies(&self) -> bool {
        matches!(self.options.serializable, Method::Pssi | Method::Ssi)
    }

    /// Pins the visible mark and watches whether anybody who commits later leads to before it.
    pub(crate) fn pin_watched(&self) -> (Pin, Watch) {
        let mut order = spin::lock(&self.commit);
        let pin = self.snapshots.pin_as(false, || self.mark(Access::ReadWrite));
        let watch = order.watch(pin.csn());
        (pin, watch)
    }

    /// Ends a watch.
    pub(crate) fn is_safe(&self, watch: Watch) -> bool {
        spin::lock(&self.commit).end_watch(watch)
    }

    /// The graph has no transaction that a snapshot below this shows.
    #[inline]
    pub(crate) fn quiet_below(&self) -> Csn {
        self.graph.quiet_below.load(Ordering::Acquire)
    }

    pub(crate) fn certifier_statistics(&self) -> CertifierStatistics {
        spin::lock(&self.commit).statistics()
    }

    pub(crate) fn set_certifier_bytes(&self, bytes: u64) {
        self.read_budget.set_limit(bytes);
        let mut order = spin::lock(&self.commit);
        order.set_limit(bytes as usize);
        let removed = order.advance(self.snapshots.oldest_certified(|| self.floor()));
        drop(order);
        drop(removed);
    }

    pub(crate) fn transaction_id(&self) -> TransactionId {
        self.transactions.take()
    }

    pub(crate) fn allocate_tree(&self) -> TreeId {
        self.trees.take() as TreeId
    }

    /// No snapshot that is taken from now on is below.
    pub(crate) fn floor(&self) -> Csn {
        self.durable().min(self.visible())
    }

    /// The allocators' marks: nothing committed names a number at or above them.
    pub(crate) fn numbers(&self) -> SavedNumbers {
        SavedNumbers { transaction: self.transactions.next(), next_tree: self.trees.next() }
    }

    #[inline]
    pub(crate) fn get(&self, tree: TreeId, key: &[u8], snapshot: Csn) -> Result<Option<Value>, Error> {
        match self.memory.with_tree(tree, |tree| tree.get(key, snapshot)) {
            Some(value) => Ok(value),
            None => self.views.with(snapshot, |view| view.get_at(tree, key, snapshot)),
        }
    }

    /// Lends `read` the value of a key, if there is one. It may be called under a lock, so it must not come back here.
    #[inline]
    pub(crate) fn lend(
        &self,
        tree: TreeId,
        key: &[u8],
        snapshot: Csn,
        read: &mut dyn FnMut(Lent<'_>),
    ) -> Result<bool, Error> {
        match self.memory.with_tree(tree, |tree| tree.lend(key, snapshot, read)) {
            Some(found) => Ok(found),
            None => self.views.with(snapshot, |view| view.lend_at(tree, key, snapshot, read)),
        }
    }

    pub(crate) fn get_latest(&self, tree: TreeId, key: &[u8]) -> Result<Latest, Error> {
        match self.memory.with_tree(tree, |tree| tree.newest(key)) {
            Some(version) => Ok(Latest { csn: version.csn, value: version.value }),
            None => self
                .views
                .with(Csn::MAX, |view| Ok(Latest { csn: view.newest(), value: view.get(tree, key)? })),
        }
    }

    /// The newest version of the key, if it is not the one that a reader at `snapshot` sees.
    ///
    /// Memory knows, unless a checkpoint went past the snapshot (`checkpoint` says when). Then the values in the two
    /// views of the base are compared. A key that was changed and changed back counts as unchanged: whoever
    /// overwrites it overwrites exactly what its snapshot shows, so no update is lost.
    pub(crate) fn changed(&self, tree: TreeId, key: &[u8], snapshot: Csn) -> Result<Option<Latest>, Error> {
        let in_memory = self.memory.with_tree(tree, |tree| tree.changed(key, snapshot));
        match in_memory {
            Some(None) => Ok(None),
            Some(Some(version)) => Ok(Some(Latest { csn: version.csn, value: version.value })),
            None => self.views.with(Csn::MAX, |latest| {
                if latest.newest() <= snapshot {
                    return Ok(None);
                }
                let before = self.views.with(snapshot, |view| view.get_at(tree, key, snapshot))?;
                let value = latest.get(tree, key)?;
                Ok((before != value).then(|| Latest { csn: latest.newest(), value }))
            }),
        }
    }

    /// Who may still read what.
    pub(crate) fn needs(&self) -> Arc<Needs> {
        let (active, floor) = self.snapshots.active(|| self.floor());
        Arc::new(Needs { active, floor, views: self.views.watermarks() })
    }

    pub(crate) fn oldest_snapshot(&self) -> Csn {
        let (active, floor) = self.snapshots.active(|| self.floor());
        active.first().copied().unwrap_or(floor)
    }

    pub(crate) fn approximate_rows(&self, tree: TreeId) -> u64 {
        let in_memory = self.memory.with_tree(tree, |tree| Some(tree.len() as u64)).unwrap_or(0);
        in_memory + self.views.with(Csn::MAX, |view| view.entries(tree))
    }

    /// Whether recovery would have to replay more log than the options allow, or a bulk load waits to become an ordinary part of
    /// the base, and a checkpoint could get there.
    pub(crate) fn checkpoint_is_due(&self) -> bool {
        self.log.size_after(self.base.watermark()) > self.options.checkpoint_log_bytes
            || self.base.first_attached().is_some_and(|csn| csn <= self.oldest_snapshot())
    }

    /// Commits a write set and releases the locks. See the module's prose for the steps.
    pub(crate) fn commit(&self, mut request: Request, writes: &mut WriteSet) -> Result<Commit, Error> {
        let id = request.id;
        if writes.is_empty() {
            let verdict = self.certify_reader(&mut request);
            self.release(id, request.held);
            verdict?;
            self.counters.empty_commits.fetch_add(1, Ordering::Relaxed);
            return Ok(Commit { csn: request.rests_on, durable: self.wait_durable(request.rests_on) });
        }
        let size = writes.bytes();
        let (loads, changes) = match self.settle(writes) {
            Ok(settled) => settled,
            Err(error) => {
                self.release(id, request.held);
                return Err(error);
            }
        };
        let payload = self.encode(id, &loads, writes.dropped(), &changes, size);
        let mut candidate = self.candidate(&mut request, &changes, writes.dropped());
        let prune = self.prune_to();
        let mut held = Some(std::mem::take(&mut request.held));
        let mut removed = Removed::default();
        let appended = {
            let mut order = spin::lock(&self.commit);
            let appended = self.certify(&mut order, candidate.as_ref()).and_then(|()| {
                self.mark_overtaken(&order.overtaken())?;
                self.log.queue(&[&payload])
            });
            if let Ok(csn) = appended {
                removed = self.admit(&mut order, candidate.take(), csn, prune);
                self.install(csn, &loads, changes, writes.dropped());
                self.show(csn, id, &mut held);
            }
            appended
        };
        self.log.nudge();
        drop(removed);
        if let Some(held) = held {
            self.release(id, held);
        }
        let csn = match appended {
            Ok(csn) => csn,
            Err(error) => {
                self.discard(&loads);
                return Err(error);
            }
        };
        self.counters.commits.fetch_add(1, Ordering::Relaxed);
        Ok(Commit { csn, durable: self.wait_durable_with_room(csn) })
    }

    /// A transaction as the certifier sees it, if there is one.
    pub(crate) fn candidate(
        &self,
        request: &mut Request,
        changes: &[(TreeId, Changes)],
        dropped: &[TreeId],
    ) -> Option<Candidate> {
        self.certifies().then(|| {
            let (reads, notes) = (request.reads.take(), std::mem::take(&mut request.notes));
            let writes = key_writes(changes, notes);
            Candidate::new(request.id, request.snapshot, reads, writes, dropped.to_vec())
                .of_family(request.family)
        })
    }

    /// Step 5 but for the mark: what commit `csn` wrote, under the mutex.
    pub(crate) fn install(
        &self,
        csn: Csn,
        loads: &[StagedRun],
        changes: Vec<(TreeId, Changes)>,
        dropped: &[TreeId],
    ) {
        if !loads.is_empty() {
            self.base.attach_staged(loads, csn);
            self.views.publish(&self.base);
        }
        for (tree, changes) in changes {
            self.memory.install(tree, csn, changes.into_iter(), &|| self.needs());
        }
        for tree in dropped {
            self.memory.drop_tree(*tree, csn);
        }
    }

    /// The end of step 5: shows commit `csn`, now or when it is durable. Locks that are released then are taken.
    pub(crate) fn show(&self, csn: Csn, id: TransactionId, held: &mut Option<Held>) {
        match &self.late {
            None => self.visible.store(csn, Ordering::Release),
            Some(late) => late.queue(csn, id, held.take().unwrap_or_default()),
        }
    }

    /// The wait for a commit; while memory is full, also for a checkpoint.
    pub(crate) fn wait_durable_with_room(&self, csn: Csn) -> DurableWait {
        self.pressure.hold_back(self.memory.bytes());
        let room = self.pressure.note(self.memory.bytes());
        self.wait(csn, room)
    }

    /// What a write set comes to: its bulk loads and its changes. Waits for nothing, and refuses where memory is short.
    pub(crate) fn settle(&self, writes: &mut WriteSet) -> Result<Settled, Error> {
        self.pressure.admit(self.memory.bytes())?;
        let private = writes.private().cloned();
        let loads = writes.take_loads(&self.base)?;
        let mut changes = writes.take();
        // What was spilled of the transaction's own trees may be what a deletion is of.
        let shared = |tree: TreeId| private.as_ref().is_none_or(|private| !private.has(tree));
        if let Err(error) = self.drop_nothing(&mut changes, shared) {
            self.discard(&loads);
            return Err(error);
        }
        Ok((loads, changes))
    }

    /// Removes the loads of a transaction that did not commit.
    pub(crate) fn discard(&self, loads: &[StagedRun]) {
        if let Err(error) = self.base.discard(loads) {
            tracing::warn!(%error, "could not discard the load of a transaction that did not commit");
        }
    }

    /// Step 3 for a transaction that wrote nothing.
    fn certify_reader(&self, request: &mut Request) -> Result<(), Error> {
        let Some(reads) = request.reads.take() else { return Ok(()) };
        let quiet = !reads.has_latest() && request.snapshot < self.quiet_below();
        let spliced = reads.is_one_key() && self.options.serializable == Method::Pssi;
        if reads.is_empty() || quiet || spliced {
            return Ok(());
        }
        let (id, start) = (request.id, request.snapshot);
        let candidate = Some(Candidate::new(id, start, Some(reads), KeyWrites::new(), Vec::new()));
        let prune = self.prune_to();
        let mut order = spin::lock(&self.commit);
        self.certify(&mut order, candidate.as_ref())?;
        let removed = self.admit(&mut order, candidate, self.log.last(), prune);
        drop(order);
        drop(removed);
        Ok(())
    }

    /// What a transaction has made and deleted again was never there.
    fn drop_nothing(
        &self,
        changes: &mut Vec<(TreeId, Changes)>,
        shared: impl Fn(TreeId) -> bool,
    ) -> Result<(), Error> {
        for (tree, changes) in changes.iter_mut().filter(|(tree, _)| shared(*tree)) {
            changes.drop_nothing(|key| Ok::<_, Error>(self.get_latest(*tree, key)?.value.is_some()))?;
        }
        changes.retain(|(_, changes)| changes.len() > 0);
        Ok(())
    }

    pub(crate) fn certify(&self, order: &mut Certifier, candidate: Option<&Candidate>) -> Result<(), Error> {
        let Some(candidate) = candidate else { return Ok(()) };
        order.certify(candidate).map_err(|cycle| {
            self.counters.cycles.fetch_add(1, Ordering::Relaxed);
            Error::DependencyCycle { cycle: cycle.into() }
        })
    }

    /// Up to where the graph is to be pruned now, if it is due. Asked before the mutex is taken, since it takes locks of its own; what is true of the
    /// oldest snapshot stays true.
    pub(crate) fn prune_to(&self) -> Option<Csn> {
        let due = self.graph.prune_due.load(Ordering::Relaxed);
        due.then(|| self.snapshots.oldest_certified(|| self.floor()))
    }

    /// Enters a certified candidate, and prunes if it is due.
    fn admit(
        &self,
        order: &mut Certifier,
        candidate: Option<Candidate>,
        csn: Csn,
        prune: Option<Csn>,
    ) -> Removed {
        let Some(candidate) = candidate else { return Removed::default() };
        order.admit(candidate, csn);
        self.prune(order, prune)
    }

    /// Prunes the graph, if it is due, and tells others what they know of it without the mutex.
    pub(crate) fn prune(&self, order: &mut Certifier, prune: Option<Csn>) -> Removed {
        let removed = prune.map(|oldest| order.advance(oldest)).unwrap_or_default();
        // Written only where they change: everybody looks at them.
        let patience = if order.is_full() { PRUNE_EVERY / 4 } else { PRUNE_EVERY };
        let (quiet, due) = (order.quiet_below(), order.unpruned() >= patience);
        if self.graph.quiet_below.load(Ordering::Relaxed) != quiet {
            self.graph.quiet_below.store(quiet, Ordering::Release);
        }
        if self.graph.prune_due.load(Ordering::Relaxed) != due {
            self.graph.prune_due.store(due, Ordering::Relaxed);
        }
        removed
    }

    fn encode(
        &self,
        id: TransactionId,
        loads: &[StagedRun],
        dropped: &[TreeId],
        changes: &[(TreeId, Changes)],
        size: u64,
    ) -> Vec<u8> {
        let loads: SmallVec<[u64; 4]> = loads.iter().map(StagedRun::number).collect();
        let mut encoder = Encoder::commit(id, self.trees.next(), &loads, dropped, changes.len(), size);
        for (tree, changes) in changes {
            encoder.tree(*tree, changes.len());
            for (key, value) in changes.iter() {
                encoder.entry(key, value);
            }
        }
        encoder.finish()
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
        self.wait(csn, None)
    }

    fn wait(&self, csn: Csn, room: Option<RoundWait>) -> DurableWait {
        match &self.late {
            None => DurableWait::log(self.log.wait_durable(csn), room),
            Some(late) => DurableWait::late(late.wait(csn), room),
        }
    }

    pub(crate) fn close(&self) -> Result<(), Error> {
        self.log.close()
    }
}

/// Cores that the machine has for us.
fn cores() -> u32 {
    std::thread::available_parallelism().map_or(1, |cores| cores.get() as u32)
}
