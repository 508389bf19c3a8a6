//! Rough numbers: how many rows remain, what a step costs. A unit of cost is about one row looked
//! up by its key.

use crate::expr::Expr;
use crate::function::operator::Comparison;
use crate::types::Datum;

/// Rows of a table nobody knows anything about. A table is never taken to be smaller: it may grow,
/// and a plan that is right for a few rows is hardly better for them.
pub(super) const UNKNOWN_ROWS: f64 = 1000.0;
/// Rows that equality with one value of a non-unique key leaves at most: transactional schemas
/// index what is selective.
pub(super) const ROWS_FOR_KEY: f64 = 30.0;
/// Share of the rows between two bounds: whoever gives both knows what they are looking for.
pub(super) const BETWEEN: f64 = 0.005;
/// Share of the rows on one side of a bound.
pub(super) const BEYOND: f64 = 0.33;
/// Share of the rows whose texts begin alike.
pub(super) const PREFIX: f64 = 0.005;
/// Elements of an array or subquery of unknown size.
pub(super) const UNKNOWN_ELEMENTS: f64 = 10.0;
/// LIMIT with a parameter.
pub(super) const UNKNOWN_LIMIT: f64 = 20.0;
/// Reading the next row of a scan.
pub(super) const SCAN_ROW: f64 = 0.15;
/// Reading a row by its key, from an index entry.
pub(super) const FETCH_ROW: f64 = 1.0;
/// Opening a scan.
pub(super) const OPEN: f64 = 1.0;
/// Putting a row into a hash table.
pub(super) const HASH_ROW: f64 = 0.4;
/// Looking one up there.
pub(super) const PROBE_ROW: f64 = 0.25;
/// Taking a row from memory.
pub(super) const MEMORY_ROW: f64 = 0.05;

/// The share of rows for which a condition holds.
pub(super) fn selectivity(expr: &Expr) -> f64 {
    match expr {
        Expr::Constant(Datum::Bool(true)) => 1.0,
        Expr::Constant(_) => 0.0,
        Expr::Compare(Comparison::Equal, _) => 0.05,
        Expr::Compare(Comparison::NotEqual, _) => 0.95,
        Expr::Compare(..) | Expr::RowCompare(_) => BEYOND,
        Expr::InList(list) => {
            let items = list.items.len() + list.constants.as_ref().map_or(0, |set| set.len());
            let share = (0.05 * items as f64).min(0.5);
            if list.negated { 1.0 - share } else { share }
        }
        Expr::IsNull { negated, .. } => {
            if *negated {
                0.95
            } else {
                0.05
            }
        }
        Expr::And(parts) => parts.iter().map(selectivity).product(),
        Expr::Or(parts) => parts.iter().map(selectivity).sum::<f64>().min(1.0),
        Expr::Not(operand) => 1.0 - selectivity(operand),
        Expr::Operator(call) if call.operator.name.contains("~~") => 0.1,
        _ => 0.5,
    }
}

/// What sorting this many rows costs.
pub(super) fn sort_cost(rows: f64) -> f64 {
    rows * rows.max(2.0).log2() * 0.02
}

/// The number a LIMIT stands for; none if there is no limit.
pub(super) fn limit_rows(limit: Option<&Expr>, offset: Option<&Expr>) -> Option<f64> {
    let number = |expr: &Expr| match expr {
        Expr::Constant(Datum::Null) => None,
        Expr::Constant(value) => Some(value.as_i64().map_or(UNKNOWN_LIMIT, |value| value.max(0) as f64)),
        _ => Some(UNKNOWN_LIMIT),
    };
    let limit = number(limit?)?;
    Some(limit + offset.and_then(number).unwrap_or(0.0))
}
