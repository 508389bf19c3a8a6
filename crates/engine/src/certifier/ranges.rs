//! The ranges that the transactions of the graph have read in one tree, or written: those of
//! cursors are few, those of a summary are thousands.
//!
//! The older part is *sorted* by where ranges begin, and is an interval tree in an array: the root
//! is in the middle, and each node knows the furthest end (`reach`) of its subtree, so that a
//! search sees a logarithmic number of those that do not fit. What came since is looked through,
//! until it is much. What leaves the sorted part stays in its place without an owner, until that is
//! half of it: so it costs a walk over the owners, and not over everything. Both go by the first
//! sixteen bytes of the bounds, and by the bounds themselves where these are the same: keys of one
//! tenant, or of one customer, have more than that in common.
//!
//! ```text
//!              [h m]→z                who covers k?
//!           ┌─────┴─────┐              [h m] does; nothing to its left reaches k, so [a c] is not looked at;
//!        [d f]→f     [l z]→z           [l z], to its right, reaches k, but begins behind it
//!       ┌──┘
//!    [a c]→c
//! ```

use std::cmp::Ordering;
use std::ops::Bound;
use std::sync::Arc;

use super::node::{NONE, NodeId};
use crate::Csn;
use crate::key::SmallKey;
use crate::txn::change::Effect;
use crate::txn::columns::{Columns, Interest};
use crate::txn::readset::compare_lower_upper;

/// So many that came last are looked through, and one more for each so many sorted ones.
const FRESH_MAX: usize = if cfg!(test) { 3 } else { 64 };
const SORTED_PER_FRESH: usize = 16;

/// A range with its owner. For ranges of writes: the first and the last commit that wrote there.
#[derive(Debug)]
pub(super) struct Ranged {
    pub(super) lower: Bound<SmallKey>,
    pub(super) upper: Bound<SmallKey>,
    pub(super) node: NodeId,
    pub(super) first: Csn,
    pub(super) last: Csn,
    /// What of it was read; everything if this is nothing.
    pub(super) interest: Option<Arc<Interest>>,
}

/// The first bytes of a range's ends, and of the furthest end of its subtree, with the place of
/// the range that has it.
#[derive(Debug, Clone, Copy)]
struct Ends {
    low: u128,
    high: u128,
    reach: u128,
    furthest: usize,
}

/// What is looked for: the first bytes of its ends, and what the whole bounds say.
struct Sought<'a> {
    from: u128,
    to: u128,
    /// A range ends in it or behind it.
    reached_by: &'a dyn Fn(&Ranged) -> bool,
    /// A range begins in it or before it.
    reaches: &'a dyn Fn(&Ranged) -> bool,
}

/// See the module's prose.
#[derive(Debug, Default)]
pub(super) struct Ranges {
    ends: Vec<Ends>,
    items: Vec<Ranged>,
    /// Of each range; [`NONE`] once it has left.
    owners: Vec<NodeId>,
    /// So many are sorted, and of these so many have left.
    sorted: usize,
    left: usize,
}

fn prefix(key: &[u8]) -> u128 {
    let mut bytes = [0; 16];
    let length = key.len().min(16);
    bytes[..length].copy_from_slice(&key[..length]);
    u128::from_be_bytes(bytes)
}

fn low_prefix(bound: Bound<&[u8]>) -> u128 {
    match bound {
        Bound::Unbounded => 0,
        Bound::Included(key) | Bound::Excluded(key) => prefix(key),
    }
}

fn high_prefix(bound: Bound<&[u8]>) -> u128 {
    match bound {
        Bound::Unbounded => u128::MAX,
        Bound::Included(key) | Bound::Excluded(key) => prefix(key),
    }
}

fn bytes(bound: &Bound<SmallKey>) -> Bound<&[u8]> {
    bound.as_ref().map(|key| &**key)
}

impl Ranged {
    fn ends(&self) -> Ends {
        let (low, high) = (low_prefix(bytes(&self.lower)), high_prefix(bytes(&self.upper)));
        Ends { low, high, reach: high, furthest: 0 }
    }

    fn begins_before(&self, upper: &Bound<SmallKey>) -> bool {
        compare_lower_upper(&self.lower, upper).is_lt()
    }

