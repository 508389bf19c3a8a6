//! Evaluation: three-valued logic, NULL in most places NULL out, nothing evaluated that SQL says is
//! not.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;

use super::{
    ArrayConstructor, Case, Env, Expr, FunctionCall, InList, NullIf, OperatorCall, Quantified, RowCompare,
};
use crate::error::{Result, SqlError, sqlstate};
use crate::function::operator::{Comparison, ResolvedOperator, check_records};
use crate::function::{Body, EvalContext};
use crate::oltp::{routine, subquery};
use crate::types::datetime::arithmetic::add_to_timestamptz;
use crate::types::{Array, Datum, Dimension, Record, Word, bounds};

/// Longest wait.
const FOREVER: Duration = Duration::from_secs(100 * 365 * 86_400);

/// The truth value of a boolean datum.
#[inline]
fn truth(datum: &Datum) -> Option<bool> {
    datum.as_bool()
}

impl Expr {
    /// The value over a frame.
    #[inline]
    pub fn eval(&self, env: &Env<'_>) -> Result<Datum> {
        match self {
            Expr::Slot(slot) => Ok(env.row[*slot].clone()),
            Expr::Constant(value) => Ok(value.clone()),
            Expr::Parameter(number) => Ok(env.execution.parameters[*number].clone()),
            _ => self.compute(env),
        }
    }

    /// The value over a frame, borrowed where it is stored as such.
    #[inline]
    pub fn value<'a>(&'a self, env: &Env<'a>) -> Result<Cow<'a, Datum>> {
        match self {
            Expr::Slot(slot) => Ok(Cow::Borrowed(&env.row[*slot])),
            Expr::Constant(value) => Ok(Cow::Borrowed(value)),
            Expr::Parameter(number) => Ok(Cow::Borrowed(&env.execution.parameters[*number])),
            Expr::Outer { depth, slot } => Ok(Cow::Borrowed(&env.frame(*depth)?[*slot])),
            _ => self.compute(env).map(Cow::Owned),
        }
    }

    /// The value over a frame where it is stored as such in the frame, the statement or its
    /// parameters.
    #[inline(always)]
    pub(crate) fn stored<'a>(&'a self, env: &Env<'a>) -> Option<&'a Datum> {
        match self {
            Expr::Slot(slot) => Some(&env.row[*slot]),
            Expr::Constant(value) => Some(value),
            Expr::Parameter(number) => Some(&env.execution.parameters[*number]),
            _ => None,
        }
    }

    /// Whether a condition is TRUE (not FALSE, not NULL).
    #[inline]
    pub fn test(&self, env: &Env<'_>) -> Result<bool> {
        match self {
            Expr::Compare(comparison, operands) => {
                let holds = |left: &Datum, right: &Datum| {
                    !left.is_null() && !right.is_null() && comparison.test(left, right)
                };
                if let (Some(left), Some(right)) = (operands[0].stored(env), operands[1].stored(env)) {
                    return Ok(holds(left, right));
                }
                // The values stay where they were put: moving one that was just made costs more
                // than comparing it.
                match (&operands[0].value(env), &operands[1].value(env)) {
                    (Ok(left), Ok(right)) => Ok(holds(left, right)),
                    (Err(error), _) | (_, Err(error)) => Err(error.clone()),
                }
            }
            _ => Ok(truth(&*self.value(env)?) == Some(true)),
        }
    }

    /// The value in a word, if it is a numeric of few digits, computed of such by exact operations
    /// only.
    #[inline]
    pub(crate) fn word(&self, env: &Env<'_>) -> Option<Word> {
        match self {
            Expr::Operator(call) => exact(call, env),
            Expr::Slot(slot) => word_of(&env.row[*slot]),
            Expr::Constant(value) => word_of(value),
            _ => None,
        }
    }

