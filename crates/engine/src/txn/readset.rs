//! What a transaction has read: keys, and ranges of keys. It outlives the commit, in the certifier.
//!
//! A *point* is one key, whether it existed or not. A *range* is the part of a tree that a cursor has passed, rows and gaps alike: so a row that
//! appears in a gap (a phantom) is noticed. A cursor that stops early narrows its range to where it stopped.
//!
//! A read is of the transaction's snapshot, or of the *latest* committed state: checks of uniqueness and of foreign keys look at that, under locks
//! that keep it as it is until the transaction ends.
//!
//! # Memory
//!
//! A set is a handle: it goes from the transaction to its candidate and into the graph, and what it points to stays where it is. Keys lie in one buffer; a few short ones need no memory
//! of their own. Who drops a small one keeps its memory for a set of their own ([`Spares`]). An empty set has no memory.
//!
//! Beyond `limit` bytes, points are joined to ranges and neighbouring ranges to larger ones, again and again. That may cost
//! aborts that were not necessary; it never hides a dependency. [`ReadSet::is_coarse`] tells.
//!
//! ```text
//! read a, c, d, scan [g..k)      points a c d   ranges [g k)
//! joined once                    points         ranges [a c] [d d] [g k)
//! joined twice                   points         ranges [a d] [g k)
//! ```

use std::collections::HashSet;
use std::hash::{BuildHasherDefault, Hasher};
use std::ops::Bound;

use smallvec::SmallVec;

use crate::TreeId;
use crate::key::SmallKey;
use crate::spare::Spares;
use crate::sync::thread_local;

/// Fewer points than this are searched one by one.
const FEW: usize = 16;
/// Bytes that one point or range costs besides its keys.
const READ_BYTES: usize = 48;

/// A key's number in the certifier. Two keys with one number count as one key: that could cost an abort, and hides nothing.
pub(crate) type KeyHash = u64;

