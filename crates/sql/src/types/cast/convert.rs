//! The conversions that the table of casts names.

use crate::error::{SqlError, sqlstate};
use crate::types::datetime::{self, arithmetic, calendar};
use crate::types::json::{self, Value};
use crate::types::{Datum, FormatContext, Interval, Numeric, Text, Type, TypeId, input};

type Converted = Result<Datum, SqlError>;

#[cold]
fn unexpected(datum: &Datum) -> SqlError {
    SqlError::internal(format!("no conversion of {datum:?}"))
}

pub(super) fn bool_to_int4(datum: &Datum, _: &FormatContext) -> Converted {
    Ok(Datum::Int4(i32::from(datum.as_bool().ok_or_else(|| unexpected(datum))?)))
}

pub(super) fn bool_to_text(datum: &Datum, _: &FormatContext) -> Converted {
    let text = if datum.as_bool().ok_or_else(|| unexpected(datum))? { "true" } else { "false" };
    Ok(Datum::Text(crate::types::Text::from_static(text)))
}

pub(super) fn bool_to_bpchar(datum: &Datum, context: &FormatContext) -> Converted {
    text_to_bpchar(&bool_to_text(datum, context)?, context)
}

pub(super) fn int4_to_bool(datum: &Datum, _: &FormatContext) -> Converted {
    Ok(Datum::Bool(datum.as_i64().ok_or_else(|| unexpected(datum))? != 0))
}

pub(super) fn char_to_int4(datum: &Datum, _: &FormatContext) -> Converted {
    let text = datum.as_text().ok_or_else(|| unexpected(datum))?;
    Ok(Datum::Int4(text.as_bytes().first().map_or(0, |b| i32::from(*b as i8))))
}

pub(super) fn int4_to_char(datum: &Datum, _: &FormatContext) -> Converted {
    match datum.as_i64() {
        Some(0) => Ok(Datum::text("")),
        // Bytes above 127 would not be UTF-8.
        Some(code @ 1..=127) => Ok(Datum::text((code as u8 as char).to_string())),
        Some(_) => Err(SqlError::out_of_range("\"char\"")),
        None => Err(unexpected(datum)),
    }
}

pub(super) fn text_to_char(datum: &Datum, _: &FormatContext) -> Converted {
    let text = datum.as_str().ok_or_else(|| unexpected(datum))?;
    Ok(Datum::text(input::internal_char(text)))
}

pub(super) fn text_to_name(datum: &Datum, _: &FormatContext) -> Converted {
    let text = datum.as_text().ok_or_else(|| unexpected(datum))?;
    Ok(Datum::Text(if text.len() < 64 { text.clone() } else { input::truncate_name(text.as_str()).into() }))
}

/// Without the bits that do not name the network.
pub(super) fn inet_to_cidr(datum: &Datum, _: &FormatContext) -> Converted {
    let Datum::Inet(value) = datum else { return Err(unexpected(datum)) };
    Ok(Datum::Inet(value.network()))
}

/// Unlike the text form, always with the number of bits.
pub(super) fn inet_to_text(datum: &Datum, _: &FormatContext) -> Converted {
    let Datum::Inet(value) = datum else { return Err(unexpected(datum)) };
    let mut text = Vec::new();
    value.write(true, &mut text);
    Ok(Datum::Text(Text::from_stored(text.into())))
}

pub(super) fn inet_to_bpchar(datum: &Datum, context: &FormatContext) -> Converted {
    text_to_bpchar(&inet_to_text(datum, context)?, context)
}

pub(super) fn text_to_bpchar(datum: &Datum, _: &FormatContext) -> Converted {
    Ok(Datum::Bpchar(datum.as_text().ok_or_else(|| unexpected(datum))?.clone()))
}

pub(super) fn bpchar_to_text(datum: &Datum, _: &FormatContext) -> Converted {
    Ok(Datum::Text(datum.as_text().ok_or_else(|| unexpected(datum))?.trim_end_blanks()))
}

pub(super) fn bpchar_to_name(datum: &Datum, context: &FormatContext) -> Converted {
    text_to_name(&bpchar_to_text(datum, context)?, context)
}