    fn compute(&self, env: &Env<'_>) -> Result<Datum> {
        match self {
            Expr::Slot(_) | Expr::Constant(_) | Expr::Parameter(_) => self.eval(env),
            Expr::Outer { depth, slot } => Ok(env.frame(*depth)?[*slot].clone()),
            Expr::Compare(comparison, operands) => compare(*comparison, &operands[0], &operands[1], env),
            Expr::Operator(call) => operator(call, env),
            Expr::Function(call) => function(call, env),
            Expr::Routine(call) => routine::value(call, env),
            Expr::Cast(cast) => cast.1.apply(&*cast.0.value(env)?, env.execution.read.eval.format),
            Expr::Domain(value) => value.eval(env),
            Expr::And(parts) => logical(parts, env, false),
            Expr::Or(parts) => logical(parts, env, true),
            Expr::Not(operand) => Ok(truth(&*operand.value(env)?).map(|value| !value).into()),
            Expr::IsNull { operand, negated } => Ok(Datum::Bool(is_null(&*operand.value(env)?, *negated))),
            Expr::IsTruth { operand, value, negated } => {
                Ok(Datum::Bool((truth(&*operand.value(env)?) == *value) != *negated))
            }
            Expr::IsDistinct { operands, negated } => {
                let (left, right) = (operands[0].value(env)?, operands[1].value(env)?);
                if let (Datum::Record(left), Datum::Record(right)) = (&*left, &*right) {
                    check_records(left, right, &env.execution.read.eval)?;
                }
                Ok(Datum::Bool((*left != *right) != *negated))
            }
            Expr::Case(case) => evaluate_case(case, env),
            Expr::Coalesce(operands) => {
                for operand in operands {
                    let value = operand.eval(env)?;
                    if !value.is_null() {
                        return Ok(value);
                    }
                }
                Ok(Datum::Null)
            }
            Expr::NullIf(null_if) => evaluate_null_if(null_if, env),
            Expr::Held => env.held.cloned().ok_or_else(|| SqlError::internal("no operand is held")),
            Expr::Extreme { greatest, operands } => extreme(*greatest, operands, env),
            Expr::InList(list) => in_list(list, env),
            Expr::Quantified(quantified) => evaluate_quantified(quantified, env),
            Expr::RowCompare(compare) => row_compare(compare, env),
            Expr::Array(constructor) => array(constructor, env),
            Expr::Subscript(subscript) => element(&subscript.0, &subscript.1, env),
            Expr::Slice(slice) => evaluate_slice(&slice.0, &slice.1, env),
            Expr::Subquery(query) => subquery::evaluate(query, env),
            Expr::Row(items, shape) => {
                let values = items.iter().map(|item| item.eval(env)).collect::<Result<Vec<_>>>()?;
                check_parts(&values, env)?;
                Ok(Datum::Record(Arc::new(Record { shape: shape.clone(), values })))
            }
            Expr::Aggregate { .. } | Expr::SetResult(_) | Expr::WindowResult(_) => {
                Err(SqlError::internal("an aggregate outside its query"))
            }
        }
    }
}

#[inline]
fn word_of(value: &Datum) -> Option<Word> {
    if let Datum::Numeric(number) = value { number.word() } else { None }
}

fn exact(call: &OperatorCall, env: &Env<'_>) -> Option<Word> {
    let arithmetic = call.operator.exact()?;
    call.left.word(env)?.compute(arithmetic, call.right.word(env)?)
}

fn operator(call: &OperatorCall, env: &Env<'_>) -> Result<Datum> {
    if let Some(word) = exact(call, env) {
        return Ok(Datum::Numeric(word.into()));
    }
    match (&call.left.value(env), &call.right.value(env)) {
        (Ok(left), Ok(right)) => call.operator.call(left, right, &env.execution.read.eval),
        (Err(error), _) | (_, Err(error)) => Err(error.clone()),
    }
}

