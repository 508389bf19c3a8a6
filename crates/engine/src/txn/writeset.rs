//! A transaction's own writes: private until commit, merged into its own reads, gone with a `drop`.
//!
//! Every write gets the next *sequence* of its transaction. A cursor remembers the sequence at
//! which it was opened and ignores later writes, so a statement never meets its own effects (the
//! Halloween problem). A savepoint remembers a sequence too; rolling back to it removes the later
//! writes.
//!
//! A key therefore keeps a small list of writes, oldest first. A new write overwrites the last one
//! in place unless somebody may still look at that: an open savepoint taken after it, or an open
//! cursor.
//!
//! ```text
//! put k=1 (#1)   savepoint A (#1)   put k=2 (#2)   put k=3 (#3)   rollback to A
//! k: [1]                            k: [1 2]       k: [1 3]       k: [1]
//! ```
//!
//! A *statement* that may have to be run once more is undone as to a savepoint. But nearly every
//! one succeeds, so its beginning is only a number: nothing is listed for it, and undoing looks at
//! every write.
//!
//! Trees that the transaction made itself are written in bulk: see `bulk`.
//!
//! Writes of one tree sit behind one mutex, shared with the cursors over that tree. It is never
//! contended for long: a cursor copies a batch and lets go.

mod savepoints;

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use smallvec::SmallVec;

use super::budget::{Budget, CHUNK};
use super::bulk::Bulk;
use super::change::{Change, Effects};
use crate::hash::{KeyHash, Seed};
use crate::key::SmallKey;
use crate::rows::{Range, Rows, copy_rows};
use crate::sync::Mutex;
use crate::{Error, TreeId, Value};

/// Bytes that one write costs besides key and value.
const WRITE_BYTES: usize = 152;
/// No key is longer. The index of a run of the base store has keys in it, is kept in memory, and
/// must fit into one frame; and whoever reads rows copies the keys of hundreds of them at once.
const KEY_BYTES_MAX: usize = 1 << 20;

#[derive(Debug, Clone)]
struct Write {
    sequence: u64,
    value: Option<Value>,
    /// A deletion of what the transaction itself had written, or a write after it had deleted the
    /// key: what is there now may be what was there before.
    of_own: bool,
    /// Where it is said what this write, and those of the key before it, changed of the row.
    effect: u32,
}

type Writes = SmallVec<[Write; 1]>;

/// The writes of one transaction in one tree.
#[derive(Debug, Default)]
pub(crate) struct TreeWrites {
    map: Mutex<BTreeMap<SmallKey, Writes>>,
    /// The transaction made the tree.
    private: bool,
}

fn at(writes: &Writes, sequence: u64) -> Option<&Write> {
    writes.iter().rev().find(|w| w.sequence <= sequence)
}

impl TreeWrites {
    /// The own write of a key as of `sequence`: `None` if there is none, `Some(None)` if it is
    /// deleted.
    pub(crate) fn get(&self, key: &[u8], sequence: u64) -> Option<Option<Value>> {
        let map = self.map.lock();
        map.get(&SmallKey::new(key)).and_then(|writes| at(writes, sequence)).map(|write| write.value.clone())
    }

    /// Copies up to `limit` own writes of the range, as of `sequence`, in the given direction. True
    /// if the range is exhausted.
    pub(crate) fn batch(
        &self,
        range: Range<'_>,
        reverse: bool,
        sequence: u64,
        limit: usize,
        into: &mut Rows,
    ) -> bool {
        let map = self.map.lock();
        let range = (range.0.map(SmallKey::new), range.1.map(SmallKey::new));
        let writes = map.range(range).map(|(key, writes)| (key, at(writes, sequence).map(|w| &w.value)));
        match reverse {
            false => copy_rows(writes, limit, into),
            true => copy_rows(writes.rev(), limit, into),
        }
    }
}

