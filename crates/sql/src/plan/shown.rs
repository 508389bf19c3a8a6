//! Conditions of a plan as EXPLAIN prints them: columns by their names, constants as they are
//! written, parameters as `$1`.
//!
//! They are read by people: what a conversion adds is left out where it changes no more than the
//! type, and of what is long or deep (a list, a text, a subquery, a CASE) only a part or its kind
//! is told. That also bounds what it takes: each level of an expression copies what is below it.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use super::access::{Access, AccessKind, KeyValues};
use super::outputs::COMPUTED;
use super::{AggregateNode, GroupNode, Node, Scan};
use crate::bind::WindowCall;
use crate::catalog::IndexKey;
use crate::expr::{Expr, InList, Subquery, SubqueryBody, SubqueryKind};
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
    /// The names of the frames around it, the nearest last.
    pub(super) outer: &'a [Names],
    /// Gives subqueries their numbers, where their plans are told too.
    pub(super) plans: Option<&'a SubPlans>,
}

impl<'a> Words<'a> {
    /// For what refers to nothing around its frame.
    pub(super) fn of(names: &'a Names, format: &'a FormatContext) -> Words<'a> {
        Words { names, format, outer: &[], plans: None }
    }
}

/// The subqueries that were printed, in the order of their numbers.
#[derive(Default)]
pub(super) struct SubPlans(RefCell<Vec<Arc<Node>>>);

impl SubPlans {
    /// The number of a subquery, from 1.
    fn number(&self, node: &Arc<Node>) -> usize {
        let mut all = self.0.borrow_mut();
        let known = all.iter().position(|known| Arc::ptr_eq(known, node));
        let place = known.unwrap_or_else(|| {
            all.push(node.clone());
            all.len() - 1
        });
        place + 1
    }

    /// Those with larger numbers.
    pub(super) fn behind(&self, number: usize) -> Vec<Arc<Node>> {
        self.0.borrow().iter().skip(number).cloned().collect()
    }
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
pub(super) fn names_of_group(group: &GroupNode, frame: usize, words: Words<'_>) -> Names {
    // Behind the frame is what aggregates have in common, each part over those before it.
    let mut names = words.names.clone();
    for (place, part) in group.computed.iter().enumerate() {
        let text = expression(part, Words { names: &names, ..words });
        names.insert(frame + place, text);
    }
    let words = Words { names: &names, ..words };
    let keys = group.keys.iter().map(|key| expression(key, words));
    keys.chain(group.aggregates.iter().map(|one| aggregate(one, words))).enumerate().collect()
}

fn aggregate(node: &AggregateNode, words: Words<'_>) -> String {
    let arguments: Vec<String> = node.arguments.iter().map(|one| expression(one, words)).collect();
    if node.grouping.is_some() {
        return format!("GROUPING({})", arguments.join(", "));
    }
    let distinct = if node.distinct { "DISTINCT " } else { "" };
    // Of DISTINCT the planner has the arguments themselves for an order.
    let is_own = node.distinct && node.order.iter().map(|(expr, ..)| expr).eq(&node.arguments);
    let order: Vec<String> = match is_own {
        true => vec![],
        false => node.order.iter().map(|key| ordered(key, words)).collect(),
    };
    let order = if order.is_empty() { String::new() } else { format!(" ORDER BY {}", order.join(", ")) };
    let call = call(node.function.function.name, &format!("{distinct}{}", arguments.join(", ")), &order);
    call + &filter(node.filter.as_ref(), words)
}

/// A call of an aggregate or a window function; without arguments it is one of rows.
fn call(name: &str, arguments: &str, order: &str) -> String {
    let arguments = if arguments.is_empty() && name == "count" { "*" } else { arguments };
    format!("{name}({arguments}{order})")
}

/// What an aggregate takes its rows by: expression, descending, NULLs first.
fn ordered((expr, descending, nulls_first): &(Expr, bool, bool), words: Words<'_>) -> String {
    expression(expr, words) + order_words(*descending, *nulls_first)
}

/// What stands behind a key; NULLs are the largest values unless the statement says otherwise.
pub(super) fn order_words(descending: bool, nulls_first: bool) -> &'static str {
    match (descending, nulls_first) {
        (false, false) => "",
        (false, true) => " NULLS FIRST",
        (true, false) => " DESC NULLS LAST",
        (true, true) => " DESC",
    }
}