fn compare(comparison: Comparison, left: &Expr, right: &Expr, env: &Env<'_>) -> Result<Datum> {
    // Beside NULL, too, the other side is evaluated: it may fail, or do something.
    let (left, right) = (left.value(env)?, right.value(env)?);
    if left.is_null() || right.is_null() {
        return Ok(Datum::Null);
    }
    Ok(Datum::Bool(comparison.test(&left, &right)))
}

/// AND (`decisive` is false) and OR (`decisive` is true).
fn logical(parts: &[Expr], env: &Env<'_>, decisive: bool) -> Result<Datum> {
    let mut unknown = false;
    for part in parts {
        match truth(&*part.value(env)?) {
            Some(value) if value == decisive => return Ok(Datum::Bool(decisive)),
            Some(_) => {}
            None => unknown = true,
        }
    }
    Ok(if unknown { Datum::Null } else { Datum::Bool(!decisive) })
}

fn function(call: &FunctionCall, env: &Env<'_>) -> Result<Datum> {
    let mut arguments = SmallVec::<[Datum; 4]>::with_capacity(call.arguments.len());
    for argument in &call.arguments {
        arguments.push(argument.eval(env)?);
    }
    let read = env.execution.read;
    if matches!(call.function.function.body, Body::External) {
        if call.function.function.strict && arguments.iter().any(Datum::is_null) {
            return Ok(Datum::Null);
        }
        // It may do something, which must not rest on a comparison that was given up.
        bounds::check()?;
        if let Some(time) = pause(call.function.function.name, &arguments, &read.eval)? {
            read.eval.session.note_pause(true);
            let paused = read.interrupt.pause(time.min(FOREVER));
            read.eval.session.note_pause(false);
            return paused.map(|()| Datum::text(""));
        }
        return read.external.call(call.function.function, &arguments, &read.eval);
    }
    call.function.call(&arguments, &read.eval)
}

/// How long a call of `pg_sleep` and its like waits; none for other functions.
fn pause(name: &str, arguments: &[Datum], context: &EvalContext<'_>) -> Result<Option<Duration>> {
    let micros = match (name, arguments) {
        ("pg_sleep", [Datum::Float8(seconds)]) => {
            // Beyond what a duration can express, and for NaN, nobody lives to see the difference.
            return Ok(Some(Duration::try_from_secs_f64(seconds.max(0.0)).unwrap_or(FOREVER)));
        }
        ("pg_sleep_for", [Datum::Interval(interval)]) => {
            let now = context.session.clock();
            add_to_timestamptz(now, *interval, context.time_zone)?.saturating_sub(now)
        }
        ("pg_sleep_until", [Datum::Timestamptz(end)]) => end.saturating_sub(context.session.clock()),
        _ => return Ok(None),
    };
    Ok(Some(Duration::from_micros(u64::try_from(micros).unwrap_or(0))))
}

fn evaluate_case(case: &Case, env: &Env<'_>) -> Result<Datum> {
    let operand = case.operand.as_ref().map(|operand| operand.eval(env)).transpose()?;
    for (condition, result) in &case.branches {
        let holds = match &operand {
            Some(value) => condition.test(&env.holding(value))?,
            None => condition.test(env)?,
        };
        if holds {
            return result.eval(env);
        }
    }
    case.otherwise.eval(env)
}

fn evaluate_null_if(null_if: &NullIf, env: &Env<'_>) -> Result<Datum> {
    if null_if.is_held {
        let value = null_if.value.eval(env)?;
        let is_equal = null_if.equal.test(&env.holding(&value))?;
        return Ok(if is_equal { Datum::Null } else { value });
    }
    if null_if.equal.test(env)? { Ok(Datum::Null) } else { null_if.value.eval(env) }
}

/// IS NULL, or `negated` IS NOT NULL. All fields of a record must be so.
fn is_null(value: &Datum, negated: bool) -> bool {
    match value {
        Datum::Record(record) => record.values.iter().all(|field| field.is_null() != negated),
        value => value.is_null() != negated,
    }
}

