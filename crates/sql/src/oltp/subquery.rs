//! Subqueries within expressions. One that depends on nothing around it is run once for an
//! execution, when first asked for. EXISTS of one, or its value, that is tied to the row around it
//! by equalities alone is run for each row until that has taken as long as it takes to gather all
//! that can be equal; from then on rows are looked up there, if nothing is in the way.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::Context;
use super::hash::Seeded;
use super::memory::row_bytes;
use super::node::NodeState;
use crate::error::{Result, SqlError, sqlstate};
use crate::expr::{Env, Sought, Subquery, SubqueryBody, SubqueryKind, quantify};
use crate::function::operator::ResolvedOperator;
use crate::plan::Node;
use crate::types::{Array, Datum};

/// The result of a subquery that does not depend on the queries around it.
pub(crate) enum SubqueryResult {
    /// A value.
    Value(Datum),
    /// Its rows, for ANY and ALL.
    Rows(Vec<Vec<Datum>>),
    /// Its rows, hashed: those without NULLs, and those with.
    Hashed { set: HashSet<Vec<Datum>, Seeded>, with_nulls: Vec<Vec<Datum>> },
    /// What rows have, by what they are looked up by.
    Mapped(Found),
    /// Nothing yet: the runs so far have taken so many steps; `None`, and there will be nothing.
    Runs(Option<u64>),
}

/// A value for what is looked up; `None`: several rows have it.
pub(crate) type Found = HashMap<Vec<Datum>, Option<Datum>, Seeded>;

/// The value of a subquery.
pub(crate) fn evaluate(subquery: &Subquery, env: &Env<'_>) -> Result<Datum> {
    let (node, cache) = parts(subquery)?;
    match &subquery.kind {
        SubqueryKind::Any { operands, operators, hashable, all } => {
            let left = operands.iter().map(|operand| operand.eval(env)).collect::<Result<Vec<_>>>()?;
            let result = match cache {
                Some(place) => cached(place, env, |env| collect(node, *hashable, env))?,
                // The rows are needed for this one comparison only.
                None => {
                    let before = env.execution.runtime.memory();
                    let result = Arc::new(collect(node, false, env)?);
                    let held = env.execution.runtime.memory().saturating_sub(before);
                    env.execution.runtime.release(held);
                    result
                }
            };
            any(&left, operators, *all, &result, env)
        }
        SubqueryKind::Shared { column, once, .. } => {
            let place = cache.ok_or_else(|| SqlError::internal("a shared row has no place"))?;
            // The first column begins with a row of its own, which the others read.
            if *column == 0 && !*once {
                forget(place, env);
            }
            let result = cached(place, env, |env| only_row(node, env).map(SubqueryResult::Rows))?;
            match &*result {
                SubqueryResult::Rows(rows) => {
                    let value = rows.first().and_then(|row| row.get(*column));
                    Ok(value.cloned().unwrap_or(Datum::Null))
                }
                _ => Err(SqlError::internal("a subquery's cached result is of another kind")),
            }
        }
        SubqueryKind::Sought(sought) => find(sought, node, env),
        kind => match cache {
            Some(place) => {
                let result = cached(place, env, |env| value(kind, node, env).map(SubqueryResult::Value))?;
                match &*result {
                    SubqueryResult::Value(value) => Ok(value.clone()),
                    _ => Err(SqlError::internal("a subquery's cached result is of another kind")),
                }
            }
            None => value(kind, node, env),
        },
    }
}

/// Gives `visit` the values of the only column of a cached subquery that are not NULL, each once.
pub(crate) fn for_each_value(
    subquery: &Subquery,
    env: &Env<'_>,
    visit: &mut dyn FnMut(&Datum) -> Result<()>,
) -> Result<()> {
    let (node, cache) = parts(subquery)?;
    let Some(place) = cache else { return Err(SqlError::internal("a correlated subquery as a key")) };
    let result = cached(place, env, |env| collect(node, true, env))?;
    match &*result {
        SubqueryResult::Hashed { set, .. } => set.iter().filter_map(|row| row.first()).try_for_each(visit),
        _ => Err(SqlError::internal("a subquery's cached result is of another kind")),
    }
}

fn parts(subquery: &Subquery) -> Result<(&Node, Option<usize>)> {
    match &subquery.body {
        SubqueryBody::Planned { node, cache } => Ok((node, *cache)),
        SubqueryBody::Bound(_) => Err(SqlError::internal("a subquery was not planned")),
    }
}