    fn ends_behind(&self, lower: &Bound<SmallKey>) -> bool {
        compare_lower_upper(lower, &self.upper).is_lt()
    }

    /// Whether its reader sees a difference after a write of one of its keys.
    #[inline]
    pub(super) fn minds(&self, effect: Effect<'_>) -> bool {
        minds(self.interest.as_deref(), effect)
    }

    fn begins_at_most(&self, key: &[u8]) -> bool {
        match &self.lower {
            Bound::Unbounded => true,
            Bound::Included(low) => low[..] <= *key,
            Bound::Excluded(low) => low[..] < *key,
        }
    }

    fn ends_at_least(&self, key: &[u8]) -> bool {
        match &self.upper {
            Bound::Unbounded => true,
            Bound::Included(high) => *key <= high[..],
            Bound::Excluded(high) => *key < high[..],
        }
    }
}

/// Where ranges begin.
fn lower_order(a: &Bound<SmallKey>, b: &Bound<SmallKey>) -> Ordering {
    match (a, b) {
        (Bound::Unbounded, Bound::Unbounded) => Ordering::Equal,
        (Bound::Unbounded, _) => Ordering::Less,
        (_, Bound::Unbounded) => Ordering::Greater,
        (Bound::Included(a), Bound::Included(b)) | (Bound::Excluded(a), Bound::Excluded(b)) => a.cmp(b),
        (Bound::Included(a), Bound::Excluded(b)) => a.cmp(b).then(Ordering::Less),
        (Bound::Excluded(a), Bound::Included(b)) => a.cmp(b).then(Ordering::Greater),
    }
}

/// Where ranges end.
fn upper_order(a: &Bound<SmallKey>, b: &Bound<SmallKey>) -> Ordering {
    match (a, b) {
        (Bound::Unbounded, Bound::Unbounded) => Ordering::Equal,
        (Bound::Unbounded, _) => Ordering::Greater,
        (_, Bound::Unbounded) => Ordering::Less,
        (Bound::Included(a), Bound::Included(b)) | (Bound::Excluded(a), Bound::Excluded(b)) => a.cmp(b),
        (Bound::Included(a), Bound::Excluded(b)) => a.cmp(b).then(Ordering::Greater),
        (Bound::Excluded(a), Bound::Included(b)) => a.cmp(b).then(Ordering::Less),
    }
}

/// Whether who read a range with this interest, or all of it, sees a difference.
#[inline]
pub(super) fn minds(interest: Option<&Interest>, effect: Effect<'_>) -> bool {
    match interest {
        None => effect.columns() != Columns::NONE,
        Some(interest) => effect.concerns(interest),
    }
}

impl Ranges {
    /// Adds a range. To be followed by `settle`, sooner or later.
    pub(super) fn push(&mut self, item: Ranged) {
        self.ends.push(item.ends());
        self.owners.push(item.node);
        self.items.push(item);
    }

