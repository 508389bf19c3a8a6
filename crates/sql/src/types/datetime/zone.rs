//! Time zones: offsets by place and date, from the IANA database.

use std::collections::HashMap;
use std::sync::OnceLock;

use chrono::{DateTime, NaiveDateTime, Offset, TimeZone as _};
use chrono_tz::{TZ_VARIANTS, Tz};

use super::calendar::{civil_from_days, days_from_civil, is_leap, weekday};
use super::posix::{self, PosixZone};
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

/// A time zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeZone {
    /// Of the IANA database.
    Named(Tz),
    /// So many seconds east of UTC, always.
    Fixed(i32),
    /// With an abbreviation of its own, and perhaps summer time.
    Posix(PosixZone),
}

impl TimeZone {
    /// Universal time.
    pub const UTC: TimeZone = TimeZone::Named(Tz::UTC);
}

/// A zone in POSIX's notation.
fn posix(text: &str) -> Option<TimeZone> {
    let zone = posix::parse(text)?;
    Some(zone.bare_offset().map_or(TimeZone::Posix(zone), TimeZone::Fixed))
}

/// A zone by its name, in any case, or in POSIX's notation.
pub(crate) fn by_name_or_offset(text: &str) -> Option<TimeZone> {
    by_name(text).map(TimeZone::Named).or_else(|| posix(text))
}

/// A zone as the value of the setting `TimeZone` names it.
pub fn from_setting(text: &str) -> Option<TimeZone> {
    by_name_or_offset(text.trim())
}

/// The value of the setting `TimeZone` for what was given: the name as the database has it; a
/// number (or an interval), which counts hours *eastwards*, in POSIX's notation, and that itself in
/// upper case. `None` if it is no zone.
pub(crate) fn setting_of(text: &str) -> Option<String> {
    let text = text.trim();
    if let Some(interval) = text.strip_prefix("INTERVAL") {
        let inner = interval.trim().trim_matches('\'');
        let unsigned = inner.trim_start_matches(['+', '-']);
        let TimeZone::Fixed(west) = posix(unsigned)? else { return None };
        return Some(posix_name(if inner.starts_with('-') { west } else { -west }));
    }
    if let Ok(hours) = text.parse::<f64>()
        && hours.abs() <= f64::from(posix::MOST_HOURS)
    {
        return Some(posix_name((hours * 3600.0) as i32));
    }
    if let Some(zone) = by_name(text) {
        return Some(zone.name().to_owned());
    }
    match text.to_ascii_lowercase().as_str() {
        "z" | "zulu" | "default" | "local" => Some("UTC".to_owned()),
        _ => posix(text).map(|_| text.to_ascii_uppercase()),
    }
}

/// Hours, and what more there is of minutes and seconds: `02`, `05:30`.
fn unsigned_offset(seconds: i32) -> String {
    let seconds = seconds.unsigned_abs();
    let mut text = format!("{:02}", seconds / 3600);
    if !seconds.is_multiple_of(3600) {
        text += &format!(":{:02}", seconds / 60 % 60);
    }
    if !seconds.is_multiple_of(60) {
        text += &format!(":{:02}", seconds % 60);
    }
    text
}

/// `<+02>-02` for two hours east.
fn posix_name(east: i32) -> String {
    let offset = unsigned_offset(east);
    if east < 0 { format!("<-{offset}>+{offset}") } else { format!("<+{offset}>-{offset}") }
}

/// Seconds since 1970 as a calendar time that the zone tables know: far years become near ones with
/// the same weekdays.
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
pub(crate) fn offset_at(zone: TimeZone, timestamp: i64) -> i32 {
    let zone = match zone {
        TimeZone::UTC => return 0,
        TimeZone::Fixed(east) => return east,
        TimeZone::Posix(zone) => return zone.offset_at(timestamp),
        TimeZone::Named(zone) => zone,
    };
    tabled(timestamp.div_euclid(SECOND) + UNIX_EPOCH_SHIFT)
        .map_or(0, |time| zone.offset_from_utc_datetime(&time).fix().local_minus_utc())
}

/// The abbreviation in force at a moment, such as `CET`.
pub(crate) fn abbreviation_at(zone: TimeZone, timestamp: i64) -> String {
    let zone = match zone {
        TimeZone::Named(zone) => zone,
        TimeZone::Posix(zone) => return zone.abbreviation_at(timestamp).to_owned(),
        // It has none.
        TimeZone::Fixed(_) => return String::new(),
    };
    let Some(time) = tabled(timestamp.div_euclid(SECOND) + UNIX_EPOCH_SHIFT) else { return String::new() };
    let offset = zone.offset_from_utc_datetime(&time);
    offset.to_string()
}

/// Seconds east of UTC for a local time. A time that a change of clocks skips counts as before the
/// change, one that it repeats as after it.
pub(crate) fn offset_of_local(zone: TimeZone, local: i64) -> i32 {
    if let TimeZone::UTC | TimeZone::Fixed(_) = zone {
        return offset_at(zone, local);
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

/// Seconds east of UTC that an abbreviation of the zone stood for at a moment, or last before it:
/// `MSK` was three hours, then four, then three again. If the zone has not used it for a year, what
/// is in force.
pub(crate) fn offset_of_abbreviation(zone: TimeZone, word: &str, timestamp: i64) -> i32 {
    let weeks = (0..=53).map(|weeks| timestamp.saturating_sub(weeks * 7 * DAY));
    let used = |moment: &i64| abbreviation_at(zone, *moment).eq_ignore_ascii_case(word);
    offset_at(zone, weeks.into_iter().find(used).unwrap_or(timestamp))
}

/// Local time of a moment.
pub(crate) fn to_local(zone: TimeZone, timestamp: i64) -> i64 {
    timestamp.saturating_add(i64::from(offset_at(zone, timestamp)) * SECOND)
}

/// Moment of a local time; `None` beyond 64 bits.
pub(crate) fn to_utc(zone: TimeZone, local: i64) -> Option<i64> {
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
        let zone = TimeZone::Named(Tz::America__New_York);
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
        assert_eq!(offset_at(TimeZone::Named(Tz::Europe__Berlin), at(200_000, 1, 1, 0)), 3600);
    }

    #[test]
    fn settings() {
        assert_eq!(from_setting("europe/berlin"), Some(TimeZone::Named(Tz::Europe__Berlin)));
        // A bare number is hours east; with a colon, or after letters, it is POSIX's, hours west.
        assert_eq!(setting_of("-5").as_deref(), Some("<-05>+05"));
        assert_eq!(setting_of("5.5").as_deref(), Some("<+05:30>-05:30"));
        assert_eq!(offset_at(from_setting("<+05:30>-05:30").unwrap(), 0), 19_800);
        assert_eq!(setting_of("+02:00").as_deref(), Some("+02:00"));
        assert_eq!(from_setting("+02:00"), Some(TimeZone::Fixed(-7200)));
        assert_eq!(setting_of("INTERVAL '+02:00'").as_deref(), Some("<+02>-02"));
        assert_eq!(offset_at(from_setting("UTC+5").unwrap(), 0), -18_000);
        assert_eq!(from_setting("nowhere"), None);
    }
}
