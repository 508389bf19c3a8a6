//! A transaction: a snapshot to read at, a private write set, and locks.
//!
//! Step 4 of the corridor in ARCHITECTURE.md.
//!
//! Reads go to own writes, then to memory, then to the base store. Writes stay private until
//! `commit`, so rolling back is forgetting. Dropping a transaction rolls it back.
//!
//! *First updater wins*: whoever changes a row locks it exclusively first, waiting for the holder,
//! and then asks `check_unchanged`. Under snapshot isolation a row that was changed since the
//! snapshot is a serialization failure; under read committed the caller re-reads it with
//! `get_latest` and evaluates its condition again. A serializable transaction may move its snapshot
//! instead, if nothing has changed that it has read (`refresh`).
//!
//! *Trees of its own*: what a transaction writes into a tree that it made (`create_tree`) may be of
//! any size; beyond a share of the memory budget it goes to disk before the commit (`txn::bulk`).
//! Nobody else can reach such a tree, so its rows need no locks.
//!
//! Locks stay until the end of the transaction, or until a savepoint before them is rolled back to,
//! as in PostgreSQL. Some outlive that: `lock::held` says which, and why.

use std::ops::Bound;
use std::sync::Arc;

use smallvec::SmallVec;

use crate::active::{Running, Slot};
use crate::ahead::Ahead;
use crate::certifier::Watch;
use crate::durable::Commit;
use crate::exported::Exported;
use crate::fate::Fate;
use crate::key::SmallKey;
use crate::level::{Access, Isolation};
use crate::lock::mode::TreeMode;
use crate::lock::table::{Held, HeldLock};
use crate::manager::{Manager, Request};
use crate::read_view::ReadView;
use crate::reads::Reads;
use crate::rest::LastSeen;
use crate::scan::{Noted, Scan};
use crate::sibling::Member;
use crate::sight::Sight;
use crate::store::Latest;
use crate::sync::Mutex;
use crate::tracked::TrackedView;
use crate::txn::bulk::{GoOn, Private};
use crate::txn::change::Change;
use crate::txn::snapshot::Pin;
use crate::txn::writeset::{Savepoint, WriteSet};
use crate::{Csn, Error, TransactionId, TreeId, Value};

/// A running transaction. Dropping it rolls it back.
pub struct Transaction {
    pub(crate) manager: Arc<Manager>,
    /// Where it reads, and where that is noted if it will be certified.
    pub(crate) sight: Arc<Sight>,
    /// Where it began, if its snapshot has moved since and that matters: pinned, and not read at.
    pub(crate) first_sight: Option<Arc<Sight>>,
    pub(crate) id: TransactionId,
    isolation: Isolation,
    access: Access,
    slot: Slot,
    pub(crate) writes: WriteSet,
    pub(crate) held: Held,
    /// What it would have locked, of one that runs when everybody else stands still.
    pub(crate) recorded: Option<Vec<HeldLock>>,
    /// Modes of tree locks held, so that each statement after the first asks for nothing.
    pub(crate) trees: SmallVec<[(TreeId, TreeMode); 4]>,
    /// Keys that stand for more than rows, and were changed.
    pub(crate) notes: Vec<(TreeId, SmallKey)>,
    /// How many of them there were when each open savepoint was made, if any.
    pub(crate) noted: Vec<(Savepoint, usize)>,
    /// The latest commit that it looked at, if that is later than its snapshot.
    looked_at: LastSeen,
    /// Its part in a family of siblings.
    pub(crate) member: Option<Box<Member>>,
    /// What its client calls it, at a node of a cluster.
    pub(crate) name: Option<Box<str>>,
    /// What it comes to, once it was too large to be one request, at a node of a cluster.
    pub(crate) ahead: Option<Box<Ahead>>,
    /// What becomes of it, at a node of a cluster.
    pub(crate) fate: Option<Arc<Fate>>,
    /// Snapshots that it lends to others.
    pub(crate) lent: Mutex<Vec<Arc<Exported>>>,
    /// Whether the end was counted and its locks are released.
    ended: bool,
}

