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
pub(crate) struct Reads {
    set: Mutex<ReadSet>,
    /// Beyond so many bytes they are joined to ranges.
    limit: usize,
}

impl Reads {
    /// None yet.
    pub(crate) fn new(limit: usize) -> Reads {
        Reads::of(ReadSet::default(), limit)
    }

    fn of(set: ReadSet, limit: usize) -> Reads {
        Reads { set: Mutex::new(set), limit }
    }

    /// A key of the snapshot was read.
    #[inline]
    pub(crate) fn point(&self, tree: TreeId, key: &[u8]) {
        self.add_point(tree, key, Moment::Snapshot);
    }

    /// The newest version of a key was read, under a lock.
    pub(crate) fn latest(&self, tree: TreeId, key: &[u8]) {
        self.add_point(tree, key, Moment::Latest);
    }

    #[inline]
    fn add_point(&self, tree: TreeId, key: &[u8], moment: Moment) {
        let mut set = self.set.lock();
        set.add_point(tree, key, moment);
        set.keep_to(self.limit);
    }

    /// A cursor begins.
    pub(crate) fn range(&self, tree: TreeId, lower: Bound<&[u8]>, upper: Bound<&[u8]>) -> RangePlace {
        self.add_range(tree, lower, upper, Moment::Snapshot)
    }

    /// The newest versions of a range were read, under locks.
    pub(crate) fn latest_range(&self, tree: TreeId, lower: Bound<&[u8]>, upper: Bound<&[u8]>) {
        self.add_range(tree, lower, upper, Moment::Latest);
    }

    fn add_range(
        &self,
        tree: TreeId,
        lower: Bound<&[u8]>,
        upper: Bound<&[u8]>,
        moment: Moment,
    ) -> RangePlace {
        let mut set = self.set.lock();
        // Before, for its place is to be true.
        set.keep_to(self.limit);
        set.add_range(tree, lower, upper, moment)
    }

    /// A cursor stopped at a key, or (with `None`) before it read anything.
    pub(crate) fn stopped(&self, place: RangePlace, reverse: bool, key: Option<&[u8]>) {
        self.set.lock().narrow(place, reverse, key);
    }

    /// Takes over what another set has read, as read of the newest commits: it is locked.
    pub(crate) fn adopt_locked(&self, other: &Reads) {
        let other = other.set.lock();
        for point in other.points() {
            self.latest(point.tree, other.key(point));
        }
        for range in other.ranges() {
            let (lower, upper) =
                (range.lower.as_ref().map(|key| &key[..]), range.upper.as_ref().map(|key| &key[..]));
            self.latest_range(range.tree, lower, upper);
        }
    }

    /// What was read so far: keys, and trees of which a range was read.
    pub(crate) fn seen(&self) -> (Vec<(TreeId, Key)>, Vec<TreeId>) {
        let reads = self.set.lock();
        let key = |point: &Point| (point.tree, Key::copy_from_slice(reads.key(point)));
        let keys = reads.points().iter().map(key).collect();
        let mut trees: Vec<TreeId> = reads.ranges().iter().map(|range| range.tree).collect();
        trees.sort_unstable();
        trees.dedup();
        (keys, trees)
    }

    /// The same once more.
    pub(crate) fn copy(&self) -> ReadSet {
        let (from, mut to) = (self.set.lock(), ReadSet::default());
        for point in from.points() {
            to.add_point(point.tree, from.key(point), point.moment());
        }
        for range in from.ranges() {
            let (lower, upper) =
                (range.lower.as_ref().map(|key| &key[..]), range.upper.as_ref().map(|key| &key[..]));
            to.add_range(range.tree, lower, upper, range.moment);
        }
        if from.is_coarse() {
            to.set_coarse();
        }
        to
    }

    /// Takes them out.
    pub(crate) fn take(&self) -> ReadSet {
        std::mem::take(&mut self.set.lock())
    }

    /// The same in memory of their own: what is noted here from now on is not noted there.
    pub(crate) fn take_apart(&self) -> Reads {
        Reads::of(self.take(), self.limit)
    }
}
