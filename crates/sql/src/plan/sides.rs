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
//! With many items or conditions the search takes long all the same. So it is counted what it does,
//! and now and then asked whether the statement should stop; of a few tables nobody asks anything.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;

use super::join::{Chosen, Item, ItemKind, Joiner, LeafEstimate, Problem, inside_problem};
use super::relation::{Condition, Mask};
use crate::bind::{RowCounts, Select};
use crate::error::Result;
use crate::types::{TypeId, bounds};

/// Nanoseconds of work between two questions whether to stop, very roughly.
const UNASKED: usize = 1 << 17;
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
    unasked: Cell<usize>,
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
        let unasked = self.unasked.get() + time;
        if unasked < UNASKED {
            self.unasked.set(unasked);
            return Ok(());
        }
        self.unasked.set(0);
        bounds::ask()
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
