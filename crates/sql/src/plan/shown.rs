//! Conditions of a plan as EXPLAIN prints them: columns by their names, constants as they are
//! written, parameters as `$1`.
//!
//! They are read by people: what a conversion adds is left out where it changes no more than the
//! type, and of what is long or deep (a list, a text, a subquery, a CASE) only a part or its kind
//! is told. That also bounds what it takes: each level of an expression copies what is below it.

use std::collections::BTreeMap;

use super::outputs::COMPUTED;
use super::{AggregateNode, GroupNode, Scan};
use crate::expr::{Expr, InList, SubqueryKind};
use crate::identifier::quote_identifier;
use crate::keys;
use crate::types::{Datum, FormatContext, Type, TypeId};

/// So many items of a list are printed.
const ITEMS: usize = 20;
/// So many levels of an expression are printed.
const LEVELS: usize = 100;
/// So many bytes of a constant are printed.
const BYTES: usize = 1000;
/// What stands for what is not printed.
const MORE: &str = "...";

/// What the places of a frame are called.
pub(super) type Names = BTreeMap<usize, String>;

/// What expressions are printed with.
#[derive(Clone, Copy)]
pub(super) struct Words<'a> {
    /// The names of their frame.
    pub(super) names: &'a Names,
    /// How values are printed.
    pub(super) format: &'a FormatContext,
}

/// The names of a frame, in which the columns of one table need no more than their own.
pub(super) fn names_at(scan: &Scan, names: &Names) -> Names {
    let mut names = names.clone();
    for column in &scan.columns {
        names.insert(column.slot, quote_identifier(&scan.table.columns[column.column].name));
    }
    names
}

/// The names of a group's frame: its keys, then its aggregates.
pub(super) fn names_of_group(group: &GroupNode, words: Words<'_>) -> Names {
    let aggregate = |aggregate: &AggregateNode| {
        let arguments: Vec<String> = aggregate.arguments.iter().map(|one| expression(one, words)).collect();
        let star = if arguments.is_empty() { "*".to_owned() } else { arguments.join(", ") };
        let distinct = if aggregate.distinct { "DISTINCT " } else { "" };
        format!("{}({distinct}{star})", aggregate.function.function.name)
    };
    let keys = group.keys.iter().map(|key| expression(key, words));
    keys.chain(group.aggregates.iter().map(aggregate)).enumerate().collect()
}

/// Conditions all of which are to be met.
pub(super) fn conditions(all: &[Expr], words: Words<'_>) -> String {
    let shown: Vec<String> = all.iter().map(|one| expression(one, words)).collect();
    match shown.as_slice() {
        [one] => one.clone(),
        several => format!("({})", several.join(" AND ")),
    }
}

/// Values one behind the other; not all of many.
pub(super) fn list<'a>(items: impl ExactSizeIterator<Item = &'a Expr>, words: Words<'_>) -> String {
    list_within(items, words, LEVELS)
}

fn list_within<'a>(
    items: impl ExactSizeIterator<Item = &'a Expr>,
    words: Words<'_>,
    levels: usize,
) -> String {
    let is_long = items.len() > ITEMS;
    let mut shown: Vec<String> = items.take(ITEMS).map(|item| within(item, words, levels)).collect();
    shown.extend(is_long.then(|| MORE.to_owned()));
    shown.join(", ")
}

/// An expression over a frame.
pub(super) fn expression(expr: &Expr, words: Words<'_>) -> String {
    within(expr, words, LEVELS)
}

