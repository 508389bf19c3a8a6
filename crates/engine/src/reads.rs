//! A running transaction's read set, shared with its views and cursors (`sight`).
//!
//! Every read of a transaction that will be certified comes here, from whatever thread. The mutex is the transaction's own; nobody waits for it but a
//! cursor on another thread of the same statement.

use std::ops::Bound;

use crate::sync::Mutex;
use crate::txn::readset::{Moment, Point, RangePlace, ReadSet};
use crate::{Key, TreeId};

/// The reads so far.
#[derive(Debug)]
pub(crate) struct Reads(Mutex<ReadSet>);

impl From<ReadSet> for Reads {
    fn from(set: ReadSet) -> Reads {
        Reads(Mutex::new(set))
    }
}

impl Reads {
    /// None yet; joined to ranges beyond `limit` bytes.
    pub(crate) fn new(limit: usize) -> Reads {
        Reads(Mutex::new(ReadSet::new(limit)))
    }

    /// A key of the snapshot was read.
    #[inline]
    pub(crate) fn point(&self, tree: TreeId, key: &[u8]) {
        self.0.lock().add_point(tree, key, Moment::Snapshot);
    }

    /// The newest version of a key was read, under a lock.
    pub(crate) fn latest(&self, tree: TreeId, key: &[u8]) {
        self.0.lock().add_point(tree, key, Moment::Latest);
    }

    /// A cursor begins.
    pub(crate) fn range(&self, tree: TreeId, lower: Bound<&[u8]>, upper: Bound<&[u8]>) -> RangePlace {
        self.0.lock().add_range(tree, lower, upper, Moment::Snapshot)
    }

    /// The newest versions of a range were read, under locks.
    pub(crate) fn latest_range(&self, tree: TreeId, lower: Bound<&[u8]>, upper: Bound<&[u8]>) {
        self.0.lock().add_range(tree, lower, upper, Moment::Latest);
    }

    /// A cursor stopped at a key, or (with `None`) before it read anything.
    pub(crate) fn stopped(&self, place: RangePlace, reverse: bool, key: Option<&[u8]>) {
        self.0.lock().narrow(place, reverse, key);
    }

    /// Takes over what another set has read, as read of the newest commits: it is locked.
    pub(crate) fn adopt_locked(&self, other: &Reads) {
        let other = other.0.lock();
        let mut reads = self.0.lock();
        for point in other.points() {
            reads.add_point(point.tree, other.key(point), Moment::Latest);
        }
        for range in other.ranges() {
            let (lower, upper) =
                (range.lower.as_ref().map(|key| &key[..]), range.upper.as_ref().map(|key| &key[..]));
            reads.add_range(range.tree, lower, upper, Moment::Latest);
        }
    }

    /// What was read so far: keys, and trees of which a range was read.
    pub(crate) fn seen(&self) -> (Vec<(TreeId, Key)>, Vec<TreeId>) {
        let reads = self.0.lock();
        let key = |point: &Point| (point.tree, Key::copy_from_slice(reads.key(point)));
        let keys = reads.points().iter().map(key).collect();
        let mut trees: Vec<TreeId> = reads.ranges().iter().map(|range| range.tree).collect();
        trees.sort_unstable();
        trees.dedup();
        (keys, trees)
    }

    /// Takes them out.
    pub(crate) fn take(&self) -> ReadSet {
        std::mem::replace(&mut self.0.lock(), ReadSet::new(0))
    }
}
