//! `extract` and `date_part`: one field of a date, time or interval.

use super::{interval, timestamp};
use crate::error::{SqlError, sqlstate};
use crate::function::EvalContext;
use crate::function::math::unexpected;
use crate::function::string::str_of;
use crate::types::datetime::calendar::{self, Civil, civil_from_days};
use crate::types::datetime::{
    DAY, HOUR, MINUTE, SECOND, Unit, arithmetic, is_finite_date, is_finite_timestamp, zone,
};
use crate::types::{Datum, Interval, Numeric};

/// A field's value: whole, or with this many digits after the point.
enum Field {
    Whole(i64),
    Scaled(i128, u16),
    Infinite(bool),
    Null,
}

fn unit(word: &str, type_name: &str) -> Result<Unit, SqlError> {
    Unit::from_word(&word.to_ascii_lowercase()).ok_or_else(|| {
        SqlError::new(
            sqlstate::INVALID_PARAMETER_VALUE,
            format!("unit \"{}\" not recognized for type {type_name}", word.to_ascii_lowercase()),
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

/// Years count without a year 0.
fn display_year(year: i32) -> i64 {
    if year > 0 { i64::from(year) } else { i64::from(year) - 1 }
}

/// Fields of a day.
fn of_day(unit: Unit, days: i64) -> Option<i64> {
    let Civil { year, month, day } = civil_from_days(days);
    let y = i64::from(year);
    Some(match unit {
        Unit::Day => i64::from(day),
        Unit::Month => i64::from(month),
        Unit::Quarter => (i64::from(month) - 1) / 3 + 1,
        Unit::Week => i64::from(calendar::iso_week(days).1),
        Unit::Year => display_year(year),
        Unit::Decade => y.div_euclid(10),
        Unit::Century if y > 0 => (y + 99) / 100,
        Unit::Century => -((99 - (y - 1)) / 100),
        Unit::Millennium if y > 0 => (y + 999) / 1000,
        Unit::Millennium => -((999 - (y - 1)) / 1000),
        Unit::IsoYear => display_year(calendar::iso_week(days).0),
        Unit::DayOfWeek => i64::from(calendar::weekday(days)),
        Unit::IsoDayOfWeek => match calendar::weekday(days) {
            0 => 7,
            weekday => i64::from(weekday),
        },
        Unit::DayOfYear => i64::from(calendar::day_of_year(civil_from_days(days))),
        _ => return None,
    })
}

/// Fields of a time of day, or of an interval's time.
fn of_time(unit: Unit, micros: i64) -> Option<Field> {
    Some(match unit {
        Unit::Microsecond => Field::Whole(micros % MINUTE),
        Unit::Millisecond => Field::Scaled(i128::from(micros % MINUTE), 3),
        Unit::Second => Field::Scaled(i128::from(micros % MINUTE), 6),
        Unit::Minute => Field::Whole(micros % HOUR / MINUTE),
        Unit::Hour => Field::Whole(micros / HOUR),
        _ => return None,
    })
}

/// Of an infinity, what grows without bound is infinite; what comes round again is NULL.
fn of_infinity(unit: Unit, positive: bool) -> Option<Field> {
    use Unit::*;
    match unit {
        Year | Decade | Century | Millennium | Julian | IsoYear | Epoch => Some(Field::Infinite(positive)),
        Microsecond | Millisecond | Second | Minute | Hour | Day | Month | Quarter | Week | DayOfWeek
        | IsoDayOfWeek | DayOfYear | Timezone | TimezoneHour | TimezoneMinute => Some(Field::Null),
    }
}

/// Days with a fraction, as the Julian day that begins at midnight.
fn julian(local: i64) -> Field {
    let (days, micros) = calendar::split(local);
    let whole = Numeric::from(days + calendar::JULIAN_EPOCH);
    // Microseconds over a day, to the digits that a quotient has.
    let fraction = Numeric::from(micros).divide(&Numeric::from(DAY));
    match fraction.and_then(|f| whole.add(&f)).map(|sum| sum.small()) {
        Ok(Some((mantissa, scale))) => Field::Scaled(mantissa, scale as u16),
        _ => Field::Null,
    }
}

fn of_local(unit: Unit, local: i64) -> Option<Field> {
    let (days, micros) = calendar::split(local);
    match unit {
        Unit::Julian => Some(julian(local)),
        Unit::Epoch => Some(Field::Scaled(
            i128::from(local) + i128::from(zone::UNIX_EPOCH_SHIFT) * i128::from(SECOND),
            6,
        )),
        _ => of_day(unit, days).map(Field::Whole).or_else(|| of_time(unit, micros)),
    }
}

fn of_interval(unit: Unit, value: Interval) -> Option<Field> {
    let (years, months) = (i64::from(value.months / 12), i64::from(value.months % 12));
    Some(Field::Whole(match unit {
        Unit::Year => years,
        Unit::Month => months,
        Unit::Day => i64::from(value.days),
        Unit::Quarter => months / 3 + 1,
        Unit::Decade => years / 10,
        Unit::Century => years / 100,
        Unit::Millennium => years / 1000,
        Unit::Epoch => {
            // A year is 365.25 days here, a month 30.
            let quarter_days =
                i128::from(years) * 1461 + i128::from(months) * 120 + i128::from(value.days) * 4;
            let micros = quarter_days * i128::from(DAY / 4) + i128::from(value.micros);
            return Some(Field::Scaled(micros, 6));
        }
        _ => return of_time(unit, value.micros),
    }))
}

fn field(arguments: &[Datum], context: &EvalContext<'_>) -> Result<Field, SqlError> {
    let word = str_of(&arguments[0])?;
    let (type_name, found) = match &arguments[1] {
        Datum::Date(date) => {
            let name = "date";
            let unit = unit(word, name)?;
            let found = match unit {
                _ if !is_finite_date(*date) => of_day(unit, 0)
                    .map(|_| unit)
                    .or(matches!(unit, Unit::Julian | Unit::Epoch).then_some(unit))
                    .and_then(|unit| of_infinity(unit, *date > 0)),
                Unit::Julian => Some(Field::Whole(i64::from(*date) + calendar::JULIAN_EPOCH)),
                Unit::Epoch => Some(Field::Whole(i64::from(*date) * 86_400 + zone::UNIX_EPOCH_SHIFT)),
                _ => of_day(unit, i64::from(*date)).map(Field::Whole),
            };
            (name, found)
        }
        Datum::Time(micros) => {
            let name = "time without time zone";
            let found = match unit(word, name)? {
                Unit::Epoch => Some(Field::Scaled(i128::from(*micros), 6)),
                unit => of_time(unit, *micros),
            };
            (name, found)
        }
        Datum::Interval(_) => {
            let name = "interval";
            (name, of_interval(unit(word, name)?, interval(&arguments[1])?))
        }
        Datum::Timestamp(local) => {
            let name = "timestamp without time zone";
            let unit = unit(word, name)?;
            let zoned = matches!(unit, Unit::Timezone | Unit::TimezoneHour | Unit::TimezoneMinute);
            let found = if zoned && is_finite_timestamp(*local) {
                None
            } else if is_finite_timestamp(*local) {
                of_local(unit, *local)
            } else {
                of_infinity(unit, *local > 0)
            };
            (name, found)
        }
        other => {
            let name = "timestamp with time zone";
            let moment = timestamp(other)?;
            (name, of_moment(unit(word, name)?, moment, context))
        }
    };
    found.ok_or_else(|| unsupported(word, type_name))
}

fn of_moment(unit: Unit, moment: i64, context: &EvalContext<'_>) -> Option<Field> {
    if !is_finite_timestamp(moment) {
        return of_infinity(unit, moment > 0);
    }
    let offset = i64::from(zone::offset_at(context.time_zone, moment));
    match unit {
        Unit::Timezone => Some(Field::Whole(offset)),
        Unit::TimezoneHour => Some(Field::Whole(offset / 3600)),
        Unit::TimezoneMinute => Some(Field::Whole(offset % 3600 / 60)),
        Unit::Epoch => of_local(unit, moment),
        _ => of_local(unit, moment + offset * SECOND),
    }
}

/// `extract(field from value)`: numeric.
pub(super) fn extract(arguments: &[Datum], context: &EvalContext<'_>) -> Result<Datum, SqlError> {
    Ok(match field(arguments, context)? {
        Field::Whole(value) => Datum::Numeric(Numeric::from(value)),
        Field::Scaled(mantissa, scale) => Datum::Numeric(Numeric::new(mantissa, scale)),
        Field::Infinite(true) => Datum::Numeric(Numeric::INFINITY),
        Field::Infinite(false) => Datum::Numeric(Numeric::NEG_INFINITY),
        Field::Null => Datum::Null,
    })
}

/// `date_part(field, value)`: float8.
pub(super) fn date_part(arguments: &[Datum], context: &EvalContext<'_>) -> Result<Datum, SqlError> {
    // Unlike extract, it takes a date for its midnight.
    let extracted = match &arguments[1] {
        Datum::Date(date) => {
            let midnight = Datum::Timestamp(arithmetic::date_to_timestamp(*date)?);
            extract(&[arguments[0].clone(), midnight], context)?
        }
        _ => extract(arguments, context)?,
    };
    match extracted {
        Datum::Numeric(value) => Ok(Datum::Float8(value.to_f64())),
        Datum::Null => Ok(Datum::Null),
        other => Err(unexpected(&[&other])),
    }
}
