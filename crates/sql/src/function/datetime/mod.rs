//! Dates, times and intervals: the clock, arithmetic, fields, and making them from parts.

mod extract;
mod truncate;

use super::EvalContext;
use super::math::unexpected;
use super::operator::{Operator, infix, prefix};
use super::registry::{Function, plain};
use super::string::{integer, str_of};
use super::to_char;
use crate::error::{SqlError, sqlstate};
use crate::types::TypeId::{
    Bool, Date, Float8, Int4, Int8, Interval as I, Numeric, Text as T, Time, Timestamp, Timestamptz,
};
use crate::types::datetime::{
    self, DAY, HOUR, MINUTE, SECOND, arithmetic, calendar, check_timestamp, is_finite_date,
    is_finite_timestamp,
};
use crate::types::{Datum, Interval};

type Computed = Result<Datum, SqlError>;

/// The timestamp of a datum, with or without zone.
pub(super) fn timestamp(datum: &Datum) -> Result<i64, SqlError> {
    match datum {
        Datum::Timestamp(value) | Datum::Timestamptz(value) => Ok(*value),
        other => Err(unexpected(&[other])),
    }
}

/// The interval of a datum.
pub(super) fn interval(datum: &Datum) -> Result<Interval, SqlError> {
    if let Datum::Interval(value) = datum { Ok(*value) } else { Err(unexpected(&[datum])) }
}

fn date(datum: &Datum) -> Result<i32, SqlError> {
    if let Datum::Date(value) = datum { Ok(*value) } else { Err(unexpected(&[datum])) }
}

fn time(datum: &Datum) -> Result<i64, SqlError> {
    if let Datum::Time(value) = datum { Ok(*value) } else { Err(unexpected(&[datum])) }
}

fn now(_: &[Datum], context: &EvalContext<'_>) -> Computed {
    Ok(Datum::Timestamptz(context.transaction_time))
}

fn statement_timestamp(_: &[Datum], context: &EvalContext<'_>) -> Computed {
    Ok(Datum::Timestamptz(context.statement_time))
}

fn clock_timestamp(_: &[Datum], context: &EvalContext<'_>) -> Computed {
    Ok(Datum::Timestamptz(context.session.clock()))
}

fn local_now(context: &EvalContext<'_>) -> Result<i64, SqlError> {
    arithmetic::utc_to_local(context.transaction_time, context.time_zone)
}

fn timeofday(_: &[Datum], context: &EvalContext<'_>) -> Computed {
    let now = context.session.clock();
    let text = to_char::format_timestamp(now, Some(context.time_zone), "Dy Mon DD HH24:MI:SS.US YYYY TZ")?;
    Ok(text.into())
}

fn age(arguments: &[Datum], context: &EvalContext<'_>) -> Computed {
    let local = |datum: &Datum| match datum {
        Datum::Timestamptz(value) => arithmetic::utc_to_local(*value, context.time_zone),
        other => timestamp(other),
    };
    let (a, b) = match arguments {
        [only] => {
            let today = calendar::split(local_now(context)?).0 * DAY;
            (today, local(only)?)
        }
        [a, b, ..] => (local(a)?, local(b)?),
        [] => return Err(unexpected(&[])),
    };
    arithmetic::age(a, b).map(Datum::Interval)
}

fn add_interval(a: &Datum, b: &Datum, context: &EvalContext<'_>) -> Computed {
    let by = interval(b)?;
    match a {
        Datum::Timestamp(value) => arithmetic::add_to_timestamp(*value, by).map(Datum::Timestamp),
        Datum::Timestamptz(value) => {
            arithmetic::add_to_timestamptz(*value, by, context.time_zone).map(Datum::Timestamptz)
        }
        Datum::Date(value) => {
            let midnight = arithmetic::date_to_timestamp(*value)?;
            arithmetic::add_to_timestamp(midnight, by).map(Datum::Timestamp)
        }
        Datum::Time(value) => {
            Ok(Datum::Time((i128::from(*value) + i128::from(by.micros)).rem_euclid(i128::from(DAY)) as i64))
        }
        Datum::Interval(value) => value.plus(by).map(Datum::Interval),
        _ => Err(unexpected(&[a, b])),
    }
}

