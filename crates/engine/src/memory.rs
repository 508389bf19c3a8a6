//! The committed versions that are in memory: one ordered map a tree, each key with its chain of
//! versions.
//!
//! Memory holds every version that is newer than what the base store has, and what older snapshots
//! still need. A reader looks here first, and asks the base only for what is missing here (`scan`
//! and `store` say in which order, and why a version that moves to the base meanwhile is never
//! missed).
//!
//! The map from tree id to tree is replaced, never changed, so that finding a tree takes no lock.
//! Each tree has its own reader-writer lock, held for one key or one batch of keys, never across a
//! wait.

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::sync::Arc;

use crate::key::SmallKey;
use crate::lent::Lent;
use crate::rows::{Range, Rows, copy_rows};
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{ArcSwap, CachePadded, Mutex, RwLock, spin};
use crate::txn::version::{Chain, Needs, Version};
use crate::{Csn, TreeId, Value};

/// Bytes that a short key costs besides its versions: its place in a node of the map, which is
/// about two thirds full.
const KEY_BYTES: usize = 64;
/// What the keys of a tree take is told by so many of them.
const SAMPLE: usize = 64;
/// A commit that makes a chain this long trims it.
const LONG_CHAIN: usize = 8;

/// The versions of one tree.
pub(crate) struct Tree {
    map: RwLock<BTreeMap<SmallKey, Chain>>,
    /// The commit that dropped the tree; `Csn::MAX` while it exists.
    dropped: AtomicU64,
}

/// All trees.
pub(crate) struct Memory {
    trees: ArcSwap<HashMap<TreeId, Arc<Tree>>>,
    /// Held while `trees` is replaced.
    changing: Mutex<()>,
    bytes: CachePadded<AtomicU64>,
    entries: AtomicU64,
    /// Trees that are dropped, and not yet forgotten.
    dropped: AtomicU64,
}

/// Bytes of a key in the map.
fn key_bytes(key: &SmallKey) -> usize {
    KEY_BYTES + key.heap_bytes()
}

impl Tree {
    fn new() -> Tree {
        Tree { map: RwLock::new(BTreeMap::new()), dropped: AtomicU64::new(Csn::MAX) }
    }

    /// Number of keys.
    pub(crate) fn len(&self) -> usize {
        self.map.read().len()
    }

    /// About the bytes of the keys and their newest values: all are taken to be like the first
    /// ones.
    pub(crate) fn approximate_bytes(&self) -> u64 {
        let map = self.map.read();
        let looked_at = map.len().min(SAMPLE);
        let bytes: usize = map
            .iter()
            .take(looked_at)
            .map(|(key, chain)| key.len() + chain.newest().value.as_ref().map_or(0, Value::len))
            .sum();
        (bytes as u64).saturating_mul(map.len() as u64) / looked_at.max(1) as u64
    }

    /// The version of `key` that a reader at `snapshot` finds in memory.
    #[inline]
    pub(crate) fn get(&self, key: &[u8], snapshot: Csn) -> Option<Option<Value>> {
        self.map
            .read()
            .get(&SmallKey::new(key))
            .and_then(|chain| chain.at(snapshot))
            .map(|version| version.value.clone())
    }

