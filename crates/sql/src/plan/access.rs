//! Choosing how to find a table's rows: which index, and how much of it the conditions leave.
//!
//! There are no histograms. Costs are ranks by shape — one row, a few equal rows, a range, everything — scaled by the
//! table's estimated size; ties go to the primary key, then to the older index.

use crate::bind::RowCounts;
use crate::catalog::Table;
use crate::expr::Expr;
use crate::function::operator::Comparison;

use super::{Access, AnyOf};

/// Rows of a table nobody has counted.
const UNKNOWN_ROWS: f64 = 10_000.0;

/// An order that would save a sort: column of the table, descending, NULLs first.
pub(super) type WantedOrder = [(usize, bool, bool)];

/// What is known of the place where a relation is to be read.
pub(super) struct Situation<'a> {
    /// The relation's column slots: column to slot.
    pub(super) slots: &'a [Option<usize>],
    /// Whether a slot is filled before the relation is read.
    pub(super) bound: &'a dyn Fn(usize) -> bool,
    /// Conditions that may narrow it.
    pub(super) conditions: &'a [Expr],
}

/// A choice with its estimated number of rows read, and whether it gives the wanted order.
pub(super) struct Choice {
    pub(super) access: Access,
    pub(super) rows: f64,
    pub(super) ordered: bool,
}

/// The best access. `wanted` is the order that saves a sort, empty for none; `limited` says that few rows are wanted.
pub(super) fn choose(
    table: &Table,
    situation: &Situation<'_>,
    wanted: &WantedOrder,
    limited: bool,
    counts: &dyn RowCounts,
) -> Choice {
    let total = counts.rows(table.oid).map_or(UNKNOWN_ROWS, |rows| (rows as f64).max(10.0));
    let full = Choice { access: Access::default(), rows: total, ordered: wanted.is_empty() };
    let mut best = full;
    let mut best_price = price(&best, wanted, limited);
    for place in 0..table.indexes.len() {
        let choice = through(table, place, situation, wanted, total);
        let price = price(&choice, wanted, limited);
        // The clustered index reads rows directly; any other looks each of them up.
        let price = if table.indexes[place].is_clustered() { price } else { price * 1.5 };
        if price < best_price {
            best = choice;
            best_price = price;
        }
    }
    best
}

fn price(choice: &Choice, wanted: &WantedOrder, limited: bool) -> f64 {
    match (wanted.is_empty() || choice.ordered, limited && !wanted.is_empty()) {
        // A limit stops an ordered read early, unless conditions drop most rows: assume a tenth is read.
        (true, true) => choice.rows.min((choice.rows / 10.0).max(20.0)),
        (true, false) => choice.rows,
        (false, _) => choice.rows * 1.3,
    }
}

fn through(
    table: &Table,
    place: usize,
    situation: &Situation<'_>,
    wanted: &WantedOrder,
    total: f64,
) -> Choice {
    let index = &table.indexes[place];
    let mut access = Access { index: Some(place), ..Access::default() };
    let mut rows = total;
    for column in &index.columns {
        let Some(value) = equality(column.column, situation) else { break };
        access.equal.push(value);
        rows = (rows / 100.0).max(2.0);
    }
    if access.equal.len() == index.columns.len() && index.unique {
        access.unique = true;
        rows = 1.0;
    } else if let Some(next) = index.columns.get(access.equal.len()) {
        narrow(&mut access, next.column, situation, &mut rows);
        if access.any.is_some() && access.equal.len() + 1 == index.columns.len() && index.unique {
            access.unique = true;
        }
    }
    let direction = order_given(index, &access, wanted);
    access.reverse = direction == Some(true);
    Choice {
        ordered: wanted.is_empty() || access.unique && access.any.is_none() || direction.is_some(),
        access,
        rows,
    }
}