fn subtract_interval(a: &Datum, b: &Datum, context: &EvalContext<'_>) -> Computed {
    let by = interval(b)?;
    if let Datum::Time(value) = a {
        let micros = i128::from(*value) - i128::from(by.micros);
        return Ok(Datum::Time(micros.rem_euclid(i128::from(DAY)) as i64));
    }
    add_interval(a, &Datum::Interval(by.negated()?), context)
}

fn interval_add(a: &Datum, b: &Datum, context: &EvalContext<'_>) -> Computed {
    add_interval(b, a, context)
}

fn add_days(a: &Datum, b: &Datum, _: &EvalContext<'_>) -> Computed {
    arithmetic::add_days(date(a)?, integer(b)?).map(Datum::Date)
}

fn days_add(a: &Datum, b: &Datum, context: &EvalContext<'_>) -> Computed {
    add_days(b, a, context)
}

fn subtract_days(a: &Datum, b: &Datum, _: &EvalContext<'_>) -> Computed {
    arithmetic::add_days(date(a)?, -integer(b)?).map(Datum::Date)
}

fn subtract_dates(a: &Datum, b: &Datum, _: &EvalContext<'_>) -> Computed {
    let (a, b) = (date(a)?, date(b)?);
    if !is_finite_date(a) || !is_finite_date(b) {
        return Err(SqlError::new(sqlstate::DATETIME_FIELD_OVERFLOW, "cannot subtract infinite dates"));
    }
    a.checked_sub(b).map(Datum::Int4).ok_or_else(|| SqlError::out_of_range("integer"))
}

fn subtract_timestamps(a: &Datum, b: &Datum, _: &EvalContext<'_>) -> Computed {
    arithmetic::subtract_timestamps(timestamp(a)?, timestamp(b)?).map(Datum::Interval)
}

fn subtract_times(a: &Datum, b: &Datum, _: &EvalContext<'_>) -> Computed {
    Ok(Datum::Interval(Interval { micros: time(a)? - time(b)?, ..Interval::default() }))
}

fn date_and_time(a: &Datum, b: &Datum, _: &EvalContext<'_>) -> Computed {
    let midnight = arithmetic::date_to_timestamp(date(a)?)?;
    if !is_finite_timestamp(midnight) {
        return Ok(Datum::Timestamp(midnight));
    }
    check_timestamp(midnight.checked_add(time(b)?)).map(Datum::Timestamp)
}

fn time_and_date(a: &Datum, b: &Datum, context: &EvalContext<'_>) -> Computed {
    date_and_time(b, a, context)
}

fn float(datum: &Datum) -> Result<f64, SqlError> {
    if let Datum::Float8(value) = datum { Ok(*value) } else { Err(unexpected(&[datum])) }
}

fn interval_times(a: &Datum, b: &Datum, _: &EvalContext<'_>) -> Computed {
    interval(a)?.times(float(b)?).map(Datum::Interval)
}

fn times_interval(a: &Datum, b: &Datum, context: &EvalContext<'_>) -> Computed {
    interval_times(b, a, context)
}

fn interval_divided(a: &Datum, b: &Datum, _: &EvalContext<'_>) -> Computed {
    interval(a)?.divided_by(float(b)?).map(Datum::Interval)
}

fn negate(a: &Datum, _: &EvalContext<'_>) -> Computed {
    interval(a)?.negated().map(Datum::Interval)
}

fn justify_hours(arguments: &[Datum], _: &EvalContext<'_>) -> Computed {
    interval(&arguments[0])?.justify_hours().map(Datum::Interval)
}

