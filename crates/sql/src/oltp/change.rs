//! What a write changes of a row, and what a scan is interested in, as the engine's certifier is
//! told: by columns, and by codes of short values (`cognate_engine::Columns`).
//!
//! A write concerns who has read a column whose stored form it changed: values that are equal and
//! look different (1.5 and 1.50) count as changed. Texts, byte strings and UUIDs have their first
//! eight bytes as their code, numbers of type numeric their ten-thousandths, so that those that
//! begin alike are taken for equal.
//!
//! *Conditions of a scan* come from its filter: a column compared with a constant or a parameter,
//! or with what is computed of such alone and is the same until the transaction ends, `IS NULL`, a
//! boolean column by itself. `IN` and `= ANY` are the least and the greatest of their values: what
//! is between these may meet them. A row for which one of them is not true gives nothing to the
//! statement, not even an error, if no condition that is tested before can fail: so they are taken
//! from the beginning of the filter up to the first that can. What is compared after a cast, by a
//! function, with another column, or joined by OR is no such condition; its columns are still among
//! those that are read.

use std::borrow::Cow;
use std::sync::Arc;

use cognate_engine::{Change, Condition, Interest, Known, Test};

use crate::expr::{Env, Expr};
use crate::function::operator::Comparison;
use crate::plan::Scan;
use crate::types::{Datum, Numeric, Text, TypeId};

/// So many conditions of a scan are told.
const CONDITIONS_MAX: usize = 4;
/// Of so many values in a list the least and the greatest are looked for, each time that a scan
/// begins; a longer list is no condition.
const VALUES_MAX: usize = 100;

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

/// Floats order as their bits do, the negative ones the other way round. NaN comes last, and there
/// is one zero.
fn float(value: f64) -> Known {
    const SIGN: u64 = 1 << 63;
    let bits = (value + 0.0).to_bits();
    Known::Code(match value.is_nan() {
        true => u64::MAX,
        false if bits & SIGN == 0 => bits | SIGN,
        false => !bits,
    })
}

/// The ten-thousandths of a number, further digits cut off. What is larger than their code can be
/// counts as the largest.
fn ten_thousandths(value: &Numeric) -> Known {
    const DIGITS: u32 = 4;
    let Some((mantissa, scale)) = value.small() else {
        // Of very many digits, which are not worth a division for each write.
        return match value.is_finite() {
            true => Known::Unknown,
            false => signed(if value.signum() < 0 { i64::MIN } else { i64::MAX }),
        };
    };
    let power = |digits: u32| 10_i128.checked_pow(digits);
    let whole = match scale.checked_sub(DIGITS) {
        None => power(DIGITS - scale).and_then(|power| mantissa.checked_mul(power)),
        Some(cut) => Some(power(cut).map_or(0, |power| mantissa / power)),
    };
    let most = if mantissa < 0 { i64::MIN } else { i64::MAX };
    signed(whole.and_then(|whole| i64::try_from(whole).ok()).unwrap_or(most))
}

/// The code of a value: among values of one type, or of the integer types, or of both floats, codes
/// order as they do.
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
        Datum::Unsigned(value) => Known::Code(*value),
        Datum::Enum(value) => signed(value.position),
        Datum::Float4(value) => float(f64::from(*value)),
        Datum::Float8(value) => float(*value),
        Datum::Numeric(value) => ten_thousandths(value),
        Datum::Uuid(bytes) => beginning(bytes),
        Datum::Bytea(bytes) => beginning(bytes),
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
        if let Some(condition) = condition(scan, conjunct, env) {
            conditions.push(condition);
        } else if let Some(ends) = among(scan, conjunct, env) {
            conditions.extend(ends);
        } else if can_fail(conjunct) {
            break;
        }
        if conditions.len() >= CONDITIONS_MAX {
            break;
        }
    }
    conditions.truncate(CONDITIONS_MAX);
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

