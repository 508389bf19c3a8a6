//! Time zones: offsets by place and date, from the IANA database.

use std::collections::HashMap;
use std::sync::OnceLock;

use chrono::{DateTime, NaiveDateTime, Offset, TimeZone};
use chrono_tz::{TZ_VARIANTS, Tz};

use super::calendar::{civil_from_days, days_from_civil, is_leap, weekday};
use super::{DAY, SECOND};

/// Seconds from 1970-01-01 to 2000-01-01.
pub(crate) const UNIX_EPOCH_SHIFT: i64 = 946_684_800;

/// After this year the rules are taken to repeat.
const LAST_TABLED_YEAR: i32 = 2087;

/// A zone by its name, in any case.
pub(crate) fn by_name(name: &str) -> Option<Tz> {
    static NAMES: OnceLock<HashMap<String, Tz>> = OnceLock::new();
    if let Ok(zone) = name.parse() {
        return Some(zone);
    }
    let names =
        NAMES.get_or_init(|| TZ_VARIANTS.iter().map(|tz| (tz.name().to_ascii_lowercase(), *tz)).collect());
    names.get(&name.to_ascii_lowercase()).copied()
}

/// A zone as the setting `TimeZone` names it: an IANA name, or whole hours (`-5`, `UTC+5` in POSIX's sense, west positive).
pub fn from_setting(text: &str) -> Option<Tz> {
    let text = text.trim();
    if let Some(zone) = by_name(text) {
        return Some(zone);
    }
    let (digits, posix) = match text.trim_start_matches(|c: char| c.is_ascii_alphabetic()) {
        rest if rest.len() < text.len() => (rest, true),
        rest => (rest, false),
    };
    let hours: i32 = digits.strip_suffix(":00").unwrap_or(digits).parse().ok()?;
    // Plain numbers count eastwards; POSIX names, like those of the Etc area, count westwards.
    let west = if posix { hours } else { -hours };
    match west {
        0 => Some(Tz::UTC),
        _ => by_name(&format!("Etc/GMT{west:+}")),
    }
}

/// Seconds since 1970 as a calendar time that the zone tables know: far years become near ones with the same weekdays.
fn tabled(unix_seconds: i64) -> Option<NaiveDateTime> {
    let seconds = unix_seconds - UNIX_EPOCH_SHIFT;
    let days = seconds.div_euclid(86_400);
    let civil = civil_from_days(days);
    let mut shifted = unix_seconds;
    if civil.year > LAST_TABLED_YEAR {
        let first = days_from_civil(civil.year, 1, 1);
        let twin = (LAST_TABLED_YEAR - 27..=LAST_TABLED_YEAR).find(|y| {
            is_leap(*y) == is_leap(civil.year) && weekday(days_from_civil(*y, 1, 1)) == weekday(first)
        })?;
        shifted -= (first - days_from_civil(twin, 1, 1)) * 86_400;
    }
    DateTime::from_timestamp(shifted, 0).map(|time| time.naive_utc())
}

/// Seconds east of UTC at a moment (microseconds since 2000-01-01 UTC).
pub(crate) fn offset_at(zone: Tz, timestamp: i64) -> i32 {
    if zone == Tz::UTC {
        return 0;
    }
    tabled(timestamp.div_euclid(SECOND) + UNIX_EPOCH_SHIFT)
        .map_or(0, |time| zone.offset_from_utc_datetime(&time).fix().local_minus_utc())
}

/// The abbreviation in force at a moment, such as `CET`.
pub(crate) fn abbreviation_at(zone: Tz, timestamp: i64) -> String {
    let Some(time) = tabled(timestamp.div_euclid(SECOND) + UNIX_EPOCH_SHIFT) else { return String::new() };
    let offset = zone.offset_from_utc_datetime(&time);
    offset.to_string()
}

/// Seconds east of UTC for a local time. A time that a change of clocks skips counts as before the change, one that it
/// repeats as after it.
pub(crate) fn offset_of_local(zone: Tz, local: i64) -> i32 {
    if zone == Tz::UTC {
        return 0;
    }
    let before = offset_at(zone, local.saturating_sub(DAY));
    let after = offset_at(zone, local.saturating_add(DAY));
    if before == after {
        // Perhaps the clocks changed twice; trust the middle only if it agrees with itself.
        let middle = offset_at(zone, local - i64::from(before) * SECOND);
        return middle;
    }
    let as_after = local - i64::from(after) * SECOND;
    let as_before = local - i64::from(before) * SECOND;
    if offset_at(zone, as_after) == after {
        after
    } else if offset_at(zone, as_before) == before {
        before
    } else {
        // Skipped: neither holds.
        before
    }
}

/// Local time of a moment.
pub(crate) fn to_local(zone: Tz, timestamp: i64) -> i64 {
    timestamp.saturating_add(i64::from(offset_at(zone, timestamp)) * SECOND)
}

/// Moment of a local time; `None` beyond 64 bits.
pub(crate) fn to_utc(zone: Tz, local: i64) -> Option<i64> {
    local.checked_sub(i64::from(offset_of_local(zone, local)) * SECOND)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::datetime::HOUR;

    fn at(year: i32, month: u32, day: u32, hour: i64) -> i64 {
        days_from_civil(year, month, day) * DAY + hour * HOUR
    }

    #[test]
    fn clocks_change() {
        let zone = Tz::America__New_York;
        assert_eq!(offset_at(zone, at(2024, 1, 1, 0)), -5 * 3600);
        assert_eq!(offset_at(zone, at(2024, 7, 1, 0)), -4 * 3600);
        // Skipped on 2024-03-10: 02:30 counts as standard time.
        assert_eq!(offset_of_local(zone, at(2024, 3, 10, 2)), -5 * 3600);
        assert_eq!(offset_of_local(zone, at(2024, 3, 10, 1)), -5 * 3600);
        assert_eq!(offset_of_local(zone, at(2024, 3, 10, 3)), -4 * 3600);
        // Repeated on 2024-11-03: 01:00 counts as standard time.
        assert_eq!(offset_of_local(zone, at(2024, 11, 3, 1)), -5 * 3600);
        assert_eq!(offset_of_local(zone, at(2024, 11, 3, 0)), -4 * 3600);
        assert_eq!(offset_at(zone, at(2500, 7, 1, 0)), -4 * 3600);
        assert_eq!(offset_at(Tz::Europe__Berlin, at(200_000, 1, 1, 0)), 3600);
    }

    #[test]
    fn settings() {
        assert_eq!(from_setting("europe/berlin"), Some(Tz::Europe__Berlin));
        assert_eq!(from_setting("-5"), by_name("Etc/GMT+5"));
        assert_eq!(from_setting("UTC+5"), by_name("Etc/GMT+5"));
        assert_eq!(from_setting("nowhere"), None);
    }
}