impl TreeWrites {
    /// Calls `action` with the last write of each key between two sequences (the first excluded),
    /// ascending by key.
    pub(super) fn between(
        &self,
        after: u64,
        upto: u64,
        mut action: impl FnMut(&[u8], Option<&[u8]>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let map = self.map.lock();
        for (key, writes) in map.iter() {
            if let Some(write) = at(writes, upto).filter(|write| write.sequence > after) {
                action(key, write.value.as_deref())?;
            }
        }
        Ok(())
    }

    /// Bytes of memory in use, approximately.
    pub(super) fn bytes(&self) -> u64 {
        let map = self.map.lock();
        let writes = map.iter().flat_map(|(key, writes)| writes.iter().map(move |write| (key, write)));
        writes.map(|(key, write)| write_bytes(key, &write.value)).sum()
    }
}

fn write_bytes(key: &[u8], value: &Option<Value>) -> u64 {
    (WRITE_BYTES + key.len() + value.as_ref().map_or(0, Value::len)) as u64
}

/// A point to roll back to. Valid until it, or an earlier one, is released or rolled back past.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Savepoint {
    /// Counts the savepoints of the transaction; orders them.
    ordinal: u64,
    sequence: u64,
    pub(super) journal: usize,
    dropped: usize,
}

impl Savepoint {
    /// Its place among the savepoints of its transaction.
    pub(crate) fn ordinal(&self) -> u64 {
        self.ordinal
    }

    /// The last write before it.
    pub(super) fn sequence(&self) -> u64 {
        self.sequence
    }
}

/// The write set of one transaction.
#[derive(Debug)]
pub(crate) struct WriteSet {
    /// Ascending by tree.
    pub(super) trees: SmallVec<[(TreeId, Arc<TreeWrites>); 4]>,
    dropped: Vec<TreeId>,
    sequence: u64,
    pub(super) savepoints: Vec<Savepoint>,
    ordinal: u64,
    /// Writes up to here were there before the statement that may be undone.
    statement: u64,
    /// Keys written since the oldest open savepoint.
    pub(super) journal: Vec<(TreeId, SmallKey)>,
    pub(super) bytes: u64,
    /// Of these, charged for locks.
    lock_bytes: u64,
    /// Of all bytes, taken from the budget (beyond the free chunk).
    pub(super) taken: u64,
    pub(super) budget: Arc<Budget>,
    pub(super) bulk: Bulk,
    /// What the writes changed of their rows, where that is known.
    effects: Effects,
}