fn justify_days(arguments: &[Datum], _: &EvalContext<'_>) -> Computed {
    interval(&arguments[0])?.justify_days().map(Datum::Interval)
}

fn justify_interval(arguments: &[Datum], _: &EvalContext<'_>) -> Computed {
    interval(&arguments[0])?.justify().map(Datum::Interval)
}

fn isfinite(arguments: &[Datum], _: &EvalContext<'_>) -> Computed {
    Ok(Datum::Bool(match &arguments[0] {
        Datum::Date(value) => is_finite_date(*value),
        Datum::Interval(_) => true,
        other => is_finite_timestamp(timestamp(other)?),
    }))
}

#[cold]
fn field_out_of_range(kind: &str, text: String) -> SqlError {
    SqlError::new(sqlstate::DATETIME_FIELD_OVERFLOW, format!("{kind} field value out of range: {text}"))
}

/// Days since 2000 of a year (negative: BC), month and day. 22008.
fn civil(arguments: &[Datum]) -> Result<i64, SqlError> {
    let (year, month, day) = (integer(&arguments[0])?, integer(&arguments[1])?, integer(&arguments[2])?);
    let invalid = || field_out_of_range("date", format!("{year}-{month:02}-{day:02}"));
    if year == 0 || !(1..=12).contains(&month) || year.abs() > 6_000_000 {
        return Err(invalid());
    }
    let astronomical = (if year < 0 { year + 1 } else { year }) as i32;
    if day < 1 || day > i64::from(calendar::days_in_month(astronomical, month as u32)) {
        return Err(invalid());
    }
    Ok(calendar::days_from_civil(astronomical, month as u32, day as u32))
}

fn make_date(arguments: &[Datum], _: &EvalContext<'_>) -> Computed {
    let days = civil(arguments)?;
    datetime::check_date(i32::try_from(days).ok()).map(Datum::Date).map_err(|_| {
        let part = |i: usize| arguments[i].as_i64().unwrap_or(0);
        SqlError::new(
            sqlstate::DATETIME_FIELD_OVERFLOW,
            format!("date out of range: {}-{:02}-{:02}", part(0), part(1), part(2)),
        )
    })
}

/// Microseconds of hour, minute and second. 22008.
fn clock(arguments: &[Datum]) -> Result<i64, SqlError> {
    let (hour, minute, second) = (integer(&arguments[0])?, integer(&arguments[1])?, float(&arguments[2])?);
    let micros = (second * 1e6).round_ties_even();
    let fits = (0..=24).contains(&hour) && (0..60).contains(&minute) && (0.0..=60e6).contains(&micros);
    let total = hour * HOUR + minute * MINUTE + if fits { micros as i64 } else { 0 };
    if !fits || total > DAY {
        return Err(field_out_of_range("time", format!("{hour}:{minute:02}:{second:02}")));
    }
    Ok(total)
}

fn make_time(arguments: &[Datum], _: &EvalContext<'_>) -> Computed {
    clock(arguments).map(Datum::Time)
}

fn make_local(arguments: &[Datum]) -> Result<i64, SqlError> {
    let (days, micros) = (civil(&arguments[..3])?, clock(&arguments[3..6])?);
    check_timestamp(days.checked_mul(DAY).and_then(|d| d.checked_add(micros)))
}

fn make_timestamp(arguments: &[Datum], _: &EvalContext<'_>) -> Computed {
    make_local(arguments).map(Datum::Timestamp)
}

fn make_timestamptz(arguments: &[Datum], context: &EvalContext<'_>) -> Computed {
    let local = make_local(arguments)?;
    let moment = match arguments.get(6) {
        Some(zone) => local_in_zone(local, datetime::zone_in_time(str_of(zone)?)?)?,
        None => arithmetic::local_to_utc(local, context.time_zone)?,
    };
    Ok(Datum::Timestamptz(moment))
}