/// The column of the scanned table that an expression is.
fn column_of(scan: &Scan, expr: &Expr) -> Option<usize> {
    match expr {
        Expr::Slot(slot) => scan.columns.iter().find(|column| column.slot == *slot).map(|one| one.column),
        _ => None,
    }
}

/// A value that is known before a row is read.
fn value_of<'a>(expr: &'a Expr, env: &Env<'a>) -> Option<Cow<'a, Datum>> {
    match expr {
        Expr::Constant(_) | Expr::Parameter(_) => expr.value(env).ok(),
        // With an error there is no value: the statement meets it with the first row.
        _ if is_same_for_all_rows(expr) => expr.value(env).ok(),
        _ => None,
    }
}

/// Whether nothing of a row or of another query is in a value, and nothing that may be another one
/// when a later row is looked at: `now()` is, a setting and the statement's time are not, for a
/// cursor goes on after they have changed.
fn is_same_for_all_rows(expr: &Expr) -> bool {
    let is_of_row = expr.any(&mut |part| {
        matches!(
            part,
            Expr::Slot(_)
                | Expr::Outer { .. }
                | Expr::Held
                | Expr::Routine(_)
                | Expr::Domain(_)
                | Expr::Subquery(_)
                | Expr::Aggregate { .. }
                | Expr::SetResult(_)
                | Expr::WindowResult(_)
        )
    });
    !is_of_row && expr.is_fixed()
}

