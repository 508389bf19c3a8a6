//! `date_trunc`: a timestamp or interval cut to a unit.

use super::{interval, timestamp};
use crate::error::{SqlError, sqlstate};
use crate::function::EvalContext;
use crate::function::string::str_of;
use crate::types::datetime::calendar::{self, civil_from_days, days_from_civil};
use crate::types::datetime::{
    self, DAY, HOUR, MINUTE, SECOND, Unit, check_timestamp, is_finite_timestamp, zone,
};
use crate::types::{Datum, Interval, TimeZone};

fn unit(word: &str, type_name: &str) -> Result<Unit, SqlError> {
    let lower = word.to_ascii_lowercase();
    // What is only a field is no unit here.
    let field_only = |unit: &Unit| {
        use Unit::*;
        matches!(unit, DayOfWeek | IsoDayOfWeek | DayOfYear | IsoYear | Epoch | Julian)
    };
    Unit::from_word(&lower).filter(|unit| !field_only(unit)).ok_or_else(|| {
        SqlError::new(
            sqlstate::INVALID_PARAMETER_VALUE,
            format!("unit \"{lower}\" not recognized for type {type_name}"),
        )
    })
}

#[cold]
fn unsupported(word: &str, type_name: &str) -> SqlError {
    SqlError::new(
        sqlstate::FEATURE_NOT_SUPPORTED,
        format!("unit \"{}\" not supported for type {type_name}", word.to_ascii_lowercase()),
    )
}

/// First year of a span of so many years. Centuries and millennia begin with a year 1, decades with
/// a year 0.
fn first_year(year: i32, unit: Unit) -> i32 {
    match unit {
        Unit::Decade => year.div_euclid(10) * 10,
        Unit::Century => (year - 1).div_euclid(100) * 100 + 1,
        Unit::Millennium => (year - 1).div_euclid(1000) * 1000 + 1,
        _ => year,
    }
}

/// Microseconds of the units that divide a day.
fn width(unit: Unit) -> Option<i64> {
    Some(match unit {
        Unit::Microsecond => 1,
        Unit::Millisecond => 1000,
        Unit::Second => SECOND,
        Unit::Minute => MINUTE,
        Unit::Hour => HOUR,
        Unit::Day => DAY,
        _ => return None,
    })
}

fn truncate_local(unit: Unit, local: i64) -> Option<i64> {
    if let Some(width) = width(unit) {
        return Some(local - local.rem_euclid(width));
    }
    let days = calendar::split(local).0;
    let civil = civil_from_days(days);
    let start = match unit {
        Unit::Week => {
            let (year, week) = calendar::iso_week(days);
            calendar::iso_week_start(year, week)
        }
        Unit::Month => days_from_civil(civil.year, civil.month, 1),
        Unit::Quarter => days_from_civil(civil.year, (civil.month - 1) / 3 * 3 + 1, 1),
        Unit::Year | Unit::Decade | Unit::Century | Unit::Millennium => {
            days_from_civil(first_year(civil.year, unit), 1, 1)
        }
        _ => return None,
    };
    Some(start * DAY)
}

/// Local midnight may be at another offset than the moment itself; parts of a day keep it.
fn truncate_moment(unit: Unit, moment: i64, tz: TimeZone) -> Option<Result<i64, SqlError>> {
    let offset = i64::from(zone::offset_at(tz, moment)) * SECOND;
    let local = truncate_local(unit, moment + offset)?;
    let within_day = width(unit).is_some_and(|w| w < DAY);
    let utc = if within_day { local.checked_sub(offset) } else { zone::to_utc(tz, local) };
    Some(check_timestamp(utc))
}

fn truncate_interval(unit: Unit, value: Interval) -> Option<Interval> {
    let mut cut = value;
    let years = |years: i32| value.months / (12 * years) * (12 * years);
    match unit {
        Unit::Millennium => cut = Interval { months: years(1000), ..Interval::default() },
        Unit::Century => cut = Interval { months: years(100), ..Interval::default() },
        Unit::Decade => cut = Interval { months: years(10), ..Interval::default() },
        Unit::Year => cut = Interval { months: years(1), ..Interval::default() },
        Unit::Quarter => cut = Interval { months: value.months / 3 * 3, ..Interval::default() },
        Unit::Month => cut = Interval { months: value.months, ..Interval::default() },
        Unit::Day => cut.micros = 0,
        unit => cut.micros = value.micros / width(unit)? * width(unit)?,
    }
    Some(cut)
}

/// `date_trunc(unit, value [, zone])`.
pub(super) fn date_trunc(arguments: &[Datum], context: &EvalContext<'_>) -> Result<Datum, SqlError> {
    let word = str_of(&arguments[0])?;
    match &arguments[1] {
        Datum::Interval(_) => {
            let cut = truncate_interval(unit(word, "interval")?, interval(&arguments[1])?);
            cut.map(Datum::Interval).ok_or_else(|| {
                let error = unsupported(word, "interval");
                if word.to_ascii_lowercase().starts_with('w') {
                    error.with_detail("Months usually have fractional weeks.")
                } else {
                    error
                }
            })
        }
        Datum::Timestamp(local) => {
            let name = "timestamp without time zone";
            if !is_finite_timestamp(*local) {
                return Ok(arguments[1].clone());
            }
            let unit = unit(word, name)?;
            let cut = truncate_local(unit, *local).ok_or_else(|| unsupported(word, name))?;
            check_timestamp(Some(cut)).map(Datum::Timestamp)
        }
        other => {
            let name = "timestamp with time zone";
            let moment = timestamp(other)?;
            if !is_finite_timestamp(moment) {
                return Ok(arguments[1].clone());
            }
            let unit = unit(word, name)?;
            let tz = match arguments.get(2) {
                None => context.time_zone,
                Some(zone) => named_zone(str_of(zone)?)?,
            };
            let cut = truncate_moment(unit, moment, tz).ok_or_else(|| unsupported(word, name))?;
            cut.map(Datum::Timestamptz)
        }
    }
}

fn named_zone(name: &str) -> Result<TimeZone, SqlError> {
    match datetime::named_zone(name) {
        Some(datetime::Zone::Named(zone) | datetime::Zone::Abbreviation(zone, _)) => Ok(zone),
        Some(datetime::Zone::Offset(east)) => Ok(TimeZone::Fixed(east)),
        None => Err(SqlError::new(
            sqlstate::INVALID_PARAMETER_VALUE,
            format!("time zone \"{name}\" not recognized"),
        )),
    }
}