impl WriteSet {
    pub(crate) fn new(budget: Arc<Budget>) -> WriteSet {
        WriteSet {
            trees: SmallVec::new(),
            dropped: Vec::new(),
            sequence: 0,
            savepoints: Vec::new(),
            ordinal: 0,
            statement: 0,
            journal: Vec::new(),
            bytes: 0,
            lock_bytes: 0,
            taken: 0,
            budget,
            bulk: Bulk::default(),
            effects: Effects::default(),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.dropped.is_empty()
            && self.bulk.is_empty()
            && self.trees.iter().all(|(_, t)| t.map.lock().is_empty())
    }

    /// Bytes of memory in use, approximately.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Accounts for memory that a lock of the transaction takes.
    pub(crate) fn charge_lock(&mut self, bytes: usize) -> Result<(), Error> {
        self.charge(bytes)?;
        self.lock_bytes += bytes as u64;
        Ok(())
    }

    fn charge(&mut self, bytes: usize) -> Result<(), Error> {
        let after = self.bytes + bytes as u64;
        if after > self.budget.limit_each {
            return Err(Error::TransactionTooLarge { limit: self.budget.limit_each });
        }
        if after > self.taken + CHUNK {
            let more = (after - self.taken - CHUNK).next_multiple_of(CHUNK);
            self.budget.take(more, self.taken)?;
            self.taken += more;
        }
        self.bytes = after;
        Ok(())
    }

    /// Takes back what was charged for locks that are gone, and no more: who has given up waiting
    /// just as the lock was granted has held it, and was not charged.
    pub(crate) fn refund(&mut self, bytes: usize) {
        let bytes = self.lock_bytes.min(bytes as u64);
        self.lock_bytes -= bytes;
        self.bytes = self.bytes.saturating_sub(bytes);
    }

    /// Forgets all that was written, and the savepoints. The locks stay, so what they were charged
    /// does, too, and the bounds are those that it had.
    pub(crate) fn restart(&mut self) {
        let mut fresh = WriteSet::new(Arc::clone(&self.budget));
        (fresh.bytes, fresh.lock_bytes) = (self.lock_bytes, self.lock_bytes);
        fresh.taken = std::mem::take(&mut self.taken);
        fresh.shrink();
        *self = fresh;
    }

    /// Gives all that it has taken back to the budget: it is of no use any more.
    pub(crate) fn give_back(&mut self) {
        if self.taken > 0 {
            self.budget.give_back(std::mem::take(&mut self.taken));
        }
    }

    /// All trees with writes.
    pub(crate) fn trees(&self) -> &SmallVec<[(TreeId, Arc<TreeWrites>); 4]> {
        &self.trees
    }

    /// The writes of `tree`, if there are any, and the sequence that sees all of them.
    #[inline]
    pub(crate) fn tree(&self, tree: TreeId) -> Option<&Arc<TreeWrites>> {
        self.trees.iter().find(|(t, _)| *t == tree).map(|(_, writes)| writes)
    }

    pub(crate) fn sequence(&self) -> u64 {
        self.sequence
    }

    /// Open savepoints, oldest first.
    pub(super) fn savepoints(&self) -> &[Savepoint] {
        &self.savepoints
    }

    /// The last own write of a key: `None` if not written, `Some(None)` if deleted.
    #[inline]
    pub(crate) fn get(&self, tree: TreeId, key: &[u8]) -> Option<Option<Value>> {
        let map = self.tree(tree)?.map.lock();
        map.get(&SmallKey::new(key)).and_then(|w| w.last()).map(|w| w.value.clone())
    }

    /// The sequence of the last own write of a key.
    pub(crate) fn last_sequence(&self, tree: TreeId, key: &[u8]) -> Option<u64> {
        Some(self.tree(tree)?.map.lock().get(&SmallKey::new(key))?.last()?.sequence)
    }

    /// The same; takes the value out unless it fails. Without a `change` it is the whole row that
    /// changes.
    pub(crate) fn put_from(
        &mut self,
        tree: TreeId,
        key: &[u8],
        value: &mut Option<Value>,
        change: Option<&Change>,
    ) -> Result<(), Error> {
        // What an earlier build has let in can still be removed.
        if key.len() > KEY_BYTES_MAX && value.is_some() {
            return Err(Error::KeyTooLong { bytes: key.len(), limit: KEY_BYTES_MAX });
        }
        let size = WRITE_BYTES + key.len() + value.as_ref().map_or(0, Value::len);
        self.charge(size + change.map_or(0, Change::bytes))?;
        self.sequence += 1;
        let mut write = Write { sequence: self.sequence, value: value.take(), of_own: false, effect: 0 };
        let index = match self.trees.binary_search_by_key(&tree, |(t, _)| *t) {
            Ok(index) => index,
            Err(index) => {
                let private = self.bulk.has(tree);
                self.trees.insert(index, (tree, Arc::new(TreeWrites { private, ..TreeWrites::default() })));
                index
            }
        };
        let writes = &self.trees[index].1;
        // Nobody else reads a tree of the transaction's own.
        let change = change.filter(|_| !writes.private);
        if writes.private {
            self.bulk.bytes += size as u64;
        }
        // A cursor holds the other references. Nobody can open one meanwhile: that takes the
        // transaction itself.
        let watched = Arc::strong_count(writes) > 1;
        let savepoint = self.savepoints.last().map_or(0, |s| s.sequence).max(self.statement);
        let mut map = writes.map.lock();
        let journalled = match map.entry(SmallKey::new(key)) {
            Entry::Vacant(vacant) => {
                if !self.savepoints.is_empty() {
                    self.journal.push((tree, vacant.key().clone()));
                }
                write.effect = change.map_or(0, |change| self.effects.add(change));
                vacant.insert(SmallVec::from_buf([write]));
                return Ok(());
            }
            Entry::Occupied(mut occupied) => {
                let list = occupied.get_mut();
                let puts_back = |last: &Write| last.value.is_none() || last.of_own;
                write.of_own = list.last().is_some_and(|last| write.value.is_none() || puts_back(last));
                let before = list.last().map_or(0, |last| last.effect);
                write.effect = change.map_or(0, |change| self.effects.join(before, change));
                let mut freed = 0;
                if !watched {
                    while let Some(last) = list.last().filter(|w| w.sequence > savepoint) {
                        freed += WRITE_BYTES + key.len() + last.value.as_ref().map_or(0, Value::len);
                        list.pop();
                    }
                }
                list.push(write);
                self.bytes -= (freed as u64).min(self.bytes);
                if writes.private {
                    self.bulk.bytes -= (freed as u64).min(self.bulk.bytes);
                }
                freed > 0
            }
        };
        if !self.savepoints.is_empty() && !journalled {
            self.journal.push((tree, SmallKey::new(key)));
        }
        Ok(())
    }

    pub(crate) fn drop_tree(&mut self, tree: TreeId) {
        self.dropped.push(tree);
    }

    /// Forgets what was written into a tree, which is not one of the transaction's own. No
    /// savepoint is gone back to afterwards.
    pub(crate) fn forget(&mut self, tree: TreeId) {
        let Ok(index) = self.trees.binary_search_by_key(&tree, |(t, _)| *t) else { return };
        let (_, writes) = self.trees.remove(index);
        self.bytes = self.bytes.saturating_sub(writes.bytes());
    }

    /// Trees dropped by this transaction.
    pub(crate) fn dropped(&self) -> &[TreeId] {
        &self.dropped
    }

    /// Takes out what the writes changed of their rows.
    pub(crate) fn take_effects(&mut self) -> Effects {
        std::mem::take(&mut self.effects)
    }

    /// Takes the last write of each key out, ascending by (tree, key); writes into dropped trees
    /// are left out. Cursors that are still open keep what they see.
    pub(crate) fn take(&mut self) -> Vec<(TreeId, Changes)> {
        let trees = std::mem::take(&mut self.trees).into_iter();
        let kept = trees.filter(|(tree, _)| !self.dropped.contains(tree));
        let taken = kept.map(|(tree, writes)| {
            let map = match Arc::try_unwrap(writes) {
                Ok(writes) => writes.map.into_inner(),
                Err(shared) => shared.map.lock().clone(),
            };
            (tree, Changes(map))
        });
        taken.filter(|(_, changes)| !changes.0.is_empty()).collect()
    }
}

impl Drop for WriteSet {
    fn drop(&mut self) {
        self.give_back();
    }
}

/// A written key, as the certifier sees it; at last, where it is said what of its row was changed.
pub(crate) type KeyWrite = (TreeId, SmallKey, KeyHash, u32);

const _: () = assert!(size_of::<KeyWrite>() == 48);

/// What a transaction writes, as the certifier sees it; mostly little.
pub(crate) type KeyWrites = SmallVec<[KeyWrite; 1]>;

/// What a transaction writes, as the certifier sees it: rows, then `notes`, keys that stand for
/// more than rows, in trees above those of rows. `seed`: of the database that looks them up.
pub(crate) fn key_writes(seed: &Seed, of: &[(TreeId, Changes)], notes: Vec<(TreeId, SmallKey)>) -> KeyWrites {
    key_writes_beside(seed, of, notes, &[])
}

/// The same but for what is written into some trees.
pub(crate) fn key_writes_beside(
    seed: &Seed,
    changes: &[(TreeId, Changes)],
    notes: Vec<(TreeId, SmallKey)>,
    beside: &[TreeId],
) -> KeyWrites {
    let named = || changes.iter().filter(move |(tree, _)| !beside.contains(tree));
    let count = notes.len() + named().map(|(_, changes)| changes.0.len()).sum::<usize>();
    let mut writes = KeyWrites::with_capacity(count);
    for (tree, changes) in named() {
        for (key, list) in &changes.0 {
            writes.push((*tree, key.clone(), seed.hash_of(*tree, key), list.last().map_or(0, |w| w.effect)));
        }
    }
    for (tree, key) in notes {
        let hash = seed.hash_of(tree, &key);
        writes.push((tree, key, hash, 0));
    }
    writes
}

/// The last writes of a transaction in one tree, ascending by key.
#[derive(Debug, Default)]
pub(crate) struct Changes(BTreeMap<SmallKey, Writes>);

impl Changes {
    /// Changes that were kept somewhere else.
    pub(crate) fn of(rows: Vec<(SmallKey, Option<Value>)>) -> Changes {
        let write = |value| smallvec::smallvec![Write { sequence: 0, value, of_own: false, effect: 0 }];
        Changes(rows.into_iter().map(|(key, value)| (key, write(value))).collect())
    }

