//! The manager: the only file that knows all the others. It keeps the marks and carries a transaction through its end.
//!
//! # The commit path
//!
//! 1. *Request.* The write set is encoded into a log record's payload, outside every lock.
//! 2. *Order.* The commit mutex. On a single node the log is the total order; a replication protocol takes its place
//!    between 1 and 2, and hands over commits in the order it delivers them.
//! 3. *Verdict.* The certifier's place: test and number assignment are one step under this mutex. (Snapshot isolation
//!    needs none: first updater wins was enforced by row locks.) Sibling families and prepared transactions end here.
//! 4. *Number.* `Log::append` queues the record and answers its ordinal: the commit sequence number.
//! 5. *Versions.* They are installed in memory, then the visible mark moves to the number. Still under the mutex: so
//!    the mark moves in order, and whoever sees the mark sees all versions up to it.
//! 6. *Locks* are released, and the future of durability goes back to the caller.
//!
//! # Marks
//!
//! `durable <= visible <=` last number assigned. A read-write snapshot is taken at `visible`, a read-only one at
//! `durable`. What a transaction without writes saw may not be durable yet, so its commit answers with its snapshot as
//! the number to wait for.
//!
//! Mutex order: commit, then a tree's lock. Lock-table mutexes are never taken with either held.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::ArcSwap;
use cognate_env::Lock;
use parking_lot::Mutex;

use crate::active::Active;
use crate::lock::table::{Held, LockTable};
use crate::memory::Memory;
use crate::options::Options;
use crate::payload::Encoder;
use crate::recovery::Replay;
use crate::storage::{DurableWait, Log, LogOptions};
use crate::transaction::{Access, Commit, Latest};
use crate::txn::id::Numbers;
use crate::txn::snapshot::{Pin, Snapshots};
use crate::txn::version::Needs;
use crate::txn::writeset::{Changes, WriteSet};
use crate::view::View;
use crate::{Csn, Error, TransactionId, TreeId, Value};

/// The first tree id that `allocate_tree` answers.
pub(crate) const FIRST_USER_TREE: u64 = 1000;

/// Everything of one open database.
pub(crate) struct Manager {
    pub(crate) options: Options,
    pub(crate) memory: Memory,
    pub(crate) snapshots: Arc<Snapshots>,
    pub(crate) active: Active,
    pub(crate) locks: Arc<LockTable>,
    pub(crate) counters: Counters,
    log: Log,
    commit: Mutex<()>,
    visible: AtomicU64,
    views: ArcSwap<Vec<Arc<View>>>,
    transactions: Numbers,
    trees: Numbers,
    _folder: Box<dyn Lock>,
}