impl Transaction {
    pub(crate) fn begin(manager: Arc<Manager>, isolation: Isolation, access: Access) -> Transaction {
        let certified = isolation == Isolation::Serializable && manager.sequencer.certifies();
        let reads = certified.then(|| Reads::new(&manager.read_budget));
        let sight = Arc::new(Sight::new(manager.store.pin(access, certified), reads));
        let began = manager.options.clock.monotonic();
        let running = Running { id: 0, isolation, access, snapshot: sight.csn(), began };
        let (id, slot) = manager.enter(running);
        let writes = WriteSet::new(Arc::clone(&manager.budget));
        let fate = manager.cluster.as_ref().map(|cluster| cluster.enter(id));
        Transaction {
            manager,
            sight,
            first_sight: None,
            id,
            isolation,
            access,
            slot,
            writes,
            held: Held::default(),
            recorded: None,
            trees: SmallVec::new(),
            notes: Vec::new(),
            noted: Vec::new(),
            looked_at: LastSeen::default(),
            member: None,
            name: None,
            ahead: None,
            fate,
            lent: Mutex::default(),
            ended: false,
        }
    }

    /// A read-only transaction that is not certified, and whether its snapshot stays safe is
    /// watched.
    pub(crate) fn begin_watched(manager: &Arc<Manager>) -> (Transaction, Watch) {
        let mut transaction = Transaction::begin(Arc::clone(manager), Isolation::Snapshot, Access::ReadOnly);
        let (snapshot, watch) = manager.sequencer.pin_watched();
        transaction.sight = Arc::new(Sight::new(snapshot, None));
        manager.active.set_snapshot(transaction.slot, transaction.sight.csn());
        (transaction, watch)
    }

    /// The transaction's id.
    pub fn id(&self) -> TransactionId {
        self.id
    }

    /// The commit up to which it sees others' changes.
    pub fn snapshot(&self) -> Csn {
        self.sight.csn()
    }

    /// The isolation level.
    pub fn isolation(&self) -> Isolation {
        self.isolation
    }

    /// Whether it may write.
    pub fn access(&self) -> Access {
        self.access
    }

    /// Whether anything was written (and not rolled back to a savepoint).
    pub fn has_writes(&self) -> bool {
        !self.writes.is_empty()
    }

    /// Bytes that its writes hold, which say how long its end may take.
    pub fn bytes(&self) -> u64 {
        self.writes.bytes()
    }

    /// Moves to the current snapshot: at the start of each statement under read committed, and at
    /// the start of the first statement otherwise. Open cursors keep the snapshot they were opened
    /// with.
    pub fn refresh_snapshot(&mut self) {
        if self.sight.csn() != self.manager.store.mark(self.access) {
            let reads = self.sight.reads().map(Reads::take_apart);
            self.go_on_at_mark(reads);
        }
    }

    fn go_on_at_mark(&mut self, reads: Option<Reads>) {
        let pin = self.manager.store.pin(self.access, reads.is_some());
        self.go_on_at(pin, reads);
    }

    /// Reads at another snapshot from now on. The one so far stays pinned until the other is in its
    /// place, so nothing in between can be taken away.
    pub(crate) fn move_to(&mut self, pin: Pin, reads: Option<Reads>) {
        self.rest_on(self.sight.csn());
        self.sight = Arc::new(Sight::new(pin, reads));
        self.manager.active.set_snapshot(self.slot, self.sight.csn());
    }

    /// Goes on at another isolation level, at the current snapshot. For a transaction that has
    /// neither read nor written anything; what it has locked stays locked.
    pub fn set_isolation(&mut self, isolation: Isolation) {
        self.isolation = isolation;
        self.manager.active.set_isolation(self.slot, isolation);
        let certified = isolation == Isolation::Serializable && self.manager.sequencer.certifies();
        let reads = certified.then(|| Reads::new(&self.manager.read_budget));
        let pin = self.manager.store.pin(self.access, reads.is_some());
        self.move_to(pin, reads);
        self.first_sight = None;
    }

    /// Begins anew at the current snapshot, as if nothing had been read or written, and no
    /// savepoint made. Locks stay: whoever failed because others were faster succeeds now. Who was
    /// overtaken stays so, too (`restart_overtaken`).
    pub fn restart(&mut self) {
        self.writes.discard_spilled(&self.manager.store.base);
        self.writes.restart();
        self.notes.clear();
        self.noted.clear();
        // Savepoints are counted anew: one with the number of an earlier one would end its locks.
        self.held.unmark_all();
        // Cursors that are still open note what they read where nobody asks any more.
        let reads = self.sight.reads().map(|_| Reads::new(&self.manager.read_budget));
        self.go_on_at_mark(reads);
    }