    /// The same once more; keys and values are shared.
    pub(crate) fn copy(&self) -> Changes {
        Changes::of(self.iter().map(|(key, value)| (key.clone(), value.cloned())).collect())
    }

    /// Takes out what changes nothing in the end, and answers which keys: deletions of what the
    /// transaction itself had made, and what it has deleted and put back as it was. `was` knows
    /// what was there before.
    pub(crate) fn take_nothing<E>(
        &mut self,
        mut was: impl FnMut(&[u8]) -> Result<Option<Value>, E>,
    ) -> Result<Vec<SmallKey>, E> {
        let mut nothing = Vec::new();
        for (key, list) in &self.0 {
            if let Some(last) = list.last().filter(|write| write.of_own)
                && last.value == was(key)?
            {
                nothing.push(key.clone());
            }
        }
        for key in &nothing {
            self.0.remove(key);
        }
        Ok(nothing)
    }

    /// The places of what the writes changed of their rows, in the order of the keys.
    pub(crate) fn places(&self) -> impl Iterator<Item = u32> {
        self.0.values().map(|list| list.last().map_or(0, |last| last.effect))
    }

    /// Says these places.
    ///
    /// # Errors
    /// The first that cannot be had.
    pub(crate) fn set_places<E>(&mut self, mut next: impl FnMut() -> Result<u32, E>) -> Result<(), E> {
        for write in self.0.values_mut().filter_map(|list| list.last_mut()) {
            write.effect = next()?;
        }
        Ok(())
    }

