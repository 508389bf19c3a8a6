//! A transaction that asks to commit, as the certifier sees it.

use super::node::{Node, RangeWrite};
use crate::lock::mode::FamilySlot;
use crate::txn::change::Effects;
use crate::txn::readset::ReadSet;
use crate::txn::writeset::KeyWrites;
use crate::{Csn, TransactionId, TreeId};

/// More writes than this are remembered as ranges.
const MANY_WRITES: usize = 4096;
/// So many neighbouring writes become one range.
const WRITES_A_RANGE: usize = 64;

/// A transaction that asks to commit. It is made before the mutex is taken: what will be its node,
/// so that the mutex covers the move of a pointer only.
#[derive(Debug)]
pub(crate) struct Candidate {
    pub(super) node: Box<Node>,
    /// Trees that come or go as a whole.
    pub(super) dropped: Vec<TreeId>,
}

impl Candidate {
    /// `reads` is `None` at the weaker levels: they need not be explained. `writes` ascend by tree
    /// and key.
    pub(crate) fn new(
        id: TransactionId,
        start: Csn,
        reads: Option<ReadSet>,
        writes: KeyWrites,
        dropped: Vec<TreeId>,
    ) -> Candidate {
        Candidate { node: Node::new(id, start, reads, writes), dropped }
    }

    /// The same with what the writes changed of their rows.
    pub(crate) fn with_effects(mut self, effects: Effects) -> Candidate {
        self.node.effects = effects;
        self
    }

    /// The same of one that began, in real time, at an earlier snapshot than it has now.
    pub(crate) fn begun_at(mut self, began: Csn) -> Candidate {
        self.node.set_began(began);
        self
    }

    /// The same as an instance of a family.
    pub(crate) fn of_family(mut self, family: Option<FamilySlot>) -> Candidate {
        self.node.family = family;
        self
    }

    /// Its reads, once it asks for nothing any more.
    pub(crate) fn into_reads(mut self) -> ReadSet {
        let reads = std::mem::take(&mut self.node.reads);
        self.node.discard();
        reads
    }

    /// Whether it wrote nothing.
    pub(super) fn is_read_only(&self) -> bool {
        self.node.writes.is_empty() && self.dropped.is_empty()
    }
}

/// Makes ranges of very many writes of a tree, and of dropped trees as a whole.
pub(super) fn ranges_of_many(node: &mut Node, dropped: &[TreeId], commit: Csn) {
    use std::ops::Bound::{Included, Unbounded};
    if dropped.is_empty() && node.writes.len() <= MANY_WRITES {
        return;
    }
    let whole =
        |&tree: &TreeId| RangeWrite { tree, lower: Unbounded, upper: Unbounded, first: commit, last: commit };
    let mut ranges: Vec<RangeWrite> = dropped.iter().map(whole).collect();
    if node.writes.len() > MANY_WRITES {
        node.effects = Effects::default();
        // Ascending by tree and key as they come.
        for tree in std::mem::take(&mut node.writes).chunk_by(|a, b| a.0 == b.0) {
            ranges.extend(tree.chunks(WRITES_A_RANGE).filter_map(|chunk| {
                let ((tree, lower, ..), (_, upper, ..)) = (chunk.first()?, chunk.last()?);
                let (lower, upper) = (Included(lower.clone()), Included(upper.clone()));
                Some(RangeWrite { tree: *tree, lower, upper, first: commit, last: commit })
            }));
        }
    }
    node.set_range_writes(ranges);
}
