//! What is settled on the syntax tree before DataFusion plans it: PostgreSQL's names of output columns and types of literals, forms
//! that DataFusion knows by another one, and what it would pass over in silence.

use std::collections::HashSet;
use std::ops::ControlFlow;

use sqlparser::ast::{
    CastKind, DataType, Distinct, ExactNumberInfo, Expr, Function, FunctionArg, FunctionArgExpr,
    FunctionArgumentList, FunctionArguments, GroupByExpr, Ident, LimitClause, NamedWindowExpr, ObjectName,
    OrderByKind, Query, Select, SelectItem, SetExpr, Statement, TableFactor, TrimWhereField, TypedString,
    UnaryOperator, Value, ValueWithSpan, Values, VisitMut, VisitorMut, WindowFrameBound, WindowSpec,
    WindowType,
};

use super::mapping;
use crate::bind::{figure_name, resolve_type};
use crate::error::{Result, SqlError};
use crate::types::{Type, TypeId};

/// Ends the name of an output column that another one has too, as DataFusion wants them distinct; and that of a prefix operator
/// that became a function, as DataFusion's own take no numeric that travels by its digits.
const MARK: char = '\u{1}';

/// The statement with every output column named and every literal typed. 0A000.
pub(super) fn prepare(statement: &Statement) -> Result<Statement> {
    let mut statement = statement.clone();
    if let ControlFlow::Break(error) = statement.visit(&mut Prepare) {
        return Err(error);
    }
    let ControlFlow::Continue(()) = statement.visit(&mut Unmark);
    Ok(statement)
}

/// An output column's name without what [`prepare`] put behind it.
pub(super) fn shown_name(name: &str) -> &str {
    name.split(MARK).next().unwrap_or(name)
}

/// The prefix operator that a function of this name stands for.
pub(super) fn prefix_operator(name: &str) -> Option<&str> {
    name.strip_suffix(MARK)
}

struct Prepare;

/// Takes the marks of [`keep_number`] away again.
struct Unmark;

impl VisitorMut for Unmark {
    type Break = std::convert::Infallible;

    fn pre_visit_value(&mut self, value: &mut ValueWithSpan) -> ControlFlow<Self::Break> {
        if let Value::Number(_, kept) = &mut value.value {
            *kept = false;
        }
        ControlFlow::Continue(())
    }
}