/// So many levels of an expression.
fn within(expr: &Expr, words: Words<'_>, levels: usize) -> String {
    let Some(levels) = levels.checked_sub(1) else { return MORE.to_owned() };
    let show = |expr: &Expr| within(expr, words, levels);
    let joined = |all: &[Expr], by: &str| all.iter().map(show).collect::<Vec<_>>().join(by);
    match expr {
        Expr::Constant(value) => constant(value, words.format),
        Expr::Slot(slot) => words.names.get(slot).cloned().unwrap_or_else(|| COMPUTED.to_owned()),
        Expr::Parameter(place) => format!("${}", place + 1),
        Expr::Compare(comparison, operands) => {
            format!("({} {} {})", show(&operands[0]), comparison.symbol(), show(&operands[1]))
        }
        Expr::Operator(call) => match call.operator.left {
            Some(_) => format!("({} {} {})", show(&call.left), call.operator.name, show(&call.right)),
            None => format!("({} {})", call.operator.name, show(&call.right)),
        },
        Expr::Function(call) => format!("{}({})", call.function.function.name, joined(&call.arguments, ", ")),
        Expr::Routine(call) => format!("function({})", joined(&call.arguments, ", ")),
        Expr::Cast(cast) if cast.1.from.id == cast.1.to.id => show(&cast.0),
        Expr::Cast(cast) => format!("({})::{}", show(&cast.0), cast.1.to.format_with(words.format)),
        Expr::Domain(value) => show(&value.operand),
        Expr::And(all) => format!("({})", joined(all, " AND ")),
        Expr::Or(all) => format!("({})", joined(all, " OR ")),
        Expr::Not(operand) => format!("(NOT {})", show(operand)),
        Expr::IsNull { operand, negated } => format!("({} IS {}NULL)", show(operand), not(*negated)),
        Expr::IsTruth { operand, value, negated } => {
            let value = value.map_or("UNKNOWN", |value| if value { "TRUE" } else { "FALSE" });
            format!("({} IS {}{value})", show(operand), not(*negated))
        }
        Expr::IsDistinct { operands, negated } => {
            format!("({} IS {}DISTINCT FROM {})", show(&operands[0]), not(*negated), show(&operands[1]))
        }
        Expr::Coalesce(all) => format!("COALESCE({})", joined(all, ", ")),
        Expr::Extreme { greatest, operands } => {
            format!("{}({})", if *greatest { "GREATEST" } else { "LEAST" }, joined(operands, ", "))
        }
        Expr::InList(list) => in_list(list, words, levels),
        Expr::Quantified(call) => {
            let word = if call.all { "ALL" } else { "ANY" };
            format!("({} {} {word} ({}))", show(&call.operand), call.operator.name, show(&call.array))
        }
        Expr::Array(array) => format!("ARRAY[{}]", list_within(array.items.iter(), words, levels)),
        Expr::Row(items, _) => format!("ROW({})", joined(items, ", ")),
        Expr::Case(_) => "CASE ... END".to_owned(),
        Expr::NullIf(call) => format!("NULLIF({}, ...)", show(&call.value)),
        Expr::Subquery(subquery) => match &subquery.kind {
            SubqueryKind::Exists | SubqueryKind::Sought(_) => "EXISTS (subquery)".to_owned(),
            SubqueryKind::Any { operands, operators, all, .. } => {
                let symbol = operators.first().map_or("=", |operator| operator.name);
                let word = if *all { "ALL" } else { "ANY" };
                format!("({} {symbol} {word} (subquery))", joined(operands, ", "))
            }
            _ => "(subquery)".to_owned(),
        },
        // Parts of composite values, rows that are compared, what is of a query around this one.
        _ => COMPUTED.to_owned(),
    }
}

fn not(negated: bool) -> &'static str {
    if negated { "NOT " } else { "" }
}

fn in_list(known: &InList, words: Words<'_>, levels: usize) -> String {
    let operand = within(&known.operand, words, levels);
    let mut constants: Vec<&Datum> = known.constants.iter().flat_map(|set| set.iter()).collect();
    // By their keys: whole values may take too long to be compared, and the order that they would
    // have then is none for a sort.
    constants.sort_by_cached_key(|value| keys::encode(std::slice::from_ref(*value)));
    let is_long = constants.len() + known.items.len() > ITEMS;
    let shown = constants.into_iter().map(|value| constant(value, words.format));
    let computed = known.items.iter().map(|item| within(item, words, levels));
    let mut items: Vec<String> = shown.chain(computed).take(ITEMS).collect();
    items.extend(is_long.then(|| MORE.to_owned()));
    format!("({operand} {}IN ({}))", not(known.negated), items.join(", "))
}

