//! What a transaction has read: keys, and ranges of keys. It outlives the commit, in the certifier.
//!
//! A *point* is one key, whether it existed or not. A *range* is the part of a tree that a cursor
//! has passed, rows and gaps alike: so a row that appears in a gap (a phantom) is noticed. A cursor
//! that stops early narrows its range to where it stopped.
//!
//! A read is of the transaction's snapshot, or of the *latest* committed state: checks of
//! uniqueness and of foreign keys look at that, under locks that keep it as it is until the
//! transaction ends.
//!
//! # Memory
//!
//! A set is a handle: it goes from the transaction to its candidate and into the graph, and what it
//! points to stays where it is. A few short keys fit into two lines of memory, for a set goes from
//! processor to processor: one makes it, another one drops it. Who drops a small one keeps its
//! memory for a set of their own ([`Spares`]). An empty set has no memory.
//!
//! Where a set is to have at most so many bytes ([`ReadSet::keep_to`]), points are joined to ranges
//! and neighbouring ranges to larger ones, again and again. That may cost aborts that were not
//! necessary; it never hides a dependency. [`ReadSet::is_coarse`] tells.
//!
//! ```text
//! read a, c, d, scan [g..k)      points a c d   ranges [g k)
//! joined once                    points         ranges [a c] [d d] [g k)
//! joined twice                   points         ranges [a d] [g k)
//! ```

use std::collections::HashSet;
use std::hash::BuildHasherDefault;
use std::ops::Bound;

use smallvec::SmallVec;

use crate::TreeId;
use crate::hash::{Identity, KeyHash, hash_of};
use crate::key::SmallKey;
use crate::spare::Spares;
use crate::sync::thread_local;

/// Fewer points than this are searched one by one.
const FEW: usize = 16;
/// Bytes that one point or range costs besides its keys.
const READ_BYTES: usize = 48;
/// No set has more, so that places of keys have 31 bits.
const BYTES_MAX: usize = 1 << 30;

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
    pub(crate) hash: KeyHash,
    pub(crate) tree: TreeId,
    /// Where the key is, and in the lowest bit which state was read.
    place: u32,
}

impl Point {
    /// Which state was read.
    #[inline]
    pub(crate) fn moment(&self) -> Moment {
        if self.place & 1 == 1 { Moment::Latest } else { Moment::Snapshot }
    }
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

/// How much had been read at some moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ReadMark {
    points: usize,
    ranges: usize,
    joins: u32,
}

/// The reads of one transaction.
#[derive(Debug, Default)]
pub(crate) struct ReadSet {
    /// Nothing before the first read.
    reads: Option<Box<Contents>>,
}

/// Two lines of memory.
#[derive(Debug)]
#[repr(C, align(64))]
struct Contents {
    points: SmallVec<[Point; 4]>,
    /// Keys one behind the other, each after its length, as far as there is room; then in `more`.
    keys: [u8; KEYS],
    used: u8,
    more: Option<Box<More>>,
}

const _: () = assert!(size_of::<Contents>() == 2 * 64);

impl Default for Contents {
    fn default() -> Contents {
        Contents { points: SmallVec::new(), keys: [0; KEYS], used: 0, more: None }
    }
}

/// What a set of a few points does not need.
#[derive(Debug, Default)]
struct More {
    /// Further keys: each after its length, a byte, or `LONG` and four.
    keys: Vec<u8>,
    ranges: Vec<RangeRead>,
    /// Of the points, once there are many.
    seen: HashSet<KeyHash, BuildHasherDefault<Identity>>,
    joins: u32,
}

/// Bytes of keys that need no memory of their own.
const KEYS: usize = 47;
const LONG: u8 = u8::MAX;

/// The key at the beginning, which is after its length.
fn first_key(bytes: &[u8]) -> &[u8] {
    match bytes.split_first() {
        Some((&LONG, rest)) => {
            let (length, key) = rest.split_first_chunk().unwrap_or((&[0; 4], &[]));
            &key[..u32::from_le_bytes(*length) as usize]
        }
        Some((&length, key)) => &key[..usize::from(length)],
        None => &[],
    }
}

thread_local! {
    static SPARES: Spares<Contents> = const { Spares::new() };
}

impl Contents {
    fn spare() -> Box<Contents> {
        SPARES.try_with(Spares::take).ok().flatten().unwrap_or_default()
    }

    fn more(&mut self) -> &mut More {
        self.more.get_or_insert_default()
    }

    fn ranges(&self) -> &[RangeRead] {
        self.more.as_ref().map_or(&[], |more| &more.ranges)
    }