pub(super) fn text_to_regclass(datum: &Datum, context: &FormatContext) -> Converted {
    let text = datum.as_str().ok_or_else(|| unexpected(datum))?;
    Datum::from_text(Type::new(TypeId::Regclass), text, context)
}

/// A float rounded to an integer, half to even, if it lies within the bounds.
fn float_to_integer(value: f64, low: f64, high: f64, type_name: &str) -> Result<i64, SqlError> {
    let rounded = value.round_ties_even();
    // The upper bound is excluded: it is a power of two, the first that does not fit.
    if rounded >= low && rounded < high { Ok(rounded as i64) } else { Err(SqlError::out_of_range(type_name)) }
}

fn to_integer(datum: &Datum, type_name: &str, bits: i32) -> Result<i64, SqlError> {
    let bound = 2f64.powi(bits - 1);
    match datum {
        Datum::Float4(value) => float_to_integer(f64::from(*value), -bound, bound, type_name),
        Datum::Float8(value) => float_to_integer(*value, -bound, bound, type_name),
        Datum::Numeric(value) => value.to_i64(type_name),
        other => other.as_i64().ok_or_else(|| unexpected(datum)),
    }
}

pub(super) fn to_int2(datum: &Datum, _: &FormatContext) -> Converted {
    let value = to_integer(datum, "smallint", 16)?;
    i16::try_from(value).map(Datum::Int2).map_err(|_| SqlError::out_of_range("smallint"))
}

pub(super) fn to_int4(datum: &Datum, _: &FormatContext) -> Converted {
    let value = to_integer(datum, "integer", 32)?;
    i32::try_from(value).map(Datum::Int4).map_err(|_| SqlError::out_of_range("integer"))
}

pub(super) fn to_int8(datum: &Datum, _: &FormatContext) -> Converted {
    to_integer(datum, "bigint", 64).map(Datum::Int8)
}

pub(super) fn oid_to_int4(datum: &Datum, _: &FormatContext) -> Converted {
    Ok(Datum::Int4(datum.as_i64().ok_or_else(|| unexpected(datum))? as i32))
}

pub(super) fn to_oid(datum: &Datum, _: &FormatContext) -> Converted {
    match datum {
        // A negative int4 or int2 wraps.
        Datum::Int4(value) => Ok(Datum::Oid(*value as u32)),
        Datum::Int2(value) => Ok(Datum::Oid(i32::from(*value) as u32)),
        Datum::Oid(value) => Ok(Datum::Oid(*value)),
        Datum::Int8(value) => {
            u32::try_from(*value).map(Datum::Oid).map_err(|_| SqlError::out_of_range("OID"))
        }
        _ => Err(unexpected(datum)),
    }
}

/// Its lower half.
pub(super) fn xid8_to_xid(datum: &Datum, _: &FormatContext) -> Converted {
    let Datum::Unsigned(value) = datum else { return Err(unexpected(datum)) };
    Ok(Datum::Oid(*value as u32))
}

#[cold]
fn float_overflow(overflow: bool) -> SqlError {
    let what = if overflow { "value out of range: overflow" } else { "value out of range: underflow" };
    SqlError::new(sqlstate::NUMERIC_VALUE_OUT_OF_RANGE, what)
}

pub(super) fn to_float8(datum: &Datum, _: &FormatContext) -> Converted {
    Ok(Datum::Float8(match datum {
        Datum::Float4(value) => f64::from(*value),
        Datum::Float8(value) => *value,
        Datum::Numeric(value) => {
            let float = value.to_f64();
            if (float.is_infinite() && value.is_finite()) || (float == 0.0 && !value.is_zero()) {
                return Err(SqlError::new(
                    sqlstate::NUMERIC_VALUE_OUT_OF_RANGE,
                    format!("\"{value}\" is out of range for type double precision"),
                ));
            }
            float
        }
        other => other.as_i64().ok_or_else(|| unexpected(datum))? as f64,
    }))
}