impl VisitorMut for Prepare {
    type Break = SqlError;

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<SqlError> {
        if let Some(lock) = query.locks.first() {
            return refuse(lock);
        }
        if query.with.as_ref().is_some_and(|with| with.recursive) {
            // Each round would read its tables again, but a scan is read once.
            return refuse("WITH RECURSIVE");
        }
        limit_by_fetch(query)?;
        if let Some(LimitClause::LimitOffset { limit, offset, .. }) = &mut query.limit_clause {
            limit.iter_mut().for_each(keep_number);
            offset.iter_mut().for_each(|offset| keep_number(&mut offset.value));
        }
        if let Some(OrderByKind::Expressions(keys)) = query.order_by.as_mut().map(|order| &mut order.kind) {
            keys.iter_mut().for_each(|key| keep_number(&mut key.expr));
        }
        prepare_body(&mut query.body)
    }

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<SqlError> {
        if let GroupByExpr::Expressions(keys, _) = &mut select.group_by {
            for key in keys {
                keep_number(key);
                if let Expr::GroupingSets(sets) | Expr::Cube(sets) | Expr::Rollup(sets) = key {
                    sets.iter_mut().flatten().for_each(keep_number);
                }
            }
        }
        if let Some(Distinct::On(keys)) = &mut select.distinct {
            keys.iter_mut().for_each(keep_number);
        }
        for window in &mut select.named_window {
            if let NamedWindowExpr::WindowSpec(spec) = &mut window.1 {
                keep_frame(spec);
            }
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<SqlError> {
        match factor {
            TableFactor::Table { sample: None, args: None, with_hints, .. } if with_hints.is_empty() => {}
            TableFactor::Derived { .. } | TableFactor::NestedJoin { .. } => {}
            other => return refuse(other),
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<SqlError> {
        match expr {
            Expr::Value(ValueWithSpan { value: Value::Number(digits, false), .. }) => {
                *expr = typed_literal(number_type(digits), std::mem::take(digits));
            }
            Expr::Interval(interval) => match interval.value.as_ref() {
                Expr::Value(ValueWithSpan { value: Value::SingleQuotedString(text), .. })
                    if interval.leading_field.is_none() =>
                {
                    let data_type = DataType::Interval { fields: None, precision: None };
                    *expr = typed_literal(data_type, text.clone());
                }
                _ => return refuse(expr),
            },
            Expr::UnaryOp { op: UnaryOperator::Not, .. } => {}
            Expr::UnaryOp { op, expr: operand } => {
                let operand = std::mem::replace(operand.as_mut(), Expr::Value(Value::Null.with_empty_span()));
                *expr = applied(*op, operand);
            }
            Expr::Trim { trim_where, .. } => {
                trim_where.get_or_insert(TrimWhereField::Both);
            }
            Expr::Function(Function { over: Some(WindowType::WindowSpec(spec)), .. }) => keep_frame(spec),
            Expr::Cast { data_type, .. } => return castable(data_type),
            Expr::TypedString(literal) => return castable(&literal.data_type),
            Expr::AtTimeZone { .. } | Expr::Collate { .. } => return refuse(expr),
            _ => {}
        }
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<SqlError> {
        if let Expr::Function(function) = expr
            && function.over.is_some()
            && let Some(data_type) = counting_type(&function.name.to_string())
        {
            let call = std::mem::replace(expr, Expr::Value(Value::Null.with_empty_span()));
            *expr = Expr::Cast {
                kind: CastKind::DoubleColon,
                expr: Box::new(call),
                data_type,
                array: false,
                format: None,
            };
        }
        ControlFlow::Continue(())
    }
}

/// The type of a window function that counts: DataFusion's count without a sign.
fn counting_type(name: &str) -> Option<DataType> {
    match name.to_ascii_lowercase().as_str() {
        "row_number" | "rank" | "dense_rank" => Some(DataType::BigInt(None)),
        "ntile" => Some(DataType::Int(None)),
        _ => None,
    }
}

/// Whether values can be converted to this type here.
fn castable(data_type: &DataType) -> ControlFlow<SqlError> {
    let ty = match resolve_type(data_type) {
        Ok(ty) => ty,
        Err(error) => return ControlFlow::Break(error),
    };
    // DataFusion takes numeric without a precision for numeric(38,10): only the one can be let through.
    if ty.modifier >= 0 && (ty.id != TypeId::Numeric || ty == Type::numeric(38, 10)) {
        return refuse(format!("type {}", ty.format()));
    }
    match mapping::arrow_type(ty) {
        Ok(_) => ControlFlow::Continue(()),
        Err(error) => ControlFlow::Break(error),
    }
}

/// The type of a number as it is written.
fn number_type(digits: &str) -> DataType {
    if digits.parse::<i32>().is_ok() {
        DataType::Int(None)
    } else if digits.parse::<i64>().is_ok() {
        DataType::BigInt(None)
    } else {
        DataType::Numeric(ExactNumberInfo::None)
    }
}

fn typed_literal(data_type: DataType, text: String) -> Expr {
    let value = Value::SingleQuotedString(text).with_empty_span();
    Expr::TypedString(TypedString { data_type, value, uses_odbc_syntax: false })
}

fn applied(sign: UnaryOperator, operand: Expr) -> Expr {
    let name = format!("{sign}{MARK}");
    Expr::Function(Function {
        name: ObjectName::from(vec![Ident::with_quote('"', name)]),
        uses_odbc_syntax: false,
        parameters: FunctionArguments::None,
        args: FunctionArguments::List(FunctionArgumentList {
            duplicate_treatment: None,
            args: vec![FunctionArg::Unnamed(FunctionArgExpr::Expr(operand))],
            clauses: Vec::new(),
        }),
        filter: None,
        null_treatment: None,
        over: None,
        within_group: Vec::new(),
    })
}

/// Marks a number that is no value, but a place or a count, to be left as it is. PostgreSQL has no use for the flag.
fn keep_number(expr: &mut Expr) {
    if let Expr::Value(ValueWithSpan { value: Value::Number(_, kept), .. }) = expr {
        *kept = true;
    }
}

fn keep_frame(spec: &mut WindowSpec) {
    let Some(frame) = &mut spec.window_frame else { return };
    for bound in std::iter::once(&mut frame.start_bound).chain(frame.end_bound.as_mut()) {
        if let WindowFrameBound::Preceding(Some(offset)) | WindowFrameBound::Following(Some(offset)) = bound {
            keep_number(offset);
        }
    }
}

/// FETCH FIRST as LIMIT.
fn limit_by_fetch(query: &mut Query) -> ControlFlow<SqlError> {
    let Some(fetch) = query.fetch.take() else { return ControlFlow::Continue(()) };
    if fetch.with_ties || fetch.percent {
        return refuse(fetch);
    }
    let one = || Expr::Value(Value::Number("1".to_owned(), false).with_empty_span());
    let count = Some(fetch.quantity.unwrap_or_else(one));
    match &mut query.limit_clause {
        None => {
            let clause = LimitClause::LimitOffset { limit: count, offset: None, limit_by: Vec::new() };
            query.limit_clause = Some(clause);
        }
        Some(LimitClause::LimitOffset { limit: limit @ None, .. }) => *limit = count,
        Some(_) => return ControlFlow::Break(SqlError::syntax("multiple LIMIT clauses not allowed")),
    }
    ControlFlow::Continue(())
}

fn refuse(what: impl std::fmt::Display) -> ControlFlow<SqlError> {
    ControlFlow::Break(SqlError::unsupported(format!("\"{what}\" in this kind of query")))
}

fn prepare_body(body: &mut SetExpr) -> ControlFlow<SqlError> {
    match body {
        SetExpr::Select(select) => name_targets(select),
        SetExpr::SetOperation { left, right, .. } => {
            prepare_body(left)?;
            prepare_body(right)
        }
        SetExpr::Values(values) => of_one_kind(values),
        // A query within parentheses is visited by itself.
        _ => ControlFlow::Continue(()),
    }
}

fn name_targets(select: &mut Select) -> ControlFlow<SqlError> {
    if let Some(into) = &select.into {
        return refuse(into);
    }
    // Columns keep their own names, by which ORDER BY finds them.
    let mut names: HashSet<String> = select.projection.iter().filter_map(column_name).collect();
    let mut columns: Vec<(String, Expr)> = Vec::new();
    for item in &mut select.projection {
        let name = match item {
            SelectItem::UnnamedExpr(expr @ (Expr::Identifier(_) | Expr::CompoundIdentifier(_))) => {
                let name = figure_name(expr);
                if !columns.iter().any(|(other, column)| *other == name && may_be_one(column, expr)) {
                    columns.push((name, expr.clone()));
                    continue;
                }
                name
            }
            SelectItem::UnnamedExpr(expr) => figure_name(expr),
            SelectItem::ExprWithAlias { alias, .. } => crate::bind::object_name(alias),
            _ => continue,
        };
        let mut distinct = name.clone();
        while !names.insert(distinct.clone()) {
            distinct.push(MARK);
        }
        let alias = Ident::with_quote('"', distinct);
        *item = match std::mem::replace(item, SelectItem::Wildcard(Default::default())) {
            SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } => {
                SelectItem::ExprWithAlias { expr, alias }
            }
            other => other,
        };
    }
    ControlFlow::Continue(())
}

fn column_name(item: &SelectItem) -> Option<String> {
    match item {
        SelectItem::UnnamedExpr(expr @ (Expr::Identifier(_) | Expr::CompoundIdentifier(_))) => {
            Some(figure_name(expr))
        }
        _ => None,
    }
}

/// Whether these two, of one name, may be the same column.
fn may_be_one(left: &Expr, right: &Expr) -> bool {
    left == right || matches!(left, Expr::Identifier(_)) || matches!(right, Expr::Identifier(_))
}

/// PostgreSQL takes an untyped string for a number where the other rows have numbers; DataFusion takes the numbers for strings.
fn of_one_kind(values: &Values) -> ControlFlow<SqlError> {
    let kind = |expr: &Expr| match expr {
        Expr::Value(ValueWithSpan { value: Value::SingleQuotedString(_), .. }) => Some(true),
        Expr::Value(ValueWithSpan { value: Value::Null, .. }) => None,
        _ => Some(false),
    };
    let columns = values.rows.first().map_or(0, |row| row.content.len());
    for place in 0..columns {
        let mut kinds = values.rows.iter().filter_map(|row| row.content.get(place).and_then(kind));
        if let Some(first) = kinds.next()
            && kinds.any(|other| other != first)
        {
            return refuse("VALUES with strings and others in one column");
        }
    }
    ControlFlow::Continue(())
}
