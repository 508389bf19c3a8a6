//! Rough numbers: how many rows remain, what a step costs. A unit of cost is about one row looked
//! up by its key.
//!
//! What is known of a column's values (`crate::statistics`) says what equality leaves of the rows:
//! a value that is looked for is taken to be one of the rare ones, any other to be as frequent as
//! the others, and columns to be independent. Where nothing is known, constants stand for it.

use crate::bind::ColumnValues;
use crate::expr::Expr;
use crate::function::operator::Comparison;
use crate::types::Datum;

/// Rows of a table nobody knows anything about. A table is never taken to be smaller: it may grow,
/// and a plan that is right for a few rows is hardly better for them.
pub(super) const UNKNOWN_ROWS: f64 = 1000.0;
/// Rows that equality with one value of a non-unique key leaves at most: transactional schemas
/// index what is selective.
pub(super) const ROWS_FOR_KEY: f64 = 30.0;
/// Share of the rows that equality with one value leaves, where nothing is known of the values.
const EQUAL: f64 = 0.05;
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
/// Writing a row to a temporary file, and taking it from there: more than reading one of a table,
/// which need not be kept.
pub(super) const DISK_ROW: f64 = 0.2;
/// More rows than that are taken not to fit into a statement's memory.
pub(super) const MOST_HELD: f64 = 100_000.0;

/// What is known of the values of the column that an expression is; none if nothing is, or if it
/// is no column.
pub(super) type ValuesOf<'a> = dyn Fn(&Expr) -> Option<ColumnValues> + 'a;

/// The share of rows for which a condition holds, if nothing is known of any column.
pub(super) fn selectivity(expr: &Expr) -> f64 {
    selectivity_with(expr, &|_| None)
}

/// The same with what is known of columns.
pub(super) fn selectivity_with(expr: &Expr, values_of: &ValuesOf<'_>) -> f64 {
    let of = |part: &Expr| selectivity_with(part, values_of);
    match expr {
        Expr::Constant(Datum::Bool(true)) => 1.0,
        Expr::Constant(_) => 0.0,
        Expr::Compare(Comparison::Equal, operands) => equality(operands, values_of).unwrap_or(EQUAL),
        Expr::Compare(Comparison::NotEqual, operands) => 1.0 - equality(operands, values_of).unwrap_or(EQUAL),
        Expr::Compare(..) | Expr::RowCompare(_) => BEYOND,
        Expr::InList(list) => {
            let items = list.items.len() + list.constants.as_ref().map_or(0, |set| set.len());
            let share = match values_of(&list.operand) {
                Some(values) => values.share_of_list(items as f64),
                None => (EQUAL * items as f64).min(0.5),
            };
            if list.negated { 1.0 - share } else { share }
        }
        Expr::IsNull { operand, negated } => {
            let known = values_of(operand);
            match *negated {
                true => 1.0 - known.map_or(EQUAL, |values| values.null_share),
                false => known.map_or(EQUAL, ColumnValues::share_of_null),
            }
        }
        Expr::And(parts) => parts.iter().map(of).product(),
        Expr::Or(parts) => parts.iter().map(of).sum::<f64>().min(1.0),
        Expr::Not(operand) => 1.0 - of(operand),
        Expr::Operator(call) if call.operator.name.contains("~~") => 0.1,
        _ => 0.5,
    }
}

/// The share of rows, or of pairs of rows, in which two operands are equal; none if nothing is
/// known of either. Of two columns, the values of the one with fewer are taken to be among those of
/// the other.
pub(super) fn equality([left, right]: &[Expr; 2], values_of: &ValuesOf<'_>) -> Option<f64> {
    match (values_of(left), values_of(right)) {
        (None, None) => None,
        (Some(known), None) => Some(known_beside(known, right)),
        (None, Some(known)) => Some(known_beside(known, left)),
        (Some(left), Some(right)) => Some(both_equal(left, right)),
    }
}

/// The same of a column and of what nothing is known of: what reads no other relation is looked
/// for.
fn known_beside(known: ColumnValues, other: &Expr) -> f64 {
    if reads_slots(other) { known.share_of_one() } else { known.share_of_sought() }
}

/// Whether an expression depends on a row of the level.
pub(super) fn reads_slots(expr: &Expr) -> bool {
    let mut reads = false;
    expr.for_each_slot(&mut |_| reads = true);
    reads
}