/// The cached result, computed if it is not there yet.
fn cached(
    place: usize,
    env: &Env<'_>,
    compute: impl FnOnce(&Env<'_>) -> Result<SubqueryResult>,
) -> Result<Arc<SubqueryResult>> {
    let known = env.execution.runtime.subqueries.borrow().get(place).cloned().flatten();
    if let Some(result) = known {
        return Ok(result);
    }
    let result = Arc::new(compute(env)?);
    if let Some(slot) = env.execution.runtime.subqueries.borrow_mut().get_mut(place) {
        *slot = Some(result.clone());
    }
    Ok(result)
}

/// Lets go of a cached result.
fn forget(place: usize, env: &Env<'_>) {
    if let Some(slot) = env.execution.runtime.subqueries.borrow_mut().get_mut(place) {
        *slot = None;
    }
}

/// What a query that is tied by equalities has for the row around it: runs it, or looks for its
/// operands among all that it has.
fn find(sought: &Sought, node: &Node, env: &Env<'_>) -> Result<Datum> {
    let runtime = env.execution.runtime;
    let keep = |result: SubqueryResult| {
        if let Some(slot) = runtime.subqueries.borrow_mut().get_mut(sought.place) {
            *slot = Some(Arc::new(result));
        }
    };
    let known = runtime.subqueries.borrow().get(sought.place).cloned().flatten();
    let steps = match known.as_deref() {
        Some(SubqueryResult::Mapped(rows)) => return look_up(sought, rows, env),
        Some(SubqueryResult::Runs(steps)) => *steps,
        Some(_) => return Err(SqlError::internal("a subquery's cached result is of another kind")),
        None => Some(0),
    };
    if steps.is_some_and(|steps| steps >= sought.patience) {
        let before = runtime.memory();
        match gather(sought, env) {
            Ok(rows) => {
                let found = look_up(sought, &rows, env);
                keep(SubqueryResult::Mapped(rows));
                return found;
            }
            // Memory is too small for it, or rows fail that no run has come to.
            Err(error) if matches!(&error.sqlstate[..2], "22" | "53" | "P0") => {
                runtime.release(runtime.memory().saturating_sub(before));
                keep(SubqueryResult::Runs(None));
            }
            Err(error) => return Err(error),
        }
    }
    let before = runtime.steps();
    let kind = if sought.gives_value { &SubqueryKind::Scalar } else { &SubqueryKind::Exists };
    let found = value(kind, node, env)?;
    if let Some(steps) = steps.filter(|steps| *steps < sought.patience) {
        keep(SubqueryResult::Runs(Some(steps + runtime.steps().saturating_sub(before))));
    }
    Ok(found)
}

/// Gathers all rows by what they are looked up by; what has a NULL there is found by nobody.
fn gather(sought: &Sought, env: &Env<'_>) -> Result<Found> {
    let context = Context { execution: env.execution, outer: Some(env) };
    let mut state = NodeState::new(&sought.set);
    let (mut rows, mut row) = (Found::default(), vec![]);
    while state.next(&sought.set, context, &mut row)? {
        let given = if sought.gives_value { row.pop() } else { Some(Datum::Null) };
        if row.iter().any(Datum::is_null) {
            continue;
        }
        match rows.get_mut(&row) {
            Some(several) => *several = None,
            None => {
                let bytes = row_bytes(&row) + row_bytes(given.as_slice());
                context.execution.reserve(bytes)?;
                rows.insert(std::mem::take(&mut row), given);
            }
        }
    }
    state.release(context);
    Ok(rows)
}

fn look_up(sought: &Sought, rows: &Found, env: &Env<'_>) -> Result<Datum> {
    let mut row = Vec::with_capacity(sought.operands.len());
    for operand in &sought.operands {
        row.push(operand.eval(env)?);
    }
    let found = if row.iter().any(Datum::is_null) { None } else { rows.get(&row) };
    match (sought.gives_value, found) {
        (false, found) => Ok(Datum::Bool(found.is_some())),
        (true, None) => Ok(Datum::Null),
        (true, Some(Some(value))) => Ok(value.clone()),
        (true, Some(None)) => Err(several_rows()),
    }
}

fn exists(node: &Node, env: &Env<'_>) -> Result<bool> {
    let context = Context { execution: env.execution, outer: Some(env) };
    let mut state = NodeState::new(node);
    let found = state.next(node, context, &mut vec![])?;
    state.release(context);
    Ok(found)
}

fn several_rows() -> SqlError {
    SqlError::new(
        sqlstate::CARDINALITY_VIOLATION,
        "more than one row returned by a subquery used as an expression",
    )
}

/// The only row of a subquery, or none. 21000 if it has more.
fn only_row(node: &Node, env: &Env<'_>) -> Result<Vec<Vec<Datum>>> {
    let context = Context { execution: env.execution, outer: Some(env) };
    let mut state = NodeState::new(node);
    let mut rows = vec![];
    let mut row = vec![];
    while state.next(node, context, &mut row)? {
        if !rows.is_empty() {
            return Err(several_rows());
        }
        rows.push(std::mem::take(&mut row));
    }
    state.release(context);
    Ok(rows)
}

/// Runs a subquery for everything but ANY and ALL, and shared rows.
fn value(kind: &SubqueryKind, node: &Node, env: &Env<'_>) -> Result<Datum> {
    let context = Context { execution: env.execution, outer: Some(env) };
    let mut state = NodeState::new(node);
    let mut row = vec![];
    let result = match kind {
        SubqueryKind::Exists => return exists(node, env).map(Datum::Bool),
        SubqueryKind::Scalar | SubqueryKind::Column(_) => {
            let column = if let SubqueryKind::Column(column) = kind { *column } else { 0 };
            if state.next(node, context, &mut row)? {
                let value = row.get_mut(column).map(std::mem::take).unwrap_or(Datum::Null);
                if state.next(node, context, &mut row)? {
                    return Err(several_rows());
                }
                value
            } else {
                Datum::Null
            }
        }
        SubqueryKind::Array(element) => {
            let (mut elements, mut held) = (vec![], 0);
            while state.next(node, context, &mut row)? {
                let bytes = row_bytes(&row);
                context.execution.reserve(bytes)?;
                held += bytes;
                elements.push(row.first_mut().map(std::mem::take).unwrap_or(Datum::Null));
            }
            // What was gathered is a value now, and counts where that is held.
            context.execution.runtime.release(held);
            match element.element().filter(|_| element.is_array()) {
                Some(element) => Array::stacked(element, elements)?.into(),
                None => Array::new(*element, elements).into(),
            }
        }
        SubqueryKind::Any { .. } | SubqueryKind::Shared { .. } | SubqueryKind::Sought(_) => {
            return Err(SqlError::internal("rows of a subquery evaluated as a value"));
        }
    };
    state.release(context);
    Ok(result)
}

/// Runs a subquery and keeps its rows.
fn collect(node: &Node, hashed: bool, env: &Env<'_>) -> Result<SubqueryResult> {
    let context = Context { execution: env.execution, outer: Some(env) };
    let mut state = NodeState::new(node);
    let mut rows = vec![];
    let mut set = HashSet::<Vec<Datum>, Seeded>::default();
    // Each of them once, too: they are looked through for each row that is not in the set.
    let mut with_nulls = HashSet::<Vec<Datum>, Seeded>::default();
    let mut row = vec![];
    while state.next(node, context, &mut row)? {
        let bytes = row_bytes(&row);
        if hashed {
            let known = if row.iter().any(Datum::is_null) { &mut with_nulls } else { &mut set };
            if !known.contains(&row) {
                context.execution.reserve(bytes)?;
                known.insert(std::mem::take(&mut row));
            }
        } else {
            context.execution.reserve(bytes)?;
            rows.push(std::mem::take(&mut row));
        }
    }
    state.release(context);
    if hashed {
        return Ok(SubqueryResult::Hashed { set, with_nulls: with_nulls.into_iter().collect() });
    }
    Ok(SubqueryResult::Rows(rows))
}

/// `left operator ANY (rows)` or ALL.
fn any(
    left: &[Datum],
    operators: &[ResolvedOperator],
    all: bool,
    result: &SubqueryResult,
    env: &Env<'_>,
) -> Result<Datum> {
    match result {
        SubqueryResult::Hashed { set, with_nulls } => {
            if !left.iter().any(Datum::is_null) {
                if set.contains(left) {
                    return Ok(Datum::Bool(true));
                }
                return compare_with(left, operators, false, with_nulls.iter(), env);
            }
            // Of NULL alone nobody knows, whatever the rows are.
            if left.iter().all(Datum::is_null) {
                let is_empty = set.is_empty() && with_nulls.is_empty();
                return Ok(if is_empty { Datum::Bool(false) } else { Datum::Null });
            }
            compare_with(left, operators, false, set.iter().chain(with_nulls), env)
        }
        SubqueryResult::Rows(rows) => compare_with(left, operators, all, rows.iter(), env),
        SubqueryResult::Value(_) | SubqueryResult::Mapped(_) | SubqueryResult::Runs(_) => {
            Err(SqlError::internal("a subquery's cached result is of another kind"))
        }
    }
}

fn compare_with<'a>(
    left: &[Datum],
    operators: &[ResolvedOperator],
    all: bool,
    rows: impl Iterator<Item = &'a Vec<Datum>>,
    env: &Env<'_>,
) -> Result<Datum> {
    if let ([left], [operator]) = (left, operators) {
        return quantify(left, rows.filter_map(|row| row.first()), operator, all, env);
    }
    // Rows of several columns: equal if all pairs are.
    let mut unknown = false;
    for row in rows {
        env.execution.tick()?;
        match row_equal(left, row, operators, env)? {
            Some(equal) if equal != all => return Ok(Datum::Bool(!all)),
            Some(_) => {}
            None => unknown = true,
        }
    }
    Ok(if unknown { Datum::Null } else { Datum::Bool(all) })
}

/// Equality of two rows; none is unknown.
fn row_equal(
    left: &[Datum],
    right: &[Datum],
    operators: &[ResolvedOperator],
    env: &Env<'_>,
) -> Result<Option<bool>> {
    let mut unknown = false;
    for ((left, right), operator) in left.iter().zip(right).zip(operators) {
        match operator.call(left, right, &env.execution.read.eval)?.as_bool() {
            Some(false) => return Ok(Some(false)),
            Some(true) => {}
            None => unknown = true,
        }
    }
    Ok(if unknown { None } else { Some(true) })
}
