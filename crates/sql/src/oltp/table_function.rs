//! Functions that give rows.

use regex::Regex;

use crate::bind::RowsCall;
use crate::error::{Result, SqlError, sqlstate};
use crate::expr::{Env, Expr};
use crate::function::Function;
use crate::types::{Datum, Interval, Numeric, datetime};

/// The rows of a call.
pub(crate) enum TableRows {
    /// Rows computed already.
    Ready(std::vec::IntoIter<Vec<Datum>>),
    /// Integers.
    Integers { next: Option<i64>, last: i64, step: i64, wide: bool },
    /// Numbers.
    Numerics { next: Option<Numeric>, last: Numeric, step: Numeric },
    /// Times, as microseconds, with the function that adds the step.
    Times { next: Option<i64>, last: i64, step: Interval, zone: Option<chrono_tz::Tz> },
}

impl TableRows {
    /// Starts a call.
    pub(crate) fn open(call: &RowsCall, env: &Env<'_>) -> Result<TableRows> {
        match call {
            RowsCall::Scalar(expr) => Ok(ready(vec![vec![expr.eval(env)?]])),
            RowsCall::Unnest(arrays) => unnest(arrays, env),
            RowsCall::Set { function, arguments, .. } => {
                let mut values = Vec::with_capacity(arguments.len());
                for argument in arguments {
                    values.push(argument.eval(env)?);
                }
                if function.strict && values.iter().any(Datum::is_null) {
                    return Ok(ready(vec![]));
                }
                set(function, &values, env)
            }
        }
    }