    /// Lends `read` the value of `key` that a reader at `snapshot` finds in memory: `None` if
    /// memory has none, false if it is deleted.
    #[inline]
    pub(crate) fn lend(&self, key: &[u8], snapshot: Csn, read: &mut dyn FnMut(Lent<'_>)) -> Option<bool> {
        let map = spin::read(&self.map);
        let value = &map.get(&SmallKey::new(key))?.at(snapshot)?.value;
        if let Some(value) = value {
            read(Lent::from(value));
        }
        Some(value.is_some())
    }

    /// The commit of the version of `key` that a reader at `snapshot` finds in memory.
    pub(crate) fn commit_of(&self, key: &[u8], snapshot: Csn) -> Option<Csn> {
        spin::read(&self.map)
            .get(&SmallKey::new(key))
            .and_then(|chain| chain.at(snapshot))
            .map(|version| version.csn)
    }

    /// The newest version of `key` in memory.
    pub(crate) fn newest(&self, key: &[u8]) -> Option<Version> {
        spin::read(&self.map).get(&SmallKey::new(key)).map(|chain| chain.newest().clone())
    }

    /// The newest version of `key`, if it is newer than `snapshot`: `Some(None)` if it is not,
    /// `None` if memory has no version of the key.
    pub(crate) fn changed(&self, key: &[u8], snapshot: Csn) -> Option<Option<Version>> {
        let map = spin::read(&self.map);
        let newest = map.get(&SmallKey::new(key))?.newest();
        Some((newest.csn > snapshot).then(|| newest.clone()))
    }

    /// Copies up to `limit` keys of `range` as of `snapshot`, in the given direction, under one
    /// lock. True if the range is exhausted; otherwise the last key of `into` says how far it came.
    pub(crate) fn batch(
        &self,
        range: Range<'_>,
        reverse: bool,
        snapshot: Csn,
        limit: usize,
        into: &mut Rows,
    ) -> bool {
        let map = spin::read(&self.map);
        if map.is_empty() {
            return true;
        }
        let range = (range.0.map(SmallKey::new), range.1.map(SmallKey::new));
        let chains = map.range(range).map(|(key, chain)| (key, chain.at(snapshot).map(|v| &v.value)));
        match reverse {
            false => copy_rows(chains, limit, into),
            true => copy_rows(chains.rev(), limit, into),
        }
    }

    /// Copies keys after `after` whose version at `snapshot` is newer than `newer_than`, looking at
    /// no more than `limit` keys. Returns where to go on, or `None` at the end.
    pub(crate) fn changes(
        &self,
        after: Option<&SmallKey>,
        snapshot: Csn,
        newer_than: Csn,
        limit: usize,
        into: &mut Rows,
    ) -> Option<SmallKey> {
        let lower = after.map_or(Bound::Unbounded, Bound::Excluded);
        let map = spin::read(&self.map);
        let mut looked_at = 0;
        for (key, chain) in map.range::<SmallKey, _>((lower, Bound::Unbounded)) {
            if let Some(version) = chain.at(snapshot).filter(|v| v.csn > newer_than) {
                into.push(key, version.value.as_ref());
            }
            looked_at += 1;
            if looked_at == limit {
                return Some(key.clone());
            }
        }
        None
    }
}

impl Memory {
    pub(crate) fn new() -> Memory {
        Memory {
            trees: ArcSwap::from_pointee(HashMap::new()),
            changing: Mutex::new(()),
            bytes: CachePadded::new(AtomicU64::new(0)),
            entries: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
        }
    }

    /// Bytes in use, approximately.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Keys in memory.
    pub(crate) fn entries(&self) -> u64 {
        self.entries.load(Ordering::Relaxed)
    }

    /// The tree, if it has or had versions in memory.
    #[inline]
    pub(crate) fn tree(&self, id: TreeId) -> Option<Arc<Tree>> {
        self.trees.load().get(&id).cloned()
    }

    /// Runs `f` on the tree without touching its reference count.
    #[inline]
    pub(crate) fn with_tree<R>(&self, id: TreeId, f: impl FnOnce(&Tree) -> Option<R>) -> Option<R> {
        self.trees.load().get(&id).and_then(|tree| f(tree))
    }

    fn tree_or_new(&self, id: TreeId) -> Arc<Tree> {
        if let Some(tree) = self.tree(id) {
            return tree;
        }
        let _changing = self.changing.lock();
        if let Some(tree) = self.tree(id) {
            return tree;
        }
        let tree = Arc::new(Tree::new());
        let mut trees = HashMap::clone(&self.trees.load());
        trees.insert(id, Arc::clone(&tree));
        self.trees.store(Arc::new(trees));
        tree
    }

    /// Ids of all trees, ascending.
    pub(crate) fn ids(&self) -> Vec<TreeId> {
        let mut ids: Vec<TreeId> = self.trees.load().keys().copied().collect();
        ids.sort_unstable();
        ids
    }

    /// Installs the versions that commit `csn` made in one tree. Commits come in the order of their
    /// numbers.
    pub(crate) fn install(
        &self,
        id: TreeId,
        csn: Csn,
        writes: impl Iterator<Item = (SmallKey, Option<Value>)>,
        needs: &impl Fn() -> Arc<Needs>,
    ) {
        let (trees, made) = (self.trees.load(), &mut None);
        // Mostly without a look at its reference count, which all commits would write.
        let tree: &Tree = match trees.get(&id) {
            Some(tree) => tree,
            None => made.insert(self.tree_or_new(id)),
        };
        let mut map = spin::write(&tree.map);
        let (mut grown, mut shrunk, mut added) = (0, 0, 0);
        for (key, value) in writes {
            let version = Version { csn, value };
            match map.entry(key) {
                std::collections::btree_map::Entry::Vacant(vacant) => {
                    let key_bytes = key_bytes(vacant.key());
                    let chain = vacant.insert(Chain::new(version));
                    grown += key_bytes + chain.bytes();
                    added += 1;
                }
                std::collections::btree_map::Entry::Occupied(mut occupied) => {
                    let chain = occupied.get_mut();
                    grown += version.bytes();
                    chain.push(version);
                    // Only at some lengths, so that a chain that must be long is not searched at
                    // every commit. The newest version is above every floor, so the chain never
                    // becomes empty here.
                    if chain.len() >= LONG_CHAIN && chain.len().is_power_of_two() {
                        shrunk += chain.bytes();
                        chain.trim(&needs());
                        grown += chain.bytes();
                    }
                }
            }
        }
        drop(map);
        if added > 0 {
            self.entries.fetch_add(added, Ordering::Relaxed);
        }
        self.account(grown, shrunk);
    }