/// Bounds, or a list of values, for the column after the equal ones.
fn narrow(access: &mut Access, column: usize, situation: &Situation<'_>, rows: &mut f64) {
    if let Some((any, count)) = list(column, situation) {
        access.any = Some(any);
        *rows = (*rows / 100.0 * count).max(count);
        return;
    }
    for condition in situation.conditions {
        let Some((comparison, value)) = comparison_with(condition, column, situation) else { continue };
        match comparison {
            Comparison::Greater | Comparison::GreaterOrEqual if access.lower.is_none() => {
                access.lower = Some((value.clone(), comparison == Comparison::GreaterOrEqual));
                *rows = (*rows / 4.0).max(2.0);
            }
            Comparison::Less | Comparison::LessOrEqual if access.upper.is_none() => {
                access.upper = Some((value.clone(), comparison == Comparison::LessOrEqual));
                *rows = (*rows / 4.0).max(2.0);
            }
            _ => {}
        }
    }
}

/// Whether reading through the access gives the wanted order: forward, backward (true), or not.
fn order_given(index: &crate::catalog::Index, access: &Access, wanted: &WantedOrder) -> Option<bool> {
    if wanted.is_empty() || access.any.is_some() {
        return None;
    }
    let fixed = |column: usize| index.columns[..access.equal.len()].iter().any(|c| c.column == column);
    let mut rest = index.columns[access.equal.len()..].iter();
    let mut reverse = None;
    for (column, descending, nulls_first) in wanted {
        if fixed(*column) {
            continue;
        }
        let next = rest.next()?;
        if next.column != *column {
            return None;
        }
        let backward = next.descending != *descending;
        let nulls_fit = (next.nulls_first != *nulls_first) == backward;
        if !nulls_fit || reverse.is_some_and(|r| r != backward) {
            return None;
        }
        reverse = Some(backward);
    }
    Some(reverse.unwrap_or(false))
}

fn equality<'a>(column: usize, situation: &Situation<'a>) -> Option<Expr> {
    situation.conditions.iter().find_map(|condition| match comparison_with(condition, column, situation) {
        Some((Comparison::Equal, value)) => Some(value.clone()),
        _ => None,
    })
}

/// `IN (...)` or `= ANY (array)` on the column.
fn list(column: usize, situation: &Situation<'_>) -> Option<(AnyOf, f64)> {
    let slot = situation.slots.get(column).copied().flatten()?;
    situation.conditions.iter().find_map(|condition| match condition {
        Expr::InList(list) if !list.negated && list.operand == Expr::Slot(slot) => {
            let mut items: Vec<Expr> = list.items.clone();
            if let Some(constants) = &list.constants {
                items.extend(constants.iter().cloned().map(Expr::Constant));
            }
            let count = items.len() as f64;
            items.iter().all(|item| available(item, situation)).then_some((AnyOf::List(items), count))
        }
        Expr::Quantified(quantified)
            if !quantified.all
                && quantified.operand == Expr::Slot(slot)
                && quantified.operator.comparison() == Some(Comparison::Equal)
                && available(&quantified.array, situation) =>
        {
            Some((AnyOf::Array(quantified.array.clone()), 10.0))
        }
        _ => None,
    })
}

/// `column comparison value` or its mirror image, where the value is there before the relation is read.
fn comparison_with<'c>(
    condition: &'c Expr,
    column: usize,
    situation: &Situation<'_>,
) -> Option<(Comparison, &'c Expr)> {
    let slot = situation.slots.get(column).copied().flatten()?;
    let Expr::Compare(comparison, operands) = condition else { return None };
    let [left, right] = &**operands;
    if *left == Expr::Slot(slot) && available(right, situation) {
        return Some((*comparison, right));
    }
    if *right == Expr::Slot(slot) && available(left, situation) {
        return Some((comparison.commuted(), left));
    }
    None
}

fn available(expr: &Expr, situation: &Situation<'_>) -> bool {
    let mut all = !expr.is_volatile();
    expr.for_each_slot(&mut |slot| all &= (situation.bound)(slot));
    all
}
