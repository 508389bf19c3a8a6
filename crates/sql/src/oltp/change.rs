//! What a write changes of a row, and what a scan is interested in, as the engine's certifier is
//! told: by columns, and by codes of short values (`cognate_engine::Columns`).
//!
//! A write concerns who has read a column whose stored form it changed: values that are equal and
//! look different (1.5 and 1.50) count as changed. Texts have their first eight bytes as their
//! code, so that longer ones that begin alike are taken for equal.
//!
//! *Conditions of a scan* come from its filter: a column compared with a constant or a parameter,
//! `IS NULL`, a boolean column by itself. A row for which one of them is not true gives nothing to
//! the statement, not even an error, if no condition that is tested before can fail: so they are
//! taken from the beginning of the filter up to the first that can. What is compared after a cast,
//! by a function, with another column, or joined by OR is no such condition; its columns are still
//! among those that are read.

use std::borrow::Cow;
use std::sync::Arc;

use cognate_engine::{Change, Condition, Interest, Known, Test};

use crate::expr::{Env, Expr};
use crate::function::operator::Comparison;
use crate::plan::Scan;
use crate::types::{Datum, Text, TypeId};

/// So many conditions of a scan are told.
const CONDITIONS_MAX: usize = 4;

/// A new row.
pub(super) fn inserted(row: &[Datum]) -> Change {
    Change::insert(row.len(), |column| code(&row[column]))
}

/// A row that goes.
pub(super) fn deleted(row: &[Datum]) -> Change {
    Change::delete(row.len(), |column| code(&row[column]))
}

/// A row that gets other values.
pub(super) fn updated(before: &[Datum], after: &[Datum]) -> Change {
    let changed = |column: usize| !is_identical(&before[column], &after[column]);
    Change::update(after.len(), changed, |column| code(&before[column]), |column| code(&after[column]))
}

fn signed(value: i64) -> Known {
    Known::Code(value.cast_unsigned() ^ 1 << 63)
}

/// The first bytes of a text, which order as texts do.
fn beginning(text: &[u8]) -> Known {
    let mut bytes = [0; 8];
    let length = text.len().min(8);
    bytes[..length].copy_from_slice(&text[..length]);
    Known::Code(u64::from_be_bytes(bytes))
}

/// The bytes of a char(n) that count.
fn trimmed(text: &Text) -> &[u8] {
    let bytes = text.as_bytes();
    let length = bytes.iter().rposition(|byte| *byte != b' ').map_or(0, |last| last + 1);
    &bytes[..length]
}

/// The code of a value: among values of one type, or of the integer types, codes order as they do.
fn code(value: &Datum) -> Known {
    match value {
        Datum::Null => Known::Null,
        Datum::Bool(value) => Known::Code(u64::from(*value)),
        Datum::Int2(value) => signed(i64::from(*value)),
        Datum::Int4(value) | Datum::Date(value) => signed(i64::from(*value)),
        Datum::Int8(value) | Datum::Time(value) | Datum::Timestamp(value) | Datum::Timestamptz(value) => {
            signed(*value)
        }
        Datum::Oid(value) => Known::Code(u64::from(*value)),
        Datum::Text(text) => beginning(text.as_bytes()),
        Datum::Bpchar(text) => beginning(trimmed(text)),
        _ => Known::Unknown,
    }
}

/// Whether two values are stored alike.
fn is_identical(a: &Datum, b: &Datum) -> bool {
    match (a, b) {
        (Datum::Float4(a), Datum::Float4(b)) => a.to_bits() == b.to_bits(),
        (Datum::Float8(a), Datum::Float8(b)) => a.to_bits() == b.to_bits(),
        (Datum::Numeric(x), Datum::Numeric(y)) => x == y && x.scale() == y.scale(),
        (Datum::Text(a), Datum::Text(b)) | (Datum::Jsonb(a), Datum::Jsonb(b)) => a.as_bytes() == b.as_bytes(),
        (Datum::Bpchar(a), Datum::Bpchar(b)) => trimmed(a) == trimmed(b),
        (Datum::Interval(a), Datum::Interval(b)) => {
            (a.months, a.days, a.micros) == (b.months, b.days, b.micros)
        }
        // Elements may be equal and look different; what nobody has touched is the same one.
        (Datum::Array(a), Datum::Array(b)) => Arc::ptr_eq(a, b),
        (Datum::Record(a), Datum::Record(b)) => Arc::ptr_eq(a, b),
        // Of these, equal values look the same; values of different types never are.
        _ => std::mem::discriminant(a) == std::mem::discriminant(b) && a == b,
    }
}

/// What a scan is interested in.
pub(super) fn interest(scan: &Scan, env: &Env<'_>) -> Interest {
    let mut conditions = Vec::new();
    for conjunct in &scan.filter {
        match condition(scan, conjunct, env) {
            Some(condition) => conditions.push(condition),
            None if can_fail(conjunct) => break,
            None => {}
        }
        if conditions.len() == CONDITIONS_MAX {
            break;
        }
    }
    Interest::new(scan.reads, conditions)
}

/// Whether evaluating an expression may end in an error.
fn can_fail(expr: &Expr) -> bool {
    expr.any(&mut |part| {
        !matches!(
            part,
            Expr::Constant(_)
                | Expr::Slot(_)
                | Expr::Outer { .. }
                | Expr::Parameter(_)
                | Expr::Compare(..)
                | Expr::And(_)
                | Expr::Or(_)
                | Expr::Not(_)
                | Expr::IsNull { .. }
                | Expr::IsTruth { .. }
                | Expr::InList(_)
        )
    })
}

