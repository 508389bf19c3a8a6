//! Functions that give rows.

use std::sync::Arc;

use crate::bind::{JsonRecords, PartCall, RowsCall};
use crate::error::{Result, SqlError, sqlstate};
use crate::expr::{Env, Expr};
use crate::function::set::{self, Rows};
use crate::function::{Function, json_records};
use crate::routine::test_row;
use crate::types::{Array, Datum, Interval, Numeric, TimeZone, bounds, datetime};

/// The rows of a call.
pub(crate) enum TableRows {
    /// Rows computed already.
    Ready(std::vec::IntoIter<Vec<Datum>>),
    /// Rows of one value.
    Values(std::vec::IntoIter<Datum>),
    /// Elements of arrays side by side, shorter ones filled up with NULLs.
    Elements { arrays: Vec<Option<Arc<Array>>>, at: usize },
    /// Rows of several calls side by side, each with the number of its columns.
    Together(Vec<(TableRows, usize)>),
    /// Integers.
    Integers { next: Option<i64>, last: i64, step: i64, wide: bool },
    /// Numbers.
    Numerics { next: Option<Numeric>, last: Numeric, step: Numeric },
    /// Times, as microseconds, with the function that adds the step.
    Times { next: Option<i64>, last: i64, step: Interval, zone: Option<TimeZone> },
}

impl TableRows {
    /// Starts a call.
    pub(crate) fn open(call: &RowsCall, env: &Env<'_>) -> Result<TableRows> {
        match call {
            RowsCall::Scalar(expr) => Ok(ready(vec![vec![expr.eval(env)?]])),
            RowsCall::Unnest(arrays) => unnest(arrays, env),
            RowsCall::Routine(call) => Ok(ready(super::routine::rows(call, env)?)),
            RowsCall::Records(records) => Ok(ready(of_json(records, env)?)),
            RowsCall::Set { function, arguments, .. } => set_of(function, arguments, env),
            RowsCall::Together { parts, arguments } => {
                let (mut calls, mut rest) = (Vec::with_capacity(parts.len()), arguments.as_slice());
                for part in parts {
                    let (own, behind) = rest.split_at(part.arguments);
                    rest = behind;
                    let rows = match part.call {
                        PartCall::Set(function) => set_of(function, own, env)?,
                        PartCall::Unnest => unnest(own, env)?,
                        PartCall::Scalar => {
                            ready(vec![own.iter().map(|expr| expr.eval(env)).collect::<Result<_>>()?])
                        }
                    };
                    calls.push((rows, part.width));
                }
                Ok(TableRows::Together(calls))
            }
        }
    }

    /// The next row.
    pub(crate) fn next(&mut self) -> Result<Option<Vec<Datum>>> {
        match self {
            TableRows::Ready(rows) => Ok(rows.next()),
            TableRows::Values(values) => Ok(values.next().map(|value| vec![value])),
            TableRows::Elements { arrays, at } => {
                let element = |array: &Option<Arc<Array>>| array.as_ref()?.elements.get(*at).cloned();
                let row: Vec<Option<Datum>> = arrays.iter().map(element).collect();
                *at += 1;
                let is_end = row.iter().all(Option::is_none);
                Ok((!is_end).then(|| row.into_iter().map(Option::unwrap_or_default).collect()))
            }
            TableRows::Together(calls) => {
                let (mut row, mut is_end) = (Vec::new(), true);
                for (rows, width) in calls {
                    match rows.next()? {
                        Some(values) => {
                            is_end = false;
                            row.extend(values);
                        }
                        None => row.extend(std::iter::repeat_n(Datum::Null, *width)),
                    }
                }
                Ok((!is_end).then_some(row))
            }
            TableRows::Integers { next, last, step, wide } => {
                let Some(value) = *next else { return Ok(None) };
                if (*step > 0 && value > *last) || (*step < 0 && value < *last) {
                    *next = None;
                    return Ok(None);
                }
                *next = value.checked_add(*step);
                let datum = if *wide {
                    Datum::Int8(value)
                } else {
                    match i32::try_from(value) {
                        Ok(value) => Datum::Int4(value),
                        Err(_) => return Ok(None),
                    }
                };
                Ok(Some(vec![datum]))
            }
            TableRows::Numerics { next, last, step } => {
                let Some(value) = next.take() else { return Ok(None) };
                let upwards = *step > Numeric::from(0i64);
                if (upwards && value > *last) || (!upwards && value < *last) {
                    return Ok(None);
                }
                // What is beyond the type is beyond the end.
                *next = value.add(step).ok();
                Ok(Some(vec![Datum::Numeric(value)]))
            }
            TableRows::Times { next, last, step, zone } => {
                let Some(value) = *next else { return Ok(None) };
                let upwards = step.ordering_value() > 0;
                if (upwards && value > *last) || (!upwards && value < *last) {
                    *next = None;
                    return Ok(None);
                }
                *next = Some(match zone {
                    Some(zone) => datetime::arithmetic::add_to_timestamptz(value, *step, *zone)?,
                    None => datetime::arithmetic::add_to_timestamp(value, *step)?,
                });
                Ok(Some(vec![if zone.is_some() {
                    Datum::Timestamptz(value)
                } else {
                    Datum::Timestamp(value)
                }]))
            }
        }
    }
}

fn ready(rows: Vec<Vec<Datum>>) -> TableRows {
    TableRows::Ready(rows.into_iter())
}

