//! Who wrote and who read a key, among the transactions that the certifier keeps.
//!
//! Two levels: the newest transactions are in two [`Young`]; when they are long, because somebody keeps many transactions in the graph, all goes into a
//! hash table by key.
//!
//! - A key's *writers* are kept in the order of their commits.
//! - Its *readers* are those of the newest version. When the key is overwritten, the writer gets an edge from each of them; who writes after that
//!   comes behind that writer anyway, so the list begins anew.
//! - Ranges (of cursors, and of what was summarized) are kept a tree, in [`Ranges`]; their number is bounded by the certifier's memory.

use std::collections::{BTreeMap, HashMap};
use std::hash::BuildHasherDefault;
use std::ops::Bound;

use smallvec::SmallVec;

use super::candidate::KeyWrite;
use super::node::{Node, NodeId, Nodes};
use super::prepared::Promised;
use super::ranges::{Ranged, Ranges};
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

/// What is known of one tree.
#[derive(Debug, Default)]
pub(super) struct TreeIndex {
    /// Written keys in order, for those who read ranges. Some may have no writers any more.
    written: BTreeMap<SmallKey, KeyHash>,
    pub(super) reads: Ranges,
    pub(super) writes: Ranges,
}

impl TreeIndex {
    /// The written keys of a range, and perhaps some that nobody has written. To be asked after [`KeyIndex::sort`].
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

    fn settle(&mut self) {
        self.reads.settle();
        self.writes.settle();
    }

    fn is_empty(&self) -> bool {
        self.written.is_empty() && self.reads.is_empty() && self.writes.is_empty()
    }
}

