//! A running transaction's read set, shared with its views and cursors (`sight`), and the budget of
//! all of them.
//!
//! Every read of a transaction that will be certified comes here, from whatever thread. The mutex
//! is the transaction's own; nobody waits for it but a cursor on another thread of the same
//! statement.
//!
//! # The budget
//!
//! All running transactions together may keep about as many bytes of reads apart as the certifier
//! may remember of ended ones. A set takes from the budget in steps, so that reads do not meet in
//! one counter, and has a few kilobytes for nothing. When the budget is used up, who has less than
//! an equal share of it may still grow up to that; who has more joins its own reads to ranges
//! instead of growing; beyond twice the budget everybody does. So nobody is refused, no dependency
//! is missed, and it is the large sets that become coarse.
//!
//! ```text
//! budget 32 MB, one transaction reads 2 MB (a sixteenth, the most that one may have); ten more do
//! a thousand begin       all is taken soon; each of them may have 32 kB, and joins its reads beyond
//! ```

use std::ops::Bound;
use std::sync::Arc;

use crate::hash::Seed;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{CachePadded, Mutex};
use crate::txn::columns::{Columns, Interest};
use crate::txn::readset::{Moment, Point, RangePlace, ReadMark, ReadSet};
use crate::{Key, TreeId};

/// So many bytes every set has for nothing.
const FREE: usize = 8 << 10;
/// Taken from the budget at once.
const STEP: usize = 16 << 10;
/// The least that one transaction may have, whatever the certifier's memory is.
const LEAST: u64 = 16 << 10;

/// Memory for the reads of running transactions.
#[derive(Debug)]
pub(crate) struct ReadBudget {
    /// Of the keys' hashes. Read for every key and never written.
    seed: CachePadded<Seed>,
    limit: AtomicU64,
    used: AtomicU64,
    /// Sets that have taken something.
    holders: AtomicU64,
}

impl ReadBudget {
    /// So many bytes, for keys that are hashed with this seed.
    pub(crate) fn new(limit: u64, seed: &Seed) -> ReadBudget {
        let (used, holders) = (AtomicU64::new(0), AtomicU64::new(0));
        let seed = CachePadded::new(seed.clone());
        ReadBudget { seed, limit: AtomicU64::new(limit), used, holders }
    }

    /// The limit.
    pub(crate) fn limit(&self) -> u64 {
        self.limit.load(Ordering::Relaxed)
    }

    /// Changes the limit. Sets that have more now do not grow any more.
    pub(crate) fn set_limit(&self, bytes: u64) {
        self.limit.store(bytes, Ordering::Relaxed);
    }

    /// Bytes taken.
    pub(crate) fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// Bytes that one set may have, if there is room.
    fn limit_each(&self) -> u64 {
        (self.limit.load(Ordering::Relaxed) / 16).max(LEAST)
    }

    /// Takes a step for a set that has taken `has`. False if it has to do with what it has.
    fn take(&self, has: usize) -> bool {
        let (limit, step, has) = (self.limit.load(Ordering::Relaxed), STEP as u64, has as u64);
        let holders = self.holders.load(Ordering::Relaxed) + u64::from(has == 0);
        if has + step > self.limit_each() {
            return false;
        }
        let used = self.used.fetch_add(step, Ordering::Relaxed) + step;
        if used > 2 * limit || used > limit && has + step > limit / holders.max(1) {
            self.used.fetch_sub(step, Ordering::Relaxed);
            return false;
        }
        if has == 0 {
            self.holders.fetch_add(1, Ordering::Relaxed);
        }
        true
    }

