//! Arithmetic with dates, times and intervals.

use super::calendar::{civil_from_days, days_from_civil, days_in_month, split};
use super::zone::TimeZone;
use super::{
    DAY, MONTH_DAYS, check_date, check_timestamp, is_finite_date, is_finite_timestamp, out_of_range, zone,
};
use crate::error::{SqlError, sqlstate};
use crate::types::Interval;

/// 22008 `interval out of range`.
#[cold]
fn interval_out_of_range() -> SqlError {
    SqlError::new(sqlstate::DATETIME_FIELD_OVERFLOW, "interval out of range")
}

impl Interval {
    /// Sum, field by field. 22008 if a field overflows.
    pub fn plus(self, other: Interval) -> Result<Interval, SqlError> {
        let sum = || {
            Some(Interval {
                months: self.months.checked_add(other.months)?,
                days: self.days.checked_add(other.days)?,
                micros: self.micros.checked_add(other.micros)?,
            })
        };
        sum().ok_or_else(interval_out_of_range)
    }

    /// The interval backwards. 22008 if a field overflows.
    pub fn negated(self) -> Result<Interval, SqlError> {
        let negated = || {
            Some(Interval {
                months: self.months.checked_neg()?,
                days: self.days.checked_neg()?,
                micros: self.micros.checked_neg()?,
            })
        };
        negated().ok_or_else(interval_out_of_range)
    }

    /// Product; fractions of months become days, fractions of days become time. 22008.
    pub fn times(self, factor: f64) -> Result<Interval, SqlError> {
        self.scale(|value| value * factor)
    }

    /// Quotient, likewise. 22012, 22008.
    pub fn divided_by(self, divisor: f64) -> Result<Interval, SqlError> {
        if divisor == 0.0 {
            return Err(SqlError::division_by_zero());
        }
        self.scale(|value| value / divisor)
    }

    fn scale(self, by: impl Fn(f64) -> f64) -> Result<Interval, SqlError> {
        let months = by(f64::from(self.months));
        let days = by(f64::from(self.days));
        let in_range =
            |value: f64| value.is_finite() && value >= f64::from(i32::MIN) && value <= f64::from(i32::MAX);
        if !in_range(months) || !in_range(days) {
            return Err(interval_out_of_range());
        }
        let (whole_months, whole_days) = (months.trunc(), days.trunc());
        // To microseconds' precision, so that what should be whole days is.
        let month_days = round_to_micros((months - whole_months) * MONTH_DAYS as f64);
        let mut seconds = round_to_micros((days - whole_days + month_days - month_days.trunc()) * 86_400.0);
        let mut extra_days = month_days.trunc();
        if seconds.abs() >= 86_400.0 {
            let carried = (seconds / 86_400.0).trunc();
            extra_days += carried;
            seconds -= carried * 86_400.0;
        }
        let total_days = whole_days + extra_days;
        let micros = by(self.micros as f64) + seconds * 1e6;
        let micros = micros.round_ties_even();
        if !in_range(total_days) || !(-9.223_372_036_854_775e18..=9.223_372_036_854_775e18).contains(&micros)
        {
            return Err(interval_out_of_range());
        }
        Ok(Interval { months: whole_months as i32, days: total_days as i32, micros: micros as i64 })
    }

    /// 24-hour stretches become days.
    pub fn justify_hours(self) -> Result<Interval, SqlError> {
        let (days, mut micros) = (self.micros / DAY, self.micros % DAY);
        let mut days = i64::from(self.days) + days;
        if days > 0 && micros < 0 {
            micros += DAY;
            days -= 1;
        } else if days < 0 && micros > 0 {
            micros -= DAY;
            days += 1;
        }
        let days = i32::try_from(days).map_err(|_| interval_out_of_range())?;
        Ok(Interval { months: self.months, days, micros })
    }

    /// 30-day stretches become months.
    pub fn justify_days(self) -> Result<Interval, SqlError> {
        let (months, mut days) = (self.days / MONTH_DAYS, self.days % MONTH_DAYS);
        let mut months = i64::from(self.months) + i64::from(months);
        if months > 0 && days < 0 {
            days += MONTH_DAYS;
            months -= 1;
        } else if months < 0 && days > 0 {
            days -= MONTH_DAYS;
            months += 1;
        }
        let months = i32::try_from(months).map_err(|_| interval_out_of_range())?;
        Ok(Interval { months, days, micros: self.micros })
    }

    /// Both, and the signs made equal.
    pub fn justify(self) -> Result<Interval, SqlError> {
        let mut result = self;
        // Pre-justify when the days would not overflow less for it.
        if (result.days > 0 && result.micros > 0) || (result.days < 0 && result.micros < 0) {
            result.months = i32::try_from(i64::from(result.months) + i64::from(result.days / MONTH_DAYS))
                .map_err(|_| interval_out_of_range())?;
            result.days %= MONTH_DAYS;
        }
        result.days = i32::try_from(i64::from(result.days) + result.micros / DAY)
            .map_err(|_| interval_out_of_range())?;
        result.micros %= DAY;
        result.months = i32::try_from(i64::from(result.months) + i64::from(result.days / MONTH_DAYS))
            .map_err(|_| interval_out_of_range())?;
        result.days %= MONTH_DAYS;
        if result.months > 0 && (result.days < 0 || (result.days == 0 && result.micros < 0)) {
            result.days += MONTH_DAYS;
            result.months -= 1;
        } else if result.months < 0 && (result.days > 0 || (result.days == 0 && result.micros > 0)) {
            result.days -= MONTH_DAYS;
            result.months += 1;
        }
        if result.days > 0 && result.micros < 0 {
            result.micros += DAY;
            result.days -= 1;
        } else if result.days < 0 && result.micros > 0 {
            result.micros -= DAY;
            result.days += 1;
        }
        Ok(result)
    }
}