/// All keys and trees.
#[derive(Debug, Default)]
pub(super) struct KeyIndex {
    young_writes: Young,
    young_reads: Young,
    /// What is older than all that is young.
    keys: HashMap<KeyHash, KeyEntry, BuildHasherDefault<Identity>>,
    pub(super) trees: HashMap<TreeId, TreeIndex, BuildHasherDefault<Identity>>,
    /// Nodes whose written keys are not in `trees` yet: nothing is sorted before a range is asked for.
    unsorted: Vec<NodeId>,
    /// Writes whose nodes have left since `trees` were last cleaned.
    left: usize,
    /// Ranges of all trees.
    ranges: usize,
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
        self.write(&node.writes, node.commit, id);
    }

    /// Enters the keys of a prepared transaction.
    pub(super) fn promise(&mut self, node: &Node, id: NodeId) {
        for point in node.reads.points() {
            self.promised.reads(point.hash, id);
        }
        for (_, _, hash) in &node.writes {
            self.promised.writes(*hash, id);
        }
        if !node.writes.is_empty() {
            self.unsorted.push(id);
        }
    }

    /// Takes out the keys of a transaction that is not prepared any more.
    pub(super) fn unpromise(&mut self, node: &Node, id: NodeId) {
        for point in node.reads.points() {
            self.promised.unreads(point.hash, id);
        }
        for (_, _, hash) in &node.writes {
            self.promised.unwrites(*hash, id);
        }
        self.left += node.writes.len();
    }

    /// A prepared transaction that wrote in ranges has its number.
    pub(super) fn number_ranges(&mut self, id: NodeId, commit: Csn) {
        self.trees.values_mut().for_each(|tree| tree.writes.number(id, commit));
    }

    /// Forgets the ranges of a node.
    pub(super) fn leave_ranges(&mut self, id: NodeId) {
        for tree in self.trees.values_mut() {
            tree.reads.retain(&|owner| owner != id);
            tree.writes.retain(&|owner| owner != id);
        }
        self.count_ranges();
    }

    fn count_ranges(&mut self) {
        self.ranges = self.trees.values().map(|tree| tree.reads.len() + tree.writes.len()).sum();
    }

    /// The writer of the version of a key that a snapshot shows, and the first one after it.
    #[inline]
    pub(super) fn writers_around(&self, hash: KeyHash, start: Csn) -> (Option<NodeId>, Option<NodeId>) {
        let (mut upto, mut after): (Option<Commit>, Option<Commit>) = (None, None);
        self.young_writes.each(hash, |&Touch { at, node, .. }| {
            if at <= start {
                if upto.is_none_or(|(found, _)| at >= found) {
                    upto = Some((at, node));
                }
            } else if after.is_none_or(|(found, _)| at < found) {
                after = Some((at, node));
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
        self.young_writes.each(hash, |touch| {
            if last.is_none_or(|(found, _)| touch.at >= found) {
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
        self.young_reads.each(hash, |touch| {
            if touch.at >= since {
                visit(touch.node);
            }
        });
    }

    #[inline]
    fn old(&self, hash: KeyHash) -> Option<&KeyEntry> {
        if self.keys.is_empty() { None } else { self.keys.get(&hash) }
    }

    /// What is known of a tree, if there are ranges at all.
    #[inline]
    pub(super) fn with_ranges(&self, tree: TreeId) -> Option<&TreeIndex> {
        if self.ranges == 0 { None } else { self.trees.get(&tree) }
    }

    /// A transaction that was admitted read the range.
    pub(super) fn read_range(&mut self, tree: TreeId, range: Ranged) {
        self.ranges += 1;
        self.trees.entry(tree).or_default().reads.push(range);
    }

    /// A transaction that was admitted wrote in the range.
    pub(super) fn write_range(&mut self, tree: TreeId, range: Ranged) {
        self.ranges += 1;
        self.trees.entry(tree).or_default().writes.push(range);
    }

    /// A transaction that was admitted wrote the keys.
    pub(super) fn write(&mut self, writes: &[KeyWrite], commit: Csn, node: NodeId) {
        for &(_, _, hash) in writes {
            self.young_writes.push(Touch { hash, at: commit, node });
        }
        if !writes.is_empty() {
            self.unsorted.push(node);
        }
    }

    /// Puts all written keys in order.
    pub(super) fn sort(&mut self, nodes: &Nodes) {
        for node in self.unsorted.drain(..).filter_map(|id| nodes.get(id)) {
            for (tree, key, hash) in &node.writes {
                self.trees.entry(*tree).or_default().written.insert(key.clone(), *hash);
            }
        }
    }

    /// A transaction that was admitted read the key, and saw what was committed up to `at`.
    pub(super) fn read(&mut self, hash: KeyHash, at: Csn, node: NodeId) {
        self.young_reads.push(Touch { hash, at, node });
    }

    /// Puts in order what came, if it is much: ranges among the others; what is young into the table, reads last: those of a version that was replaced meanwhile are left out.
    pub(super) fn settle(&mut self) {
        if self.ranges > 0 {
            self.trees.values_mut().for_each(TreeIndex::settle);
        }
        if self.young_writes.len() + self.young_reads.len() <= YOUNG_MAX {
            return;
        }
        let KeyIndex { young_writes, young_reads, keys, .. } = self;
        for Touch { hash, at, node } in young_writes.drain() {
            let entry = keys.entry(hash).or_default();
            entry.readers.clear();
            entry.writers.push((at, node));
        }
        for Touch { hash, at, node } in young_reads.drain() {
            if keys.get(&hash).is_none_or(|entry| entry.writer_after(at).is_none()) {
                keys.entry(hash).or_default().readers.push(node);
            }
        }
    }

    /// Forgets which keys a node read and wrote. Ranges, and what is young, stay until `forget`.
    pub(super) fn leave(&mut self, node: &Node, id: NodeId) {
        self.left += node.writes.len();
        if self.keys.is_empty() {
            return;
        }
        for point in node.reads.points() {
            if let Some(entry) = self.keys.get_mut(&point.hash) {
                entry.readers.retain(|reader| *reader != id);
                self.drop_if_empty(point.hash);
            }
        }
        for (_, _, hash) in &node.writes {
            if let Some(entry) = self.keys.get_mut(hash) {
                entry.writers.retain(|(_, writer)| *writer != id);
                self.drop_if_empty(*hash);
            }
        }
    }

    fn drop_if_empty(&mut self, hash: KeyHash) {
        if self.keys.get(&hash).is_some_and(|entry| entry.writers.is_empty() && entry.readers.is_empty()) {
            self.keys.remove(&hash);
        }
    }

    /// Forgets what belongs to nodes that are gone, before their places are used again; `with_ranges` if they had any, or were the last ones.
    pub(super) fn forget(&mut self, with_ranges: bool, keep: &dyn Fn(NodeId) -> bool) {
        self.young_writes.retain(keep);
        self.young_reads.retain(keep);
        self.unsorted.retain(|&id| keep(id));
        self.clean();
        if with_ranges {
            self.trees.retain(|_, tree| {
                tree.reads.retain(keep);
                tree.writes.retain(keep);
                !tree.is_empty()
            });
            self.count_ranges();
        }
    }

    /// Leaves written keys without writers out of the trees, once they may be most of them, or nothing else is kept.
    fn clean(&mut self) {
        let KeyIndex { young_writes, keys, trees, left, promised, .. } = self;
        let written: usize = trees.values().map(|tree| tree.written.len()).sum();
        let others = young_writes.len() > 0 || !keys.is_empty() || !promised.is_empty();
        if 2 * *left <= written + STALE_KEYS && others {
            return;
        }
        *left = 0;
        let has_writers = |hash: KeyHash| {
            let mut found =
                promised.has_writers(hash) || keys.get(&hash).is_some_and(|entry| !entry.writers.is_empty());
            young_writes.each(hash, |_| found = true);
            found
        };
        trees.values_mut().for_each(|tree| tree.written.retain(|_, hash| has_writers(*hash)));
    }

    /// Whether nothing is kept.
    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.young_writes.len() + self.young_reads.len() == 0
            && self.unsorted.is_empty()
            && self.keys.is_empty()
            && self.trees.is_empty()
            && self.promised.is_empty()
    }
}