    /// The value of a key: the own write if there is one, else the version of the snapshot.
    ///
    /// # Errors
    /// `Corrupt` or `Io` from the base store.
    #[inline]
    pub fn get(&self, tree: TreeId, key: &[u8]) -> Result<Option<Value>, Error> {
        if let Some(own) = self.writes.get(tree, key) {
            return Ok(own);
        }
        match self.private(tree) {
            None => {
                self.note_read(tree, key);
                self.manager.store.get(tree, key, self.sight.csn())
            }
            Some(private) => private.get(tree, key),
        }
    }

    /// Lets a transaction that began with reading go on with writing, at the snapshot it has.
    pub fn allow_writes(&mut self) {
        self.access = Access::ReadWrite;
    }

    /// What is known of the transaction's own trees, if this is one of them.
    #[inline]
    fn private(&self, tree: TreeId) -> Option<&Arc<Private>> {
        self.writes.private().filter(|private| private.has(tree))
    }

    /// Makes a tree: its id was never used and will never be given out again. Until the commit only
    /// this transaction can know of it.
    pub fn create_tree(&mut self) -> TreeId {
        let tree = self.manager.store.allocate_tree();
        self.writes.add_private(tree);
        tree
    }

    /// From now on this one is asked now and then while what was written into trees of the
    /// transaction's own goes to disk, until it ends: `Interrupted` is the write's error then.
    pub fn ask(&mut self, go_on: GoOn) {
        self.writes.ask(go_on);
    }

    /// Whether this transaction made the tree, so that nobody else ever wrote into it.
    pub fn has_created(&self, tree: TreeId) -> bool {
        self.private(tree).is_some()
    }

    /// Whether a key was written after a view was made. What went to disk meanwhile, out of a tree
    /// of the transaction's own, is not told apart from what was there before.
    pub fn has_written_since(&self, view: &ReadView, tree: TreeId, key: &[u8]) -> bool {
        self.writes.last_sequence(tree, key).is_some_and(|last| last > view.sequence())
    }

    /// Whether there may be own writes in the tree.
    pub fn has_written(&self, tree: TreeId) -> bool {
        self.writes.tree(tree).is_some() || self.private(tree).is_some()
    }

    /// The newest committed version of a key; own writes are not considered. `Transaction::changed`
    /// is cheaper for asking whether that is what the snapshot shows.
    ///
    /// # Errors
    /// `Corrupt` or `Io` from the base store. `LogPoisoned` if that version is lost.
    pub fn get_latest(&self, tree: TreeId, key: &[u8]) -> Result<Latest, Error> {
        if self.has_created(tree) {
            return Ok(Latest { csn: self.sight.csn(), value: None });
        }
        let latest = self.manager.store.get_latest(tree, key)?;
        self.look_at(latest.csn)?;
        Ok(latest)
    }

    /// Notes that the transaction looks at what commit `csn` left. Once the log has failed, what
    /// was never durable is lost though it is still in memory: nothing can be decided by it, and to
    /// try again with a new snapshot would show the same for ever.
    fn look_at(&self, csn: Csn) -> Result<(), Error> {
        self.rest_on(csn);
        if csn > self.manager.store.durable()
            && let Some(error) = self.manager.store.log.poisoned()
        {
            return Err(error);
        }
        Ok(())
    }

    /// Notes that the transaction has looked at what commit `csn` left. Everything here that looks
    /// beyond the snapshot does this by itself.
    pub fn rest_on(&self, csn: Csn) {
        self.looked_at.raise(csn);
    }

    /// The last commit that anything may rest on which the transaction has shown or decided
    /// (`rest`).
    pub fn rests_on(&self) -> Csn {
        self.looked_at.last().max(self.sight.csn())
    }

    /// The own write of a key: `None` if it was not written, `Some(None)` if it was deleted. In a
    /// tree of the transaction's own both may stand for a deleted key.
    ///
    /// # Errors
    /// `Corrupt` or `Io` from the base store.
    #[inline]
    pub fn own(&self, tree: TreeId, key: &[u8]) -> Result<Option<Option<Value>>, Error> {
        match self.writes.get(tree, key) {
            Some(own) => Ok(Some(own)),
            None => match self.private(tree) {
                None => Ok(None),
                Some(private) => Ok(private.get(tree, key)?.map(Some)),
            },
        }
    }