/// A value as a statement would have it.
fn constant(value: &Datum, format: &FormatContext) -> String {
    let id = match value {
        Datum::Null => return "NULL".to_owned(),
        Datum::Bool(value) => return value.to_string(),
        Datum::Int2(_) => TypeId::Int2,
        Datum::Int4(_) => TypeId::Int4,
        Datum::Int8(_) => TypeId::Int8,
        Datum::Float4(_) => TypeId::Float4,
        Datum::Float8(_) => TypeId::Float8,
        Datum::Numeric(_) => TypeId::Numeric,
        Datum::Text(_) | Datum::Enum(_) => TypeId::Text,
        Datum::Bpchar(_) => TypeId::Bpchar,
        Datum::Jsonb(_) => TypeId::Jsonb,
        Datum::Bytea(_) => TypeId::Bytea,
        Datum::Date(_) => TypeId::Date,
        Datum::Time(_) => TypeId::Time,
        Datum::Timestamp(_) => TypeId::Timestamp,
        Datum::Timestamptz(_) => TypeId::Timestamptz,
        Datum::Interval(_) => TypeId::Interval,
        Datum::Uuid(_) => TypeId::Uuid,
        Datum::Inet(_) => TypeId::Inet,
        Datum::Oid(_) => TypeId::Oid,
        Datum::Unsigned(_) => TypeId::Xid8,
        Datum::Array(array) => array.element.array().unwrap_or(array.element),
        Datum::Record(_) => TypeId::Record,
    };
    let mut text = value.to_text_string(Type::new(id), format);
    if text.len() > BYTES {
        text.truncate(text.floor_char_boundary(BYTES));
        text.push_str(MORE);
    }
    match value {
        Datum::Int2(_) | Datum::Int4(_) | Datum::Int8(_) | Datum::Oid(_) => text,
        // NaN, the infinities and what is cut off are no literals of numbers.
        Datum::Numeric(_) if text.ends_with(|last: char| last.is_ascii_digit()) => text,
        Datum::Enum(_) => format!("'{}'", text.replace('\'', "''")),
        _ => format!("'{}'::{}", text.replace('\'', "''"), id.sql_name()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::function::operator::Comparison;

    #[test]
    fn conditions_are_told_with_their_values() {
        let names: Names = [(0, "id".to_owned()), (1, "name".to_owned())].into();
        let compare = |comparison, left, right| Expr::Compare(comparison, Box::new([left, right]));
        let by_id = compare(Comparison::Greater, Expr::Slot(0), Expr::Constant(Datum::Int4(7)));
        let by_name = compare(Comparison::Equal, Expr::Slot(1), Expr::Constant("it's".into()));
        let by_parameter = compare(Comparison::LessOrEqual, Expr::Slot(0), Expr::Parameter(1));
        let words = Words { names: &names, format: &FormatContext::default() };
        assert_eq!(conditions(std::slice::from_ref(&by_id), words), "(id > 7)");
        let both = conditions(&[by_id, by_name.clone()], words);
        assert_eq!(both, "((id > 7) AND (name = 'it''s'::text))");
        let either = Expr::Or(vec![by_parameter, Expr::Not(Box::new(by_name))]);
        assert_eq!(expression(&either, words), "((id <= $2) OR (NOT (name = 'it''s'::text)))");
        let missing = Expr::IsNull { operand: Box::new(Expr::Slot(9)), negated: true };
        assert_eq!(expression(&missing, words), "(?column? IS NOT NULL)");
        let many: Vec<Expr> = (0..30).map(|n| Expr::Constant(Datum::Int8(n))).collect();
        assert!(list(many.iter(), words).ends_with("18, 19, ..."));
    }

    #[test]
    fn of_what_is_long_or_deep_a_part_is_told() {
        let names = Names::new();
        let words = Words { names: &names, format: &FormatContext::default() };
        let deep = (0..1000).fold(Expr::Slot(0), |inner, _| Expr::Not(Box::new(inner)));
        let shown = expression(&deep, words);
        assert!(shown.contains("(NOT (NOT ...))"), "{shown}");
        assert_eq!(shown.matches("NOT").count(), LEVELS);
        let long = expression(&Expr::Constant("ü".repeat(BYTES).as_str().into()), words);
        assert_eq!(long, format!("'{}...'::text", "ü".repeat(BYTES / 2)));
        let items: Vec<Expr> = (0..30).map(Expr::Slot).collect();
        let operand = Expr::Constant(Datum::Int4(1));
        let known = InList { operand, items, negated: true, constants: None };
        let shown = expression(&Expr::InList(Box::new(known)), words);
        assert!(shown.starts_with("(1 NOT IN (?column?, ") && shown.ends_with(", ...))"), "{shown}");
        assert_eq!(shown.matches(COMPUTED).count(), ITEMS);
    }
}