    /// Installs what commit `csn` of the log wrote in one tree, where nobody can need older
    /// versions.
    pub(crate) fn replay(
        &self,
        id: TreeId,
        csn: Csn,
        writes: impl Iterator<Item = (SmallKey, Option<Value>)>,
    ) {
        let tree = self.tree_or_new(id);
        let mut map = spin::write(&tree.map);
        let (mut grown, mut shrunk, mut added) = (0, 0, 0);
        for (key, value) in writes {
            let (key_bytes, chain) = (key_bytes(&key), Chain::new(Version { csn, value }));
            grown += key_bytes + chain.bytes();
            match map.insert(key, chain) {
                Some(before) => shrunk += key_bytes + before.bytes(),
                None => added += 1,
            }
        }
        drop(map);
        self.entries.fetch_add(added, Ordering::Relaxed);
        self.account(grown, shrunk);
    }

    fn account(&self, grown: usize, shrunk: usize) {
        // Wrapping arithmetic: the sum is right even where the difference is negative.
        self.bytes.fetch_add((grown as u64).wrapping_sub(shrunk as u64), Ordering::Relaxed);
    }

    /// Trims up to `limit` keys after `after`. Returns where to go on, or `None` at the end, and
    /// the bytes of what had to stay although it was committed at or below `old`.
    pub(crate) fn trim(
        &self,
        tree: &Tree,
        after: Option<&SmallKey>,
        needs: &Needs,
        old: Csn,
        limit: usize,
    ) -> (Option<SmallKey>, u64) {
        let lower = after.map_or(Bound::Unbounded, Bound::Excluded);
        let mut map = spin::write(&tree.map);
        let (mut looked_at, mut grown, mut shrunk, mut kept, mut next) = (0, 0, 0, 0, None);
        let mut gone = Vec::new();
        for (key, chain) in map.range_mut::<SmallKey, _>((lower, Bound::Unbounded)) {
            shrunk += chain.bytes();
            if chain.trim(needs) {
                shrunk += key_bytes(key);
                gone.push(key.clone());
            } else {
                grown += chain.bytes();
                kept += chain.bytes_until(old);
            }
            looked_at += 1;
            if looked_at == limit {
                next = Some(key.clone());
                break;
            }
        }
        if gone.len() == map.len() {
            map.clear();
        } else {
            for key in &gone {
                map.remove(key);
            }
        }
        drop(map);
        self.entries.fetch_sub(gone.len() as u64, Ordering::Relaxed);
        self.account(grown, shrunk);
        (next, kept as u64)
    }

    /// Notes that commit `csn` dropped the tree; snapshots below `csn` go on reading it.
    pub(crate) fn drop_tree(&self, id: TreeId, csn: Csn) {
        if self.tree_or_new(id).dropped.swap(csn, Ordering::AcqRel) == Csn::MAX {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// How many trees are dropped, and not yet forgotten.
    pub(crate) fn dropped_count(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// Trees dropped by a commit at or below `csn`, ascending, with that commit.
    pub(crate) fn dropped(&self, csn: Csn) -> Vec<(TreeId, Csn)> {
        let trees = self.trees.load();
        let dropped = trees.iter().map(|(id, tree)| (*id, tree.dropped.load(Ordering::Acquire)));
        let mut dropped: Vec<_> = dropped.filter(|(_, at)| *at <= csn).collect();
        dropped.sort_unstable();
        dropped
    }

    /// Forgets trees altogether; the map of all trees is copied once for them.
    pub(crate) fn forget(&self, ids: &[TreeId]) {
        if ids.is_empty() {
            return;
        }
        let _changing = self.changing.lock();
        let mut trees = HashMap::clone(&self.trees.load());
        let gone: Vec<_> = ids.iter().filter_map(|id| trees.remove(id)).collect();
        self.trees.store(Arc::new(trees));
        for tree in gone {
            if tree.dropped.load(Ordering::Acquire) != Csn::MAX {
                self.dropped.fetch_sub(1, Ordering::Relaxed);
            }
            let mut map = spin::write(&tree.map);
            let bytes = map.iter().map(|(key, chain)| key_bytes(key) + chain.bytes()).sum::<usize>();
            self.entries.fetch_sub(map.len() as u64, Ordering::Relaxed);
            self.account(0, bytes);
            map.clear();
        }
    }
}