    fn bytes(&self) -> usize {
        let ranges = self.ranges().len();
        let reads = self.points.len() + ranges;
        // Most keys of ranges are inline.
        let keys = usize::from(self.used) + self.more.as_ref().map_or(0, |more| more.keys.len());
        keys + reads * READ_BYTES + ranges * 2 * size_of::<SmallKey>()
    }

    /// Whether it is worth keeping, emptied.
    fn is_small(&self) -> bool {
        let small = |more: &More| {
            let (keys, ranges) = (more.keys.capacity(), more.ranges.capacity());
            keys <= FEW * KEYS && ranges <= FEW && more.seen.is_empty() && more.joins == 0
        };
        !self.points.spilled() && self.more.as_deref().is_none_or(small)
    }

    /// Keeps a key. Answers where.
    #[inline]
    fn add_key(&mut self, key: &[u8]) -> u32 {
        let place = usize::from(self.used);
        match self.keys.get_mut(place..=place + key.len()).and_then(<[u8]>::split_first_mut) {
            // All that fits here is shorter than `LONG`.
            Some((length, room)) => {
                *length = key.len() as u8;
                room.copy_from_slice(key);
                self.used += 1 + key.len() as u8;
                place as u32
            }
            None => self.add_further_key(key),
        }
    }

    #[cold]
    fn add_further_key(&mut self, key: &[u8]) -> u32 {
        let keys = &mut self.more().keys;
        let place = KEYS + keys.len();
        match u8::try_from(key.len()) {
            Ok(length) if length < LONG => keys.push(length),
            _ => {
                keys.push(LONG);
                keys.extend_from_slice(&(key.len() as u32).to_le_bytes());
            }
        }
        keys.extend_from_slice(key);
        place as u32
    }

    fn key(&self, point: &Point) -> &[u8] {
        let place = (point.place >> 1) as usize;
        match place.checked_sub(KEYS) {
            None => first_key(&self.keys[place..]),
            Some(place) => self.more.as_ref().map_or(&[], |more| first_key(&more.keys[place..])),
        }
    }
}

impl Drop for ReadSet {
    fn drop(&mut self) {
        let Some(mut reads) = self.reads.take().filter(|reads| reads.is_small()) else { return };
        reads.used = 0;
        reads.points.clear();
        if let Some(more) = &mut reads.more {
            more.keys.clear();
            more.ranges.clear();
        }
        SPARES.try_with(|spares| spares.keep(reads)).ok();
    }
}

impl ReadSet {
    /// A set of joined ranges.
    pub(crate) fn of_ranges(ranges: Vec<RangeRead>) -> ReadSet {
        let more = More { ranges, joins: 1, ..More::default() };
        let contents = Contents { more: Some(Box::new(more)), ..Contents::default() };
        ReadSet { reads: Some(Box::new(contents)) }
    }

    fn contents(&mut self) -> &mut Contents {
        self.reads.get_or_insert_with(Contents::spare)
    }

    fn more(&self) -> Option<&More> {
        self.reads.as_ref()?.more.as_deref()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.points().is_empty() && self.ranges().is_empty()
    }

    /// Whether it is one key of the snapshot and nothing else.
    pub(crate) fn is_one_key(&self) -> bool {
        matches!(self.points(), [point] if point.moment() == Moment::Snapshot) && self.ranges().is_empty()
    }

    /// Whether ranges stand for more than was read.
    pub(crate) fn is_coarse(&self) -> bool {
        self.more().is_some_and(|more| more.joins > 0)
    }

    /// Notes that ranges stand for more than was read.
    pub(crate) fn set_coarse(&mut self) {
        let more = self.contents().more();
        more.joins = more.joins.max(1);
    }

    /// Whether something was read of the newest commits.
    pub(crate) fn has_latest(&self) -> bool {
        self.points().iter().any(|point| point.moment() == Moment::Latest)
            || self.ranges().iter().any(|range| range.moment == Moment::Latest)
    }

    pub(crate) fn points(&self) -> &[Point] {
        self.reads.as_ref().map_or(&[], |reads| &reads.points)
    }

    pub(crate) fn ranges(&self) -> &[RangeRead] {
        self.reads.as_ref().map_or(&[], |reads| reads.ranges())
    }

    /// How much has been read by now.
    pub(crate) fn mark(&self) -> ReadMark {
        let joins = self.more().map_or(0, |more| more.joins);
        ReadMark { points: self.points().len(), ranges: self.ranges().len(), joins }
    }

