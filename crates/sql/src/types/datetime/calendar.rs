//! Days to years, months and days, and back.

use cognate_env::clock::date;

use super::{DAY, HOUR, MINUTE, SECOND};

/// Days from 0000-03-01 to 2000-01-01.
const EPOCH_SHIFT: i64 = 730_425;
/// Days from 1970-01-01 to 2000-01-01.
const UNIX_EPOCH: i64 = 10_957;

/// A day.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct Civil {
    /// Astronomical: 0 is 1 BC.
    pub(crate) year: i32,
    /// 1 to 12.
    pub(crate) month: u32,
    /// 1 to 31.
    pub(crate) day: u32,
}

/// A time of day.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct Clock {
    pub(crate) hour: i64,
    pub(crate) minute: i64,
    pub(crate) second: i64,
    pub(crate) micros: i64,
}

/// Days since 2000-01-01. The arguments may be any in-range month and day, the day may exceed the
/// month.
pub(crate) fn days_from_civil(year: i32, month: u32, day: u32) -> i64 {
    // Years begin in March, so that the leap day is the last one.
    let year = i64::from(year) - i64::from(month <= 2);
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let month_from_march = i64::from((month + 9) % 12);
    let day_of_year = (153 * month_from_march + 2) / 5 + i64::from(day) - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - EPOCH_SHIFT
}

/// The day that is `days` after 2000-01-01.
pub(crate) fn civil_from_days(days: i64) -> Civil {
    let (year, month, day) = date(days + UNIX_EPOCH);
    Civil { year: year as i32, month: month as u32, day: day as u32 }
}

pub(crate) fn is_leap(year: i32) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

/// Number of days of a month.
pub(crate) fn days_in_month(year: i32, month: u32) -> u32 {
    match month {
        2 => 28 + u32::from(is_leap(year)),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Day and microseconds into it.
pub(crate) fn split(timestamp: i64) -> (i64, i64) {
    (timestamp.div_euclid(DAY), timestamp.rem_euclid(DAY))
}

/// Microseconds into a day, as hours and so on.
pub(crate) fn clock(micros: i64) -> Clock {
    Clock {
        hour: micros / HOUR,
        minute: micros % HOUR / MINUTE,
        second: micros % MINUTE / SECOND,
        micros: micros % SECOND,
    }
}

/// 0 is Sunday.
pub(crate) fn weekday(days: i64) -> u32 {
    (days + 6).rem_euclid(7) as u32
}

/// Day of the year from 1.
pub(crate) fn day_of_year(civil: Civil) -> u32 {
    (days_from_civil(civil.year, civil.month, civil.day) - days_from_civil(civil.year, 1, 1) + 1) as u32
}

/// ISO 8601 year and week of a day.
pub(crate) fn iso_week(days: i64) -> (i32, u32) {
    // The week belongs to the year its Thursday is in.
    let from_monday = (days + 5).rem_euclid(7);
    let thursday = days - from_monday + 3;
    let year = civil_from_days(thursday).year;
    let week = (thursday - days_from_civil(year, 1, 1)) / 7 + 1;
    (year, week as u32)
}

/// Monday of an ISO week.
pub(crate) fn iso_week_start(year: i32, week: u32) -> i64 {
    // The fourth of January is always in the first week.
    let fourth = days_from_civil(year, 1, 4);
    fourth - (fourth + 5).rem_euclid(7) + (i64::from(week) - 1) * 7
}

/// Julian day number of 2000-01-01.
pub(crate) const JULIAN_EPOCH: i64 = 2_451_545;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_and_back() {
        assert_eq!(days_from_civil(2000, 1, 1), 0);
        assert_eq!(days_from_civil(1970, 1, 1), -10_957);
        for days in (-2_451_545..3_000_000).step_by(37) {
            let civil = civil_from_days(days);
            assert_eq!(days_from_civil(civil.year, civil.month, civil.day), days);
        }
        assert_eq!(civil_from_days(-2_451_545), Civil { year: -4713, month: 11, day: 24 });
        assert_eq!(weekday(0), 6);
        assert_eq!(iso_week(days_from_civil(2021, 1, 3)), (2020, 53));
        assert_eq!(iso_week_start(2021, 1), days_from_civil(2021, 1, 4));
    }
}
