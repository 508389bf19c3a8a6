//! Dates, times and intervals as text by template.

use super::template::{Case, Pattern, Piece, split};
use crate::error::SqlError;
use crate::function::EvalContext;
use crate::function::datetime::{interval, timestamp};
use crate::function::string::str_of;
use crate::types::bounds::Meter;
use crate::types::datetime::calendar::{self, civil_from_days};
use crate::types::datetime::{HOUR, MINUTE, MONTHS, SECOND, WEEKDAYS, is_finite_timestamp, zone};
use crate::types::{Datum, Interval, TimeZone};

const ROMAN_MONTHS: [&str; 12] = ["I", "II", "III", "IV", "V", "VI", "VII", "VIII", "IX", "X", "XI", "XII"];

/// What the patterns take their values from.
struct Moment {
    /// Years without a year 0 for timestamps; of an interval, as they are.
    year: i64,
    month: i64,
    day: i64,
    hour: i64,
    minute: i64,
    second: i64,
    micros: i64,
    /// Days since 2000; none for an interval.
    days: Option<i64>,
    day_of_year: i64,
    /// Offset from UTC in seconds and the zone's abbreviation.
    zone: Option<(i32, String)>,
}

/// `to_char(timestamp, template)`.
pub(in crate::function) fn timestamp_to_char(
    arguments: &[Datum],
    context: &EvalContext<'_>,
) -> Result<Datum, SqlError> {
    let value = timestamp(&arguments[0])?;
    let template = str_of(&arguments[1])?;
    if template.is_empty() || !is_finite_timestamp(value) {
        return Ok(Datum::Null);
    }
    let zone = matches!(arguments[0], Datum::Timestamptz(_)).then_some(context.time_zone);
    format_timestamp(value, zone, template).map(Datum::from)
}

/// A timestamp, or with a zone a moment, by template.
pub(in crate::function) fn format_timestamp(
    value: i64,
    tz: Option<TimeZone>,
    template: &str,
) -> Result<String, SqlError> {
    let offset = tz.map(|tz| (zone::offset_at(tz, value), zone::abbreviation_at(tz, value)));
    let local = value + offset.as_ref().map_or(0, |(seconds, _)| i64::from(*seconds) * SECOND);
    let (days, micros) = calendar::split(local);
    let civil = civil_from_days(days);
    let clock = calendar::clock(micros);
    let moment = Moment {
        year: if civil.year > 0 { i64::from(civil.year) } else { i64::from(civil.year) - 1 },
        month: i64::from(civil.month),
        day: i64::from(civil.day),
        hour: clock.hour,
        minute: clock.minute,
        second: clock.second,
        micros: clock.micros,
        days: Some(days),
        day_of_year: i64::from(calendar::day_of_year(civil)),
        zone: offset,
    };
    render(&moment, template)
}

/// `to_char(interval, template)`.
pub(in crate::function) fn interval_to_char(
    arguments: &[Datum],
    _: &EvalContext<'_>,
) -> Result<Datum, SqlError> {
    let Interval { months, days, micros } = interval(&arguments[0])?;
    let template = str_of(&arguments[1])?;
    if template.is_empty() {
        return Ok(Datum::Null);
    }
    let moment = Moment {
        year: i64::from(months / 12),
        month: i64::from(months % 12),
        day: i64::from(days),
        hour: micros / HOUR,
        minute: micros % HOUR / MINUTE,
        second: micros % MINUTE / SECOND,
        micros: micros % SECOND,
        days: None,
        day_of_year: i64::from(months) * 30 + i64::from(days),
        zone: None,
    };
    render(&moment, template).map(Datum::from)
}