fn extreme(greatest: bool, operands: &[Expr], env: &Env<'_>) -> Result<Datum> {
    let mut best = Datum::Null;
    for operand in operands {
        let value = operand.value(env)?;
        if value.is_null() {
            continue;
        }
        let better = best.is_null() || if greatest { *value > best } else { *value < best };
        if better {
            best = value.into_owned();
        }
    }
    Ok(best)
}

fn in_list(list: &InList, env: &Env<'_>) -> Result<Datum> {
    let operand = list.operand.value(env)?;
    if operand.is_null() {
        // It is equal to none of them, and each is evaluated.
        return list.items.iter().try_for_each(|item| item.value(env).map(drop)).map(|()| Datum::Null);
    }
    if list.constants.as_ref().is_some_and(|constants| constants.contains(&*operand)) {
        return Ok(Datum::Bool(!list.negated));
    }
    let mut unknown = false;
    for item in &list.items {
        let item = item.value(env)?;
        if item.is_null() {
            unknown = true;
        } else if *operand == *item {
            return Ok(Datum::Bool(!list.negated));
        }
    }
    Ok(if unknown { Datum::Null } else { Datum::Bool(list.negated) })
}

/// Applies `operator` to an operand and each of `elements` as ANY or ALL does.
pub(crate) fn quantify<'a>(
    operand: &Datum,
    elements: impl Iterator<Item = &'a Datum>,
    operator: &ResolvedOperator,
    all: bool,
    env: &Env<'_>,
) -> Result<Datum> {
    let mut unknown = false;
    for element in elements {
        env.execution.tick()?;
        let holds = match operator.comparison() {
            Some(_) if operand.is_null() || element.is_null() => None,
            Some(comparison) => Some(comparison.test(operand, element)),
            None => truth(&operator.call(operand, element, &env.execution.read.eval)?),
        };
        match holds {
            Some(holds) if holds != all => return Ok(Datum::Bool(!all)),
            Some(_) => {}
            None => unknown = true,
        }
    }
    Ok(if unknown { Datum::Null } else { Datum::Bool(all) })
}

fn evaluate_quantified(quantified: &Quantified, env: &Env<'_>) -> Result<Datum> {
    let operand = quantified.operand.value(env)?;
    match &*quantified.array.value(env)? {
        Datum::Null => Ok(Datum::Null),
        Datum::Array(array) => {
            quantify(&operand, array.elements.iter(), &quantified.operator, quantified.all, env)
        }
        other => Err(SqlError::internal(format!("ANY over {other:?}, which is no array"))),
    }
}

fn row_compare(compare: &RowCompare, env: &Env<'_>) -> Result<Datum> {
    if matches!(compare.comparison, Comparison::Equal | Comparison::NotEqual) {
        return row_equality(compare, env);
    }
    let last = compare.pairs.len() - 1;
    for (i, (left, right)) in compare.pairs.iter().enumerate() {
        let (left, right) = (left.value(env)?, right.value(env)?);
        if left.is_null() || right.is_null() {
            return Ok(Datum::Null);
        }
        // All pairs but the last decide only where they differ.
        if i == last || *left != *right {
            return Ok(Datum::Bool(compare.comparison.test(&left, &right)));
        }
    }
    Ok(Datum::Null)
}

/// `=` and `<>` of rows.
fn row_equality(compare: &RowCompare, env: &Env<'_>) -> Result<Datum> {
    let mut is_unknown = false;
    for (left, right) in &compare.pairs {
        let (left, right) = (left.value(env)?, right.value(env)?);
        if left.is_null() || right.is_null() {
            is_unknown = true;
        } else if !Comparison::Equal.test(&left, &right) {
            return Ok(Datum::Bool(compare.comparison == Comparison::NotEqual));
        }
    }
    Ok(if is_unknown { Datum::Null } else { Datum::Bool(compare.comparison == Comparison::Equal) })
}