/// A conjunct as a simple condition on a column of the scanned table.
fn condition(scan: &Scan, conjunct: &Expr, env: &Env<'_>) -> Option<Condition> {
    let column_of = |expr: &Expr| match expr {
        Expr::Slot(slot) => scan.columns.iter().find(|column| column.slot == *slot).map(|one| one.column),
        _ => None,
    };
    let of = |column: usize, test, code| Some(Condition { column: u32::try_from(column).ok()?, test, code });
    match conjunct {
        Expr::Compare(comparison, sides) => {
            let (column, comparison, value) = match &**sides {
                [left, right] if let Some(column) = column_of(left) => (column, *comparison, right),
                [left, right] => (column_of(right)?, comparison.commuted(), left),
            };
            let ty = scan.table.columns[column].ty.id;
            let value: Cow<'_, Datum> = match value {
                Expr::Constant(_) | Expr::Parameter(_) => value.value(env).ok()?,
                _ => return None,
            };
            let Known::Code(code) = code(&value) else { return None };
            of(column, test(ty, comparison, &value)?, code)
        }
        Expr::IsNull { operand, negated } => {
            of(column_of(operand)?, if *negated { Test::IsNotNull } else { Test::IsNull }, 0)
        }
        Expr::Slot(_) => of(column_of(conjunct)?, Test::Equal, 1),
        Expr::Not(operand) => of(column_of(operand)?, Test::Equal, 0),
        _ => None,
    }
}

/// How codes of a column of this type compare with the code of a value, where its values compare so
/// with the value. Codes of texts tell less than the texts.
fn test(column: TypeId, comparison: Comparison, value: &Datum) -> Option<Test> {
    let is_integer = |ty: TypeId| matches!(ty, TypeId::Int2 | TypeId::Int4 | TypeId::Int8);
    let (fits, is_exact) = match value {
        Datum::Int2(_) | Datum::Int4(_) | Datum::Int8(_) => (is_integer(column), true),
        Datum::Text(_) => (matches!(column, TypeId::Text | TypeId::Varchar | TypeId::Name), false),
        Datum::Bpchar(_) => (column == TypeId::Bpchar, false),
        _ => (column.holds(value), true),
    };
    match comparison {
        _ if !fits => None,
        Comparison::Equal => Some(Test::Equal),
        Comparison::NotEqual => is_exact.then_some(Test::Different),
        Comparison::Less => Some(if is_exact { Test::Less } else { Test::AtMost }),
        Comparison::LessOrEqual => Some(Test::AtMost),
        Comparison::Greater => Some(if is_exact { Test::Greater } else { Test::AtLeast }),
        Comparison::GreaterOrEqual => Some(Test::AtLeast),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Datum {
        Datum::text(text)
    }

    #[test]
    fn codes_order_as_values_do() {
        let groups = [
            vec![Datum::Int2(-5), Datum::Int4(-4), Datum::Int8(0), Datum::Int2(7), Datum::Int8(i64::MAX)],
            vec![text(""), text("a"), text("ab"), text("b"), text("b beyond eight"), text("b beyond nine")],
            vec![Datum::Bool(false), Datum::Bool(true)],
            vec![Datum::Date(i32::MIN), Datum::Date(-1), Datum::Date(1)],
            vec![Datum::Oid(1), Datum::Oid(u32::MAX)],
        ];
        for group in groups {
            for pair in group.windows(2) {
                let (Known::Code(less), Known::Code(more)) = (code(&pair[0]), code(&pair[1])) else {
                    panic!("{pair:?}")
                };
                assert!(less <= more && pair[0] < pair[1], "{pair:?}");
            }
        }
        let padded = |text: &str| code(&Datum::Bpchar(Text::from(text)));
        assert_eq!(padded("a  "), padded("a"));
        assert_eq!((code(&Datum::Null), code(&Datum::Float8(1.0))), (Known::Null, Known::Unknown));
    }

    #[test]
    fn equal_values_that_look_different_are_not_identical() {
        let numeric = |text: &str| Datum::Numeric(text.parse().expect("a number"));
        assert!(numeric("1.5") == numeric("1.50") && !is_identical(&numeric("1.5"), &numeric("1.50")));
        assert!(is_identical(&numeric("1.50"), &numeric("1.50")));
        assert!(!is_identical(&Datum::Float8(0.0), &Datum::Float8(-0.0)));
        assert!(is_identical(&Datum::Float8(f64::NAN), &Datum::Float8(f64::NAN)));
        assert!(!is_identical(&Datum::Int4(1), &Datum::Int8(1)));
        assert!(is_identical(&Datum::Null, &Datum::Null) && !is_identical(&Datum::Null, &Datum::Int4(0)));
    }

    #[test]
    fn comparisons_of_codes_are_no_narrower_than_those_of_values() {
        let of = |column, comparison, value: &Datum| test(column, comparison, value);
        assert_eq!(of(TypeId::Int4, Comparison::Less, &Datum::Int8(1)), Some(Test::Less));
        assert_eq!(of(TypeId::Text, Comparison::Less, &text("a")), Some(Test::AtMost));
        assert_eq!(of(TypeId::Text, Comparison::NotEqual, &text("a")), None);
        assert_eq!(of(TypeId::Bpchar, Comparison::Equal, &text("a")), None);
        assert_eq!(of(TypeId::Timestamp, Comparison::Equal, &Datum::Date(1)), None);
    }
}
