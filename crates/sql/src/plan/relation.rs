//! One query level as the planner looks at it: which relations a condition needs, and how large
//! they are.

use super::estimate::UNKNOWN_ROWS;
use crate::bind::{ColumnValues, Relation, RowCounts, Select, SlotPart, Source};
use crate::catalog::Table;
use crate::expr::Expr;
use crate::types::TypeId;

/// A set of relations of one level, of which there are at most `MAX_RELATIONS`.
pub(super) type Mask = u128;

/// The set of one relation.
pub(super) fn bit(relation: usize) -> Mask {
    1 << relation
}

/// A condition and the relations it looks at.
#[derive(Clone, Debug)]
pub(super) struct Condition {
    pub(super) expr: Expr,
    pub(super) mask: Mask,
    /// Gives another result each time, or is a subquery: not for keys.
    pub(super) volatile: bool,
    pub(super) has_subquery: bool,
}

/// The relations of an expression's slots.
pub(super) fn mask_of(select: &Select, expr: &Expr) -> Mask {
    let mut mask = 0;
    expr.for_each_slot(&mut |slot| mask |= bit(select.slots[slot].relation));
    mask
}

impl Condition {
    pub(super) fn new(select: &Select, expr: Expr) -> Condition {
        let mask = mask_of(select, &expr);
        let volatile = expr.is_volatile();
        let has_subquery = expr.has_subquery();
        Condition { expr, mask, volatile, has_subquery }
    }
}

/// Takes the conditions that must be tested once for each result row, in whatever order it came
/// about.
pub(super) fn take_volatile(conditions: &mut Vec<Condition>) -> Vec<Expr> {
    let (volatile, rest): (Vec<_>, Vec<_>) =
        std::mem::take(conditions).into_iter().partition(|condition| condition.volatile);
    *conditions = rest;
    volatile.into_iter().map(|condition| condition.expr).collect()
}

/// The column of relation `relation` an expression is, if it is one.
pub(super) fn column_of(select: &Select, relation: usize, expr: &Expr) -> Option<usize> {
    let Expr::Slot(slot) = expr else { return None };
    let origin = select.slots[*slot];
    match origin.part {
        SlotPart::Column(column) if origin.relation == relation => Some(column),
        _ => None,
    }
}

/// What is known of the values of an expression, if it is a column of a stored table.
pub(super) fn values_of(select: &Select, row_counts: &dyn RowCounts, expr: &Expr) -> Option<ColumnValues> {
    let Expr::Slot(slot) = expr else { return None };
    let relation = select.slots.get(*slot)?.relation;
    values_within(select, row_counts, relation, expr)
}

/// The same, if it is one of this relation.
pub(super) fn values_within(
    select: &Select,
    row_counts: &dyn RowCounts,
    relation: usize,
    expr: &Expr,
) -> Option<ColumnValues> {
    let Source::Table(table) = &select.relations.get(relation)?.source else { return None };
    row_counts.values(table, column_of(select, relation, expr)?)
}

/// An expression over a table's row as one over the level's places; none if it reads a column that
/// the level does not.
pub(super) fn over_slots(relation: &Relation, expr: &Expr) -> Option<Expr> {
    let mut over = expr.clone();
    let mut is_whole = true;
    over.replace_references(0, &mut |_, column| {
        let slot = relation.slots.get(column).copied().flatten();
        is_whole &= slot.is_some();
        slot.map(Expr::Slot)
    });
    is_whole.then_some(over)
}

/// The places a relation fills: column and place.
pub(super) fn filled_slots(relation: &Relation) -> Vec<(usize, usize)> {
    relation.slots.iter().enumerate().filter_map(|(column, slot)| slot.map(|slot| (column, slot))).collect()
}

/// All places a set of relations fills.
pub(super) fn slots_of(select: &Select, mask: Mask) -> Vec<usize> {
    (select.slots.iter().enumerate())
        .filter(|(_, origin)| mask & bit(origin.relation) != 0)
        .map(|(slot, _)| slot)
        .collect()
}

/// Rows of a relation, as far as it is known without planning it.
pub(super) fn base_rows(relation: &Relation, rows: impl Fn(&Table) -> Option<u64>) -> f64 {
    match &relation.source {
        Source::Table(table) => rows(table).map_or(UNKNOWN_ROWS, |rows| rows as f64).max(UNKNOWN_ROWS),
        Source::Virtual(_) => 100.0,
        Source::Function(_) => 100.0,
        Source::Cte(_) => 100.0,
        Source::Query(_) => 100.0,
        Source::Taken => 1.0,
    }
}

/// The type of an expression's values, where it shows.
pub(super) fn type_of(select: &Select, parameters: &[TypeId], expr: &Expr) -> Option<TypeId> {
    match expr {
        Expr::Slot(slot) => select.slots.get(*slot).map(|slot| slot.ty.id),
        Expr::Parameter(number) => parameters.get(*number).copied(),
        Expr::Cast(cast) => Some(cast.1.to.id),
        Expr::Function(call) => Some(call.function.result.id),
        Expr::Routine(call) => Some(call.ty.id),
        Expr::Operator(call) => Some(call.operator.result.id),
        Expr::Constant(value) => TypeId::all().find(|ty| !value.is_null() && ty.holds(value)),
        _ => None,
    }
}