/// The share of pairs of rows in which two columns are equal.
pub(super) fn both_equal(left: ColumnValues, right: ColumnValues) -> f64 {
    let neither_is_null = (1.0 - left.null_share) * (1.0 - right.null_share);
    neither_is_null / left.distinct.max(right.distinct).max(1.0)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bind::MOST_TAKEN;

    /// Slot 0 has 50 values and is NULL in a half of the rows, slot 1 has 200, slot 2 has two of
    /// which one is rare.
    fn known(expr: &Expr) -> Option<ColumnValues> {
        let (distinct, null_share, rarest) = match expr {
            Expr::Slot(0) => (50.0, 0.5, 0.01),
            Expr::Slot(1) => (200.0, 0.0, 0.005),
            Expr::Slot(2) => (2.0, 0.0, 0.001),
            _ => return None,
        };
        Some(ColumnValues { distinct, null_share, rarest, most_sought: 1.0 })
    }

    fn compare(comparison: Comparison, left: Expr, right: Expr) -> Expr {
        Expr::Compare(comparison, Box::new([left, right]))
    }

    fn close(left: f64, right: f64) -> bool {
        (left - right).abs() < 1e-12
    }

    #[test]
    fn equality_leaves_one_value_of_those_there_are() {
        let one = || Expr::Constant(Datum::Int4(1));
        let share = |left, right| selectivity_with(&compare(Comparison::Equal, left, right), &known);
        assert!(close(share(Expr::Slot(0), one()), 0.01));
        assert!(close(share(one(), Expr::Slot(1)), 0.005));
        assert!(close(share(Expr::Slot(0), Expr::Slot(1)), 0.0025));
        assert!(close(share(Expr::Slot(7), one()), EQUAL));
        let differs = compare(Comparison::NotEqual, Expr::Slot(1), one());
        assert!(close(selectivity_with(&differs, &known), 0.995));
        let both = Expr::And(vec![differs.clone(), compare(Comparison::Equal, Expr::Slot(0), one())]);
        assert!(close(selectivity_with(&both, &known), 0.00995));
    }

    #[test]
    fn a_value_that_is_looked_for_is_a_rare_one() {
        let share = |left, right| selectivity_with(&compare(Comparison::Equal, left, right), &known);
        assert!(close(share(Expr::Slot(2), Expr::Constant(Datum::Int4(1))), 0.001));
        assert!(close(share(Expr::Constant(Datum::Int4(1)), Expr::Slot(2)), 0.001));
        // That of a row of another relation may be any.
        assert!(close(share(Expr::Slot(2), Expr::Slot(7)), 0.5));
        assert!(close(share(Expr::Slot(7), Expr::Slot(2)), 0.5));
        assert!(close(share(Expr::Slot(2), Expr::Slot(1)), 0.005));
    }

    #[test]
    fn the_share_of_nulls_is_what_is_known_and_small_where_they_are_taken() {
        let is_null = |slot, negated| Expr::IsNull { operand: Box::new(Expr::Slot(slot)), negated };
        let taken = |expr: &Expr| known(expr).map(ColumnValues::taken);
        assert!(close(selectivity_with(&is_null(0, false), &known), 0.5));
        assert!(close(selectivity_with(&is_null(0, true), &known), 0.5));
        assert!(close(selectivity_with(&is_null(0, false), &taken), MOST_TAKEN));
        assert!(close(selectivity_with(&is_null(0, true), &taken), 0.5));
        assert!(close(selectivity_with(&is_null(1, false), &known), 0.0));
        assert!(close(selectivity_with(&is_null(7, false), &known), EQUAL));
    }

    #[test]
    fn without_statistics_the_constants_stay() {
        let equal = compare(Comparison::Equal, Expr::Slot(0), Expr::Slot(1));
        assert!(close(selectivity(&equal), EQUAL));
        assert!(close(selectivity(&Expr::Not(Box::new(equal))), 1.0 - EQUAL));
    }

    #[test]
    fn a_column_of_nulls_equals_nothing() {
        let nulls = ColumnValues { distinct: 0.0, null_share: 1.0, rarest: 0.0, most_sought: 1.0 };
        assert!(close(nulls.share_of_one(), 0.0) && close(both_equal(nulls, nulls), 0.0));
    }
}