    /// Adds rows of keys that are not among them.
    pub(super) fn add_missing(&mut self, rows: impl Iterator<Item = (SmallKey, Value)>) {
        for (key, value) in rows {
            let write = Write { sequence: 0, value: Some(value), of_own: false, effect: 0 };
            self.0.entry(key).or_insert_with(|| smallvec::smallvec![write]);
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// What becomes of a key: `None` if it is not written, `Some(None)` if it is deleted.
    pub(crate) fn get(&self, key: &SmallKey) -> Option<Option<&Value>> {
        self.0.get(key).and_then(|list| list.last()).map(|last| last.value.as_ref())
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&SmallKey, Option<&Value>)> {
        self.0.iter().filter_map(|(key, list)| list.last().map(|last| (key, last.value.as_ref())))
    }

    pub(crate) fn into_iter(self) -> impl Iterator<Item = (SmallKey, Option<Value>)> {
        self.0.into_iter().filter_map(|(key, mut list)| list.pop().map(|last| (key, last.value)))
    }
}

#[cfg(test)]
mod tests {
    use std::ops::Bound;

    use super::*;
    use crate::Key;

    impl WriteSet {
        /// Writes or (with `None`) deletes a key.
        ///
        /// # Errors
        /// `TransactionTooLarge`, `KeyTooLong`, with nothing changed.
        pub(crate) fn put(
            &mut self,
            tree: TreeId,
            key: &[u8],
            mut value: Option<Value>,
        ) -> Result<(), Error> {
            self.put_from(tree, key, &mut value, None)
        }
    }

    fn value(text: &str) -> Option<Value> {
        Some(Value::copy_from_slice(text.as_bytes()))
    }

    fn every(tree: &TreeWrites, sequence: u64) -> Vec<(Key, Option<Value>)> {
        let mut out = Rows::default();
        assert!(tree.batch((Bound::Unbounded, Bound::Unbounded), false, sequence, usize::MAX, &mut out));
        out.into_entries().collect()
    }

    fn read(set: &WriteSet, sequence: u64) -> Vec<(Key, Option<Value>)> {
        set.tree(1).map_or(Vec::new(), |tree| every(tree, sequence))
    }

    fn budget(limit: u64) -> Arc<Budget> {
        Arc::new(Budget::new(limit, limit, limit / 8))
    }

    #[test]
    fn what_is_forgotten_was_not_written() {
        let mut set = WriteSet::new(budget(1 << 20));
        set.put(1, b"k", value("1")).unwrap();
        let bytes = set.bytes();
        let savepoint = set.savepoint();
        set.put(2, b"k", value("2")).unwrap();
        set.put(2, b"l", None).unwrap();
        set.put(3, b"k", value("3")).unwrap();
        set.release(savepoint);
        set.forget(2);
        assert!(set.get(2, b"k").is_none() && set.tree(2).is_none());
        set.forget(3);
        assert_eq!(set.bytes(), bytes);
        set.forget(4);
        let trees: Vec<TreeId> = set.take().into_iter().map(|(tree, _)| tree).collect();
        assert_eq!(trees, [1]);
    }

    #[test]
    fn the_largest_is_refused_when_all_together_are_too_large() {
        let budget = Arc::new(Budget::new(8 << 20, 6 << 20, 1 << 20));
        let fill = |set: &mut WriteSet| {
            let put = |n: u32| set.put(1, &n.to_be_bytes(), Some(Value::from(vec![0; 10_000]))).err();
            (0..100_000).find_map(put)
        };
        let (mut first, mut second, mut small) = (
            WriteSet::new(Arc::clone(&budget)),
            WriteSet::new(Arc::clone(&budget)),
            WriteSet::new(Arc::clone(&budget)),
        );
        assert!(matches!(fill(&mut first), Some(Error::TransactionTooLarge { limit: 0x60_0000 })));
        assert!(matches!(fill(&mut second), Some(Error::TransactionTooLarge { .. })));
        assert!(second.bytes() < 3 << 20 && budget.used() <= 8 << 20);
        small.put(1, b"k", Some(Value::from(vec![0; 100_000]))).unwrap();
        drop((first, second, small));
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn a_cursor_sees_the_writes_made_before_it() {
        let mut set = WriteSet::new(budget(1 << 20));
        set.put(1, b"a", value("1")).unwrap();
        let cursor = Arc::clone(set.tree(1).unwrap());
        let sequence = set.sequence();
        set.put(1, b"a", value("2")).unwrap();
        set.put(1, b"b", value("3")).unwrap();
        assert_eq!(read(&set, sequence), [("a".into(), value("1"))]);
        drop(cursor);
        set.put(1, b"a", value("4")).unwrap();
        assert_eq!(read(&set, set.sequence()), [("a".into(), value("4")), ("b".into(), value("3"))]);
    }

    #[test]
    fn savepoints_nest_and_undo() {
        let mut set = WriteSet::new(budget(1 << 20));
        set.put(1, b"a", value("1")).unwrap();
        let first = set.savepoint();
        set.put(1, b"a", value("2")).unwrap();
        set.put(1, b"a", value("3")).unwrap();
        let second = set.savepoint();
        set.put(1, b"a", None).unwrap();
        set.put(1, b"b", value("4")).unwrap();
        set.rollback_to(second);
        assert_eq!((set.get(1, b"a"), set.get(1, b"b")), (Some(value("3")), None));
        set.put(1, b"a", value("5")).unwrap();
        set.release(second);
        set.rollback_to(first);
        assert_eq!(set.get(1, b"a"), Some(value("1")));
        set.rollback_to(first);
        set.release(first);
        assert!(set.journal.is_empty() && set.savepoints.is_empty());
        set.put(1, b"a", None).unwrap();
        assert_eq!(set.get(1, b"a"), Some(None));
    }

    #[test]
    fn a_statement_is_undone_as_often_as_it_is_run() {
        let mut set = WriteSet::new(budget(1 << 20));
        set.put(1, b"a", value("1")).unwrap();
        set.put(2, b"a", None).unwrap();
        let bytes = set.bytes();
        let begin = set.begin_statement().unwrap();
        for _ in 0..2 {
            set.put(1, b"a", value("2")).unwrap();
            set.put(1, b"a", value("3")).unwrap();
            set.put(1, b"b", value("3")).unwrap();
            set.put(2, b"a", value("3")).unwrap();
            set.put(3, b"a", None).unwrap();
            set.undo_statement(begin);
            let left = (set.get(1, b"a"), set.get(1, b"b"), set.get(2, b"a"), set.get(3, b"a"));
            assert_eq!(left, (Some(value("1")), None, Some(None), None));
            assert_eq!(set.bytes(), bytes);
        }
        assert!(set.savepoints.is_empty() && set.journal.is_empty());
        set.put(1, b"a", value("4")).unwrap();
        set.end_statement();
        assert_eq!(set.get(1, b"a"), Some(value("4")));
    }

    #[test]
    fn what_is_put_back_as_it_was_is_left_out() {
        let was = |key: &[u8]| Ok::<_, ()>(if key == b"new" { None } else { value("1") });
        let left = |writes: &[(&str, Option<&str>)]| -> Vec<SmallKey> {
            let mut set = WriteSet::new(budget(1 << 20));
            for (key, to) in writes {
                set.put(1, key.as_bytes(), to.and_then(value)).unwrap();
            }
            let mut changes = set.take().pop().unwrap().1;
            changes.take_nothing(was).unwrap();
            changes.iter().map(|(key, _)| key.clone()).collect()
        };
        let nothing: [SmallKey; 0] = [];
        assert_eq!(left(&[("a", None), ("a", Some("1"))]), nothing);
        assert_eq!(left(&[("a", None), ("a", Some("2")), ("a", Some("1"))]), nothing);
        assert_eq!(left(&[("a", Some("2")), ("a", None), ("a", Some("1"))]), nothing);
        assert_eq!(left(&[("new", Some("1")), ("new", None)]), nothing);
        assert_eq!(left(&[("a", None), ("a", Some("2"))]).len(), 1);
        assert_eq!(left(&[("a", None), ("a", Some("1")), ("a", None)]).len(), 1);
        assert_eq!(left(&[("new", Some("1")), ("new", None), ("new", Some("1"))]).len(), 1);
        // Who only writes what was there says so, or means it.
        assert_eq!(left(&[("a", Some("1"))]).len(), 1);
    }

    #[test]
    fn a_write_beyond_the_limit_changes_nothing() {
        let mut set = WriteSet::new(budget(400));
        set.put(1, b"a", value("1")).unwrap();
        let big = Some(Value::from(vec![0; 500]));
        assert!(matches!(set.put(1, b"a", big), Err(Error::TransactionTooLarge { limit: 400 })));
        assert_eq!(set.get(1, b"a"), Some(value("1")));
        for _ in 0..100 {
            set.put(1, b"a", value("overwriting does not grow")).unwrap();
        }
    }

    /// Random histories against a plain list of whole-map copies.
    #[test]
    fn agrees_with_copies_of_the_whole_map() {
        use proptest::prelude::*;
        type Model = BTreeMap<u8, Option<Value>>;
        let step = (0u8..15, 0u8..4, 0u8..9);
        let config = ProptestConfig { failure_persistence: None, ..ProptestConfig::default() };
        proptest!(config, |(steps in proptest::collection::vec(step, 0..60))| {
            let mut set = WriteSet::new(budget(1 << 20));
            let mut model = Model::new();
            let mut saved: Vec<(Savepoint, Model)> = Vec::new();
            let mut cursors: Vec<(Option<Arc<TreeWrites>>, u64, Model)> = Vec::new();
            let mut statement: Option<(u64, Model)> = None;
            for (what, key, content) in steps {
                // No statement makes savepoints, or ends them. One that has failed is not ended.
                if (6..=9).contains(&what) {
                    statement = None;
                }
                match what {
                    0..=5 => {
                        let v = (content > 1).then(|| Value::from(vec![content]));
                        set.put(1, &[key], v.clone()).unwrap();
                        model.insert(key, v);
                    }
                    6 | 7 => saved.push((set.savepoint(), model.clone())),
                    8 => if !saved.is_empty() {
                        saved.truncate(content as usize % saved.len() + 1);
                        let (point, copy) = saved.last().unwrap();
                        set.rollback_to(*point);
                        model = copy.clone();
                        // Cursors opened after the savepoint end with it.
                        cursors.retain(|(_, s, _)| *s <= point.sequence);
                    },
                    9 => if !saved.is_empty() {
                        let at = content as usize % saved.len();
                        set.release(saved[at].0);
                        saved.truncate(at);
                    },
                    10 => cursors.push((set.tree(1).cloned(), set.sequence(), model.clone())),
                    11 => { cursors.pop(); }
                    12 => statement = set.begin_statement().map(|begin| (begin, model.clone())),
                    13 => if let Some((begin, copy)) = &statement {
                        cursors.retain(|(_, s, _)| s <= begin);
                        set.undo_statement(*begin);
                        model.clone_from(copy);
                    },
                    _ => {
                        set.end_statement();
                        statement = None;
                    }
                }
                for (k, v) in &model {
                    prop_assert_eq!(set.get(1, &[*k]), Some(v.clone()));
                }
                for (tree, sequence, copy) in &cursors {
                    let out = tree.as_ref().map_or(Vec::new(), |tree| every(tree, *sequence));
                    let want: Vec<_> = copy.iter().map(|(k, v)| (Key::from(vec![*k]), v.clone())).collect();
                    prop_assert_eq!(out, want);
                }
            }
        });
    }
}
