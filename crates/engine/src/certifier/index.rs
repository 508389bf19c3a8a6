//! Who wrote and who read a key, among the transactions that the certifier keeps.
//!
//! - A key's *writers* are kept in the order of their commits.
//! - Its *readers* are those of the newest version. When the key is overwritten, the writer gets an edge from each of them; who writes after that
//!   comes behind that writer anyway, so the list begins anew.
//! - Ranges (of cursors, and of what was summarized) are kept a tree, and searched one after the other by the first sixteen bytes of their bounds.
//!   That is a fast walk over two arrays; their number is bounded by the certifier's memory.

use std::collections::{BTreeMap, HashMap};
use std::hash::BuildHasherDefault;
use std::ops::Bound;

use smallvec::SmallVec;

use super::node::NodeId;
use crate::key::SmallKey;
use crate::txn::readset::{Identity, KeyHash, compare_lower_upper};
use crate::{Csn, TreeId};

/// So many keys without writers are kept at least.
const STALE_KEYS: usize = 64;

/// What is known of one key.
#[derive(Debug, Default)]
pub(super) struct KeyEntry {
    /// Ascending by commit.
    pub(super) writers: SmallVec<[(Csn, NodeId); 2]>,
    pub(super) readers: SmallVec<[NodeId; 4]>,
}

impl KeyEntry {
    /// The first writer after a snapshot.
    #[inline]
    pub(super) fn writer_after(&self, start: Csn) -> Option<NodeId> {
        // Mostly the newest one decides.
        match self.writers.last() {
            Some(&(commit, _)) if commit > start => {
                self.writers.iter().find(|(commit, _)| *commit > start).map(|&(_, node)| node)
            }
            _ => None,
        }
    }

    /// The writer of the version that a snapshot shows.
    #[inline]
    pub(super) fn writer_upto(&self, start: Csn) -> Option<NodeId> {
        self.writers.iter().rev().find(|(commit, _)| *commit <= start).map(|&(_, node)| node)
    }
}

/// A range with its owner. For ranges of writes: the first and the last commit that wrote there.
#[derive(Debug)]
pub(super) struct Ranged {
    pub(super) lower: Bound<SmallKey>,
    pub(super) upper: Bound<SmallKey>,
    pub(super) node: NodeId,
    pub(super) first: Csn,
    pub(super) last: Csn,
}

/// Ranges of one tree.
#[derive(Debug, Default)]
pub(super) struct Ranges {
    low: Vec<u128>,
    high: Vec<u128>,
    items: Vec<Ranged>,
}

fn prefix(key: &[u8]) -> u128 {
    let mut bytes = [0; 16];
    let length = key.len().min(16);
    bytes[..length].copy_from_slice(&key[..length]);
    u128::from_be_bytes(bytes)
}

fn low_prefix(bound: &Bound<SmallKey>) -> u128 {
    match bound {
        Bound::Unbounded => 0,
        Bound::Included(key) | Bound::Excluded(key) => prefix(key),
    }
}

fn high_prefix(bound: &Bound<SmallKey>) -> u128 {
    match bound {
        Bound::Unbounded => u128::MAX,
        Bound::Included(key) | Bound::Excluded(key) => prefix(key),
    }
}

impl Ranges {
    pub(super) fn push(&mut self, item: Ranged) {
        self.low.push(low_prefix(&item.lower));
        self.high.push(high_prefix(&item.upper));
        self.items.push(item);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// The ranges that hold the key.
    #[inline]
    pub(super) fn covering<'a>(&'a self, key: &'a [u8]) -> impl Iterator<Item = &'a Ranged> {
        let at = prefix(key);
        let candidates = self.low.iter().zip(&self.high).zip(&self.items);
        candidates.filter(move |((low, high), _)| **low <= at && at <= **high).map(|(_, item)| item).filter(
            move |item| {
                let above = match &item.lower {
                    Bound::Unbounded => true,
                    Bound::Included(low) => low[..] <= *key,
                    Bound::Excluded(low) => low[..] < *key,
                };
                above
                    && match &item.upper {
                        Bound::Unbounded => true,
                        Bound::Included(high) => *key <= high[..],
                        Bound::Excluded(high) => *key < high[..],
                    }
            },
        )
    }

    /// The ranges that have something in common with another.
    pub(super) fn overlapping<'a>(
        &'a self,
        lower: &'a Bound<SmallKey>,
        upper: &'a Bound<SmallKey>,
    ) -> impl Iterator<Item = &'a Ranged> {
        self.items.iter().filter(move |item| {
            compare_lower_upper(&item.lower, upper).is_lt() && compare_lower_upper(lower, &item.upper).is_lt()
        })
    }

    /// Keeps the ranges whose owners `keep` names.
    fn retain(&mut self, keep: &dyn Fn(NodeId) -> bool) {
        let mut index = 0;
        while index < self.items.len() {
            if keep(self.items[index].node) {
                index += 1;
            } else {
                self.low.swap_remove(index);
                self.high.swap_remove(index);
                self.items.swap_remove(index);
            }
        }
    }
}