/// Counts since the database was opened.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) commits: AtomicU64,
    pub(crate) empty_commits: AtomicU64,
    pub(crate) rollbacks: AtomicU64,
}

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
        let memory = Memory::new();
        let mut replay = Replay::new(&memory, 0, FIRST_USER_TREE);
        let log_options = LogOptions { clock: Arc::clone(&options.clock), ..LogOptions::default() };
        let log = Log::open(disk, &path.join("log"), 0, log_options, &mut |csn, payload| {
            replay.record(csn, payload)
        })?;
        let (transaction, next_tree) = (replay.transaction, replay.next_tree);
        Ok(Manager {
            options,
            memory,
            snapshots: Arc::new(Snapshots::new()),
            active: Active::default(),
            locks: Arc::new(LockTable::new()),
            counters: Counters::default(),
            visible: AtomicU64::new(log.last()),
            log,
            commit: Mutex::new(()),
            views: ArcSwap::from_pointee(vec![Arc::new(View::empty())]),
            transactions: Numbers::starting_at(transaction + 1),
            trees: Numbers::starting_at(next_tree),
            _folder: folder,
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
            Access::ReadWrite | Access::ReadOnly => self.durable(),
        }
    }

    pub(crate) fn pin(&self, access: Access) -> Pin {
        self.snapshots.pin(|| self.mark(access))
    }

    pub(crate) fn transaction_id(&self) -> TransactionId {
        self.transactions.take()
    }

    pub(crate) fn allocate_tree(&self) -> TreeId {
        self.trees.take() as TreeId
    }

    /// The view of the base that belongs to a snapshot. Looked up after memory was read.
    pub(crate) fn view(&self, snapshot: Csn) -> Arc<View> {
        let views = self.views.load();
        let at = views.partition_point(|view| view.watermark() <= snapshot);
        Arc::clone(&views[at.saturating_sub(1)])
    }

    #[inline]
    pub(crate) fn get(&self, tree: TreeId, key: &[u8], snapshot: Csn) -> Result<Option<Value>, Error> {
        match self.memory.with_tree(tree, |tree| tree.get(key, snapshot)) {
            Some(value) => Ok(value),
            None => self.view(snapshot).get(tree, key),
        }
    }

    pub(crate) fn get_latest(&self, tree: TreeId, key: &[u8]) -> Result<Latest, Error> {
        match self.memory.with_tree(tree, |tree| tree.newest(key)) {
            Some(version) => Ok(Latest { csn: version.csn, value: version.value }),
            None => {
                let view = self.view(Csn::MAX);
                Ok(Latest { csn: view.watermark(), value: view.get(tree, key)? })
            }
        }
    }

    /// The newest commit that changed the key, as far as memory knows; 0 if only the base may have it, which has
    /// nothing newer than any snapshot that is or will be taken at the marks.
    pub(crate) fn newest_csn(&self, tree: TreeId, key: &[u8]) -> Csn {
        self.memory.with_tree(tree, |tree| tree.newest_csn(key)).unwrap_or(0)
    }

    fn needs(&self) -> Arc<Needs> {
        let (active, floor) = self.snapshots.active(|| self.durable());
        let views = self.views.load().iter().map(|view| view.watermark()).collect();
        Arc::new(Needs { active, floor, views })
    }

    /// Commits a write set and releases the locks. See the module's prose for the steps.
    pub(crate) fn commit(
        &self,
        id: TransactionId,
        snapshot: Csn,
        writes: &mut WriteSet,
        held: Held,
    ) -> Result<Commit, Error> {
        if writes.is_empty() {
            self.release(id, held);
            self.counters.empty_commits.fetch_add(1, Ordering::Relaxed);
            return Ok(Commit { csn: snapshot, durable: self.wait_durable(snapshot) });
        }
        let size = writes.bytes();
        let changes = writes.take();
        let payload = self.encode(id, writes.dropped(), &changes, size);
        let appended = {
            let _order = self.commit.lock();
            let appended = self.log.append(&[&payload]);
            if let Ok(csn) = appended {
                for (tree, changes) in changes {
                    self.memory.install(tree, csn, changes.into_iter(), &|| self.needs());
                }
                for tree in writes.dropped() {
                    self.memory.drop_tree(*tree, csn);
                }
                self.visible.store(csn, Ordering::Release);
            }
            appended
        };
        self.release(id, held);
        let csn = appended?;
        self.counters.commits.fetch_add(1, Ordering::Relaxed);
        Ok(Commit { csn, durable: self.wait_durable(csn) })
    }

    fn encode(
        &self,
        id: TransactionId,
        dropped: &[TreeId],
        changes: &[(TreeId, Changes)],
        size: u64,
    ) -> Vec<u8> {
        let mut encoder = Encoder::commit(id, self.trees.next(), dropped, changes.len(), size);
        for (tree, changes) in changes {
            encoder.tree(*tree, changes.len());
            for (key, value) in changes.iter() {
                encoder.entry(key, value);
            }
        }
        encoder.finish()
    }

    fn release(&self, id: TransactionId, held: Held) {
        if !held.is_empty() {
            self.locks.release_all(id, held);
        }
    }

    pub(crate) fn rolled_back(&self) {
        self.counters.rollbacks.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn wait_durable(&self, csn: Csn) -> DurableWait {
        self.log.wait_durable(csn)
    }

    pub(crate) fn close(&self) -> Result<(), Error> {
        self.log.close()
    }
}
