//! Runs the SELECT of a function that a user has defined, for one call.
//!
//! It reads what the statement reads: the same view, so nothing of the statement's own effects. Its
//! memory counts towards the statement's.

use super::Cursor;
use super::memory::row_bytes;
use crate::error::Result;
use crate::expr::{Env, ReadContext, RoutineBody, RoutineCall, check_held};
use crate::parse::on_large_stack;
use crate::routine::{DEPTH_MAX, convert, test_row, too_deep};
use crate::types::{Datum, Record};

/// Stack left before a call goes on on a fresh one, and the size of that.
const RED_ZONE: usize = 512 * 1024;
const FRESH_STACK: usize = 4 * 1024 * 1024;

/// The value of a call: that of the first row.
pub(crate) fn value(call: &RoutineCall, env: &Env<'_>) -> Result<Datum> {
    let body = call.body()?;
    let Some(row) = run(call, &body, env)?.pop() else { return Ok(Datum::Null) };
    Ok(match &body.shape {
        Some(shape) => Datum::Record(Record { shape: shape.clone(), values: row }.into()),
        None => row.into_iter().next().unwrap_or(Datum::Null),
    })
}

/// The rows of a call in FROM or of one that gives a set.
pub(crate) fn rows(call: &RoutineCall, env: &Env<'_>) -> Result<Vec<Vec<Datum>>> {
    let body = call.body()?;
    let mut rows = run(call, &body, env)?;
    // One that gives no set has one row in any case.
    if rows.is_empty() && !call.is_set {
        rows.push(vec![Datum::Null; call.width]);
    }
    Ok(rows)
}

fn run(call: &RoutineCall, body: &RoutineBody, env: &Env<'_>) -> Result<Vec<Vec<Datum>>> {
    let arguments = call.arguments.iter().map(|argument| argument.eval(env));
    let arguments = arguments.collect::<Result<Vec<_>>>()?;
    if body.routine.strict && arguments.iter().any(Datum::is_null) {
        return Ok(vec![]);
    }
    let runtime = env.execution.runtime;
    let depth = runtime.depth() + 1;
    if depth > DEPTH_MAX {
        return Err(too_deep());
    }
    env.execution.read.interrupt.count(1)?;
    let select = body.select()?;
    let mut cursor = Cursor::within(&select.plan, arguments.into(), depth);
    // What is held around it is not its to use.
    let read = env.execution.read;
    let memory_limit = read.memory_limit.saturating_sub(runtime.memory());
    let read = ReadContext { memory_limit, ..*read };
    let mut run = || {
        let (mut rows, mut bytes) = (vec![], 0);
        while let Some(row) = cursor.next_row(&read)? {
            env.execution.tick()?;
            // Nothing comes back, but all of it is done.
            if body.is_void {
                continue;
            }
            let mut row = row.to_vec();
            convert(&mut row, &select.conversions, read.eval.format)?;
            test_row(&row, &select.checks, &read)?;
            bytes += row_bytes(&row);
            check_held(bytes + cursor.memory(), memory_limit)?;
            rows.push(row);
            if !call.is_set {
                break;
            }
        }
        Ok(rows)
    };
    on_large_stack(select.depth, || stacker::maybe_grow(RED_ZONE, FRESH_STACK, &mut run))
}