    /// The points and ranges that there were at a moment, in a set that has forgotten nothing. None
    /// if reads were joined since: they cannot be told apart any more.
    pub(crate) fn upto(&self, mark: ReadMark) -> Option<(&[Point], &[RangeRead])> {
        let same = self.mark().joins == mark.joins;
        same.then(|| (&self.points()[..mark.points], &self.ranges()[..mark.ranges]))
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
        self.contents().add_point(tree, key, moment);
    }

    /// Adds a range. What a cursor will not have passed in the end can be taken off by `narrow`.
    pub(crate) fn add_range(
        &mut self,
        tree: TreeId,
        lower: Bound<&[u8]>,
        upper: Bound<&[u8]>,
        moment: Moment,
    ) -> RangePlace {
        let (lower, upper) = (lower.map(SmallKey::new), upper.map(SmallKey::new));
        let More { ranges, joins, .. } = self.contents().more();
        ranges.push(RangeRead { tree, moment, lower, upper });
        RangePlace { index: ranges.len() as u32 - 1, joins: *joins }
    }

    /// The cursor stopped at `key`: the range ends with it (begins with it, in reverse). Without a
    /// key it never began.
    pub(crate) fn narrow(&mut self, place: RangePlace, reverse: bool, key: Option<&[u8]>) {
        let more = self.reads.as_mut().and_then(|reads| reads.more.as_mut());
        let more = more.filter(|more| place.joins == more.joins);
        let Some(range) = more.and_then(|more| more.ranges.get_mut(place.index as usize)) else {
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

    /// Whether the reads have more than `limit` bytes. A few of them never do, whatever the limit.
    #[inline]
    pub(crate) fn is_beyond(&self, limit: usize) -> bool {
        let limit = limit.min(BYTES_MAX);
        self.reads.as_ref().is_some_and(|reads| {
            (reads.points.len() > FEW || reads.ranges().len() > FEW) && reads.bytes() > limit
        })
    }

    /// Joins reads if they have more than `limit` bytes. A few of them are kept apart whatever the
    /// limit.
    pub(crate) fn keep_to(&mut self, limit: usize) {
        if self.is_beyond(limit)
            && let Some(reads) = &mut self.reads
        {
            reads.join(limit.min(BYTES_MAX));
        }
    }
}

impl Contents {
    #[inline]
    fn add_point(&mut self, tree: TreeId, key: &[u8], moment: Moment) {
        let hash = hash_of(tree, key);
        if self.points.len() < FEW {
            if self.points.iter().any(|point| point.hash == hash && point.moment() == moment) {
                return;
            }
        } else if !self.is_new(hash, moment) {
            return;
        }
        let place = self.add_key(key) << 1 | u32::from(moment == Moment::Latest);
        self.points.push(Point { hash, tree, place });
    }

    #[cold]
    fn is_new(&mut self, hash: KeyHash, moment: Moment) -> bool {
        let mark = |hash: KeyHash, moment: Moment| hash ^ u64::from(moment == Moment::Latest);
        let seen = &mut self.more.get_or_insert_default().seen;
        if seen.is_empty() {
            seen.extend(self.points.iter().map(|point| mark(point.hash, point.moment())));
        }
        seen.insert(mark(hash, moment))
    }

    /// Halves the number of reads.
    #[cold]
    fn join(&mut self, limit: usize) {
        let range_of = |point: &Point| {
            let bound = Bound::Included(SmallKey::new(self.key(point)));
            RangeRead { tree: point.tree, moment: point.moment(), lower: bound.clone(), upper: bound }
        };
        let ranges: Vec<RangeRead> = self.points.iter().map(range_of).collect();
        (self.points, self.used) = (SmallVec::new(), 0);
        let more = self.more();
        more.joins += 1;
        more.ranges.extend(ranges);
        more.keys = Vec::new();
        more.seen.clear();
        let target = (limit / 2 / (READ_BYTES + 2 * size_of::<SmallKey>())).max(1);
        join_ranges(&mut more.ranges, target);
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

/// `Less` if a range that begins with `lower` and one that ends with `upper` may have a key in
/// common.
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
        let mut set = ReadSet::default();
        for round in 0..3 {
            for key in 0..100_u32 {
                set.add_point(7, &key.to_be_bytes(), Moment::Snapshot);
            }
            assert_eq!(set.points().len(), 100, "round {round}");
        }
        assert_eq!(set.key(&set.points()[5]), 5_u32.to_be_bytes());
    }

    #[test]
    fn keys_of_any_length_are_kept() {
        let mut set = ReadSet::default();
        let keys: Vec<Vec<u8>> = [0, 1, 40, 253, 254, 255, 256, 70_000].map(|length| vec![7; length]).into();
        keys.iter().for_each(|key| set.add_point(1, key, Moment::Latest));
        assert!(set.points().iter().map(|point| set.key(point)).eq(keys.iter().map(|key| &key[..])));
        assert!(set.points().iter().all(|point| point.moment() == Moment::Latest));
    }

    #[test]
    fn a_few_short_keys_take_two_lines_of_memory() {
        let mut set = ReadSet::default();
        (0..4_u64)
            .for_each(|key| set.add_point(1, &[&[b'k'][..], &key.to_be_bytes()].concat(), Moment::Snapshot));
        assert!(set.reads.as_ref().is_some_and(|reads| reads.is_small()));
    }

    #[test]
    fn joined_sets_stay_small_and_forget_nothing() {
        let mut set = ReadSet::default();
        for key in 0..50_000_u32 {
            let tree = 1 + key % 3;
            set.add_point(tree, &key.wrapping_mul(2_654_435_761).to_be_bytes(), Moment::Snapshot);
            if key % 7 == 0 {
                let (low, high) = (key.to_be_bytes(), (key + 3).to_be_bytes());
                set.add_range(9, Bound::Included(&low), Bound::Excluded(&high), Moment::Latest);
            }
            set.keep_to(20_000);
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
        let mut set = ReadSet::default();
        let place = set.add_range(1, Bound::Included(b"b"), Bound::Unbounded, Moment::Snapshot);
        set.narrow(place, false, Some(b"d"));
        assert!(contains(&set, 1, b"d") && !contains(&set, 1, b"e") && !contains(&set, 1, b"a"));
        let place = set.add_range(2, Bound::Unbounded, Bound::Excluded(b"f"), Moment::Snapshot);
        set.narrow(place, true, Some(b"d"));
        assert!(contains(&set, 2, b"d") && contains(&set, 2, b"e") && !contains(&set, 2, b"c"));
    }

    #[test]
    fn what_was_read_up_to_a_moment_can_be_told_until_reads_are_joined() {
        let mut set = ReadSet::default();
        let nothing = set.mark();
        set.add_point(1, b"a", Moment::Snapshot);
        set.add_range(1, Bound::Included(b"k"), Bound::Excluded(b"m"), Moment::Snapshot);
        let before = set.mark();
        set.add_point(1, b"b", Moment::Snapshot);
        set.add_point(1, b"a", Moment::Snapshot);
        set.add_range(2, Bound::Unbounded, Bound::Unbounded, Moment::Latest);
        assert_eq!(set.upto(nothing).map(|(points, ranges)| (points.len(), ranges.len())), Some((0, 0)));
        let (points, ranges) = set.upto(before).unwrap();
        assert_eq!((points.len(), set.key(&points[0])), (1, &b"a"[..]));
        assert_eq!((ranges.len(), ranges[0].tree), (1, 1));
        for key in 0..100_u8 {
            set.add_point(3, &[key], Moment::Snapshot);
        }
        set.keep_to(1000);
        assert!(set.upto(before).is_none(), "joined");
        // What is read after that can be told again.
        let joined = set.mark();
        set.add_point(4, b"a", Moment::Snapshot);
        let (points, ranges) = set.upto(joined).unwrap();
        assert!(points.is_empty() && ranges.iter().any(|range| range.tree == 3));
    }

    #[test]
    fn memory_that_is_used_again_remembers_nothing() {
        let spares = || SPARES.with(Spares::len);
        let mut set = ReadSet::default();
        assert!(set.is_empty() && set.bytes() == 0);
        set.add_point(1, b"a", Moment::Latest);
        set.add_range(1, Bound::Unbounded, Bound::Excluded(b"f"), Moment::Snapshot);
        drop(set);
        assert_eq!(spares(), 1);
        let mut set = ReadSet::default();
        set.add_point(1, b"b", Moment::Snapshot);
        assert_eq!(spares(), 0);
        assert!(set.is_one_key() && !set.has_latest() && !set.is_coarse());
        assert!(contains(&set, 1, b"b") && !contains(&set, 1, b"a"));
        // What has grown, or was joined, is not kept.
        for key in 0..100_u8 {
            set.add_point(1, &[key], Moment::Snapshot);
        }
        drop(set);
        let mut set = ReadSet::default();
        set.set_coarse();
        drop(set);
        assert_eq!(spares(), 0);
        let sets: Vec<ReadSet> = (0..3).map(|_| ReadSet::default()).collect();
        drop(sets);
        assert_eq!(spares(), 0, "what was empty has no memory");
    }
}
