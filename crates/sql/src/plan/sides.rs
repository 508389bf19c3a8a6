//! What has been found out about the sides of outer joins while an order is sought.
//!
//! A side is asked about again and again: for each item that may come first, each place that the
//! join may have behind it, and each method. Where its own joins have such sides in their turn,
//! that multiplies with each level, so each answer is kept. It depends on which relations are known
//! from outside, and of those only on the ones that something in the side mentions.
//!
//! ```text
//! a LEFT JOIN (b LEFT JOIN (c LEFT JOIN d ON c.y = d.x) ON b.y = c.x) ON a.y = b.x
//!
//! {b, c, d} is asked about with a known, and with nothing known; {c, d} with b, and with nothing
//! ```
//!
//! A right side is read again for each row of the left one only where that is cheaper, or where it
//! refers to that row: never if it calls volatile functions, which are called once then, however
//! many rows there are.
//!
//! With many items or conditions the search takes long all the same. So it is counted what it does,
//! and now and then asked whether the statement should stop; of a few tables nobody asks anything.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;

use super::estimate::{DISK_ROW, MEMORY_ROW, MOST_HELD};
use super::join::{Chosen, Inner, Item, ItemKind, Joiner, LeafEstimate, Problem, inside_problem};
use super::relation::{Condition, Mask, bit};
use crate::bind::{RowCounts, Select};
use crate::error::Result;
use crate::types::TypeId;
use crate::types::bounds::{self, Unasked};

/// What it takes to look at a condition for one item.
const TEST: usize = 32;
/// What it takes to find out what a condition looks at.
const CONDITION: usize = 4096;

/// Which joins of an item are sought.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Part {
    /// The right side of a left join, for each row of the left one.
    Looped,
    /// The same, read by itself for a hash table.
    Hashed,
    /// The left side of a full join.
    FullLeft,
    /// Its right side.
    FullRight,
}

/// A part of the item with a number, and the relations it mentions that are known from outside.
type Key = (usize, Part, Mask);

/// The sequences that were chosen so far.
#[derive(Debug, Default)]
pub(super) struct Sides {
    numbers: Cell<usize>,
    known: RefCell<HashMap<Key, Chosen>>,
    /// Work since it was asked whether to stop.
    unasked: RefCell<Unasked>,
}

impl Sides {
    /// A number for a left or full join.
    pub(super) fn number(&self) -> usize {
        self.numbers.set(self.numbers.get() + 1);
        self.numbers.get()
    }

    /// An item is about to be looked at, beside so many conditions.
    pub(super) fn look_at_item(&self, conditions: usize) -> Result<()> {
        self.have_worked((conditions + 1) * TEST)
    }

    /// A condition is about to be looked at as such.
    pub(super) fn look_at_condition(&self) -> Result<()> {
        self.have_worked(CONDITION)
    }

    fn have_worked(&self, time: usize) -> Result<()> {
        if self.unasked.borrow_mut().is_due(time) { bounds::ask() } else { Ok(()) }
    }
}

