//! Who wrote and who read a key, among the transactions that the certifier keeps.
//!
//! - A key's *writers* are kept in the order of their commits, the newest first.
//! - Its *readers* are those of the newest version. When the key is overwritten, the writer gets an
//!   edge from each of them that sees a difference; who writes after that comes behind that writer
//!   anyway, and looks no further back. To the others the new version is as good as the one that
//!   they read: they are its readers from now on, and are entered once more, behind the write.
//! - So is somebody who enters late, after writes that his snapshot did not show, a reader of the
//!   newest version if none of these writes made a difference to him.
//! - Both are in one table, [`Touches`]. What prepared transactions touched is in another one,
//!   [`Promised`].
//! - Ranges (of cursors, and of what was summarized) are kept a tree, in [`Ranges`]; their number
//!   is bounded by the certifier's memory.

use std::collections::BTreeMap;
use std::ops::Bound;

use smallvec::SmallVec;

use super::node::{Node, NodeId, Nodes};
use super::prepared::Promised;
use super::ranges::{Ranged, Ranges};
use super::touches::{Number, Touch, Touches, is_since};
use crate::hash::{ByHash, KeyHash};
use crate::key::SmallKey;
use crate::txn::columns::Columns;
use crate::txn::readset::{Moment, compare_lower_upper};
use crate::{Csn, TreeId};

/// So many keys without writers are kept at least.
const STALE_KEYS: usize = 64;
/// So many readers a write may leave behind it as readers of its version: each of them is entered
/// once more for each such write.
pub(super) const SPARED_MAX: usize = 32;

/// Readers of a version, and the columns that they read.
pub(super) type Readers = SmallVec<[(NodeId, Columns); 4]>;

/// Those whom a change leaves as they were, each once; no more are looked for than may be spared,
/// and one.
pub(super) fn unmoved(readers: &Readers, changed: Columns, most: usize) -> Readers {
    let mut distinct = Readers::new();
    for reader in readers.iter().filter(|(_, read)| !changed.meet(*read)) {
        if distinct.len() <= most && !distinct.contains(reader) {
            distinct.push(*reader);
        }
    }
    distinct
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
    /// The written keys of a range, and perhaps some that nobody has written. To be asked after
    /// [`KeyIndex::sort`].
    pub(super) fn written_in<'a>(
        &'a self,
        lower: &'a Bound<SmallKey>,
        upper: &'a Bound<SmallKey>,
    ) -> impl Iterator<Item = (&'a SmallKey, KeyHash)> {
        // The map refuses ranges that end before they begin.
        let possible = compare_lower_upper(lower, upper).is_lt();
        let range = possible.then(|| self.written.range::<SmallKey, _>((lower.as_ref(), upper.as_ref())));
        range.into_iter().flatten().map(|(key, &hash)| (key, hash))
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
    /// Nodes whose written keys are not in `trees` yet: nothing is sorted before a range is asked
    /// for. Some may have left, and their places may be others' now, whose keys are put in order
    /// once more: that does no harm.
    unsorted: Vec<NodeId>,
    /// Ranges of all trees.
    ranges: usize,
    /// Writes whose nodes have left since `trees` were last cleaned.
    left: usize,
    pub(super) trees: ByHash<TreeId, TreeIndex>,
    /// What prepared transactions touched. Boxed, since there are mostly none.
    pub(super) promised: Box<Promised>,
}

impl KeyIndex {
    /// The number that a node gets when it enters: no touch of an earlier node in its place has it,
    /// or a higher one.
    #[inline]
    pub(super) fn next_touch(&self) -> Number {
        self.touches.next()
    }

    /// Enters the keys of a committed transaction; `spares`: it may leave readers of what it
    /// replaces as they were.
    pub(super) fn keep(&mut self, nodes: &mut Nodes, id: NodeId, spares: bool) {
        let spared = if spares { self.spared_by(nodes, id) } else { SmallVec::new() };
        let node = nodes.at(id);
        let count = node.writes.len() + node.reads.points().len() + spared.len();
        self.touches.make_room(nodes, count);
        let node = nodes.at_mut(id);
        node.touches = self.touches.next();
        for write in &node.writes {
            self.touches.write(write.2, node.effect(write).columns(), node.commit, id);
        }
        if !node.writes.is_empty() {
            self.unsorted.push(id);
        }
        for (hash, reader, columns) in spared {
            self.touches.read(hash, columns, node.commit, reader);
        }
        for point in node.reads.points().iter().filter(|point| !node.overwrites(point)) {
            let at = if point.moment() == Moment::Latest { node.commit } else { node.start };
            self.touches.read(point.hash, node.reads.columns(point), at, id);
        }
    }