/// The number of a key. It is computed for every read, so it is short: eight bytes a step, and the finish of SplitMix64.
#[inline]
pub(crate) fn hash_of(tree: TreeId, key: &[u8]) -> KeyHash {
    let mut hash = (u64::from(tree) << 32 | key.len() as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let mut add = |word: u64| {
        hash = (hash ^ word).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        hash ^= hash >> 32;
    };
    let (words, rest) = key.as_chunks::<8>();
    words.iter().for_each(|word| add(u64::from_le_bytes(*word)));
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    add(u64::from_le_bytes(last));
    hash = (hash ^ (hash >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    hash = (hash ^ (hash >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    hash ^ (hash >> 31)
}

/// Key hashes are hashes already, and trees have small numbers.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Identity(u64);

impl Hasher for Identity {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn write_u32(&mut self, number: u32) {
        self.0 = u64::from(number).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = number;
    }
}

/// Which state was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Moment {
    /// The transaction's snapshot.
    Snapshot,
    /// The newest commits, under a lock.
    Latest,
}

/// A key that was read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Point {
    pub(crate) tree: TreeId,
    pub(crate) moment: Moment,
    pub(crate) hash: KeyHash,
    start: u32,
    length: u32,
}

/// A part of a tree that was read.
#[derive(Debug, Clone)]
pub(crate) struct RangeRead {
    pub(crate) tree: TreeId,
    pub(crate) moment: Moment,
    pub(crate) lower: Bound<SmallKey>,
    pub(crate) upper: Bound<SmallKey>,
}

/// Where a cursor's range is, as long as the ranges were not joined.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RangePlace {
    index: u32,
    joins: u32,
}

/// The reads of one transaction.
#[derive(Debug)]
pub(crate) struct ReadSet {
    /// Nothing before the first read.
    reads: Option<Box<Contents>>,
    limit: usize,
}

#[derive(Debug, Default)]
struct Contents {
    keys: SmallVec<[u8; 64]>,
    points: SmallVec<[Point; 4]>,
    ranges: Vec<RangeRead>,
    /// Of the points, once there are many.
    seen: HashSet<KeyHash, BuildHasherDefault<Identity>>,
    joins: u32,
    latest: bool,
}

thread_local! {
    static SPARES: Spares<Contents> = const { Spares::new() };
}

impl Contents {
    fn spare() -> Box<Contents> {
        SPARES.try_with(Spares::take).ok().flatten().unwrap_or_default()
    }

    fn bytes(&self) -> usize {
        let reads = self.points.len() + self.ranges.len();
        // Most keys of ranges are inline.
        self.keys.len() + reads * READ_BYTES + self.ranges.len() * 2 * size_of::<SmallKey>()
    }
}

impl Drop for ReadSet {
    fn drop(&mut self) {
        let Some(mut reads) = self.reads.take() else { return };
        if reads.keys.spilled() || reads.points.spilled() || reads.ranges.capacity() > FEW || reads.joins > 0
        {
            return;
        }
        reads.keys.clear();
        reads.points.clear();
        reads.ranges.clear();
        reads.latest = false;
        SPARES.try_with(|spares| spares.keep(reads)).ok();
    }
}

impl ReadSet {
    /// A set that is joined when it has more than `limit` bytes.
    pub(crate) fn new(limit: usize) -> ReadSet {
        ReadSet { reads: None, limit }
    }

    /// A set of joined ranges.
    pub(crate) fn of_ranges(ranges: Vec<RangeRead>) -> ReadSet {
        let contents = Contents { ranges, joins: 1, ..Contents::default() };
        ReadSet { reads: Some(Box::new(contents)), limit: 0 }
    }

    fn contents(&mut self) -> &mut Contents {
        self.reads.get_or_insert_with(Contents::spare)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.points().is_empty() && self.ranges().is_empty()
    }

    /// Whether it is one key of the snapshot and nothing else.
    pub(crate) fn is_one_key(&self) -> bool {
        self.points().len() == 1 && self.ranges().is_empty() && !self.has_latest()
    }

    /// Whether ranges stand for more than was read.
    pub(crate) fn is_coarse(&self) -> bool {
        self.joins() > 0
    }

    fn joins(&self) -> u32 {
        self.reads.as_ref().map_or(0, |reads| reads.joins)
    }

    /// Notes that ranges stand for more than was read.
    pub(crate) fn set_coarse(&mut self) {
        let contents = self.contents();
        contents.joins = contents.joins.max(1);
    }

    /// Whether something was read of the newest commits.
    pub(crate) fn has_latest(&self) -> bool {
        self.reads.as_ref().is_some_and(|reads| reads.latest)
    }

    pub(crate) fn points(&self) -> &[Point] {
        self.reads.as_ref().map_or(&[], |reads| &reads.points)
    }

    pub(crate) fn ranges(&self) -> &[RangeRead] {
        self.reads.as_ref().map_or(&[], |reads| &reads.ranges)
    }

    /// The key of a point of this set.
    pub(crate) fn key(&self, point: &Point) -> &[u8] {
        self.reads.as_ref().map_or(&[], |reads| reads.key(point))
    }

    /// Bytes of memory in use, approximately.
    pub(crate) fn bytes(&self) -> usize {
        self.reads.as_ref().map_or(0, |reads| size_of::<Contents>() + reads.bytes())
    }

    /// Adds a key.
    #[inline]
    pub(crate) fn add_point(&mut self, tree: TreeId, key: &[u8], moment: Moment) {
        let limit = self.limit;
        self.contents().add_point(tree, key, moment, limit);
    }

    /// Adds a range. What a cursor will not have passed in the end can be taken off by `narrow`.
    pub(crate) fn add_range(
        &mut self,
        tree: TreeId,
        lower: Bound<&[u8]>,
        upper: Bound<&[u8]>,
        moment: Moment,
    ) -> RangePlace {
        let limit = self.limit;
        self.contents().add_range(tree, lower, upper, moment, limit)
    }

    /// The cursor stopped at `key`: the range ends with it (begins with it, in reverse). Without a key it never began.
    pub(crate) fn narrow(&mut self, place: RangePlace, reverse: bool, key: Option<&[u8]>) {
        let contents = self.reads.as_mut().filter(|reads| place.joins == reads.joins);
        let Some(range) = contents.and_then(|reads| reads.ranges.get_mut(place.index as usize)) else {
            return;
        };
        let Some(key) = key else {
            // Nothing is between a key and itself.
            let nothing = Bound::Excluded(SmallKey::new(&[]));
            (range.lower, range.upper) = (nothing.clone(), nothing);
            return;
        };
        let end = Bound::Included(SmallKey::new(key));
        match reverse {
            false => range.upper = end,
            true => range.lower = end,
        }
    }
}

impl Contents {
    fn key(&self, point: &Point) -> &[u8] {
        &self.keys[point.start as usize..(point.start + point.length) as usize]
    }

    #[inline]
    fn add_point(&mut self, tree: TreeId, key: &[u8], moment: Moment, limit: usize) {
        let hash = hash_of(tree, key);
        if self.points.len() < FEW {
            if self.points.iter().any(|point| point.hash == hash && point.moment == moment) {
                return;
            }
        } else if !self.is_new(hash, moment) {
            return;
        }
        self.latest |= moment == Moment::Latest;
        let start = self.keys.len() as u32;
        self.keys.extend_from_slice(key);
        self.points.push(Point { tree, moment, hash, start, length: key.len() as u32 });
        if self.points.len() > FEW && self.bytes() > limit {
            self.join(limit);
        }
    }

    #[cold]
    fn is_new(&mut self, hash: KeyHash, moment: Moment) -> bool {
        let mark = |hash: KeyHash, moment: Moment| hash ^ u64::from(moment == Moment::Latest);
        if self.seen.is_empty() {
            self.seen.extend(self.points.iter().map(|point| mark(point.hash, point.moment)));
        }
        self.seen.insert(mark(hash, moment))
    }

    fn add_range(
        &mut self,
        tree: TreeId,
        lower: Bound<&[u8]>,
        upper: Bound<&[u8]>,
        moment: Moment,
        limit: usize,
    ) -> RangePlace {
        if self.ranges.len() >= FEW && self.bytes() > limit {
            self.join(limit);
        }
        self.latest |= moment == Moment::Latest;
        let (lower, upper) = (lower.map(SmallKey::new), upper.map(SmallKey::new));
        self.ranges.push(RangeRead { tree, moment, lower, upper });
        RangePlace { index: self.ranges.len() as u32 - 1, joins: self.joins }
    }

    /// Halves the number of reads.
    #[cold]
    fn join(&mut self, limit: usize) {
        self.joins += 1;
        let points = std::mem::take(&mut self.points);
        self.ranges.extend(points.iter().map(|point| {
            let key = &self.keys[point.start as usize..(point.start + point.length) as usize];
            let bound = Bound::Included(SmallKey::new(key));
            RangeRead { tree: point.tree, moment: point.moment, lower: bound.clone(), upper: bound }
        }));
        self.keys = SmallVec::new();
        self.seen.clear();
        let target = (limit / 2 / (READ_BYTES + 2 * size_of::<SmallKey>())).max(1);
        join_ranges(&mut self.ranges, target);
    }
}

/// Joins neighbours until there are at most `target` ranges, or one a tree (and moment).
pub(crate) fn join_ranges(ranges: &mut Vec<RangeRead>, target: usize) {
    ranges.sort_by(|a, b| {
        let group = |range: &RangeRead| (range.tree, range.moment == Moment::Latest);
        group(a).cmp(&group(b)).then_with(|| compare_lower(&a.lower, &b.lower))
    });
    loop {
        let before = ranges.len();
        let mut joined: Vec<RangeRead> = Vec::with_capacity(before / 2 + 1);
        let mut fresh = true;
        for range in ranges.drain(..) {
            match joined.last_mut().filter(|last| last.tree == range.tree && last.moment == range.moment) {
                Some(last) if fresh || compare_lower_upper(&range.lower, &last.upper).is_lt() => {
                    if compare_upper(&range.upper, &last.upper).is_gt() {
                        last.upper = range.upper;
                    }
                    fresh = false;
                }
                _ => {
                    joined.push(range);
                    fresh = true;
                }
            }
        }
        *ranges = joined;
        if ranges.len() <= target || ranges.len() == before {
            return;
        }
    }
}

/// Order of lower bounds: the one that begins earlier is less.
pub(crate) fn compare_lower(a: &Bound<SmallKey>, b: &Bound<SmallKey>) -> std::cmp::Ordering {
    fn rank(bound: &Bound<SmallKey>) -> (bool, Option<&SmallKey>, bool) {
        match bound {
            Bound::Unbounded => (false, None, false),
            Bound::Included(key) => (true, Some(key), false),
            Bound::Excluded(key) => (true, Some(key), true),
        }
    }
    rank(a).cmp(&rank(b))
}

/// Order of upper bounds: the one that ends earlier is less.
pub(crate) fn compare_upper(a: &Bound<SmallKey>, b: &Bound<SmallKey>) -> std::cmp::Ordering {
    fn rank(bound: &Bound<SmallKey>) -> (bool, Option<&SmallKey>, bool) {
        match bound {
            Bound::Unbounded => (true, None, false),
            Bound::Included(key) => (false, Some(key), true),
            Bound::Excluded(key) => (false, Some(key), false),
        }
    }
    rank(a).cmp(&rank(b))
}

/// `Less` if a range that begins with `lower` and one that ends with `upper` may have a key in common.
pub(crate) fn compare_lower_upper(lower: &Bound<SmallKey>, upper: &Bound<SmallKey>) -> std::cmp::Ordering {
    use std::cmp::Ordering::{Greater, Less};
    let (Bound::Included(low) | Bound::Excluded(low), Bound::Included(high) | Bound::Excluded(high)) =
        (lower, upper)
    else {
        return Less;
    };
    match low.cmp(high) {
        Less => Less,
        Greater => Greater,
        // One key is in common only if both include it.
        _ if matches!((lower, upper), (Bound::Included(_), Bound::Included(_))) => Less,
        _ => Greater,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contains(set: &ReadSet, tree: TreeId, key: &[u8]) -> bool {
        let hash = hash_of(tree, key);
        set.points().iter().any(|point| point.hash == hash)
            || set.ranges().iter().any(|range| {
                let above = match &range.lower {
                    Bound::Unbounded => true,
                    Bound::Included(low) => low[..] <= *key,
                    Bound::Excluded(low) => low[..] < *key,
                };
                let below = match &range.upper {
                    Bound::Unbounded => true,
                    Bound::Included(high) => *key <= high[..],
                    Bound::Excluded(high) => *key < high[..],
                };
                range.tree == tree && above && below
            })
    }

    #[test]
    fn a_point_counts_once() {
        let mut set = ReadSet::new(1 << 20);
        for round in 0..3 {
            for key in 0..100_u32 {
                set.add_point(7, &key.to_be_bytes(), Moment::Snapshot);
            }
            assert_eq!(set.points().len(), 100, "round {round}");
        }
        assert_eq!(set.key(&set.points()[5]), 5_u32.to_be_bytes());
    }

    #[test]
    fn joined_sets_stay_small_and_forget_nothing() {
        let mut set = ReadSet::new(20_000);
        for key in 0..50_000_u32 {
            let tree = 1 + key % 3;
            set.add_point(tree, &key.wrapping_mul(2_654_435_761).to_be_bytes(), Moment::Snapshot);
            if key % 7 == 0 {
                let (low, high) = (key.to_be_bytes(), (key + 3).to_be_bytes());
                set.add_range(9, Bound::Included(&low), Bound::Excluded(&high), Moment::Latest);
            }
            assert!(set.bytes() < 25_000, "{} bytes after {key}", set.bytes());
        }
        assert!(set.is_coarse());
        for key in 0..50_000_u32 {
            assert!(contains(&set, 1 + key % 3, &key.wrapping_mul(2_654_435_761).to_be_bytes()), "{key}");
            assert!(key % 7 != 0 || contains(&set, 9, &(key + 2).to_be_bytes()), "{key}");
        }
    }

    #[test]
    fn a_cursor_that_stops_has_read_up_to_there() {
        let mut set = ReadSet::new(1 << 20);
        let place = set.add_range(1, Bound::Included(b"b"), Bound::Unbounded, Moment::Snapshot);
        set.narrow(place, false, Some(b"d"));
        assert!(contains(&set, 1, b"d") && !contains(&set, 1, b"e") && !contains(&set, 1, b"a"));
        let place = set.add_range(2, Bound::Unbounded, Bound::Excluded(b"f"), Moment::Snapshot);
        set.narrow(place, true, Some(b"d"));
        assert!(contains(&set, 2, b"d") && contains(&set, 2, b"e") && !contains(&set, 2, b"c"));
    }

    #[test]
    fn memory_that_is_used_again_remembers_nothing() {
        let spares = || SPARES.with(Spares::len);
        let mut set = ReadSet::new(1 << 20);
        assert!(set.is_empty() && set.bytes() == 0);
        set.add_point(1, b"a", Moment::Latest);
        set.add_range(1, Bound::Unbounded, Bound::Excluded(b"f"), Moment::Snapshot);
        drop(set);
        assert_eq!(spares(), 1);
        let mut set = ReadSet::new(1 << 20);
        set.add_point(1, b"b", Moment::Snapshot);
        assert_eq!(spares(), 0);
        assert!(set.is_one_key() && !set.has_latest() && !set.is_coarse());
        assert!(contains(&set, 1, b"b") && !contains(&set, 1, b"a"));
        // What has grown, or was joined, is not kept.
        for key in 0..100_u8 {
            set.add_point(1, &[key], Moment::Snapshot);
        }
        drop(set);
        let mut set = ReadSet::new(0);
        set.set_coarse();
        drop(set);
        assert_eq!(spares(), 0);
        let sets: Vec<ReadSet> = (0..3).map(|_| ReadSet::new(0)).collect();
        drop(sets);
        assert_eq!(spares(), 0, "what was empty has no memory");
    }
}