fn render(moment: &Moment, template: &str) -> Result<String, SqlError> {
    let (mut out, mut meter) = (String::new(), Meter::default());
    for piece in split(template)? {
        let before = out.len();
        match piece {
            Piece::Literal(c) | Piece::Separator(c) => out.push(c),
            Piece::Pattern { pattern, case, fill, ordinal, .. } => {
                let mut text = one(moment, pattern, case, fill)?;
                // Only numbers are counted by: `MONTHTH` is `MONTH`.
                let is_number = pattern.is_digits() && pattern != Pattern::ZoneMinute;
                if let Some(ordinal) = ordinal.filter(|_| is_number && !text.is_empty()) {
                    text.push_str(suffix(&text, ordinal));
                }
                out.push_str(&text);
            }
        }
        meter.add(out.len() - before)?;
    }
    Ok(out)
}

/// `st`, `nd`, `rd` or `th`.
fn suffix(number: &str, case: Case) -> &'static str {
    let digits: Vec<u8> = number.bytes().filter(u8::is_ascii_digit).collect();
    let teen = digits.len() > 1 && digits[digits.len() - 2] == b'1';
    let lower = case == Case::Lower;
    match digits.last() {
        Some(b'1') if !teen => {
            if lower {
                "st"
            } else {
                "ST"
            }
        }
        Some(b'2') if !teen => {
            if lower {
                "nd"
            } else {
                "ND"
            }
        }
        Some(b'3') if !teen => {
            if lower {
                "rd"
            } else {
                "RD"
            }
        }
        _ => {
            if lower {
                "th"
            } else {
                "TH"
            }
        }
    }
}

/// A number of at least so many digits, without padding if `fill`.
fn padded(value: i64, width: usize, fill: bool) -> String {
    let width = if fill { 0 } else { width };
    if value < 0 { format!("-{:0width$}", -value) } else { format!("{value:0width$}") }
}

/// A number as wide as that, its sign included.
fn in_width(value: i64, width: usize, fill: bool) -> String {
    let width = if fill { 0 } else { width };
    format!("{value:0width$}")
}

/// Room for a sign is there if the hour itself has one.
fn hour_of_twelve(hour: i64, fill: bool) -> String {
    let shown = if hour % 12 == 0 { 12 } else { hour % 12 };
    in_width(shown, if hour < 0 { 3 } else { 2 }, fill)
}

fn cased(word: &str, case: Case) -> String {
    match case {
        Case::Upper => word.to_ascii_uppercase(),
        Case::Lower => word.to_ascii_lowercase(),
        Case::Capital => word.to_owned(),
    }
}

fn name(word: &str, case: Case, width: usize, fill: bool) -> String {
    let word = cased(word, case);
    if fill { word } else { format!("{word:width$}") }
}

#[cold]
fn not_for_intervals() -> SqlError {
    SqlError::new(
        crate::error::sqlstate::INVALID_DATETIME_FORMAT,
        "invalid format specification for an interval value",
    )
    .with_hint("Intervals are not tied to specific calendar dates.")
}

