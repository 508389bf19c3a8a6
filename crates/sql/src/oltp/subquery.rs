//! Subqueries within expressions.
//!
//! One that depends on nothing around it is run once for an execution, and its result kept: its rows, and for `IN` over
//! hashable values a set of them.

use std::collections::HashSet;
use std::sync::Arc;

use super::rows::{Rows, collect};
use super::{Context, Row};
use crate::error::{Result, SqlError, sqlstate};
use crate::expr::{Env, Subquery, SubqueryBody, SubqueryKind, quantify};
use crate::function::operator::ResolvedOperator;
use crate::plan::Node;
use crate::types::{Array, Datum};

/// The kept result of a subquery.
#[derive(Debug)]
pub struct SubqueryResult {
    rows: Vec<Row>,
    /// For IN: the rows without NULLs, and whether there is one with NULLs.
    set: Option<(HashSet<Row>, bool)>,
}

/// The value of a subquery in an expression.
pub(crate) fn evaluate(subquery: &Subquery, env: &Env<'_>) -> Result<Datum> {
    let SubqueryBody::Planned { node, cache } = &subquery.body else {
        return Err(SqlError::internal("a subquery is not planned"));
    };
    let context = Context { execution: env.execution, outer: Some(env) };
    if let Some(place) = cache {
        let result = kept(subquery, node, *place, &context)?;
        return from_rows(subquery, &result, env);
    }
    match &subquery.kind {
        SubqueryKind::Exists => {
            let mut rows = Rows::new(node);
            rows.open(&context)?;
            Ok(Datum::Bool(rows.next(&context)?.is_some()))
        }
        SubqueryKind::Scalar => Ok(single(node, &context)?.map_or(Datum::Null, |mut row| row.swap_remove(0))),
        SubqueryKind::Column(column) => {
            Ok(single(node, &context)?.and_then(|row| row.get(*column).cloned()).unwrap_or(Datum::Null))
        }
        SubqueryKind::Any { .. } | SubqueryKind::Array(_) => {
            let result = SubqueryResult { rows: collect(node, &context)?, set: None };
            from_rows(subquery, &result, env)
        }
    }
}

/// The only row. 21000 if there are more.
fn single(node: &Arc<Node>, context: &Context<'_>) -> Result<Option<Row>> {
    let mut rows = Rows::new(node);
    rows.open(context)?;
    let row = rows.next(context)?;
    if row.is_some() && rows.next(context)?.is_some() {
        return Err(too_many());
    }
    Ok(row)
}

fn too_many() -> SqlError {
    SqlError::new(
        sqlstate::CARDINALITY_VIOLATION,
        "more than one row returned by a subquery used as an expression",
    )
}

fn kept(
    subquery: &Subquery,
    node: &Arc<Node>,
    place: usize,
    context: &Context<'_>,
) -> Result<Arc<SubqueryResult>> {
    let runtime = context.execution.runtime;
    if let Some(Some(result)) = runtime.subqueries.borrow().get(place) {
        return Ok(result.clone());
    }
    let rows = match &subquery.kind {
        SubqueryKind::Exists => {
            let mut rows = Rows::new(node);
            rows.open(context)?;
            rows.next(context)?.into_iter().collect()
        }
        SubqueryKind::Scalar | SubqueryKind::Column(_) => single(node, context)?.into_iter().collect(),
        _ => collect(node, context)?,
    };
    let set = match &subquery.kind {
        SubqueryKind::Any { hashable: true, all: false, .. } => {
            let with_null = rows.iter().any(|row| row.iter().any(Datum::is_null));
            Some((rows.iter().filter(|row| !row.iter().any(Datum::is_null)).cloned().collect(), with_null))
        }
        _ => None,
    };
    let result = Arc::new(SubqueryResult { rows, set });
    match runtime.subqueries.borrow_mut().get_mut(place) {
        Some(slot) => *slot = Some(result.clone()),
        None => return Err(SqlError::internal("a subquery's result has no place")),
    }
    Ok(result)
}

fn from_rows(subquery: &Subquery, result: &SubqueryResult, env: &Env<'_>) -> Result<Datum> {
    let rows = &result.rows;
    match &subquery.kind {
        SubqueryKind::Exists => Ok(Datum::Bool(!rows.is_empty())),
        SubqueryKind::Scalar => Ok(rows.first().and_then(|row| row.first()).cloned().unwrap_or(Datum::Null)),
        SubqueryKind::Column(column) => {
            Ok(rows.first().and_then(|row| row.get(*column)).cloned().unwrap_or(Datum::Null))
        }
        SubqueryKind::Array(element) => {
            let elements = rows.iter().map(|row| row.first().cloned().unwrap_or(Datum::Null)).collect();
            Ok(Array::new(*element, elements).into())
        }
        SubqueryKind::Any { operands, operators, all, .. } => {
            let values = operands.iter().map(|operand| operand.eval(env)).collect::<Result<Row>>()?;
            if let Some((set, with_null)) = &result.set
                && !values.iter().any(Datum::is_null)
            {
                if set.contains(&values) {
                    return Ok(Datum::Bool(true));
                }
                if !with_null {
                    return Ok(Datum::Bool(false));
                }
            }
            any(&values, operators, rows, *all, env)
        }
    }
}

/// ANY and ALL, row by row.
fn any(
    values: &[Datum],
    operators: &[ResolvedOperator],
    rows: &[Row],
    all: bool,
    env: &Env<'_>,
) -> Result<Datum> {
    if let ([value], [operator]) = (values, operators) {
        return quantify(value, rows.iter().filter_map(|row| row.first()), operator, all, env);
    }
    let mut unknown = false;
    for row in rows {
        let mut verdict = Some(true);
        for ((value, operator), element) in values.iter().zip(operators).zip(row) {
            match quantify(value, std::iter::once(element), operator, false, env)? {
                Datum::Bool(true) => {}
                Datum::Null => verdict = verdict.and(None),
                _ => {
                    verdict = Some(false);
                    break;
                }
            }
        }
        match verdict {
            Some(holds) if holds != all => return Ok(Datum::Bool(!all)),
            Some(_) => {}
            None => unknown = true,
        }
    }
    Ok(if unknown { Datum::Null } else { Datum::Bool(all) })
}