/// `make_interval(years, months, weeks, days, hours, mins, secs)`, each 0 if left out.
fn make_interval(arguments: &[Datum], _: &EvalContext<'_>) -> Computed {
    let part = |i: usize| arguments.get(i).and_then(Datum::as_i64).unwrap_or(0);
    let seconds = arguments.get(6).map_or(Ok(0.0), float)?;
    let out_of_range = || datetime::out_of_range("interval");
    if !seconds.is_finite() {
        return Err(out_of_range());
    }
    // Seconds that are too many are the most that there can be.
    let micros = ((seconds * SECOND as f64).round_ties_even() as i128)
        .saturating_add(i128::from(part(4)) * i128::from(HOUR) + i128::from(part(5)) * i128::from(MINUTE));
    Ok(Datum::Interval(Interval {
        months: i32::try_from(part(0) * 12 + part(1)).map_err(|_| out_of_range())?,
        days: i32::try_from(part(2) * 7 + part(3)).map_err(|_| out_of_range())?,
        micros: i64::try_from(micros).map_err(|_| out_of_range())?,
    }))
}

/// Seconds since 1970 as a moment.
fn epoch_to_timestamp(arguments: &[Datum], _: &EvalContext<'_>) -> Computed {
    let seconds = float(&arguments[0])?;
    if seconds.is_nan() {
        return Err(SqlError::new(sqlstate::DATETIME_FIELD_OVERFLOW, "timestamp cannot be NaN"));
    }
    if seconds.is_infinite() {
        return Ok(Datum::Timestamptz(if seconds > 0.0 { i64::MAX } else { i64::MIN }));
    }
    let micros = ((seconds - datetime::zone::UNIX_EPOCH_SHIFT as f64) * 1e6).round_ties_even();
    let moment = (micros.abs() < 9.3e18).then_some(micros as i64);
    check_timestamp(moment).map(Datum::Timestamptz).map_err(|_| {
        let mut shown = Vec::new();
        crate::types::float::write_f64(seconds, -9, &mut shown);
        let shown = String::from_utf8_lossy(&shown);
        SqlError::new(sqlstate::DATETIME_FIELD_OVERFLOW, format!("timestamp out of range: \"{shown}\""))
    })
}

fn named_zone(name: &str) -> Result<datetime::Zone, SqlError> {
    datetime::named_zone(name).ok_or_else(|| {
        SqlError::new(sqlstate::INVALID_PARAMETER_VALUE, format!("time zone \"{name}\" not recognized"))
    })
}

fn local_in_zone(local: i64, zone: datetime::Zone) -> Result<i64, SqlError> {
    if !is_finite_timestamp(local) {
        return Ok(local);
    }
    let offset = zone.offset_of_local(local);
    check_timestamp(local.checked_sub(i64::from(offset) * SECOND))
}

/// `timestamp AT TIME ZONE zone` and `timestamptz AT TIME ZONE zone`.
fn at_time_zone(arguments: &[Datum], _: &EvalContext<'_>) -> Computed {
    let zone = named_zone(str_of(&arguments[0])?)?;
    match &arguments[1] {
        Datum::Timestamp(local) => local_in_zone(*local, zone).map(Datum::Timestamptz),
        other => {
            let moment = timestamp(other)?;
            if !is_finite_timestamp(moment) {
                return Ok(Datum::Timestamp(moment));
            }
            let offset = zone.offset_at(moment);
            check_timestamp(moment.checked_add(i64::from(offset) * SECOND)).map(Datum::Timestamp)
        }
    }
}