fn one(moment: &Moment, pattern: Pattern, case: Case, fill: bool) -> Result<String, SqlError> {
    let days = || moment.days.ok_or_else(not_for_intervals);
    let year_digits = |year: i64, digits: u8| {
        let shown = if digits == 4 { year } else { year % 10i64.pow(u32::from(digits)) };
        let width = usize::from(digits) + usize::from(year < 0);
        in_width(shown, if digits == 1 { 1 } else { width }, fill)
    };
    let era_year = if moment.days.is_some() { moment.year.abs() } else { moment.year };
    Ok(match pattern {
        Pattern::Hour12 => hour_of_twelve(moment.hour, fill),
        Pattern::Hour24 => padded(moment.hour, 2, fill),
        Pattern::Minute => padded(moment.minute, 2, fill),
        Pattern::Second => padded(moment.second, 2, fill),
        Pattern::Millisecond => in_width(moment.micros / 1000, 3, false),
        Pattern::Microsecond => in_width(moment.micros, 6, false),
        Pattern::Fraction(digits) => {
            let value = moment.micros / 10i64.pow(6 - u32::from(digits));
            in_width(value, usize::from(digits), false)
        }
        Pattern::SecondOfDay => (moment.hour * 3600 + moment.minute * 60 + moment.second).to_string(),
        Pattern::Meridiem { periods } => cased(meridiem(moment.hour, periods), case),
        Pattern::YearWithComma => format!("{},{:03}", era_year / 1000, era_year % 1000),
        Pattern::Year(digits) => year_digits(era_year, digits),
        Pattern::IsoYear(digits) => {
            let year = iso_of(moment).year;
            match moment.days {
                Some(_) => year_digits(if year > 0 { year } else { 1 - year }, digits),
                None => iso_year_of_interval(year, moment.year < 0, digits, fill),
            }
        }
        Pattern::Era { periods } => {
            days()?;
            cased(era(moment.year, periods), case)
        }
        Pattern::MonthName | Pattern::MonthAbbreviation | Pattern::RomanMonth => {
            if pattern != Pattern::RomanMonth {
                days()?;
            }
            month_name(moment, pattern, case, fill)
        }
        Pattern::Month => padded(moment.month, 2, fill),
        Pattern::DayName => name(WEEKDAYS[calendar::weekday(days()?) as usize], case, 9, fill),
        Pattern::DayAbbreviation => cased(&WEEKDAYS[calendar::weekday(days()?) as usize][..3], case),
        Pattern::DayOfYear => in_width(moment.day_of_year, 3, fill),
        Pattern::IsoDayOfYear => in_width(iso_of(moment).day_of_year, 3, fill),
        Pattern::Day => in_width(moment.day, 2, fill),
        Pattern::DayOfWeek => (calendar::weekday(days()?) + 1).to_string(),
        Pattern::IsoDayOfWeek => match calendar::weekday(days()?) {
            0 => "7".to_owned(),
            weekday => weekday.to_string(),
        },
        Pattern::WeekOfMonth => ((moment.day - 1) / 7 + 1).to_string(),
        Pattern::WeekOfYear => in_width((moment.day_of_year - 1) / 7 + 1, 2, fill),
        Pattern::IsoWeek => in_width(iso_of(moment).week, 2, fill),
        Pattern::Century => padded(century(moment), 2, fill),
        Pattern::Julian => match moment.days {
            Some(days) => (days + calendar::JULIAN_EPOCH).to_string(),
            None => julian_of_interval(moment).to_string(),
        },
        Pattern::Exact | Pattern::Quarter if moment.month == 0 || pattern == Pattern::Exact => String::new(),
        Pattern::Exact | Pattern::Quarter => ((moment.month - 1) / 3 + 1).to_string(),
        Pattern::ZoneAbbreviation | Pattern::ZoneHour | Pattern::ZoneMinute | Pattern::ZoneOffset => {
            days()?;
            zone_text(moment, pattern, case, fill)
        }
    })
}

fn meridiem(hour: i64, periods: bool) -> &'static str {
    match (hour % 24 >= 12, periods) {
        (true, true) => "P.M.",
        (true, false) => "PM",
        (false, true) => "A.M.",
        (false, false) => "AM",
    }
}

fn era(year: i64, periods: bool) -> &'static str {
    match (year < 0, periods) {
        (true, true) => "B.C.",
        (true, false) => "BC",
        (false, true) => "A.D.",
        (false, false) => "AD",
    }
}

fn century(moment: &Moment) -> i64 {
    if moment.days.is_none() {
        moment.year / 100
    } else if moment.year > 0 {
        (moment.year - 1) / 100 + 1
    } else {
        // 600 BC is the first year of its century, which 501 BC ends.
        (moment.year + 1) / 100 - 1
    }
}

/// What PostgreSQL's formula for Julian days makes of years, months and days, in 32 bits.
fn julian_of_fields(year: i32, month: i32, day: i32) -> i32 {
    let (year, month) = if month > 2 { (year + 4800, month + 1) } else { (year + 4799, month + 13) };
    let century = year / 100;
    let of_years = year.wrapping_mul(365).wrapping_sub(32_167);
    of_years.wrapping_add(year / 4 - century + century / 4).wrapping_add(7834 * month / 256).wrapping_add(day)
}