impl<'a> Joiner<'a> {
    /// One that has found out nothing yet.
    pub(super) fn new(
        select: &'a Select,
        parameters: &'a [TypeId],
        row_counts: &'a dyn RowCounts,
        leaves: &'a [Option<LeafEstimate>],
    ) -> Joiner<'a> {
        Joiner { select, parameters, row_counts, leaves, sides: Sides::default() }
    }

    /// The cheapest sequence for a side of an outer join.
    pub(super) fn side(&self, item: &Item, part: Part, problem: &Problem, available: Mask) -> Result<Chosen> {
        let key = (item.number, part, available & mentioned(problem));
        let known = self.sides.known.borrow().get(&key).cloned();
        if let Some(known) = known {
            return Ok(known);
        }
        let chosen = if part == Part::Hashed {
            let inside = inside_problem(problem, item.provides | available);
            self.choose(&inside, available, None, None)?
        } else {
            self.choose(problem, available, None, None)?
        };
        self.sides.known.borrow_mut().insert(key, chosen.clone());
        Ok(chosen)
    }

    /// The right side of a left join read by itself, to be gone through for each of so many rows on
    /// the left: its sequence, and what all that costs. None if it refers to something outside, or
    /// if that is no better than `looped`, which reads it again for each of them.
    pub(super) fn kept(
        &self,
        item: &Item,
        inner: &Problem,
        rows: f64,
        looped: f64,
    ) -> Result<Option<(Chosen, f64)>> {
        if inner.items.iter().any(|within| within.requires & !item.provides != 0) {
            return Ok(None);
        }
        let chosen = self.side(item, Part::Hashed, inner, 0)?;
        let cost = match chosen.rows <= MOST_HELD {
            true => chosen.cost + rows * chosen.rows * MEMORY_ROW,
            false => chosen.cost + (rows + 1.0) * chosen.rows * DISK_ROW,
        };
        Ok((cost < looped || self.is_read_once(item.provides)).then_some((chosen, cost)))
    }

    /// Whether one of these relations must not be read again for the next row of others, whatever
    /// that costs.
    pub(super) fn is_read_once(&self, provides: Mask) -> bool {
        read_once(self.leaves) & provides != 0
    }
}

/// The relations that may give other rows each time.
pub(super) fn read_once(leaves: &[Option<LeafEstimate>]) -> Mask {
    let of_leaf = |(relation, leaf): (usize, &Option<LeafEstimate>)| match leaf {
        Some(leaf) if leaf.volatile => bit(relation),
        _ => 0,
    };
    leaves.iter().enumerate().map(of_leaf).fold(0, |mask, one| mask | one)
}

/// The right side of a left join without what ON asks of anything else, the sequence that was
/// chosen for it, and that rest, which is tested on the pairs.
pub(super) fn by_itself(
    problem: &Problem,
    provides: Mask,
    chosen: Chosen,
) -> (Problem, Chosen, Vec<Condition>) {
    let is_inside =
        |condition: &Condition| condition.mask != 0 && condition.mask & !provides == 0 && !condition.volatile;
    let (inside, rest): (Vec<_>, Vec<_>) = problem.conditions.iter().cloned().partition(is_inside);
    let renumbered = renumber(&inside_problem(problem, provides), chosen, is_inside);
    (Problem { items: problem.items.clone(), conditions: inside }, renumbered, rest)
}

/// The chosen paths name conditions by place; the places once only those conditions are left that
/// `is_kept` says. They are counted, not compared: subqueries are equal to nothing.
pub(super) fn renumber(
    problem: &Problem,
    mut chosen: Chosen,
    is_kept: impl Fn(&Condition) -> bool,
) -> Chosen {
    let mut left = 0;
    let mut places = Vec::with_capacity(problem.conditions.len());
    for condition in &problem.conditions {
        let kept = is_kept(condition);
        places.push(kept.then_some(left));
        left += usize::from(kept);
    }
    for step in &mut chosen.steps {
        if let Inner::Leaf(Some(path)) = &mut step.inner {
            path.consumed = path.consumed.iter().filter_map(|old| places[*old]).collect();
        }
    }
    chosen
}

/// The relations that something in a problem mentions.
fn mentioned(problem: &Problem) -> Mask {
    problem.items.iter().fold(of_conditions(&problem.conditions), |mask, item| {
        let within = match &item.kind {
            ItemKind::Relation(_) => 0,
            ItemKind::Left(inner) => mentioned(inner),
            ItemKind::Full(full) => mentioned(&full.0) | mentioned(&full.1) | of_conditions(&full.2),
        };
        mask | item.requires | within
    })
}

fn of_conditions(conditions: &[Condition]) -> Mask {
    conditions.iter().fold(0, |mask, condition| mask | condition.mask)
}