fn at_interval_zone(arguments: &[Datum], _: &EvalContext<'_>) -> Computed {
    let offset = interval(&arguments[0])?;
    if offset.months != 0 || offset.days != 0 {
        return Err(SqlError::new(
            sqlstate::INVALID_PARAMETER_VALUE,
            "interval time zone must not include months or days",
        ));
    }
    // Zones have no parts of seconds.
    let offset = offset.micros / SECOND * SECOND;
    match &arguments[1] {
        Datum::Timestamp(local) if is_finite_timestamp(*local) => {
            check_timestamp(local.checked_sub(offset)).map(Datum::Timestamptz)
        }
        Datum::Timestamp(local) => Ok(Datum::Timestamptz(*local)),
        other => {
            let moment = timestamp(other)?;
            if !is_finite_timestamp(moment) {
                return Ok(Datum::Timestamp(moment));
            }
            check_timestamp(moment.checked_add(offset)).map(Datum::Timestamp)
        }
    }
}

/// `date_bin(stride, source, origin)`.
fn date_bin(arguments: &[Datum], _: &EvalContext<'_>) -> Computed {
    let stride = interval(&arguments[0])?;
    let (source, origin) = (timestamp(&arguments[1])?, timestamp(&arguments[2])?);
    if !is_finite_timestamp(source) {
        return Ok(arguments[1].clone());
    }
    if !is_finite_timestamp(origin) {
        return Err(SqlError::new(sqlstate::DATETIME_FIELD_OVERFLOW, "origin out of range"));
    }
    if stride.months != 0 {
        return Err(SqlError::unsupported(
            "timestamps cannot be binned into intervals containing months or years: this",
        ));
    }
    let out_of_range = || SqlError::new(sqlstate::DATETIME_FIELD_OVERFLOW, "interval out of range");
    let days = i64::from(stride.days).checked_mul(DAY);
    let width = days.and_then(|days| days.checked_add(stride.micros)).ok_or_else(out_of_range)?;
    if width <= 0 {
        return Err(SqlError::new(sqlstate::DATETIME_FIELD_OVERFLOW, "stride must be greater than zero"));
    }
    let distance = source.checked_sub(origin).ok_or_else(out_of_range)?;
    let binned = distance.div_euclid(width).checked_mul(width).and_then(|binned| binned.checked_add(origin));
    let binned = check_timestamp(binned)?;
    Ok(if matches!(arguments[1], Datum::Timestamptz(_)) {
        Datum::Timestamptz(binned)
    } else {
        Datum::Timestamp(binned)
    })
}

/// `(a, b) OVERLAPS (c, d)`: the ends may come in either order; NULLs are as SQL has them.
fn overlaps(arguments: &[Datum], context: &EvalContext<'_>) -> Computed {
    let period = |start: &Datum, end: &Datum| -> Result<(Datum, Datum), SqlError> {
        let end = match (start, end) {
            (Datum::Null, Datum::Interval(_)) => Datum::Null,
            (start, Datum::Interval(_)) => add_interval(start, end, context)?,
            (_, end) => end.clone(),
        };
        // NULL orders last.
        Ok(if start.compare(&end).is_gt() { (end, start.clone()) } else { (start.clone(), end) })
    };
    let (first, second) = (period(&arguments[0], &arguments[1])?, period(&arguments[2], &arguments[3])?);
    if first.0.is_null() || second.0.is_null() {
        return Ok(Datum::Null);
    }
    let (earlier, later) = if first.0.compare(&second.0).is_gt() { (second, first) } else { (first, second) };
    // Periods that begin together overlap, if both end some time.
    let together = earlier.0 == later.0;
    if earlier.1.is_null() || (together && later.1.is_null()) {
        return Ok(Datum::Null);
    }
    if together || later.0.compare(&earlier.1).is_lt() {
        return Ok(Datum::Bool(true));
    }
    Ok(if later.1.is_null() { Datum::Null } else { Datum::Bool(false) })
}