    /// A cursor over the keys between the bounds, ascending or (with `reverse`) descending. It sees
    /// the snapshot of this moment and the own writes made so far, whatever is written while it is
    /// open.
    ///
    /// # Errors
    /// `Corrupt` or `Io` from the base store.
    pub fn scan(
        &self,
        tree: TreeId,
        lower: Bound<&[u8]>,
        upper: Bound<&[u8]>,
        reverse: bool,
    ) -> Result<Scan, Error> {
        let own = self.writes.tree(tree).map(|writes| (Arc::clone(writes), self.writes.sequence()));
        let (store, sight) = (Arc::clone(&self.manager.store), Arc::clone(&self.sight));
        let private = self.private(tree).map(|private| &**private);
        Scan::open(store, sight, tree, (lower, upper), reverse, own, private, Noted::Whole)
    }

    /// An ascending cursor for who looks for own writes, or for what must not be overwritten: what
    /// it shows is not counted as read.
    ///
    /// # Errors
    /// `Corrupt` or `Io` from the base store.
    pub fn scan_unnoted(
        &self,
        tree: TreeId,
        lower: Bound<&[u8]>,
        upper: Bound<&[u8]>,
    ) -> Result<Scan, Error> {
        let own = self.writes.tree(tree).map(|writes| (Arc::clone(writes), self.writes.sequence()));
        let (store, sight) = (Arc::clone(&self.manager.store), Arc::clone(&self.sight));
        let private = self.private(tree).map(|private| &**private);
        Scan::open(store, sight, tree, (lower, upper), false, own, private, Noted::Not)
    }

    /// What the transaction sees now, to be read whatever it does next.
    pub fn view(&self) -> ReadView {
        let (store, sight) = (Arc::clone(&self.manager.store), Arc::clone(&self.sight));
        let private = self.writes.private().cloned();
        let (own, sequence) = (self.writes.trees().clone(), self.writes.sequence());
        ReadView::new(store, sight, own, sequence, private)
    }

    /// The same, remembering what is read.
    pub fn tracked_view(&self) -> TrackedView {
        let reads = Reads::new(&self.manager.read_budget);
        let pin = self.manager.store.snapshots.pin_again(self.sight.pin());
        let (store, sight) = (Arc::clone(&self.manager.store), Arc::new(Sight::new(pin, Some(reads))));
        let private = self.writes.private().cloned();
        let (own, sequence) = (self.writes.trees().clone(), self.writes.sequence());
        TrackedView::new(ReadView::new(store, sight, own, sequence, private))
    }

    /// The newest committed version of a key, if it is not the one that the snapshot shows. To be
    /// asked with the row locked: then the answer stays true.
    ///
    /// # Errors
    /// `Corrupt` or `Io` from the base store. `LogPoisoned` if that version is lost.
    pub fn changed(&self, tree: TreeId, key: &[u8]) -> Result<Option<Latest>, Error> {
        if self.has_created(tree) {
            return Ok(None);
        }
        let changed = self.manager.store.changed(tree, key, self.sight.csn())?;
        if let Some(latest) = &changed {
            self.look_at(latest.csn)?;
        }
        Ok(changed)
    }

    /// Asks, with the row locked exclusively, whether this transaction may overwrite it.
    ///
    /// # Errors
    /// `SerializationFailure` if it was changed after the snapshot, unless the level is read
    /// committed.
    pub fn check_unchanged(&self, tree: TreeId, key: &[u8]) -> Result<(), Error> {
        if self.isolation == Isolation::ReadCommitted {
            return Ok(());
        }
        match self.changed(tree, key)? {
            None => Ok(()),
            Some(Latest { csn, .. }) => Err(Error::unserializable(format!(
                "A row of tree {tree} was changed by commit {csn}, after the snapshot ({}) of transaction \
                 {}.",
                self.sight.csn(),
                self.id
            ))),
        }
    }

    fn writable(&self) -> Result<(), Error> {
        self.check_member()?;
        match self.access {
            Access::ReadWrite => Ok(()),
            Access::ReadOnly => Err(Error::ReadOnly),
        }
    }

    /// Writes a key. Nobody else sees it before the commit.
    ///
    /// # Errors
    /// `TransactionTooLarge`, `KeyTooLong` (nothing is written then), `ReadOnly`; with trees of its
    /// own also `DiskFull`, `Io`, `Interrupted`, and `RequestTooLarge` at a node of a cluster.
    pub fn put(&mut self, tree: TreeId, key: &[u8], value: Value) -> Result<(), Error> {
        self.write(tree, key, Some(value), None)
    }