pub(super) fn to_float4(datum: &Datum, _: &FormatContext) -> Converted {
    Ok(Datum::Float4(match datum {
        Datum::Float4(value) => *value,
        Datum::Float8(value) => {
            let float = *value as f32;
            if float.is_infinite() && value.is_finite() {
                return Err(float_overflow(true));
            }
            if float == 0.0 && *value != 0.0 {
                return Err(float_overflow(false));
            }
            float
        }
        Datum::Numeric(value) if value.is_finite() => {
            return crate::types::float::parse_f32(&value.to_string()).map(Datum::Float4);
        }
        Datum::Numeric(value) => value.to_f64() as f32,
        other => other.as_i64().ok_or_else(|| unexpected(datum))? as f32,
    }))
}

pub(super) fn to_numeric(datum: &Datum, _: &FormatContext) -> Converted {
    Ok(Datum::Numeric(match datum {
        Datum::Float4(value) => Numeric::from_f32(*value)?,
        Datum::Float8(value) => Numeric::from_f64(*value)?,
        Datum::Numeric(value) => value.clone(),
        other => Numeric::from(other.as_i64().ok_or_else(|| unexpected(datum))?),
    }))
}

pub(super) fn json_to_jsonb(datum: &Datum, _: &FormatContext) -> Converted {
    let text = datum.as_str().ok_or_else(|| unexpected(datum))?;
    Ok(Datum::Jsonb(json::normalize(text)?.into()))
}

pub(super) fn jsonb_to_json(datum: &Datum, _: &FormatContext) -> Converted {
    Ok(Datum::Text(datum.as_text().ok_or_else(|| unexpected(datum))?.clone()))
}

fn cannot_cast_json(node: &json::Node, type_name: &str) -> SqlError {
    let kind = match node.value {
        Value::Null => "null",
        Value::Array(_) | Value::Object(_) => {
            let kind = node.type_name();
            return SqlError::new(
                sqlstate::INVALID_PARAMETER_VALUE,
                format!("cannot cast jsonb {kind} to type {type_name}"),
            );
        }
        _ => node.type_name(),
    };
    SqlError::new(sqlstate::INVALID_PARAMETER_VALUE, format!("cannot cast jsonb {kind} to type {type_name}"))
}

fn json_number(datum: &Datum, type_name: &str) -> Result<Datum, SqlError> {
    let node = json::parse(datum.as_str().ok_or_else(|| unexpected(datum))?)?;
    node.number().map(Datum::Numeric).ok_or_else(|| cannot_cast_json(&node, type_name))
}

pub(super) fn jsonb_to_bool(datum: &Datum, _: &FormatContext) -> Converted {
    let node = json::parse(datum.as_str().ok_or_else(|| unexpected(datum))?)?;
    match node.value {
        Value::Bool(value) => Ok(Datum::Bool(value)),
        _ => Err(cannot_cast_json(&node, "boolean")),
    }
}

pub(super) fn jsonb_to_int2(datum: &Datum, context: &FormatContext) -> Converted {
    to_int2(&json_number(datum, "smallint")?, context)
}

pub(super) fn jsonb_to_int4(datum: &Datum, context: &FormatContext) -> Converted {
    to_int4(&json_number(datum, "integer")?, context)
}

pub(super) fn jsonb_to_int8(datum: &Datum, context: &FormatContext) -> Converted {
    to_int8(&json_number(datum, "bigint")?, context)
}

pub(super) fn jsonb_to_float4(datum: &Datum, context: &FormatContext) -> Converted {
    to_float4(&json_number(datum, "real")?, context)
}

pub(super) fn jsonb_to_float8(datum: &Datum, context: &FormatContext) -> Converted {
    to_float8(&json_number(datum, "double precision")?, context)
}

pub(super) fn jsonb_to_numeric(datum: &Datum, _: &FormatContext) -> Converted {
    json_number(datum, "numeric")
}

pub(super) fn date_to_timestamp(datum: &Datum, _: &FormatContext) -> Converted {
    let Datum::Date(date) = datum else { return Err(unexpected(datum)) };
    arithmetic::date_to_timestamp(*date).map(Datum::Timestamp)
}