/// The same of an interval's fields, which were 32 bits wide there.
fn julian_of_interval(moment: &Moment) -> i32 {
    julian_of_fields(moment.year as i32, moment.month as i32, moment.day as i32)
}

/// A day in the calendar of weeks.
struct IsoDay {
    year: i64,
    week: i64,
    day_of_year: i64,
}

fn iso_of(moment: &Moment) -> IsoDay {
    let Some(days) = moment.days else { return iso_of_fields(moment) };
    let (year, week) = calendar::iso_week(days);
    let day_of_year = days - calendar::iso_week_start(year, 1) + 1;
    IsoDay { year: year.into(), week: week.into(), day_of_year }
}

/// What PostgreSQL's formulas make of an interval's years, months and days there. They count in 32
/// bits.
fn iso_of_fields(moment: &Moment) -> IsoDay {
    // The Monday of a year's first week.
    let begin = |year: i32| {
        let fourth = julian_of_fields(year, 1, 4);
        fourth.wrapping_sub(fourth.rem_euclid(7))
    };
    let week_of = |days: i32, start: i32| days.wrapping_sub(start) / 7 + 1;
    let mut year = moment.year as i32;
    let days = julian_of_interval(moment);
    let mut start = begin(year);
    if days < start {
        year -= 1;
        start = begin(year);
    }
    let mut week = week_of(days, start);
    if week >= 52 {
        let next = begin(year + 1);
        if days >= next {
            (year, start) = (year + 1, next);
            week = week_of(days, start);
        }
    }
    let day_of_year = i64::from(days.wrapping_sub(start)) + 1;
    IsoDay { year: year.into(), week: week.into(), day_of_year }
}

/// The last digits of such a year, with room for the sign of the interval's own years.
fn iso_year_of_interval(year: i64, is_negative: bool, digits: u8, fill: bool) -> String {
    let width = if digits == 1 { 1 } else { usize::from(digits) + usize::from(is_negative) };
    let shown = if digits == 4 { year } else { year % 10i64.pow(u32::from(digits)) };
    in_width(shown, width, fill)
}

fn month_name(moment: &Moment, pattern: Pattern, case: Case, fill: bool) -> String {
    if moment.month == 0 && (pattern != Pattern::RomanMonth || moment.year == 0) {
        return String::new();
    }
    // The months of an interval count backwards if it is negative; 0 of several years is the
    // twelfth.
    let forwards = moment.month > 0 || (moment.month == 0 && moment.year > 0);
    let month = match moment.month {
        0 if forwards => 12,
        0 => 1,
        month if month > 0 => month,
        month => month + 13,
    };
    let index = (month - 1).clamp(0, 11) as usize;
    match pattern {
        Pattern::MonthName => name(MONTHS[index], case, 9, fill),
        Pattern::MonthAbbreviation => cased(&MONTHS[index][..3], case),
        _ => name(ROMAN_MONTHS[index], case, 4, fill),
    }
}

fn zone_text(moment: &Moment, pattern: Pattern, case: Case, fill: bool) -> String {
    // A timestamp without zone has none to show; the offset is that of UTC.
    let (offset, abbreviation) = match &moment.zone {
        Some((offset, abbreviation)) => (*offset, abbreviation.as_str()),
        None => (0, ""),
    };
    let sign = if offset < 0 { '-' } else { '+' };
    let (hours, minutes) = (offset.abs() / 3600, offset.abs() % 3600 / 60);
    match pattern {
        Pattern::ZoneAbbreviation if case == Case::Lower => abbreviation.to_ascii_lowercase(),
        Pattern::ZoneAbbreviation => abbreviation.to_owned(),
        Pattern::ZoneHour => format!("{sign}{hours:02}"),
        Pattern::ZoneMinute => format!("{minutes:02}"),
        _ => {
            let hours = in_width(i64::from(hours), 2, fill);
            match offset.abs() % 3600 {
                0 => format!("{sign}{hours}"),
                _ => format!("{sign}{hours}:{minutes:02}"),
            }
        }
    }
}