pub(super) static FUNCTIONS: &[Function] = &[
    plain(1299, "now", &[], Timestamptz, now).stable(),
    plain(2647, "transaction_timestamp", &[], Timestamptz, now).stable(),
    plain(2648, "statement_timestamp", &[], Timestamptz, statement_timestamp).stable(),
    plain(2649, "clock_timestamp", &[], Timestamptz, clock_timestamp).volatile(),
    plain(274, "timeofday", &[], T, timeofday).volatile(),
    plain(2059, "age", &[Timestamp], I, age).stable(),
    plain(1386, "age", &[Timestamptz], I, age).stable(),
    plain(2058, "age", &[Timestamp, Timestamp], I, age),
    plain(1199, "age", &[Timestamptz, Timestamptz], I, age).stable(),
    plain(1384, "date_part", &[T, Date], Float8, extract::date_part),
    plain(1385, "date_part", &[T, Time], Float8, extract::date_part),
    plain(2021, "date_part", &[T, Timestamp], Float8, extract::date_part),
    plain(1171, "date_part", &[T, Timestamptz], Float8, extract::date_part).stable(),
    plain(1172, "date_part", &[T, I], Float8, extract::date_part),
    plain(6199, "extract", &[T, Date], Numeric, extract::extract),
    plain(6200, "extract", &[T, Time], Numeric, extract::extract),
    plain(6202, "extract", &[T, Timestamp], Numeric, extract::extract),
    plain(6203, "extract", &[T, Timestamptz], Numeric, extract::extract).stable(),
    plain(6204, "extract", &[T, I], Numeric, extract::extract),
    plain(2020, "date_trunc", &[T, Timestamp], Timestamp, truncate::date_trunc),
    plain(1217, "date_trunc", &[T, Timestamptz], Timestamptz, truncate::date_trunc).stable(),
    plain(1284, "date_trunc", &[T, Timestamptz, T], Timestamptz, truncate::date_trunc).stable(),
    plain(1218, "date_trunc", &[T, I], I, truncate::date_trunc),
    plain(6177, "date_bin", &[I, Timestamp, Timestamp], Timestamp, date_bin),
    plain(6178, "date_bin", &[I, Timestamptz, Timestamptz], Timestamptz, date_bin),
    plain(1175, "justify_hours", &[I], I, justify_hours),
    plain(1295, "justify_days", &[I], I, justify_days),
    plain(2711, "justify_interval", &[I], I, justify_interval),
    plain(1373, "isfinite", &[Date], Bool, isfinite),
    plain(2048, "isfinite", &[Timestamp], Bool, isfinite),
    plain(1389, "isfinite", &[Timestamptz], Bool, isfinite),
    plain(1390, "isfinite", &[I], Bool, isfinite),
    plain(3846, "make_date", &[Int4, Int4, Int4], Date, make_date),
    plain(3847, "make_time", &[Int4, Int4, Float8], Time, make_time),
    plain(3461, "make_timestamp", &[Int4, Int4, Int4, Int4, Int4, Float8], Timestamp, make_timestamp),
    plain(3462, "make_timestamptz", &[Int4, Int4, Int4, Int4, Int4, Float8], Timestamptz, make_timestamptz)
        .stable(),
    plain(
        3463,
        "make_timestamptz",
        &[Int4, Int4, Int4, Int4, Int4, Float8, T],
        Timestamptz,
        make_timestamptz,
    )
    .stable(),
    plain(3464, "make_interval", &[Int4, Int4, Int4, Int4, Int4, Int4, Float8], I, make_interval)
        .with_optional(7)
        .with_names(&["years", "months", "weeks", "days", "hours", "mins", "secs"]),
    plain(1158, "to_timestamp", &[Float8], Timestamptz, epoch_to_timestamp),
    plain(2069, "timezone", &[T, Timestamp], Timestamptz, at_time_zone),
    plain(1159, "timezone", &[T, Timestamptz], Timestamp, at_time_zone),
    plain(2070, "timezone", &[I, Timestamp], Timestamptz, at_interval_zone),
    plain(1026, "timezone", &[I, Timestamptz], Timestamp, at_interval_zone),
    plain(2041, "overlaps", &[Timestamp, Timestamp, Timestamp, Timestamp], Bool, overlaps).called_on_null(),
    plain(2042, "overlaps", &[Timestamp, I, Timestamp, I], Bool, overlaps).called_on_null(),
    plain(2043, "overlaps", &[Timestamp, Timestamp, Timestamp, I], Bool, overlaps).called_on_null(),
    plain(2044, "overlaps", &[Timestamp, I, Timestamp, Timestamp], Bool, overlaps).called_on_null(),
    plain(1304, "overlaps", &[Timestamptz, Timestamptz, Timestamptz, Timestamptz], Bool, overlaps)
        .called_on_null(),
    plain(1305, "overlaps", &[Timestamptz, I, Timestamptz, I], Bool, overlaps).called_on_null().stable(),
    plain(1306, "overlaps", &[Timestamptz, Timestamptz, Timestamptz, I], Bool, overlaps)
        .called_on_null()
        .stable(),
    plain(1307, "overlaps", &[Timestamptz, I, Timestamptz, Timestamptz], Bool, overlaps)
        .called_on_null()
        .stable(),
    plain(1308, "overlaps", &[Time, Time, Time, Time], Bool, overlaps).called_on_null(),
    plain(1309, "overlaps", &[Time, I, Time, I], Bool, overlaps).called_on_null(),
    plain(1310, "overlaps", &[Time, Time, Time, I], Bool, overlaps).called_on_null(),
    plain(1311, "overlaps", &[Time, I, Time, Time], Bool, overlaps).called_on_null(),
    plain(2049, "to_char", &[Timestamp, T], T, to_char::timestamp_to_char).stable(),
    plain(1770, "to_char", &[Timestamptz, T], T, to_char::timestamp_to_char).stable(),
    plain(1768, "to_char", &[I, T], T, to_char::interval_to_char).stable(),
    plain(1773, "to_char", &[Int4, T], T, to_char::number_to_char).stable(),
    plain(1774, "to_char", &[Int8, T], T, to_char::number_to_char).stable(),
    plain(1772, "to_char", &[Numeric, T], T, to_char::number_to_char).stable(),
    plain(1775, "to_char", &[crate::types::TypeId::Float4, T], T, to_char::number_to_char).stable(),
    plain(1776, "to_char", &[Float8, T], T, to_char::number_to_char).stable(),
    plain(1780, "to_date", &[T, T], Date, to_char::to_date).stable(),
    plain(1778, "to_timestamp", &[T, T], Timestamptz, to_char::to_timestamp).stable(),
    plain(1777, "to_number", &[T, T], Numeric, to_char::to_number).stable(),
];

