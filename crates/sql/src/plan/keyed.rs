//! EXISTS, and a query used as a value, whose query is tied to the ones around it by equalities
//! alone.
//!
//! ```text
//! EXISTS (SELECT FROM b WHERE b.x = a.x AND b.y > 0)          run for each row of a
//! a.x among the values of  SELECT b.x FROM b WHERE b.y > 0    run once
//!
//! (SELECT b.z FROM b WHERE b.x = a.x)                         run for each row of a
//! what a.x has among the rows of  SELECT b.x, b.z FROM b      run once
//! ```
//!
//! Without an index on `b.x`, each run looks at all of `b`. With one, a run is short; and where
//! nearly every row of `b` answers, it is short, too. No estimate tells these apart, so both plans
//! are made, and how many steps the runs have taken decides ([`Sought`]).

use super::estimate::SCAN_ROW;
use super::planner::{Planned, Planner, is_volatile_query};
use crate::bind::{Body, Distinct, Query, Select, Source};
use crate::error::Result;
use crate::expr::{Expr, Sought, SubqueryKind, Typed};
use crate::function::operator::Comparison;
use crate::session::OutputColumn;
use crate::types::Type;

/// Runs that together take fewer steps are short enough in any case.
const PATIENCE_MIN: f64 = 1000.0;

/// A query that refers to nothing around it, and what is looked up among its rows.
pub(super) struct Keyed {
    /// Of the query around.
    operands: Vec<Expr>,
    query: Query,
    gives_value: bool,
}

/// The other form of a query under EXISTS, or of one that gives a value, if it has one. It is of
/// plain tables: what has queries of its own, each of them planned twice, would take twice as long
/// for each level.
pub(super) fn keyed(kind: &SubqueryKind, query: &Query) -> Option<Keyed> {
    let gives_value = match kind {
        SubqueryKind::Exists => false,
        SubqueryKind::Scalar => true,
        _ => return None,
    };
    let Body::Select(select) = &query.body else { return None };
    let is_plain = query.ctes.is_empty()
        && query.limit.is_none()
        && query.offset.is_none()
        && select.group.is_none()
        && !select.has_calls_behind()
        && select.locks.is_empty()
        && select.relations.iter().all(|relation| matches!(relation.source, Source::Table(_)));
    if !is_plain || !select.filter.iter().any(reaches_out) || is_volatile_query(query) {
        return None;
    }
    let mut has_subquery = false;
    query.for_each_expr(&mut |expr, _| has_subquery |= expr.has_subquery());
    if has_subquery {
        return None;
    }
    let mut query = query.clone();
    let Body::Select(select) = &mut query.body else { return None };
    let (mut operands, mut keys) = (Vec::new(), Vec::new());
    let (tied, free): (Vec<Expr>, Vec<Expr>) =
        std::mem::take(&mut select.filter).into_iter().partition(reaches_out);
    select.filter = free;
    for condition in tied {
        let (operand, key) = pair(condition, select)?;
        operands.push(operand);
        keys.push(key);
    }
    if gives_value {
        // Of a row twice there is one with DISTINCT, and too many without.
        let is_plain = select.distinct == Distinct::No && query.conversions.is_empty();
        let value = select.targets.first().filter(|value| is_plain && !reaches_out(&value.expr))?;
        keys.push(value.clone());
    }
    query.columns = keys.iter().map(|key| column(key.ty)).collect();
    query.order.clear();
    query.conversions.clear();
    select.distinct = Distinct::No;
    select.visible = keys.len();
    select.targets = keys;
    (!query.is_correlated()).then_some(Keyed { operands, query, gives_value })
}

/// What is looked up, as the query around has it, and what it is looked up among.
fn pair(condition: Expr, select: &Select) -> Option<(Expr, Typed)> {
    let Expr::Compare(Comparison::Equal, operands) = condition else { return None };
    let [left, right] = *operands;
    let (mut outer, inner) = match (reaches_out(&left), reaches_out(&right)) {
        (true, false) => (left, right),
        (false, true) => (right, left),
        _ => return None,
    };
    let mut is_mixed = false;
    outer.for_each_slot(&mut |_| is_mixed = true);
    if is_mixed {
        return None;
    }
    outer.lower(0, 1);
    let ty = match &inner {
        Expr::Slot(slot) => select.slots[*slot].ty,
        Expr::Cast(cast) => cast.1.to,
        _ => return None,
    };
    Some((outer, Typed::new(inner, ty)))
}

/// Whether it refers to a query around its own.
fn reaches_out(expr: &Expr) -> bool {
    let mut found = false;
    expr.for_each_reference(1, &mut |_, _| found = true);
    found
}

fn column(ty: Type) -> OutputColumn {
    OutputColumn { name: String::new(), ty, table_oid: 0, attribute_number: 0 }
}

impl Planner<'_> {
    /// Plans the other form. `place` is that of its set among the kept results.
    pub(super) fn sought(&mut self, keyed: Keyed, place: usize) -> Result<Sought> {
        let Keyed { operands, query, gives_value } = keyed;
        let Planned { node, cost, .. } = self.query(query)?;
        // To have waited for as long as the set would have taken is to lose half at most.
        let patience = (cost / SCAN_ROW).max(PATIENCE_MIN) as u64;
        Ok(Sought { operands, set: node.into(), gives_value, place, patience })
    }
}