fn filter(condition: Option<&Expr>, words: Words<'_>) -> String {
    condition.map_or_else(String::new, |one| format!(" FILTER (WHERE {})", expression(one, words)))
}

/// A call with OVER. Of the window PostgreSQL tells nothing here either.
pub(super) fn window_call(window: &WindowCall, words: Words<'_>) -> String {
    let arguments: Vec<String> = window.arguments.iter().map(|one| expression(one, words)).collect();
    let call = call(window.function.function.name, &arguments.join(", "), "");
    format!("{call}{} OVER (?)", filter(window.filter.as_ref(), words))
}

/// Conditions all of which are to be met.
pub(super) fn conditions(all: &[Expr], words: Words<'_>) -> String {
    let shown: Vec<String> = all.iter().map(|one| expression(one, words)).collect();
    match shown.as_slice() {
        [one] => one.clone(),
        several => format!("({})", several.join(" AND ")),
    }
}

/// The key columns the access has values for, with these.
pub(super) fn of_key(scan: &Scan, words: Words<'_>) -> String {
    let Access { kind, parts, range, .. } = &scan.access;
    let index = match kind {
        AccessKind::Index(index) => &**index,
        AccessKind::Table => match scan.table.primary_key() {
            Some(index) => index,
            None => return String::new(),
        },
    };
    let columns = &index.columns;
    let name_of = |key: IndexKey| match key {
        IndexKey::Column(place) => quote_identifier(&scan.table.columns[place].name),
        IndexKey::Expression(place) => {
            index.expression(place).map_or_else(String::new, |expression| expression.text.clone())
        }
    };
    let mut all = vec![];
    for (part, column) in parts.iter().zip(columns) {
        let name = name_of(column.key);
        all.push(match &part.values {
            KeyValues::One(value) => format!("{name} = {}", expression(value, words)),
            KeyValues::Null => format!("{name} IS NULL"),
            KeyValues::List(items) => format!("{name} IN ({})", list(items.iter(), words)),
            KeyValues::Array(array) => format!("{name} = ANY ({})", expression(array, words)),
            KeyValues::Subquery(_) => format!("{name} = ANY (subquery)"),
        });
    }
    if let (Some(range), Some(column)) = (range, columns.get(parts.len())) {
        let name = name_of(column.key);
        for bound in range.lower.iter().chain(&range.upper) {
            let value = expression(&bound.value, words);
            all.push(format!("{name} {} {value}", bound.comparison.symbol()));
        }
        if let Some(pattern) = &range.pattern {
            all.push(format!("{name} LIKE {}", expression(pattern, words)));
        }
    }
    all.join(" AND ")
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
        Expr::Outer { depth, slot } => {
            let frame = words.outer.len().checked_sub(*depth).and_then(|place| words.outer.get(place));
            let name = frame.and_then(|names| names.get(slot));
            name.cloned().unwrap_or_else(|| COMPUTED.to_owned())
        }
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
        Expr::Subquery(subquery) => of_subquery(subquery, words),
        // Parts of composite values, rows that are compared.
        _ => COMPUTED.to_owned(),
    }
}

/// A subquery by the number of its plan. As in PostgreSQL that is all, also of one that is
/// compared.
fn of_subquery(subquery: &Subquery, words: Words<'_>) -> String {
    match (words.plans, &subquery.body) {
        (Some(plans), SubqueryBody::Planned { node, cache }) => {
            let is_hashed =
                cache.is_some() && matches!(&subquery.kind, SubqueryKind::Any { hashable: true, .. });
            format!("({}SubPlan {})", if is_hashed { "hashed " } else { "" }, plans.number(node))
        }
        _ => "(subquery)".to_owned(),
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
        let format = FormatContext::default();
        let words = Words::of(&names, &format);
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
        let format = FormatContext::default();
        let words = Words::of(&names, &format);
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
