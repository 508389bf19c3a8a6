//! Conditions moved into derived tables, where they can choose an index.

use super::relation::{Condition, bit};
use crate::bind::{Body, Distinct, Query, Select, SetKind, SlotPart, Source};
use crate::expr::Expr;

/// Moves conditions on single derived tables into them where that changes nothing else.
pub(super) fn push_down(select: &mut Select, conditions: &mut Vec<Condition>) {
    for relation in 0..select.relations.len() {
        let relation_of = &mut select.relations[relation];
        if relation_of.nullable {
            continue;
        }
        let Source::Query(query) = &mut relation_of.source else { continue };
        let columns: Vec<Option<usize>> = (select.slots.iter())
            .map(|origin| match origin.part {
                SlotPart::Column(column) if origin.relation == relation => Some(column),
                _ => None,
            })
            .collect();
        conditions.retain(|condition| {
            let movable = condition.mask == bit(relation) && !condition.volatile && !condition.has_subquery;
            let moves = movable && takes(query, &condition.expr, &columns);
            if moves {
                push_into(query, &condition.expr, &columns);
            }
            !moves
        });
    }
}

/// Whether a condition on a query's columns can be added to the query, to both sides of each UNION
/// in it. `columns` gives for each place of the outer frame the query's column.
fn takes(query: &Query, condition: &Expr, columns: &[Option<usize>]) -> bool {
    if query.limit.is_some() || query.offset.is_some() || query.conversions.iter().any(Option::is_some) {
        return false;
    }
    match &query.body {
        Body::Select(select) => moved_into(select, condition, columns).is_some(),
        Body::SetOperation(operation) if operation.kind == SetKind::Union => {
            takes(&operation.left, condition, columns) && takes(&operation.right, condition, columns)
        }
        _ => false,
    }
}

/// Adds a condition that the query takes.
fn push_into(query: &mut Query, condition: &Expr, columns: &[Option<usize>]) {
    match &mut query.body {
        Body::Select(select) => {
            if let Some(moved) = moved_into(select, condition, columns) {
                moved.into_conjuncts(&mut select.filter);
            }
        }
        Body::SetOperation(operation) => {
            push_into(&mut operation.left, condition, columns);
            push_into(&mut operation.right, condition, columns);
        }
        Body::Values(_) => {}
    }
}

/// The condition over a select's input; none if it cannot be tested there.
fn moved_into(select: &Select, condition: &Expr, columns: &[Option<usize>]) -> Option<Expr> {
    if matches!(select.distinct, Distinct::On(_))
        || !select.locks.is_empty()
        || !select.set_returning.is_empty()
    {
        return None;
    }
    // The condition moves one level in: its own frame becomes the frame around.
    let mut moved = condition.clone();
    moved.raise(0, 1);
    let mut possible = true;
    moved.replace_references(1, &mut |_, slot| {
        let column = columns.get(slot).copied().flatten();
        let replaced = column.and_then(|column| input_expr(select, column));
        possible &= replaced.is_some();
        replaced
    });
    // An outer reference at level 0 of the moved expression is `Outer { depth: 1 }`; replaced ones
    // are the select's own.
    possible.then_some(moved)
}

/// A target as an expression over the select's input, if it is the same for all rows a target row
/// stands for.
fn input_expr(select: &Select, column: usize) -> Option<Expr> {
    let target = &select.targets.get(column)?.expr;
    // A condition that leaves whole partitions is none for the windows.
    if !select.windows.iter().all(|window| window.partition.contains(target)) {
        return None;
    }
    let is_usable = |expr: &Expr| !expr.is_volatile() && !expr.has_subquery();
    if !is_usable(target) {
        return None;
    }
    match &select.group {
        None => Some(target.clone()),
        Some(group) => match target {
            Expr::Slot(place) => {
                // Computed a second time it may be another value than the one it was grouped by.
                let key = group.keys.get(*place).filter(|key| is_usable(key))?;
                group.common_keys().contains(key).then(|| key.clone())
            }
            _ => None,
        },
    }
}