    /// Writes or deletes a key; `change` is what that changes of the row, if it is known.
    #[inline]
    pub(crate) fn write(
        &mut self,
        tree: TreeId,
        key: &[u8],
        mut value: Option<Value>,
        change: Option<&Change>,
    ) -> Result<(), Error> {
        self.writable()?;
        let change = change.filter(|_| self.manager.sequencer.certifies());
        if self.writes.is_spill_due() {
            self.spill()?;
        }
        match self.writes.put_from(tree, key, &mut value, change) {
            Err(Error::TransactionTooLarge { .. }) if self.writes.can_spill() => {
                self.spill()?;
                self.writes.put_from(tree, key, &mut value, change)
            }
            result => result,
        }
    }

    /// Deletes a key, whether it exists or not.
    ///
    /// # Errors
    /// As `put`.
    pub fn delete(&mut self, tree: TreeId, key: &[u8]) -> Result<(), Error> {
        self.write(tree, key, None, None)
    }

    /// Drops a tree with the commit: its data goes once no snapshot needs it. The caller holds its
    /// exclusive lock. Own writes in it are forgotten at commit.
    pub fn drop_tree(&mut self, tree: TreeId) {
        self.writes.drop_tree(tree);
    }

    /// Takes back all own writes in a tree that is not one of the transaction's own, as if nothing
    /// had been written there. No savepoint brings them back: for who is about to commit.
    pub fn forget_writes(&mut self, tree: TreeId) {
        assert!(!self.has_created(tree), "a tree of the transaction's own is dropped instead");
        self.writes.forget(tree);
    }

    /// Commits: the transaction gets its place in the order of commits and its changes become
    /// visible. Whoever is told about it must wait for `Commit::durable` first.
    ///
    /// # Errors
    /// `DependencyCycle` at `Isolation::Serializable`, `LogPoisoned` or `ShuttingDown`, `DiskFull`
    /// or `Io`; the transaction is rolled back then.
    pub fn commit(mut self) -> Result<Commit, Error> {
        if self.member.is_some() {
            return Err(Error::CannotPrepare {
                reason: "an instance of a family is prepared before it commits",
            });
        }
        if self.manager.cluster.is_some() {
            return self.commit_in_order_blocking();
        }
        let manager = Arc::clone(&self.manager);
        let request = self.request();
        let result = manager.commit(request, &mut self.writes);
        self.end();
        result
    }

    pub(crate) fn request(&mut self) -> Request {
        Request {
            id: self.id,
            family: self.member.as_ref().map(|member| member.slot),
            snapshot: self.sight.csn(),
            began: self.first_snapshot(),
            rests_on: self.rests_on(),
            reads: self.sight.reads().map(Reads::take),
            notes: std::mem::take(&mut self.notes),
            effects: self.writes.take_effects(),
            held: std::mem::take(&mut self.held),
            ..Request::default()
        }
    }

    /// Rolls back; who is told must wait for `rests_on` first.
    pub fn rollback(self) {}

    /// Rolls back like this, but for giving back the memory of what was written, which can take as
    /// long as all else: that is done where the remains are dropped, which should be soon, for they
    /// are not accounted for.
    pub fn abandon(mut self) -> Remains {
        self.roll_back();
        let nothing = WriteSet::new(Arc::clone(&self.manager.budget));
        let mut writes = std::mem::replace(&mut self.writes, nothing);
        writes.give_back();
        Remains { _writes: writes }
    }

    /// What a rollback is but for memory, in this order. Done again it does nothing.
    fn roll_back(&mut self) {
        if !self.ended {
            self.manager.rolled_back();
        }
        if !self.held.is_empty() {
            self.manager.locks.release_all(self.id, std::mem::take(&mut self.held));
        }
        self.writes.discard_spilled(&self.manager.store.base);
        self.end();
        if let Some(ahead) = self.ahead.take() {
            self.manager.end_ahead(*ahead);
        }
        if let Some(member) = self.member.take() {
            self.manager.part_sibling(&member, self.id);
        }
    }

    pub(crate) fn end(&mut self) {
        if !std::mem::replace(&mut self.ended, true) {
            if let Some(cluster) = &self.manager.cluster {
                cluster.leave(self.id);
            }
            self.manager.active.leave(self.slot);
        }
    }
}

/// What a transaction wrote that is rolled back: of no use to anybody, and not yet given back.
/// Memory only: dropped late, it neither removes files nor keeps the database open.
#[derive(Debug)]
pub struct Remains {
    _writes: WriteSet,
}

impl Drop for Transaction {
    fn drop(&mut self) {
        self.roll_back();
    }
}

impl std::fmt::Debug for Transaction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Transaction")
            .field("id", &self.id)
            .field("snapshot", &self.sight.csn())
            .field("isolation", &self.isolation)
            .finish_non_exhaustive()
    }
}
