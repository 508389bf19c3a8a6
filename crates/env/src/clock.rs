//! Time: the calendar for timestamps, and a monotonic clock for durations.

use std::fmt;
use std::time::Duration;

/// A source of time.
pub trait Clock: Send + Sync + fmt::Debug {
    /// Wall clock: microseconds since 1970-01-01 00:00:00 UTC. May jump, also backwards.
    fn wall_us(&self) -> i64;

    /// Time since an arbitrary fixed point. Never goes backwards.
    fn monotonic(&self) -> Duration;
}

/// Year, month and day of a day since 1970-01-01. Years are counted from March on, so that a leap
/// day is the last of its year; 719468 days lie between the first of March of the year 0 and 1970.
/// The year is astronomical: 0 is 1 BC.
#[inline]
pub fn date(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let (era, day) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (year, month) = (year + era * 400, if month < 10 { month + 3 } else { month - 9 });
    (year + i64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_have_their_dates() {
        assert_eq!(date(0), (1970, 1, 1));
        assert_eq!(date(-1), (1969, 12, 31));
        assert_eq!(date(10_956), (1999, 12, 31));
        assert_eq!(date(11_016), (2000, 2, 29));
        assert_eq!(date(11_017), (2000, 3, 1));
        assert_eq!(date(20_778), (2026, 11, 21));
    }
}
