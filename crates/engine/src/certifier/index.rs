//! Who wrote and who read a key, among the transactions that the certifier keeps.
//!
//! Two levels: the newest transactions are in [`Young`]; when that is long, because somebody keeps many transactions in the graph, all of it goes into a
//! hash table by key.
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

use super::node::{Node, NodeId};
use super::prepared::Promised;
use super::young::{Touch, Young};
use crate::key::SmallKey;
use crate::txn::readset::{Identity, KeyHash, Moment, compare_lower_upper};
use crate::{Csn, TreeId};

/// So many keys without writers are kept at least.
const STALE_KEYS: usize = 64;

/// More touched keys than this are not looked through one by one. Tests have fewer, so that they come to both levels.
const YOUNG_MAX: usize = if cfg!(test) { 24 } else { 512 };

/// A writer and its number.
type Commit = (Csn, NodeId);

/// What is known of one key that is not young.
#[derive(Debug, Default)]
struct KeyEntry {
    /// Ascending by commit.
    writers: SmallVec<[Commit; 2]>,
    readers: SmallVec<[NodeId; 4]>,
}

impl KeyEntry {
    /// The first writer after a snapshot.
    #[inline]
    fn writer_after(&self, start: Csn) -> Option<NodeId> {
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
    fn writer_upto(&self, start: Csn) -> Option<NodeId> {
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

    /// Gives the ranges of writes of a node its number.
    pub(super) fn number(&mut self, node: NodeId, commit: Csn) {
        for item in self.items.iter_mut().filter(|item| item.node == node) {
            (item.first, item.last) = (commit, commit);
        }
    }

    /// Keeps the ranges whose owners `keep` names.
    pub(super) fn retain(&mut self, keep: &dyn Fn(NodeId) -> bool) {
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
    /// Puts what is fresh in order.
    pub(super) fn sort(&mut self) {
        self.written.extend(self.fresh.drain(..));
    }

    /// The written keys of a range, and perhaps some that nobody has written. To be asked after `sort`.
    pub(super) fn written_in<'a>(
        &'a self,
        lower: &'a Bound<SmallKey>,
        upper: &'a Bound<SmallKey>,
    ) -> impl Iterator<Item = KeyHash> {
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
    young: Young,
    /// What is older than all that is young.
    keys: HashMap<KeyHash, KeyEntry, BuildHasherDefault<Identity>>,
    pub(super) trees: HashMap<TreeId, TreeIndex>,
    /// What prepared transactions touched.
    pub(super) promised: Promised,
}

impl KeyIndex {
    /// Enters the keys of a committed transaction.
    pub(super) fn keep(&mut self, node: &Node, id: NodeId) {
        for point in node.reads.points() {
            let at = if point.moment == Moment::Latest { node.commit } else { node.start };
            self.read(point.hash, at, id);
        }
        for (tree, key, hash) in &node.writes {
            self.write(*tree, key, *hash, node.commit, id);
        }
    }

    /// Enters the keys of a prepared transaction.
    pub(super) fn promise(&mut self, node: &Node, id: NodeId) {
        for point in node.reads.points() {
            self.promised.reads(point.hash, id);
        }
        for (tree, key, hash) in &node.writes {
            self.promised.writes(*hash, id);
            self.note_written(*tree, key, *hash);
        }
    }

    /// Takes out the keys of a transaction that is not prepared any more.
    pub(super) fn unpromise(&mut self, node: &Node, id: NodeId) {
        for point in node.reads.points() {
            self.promised.unreads(point.hash, id);
        }
        for (tree, _, hash) in &node.writes {
            self.promised.unwrites(*hash, id);
            if let Some(tree) = self.trees.get_mut(tree) {
                tree.writes_kept -= 1;
            }
        }
    }

    /// The writer of the version of a key that a snapshot shows, and the first one after it.
    #[inline]
    pub(super) fn writers_around(&self, hash: KeyHash, start: Csn) -> (Option<NodeId>, Option<NodeId>) {
        let (mut upto, mut after): (Option<Commit>, Option<Commit>) = (None, None);
        self.young.each(hash, |touch| match touch {
            Touch { is_write: false, .. } => {}
            Touch { at, node, .. } if *at <= start => {
                if upto.is_none_or(|(found, _)| *at >= found) {
                    upto = Some((*at, *node));
                }
            }
            Touch { at, node, .. } => {
                if after.is_none_or(|(found, _)| *at < found) {
                    after = Some((*at, *node));
                }
            }
        });
        let (mut upto, mut after) = (upto.map(|(_, node)| node), after.map(|(_, node)| node));
        if let Some(entry) = self.old(hash) {
            upto = upto.or_else(|| entry.writer_upto(start));
            after = entry.writer_after(start).or(after);
        }
        (upto, after)
    }

    /// Those whom a writer of the key comes after: the last writer, and the readers of its version.
    #[inline]
    pub(super) fn replaced(&self, hash: KeyHash, mut visit: impl FnMut(NodeId)) {
        let mut last: Option<Commit> = None;
        self.young.each(hash, |touch| {
            if touch.is_write && last.is_none_or(|(found, _)| touch.at >= found) {
                last = Some((touch.at, touch.node));
            }
        });
        if last.is_none()
            && let Some(entry) = self.old(hash)
        {
            entry.readers.iter().copied().for_each(&mut visit);
            last = entry.writers.last().copied();
        }
        last.into_iter().for_each(|(_, node)| visit(node));
        let since = last.map_or(0, |(commit, _)| commit);
        self.young.each(hash, |touch| {
            if !touch.is_write && touch.at >= since {
                visit(touch.node);
            }
        });
    }

    #[inline]
    fn old(&self, hash: KeyHash) -> Option<&KeyEntry> {
        if self.keys.is_empty() { None } else { self.keys.get(&hash) }
    }

    /// A transaction that was admitted wrote the key.
    pub(super) fn write(&mut self, tree: TreeId, key: &SmallKey, hash: KeyHash, commit: Csn, node: NodeId) {
        self.young.push(Touch { hash, at: commit, node, is_write: true });
        self.note_written(tree, key, hash);
    }

    fn note_written(&mut self, tree: TreeId, key: &SmallKey, hash: KeyHash) {
        let tree = self.trees.entry(tree).or_default();
        tree.writes_kept += 1;
        tree.fresh.push((key.clone(), hash));
    }

    /// A transaction that was admitted read the key, and saw what was committed up to `at`.
    pub(super) fn read(&mut self, hash: KeyHash, at: Csn, node: NodeId) {
        self.young.push(Touch { hash, at, node, is_write: false });
    }

    /// Moves what is young into the table, if it is much.
    pub(super) fn settle(&mut self) {
        if self.young.len() <= YOUNG_MAX {
            return;
        }
        let KeyIndex { young, keys, .. } = self;
        for Touch { hash, at, node, is_write } in young.drain() {
            if is_write {
                let entry = keys.entry(hash).or_default();
                entry.readers.clear();
                entry.writers.push((at, node));
            } else if keys.get(&hash).is_none_or(|entry| entry.writer_after(at).is_none()) {
                keys.entry(hash).or_default().readers.push(node);
            }
        }
    }

    /// Forgets that a node wrote the key. What is young stays until `forget`.
    pub(super) fn unwrite(&mut self, tree: TreeId, hash: KeyHash, node: NodeId) {
        if let Some(tree) = self.trees.get_mut(&tree) {
            tree.writes_kept -= 1;
        }
        if self.keys.is_empty() {
            return;
        }
        if let Some(entry) = self.keys.get_mut(&hash) {
            entry.writers.retain(|(_, writer)| *writer != node);
            self.drop_if_empty(hash);
        }
    }

    /// Forgets that a node read the key. What is young stays until `forget`.
    pub(super) fn unread(&mut self, hash: KeyHash, node: NodeId) {
        if self.keys.is_empty() {
            return;
        }
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

    /// Forgets what belongs to nodes that are gone, before their places are used again; `with_ranges` if they had any, or were the last ones.
    pub(super) fn forget(&mut self, with_ranges: bool, keep: &dyn Fn(NodeId) -> bool) {
        self.young.retain(keep);
        let KeyIndex { young, keys, trees, promised } = self;
        let has_writers = |hash: KeyHash| {
            let mut found =
                promised.has_writers(hash) || keys.get(&hash).is_some_and(|entry| !entry.writers.is_empty());
            young.each(hash, |touch| found |= touch.is_write);
            found
        };
        trees.values_mut().for_each(|tree| tree.clean(has_writers));
        if with_ranges {
            trees.retain(|_, tree| {
                tree.reads.retain(keep);
                tree.writes.retain(keep);
                tree.writes_kept > 0 || !tree.reads.is_empty() || !tree.writes.is_empty()
            });
        }
    }

    /// Whether nothing is kept.
    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.young.len() == 0 && self.keys.is_empty() && self.trees.is_empty() && self.promised.is_empty()
    }
}