fn round_to_micros(value: f64) -> f64 {
    (value * 1e6).round_ties_even() / 1e6
}

/// Moves a local timestamp by months (to the last day if the month is shorter), then by days.
fn add_months_and_days(local: i64, interval: Interval) -> Option<i64> {
    let mut local = local;
    if interval.months != 0 {
        let (days, micros) = split(local);
        let civil = civil_from_days(days);
        let months = i64::from(civil.year) * 12 + i64::from(civil.month) - 1 + i64::from(interval.months);
        let year = i32::try_from(months.div_euclid(12)).ok()?;
        let month = months.rem_euclid(12) as u32 + 1;
        let day = civil.day.min(days_in_month(year, month));
        local = days_from_civil(year, month, day).checked_mul(DAY)?.checked_add(micros)?;
    }
    local.checked_add(i64::from(interval.days).checked_mul(DAY)?)
}

/// A timestamp moved by an interval; infinities stay. 22008.
pub(crate) fn add_to_timestamp(timestamp: i64, interval: Interval) -> Result<i64, SqlError> {
    if !is_finite_timestamp(timestamp) {
        return Ok(timestamp);
    }
    let moved = add_months_and_days(timestamp, interval).and_then(|t| t.checked_add(interval.micros));
    check_timestamp(moved)
}

/// A moment moved by an interval: months and days on the local calendar, the rest as elapsed
/// time. 22008.
pub(crate) fn add_to_timestamptz(timestamp: i64, interval: Interval, tz: TimeZone) -> Result<i64, SqlError> {
    if !is_finite_timestamp(timestamp) {
        return Ok(timestamp);
    }
    let mut moved = Some(timestamp);
    if interval.months != 0 {
        let only = Interval { months: interval.months, ..Interval::default() };
        moved = add_months_and_days(zone::to_local(tz, timestamp), only)
            .and_then(|local| zone::to_utc(tz, local));
    }
    if interval.days != 0 {
        let only = Interval { days: interval.days, ..Interval::default() };
        moved = moved
            .and_then(|t| add_months_and_days(zone::to_local(tz, t), only))
            .and_then(|local| zone::to_utc(tz, local));
    }
    check_timestamp(moved.and_then(|t| t.checked_add(interval.micros)))
}

/// Time between two timestamps, as days and time. 22008 between infinities.
pub(crate) fn subtract_timestamps(a: i64, b: i64) -> Result<Interval, SqlError> {
    if !is_finite_timestamp(a) || !is_finite_timestamp(b) {
        return Err(SqlError::new(sqlstate::DATETIME_FIELD_OVERFLOW, "cannot subtract infinite timestamps"));
    }
    let micros = a.checked_sub(b).ok_or_else(interval_out_of_range)?;
    Interval { months: 0, days: 0, micros }.justify_hours()
}

/// A date moved by days. 22008.
pub(crate) fn add_days(date: i32, days: i64) -> Result<i32, SqlError> {
    if !is_finite_date(date) {
        return Ok(date);
    }
    check_date(i32::try_from(i64::from(date) + days).ok())
}

/// Midnight of a date, as a timestamp. 22008 beyond the range of timestamps.
pub(crate) fn date_to_timestamp(date: i32) -> Result<i64, SqlError> {
    match date {
        i32::MAX => Ok(i64::MAX),
        i32::MIN => Ok(i64::MIN),
        days => check_timestamp(i64::from(days).checked_mul(DAY))
            .map_err(|_| SqlError::new(sqlstate::DATETIME_FIELD_OVERFLOW, "date out of range for timestamp")),
    }
}

/// Day of a timestamp.
pub(crate) fn timestamp_to_date(timestamp: i64) -> i32 {
    match timestamp {
        i64::MAX => i32::MAX,
        i64::MIN => i32::MIN,
        // In the range of timestamps, days fit.
        other => split(other).0 as i32,
    }
}

/// Moment of a local timestamp. 22008.
pub(crate) fn local_to_utc(timestamp: i64, tz: TimeZone) -> Result<i64, SqlError> {
    if !is_finite_timestamp(timestamp) {
        return Ok(timestamp);
    }
    check_timestamp(zone::to_utc(tz, timestamp))
}

/// Local timestamp of a moment. 22008.
pub(crate) fn utc_to_local(timestamp: i64, tz: TimeZone) -> Result<i64, SqlError> {
    if !is_finite_timestamp(timestamp) {
        return Ok(timestamp);
    }
    check_timestamp(Some(zone::to_local(tz, timestamp)))
}

/// Years, months and days between two local timestamps, as calendars count. 22008.
pub(crate) fn age(a: i64, b: i64) -> Result<Interval, SqlError> {
    if !is_finite_timestamp(a) || !is_finite_timestamp(b) {
        return Err(out_of_range("timestamp"));
    }
    let negative = a < b;
    let (later, earlier) = if negative { (b, a) } else { (a, b) };
    let ((later_days, later_micros), (earlier_days, earlier_micros)) = (split(later), split(earlier));
    let (to, from) = (civil_from_days(later_days), civil_from_days(earlier_days));
    let mut micros = later_micros - earlier_micros;
    let mut days = i64::from(to.day) - i64::from(from.day);
    let mut months =
        (i64::from(to.year) - i64::from(from.year)) * 12 + i64::from(to.month) - i64::from(from.month);
    if micros < 0 {
        micros += DAY;
        days -= 1;
    }
    while days < 0 {
        // Days are borrowed from the earlier one's month.
        days += i64::from(days_in_month(from.year, from.month));
        months -= 1;
    }
    let interval = Interval { months: months as i32, days: days as i32, micros };
    if negative { interval.negated() } else { Ok(interval) }
}