    fn give_back(&self, bytes: usize) {
        if bytes > 0 {
            self.used.fetch_sub(bytes as u64, Ordering::Relaxed);
            self.holders.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// The reads so far.
#[derive(Debug)]
pub(crate) struct Reads {
    state: Mutex<State>,
    budget: Arc<ReadBudget>,
}

#[derive(Debug, Default)]
struct State {
    set: ReadSet,
    /// Bytes taken from the budget.
    taken: usize,
}

impl State {
    /// After the set has grown.
    #[inline]
    fn keep(&mut self, budget: &ReadBudget) {
        if self.set.is_beyond(FREE + self.taken) {
            self.grow(budget);
        }
    }

    #[cold]
    fn grow(&mut self, budget: &ReadBudget) {
        while self.set.is_beyond(FREE + self.taken) {
            if !budget.take(self.taken) {
                self.set.keep_to(FREE + self.taken);
                return;
            }
            self.taken += STEP;
        }
    }
}

impl Reads {
    /// None yet.
    pub(crate) fn new(budget: &Arc<ReadBudget>) -> Reads {
        Reads { state: Mutex::default(), budget: Arc::clone(budget) }
    }

    /// Those of a set.
    pub(crate) fn of(set: ReadSet, budget: &Arc<ReadBudget>) -> Reads {
        let mut state = State { set, taken: 0 };
        state.keep(budget);
        Reads { state: Mutex::new(state), budget: Arc::clone(budget) }
    }

    /// A key of the snapshot was read.
    #[inline]
    pub(crate) fn point(&self, tree: TreeId, key: &[u8]) {
        self.add_point(tree, key, Moment::Snapshot, Columns::ALL);
    }

    /// Of a key of the snapshot these columns were read.
    #[inline]
    pub(crate) fn point_of(&self, tree: TreeId, key: &[u8], columns: Columns) {
        self.add_point(tree, key, Moment::Snapshot, columns);
    }

    /// The newest version of a key was read, under a lock.
    pub(crate) fn latest(&self, tree: TreeId, key: &[u8]) {
        self.add_point(tree, key, Moment::Latest, Columns::ALL);
    }

    #[inline]
    fn add_point(&self, tree: TreeId, key: &[u8], moment: Moment, columns: Columns) {
        let mut state = self.state.lock();
        state.set.add_point(&self.budget.seed, tree, key, moment, columns);
        state.keep(&self.budget);
    }

    /// A cursor begins, in whose rows this is of interest; all, without an interest.
    pub(crate) fn range(
        &self,
        tree: TreeId,
        lower: Bound<&[u8]>,
        upper: Bound<&[u8]>,
        interest: Option<Arc<Interest>>,
    ) -> RangePlace {
        self.add_range(tree, lower, upper, Moment::Snapshot, interest)
    }

    /// The newest versions of a range were read, under locks.
    pub(crate) fn latest_range(&self, tree: TreeId, lower: Bound<&[u8]>, upper: Bound<&[u8]>) {
        self.add_range(tree, lower, upper, Moment::Latest, None);
    }

    fn add_range(
        &self,
        tree: TreeId,
        lower: Bound<&[u8]>,
        upper: Bound<&[u8]>,
        moment: Moment,
        interest: Option<Arc<Interest>>,
    ) -> RangePlace {
        let mut state = self.state.lock();
        // Before, for its place is to be true.
        state.keep(&self.budget);
        state.set.add_range(tree, lower, upper, moment, interest)
    }

    /// A cursor stopped at a key, or (with `None`) before it read anything.
    pub(crate) fn stopped(&self, place: RangePlace, reverse: bool, key: Option<&[u8]>) {
        self.state.lock().set.narrow(place, reverse, key);
    }

    /// Takes over what another set has read, as read of the newest commits: it is locked.
    pub(crate) fn adopt_locked(&self, other: &Reads) {
        let other = &other.state.lock().set;
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
        let reads = &self.state.lock().set;
        let key = |point: &Point| (point.tree, Key::copy_from_slice(reads.key(point)));
        let keys = reads.points().iter().map(key).collect();
        let mut trees: Vec<TreeId> = reads.ranges().iter().map(|range| range.tree).collect();
        trees.sort_unstable();
        trees.dedup();
        (keys, trees)
    }

    /// How large they are.
    pub(crate) fn bytes(&self) -> usize {
        self.state.lock().set.bytes()
    }

    /// The same once more.
    pub(crate) fn copy(&self) -> ReadSet {
        self.state.lock().set.copy()
    }

    /// How much has been read by now.
    pub(crate) fn mark(&self) -> ReadMark {
        self.state.lock().set.mark()
    }

    /// What had been read at a moment; none if reads were joined since.
    pub(crate) fn copy_upto(&self, mark: ReadMark) -> Option<ReadSet> {
        self.state.lock().set.copy_upto(mark)
    }

    fn take_state(&self) -> State {
        std::mem::take(&mut self.state.lock())
    }

    /// Takes them out, to where others account for them.
    pub(crate) fn take(&self) -> ReadSet {
        let State { set, taken } = self.take_state();
        self.budget.give_back(taken);
        set
    }

    /// The same in memory of their own: what is noted here from now on is not noted there.
    pub(crate) fn take_apart(&self) -> Reads {
        Reads { state: Mutex::new(self.take_state()), budget: Arc::clone(&self.budget) }
    }
}

impl Drop for Reads {
    fn drop(&mut self) {
        self.budget.give_back(self.state.lock().taken);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash::FIXED;

    fn key(number: usize) -> [u8; 8] {
        (number as u64).to_be_bytes()
    }

    fn covers(set: &ReadSet, wanted: &[u8]) -> bool {
        let inside = |range: &crate::txn::readset::RangeRead| {
            (match &range.lower {
                Bound::Included(lower) => &lower[..] <= wanted,
                Bound::Excluded(lower) => &lower[..] < wanted,
                Bound::Unbounded => true,
            }) && (match &range.upper {
                Bound::Included(upper) => wanted <= &upper[..],
                Bound::Excluded(upper) => wanted < &upper[..],
                Bound::Unbounded => true,
            })
        };
        set.points().iter().any(|point| set.key(point) == wanted) || set.ranges().iter().any(inside)
    }

    /// A thousand transactions read as much as they can, one after the other and turn by turn:
    /// together they stay below twice the budget, and no read is lost.
    #[test]
    fn many_large_sets_stay_within_their_budget_and_lose_nothing() {
        const LIMIT: usize = 4 << 20;
        const SETS: usize = 1000;
        let budget = Arc::new(ReadBudget::new(LIMIT as u64, &FIXED));
        let all: Vec<Reads> = (0..SETS).map(|_| Reads::new(&budget)).collect();
        let bytes = |reads: &Reads| reads.state.lock().set.bytes();
        // The first ones come early and take all they may.
        for (at, reads) in all[..20].iter().enumerate() {
            (0..6000).for_each(|n| reads.point(7, &key(n * 3 + at)));
        }
        for turn in 0..6 {
            for reads in &all[20..] {
                (0..100).for_each(|n| reads.point(7, &key((turn * 100 + n) * 5)));
            }
        }
        let sum: usize = all.iter().map(bytes).sum();
        let most = 2 * LIMIT + SETS * FREE;
        assert!(sum < most, "{sum} bytes, {most} may be");
        assert!(budget.used() <= 2 * LIMIT as u64, "{}", budget.used());
        for (at, reads) in all[..20].iter().enumerate() {
            let set = &reads.state.lock().set;
            assert!((0..6000).all(|n| covers(set, &key(n * 3 + at))), "set {at}");
        }
        for reads in &all[20..] {
            let set = &reads.state.lock().set;
            assert!((0..600).all(|n| covers(set, &key(n * 5))));
        }
        assert!(all[0].state.lock().set.is_coarse(), "more than one may have");
        drop(all);
        assert_eq!((budget.used(), budget.holders.load(Ordering::Relaxed)), (0, 0));
    }

    #[test]
    fn what_is_taken_out_is_given_back() {
        let budget = Arc::new(ReadBudget::new(1 << 20, &FIXED));
        let reads = Reads::new(&budget);
        (0..1000).for_each(|n| reads.point(7, &key(n)));
        assert!(budget.used() > 0);
        let moved = reads.take_apart();
        assert!(budget.used() > 0 && reads.take().is_empty());
        assert_eq!(moved.take().points().len(), 1000);
        assert_eq!(budget.used(), 0);
    }
}
