//! Dates and times: the calendar, time zones, reading, printing and arithmetic.
//!
//! All counts start at 2000-01-01 00:00. Years are astronomical inside: 1 BC is year 0. The
//! calendar is Gregorian throughout.

pub(crate) mod arithmetic;
pub(crate) mod calendar;
mod field;
mod format;
mod interval_style;
pub(crate) mod interval_text;
mod parse;
mod posix;
mod style;
mod token;
mod words;
pub(crate) mod zone;

pub(crate) use field::{Zone, zone_in_time, zone_of as named_zone};
pub(crate) use format::{
    write_date, write_iso_date, write_iso_timestamp, write_iso_timestamptz, write_time, write_timestamp,
    write_timestamptz,
};
pub(crate) use interval_style::write_interval;
pub(crate) use interval_text::parse_interval;
pub(crate) use parse::{parse_date, parse_time, parse_timestamp, parse_timestamptz};
pub(crate) use words::{MONTHS, Unit, WEEKDAYS};

use crate::error::{SqlError, sqlstate};

/// Microseconds.
pub(crate) const SECOND: i64 = 1_000_000;
/// Microseconds.
pub(crate) const MINUTE: i64 = 60 * SECOND;
/// Microseconds.
pub(crate) const HOUR: i64 = 60 * MINUTE;
/// Microseconds.
pub(crate) const DAY: i64 = 24 * HOUR;

/// Days of a month where none in particular is meant.
pub(crate) const MONTH_DAYS: i32 = 30;

/// First valid day: 4714-11-24 BC.
pub(crate) const MIN_DATE: i32 = -2_451_545;
/// First invalid day after all valid ones: 5874898-01-01.
pub(crate) const END_DATE: i32 = 2_145_031_949;
/// First valid timestamp.
pub(crate) const MIN_TIMESTAMP: i64 = -211_813_488_000_000_000;
/// First invalid timestamp after all valid ones: 294277-01-01.
pub(crate) const END_TIMESTAMP: i64 = 9_223_371_331_200_000_000;

/// The infinities of dates.
pub(crate) const DATE_INFINITY: i32 = i32::MAX;
/// See [`DATE_INFINITY`].
pub(crate) const DATE_NEG_INFINITY: i32 = i32::MIN;
/// The infinities of timestamps.
pub(crate) const TIMESTAMP_INFINITY: i64 = i64::MAX;
/// See [`TIMESTAMP_INFINITY`].
pub(crate) const TIMESTAMP_NEG_INFINITY: i64 = i64::MIN;

/// Not one of the infinities?
pub(crate) fn is_finite_date(date: i32) -> bool {
    date != DATE_INFINITY && date != DATE_NEG_INFINITY
}

/// Not one of the infinities?
pub(crate) fn is_finite_timestamp(timestamp: i64) -> bool {
    timestamp != TIMESTAMP_INFINITY && timestamp != TIMESTAMP_NEG_INFINITY
}

/// 22008.
#[cold]
pub(crate) fn out_of_range(type_name: &str) -> SqlError {
    SqlError::new(sqlstate::DATETIME_FIELD_OVERFLOW, format!("{type_name} out of range"))
}

/// The timestamp, if it is within the range of the type (or infinite). 22008.
pub(crate) fn check_timestamp(timestamp: Option<i64>) -> Result<i64, SqlError> {
    timestamp.filter(|t| (MIN_TIMESTAMP..END_TIMESTAMP).contains(t)).ok_or_else(|| out_of_range("timestamp"))
}

/// The date, if it is within the range of the type. 22008.
pub(crate) fn check_date(date: Option<i32>) -> Result<i32, SqlError> {
    date.filter(|d| (MIN_DATE..END_DATE).contains(d)).ok_or_else(|| out_of_range("date"))
}

/// Rounds microseconds to `digits` digits of a second, half away from zero.
pub(crate) fn round_micros(micros: i64, digits: u32) -> i64 {
    if digits >= 6 || micros == i64::MAX || micros == i64::MIN {
        return micros;
    }
    let unit = 10i64.pow(6 - digits);
    let half = unit / 2;
    let rounded = if micros >= 0 { micros.saturating_add(half) } else { micros.saturating_sub(half) };
    rounded / unit * unit
}
