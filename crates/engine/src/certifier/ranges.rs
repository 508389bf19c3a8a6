//! The ranges that the transactions of the graph have read in one tree, or written: those of
//! cursors are few, those of a summary are thousands.
//!
//! The older part is *sorted* by where ranges begin, and is an interval tree in an array: the root
//! is in the middle, and each node knows the furthest end (`reach`) of its subtree, so that a
//! search sees a logarithmic number of those that do not fit. What came since is looked through,
//! until it is much. What leaves the sorted part stays in its place without an owner, until that is
//! half of it: so it costs a walk over the owners, and not over everything. Both go by the first
//! sixteen bytes of the bounds; the bounds themselves are compared at last.
//!
//! ```text
//!              [h m]→z                who covers k?
//!           ┌─────┴─────┐              [h m] does; nothing to its left reaches k, so [a c] is not looked at;
//!        [d f]→f     [l z]→z           [l z], to its right, reaches k, but begins behind it
//!       ┌──┘
//!    [a c]→c
//! ```

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

/// The first bytes of a range's ends, and the furthest end of its subtree.
#[derive(Debug, Clone, Copy)]
struct Ends {
    low: u128,
    high: u128,
    reach: u128,
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
        Ends { low, high, reach: high }
    }

    fn overlaps(&self, lower: &Bound<SmallKey>, upper: &Bound<SmallKey>) -> bool {
        compare_lower_upper(&self.lower, upper).is_lt() && compare_lower_upper(lower, &self.upper).is_lt()
    }

    /// Whether its reader sees a difference after a write of one of its keys.
    #[inline]
    pub(super) fn minds(&self, effect: Effect<'_>) -> bool {
        minds(self.interest.as_deref(), effect)
    }

    fn covers(&self, key: &[u8]) -> bool {
        let above = match &self.lower {
            Bound::Unbounded => true,
            Bound::Included(low) => low[..] <= *key,
            Bound::Excluded(low) => low[..] < *key,
        };
        above
            && match &self.upper {
                Bound::Unbounded => true,
                Bound::Included(high) => *key <= high[..],
                Bound::Excluded(high) => *key < high[..],
            }
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
        both.sort_by_key(|(ends, _)| ends.low);
        (self.ends, self.items) = both.into_iter().unzip();
        self.owners.extend(self.items.iter().map(|item| item.node));
        (self.sorted, self.left) = (self.items.len(), 0);
        reach(&mut self.ends);
    }

    /// Visits the ranges that hold the key.
    #[inline]
    pub(super) fn covering(&self, key: &[u8], visit: &mut dyn FnMut(&Ranged)) {
        if !self.is_empty() {
            let at = prefix(key);
            self.touching(at, at, &mut |item| {
                if item.covers(key) {
                    visit(item);
                }
            });
        }
    }

    /// Visits the ranges that have something in common with another.
    pub(super) fn overlapping(
        &self,
        lower: &Bound<SmallKey>,
        upper: &Bound<SmallKey>,
        visit: &mut dyn FnMut(&Ranged),
    ) {
        self.touching(low_prefix(bytes(lower)), high_prefix(bytes(upper)), &mut |item| {
            if item.overlaps(lower, upper) {
                visit(item);
            }
        });
    }

    /// Visits those whose first bytes have something in common with this range of first bytes.
    fn touching(&self, from: u128, to: u128, visit: &mut dyn FnMut(&Ranged)) {
        let (sorted, fresh) = self.ends.split_at(self.sorted);
        descend(sorted, 0, from, to, &mut |at| {
            if self.owners[at] != NONE {
                visit(&self.items[at]);
            }
        });
        for (ends, item) in fresh.iter().zip(&self.items[self.sorted..]) {
            if ends.low <= to && from <= ends.high {
                visit(item);
            }
        }
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

/// Computes the furthest ends of all subtrees; the answer is that of the root.
fn reach(ends: &mut [Ends]) -> u128 {
    let middle = ends.len() / 2;
    let (left, rest) = ends.split_at_mut(middle);
    let Some((root, right)) = rest.split_first_mut() else { return 0 };
    root.reach = root.high.max(reach(left)).max(reach(right));
    root.reach
}

/// Visits the places of a tree, which begins at `first`.
fn descend(ends: &[Ends], first: usize, from: u128, to: u128, visit: &mut dyn FnMut(usize)) {
    let middle = ends.len() / 2;
    let Some(root) = ends.get(middle).filter(|root| from <= root.reach) else { return };
    descend(&ends[..middle], first, from, to, visit);
    if root.low <= to {
        if from <= root.high {
            visit(first + middle);
        }
        descend(&ends[middle + 1..], first + middle + 1, from, to, visit);
    }
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
                assert_eq!(covering, all(&|item| item.covers(&key)), "seed {seed}");
                assert_eq!(overlapping, all(&|item| item.overlaps(&lower, &upper)), "seed {seed}");
            }
            ranges.retain(&|_| false);
            assert!(ranges.is_empty() && ranges.items.is_empty(), "seed {seed}");
        }
    }
}