    /// The next row.
    pub(crate) fn next(&mut self) -> Result<Option<Vec<Datum>>> {
        match self {
            TableRows::Ready(rows) => Ok(rows.next()),
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
                *next = Some(value.add(step)?);
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

/// Arrays side by side, shorter ones filled up with NULLs.
fn unnest(arrays: &[Expr], env: &Env<'_>) -> Result<TableRows> {
    let mut columns = vec![];
    for array in arrays {
        columns.push(match &*array.value(env)? {
            Datum::Array(array) => array.elements.clone(),
            _ => vec![],
        });
    }
    let length = columns.iter().map(Vec::len).max().unwrap_or(0);
    let rows = (0..length)
        .map(|i| columns.iter().map(|column| column.get(i).cloned().unwrap_or(Datum::Null)).collect());
    Ok(ready(rows.collect()))
}

fn step_is_zero() -> SqlError {
    SqlError::new(sqlstate::INVALID_PARAMETER_VALUE, "step size cannot equal zero")
}

fn set(function: &'static Function, arguments: &[Datum], env: &Env<'_>) -> Result<TableRows> {
    match (function.name, arguments) {
        ("generate_series", [start, stop, rest @ ..]) => series(start, stop, rest.first(), env),
        ("unnest", [Datum::Array(array)]) => {
            Ok(ready(array.elements.iter().map(|element| vec![element.clone()]).collect()))
        }
        ("generate_subscripts", [Datum::Array(array), dimension, rest @ ..]) => {
            let place = dimension.as_i64().and_then(|d| usize::try_from(d - 1).ok());
            let Some(dimension) = place.and_then(|place| array.dimensions.get(place)) else {
                return Ok(ready(vec![]));
            };
            let mut rows: Vec<Vec<Datum>> =
                (0..dimension.length).map(|i| vec![Datum::Int4(dimension.lower + i as i32)]).collect();
            if rest.first().and_then(Datum::as_bool) == Some(true) {
                rows.reverse();
            }
            Ok(ready(rows))
        }
        ("regexp_split_to_table", [text, pattern, ..]) => {
            let pattern = compile(pattern.as_str().unwrap_or_default())?;
            let parts = pattern.split(text.as_str().unwrap_or_default());
            Ok(ready(parts.map(|part| vec![Datum::from(part)]).collect()))
        }
        ("string_to_table", [text, separator, ..]) => {
            let (text, separator) =
                (text.as_str().unwrap_or_default(), separator.as_str().unwrap_or_default());
            let parts: Vec<&str> = if text.is_empty() {
                vec![]
            } else if separator.is_empty() {
                vec![text]
            } else {
                text.split(separator).collect()
            };
            Ok(ready(parts.into_iter().map(|part| vec![Datum::from(part)]).collect()))
        }
        (
            "json_array_elements"
            | "jsonb_array_elements"
            | "json_array_elements_text"
            | "jsonb_array_elements_text",
            [value],
        ) => json_elements(function.name, value),
        ("json_object_keys" | "jsonb_object_keys", [value]) => {
            let object = json_object(function.name, value)?;
            Ok(ready(object.into_iter().map(|(key, _)| vec![Datum::from(key)]).collect()))
        }
        ("json_each" | "jsonb_each" | "json_each_text" | "jsonb_each_text", [value]) => {
            let object = json_object(function.name, value)?;
            let rows = object
                .into_iter()
                .map(|(key, value)| vec![Datum::from(key), json_datum(function.name, &value)]);
            Ok(ready(rows.collect()))
        }
        (name, arguments) => match crate::pg_catalog::set_rows(name, arguments) {
            Some(rows) => Ok(ready(rows)),
            None => external(function, arguments, env),
        },
    }
}

/// A set-returning function of the session: it gives an array, each element of which is a row.
fn external(function: &'static Function, arguments: &[Datum], env: &Env<'_>) -> Result<TableRows> {
    let read = env.execution.read;
    match read.external.call(function, arguments, &read.eval)? {
        Datum::Array(array) => {
            Ok(ready(array.elements.iter().map(|element| vec![element.clone()]).collect()))
        }
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

fn times(start: i64, stop: i64, step: Option<&Datum>, zone: Option<chrono_tz::Tz>) -> Result<TableRows> {
    let Some(Datum::Interval(step)) = step else {
        return Err(SqlError::internal("generate_series without a step"));
    };
    if step.months == 0 && step.days == 0 && step.micros == 0 {
        return Err(step_is_zero());
    }
    Ok(TableRows::Times { next: Some(start), last: stop, step: *step, zone })
}

fn compile(pattern: &str) -> Result<Regex> {
    Regex::new(pattern).map_err(|error| {
        SqlError::new(sqlstate::INVALID_REGULAR_EXPRESSION, format!("invalid regular expression: {error}"))
    })
}

fn parse_json(value: &Datum) -> Result<serde_json::Value> {
    let text = value.as_str().unwrap_or_default();
    serde_json::from_str(text).map_err(|_| SqlError::invalid_text("json", text))
}

fn json_elements(name: &str, value: &Datum) -> Result<TableRows> {
    match parse_json(value)? {
        serde_json::Value::Array(items) => {
            Ok(ready(items.iter().map(|item| vec![json_datum(name, item)]).collect()))
        }
        serde_json::Value::Object(_) => Err(SqlError::new(
            sqlstate::INVALID_PARAMETER_VALUE,
            format!("cannot call {name} on a non-array"),
        )),
        _ => Err(SqlError::new(sqlstate::INVALID_PARAMETER_VALUE, format!("cannot call {name} on a scalar"))),
    }
}

fn json_object(name: &str, value: &Datum) -> Result<Vec<(String, serde_json::Value)>> {
    match parse_json(value)? {
        serde_json::Value::Object(object) => Ok(object.into_iter().collect()),
        _ => Err(SqlError::new(
            sqlstate::INVALID_PARAMETER_VALUE,
            format!("cannot call {name} on a non-object"),
        )),
    }
}

/// An item as the function gives it: text without quotes for the `_text` functions, else JSON.
fn json_datum(name: &str, value: &serde_json::Value) -> Datum {
    if name.ends_with("_text") {
        return match value {
            serde_json::Value::Null => Datum::Null,
            serde_json::Value::String(text) => Datum::from(text.as_str()),
            other => Datum::from(other.to_string()),
        };
    }
    if name.starts_with("jsonb") {
        Datum::Jsonb(value.to_string().into())
    } else {
        Datum::from(value.to_string())
    }
}