fn of_json(records: &JsonRecords, env: &Env<'_>) -> Result<Vec<Vec<Datum>>> {
    let (value, read) = (records.value.eval(env)?, env.execution.read);
    let rows = json_records(records.name, &value, &records.columns, &read.eval)?;
    // The row of no value is none, and nothing is asked of it.
    if !value.is_null() {
        rows.iter().try_for_each(|row| test_row(row, &records.checks, read))?;
    }
    Ok(rows)
}

/// The rows of a set-returning function.
fn set_of(function: &'static Function, arguments: &[Expr], env: &Env<'_>) -> Result<TableRows> {
    let values = arguments.iter().map(|argument| argument.eval(env)).collect::<Result<Vec<_>>>()?;
    if function.strict && values.iter().any(Datum::is_null) {
        return Ok(ready(vec![]));
    }
    open(function, &values, env)
}

fn unnest(arrays: &[Expr], env: &Env<'_>) -> Result<TableRows> {
    let mut opened = vec![];
    for array in arrays {
        opened.push(match &*array.value(env)? {
            Datum::Array(array) => Some(array.clone()),
            _ => None,
        });
    }
    Ok(TableRows::Elements { arrays: opened, at: 0 })
}

fn step_is_zero() -> SqlError {
    SqlError::new(sqlstate::INVALID_PARAMETER_VALUE, "step size cannot equal zero")
}

fn open(function: &'static Function, arguments: &[Datum], env: &Env<'_>) -> Result<TableRows> {
    match (function.name, arguments) {
        ("generate_series", [start, stop, rest @ ..]) => series(start, stop, rest.first(), env),
        ("unnest", [Datum::Array(array)]) => {
            Ok(TableRows::Elements { arrays: vec![Some(array.clone())], at: 0 })
        }
        ("pg_listening_channels", _) => {
            let channels = env.execution.read.eval.session.server().listening();
            Ok(TableRows::Values(channels.into_iter().map(Datum::from).collect::<Vec<_>>().into_iter()))
        }
        ("pg_ls_waldir", _) => {
            crate::pg_catalog::log_files(env.execution.read.eval.session.server()).map(ready)
        }
        ("pg_sequence_parameters", arguments) => {
            crate::pg_catalog::sequence_parameters(arguments, &env.execution.read.eval).map(ready)
        }
        ("aclexplode", [Datum::Array(list)]) => {
            crate::pg_catalog::explode(list, &env.execution.read.eval).map(ready)
        }
        (name, arguments) => {
            if let Some(rows) = crate::pg_catalog::set_rows(name, arguments) {
                return Ok(ready(rows));
            }
            match set::rows(function, arguments, &env.execution.read.eval)? {
                Some(Rows::Values(values)) => Ok(TableRows::Values(values.into_iter())),
                Some(Rows::Rows(rows)) => Ok(ready(rows)),
                None => external(function, arguments, env),
            }
        }
    }
}

/// A series of numerics has an end, and gets there.
fn check_finite(bound: &Numeric, what: &str) -> Result<()> {
    let value = match bound {
        bound if bound.is_nan() => "NaN",
        bound if bound.is_infinite() => "infinity",
        _ => return Ok(()),
    };
    Err(SqlError::new(sqlstate::INVALID_PARAMETER_VALUE, format!("{what} cannot be {value}")))
}

/// A set-returning function of the session: it gives an array, each element of which is a row.
fn external(function: &'static Function, arguments: &[Datum], env: &Env<'_>) -> Result<TableRows> {
    let read = env.execution.read;
    // It may do something, which must not rest on a comparison that was given up.
    bounds::check()?;
    match read.external.call(function, arguments, &read.eval)? {
        Datum::Array(array) => Ok(TableRows::Elements { arrays: vec![Some(array)], at: 0 }),
        Datum::Null => Ok(ready(vec![])),
        value => Ok(ready(vec![vec![value]])),
    }
}

fn series(start: &Datum, stop: &Datum, step: Option<&Datum>, env: &Env<'_>) -> Result<TableRows> {
    match (start, stop) {
        (Datum::Int4(_) | Datum::Int8(_), _) => {
            let step = step.and_then(Datum::as_i64).unwrap_or(1);
            if step == 0 {
                return Err(step_is_zero());
            }
            let wide = matches!(start, Datum::Int8(_));
            Ok(TableRows::Integers { next: start.as_i64(), last: stop.as_i64().unwrap_or(0), step, wide })
        }
        (Datum::Numeric(start), Datum::Numeric(stop)) => {
            let step = match step {
                Some(Datum::Numeric(step)) => step.clone(),
                _ => Numeric::from(1i64),
            };
            for (bound, what) in [(start, "start value"), (stop, "stop value"), (&step, "step size")] {
                check_finite(bound, what)?;
            }
            if step == Numeric::from(0i64) {
                return Err(step_is_zero());
            }
            Ok(TableRows::Numerics { next: Some(start.clone()), last: stop.clone(), step })
        }
        (Datum::Timestamp(start), Datum::Timestamp(stop)) => times(*start, *stop, step, None),
        (Datum::Timestamptz(start), Datum::Timestamptz(stop)) => {
            times(*start, *stop, step, Some(env.execution.read.eval.time_zone))
        }
        _ => Err(SqlError::internal("generate_series over unexpected types")),
    }
}

fn times(start: i64, stop: i64, step: Option<&Datum>, zone: Option<TimeZone>) -> Result<TableRows> {
    let Some(Datum::Interval(step)) = step else {
        return Err(SqlError::internal("generate_series without a step"));
    };
    // A month less 30 days leads nowhere either.
    if step.ordering_value() == 0 {
        return Err(step_is_zero());
    }
    Ok(TableRows::Times { next: Some(start), last: stop, step: *step, zone })
}