pub(super) fn date_to_timestamptz(datum: &Datum, context: &FormatContext) -> Converted {
    let Datum::Date(date) = datum else { return Err(unexpected(datum)) };
    let local = arithmetic::date_to_timestamp(*date)?;
    arithmetic::local_to_utc(local, context.time_zone).map(Datum::Timestamptz)
}

/// What a date is among timestamps, or a local time among moments, that it is compared with: what
/// none of them can be is beyond all of them but the infinities.
fn among(datum: &Datum, converted: Converted, make: fn(i64) -> Datum) -> Converted {
    match converted {
        Err(error) if error.sqlstate == sqlstate::DATETIME_FIELD_OVERFLOW => {
            let is_late = matches!(datum, Datum::Date(1..) | Datum::Timestamp(1..));
            Ok(make(if is_late { i64::MAX - 1 } else { i64::MIN + 1 }))
        }
        converted => converted,
    }
}

pub(super) fn date_among_timestamps(datum: &Datum, context: &FormatContext) -> Converted {
    among(datum, date_to_timestamp(datum, context), Datum::Timestamp)
}

pub(super) fn date_among_moments(datum: &Datum, context: &FormatContext) -> Converted {
    among(datum, date_to_timestamptz(datum, context), Datum::Timestamptz)
}

pub(super) fn timestamp_among_moments(datum: &Datum, context: &FormatContext) -> Converted {
    among(datum, timestamp_to_timestamptz(datum, context), Datum::Timestamptz)
}

pub(super) fn time_to_interval(datum: &Datum, _: &FormatContext) -> Converted {
    let Datum::Time(micros) = datum else { return Err(unexpected(datum)) };
    Ok(Datum::Interval(Interval { micros: *micros, ..Interval::default() }))
}

pub(super) fn interval_to_time(datum: &Datum, _: &FormatContext) -> Converted {
    let Datum::Interval(interval) = datum else { return Err(unexpected(datum)) };
    Ok(Datum::Time(interval.micros.rem_euclid(datetime::DAY)))
}

pub(super) fn timestamp_to_date(datum: &Datum, _: &FormatContext) -> Converted {
    let Datum::Timestamp(timestamp) = datum else { return Err(unexpected(datum)) };
    Ok(Datum::Date(arithmetic::timestamp_to_date(*timestamp)))
}

/// Infinities have no time of day.
fn time_of(timestamp: i64) -> Datum {
    if datetime::is_finite_timestamp(timestamp) {
        Datum::Time(calendar::split(timestamp).1)
    } else {
        Datum::Null
    }
}

pub(super) fn timestamp_to_time(datum: &Datum, _: &FormatContext) -> Converted {
    let Datum::Timestamp(timestamp) = datum else { return Err(unexpected(datum)) };
    Ok(time_of(*timestamp))
}

pub(super) fn timestamp_to_timestamptz(datum: &Datum, context: &FormatContext) -> Converted {
    let Datum::Timestamp(timestamp) = datum else { return Err(unexpected(datum)) };
    arithmetic::local_to_utc(*timestamp, context.time_zone).map(Datum::Timestamptz)
}

pub(super) fn timestamptz_to_date(datum: &Datum, context: &FormatContext) -> Converted {
    let Datum::Timestamptz(timestamp) = datum else { return Err(unexpected(datum)) };
    let local = arithmetic::utc_to_local(*timestamp, context.time_zone)?;
    Ok(Datum::Date(arithmetic::timestamp_to_date(local)))
}

pub(super) fn timestamptz_to_time(datum: &Datum, context: &FormatContext) -> Converted {
    let Datum::Timestamptz(timestamp) = datum else { return Err(unexpected(datum)) };
    Ok(time_of(arithmetic::utc_to_local(*timestamp, context.time_zone)?))
}

pub(super) fn timestamptz_to_timestamp(datum: &Datum, context: &FormatContext) -> Converted {
    let Datum::Timestamptz(timestamp) = datum else { return Err(unexpected(datum)) };
    arithmetic::utc_to_local(*timestamp, context.time_zone).map(Datum::Timestamp)
}
