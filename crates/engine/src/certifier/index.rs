//! Who wrote and who read a key, among the transactions that the certifier keeps.
//!
//! - A key's *writers* are kept in the order of their commits, the newest first.
//! - Its *readers* are those of the newest version. When the key is overwritten, the writer gets an edge from each of them; who writes after that
//!   comes behind that writer anyway, so the list begins anew.
//! - Both are in one table, [`Touches`]. What prepared transactions touched is in another one, [`Promised`].
//! - Ranges (of cursors, and of what was summarized) are kept a tree, in [`Ranges`]; their number is bounded by the certifier's memory.

use std::collections::{BTreeMap, HashMap};
use std::hash::BuildHasherDefault;
use std::ops::Bound;

use super::node::{Node, NodeId, Nodes};
use super::prepared::Promised;
use super::ranges::{Ranged, Ranges};
use super::touches::{NOWHERE, Touches};
use crate::key::SmallKey;
use crate::txn::readset::{Identity, KeyHash, Moment, compare_lower_upper};
use crate::{Csn, TreeId};

/// So many keys without writers are kept at least.
const STALE_KEYS: usize = 64;

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

/// All keys and trees; in the order in which a commit needs them.
#[derive(Debug, Default)]
#[repr(C)]
pub(super) struct KeyIndex {
    touches: Touches,
    /// Nodes whose written keys are not in `trees` yet: nothing is sorted before a range is asked for. Some may have left, and their places may be others' now,
    /// whose keys are put in order once more: that does no harm.
    unsorted: Vec<NodeId>,
    /// Ranges of all trees.
    ranges: usize,
    /// Writes whose nodes have left since `trees` were last cleaned.
    left: usize,
    pub(super) trees: HashMap<TreeId, TreeIndex, BuildHasherDefault<Identity>>,
    /// What prepared transactions touched. Boxed, since there are mostly none.
    pub(super) promised: Box<Promised>,
}

impl KeyIndex {
    /// Enters the keys of a committed transaction.
    pub(super) fn keep(&mut self, node: &mut Node, id: NodeId) {
        let mut first = NOWHERE;
        for (_, _, hash) in &node.writes {
            self.touches.forget_reads(*hash);
            first = self.touches.write(*hash, node.commit, id, first);
        }
        if !node.writes.is_empty() {
            self.unsorted.push(id);
        }
        for point in node.reads.points().iter().filter(|point| !node.overwrites(point)) {
            let at = if point.moment() == Moment::Latest { node.commit } else { node.start };
            first = self.touches.read(point.hash, at, id, first);
        }
        node.touches = first;
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
        let mut after = None;
        for touch in self.touches.writes(hash) {
            if touch.at <= start {
                return (Some(touch.node), after);
            }
            after = Some(touch.node);
        }
        (None, after)
    }

    /// Those whom a writer of the key comes after: the last writer, and the readers of its version.
    #[inline]
    pub(super) fn replaced(&self, hash: KeyHash, mut visit: impl FnMut(NodeId)) {
        let last = self.touches.writes(hash).next();
        last.into_iter().for_each(|touch| visit(touch.node));
        // Some may have entered after that writer with an older snapshot.
        let since = last.map_or(0, |touch| touch.at);
        self.touches.reads(hash).filter(|touch| touch.at >= since).for_each(|touch| visit(touch.node));
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

    /// Puts all written keys in order.
    pub(super) fn sort(&mut self, nodes: &Nodes) {
        for node in self.unsorted.drain(..).filter_map(|id| nodes.get(id)) {
            for (tree, key, hash) in &node.writes {
                self.trees.entry(*tree).or_default().written.insert(key.clone(), *hash);
            }
        }
    }

    /// Puts ranges that came among the others.
    pub(super) fn settle(&mut self) {
        if self.ranges > 0 {
            self.trees.values_mut().for_each(TreeIndex::settle);
        }
    }

    /// Forgets which keys a node read and wrote. Ranges stay until `forget`.
    pub(super) fn leave(&mut self, node: &Node) {
        self.left += node.writes.len();
        self.touches.leave(node.touches);
    }

    /// Forgets the ranges of nodes that are gone, before their places are used again; `with_ranges` if they had any, or were the last ones.
    pub(super) fn forget(&mut self, with_ranges: bool, nodes: &Nodes) {
        let room = if nodes.len() == 0 { 0 } else { 2 * nodes.len() + STALE_KEYS };
        if self.unsorted.len() > room {
            self.unsorted.retain(|&id| nodes.has(id));
            self.unsorted.sort_unstable();
            self.unsorted.dedup();
        }
        self.clean();
        if with_ranges {
            let keep = |id| nodes.has(id);
            self.trees.retain(|_, tree| {
                tree.reads.retain(&keep);
                tree.writes.retain(&keep);
                !tree.is_empty()
            });
            self.count_ranges();
        }
    }

    /// Leaves written keys without writers out of the trees, once they may be most of them, or nothing else is kept.
    fn clean(&mut self) {
        let KeyIndex { touches, trees, left, promised, .. } = self;
        let written: usize = trees.values().map(|tree| tree.written.len()).sum();
        let others = touches.len() > 0 || !promised.is_empty();
        if 2 * *left <= written + STALE_KEYS && others {
            return;
        }
        *left = 0;
        let has_writers = |hash| promised.has_writers(hash) || touches.writes(hash).next().is_some();
        trees.values_mut().for_each(|tree| tree.written.retain(|_, hash| has_writers(*hash)));
    }

    /// Whether nothing is kept.
    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.touches.len() == 0
            && self.unsorted.is_empty()
            && self.trees.is_empty()
            && self.promised.is_empty()
    }
}