/// A conjunct as a simple condition on a column of the scanned table.
fn condition(scan: &Scan, conjunct: &Expr, env: &Env<'_>) -> Option<Condition> {
    let column_of = |expr: &Expr| column_of(scan, expr);
    let of = |column: usize, test, code| Some(Condition { column: u32::try_from(column).ok()?, test, code });
    match conjunct {
        Expr::Compare(comparison, sides) => {
            let (column, comparison, value) = match &**sides {
                [left, right] if let Some(column) = column_of(left) => (column, *comparison, right),
                [left, right] => (column_of(right)?, comparison.commuted(), left),
            };
            let ty = scan.table.columns[column].ty.id;
            let value = value_of(value, env)?;
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

/// A conjunct that wants a column to have one of several values, as conditions: it is not below the
/// least of them, and not above the greatest.
fn among(scan: &Scan, conjunct: &Expr, env: &Env<'_>) -> Option<[Condition; 2]> {
    let ty = |column: usize| scan.table.columns[column].ty.id;
    let (column, (low, high)) = match conjunct {
        Expr::InList(list) if !list.negated => {
            let constants = list.constants.as_ref().map_or(0, |constants| constants.len());
            if list.items.len() + constants > VALUES_MAX {
                return None;
            }
            let column = column_of(scan, &list.operand)?;
            let items = list.items.iter().map(|item| value_of(item, env));
            let items = items.collect::<Option<Vec<Cow<'_, Datum>>>>()?;
            let constants = list.constants.iter().flat_map(|constants| constants.iter());
            (column, ends(ty(column), items.iter().map(|item| &**item).chain(constants))?)
        }
        Expr::Quantified(any) if !any.all && any.operator.comparison() == Some(Comparison::Equal) => {
            let column = column_of(scan, &any.operand)?;
            let array = value_of(&any.array, env)?;
            let Datum::Array(array) = &*array else { return None };
            if array.elements.len() > VALUES_MAX {
                return None;
            }
            (column, ends(ty(column), array.elements.iter())?)
        }
        _ => return None,
    };
    let column = u32::try_from(column).ok()?;
    let of = |test, code| Condition { column, test, code };
    Some([of(Test::AtLeast, low), of(Test::AtMost, high)])
}

/// The least and the greatest code of values that a column of this type may equal. NULL is none of
/// them.
fn ends<'v>(column: TypeId, values: impl Iterator<Item = &'v Datum>) -> Option<(u64, u64)> {
    let mut ends: Option<(u64, u64)> = None;
    for value in values.filter(|value| !value.is_null()) {
        test(column, Comparison::Equal, value)?;
        let Known::Code(code) = code(value) else { return None };
        ends = Some(ends.map_or((code, code), |(low, high)| (low.min(code), high.max(code))));
    }
    ends
}

/// How codes of a column of this type compare with the code of a value, where its values compare so
/// with the value. Codes of texts, and of what else is cut, tell less than the values.
fn test(column: TypeId, comparison: Comparison, value: &Datum) -> Option<Test> {
    let is_integer = |ty: TypeId| matches!(ty, TypeId::Int2 | TypeId::Int4 | TypeId::Int8);
    let is_float = |ty: TypeId| matches!(ty, TypeId::Float4 | TypeId::Float8);
    let (fits, is_exact) = match value {
        Datum::Float4(_) | Datum::Float8(_) => (is_float(column), true),
        Datum::Numeric(_) | Datum::Uuid(_) | Datum::Bytea(_) => (column.holds(value), false),
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
    use bytes::Bytes;

    use super::*;
    use crate::types::EnumValue;

    fn text(text: &str) -> Datum {
        Datum::text(text)
    }

    fn numeric(text: &str) -> Datum {
        Datum::Numeric(text.parse().expect("a number"))
    }

    #[test]
    fn codes_order_as_values_do() {
        let groups = [
            vec![Datum::Int2(-5), Datum::Int4(-4), Datum::Int8(0), Datum::Int2(7), Datum::Int8(i64::MAX)],
            vec![text(""), text("a"), text("ab"), text("b"), text("b beyond eight"), text("b beyond nine")],
            vec![Datum::Bool(false), Datum::Bool(true)],
            vec![Datum::Date(i32::MIN), Datum::Date(-1), Datum::Date(1)],
            vec![Datum::Oid(1), Datum::Oid(u32::MAX)],
            vec![Datum::Unsigned(1), Datum::Unsigned(u64::MAX)],
            [f64::NEG_INFINITY, -2.5, -1e-300, 0.0, 1e-300, 2.5, f64::INFINITY, f64::NAN]
                .map(Datum::Float8)
                .to_vec(),
            vec![Datum::Float4(-1.5), Datum::Float8(-1.0), Datum::Float4(0.5), Datum::Float8(0.75)],
            [
                "-Infinity",
                "-1e30",
                "-2.5",
                "-0.00001",
                "0",
                "0.00001",
                "1.5",
                "1.7",
                "1e30",
                "Infinity",
                "NaN",
            ]
            .map(numeric)
            .to_vec(),
            vec![Datum::Uuid([0; 16]), Datum::Uuid([7; 16]), Datum::Uuid([200; 16])],
            vec![Datum::Bytea(Bytes::from_static(b"a")), Datum::Bytea(Bytes::from_static(b"b"))],
            [-5, 0, 5].map(|position| Datum::Enum(EnumValue { ty: 1, position })).to_vec(),
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
        let other = Datum::Jsonb(Text::from("1"));
        assert_eq!((code(&Datum::Null), code(&other)), (Known::Null, Known::Unknown));
        assert_eq!(code(&Datum::Float8(-0.0)), code(&Datum::Float8(0.0)));
        assert_eq!(code(&numeric("1.50")), code(&numeric("1.5")));
        assert_ne!(code(&numeric("1.5")), code(&numeric("1.5001")));
        assert_eq!(code(&numeric("1e60")), Known::Unknown, "too long to be divided for each write");
    }

    #[test]
    fn equal_values_that_look_different_are_not_identical() {
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
        assert_eq!(of(TypeId::Float4, Comparison::Less, &Datum::Float8(1.0)), Some(Test::Less));
        assert_eq!(of(TypeId::Numeric, Comparison::Less, &numeric("1")), Some(Test::AtMost));
        assert_eq!(of(TypeId::Numeric, Comparison::NotEqual, &numeric("1")), None);
        assert_eq!(of(TypeId::Uuid, Comparison::Equal, &Datum::Uuid([1; 16])), Some(Test::Equal));
        assert_eq!(of(TypeId::Int4, Comparison::Equal, &numeric("1")), None);
    }
}