/// What is known of one tree.
#[derive(Debug, Default)]
pub(super) struct TreeIndex {
    /// Written keys in order, for those who read ranges. Some may have no writers any more.
    written: BTreeMap<SmallKey, KeyHash>,
    /// Those that are not there yet, perhaps more than once: nothing is sorted before a range is asked for.
    fresh: Vec<(SmallKey, KeyHash)>,
    /// How many writes of kept transactions there are.
    writes_kept: usize,
    pub(super) reads: Ranges,
    pub(super) writes: Ranges,
}

impl TreeIndex {
    /// The written keys of a range, and perhaps some that nobody has written.
    pub(super) fn written_in<'a>(
        &'a mut self,
        lower: &'a Bound<SmallKey>,
        upper: &'a Bound<SmallKey>,
    ) -> impl Iterator<Item = KeyHash> {
        self.written.extend(self.fresh.drain(..));
        // The map refuses ranges that end before they begin.
        let possible = compare_lower_upper(lower, upper).is_lt();
        let range = possible.then(|| self.written.range::<SmallKey, _>((lower.as_ref(), upper.as_ref())));
        range.into_iter().flatten().map(|(_, &hash)| hash)
    }

    /// Leaves out keys without writers, once they are most of them.
    fn clean(&mut self, has_writers: impl Fn(KeyHash) -> bool) {
        if self.fresh.len() + self.written.len() > 2 * self.writes_kept + STALE_KEYS {
            self.written.extend(self.fresh.drain(..).filter(|&(_, hash)| has_writers(hash)));
            self.written.retain(|_, hash| has_writers(*hash));
        }
    }
}

/// All keys and trees.
#[derive(Debug, Default)]
pub(super) struct KeyIndex {
    pub(super) keys: HashMap<KeyHash, KeyEntry, BuildHasherDefault<Identity>>,
    pub(super) trees: HashMap<TreeId, TreeIndex>,
}

impl KeyIndex {
    /// A transaction that was admitted wrote the key.
    pub(super) fn write(&mut self, tree: TreeId, key: &SmallKey, hash: KeyHash, commit: Csn, node: NodeId) {
        let entry = self.keys.entry(hash).or_default();
        entry.readers.clear();
        entry.writers.push((commit, node));
        let tree = self.trees.entry(tree).or_default();
        tree.writes_kept += 1;
        tree.fresh.push((key.clone(), hash));
    }

    /// A transaction that was admitted read the key, and nobody has overwritten that version.
    pub(super) fn read(&mut self, hash: KeyHash, start: Csn, node: NodeId) {
        let entry = self.keys.entry(hash).or_default();
        if entry.writer_after(start).is_none() {
            entry.readers.push(node);
        }
    }

    /// Forgets that a node wrote the key.
    pub(super) fn unwrite(&mut self, tree: TreeId, hash: KeyHash, node: NodeId) {
        let Some(entry) = self.keys.get_mut(&hash) else { return };
        entry.writers.retain(|(_, writer)| *writer != node);
        self.drop_if_empty(hash);
        let KeyIndex { keys, trees } = self;
        if let Some(tree) = trees.get_mut(&tree) {
            tree.writes_kept -= 1;
            tree.clean(|hash| keys.get(&hash).is_some_and(|entry| !entry.writers.is_empty()));
        }
    }

    /// Forgets that a node read the key.
    pub(super) fn unread(&mut self, hash: KeyHash, node: NodeId) {
        if let Some(entry) = self.keys.get_mut(&hash) {
            entry.readers.retain(|reader| *reader != node);
            self.drop_if_empty(hash);
        }
    }

    fn drop_if_empty(&mut self, hash: KeyHash) {
        if self.keys.get(&hash).is_some_and(|entry| entry.writers.is_empty() && entry.readers.is_empty()) {
            self.keys.remove(&hash);
        }
    }

    /// Forgets the ranges of nodes that are gone.
    pub(super) fn retain_ranges(&mut self, keep: &dyn Fn(NodeId) -> bool) {
        self.trees.retain(|_, tree| {
            tree.reads.retain(keep);
            tree.writes.retain(keep);
            tree.writes_kept > 0 || !tree.reads.is_empty() || !tree.writes.is_empty()
        });
    }
}