fn array(constructor: &ArrayConstructor, env: &Env<'_>) -> Result<Datum> {
    let mut items = Vec::with_capacity(constructor.items.len());
    for item in &constructor.items {
        items.push(item.eval(env)?);
    }
    if !constructor.nested {
        check_parts(&items, env)?;
        return Ok(Array::new(constructor.element, items).into());
    }
    // Arrays are shared where they are named again; what is made of them is not.
    let length = |item: &Datum| if let Datum::Array(inner) = item { inner.elements.len() } else { 0 };
    let total: usize = items.iter().map(length).sum();
    env.execution.read.eval.check_size(total.saturating_mul(size_of::<Datum>()))?;
    let mut dimensions: Option<Vec<Dimension>> = None;
    let mut elements = Vec::with_capacity(total);
    let count = items.len();
    for item in &items {
        env.execution.tick()?;
        let inner = match item {
            Datum::Array(inner) => inner.clone(),
            _ => Arc::new(Array::new(constructor.element, vec![])),
        };
        match &dimensions {
            None => dimensions = Some(inner.dimensions.clone()),
            Some(first) if *first == inner.dimensions => {}
            Some(_) => {
                return Err(SqlError::new(
                    sqlstate::ARRAY_SUBSCRIPT_ERROR,
                    "multidimensional arrays must have array expressions with matching dimensions",
                ));
            }
        }
        elements.extend(inner.elements.iter().cloned());
    }
    let inner = dimensions.unwrap_or_default();
    if inner.is_empty() {
        return Ok(Array::new(constructor.element, vec![]).into());
    }
    let mut dimensions = vec![Dimension { length: count, lower: 1 }];
    dimensions.extend(inner);
    Ok(Array { element: constructor.element, dimensions, elements }.checked()?.into())
}

/// 53200 if the parts of a row or an array are together more than a statement may hold. They may be
/// one value many times, which is there once, but whoever writes them has it each time.
fn check_parts(parts: &[Datum], env: &Env<'_>) -> Result<()> {
    env.execution.read.eval.check_size(parts.iter().map(Datum::bulk).sum())
}

/// A subscript's value; none if it is NULL.
fn subscript(expr: &Expr, env: &Env<'_>) -> Result<Option<i32>> {
    match &*expr.value(env)? {
        Datum::Null => Ok(None),
        value => match value.as_i64().map(i32::try_from) {
            Some(Ok(value)) => Ok(Some(value)),
            _ => Err(SqlError::out_of_range("integer")),
        },
    }
}

fn element(array: &Expr, subscripts: &[Expr], env: &Env<'_>) -> Result<Datum> {
    let array = array.value(env)?;
    let mut places = SmallVec::<[i32; 4]>::new();
    for expr in subscripts {
        match subscript(expr, env)? {
            Some(place) => places.push(place),
            None => return Ok(Datum::Null),
        }
    }
    Ok(match (&*array, places.as_slice()) {
        (Datum::Array(array), places) => array.get(places),
        // A field of a record, by its place from 1.
        (Datum::Record(record), [place]) => record.values[*place as usize - 1].clone(),
        _ => Datum::Null,
    })
}

fn evaluate_slice(array: &Expr, bounds: &[[Option<Expr>; 2]], env: &Env<'_>) -> Result<Datum> {
    let array = array.value(env)?;
    let Datum::Array(array) = &*array else { return Ok(Datum::Null) };
    let mut limits = Vec::with_capacity(bounds.len());
    for pair in bounds {
        let mut limit = [None, None];
        for (limit, bound) in limit.iter_mut().zip(pair) {
            let Some(expr) = bound else { continue };
            match subscript(expr, env)? {
                Some(value) => *limit = Some(value),
                None => return Ok(Datum::Null),
            }
        }
        limits.push(limit);
    }
    Ok(array.slice(&limits)?.into())
}
