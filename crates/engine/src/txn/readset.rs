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
//! Of a point it is known which columns were read, of a range also which conditions rows had to
//! meet (`columns`). A key that was read several times for different columns may be several points.
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
//! necessary; it never hides a dependency. What was joined is of interest as a whole.
//! [`ReadSet::is_coarse`] tells.
//!
//! ```text
//! read a, c, d, scan [g..k)      points a c d   ranges [g k)
//! joined once                    points         ranges [a c] [d d] [g k)
//! joined twice                   points         ranges [a d] [g k)
//! ```

use std::collections::HashSet;
use std::hash::BuildHasherDefault;
use std::ops::Bound;
use std::sync::Arc;

use smallvec::SmallVec;

use super::columns::{Columns, Interest};

use crate::TreeId;
use crate::hash::{Identity, KeyHash, Seed};
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
    /// What of it is of interest; everything if this is nothing.
    pub(crate) interest: Option<Arc<Interest>>,
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
    /// Keys one behind the other, each after its columns and its length, as far as there is room;
    /// then in `more`.
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
    /// Further keys: each after its columns and its length, a byte, or `LONG` and four.
    keys: Vec<u8>,
    ranges: Vec<RangeRead>,
    /// Of the points, once there are many.
    seen: HashSet<KeyHash, BuildHasherDefault<Identity>>,
    joins: u32,
}

/// Bytes of keys that need no memory of their own.
const KEYS: usize = 47;
const LONG: u8 = u8::MAX;

/// Bytes of columns as they are stored: seven bits a byte, the lowest first, of a number that is
/// never 0 but for all columns.
struct Stored {
    bytes: [u8; 10],
    length: usize,
}

impl Stored {
    #[inline]
    fn of(columns: Columns) -> Stored {
        let mut stored = Stored { bytes: [0; 10], length: 1 };
        let mut rest = if columns == Columns::ALL { 0 } else { columns.bits() };
        for byte in &mut stored.bytes {
            *byte = rest as u8 & 0x7f;
            rest >>= 7;
            if rest == 0 {
                break;
            }
            *byte |= 0x80;
            stored.length += 1;
        }
        stored
    }

    fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

/// The columns at the beginning, and what follows.
#[inline]
fn first_columns(bytes: &[u8]) -> (Columns, &[u8]) {
    let (mut bits, mut place) = (0, 0);
    while let Some(byte) = bytes.get(place) {
        bits |= u64::from(byte & 0x7f) << (7 * place);
        place += 1;
        if byte & 0x80 == 0 {
            break;
        }
    }
    let columns = if bits == 0 { Columns::ALL } else { Columns::of_bits(bits) };
    (columns, &bytes[place..])
}

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
        // Most keys of ranges are inline; interests are mostly shared, and counted with each.
        let keys = usize::from(self.used) + self.more.as_ref().map_or(0, |more| more.keys.len());
        let interests = self.ranges().iter().filter_map(|range| range.interest.as_ref());
        let interests: usize = interests.map(|interest| interest.bytes()).sum();
        keys + interests + reads * READ_BYTES + ranges * 2 * size_of::<SmallKey>()
    }

    /// Whether it is worth keeping, emptied.
    fn is_small(&self) -> bool {
        let small = |more: &More| {
            let (keys, ranges) = (more.keys.capacity(), more.ranges.capacity());
            keys <= FEW * KEYS && ranges <= FEW && more.seen.is_empty() && more.joins == 0
        };
        !self.points.spilled() && self.more.as_deref().is_none_or(small)
    }

    /// Keeps a key and the columns that were read of it. Answers where.
    #[inline]
    fn add_key(&mut self, key: &[u8], columns: Columns) -> u32 {
        let place = usize::from(self.used);
        let columns = Stored::of(columns);
        let needed = columns.length + 1 + key.len();
        match self.keys.get_mut(place..place + needed) {
            // All that fits here is shorter than `LONG`.
            Some(room) => {
                let (stored, room) = room.split_at_mut(columns.length);
                stored.copy_from_slice(columns.bytes());
                room[0] = key.len() as u8;
                room[1..].copy_from_slice(key);
                self.used += needed as u8;
                place as u32
            }
            None => self.add_further_key(key, &columns),
        }
    }

    #[cold]
    fn add_further_key(&mut self, key: &[u8], columns: &Stored) -> u32 {
        let keys = &mut self.more().keys;
        let place = KEYS + keys.len();
        keys.extend_from_slice(columns.bytes());
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

    /// The columns of a point, and behind them its key.
    #[inline]
    fn entry(&self, point: &Point) -> (Columns, &[u8]) {
        let place = (point.place >> 1) as usize;
        match place.checked_sub(KEYS) {
            None => first_columns(&self.keys[place..]),
            Some(place) => {
                let keys = self.more.as_ref().map_or(&[][..], |more| &more.keys);
                first_columns(&keys[place..])
            }
        }
    }

    fn key(&self, point: &Point) -> &[u8] {
        first_key(self.entry(point).1)
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

    /// The same once more.
    pub(crate) fn copy(&self) -> ReadSet {
        self.copy_upto(self.mark()).unwrap_or_else(|| unreachable!("nothing was joined since"))
    }

    /// What had been read at a moment; none if reads were joined since.
    pub(crate) fn copy_upto(&self, mark: ReadMark) -> Option<ReadSet> {
        let ((points, ranges), mut to) = (self.upto(mark)?, ReadSet::default());
        for point in points {
            let (tree, key) = (point.tree, self.key(point));
            to.contents().add_point(point.hash, tree, key, point.moment(), self.columns(point));
        }
        for range in ranges {
            let (lower, upper) =
                (range.lower.as_ref().map(|key| &key[..]), range.upper.as_ref().map(|key| &key[..]));
            to.add_range(range.tree, lower, upper, range.moment, range.interest.clone());
        }
        // So that a mark from before this one fits the copy only if it fits this set.
        let joins = self.mark().joins;
        if joins > 0 {
            to.contents().more().joins = joins;
        }
        Some(to)
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

    /// The columns that were read of a point of this set.
    #[inline]
    pub(crate) fn columns(&self, point: &Point) -> Columns {
        self.reads.as_ref().map_or(Columns::ALL, |reads| reads.entry(point).0)
    }

    /// Bytes of memory in use, approximately.
    pub(crate) fn bytes(&self) -> usize {
        self.reads.as_ref().map_or(0, |reads| size_of::<Contents>() + reads.bytes())
    }

    /// Adds a key, of which these columns were read. `seed`: of the database that looks it up.
    #[inline]
    pub(crate) fn add_point(&mut self, seed: &Seed, tree: TreeId, key: &[u8], at: Moment, columns: Columns) {
        self.contents().add_point(seed.hash_of(tree, key), tree, key, at, columns);
    }

    /// Adds a range. What a cursor will not have passed in the end can be taken off by `narrow`.
    pub(crate) fn add_range(
        &mut self,
        tree: TreeId,
        lower: Bound<&[u8]>,
        upper: Bound<&[u8]>,
        moment: Moment,
        interest: Option<Arc<Interest>>,
    ) -> RangePlace {
        let (lower, upper) = (lower.map(SmallKey::new), upper.map(SmallKey::new));
        let More { ranges, joins, .. } = self.contents().more();
        ranges.push(RangeRead { tree, moment, lower, upper, interest });
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
    fn add_point(&mut self, hash: KeyHash, tree: TreeId, key: &[u8], moment: Moment, columns: Columns) {
        if self.points.len() < FEW {
            let mut same = self.points.iter().filter(|point| point.hash == hash && point.moment() == moment);
            if same.any(|point| self.entry(point).0.cover(columns)) {
                return;
            }
        } else if !self.is_new(hash, moment, columns) {
            return;
        }
        let place = self.add_key(key, columns) << 1 | u32::from(moment == Moment::Latest);
        self.points.push(Point { hash, tree, place });
    }

    #[cold]
    fn is_new(&mut self, hash: KeyHash, moment: Moment, columns: Columns) -> bool {
        let mark = |hash: KeyHash, moment: Moment, columns: Columns| {
            // The same for all that was read as a whole.
            let columns = (!columns.bits()).wrapping_mul(0x9E37_79B9_7F4A_7C15);
            hash ^ columns ^ u64::from(moment == Moment::Latest)
        };
        let known = |point: &Point| mark(point.hash, point.moment(), self.entry(point).0);
        let first = self.more.as_ref().is_none_or(|more| more.seen.is_empty());
        let marks: Vec<u64> = if first { self.points.iter().map(known).collect() } else { Vec::new() };
        let seen = &mut self.more().seen;
        seen.extend(marks);
        seen.insert(mark(hash, moment, columns))
    }

    /// Halves the number of reads.
    #[cold]
    fn join(&mut self, limit: usize) {
        let range_of = |point: &Point| {
            let bound = Bound::Included(SmallKey::new(self.key(point)));
            let (tree, moment) = (point.tree, point.moment());
            RangeRead { tree, moment, lower: bound.clone(), upper: bound, interest: None }
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
                    last.interest = None;
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
    use crate::hash::FIXED;

    fn contains(set: &ReadSet, tree: TreeId, key: &[u8]) -> bool {
        let hash = FIXED.hash_of(tree, key);
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
                set.add_point(&FIXED, 7, &key.to_be_bytes(), Moment::Snapshot, Columns::ALL);
            }
            assert_eq!(set.points().len(), 100, "round {round}");
        }
        assert_eq!(set.key(&set.points()[5]), 5_u32.to_be_bytes());
    }

    #[test]
    fn keys_of_any_length_are_kept() {
        let mut set = ReadSet::default();
        let keys: Vec<Vec<u8>> = [0, 1, 40, 253, 254, 255, 256, 70_000].map(|length| vec![7; length]).into();
        keys.iter().for_each(|key| set.add_point(&FIXED, 1, key, Moment::Latest, Columns::ALL));
        assert!(set.points().iter().map(|point| set.key(point)).eq(keys.iter().map(|key| &key[..])));
        assert!(set.points().iter().all(|point| point.moment() == Moment::Latest));
    }

    #[test]
    fn a_few_short_keys_take_two_lines_of_memory() {
        let mut set = ReadSet::default();
        for key in 0..4_u64 {
            let key = [&[b'k'][..], &key.to_be_bytes()].concat();
            set.add_point(&FIXED, 1, &key, Moment::Snapshot, Columns::ALL);
        }
        assert!(set.reads.as_ref().is_some_and(|reads| reads.is_small()));
    }

    #[test]
    fn columns_are_kept_with_their_keys() {
        let few = Columns::PRESENCE.with(0).with(6);
        let all = [Columns::PRESENCE, few, Columns::NONE.with(70), few.with(40).with(61), Columns::ALL];
        let mut set = ReadSet::default();
        for round in 0..2 {
            for number in 0..100_usize {
                set.add_point(&FIXED, 1, &number.to_be_bytes(), Moment::Snapshot, all[number % all.len()]);
            }
            assert_eq!(set.points().len(), 100, "round {round}");
        }
        for (number, point) in set.points().iter().enumerate() {
            assert_eq!(set.columns(point), all[number % all.len()], "{number}");
            assert_eq!(set.key(point), number.to_be_bytes());
        }
    }

    #[test]
    fn a_key_counts_again_where_more_of_it_is_read() {
        let mut set = ReadSet::default();
        for columns in [Columns::PRESENCE.with(1), Columns::PRESENCE, Columns::ALL, Columns::NONE.with(3)] {
            set.add_point(&FIXED, 1, b"k", Moment::Snapshot, columns);
        }
        let read: Vec<Columns> = set.points().iter().map(|point| set.columns(point)).collect();
        assert_eq!(read, [Columns::PRESENCE.with(1), Columns::ALL]);
    }

    #[test]
    fn what_is_joined_is_of_interest_as_a_whole() {
        let interest = Some(Arc::new(Interest::new(Columns::PRESENCE, [])));
        let mut set = ReadSet::default();
        for number in 0..1000_u32 {
            let key = number.to_be_bytes();
            set.add_point(&FIXED, 1, &key, Moment::Snapshot, Columns::PRESENCE);
            let (lower, upper) = (Bound::Included(&key[..]), Bound::Included(&key[..]));
            set.add_range(2, lower, upper, Moment::Snapshot, interest.clone());
        }
        set.keep_to(20_000);
        assert!(set.is_coarse() && set.points().is_empty());
        let joined = set.ranges().iter().filter(|range| range.lower != range.upper);
        assert!(joined.clone().count() > 10 && joined.clone().all(|range| range.interest.is_none()));
    }

    #[test]
    fn joined_sets_stay_small_and_forget_nothing() {
        let mut set = ReadSet::default();
        for key in 0..50_000_u32 {
            let tree = 1 + key % 3;
            set.add_point(
                &FIXED,
                tree,
                &key.wrapping_mul(2_654_435_761).to_be_bytes(),
                Moment::Snapshot,
                Columns::ALL,
            );
            if key % 7 == 0 {
                let (low, high) = (key.to_be_bytes(), (key + 3).to_be_bytes());
                set.add_range(9, Bound::Included(&low), Bound::Excluded(&high), Moment::Latest, None);
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
        let place = set.add_range(1, Bound::Included(b"b"), Bound::Unbounded, Moment::Snapshot, None);
        set.narrow(place, false, Some(b"d"));
        assert!(contains(&set, 1, b"d") && !contains(&set, 1, b"e") && !contains(&set, 1, b"a"));
        let place = set.add_range(2, Bound::Unbounded, Bound::Excluded(b"f"), Moment::Snapshot, None);
        set.narrow(place, true, Some(b"d"));
        assert!(contains(&set, 2, b"d") && contains(&set, 2, b"e") && !contains(&set, 2, b"c"));
    }

    #[test]
    fn what_was_read_up_to_a_moment_can_be_told_until_reads_are_joined() {
        let mut set = ReadSet::default();
        let nothing = set.mark();
        set.add_point(&FIXED, 1, b"a", Moment::Snapshot, Columns::ALL);
        set.add_range(1, Bound::Included(b"k"), Bound::Excluded(b"m"), Moment::Snapshot, None);
        let before = set.mark();
        set.add_point(&FIXED, 1, b"b", Moment::Snapshot, Columns::ALL);
        set.add_point(&FIXED, 1, b"a", Moment::Snapshot, Columns::ALL);
        set.add_range(2, Bound::Unbounded, Bound::Unbounded, Moment::Latest, None);
        assert_eq!(set.upto(nothing).map(|(points, ranges)| (points.len(), ranges.len())), Some((0, 0)));
        let (points, ranges) = set.upto(before).unwrap();
        assert_eq!((points.len(), set.key(&points[0])), (1, &b"a"[..]));
        assert_eq!((ranges.len(), ranges[0].tree), (1, 1));
        for key in 0..100_u8 {
            set.add_point(&FIXED, 3, &[key], Moment::Snapshot, Columns::ALL);
        }
        set.keep_to(1000);
        assert!(set.upto(before).is_none(), "joined");
        // What is read after that can be told again.
        let joined = set.mark();
        set.add_point(&FIXED, 4, b"a", Moment::Snapshot, Columns::ALL);
        let (points, ranges) = set.upto(joined).unwrap();
        assert!(points.is_empty() && ranges.iter().any(|range| range.tree == 3));
        // A copy is as if it had been joined as often.
        let copied = set.copy_upto(joined).unwrap();
        assert!(copied.is_coarse() && copied.upto(before).is_none());
        assert_eq!(copied.upto(joined).map(|(_, ranges)| ranges.len()), Some(ranges.len()));
        for key in 0..100_u8 {
            set.add_point(&FIXED, 5, &[key], Moment::Snapshot, Columns::ALL);
        }
        set.keep_to(1000);
        let copied = set.copy_upto(set.mark()).unwrap();
        assert!(copied.upto(joined).is_none() && copied.upto(set.mark()).is_some());
    }

    #[test]
    fn memory_that_is_used_again_remembers_nothing() {
        let spares = || SPARES.with(Spares::len);
        let mut set = ReadSet::default();
        assert!(set.is_empty() && set.bytes() == 0);
        set.add_point(&FIXED, 1, b"a", Moment::Latest, Columns::ALL);
        set.add_range(1, Bound::Unbounded, Bound::Excluded(b"f"), Moment::Snapshot, None);
        drop(set);
        assert_eq!(spares(), 1);
        let mut set = ReadSet::default();
        set.add_point(&FIXED, 1, b"b", Moment::Snapshot, Columns::ALL);
        assert_eq!(spares(), 0);
        assert!(set.is_one_key() && !set.has_latest() && !set.is_coarse());
        assert!(contains(&set, 1, b"b") && !contains(&set, 1, b"a"));
        // What has grown, or was joined, is not kept.
        for key in 0..100_u8 {
            set.add_point(&FIXED, 1, &[key], Moment::Snapshot, Columns::ALL);
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