pub(super) fn operators() -> Vec<Operator> {
    let mut all = vec![
        infix("+", Date, Int4, Date, add_days),
        infix("+", Int4, Date, Date, days_add),
        infix("-", Date, Int4, Date, subtract_days),
        infix("-", Date, Date, Int4, subtract_dates),
        infix("-", Timestamp, Timestamp, I, subtract_timestamps),
        infix("-", Timestamptz, Timestamptz, I, subtract_timestamps),
        infix("-", Time, Time, I, subtract_times),
        infix("+", Date, Time, Timestamp, date_and_time),
        infix("+", Time, Date, Timestamp, time_and_date),
        infix("+", I, I, I, add_interval),
        infix("-", I, I, I, subtract_interval),
        infix("*", I, Float8, I, interval_times),
        infix("*", Float8, I, I, times_interval),
        infix("/", I, Float8, I, interval_divided),
        prefix("-", I, I, negate),
    ];
    for (ty, result) in [(Date, Timestamp), (Timestamp, Timestamp), (Timestamptz, Timestamptz), (Time, Time)]
    {
        let zoned = ty == Timestamptz;
        let set = [
            infix("+", ty, I, result, add_interval),
            infix("+", I, ty, result, interval_add),
            infix("-", ty, I, result, subtract_interval),
        ];
        all.extend(set.into_iter().map(|operator| if zoned { operator.stable() } else { operator }));
    }
    all
}