    pub(super) fn len(&self) -> usize {
        self.items.len() - self.left
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Sorts all, if much has come.
    pub(super) fn settle(&mut self) {
        if self.items.len() - self.sorted <= FRESH_MAX + self.sorted / SORTED_PER_FRESH {
            return;
        }
        self.sort();
    }

    fn sort(&mut self) {
        let owned = self.owners.drain(..).map(|owner| owner != NONE);
        let all = owned.zip(self.ends.drain(..).zip(self.items.drain(..)));
        let mut both: Vec<(Ends, Ranged)> = all.filter(|(owned, _)| *owned).map(|(_, both)| both).collect();
        // Mostly it is one sorted run and a little more.
        both.sort_by(|(a, one), (b, other)| {
            a.low.cmp(&b.low).then_with(|| lower_order(&one.lower, &other.lower))
        });
        (self.ends, self.items) = both.into_iter().unzip();
        self.owners.extend(self.items.iter().map(|item| item.node));
        (self.sorted, self.left) = (self.items.len(), 0);
        reach(&mut self.ends, 0, &self.items);
    }

    /// Visits the ranges that hold the key.
    #[inline]
    pub(super) fn covering(&self, key: &[u8], visit: &mut dyn FnMut(&Ranged)) {
        if !self.is_empty() {
            let at = prefix(key);
            let reached_by = |item: &Ranged| item.ends_at_least(key);
            let reaches = |item: &Ranged| item.begins_at_most(key);
            self.touching(&Sought { from: at, to: at, reached_by: &reached_by, reaches: &reaches }, visit);
        }
    }

    /// Visits the ranges that have something in common with another.
    pub(super) fn overlapping(
        &self,
        lower: &Bound<SmallKey>,
        upper: &Bound<SmallKey>,
        visit: &mut dyn FnMut(&Ranged),
    ) {
        let (from, to) = (low_prefix(bytes(lower)), high_prefix(bytes(upper)));
        let reached_by = |item: &Ranged| item.ends_behind(lower);
        let reaches = |item: &Ranged| item.begins_before(upper);
        self.touching(&Sought { from, to, reached_by: &reached_by, reaches: &reaches }, visit);
    }

    /// Visits those that have something in common with what is looked for.
    fn touching(&self, sought: &Sought<'_>, visit: &mut dyn FnMut(&Ranged)) {
        let (sorted, fresh) = self.ends.split_at(self.sorted);
        self.descend(sorted, 0, sought, visit);
        for (ends, item) in fresh.iter().zip(&self.items[self.sorted..]) {
            if ends.low <= sought.to
                && sought.from <= ends.high
                && (sought.reaches)(item)
                && (sought.reached_by)(item)
            {
                visit(item);
            }
        }
    }

    /// Visits those of a tree, which begins at `first`.
    fn descend(&self, ends: &[Ends], first: usize, sought: &Sought<'_>, visit: &mut dyn FnMut(&Ranged)) {
        let middle = ends.len() / 2;
        let Some(root) = ends.get(middle) else { return };
        // What the first bytes leave open the bounds decide.
        let is_reached = match sought.from.cmp(&root.reach) {
            Ordering::Less => true,
            Ordering::Equal => (sought.reached_by)(&self.items[root.furthest]),
            Ordering::Greater => false,
        };
        if !is_reached {
            return;
        }
        self.descend(&ends[..middle], first, sought, visit);
        let item = &self.items[first + middle];
        let begins = match root.low.cmp(&sought.to) {
            Ordering::Less => true,
            Ordering::Equal => (sought.reaches)(item),
            Ordering::Greater => false,
        };
        if !begins {
            return;
        }
        if sought.from <= root.high
            && self.owners[first + middle] != NONE
            && (sought.reaches)(item)
            && (sought.reached_by)(item)
        {
            visit(item);
        }
        self.descend(&ends[middle + 1..], first + middle + 1, sought, visit);
    }

    /// Gives the ranges of writes of a node its number.
    pub(super) fn number(&mut self, node: NodeId, commit: Csn) {
        for (item, _) in self.items.iter_mut().zip(&self.owners).filter(|(_, owner)| **owner == node) {
            (item.first, item.last) = (commit, commit);
        }
    }

    /// Keeps the ranges whose owners `keep` names.
    pub(super) fn retain(&mut self, keep: &dyn Fn(NodeId) -> bool) {
        for owner in self.owners[..self.sorted].iter_mut().filter(|owner| **owner != NONE) {
            if !keep(*owner) {
                *owner = NONE;
                self.left += 1;
            }
        }
        let mut at = self.sorted;
        while at < self.items.len() {
            if keep(self.owners[at]) {
                at += 1;
            } else {
                self.ends.swap_remove(at);
                self.items.swap_remove(at);
                self.owners.swap_remove(at);
            }
        }
        if 2 * self.left > self.sorted {
            self.sort();
        }
    }
}

/// Computes the furthest ends of all subtrees of a tree that begins at `first`; the answer is the
/// place of the range that has the root's.
fn reach(ends: &mut [Ends], first: usize, items: &[Ranged]) -> Option<(u128, usize)> {
    let middle = ends.len() / 2;
    let (left, rest) = ends.split_at_mut(middle);
    let (root, right) = rest.split_first_mut()?;
    let mut furthest = (root.high, first + middle);
    for other in [reach(left, first, items), reach(right, first + middle + 1, items)].into_iter().flatten() {
        let order = other.0.cmp(&furthest.0);
        let order = order.then_with(|| upper_order(&items[other.1].upper, &items[furthest.1].upper));
        if order.is_gt() {
            furthest = other;
        }
    }
    (root.reach, root.furthest) = furthest;
    Some(furthest)
}

#[cfg(test)]
mod tests {
    use cognate_env::SplitMix;