    /// Readers of what a node is about to replace who see no difference.
    fn spared_by(&self, nodes: &Nodes, id: NodeId) -> SmallVec<[(KeyHash, NodeId, Columns); 4]> {
        let (node, mut spared) = (nodes.at(id), SmallVec::new());
        for write in &node.writes {
            let changed = node.effect(write).columns();
            if changed == Columns::ALL {
                continue;
            }
            let readers = self.readers(nodes, write.2, self.last_writer(nodes, write.2));
            // Those of a prepared transaction were not counted: who came later is not refused for
            // it.
            let unmoved = unmoved(&readers, changed, usize::MAX);
            spared.extend(unmoved.into_iter().map(|(reader, read)| (write.2, reader, read)));
        }
        spared
    }

    /// Enters the keys of a prepared transaction.
    pub(super) fn promise(&mut self, node: &Node, id: NodeId) {
        for point in node.reads.points() {
            self.promised.reads(point.hash, node.reads.columns(point), id);
        }
        for write in &node.writes {
            self.promised.writes(write.2, node.effect(write).columns(), id);
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
        for write in &node.writes {
            self.promised.unwrites(write.2, id);
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

    /// The writer of the version of a key that a snapshot shows, and the first one after it whose
    /// write makes a difference.
    #[inline]
    pub(super) fn writers_around(
        &self,
        nodes: &Nodes,
        hash: KeyHash,
        start: Csn,
        differs: impl Fn(&Touch) -> bool,
    ) -> (Option<NodeId>, Option<NodeId>) {
        let mut after = None;
        for (number, touch) in self.touches.writes(hash) {
            if !nodes.has_touched(touch.node, number) {
                continue;
            }
            if touch.at <= start {
                return (Some(touch.node), after);
            }
            if differs(touch) {
                after = Some(touch.node);
            }
        }
        (None, after)
    }

    /// The last writer of a key: its touch and that one's number.
    #[inline]
    pub(super) fn last_writer(&self, nodes: &Nodes, hash: KeyHash) -> Option<(Number, &Touch)> {
        self.touches.writes(hash).find(|(number, touch)| nodes.has_touched(touch.node, *number))
    }

    /// The readers of the newest version of a key, which is by this writer. Some may be named
    /// twice.
    #[inline]
    pub(super) fn readers(&self, nodes: &Nodes, hash: KeyHash, last: Option<(Number, &Touch)>) -> Readers {
        let mut readers = Readers::new();
        for (number, touch) in self.touches.reads(hash) {
            match last {
                // Whoever came before that writer and is still a reader came once more after it.
                Some((writer, _)) if !is_since(number, writer) => break,
                _ if !nodes.has_touched(touch.node, number) => {}
                // Some who came after it read an older version.
                Some((_, write)) if touch.at < write.at && self.is_replaced(nodes, hash, touch) => {}
                _ => readers.push((touch.node, touch.columns)),
            }
        }
        readers
    }

    /// Whether a write since made a difference to the reader.
    #[cold]
    fn is_replaced(&self, nodes: &Nodes, hash: KeyHash, read: &Touch) -> bool {
        let differs = |touch: &Touch| touch.columns.meet(read.columns);
        self.writers_around(nodes, hash, read.at, differs).1.is_some()
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
            for (tree, key, hash, _) in &node.writes {
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

    /// A node has left. What it touched stays until `forget`.
    pub(super) fn leave(&mut self, node: &Node) {
        self.left += node.writes.len();
    }

    /// Forgets what nodes that have left touched, before their places are used again; with their
    /// ranges, if they had any or were the last ones.
    pub(super) fn forget(&mut self, with_ranges: bool, nodes: &Nodes) {
        self.touches.trim(nodes);
        let room = if nodes.len() == 0 { 0 } else { 2 * nodes.len() + STALE_KEYS };
        if self.unsorted.len() > room {
            self.unsorted.retain(|&id| nodes.has(id));
            self.unsorted.sort_unstable();
            self.unsorted.dedup();
        }
        self.clean(nodes);
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

    /// Leaves written keys without writers out of the trees, once they may be most of them, or
    /// nothing else is kept.
    fn clean(&mut self, nodes: &Nodes) {
        let KeyIndex { touches, trees, left, promised, .. } = self;
        let written: usize = trees.values().map(|tree| tree.written.len()).sum();
        let others = !touches.is_empty() || !promised.is_empty();
        if 2 * *left <= written + STALE_KEYS && others {
            return;
        }
        *left = 0;
        let wrote = |(number, touch): (Number, &Touch)| nodes.has_touched(touch.node, number);
        let has_writers = |hash| promised.has_writers(hash) || touches.writes(hash).any(wrote);
        trees.values_mut().for_each(|tree| tree.written.retain(|_, hash| has_writers(*hash)));
    }

    /// Whether nothing is kept.
    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.touches.is_empty()
            && self.unsorted.is_empty()
            && self.trees.is_empty()
            && self.promised.is_empty()
    }
}
