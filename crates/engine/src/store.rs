//! The store: everything committed, wherever it is, and the marks that say how far it goes.
//!
//! It is what readers need of a database, and nothing else: a transaction reads through it, a
//! cursor and a view keep it alive. Versions are in memory first; the base store has what
//! checkpoints have moved there; the log has what makes them durable. Only three write here: the
//! sequencer, which numbers records and installs versions; the checkpoint, which moves them on; and
//! the merging of runs.
//!
//! # Marks
//!
//! A read-write snapshot is taken at `visible`, a read-only one at the lower of `visible` and
//! `durable`: a fast device may have made a record durable before all its versions are installed.
//! What a transaction without writes saw may not be durable yet, so its commit answers with the
//! last commit that it looked at as the number to wait for; who rolls back, or fails, asks for the
//! same number (`Transaction::rests_on`).

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cognate_env::{Disk, Lock};

use crate::damage::Places;
use crate::hash::Seed;
use crate::lent::Lent;
use crate::level::Access;
use crate::memory::Memory;
use crate::options::Options;
use crate::own::SavedNumbers;
use crate::recovery::{Recovered, recover};
use crate::storage::backup::folder::refuse_unfinished;
use crate::storage::transfer::take_over;
use crate::storage::{Base, BaseOptions, Log};
use crate::sync::CachePadded;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::temporary::Temporary;
use crate::total_order::NODE_MAX;
use crate::txn::id::Numbers;
use crate::txn::snapshot::{Pin, Snapshots};
use crate::txn::version::Needs;
use crate::view::Views;
use crate::{Csn, Error, TreeId, Value};

/// From here on there are no ids for trees: they stand for something else (`notes`).
pub(crate) const TREES_MAX: u64 = 1 << 31;

/// The newest committed version of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Latest {
    /// The commit that made it, or the base store's watermark if it is at least that old.
    pub csn: Csn,
    /// The value; `None` if the key does not exist.
    pub value: Option<Value>,
}

/// Everything committed.
pub(crate) struct Store {
    pub(crate) memory: Memory,
    pub(crate) views: Views,
    pub(crate) base: Base,
    /// Its records are numbered by the sequencer alone.
    pub(crate) log: Log,
    pub(crate) snapshots: Arc<Snapshots>,
    visible: CachePadded<AtomicU64>,
    /// Hands out tree ids.
    pub(crate) trees: Numbers,
    /// Files of statements that read more than memory holds.
    pub(crate) temporary: Temporary,
    /// Its number in a cluster.
    node: Option<u16>,
    folder: PathBuf,
    _lock: Box<dyn Lock>,
}

/// The id of the tree with this number, of a node if there is one: each has every sixteenth id.
///
/// An id that is in use, or that stands for something else, would make one of two tables, and
/// nobody would notice. So whoever asks for one too many panics, and nothing else stops.
fn tree_of(number: u64, node: Option<u16>) -> TreeId {
    let id = match node {
        None => number,
        Some(node) => number.saturating_mul(u64::from(NODE_MAX) + 1).saturating_add(u64::from(node)),
    };
    assert!(id < TREES_MAX, "no ids are left for new tables; dump the database, and load it anew");
    id as TreeId
}

/// The file of a data folder's lock.
const LOCK: &str = "lock";

/// Takes the lock of a data folder: whoever holds it is the only one to change what is in it.
///
/// # Errors
/// `InUse` if somebody else has it, `Io`.
pub(crate) fn lock_folder(disk: &dyn Disk, folder: &Path) -> Result<Box<dyn Lock>, Error> {
    let path = folder.join(LOCK);
    disk.lock(&path).map_err(|cause| match cause.kind() {
        io::ErrorKind::WouldBlock => Error::InUse { path: folder.to_path_buf() },
        _ => Error::io("locking", &path, cause),
    })
}

/// Whether a process, this one or another, has a database in this folder open.
///
/// # Errors
/// `Io`.
pub fn is_open(disk: &dyn Disk, folder: &Path) -> Result<bool, Error> {
    match lock_folder(disk, folder) {
        Ok(_) => Ok(false),
        Err(Error::InUse { .. }) => Ok(true),
        Err(error) => Err(error),
    }
}