    use super::*;

    fn bound(random: &mut SplitMix) -> Bound<SmallKey> {
        // Some are the same in their first sixteen bytes.
        let key = SmallKey::new(format!("a common beginning {:02}", random.below(30)).as_bytes());
        let short = SmallKey::new(format!("{:02}", random.below(30)).as_bytes());
        match random.below(5) {
            0 => Bound::Unbounded,
            1 => Bound::Included(key),
            2 => Bound::Excluded(key),
            3 => Bound::Included(short),
            _ => Bound::Excluded(short),
        }
    }

    fn place(item: &Ranged) -> usize {
        std::ptr::from_ref(item) as usize
    }

    /// Keys that have much in common are told apart in as few steps as others.
    #[test]
    fn few_are_looked_at_however_much_their_keys_have_in_common() {
        let key = |at: u32| SmallKey::new(format!("a common beginning {at:06}").as_bytes());
        let mut ranges = Ranges::default();
        for at in 0..10_000 {
            let (lower, upper) = (Bound::Included(key(2 * at)), Bound::Included(key(2 * at)));
            ranges.push(Ranged { lower, upper, node: 1, first: 1, last: 1, interest: None });
        }
        ranges.settle();
        for at in [0, 1, 9_998, 9_999, 19_998, 19_999] {
            let (sought, looked) = (key(at), std::cell::Cell::new(0));
            let count = |fits: bool| {
                looked.set(looked.get() + 1);
                fits
            };
            let mut found = 0;
            let from = prefix(&sought);
            let reached_by = |item: &Ranged| count(item.ends_at_least(&sought));
            let reaches = |item: &Ranged| count(item.begins_at_most(&sought));
            ranges.touching(
                &Sought { from, to: from, reached_by: &reached_by, reaches: &reaches },
                &mut |_| found += 1,
            );
            assert_eq!(found, u32::from(at % 2 == 0));
            assert!(looked.get() < 100, "{}", looked.get());
        }
    }

    /// Random ranges that come and go: what is found is what looking at each finds.
    #[test]
    fn what_is_found_is_what_looking_at_each_finds() {
        for seed in 0..200 {
            let mut random = SplitMix::new(seed);
            let mut ranges = Ranges::default();
            for step in 0..60 {
                for _ in 0..random.below(6) {
                    let (lower, upper, node) =
                        (bound(&mut random), bound(&mut random), random.below(8) as NodeId);
                    ranges.push(Ranged { lower, upper, node, first: step, last: step, interest: None });
                }
                if random.below(3) > 0 {
                    ranges.settle();
                }
                if random.below(4) == 0 {
                    let gone = random.below(8) as NodeId;
                    ranges.retain(&|node| node != gone);
                    assert!(ranges.owners.iter().all(|owner| *owner != gone), "seed {seed}");
                }
                let (lower, upper) = (bound(&mut random), bound(&mut random));
                let key = match &lower {
                    Bound::Included(key) | Bound::Excluded(key) => key.clone(),
                    Bound::Unbounded => SmallKey::new(b""),
                };
                let (mut covering, mut overlapping) = (Vec::new(), Vec::new());
                ranges.covering(&key, &mut |item| covering.push(place(item)));
                ranges.overlapping(&lower, &upper, &mut |item| overlapping.push(place(item)));
                let all = |fits: &dyn Fn(&Ranged) -> bool| {
                    let owned = ranges.items.iter().zip(&ranges.owners).filter(|(_, owner)| **owner != NONE);
                    owned.map(|(item, _)| item).filter(|item| fits(item)).map(place).collect::<Vec<_>>()
                };
                let covers = |item: &Ranged| item.begins_at_most(&key) && item.ends_at_least(&key);
                assert_eq!(covering, all(&covers), "seed {seed}");
                let overlaps = |item: &Ranged| item.begins_before(&upper) && item.ends_behind(&lower);
                assert_eq!(overlapping, all(&overlaps), "seed {seed}");
            }
            ranges.retain(&|_| false);
            assert!(ranges.is_empty() && ranges.items.is_empty(), "seed {seed}");
        }
    }
}
