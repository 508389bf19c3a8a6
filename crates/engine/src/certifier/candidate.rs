//! A transaction that asks to commit, as the certifier sees it.

use smallvec::SmallVec;

use super::node::RangeWrite;
use crate::key::SmallKey;
use crate::lock::mode::FamilySlot;
use crate::txn::readset::{KeyHash, ReadSet};
use crate::{Csn, TransactionId, TreeId};

/// More writes than this are remembered as ranges.
const MANY_WRITES: usize = 4096;
/// So many neighbouring writes become one range.
const WRITES_A_RANGE: usize = 64;

/// A key that a candidate writes.
pub(crate) type KeyWrite = (TreeId, SmallKey, KeyHash);

/// What a candidate writes; mostly little.
pub(crate) type KeyWrites = SmallVec<[KeyWrite; 2]>;

/// A transaction that asks to commit. It is made before the mutex is taken.
#[derive(Debug)]
pub(crate) struct Candidate {
    pub(crate) id: TransactionId,
    pub(crate) family: Option<FamilySlot>,
    pub(crate) start: Csn,
    /// `None` at the weaker levels: its reads need not be explained.
    pub(crate) reads: Option<ReadSet>,
    /// Ascending by tree and key.
    pub(crate) writes: KeyWrites,
    /// Trees that go as a whole.
    pub(crate) dropped: Vec<TreeId>,
}

impl Candidate {
    /// Whether it wrote nothing.
    pub(super) fn is_read_only(&self) -> bool {
        self.writes.is_empty() && self.dropped.is_empty()
    }
}

/// Very many writes of a tree as ranges, and dropped trees as a whole.
pub(super) fn ranges_of_many(
    writes: KeyWrites,
    dropped: &[TreeId],
    commit: Csn,
) -> (KeyWrites, Vec<RangeWrite>) {
    use std::ops::Bound::{Included, Unbounded};
    let whole =
        |&tree: &TreeId| RangeWrite { tree, lower: Unbounded, upper: Unbounded, first: commit, last: commit };
    let mut ranges: Vec<RangeWrite> = dropped.iter().map(whole).collect();
    if writes.len() <= MANY_WRITES {
        return (writes, ranges);
    }
    // Ascending by tree and key as they come.
    for tree in writes.chunk_by(|a, b| a.0 == b.0) {
        ranges.extend(tree.chunks(WRITES_A_RANGE).filter_map(|chunk| {
            let ((tree, lower, _), (_, upper, _)) = (chunk.first()?, chunk.last()?);
            let (lower, upper) = (Included(lower.clone()), Included(upper.clone()));
            Some(RangeWrite { tree: *tree, lower, upper, first: commit, last: commit })
        }));
    }
    (KeyWrites::new(), ranges)
}