impl Store {
    /// Opens the folder and recovers; up to `memory_bytes` of versions stay in memory. `seed`: of
    /// the database. The answer also has the marks from which numbers go on, and what was replayed.
    ///
    /// # Errors
    /// `Corrupt` naming file and offset, `InUse` if it is open already, `InvalidArgument` where a
    /// restore has not come to its end, `Io`.
    pub(crate) fn open(
        options: &Options,
        seed: &Seed,
        memory_bytes: u64,
        cores: u32,
    ) -> Result<(Store, SavedNumbers, Recovered), Error> {
        let (disk, folder) = (Arc::clone(&options.disk), options.path.clone());
        refuse_unfinished(disk.as_ref(), &folder)?;
        disk.create_dir_all(&folder).map_err(|cause| Error::io("creating", &folder, cause))?;
        let lock = lock_folder(disk.as_ref(), &folder)?;
        // One may have begun just now. None does as long as the lock is held.
        refuse_unfinished(disk.as_ref(), &folder)?;
        take_over(disk.as_ref(), &folder)?;
        let temporary = Temporary::open(Arc::clone(&disk), &folder)?;
        let base_options = BaseOptions { cache_bytes: options.memory_bytes / 4, ..BaseOptions::default() };
        let base = Base::open(disk, &folder.join("base"), base_options)?;
        let memory = Memory::new();
        let (log, numbers, recovered) = recover(options, seed, &memory, &base, memory_bytes)?;
        let store = Store {
            views: Views::new(&base),
            visible: CachePadded::new(AtomicU64::new(log.last())),
            snapshots: Arc::new(Snapshots::new(cores)),
            trees: Numbers::starting_at(numbers.next_tree),
            memory,
            base,
            log,
            temporary,
            node: options.node.as_ref().map(|node| node.number),
            folder,
            _lock: lock,
        };
        Ok((store, numbers, recovered))
    }

    pub(crate) fn visible(&self) -> Csn {
        self.visible.load(Ordering::Acquire)
    }

    /// Everything up to commit `csn` is visible from now on. The sequencer calls it, in the order
    /// of the numbers.
    #[inline]
    pub(crate) fn show(&self, csn: Csn) {
        self.visible.store(csn, Ordering::Release);
    }

    pub(crate) fn durable(&self) -> Csn {
        self.log.durable()
    }

    /// Where a new snapshot of this kind of transaction would be.
    pub(crate) fn mark(&self, access: Access) -> Csn {
        match access {
            Access::ReadWrite if self.log.poisoned().is_none() => self.visible(),
            // After a failure of the log, what is visible and not durable never will be: readers go
            // on below it.
            Access::ReadWrite | Access::ReadOnly => self.floor(),
        }
    }

    /// No snapshot that is taken from now on is below.
    pub(crate) fn floor(&self) -> Csn {
        self.durable().min(self.visible())
    }

    pub(crate) fn pin(&self, access: Access, certified: bool) -> Pin {
        self.snapshots.pin_as(certified, || self.mark(access))
    }

    pub(crate) fn allocate_tree(&self) -> TreeId {
        tree_of(self.trees.take(), self.node)
    }

    #[inline]
    pub(crate) fn get(&self, tree: TreeId, key: &[u8], snapshot: Csn) -> Result<Option<Value>, Error> {
        match self.memory.with_tree(tree, |tree| tree.get(key, snapshot)) {
            Some(value) => Ok(value),
            None => self.views.with(snapshot, |view| view.get_at(tree, key, snapshot)),
        }
    }

    /// Lends `read` the value of a key, if there is one. It may be called under a lock, so it must
    /// not come back here.
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
    /// Memory knows, unless a checkpoint went past the snapshot (`checkpoint` says when). Then the
    /// values in the two views of the base are compared. A key that was changed and changed back
    /// counts as unchanged: whoever overwrites it overwrites exactly what its snapshot shows, so no
    /// update is lost.
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

    pub(crate) fn approximate_bytes(&self, tree: TreeId) -> u64 {
        let of_tree = self.memory.with_tree(tree, |tree| Some(tree.approximate_bytes()));
        of_tree.unwrap_or(0) + self.views.with(Csn::MAX, |view| view.tree_bytes(tree))
    }

    /// The file with the version of a row that a snapshot shows, and the offset of the record or
    /// the block that has it.
    pub(crate) fn place_of(&self, tree: TreeId, key: &[u8], snapshot: Csn) -> Option<(PathBuf, u64)> {
        self.with_places(snapshot, |places| places.find(tree, key, snapshot))
    }

    /// Names the place of a row of the engine's own that cannot be understood.
    #[cold]
    pub(crate) fn name_place(&self, error: Error) -> Error {
        self.with_places(Csn::MAX, |places| places.name(error))
    }

    fn with_places<R>(&self, snapshot: Csn, ask: impl FnOnce(&Places<'_>) -> R) -> R {
        let (memory, log, folder) = (&self.memory, &self.log, &*self.folder);
        self.views.with(snapshot, |base| ask(&Places { memory, log, base, folder }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_trees_tell_the_nodes_apart() {
        assert_eq!((tree_of(1000, None), tree_of(1000, Some(3))), (1000, 16_003));
        assert_eq!(u64::from(tree_of(TREES_MAX - 1, None)), TREES_MAX - 1);
        assert_eq!(u64::from(tree_of(TREES_MAX / 16 - 1, Some(NODE_MAX))), TREES_MAX - 1);
    }

    #[test]
    #[should_panic(expected = "no ids are left")]
    fn no_id_of_a_tree_is_given_twice() {
        // That of the first table, if only its lower half counted.
        tree_of((1 << 32) + 1000, None);
    }

    #[test]
    #[should_panic(expected = "no ids are left")]
    fn no_node_gives_an_id_of_a_tree_twice() {
        tree_of((1 << 28) + 1000, Some(3));
    }
}
