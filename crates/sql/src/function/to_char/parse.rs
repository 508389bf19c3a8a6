//! Dates and times from text by template.
//!
//! A pattern of digits takes as many as it has letters if another one follows at once (`YYYYMMDD`),
//! and all that there are otherwise or after FM. Punctuation and blanks in the template match one
//! such character in the text, or none; before and after a field blanks do not count. FX takes all
//! that literally.

use std::fmt;

use super::template::{Case, Pattern, Piece, split};
use crate::error::{SqlError, sqlstate};
use crate::function::EvalContext;
use crate::function::string::str_of;
use crate::types::Datum;
use crate::types::bounds::Meter;
use crate::types::datetime::calendar::{self, days_from_civil, days_in_month};
use crate::types::datetime::{
    DAY, HOUR, MINUTE, MONTHS, SECOND, WEEKDAYS, arithmetic, check_date, check_timestamp, round_micros,
};

/// `to_date(text, template)`.
pub(in crate::function) fn to_date(arguments: &[Datum], _: &EvalContext<'_>) -> Result<Datum, SqlError> {
    let text = str_of(&arguments[0])?;
    let (date, _) = Parts::read(text, str_of(&arguments[1])?)?.settle(text)?;
    let days = date.filter(|days| days.abs() < 1 << 40).and_then(|days| i32::try_from(days).ok());
    check_date(days).map(Datum::Date).map_err(|_| {
        SqlError::new(sqlstate::DATETIME_FIELD_OVERFLOW, format!("date out of range: \"{text}\""))
    })
}

/// `to_timestamp(text, template)`: local time, unless the text has an offset.
pub(in crate::function) fn to_timestamp(
    arguments: &[Datum],
    context: &EvalContext<'_>,
) -> Result<Datum, SqlError> {
    let text = str_of(&arguments[0])?;
    let parts = Parts::read(text, str_of(&arguments[1])?)?;
    let (days, micros) = parts.settle(text)?;
    let local = check_timestamp(days.and_then(|days| days.checked_mul(DAY)?.checked_add(micros)))?;
    let moment = match parts.offset(text)? {
        Some(seconds) => check_timestamp(local.checked_sub(seconds * SECOND)),
        None => arithmetic::local_to_utc(local, context.time_zone),
    }?;
    Ok(Datum::Timestamptz(match parts.precision {
        0 => moment,
        digits => round_micros(moment, digits),
    }))
}

/// Which calendar the date is given in.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Convention {
    Gregorian,
    IsoWeek,
}

/// The fields read. 0 is as good as none, as PostgreSQL has it.
#[derive(Default)]
struct Parts {
    convention: Option<Convention>,
    hour: i64,
    afternoon: i64,
    minute: i64,
    second: i64,
    second_of_day: i64,
    /// From 1, Sunday.
    day_of_week: i64,
    day: i64,
    day_of_year: i64,
    month: i64,
    milliseconds: i64,
    year: i64,
    before_christ: i64,
    week: i64,
    week_of_month: i64,
    century: i64,
    julian: i64,
    microseconds: i64,
    /// Digits of the year.
    year_digits: u8,
    hour_12: bool,
    zone_sign: i64,
    zone_hours: i64,
    zone_minutes: i64,
    /// Digits of the fraction that FF1 to FF6 ask for.
    precision: u32,
}

#[cold]
fn invalid(message: String) -> SqlError {
    SqlError::new(sqlstate::INVALID_DATETIME_FORMAT, message)
}

#[cold]
fn out_of_range(text: &str) -> SqlError {
    SqlError::new(
        sqlstate::DATETIME_FIELD_OVERFLOW,
        format!("date/time field value out of range: \"{text}\""),
    )
}

/// A pattern as it is written in the template.
#[derive(Clone, Copy)]
struct Spelling(&'static str, Case);

impl fmt::Display for Spelling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.1 {
            Case::Upper => f.write_str(self.0),
            Case::Lower => f.write_str(&self.0.to_ascii_lowercase()),
            Case::Capital => write!(f, "{}{}", &self.0[..1], self.0[1..].to_ascii_lowercase()),
        }
    }
}

/// Sets a field that is not set to something else.
fn set(field: &mut i64, value: i64, spelling: Spelling) -> Result<(), SqlError> {
    if *field != 0 && *field != value {
        return Err(invalid(format!("conflicting values for \"{spelling}\" field in formatting string"))
            .with_detail("This value contradicts a previous setting for the same field type."));
    }
    *field = value;
    Ok(())
}

/// What is left of the text, and what the pattern at work wants of it.
struct Source<'a> {
    rest: &'a str,
    spelling: Spelling,
    /// As many digits as the pattern has letters, no more.
    fixed: bool,
}

fn is_blank(c: char) -> bool {
    c.is_ascii_whitespace() || c == '\x0b'
}

impl Source<'_> {
    /// A number: its value, and how many characters it takes.
    fn number(&mut self, width: usize) -> Result<(i64, usize), SqlError> {
        let before = self.rest;
        let rest = before.trim_start_matches(is_blank);
        let shown: String = rest.chars().take(width).collect();
        let integer = |text: &str| {
            let sign = usize::from(text.starts_with(['-', '+']));
            let digits = text[sign..].bytes().take_while(u8::is_ascii_digit).count();
            if digits == 0 { 0 } else { sign + digits }
        };
        let used = if self.fixed {
            let have = shown.len();
            if shown.chars().count() < width {
                return Err(invalid(format!(
                    "source string too short for \"{}\" formatting field",
                    self.spelling
                ))
                .with_detail(format!("Field requires {width} characters, but only {have} remain."))
                .with_hint("If your source string is not fixed-width, try using the \"FM\" modifier."));
            }
            let used = integer(&shown);
            if used > 0 && used < width {
                return Err(self
                    .invalid_value(
                        &shown,
                        &format!("Field requires {width} characters, but only {used} could be parsed."),
                    )
                    .with_hint("If your source string is not fixed-width, try using the \"FM\" modifier."));
            }
            used
        } else {
            integer(rest)
        };
        if used == 0 {
            return Err(self.invalid_value(&shown, "Value must be an integer."));
        }
        let value: Option<i32> = rest[..used].parse().ok();
        self.rest = &rest[used..];
        match value {
            Some(value) => Ok((i64::from(value), before.len() - self.rest.len())),
            None => Err(SqlError::new(
                sqlstate::DATETIME_FIELD_OVERFLOW,
                format!("value for \"{}\" in source string is out of range", self.spelling),
            )
            .with_detail(format!("Value must be in the range {} to {}.", i32::MIN, i32::MAX))),
        }
    }

    /// A number into a field that is not set to something else.
    fn read_into(&mut self, field: &mut i64, width: usize) -> Result<usize, SqlError> {
        let (value, length) = self.number(width)?;
        set(field, value, self.spelling)?;
        Ok(length)
    }

    #[cold]
    fn invalid_value(&self, shown: &str, detail: &str) -> SqlError {
        invalid(format!("invalid value \"{shown}\" for \"{}\"", self.spelling)).with_detail(detail)
    }

    /// The first of these words that the text begins with, in any case.
    fn word<'w>(&mut self, words: impl Iterator<Item = &'w str>) -> Result<i64, SqlError> {
        for (index, word) in words.enumerate() {
            let begins = self.rest.get(..word.len()).is_some_and(|start| start.eq_ignore_ascii_case(word));
            if begins {
                self.rest = &self.rest[word.len()..];
                return Ok(index as i64);
            }
        }
        let shown = self.rest.split(is_blank).next().unwrap_or_default();
        Err(self
            .invalid_value(shown, "The given value did not match any of the allowed values for this field."))
    }

    /// Drops a character.
    fn skip(&mut self) {
        let mut characters = self.rest.chars();
        characters.next();
        self.rest = characters.as_str();
    }
}

/// Whether a pattern of digits knows where it ends: what follows is no digit.
fn ends_by_itself(pieces: &[Piece], place: usize) -> bool {
    if let Piece::Pattern { ordinal: Some(_), .. } = pieces[place] {
        return true;
    }
    match pieces.get(place + 1) {
        None | Some(Piece::Separator(_)) => true,
        Some(Piece::Literal(c)) => !c.is_ascii_digit(),
        Some(Piece::Pattern { pattern, .. }) => !pattern.is_digits(),
    }
}

impl Parts {
    fn read(text: &str, template: &str) -> Result<Parts, SqlError> {
        let mut parts = Parts::default();
        let mut source = Source { rest: text, spelling: Spelling("", Case::Upper), fixed: false };
        let (pieces, mut meter) = (split(template)?, Meter::default());
        let mut exact = false;
        // Blanks that were skipped beyond what the template has.
        let mut skipped = 0i64;
        let skip_blanks = |source: &mut Source<'_>, skipped: &mut i64| {
            let rest = source.rest.trim_start_matches(is_blank);
            *skipped += (source.rest.len() - rest.len()) as i64;
            source.rest = rest;
        };
        for (place, piece) in pieces.iter().enumerate() {
            if source.rest.is_empty() {
                break;
            }
            meter.add(0)?;
            let is_pattern = matches!(piece, Piece::Pattern { .. });
            let is_switch = matches!(piece, Piece::Pattern { pattern: Pattern::Exact, .. });
            if !exact && !is_switch && (is_pattern || place == 0) {
                skip_blanks(&mut source, &mut skipped);
            }
            match piece {
                Piece::Separator(_) if exact => source.skip(),
                Piece::Separator(_) => {
                    skipped -= 1;
                    let separates = |c: char| is_blank(c) || c.is_ascii_punctuation();
                    if source.rest.starts_with(separates) {
                        source.skip();
                        skipped += 1;
                    }
                }
                // It may be part of a field if more was skipped than the template has.
                Piece::Literal(_) if !exact && skipped > 0 => skipped -= 1,
                Piece::Literal(_) => source.skip(),
                Piece::Pattern { pattern: Pattern::Exact, .. } => exact = true,
                Piece::Pattern { pattern, spelling, case, fill, ordinal } => {
                    source.spelling = Spelling(spelling, *case);
                    source.fixed = !fill && !ends_by_itself(&pieces, place);
                    let minus_before = skipped > 0 && text[..text.len() - source.rest.len()].ends_with('-');
                    parts.take(*pattern, &mut source, minus_before)?;
                    if ordinal.is_some() && pattern.is_digits() {
                        source.skip();
                        source.skip();
                    }
                }
            }
            if is_pattern && !exact {
                skipped = 0;
                skip_blanks(&mut source, &mut skipped);
            }
        }
        Ok(parts)
    }

    /// Dates are given in one calendar.
    fn see(&mut self, pattern: Pattern) -> Result<(), SqlError> {
        use Pattern::*;
        let convention = match pattern {
            DayOfYear | Day | DayOfWeek | Month | MonthName | MonthAbbreviation | RomanMonth | WeekOfYear
            | WeekOfMonth | YearWithComma | Year(_) => Convention::Gregorian,
            IsoDayOfYear | IsoDayOfWeek | IsoWeek | IsoYear(_) => Convention::IsoWeek,
            _ => return Ok(()),
        };
        match self.convention.replace(convention) {
            Some(before) if before != convention => Err(invalid(
                "invalid combination of date conventions".into(),
            )
            .with_hint("Do not mix Gregorian and ISO week date conventions in a formatting template.")),
            _ => Ok(()),
        }
    }

    fn take(
        &mut self,
        pattern: Pattern,
        source: &mut Source<'_>,
        minus_before: bool,
    ) -> Result<(), SqlError> {
        self.see(pattern)?;
        let width = source.spelling.0.len();
        match pattern {
            Pattern::Hour12 => {
                source.read_into(&mut self.hour, 2)?;
                self.hour_12 = true;
            }
            Pattern::Hour24 => drop(source.read_into(&mut self.hour, 2)?),
            Pattern::Minute => drop(source.read_into(&mut self.minute, width)?),
            Pattern::Second => drop(source.read_into(&mut self.second, width)?),
            Pattern::SecondOfDay => drop(source.read_into(&mut self.second_of_day, width)?),
            Pattern::Millisecond => {
                let length = source.read_into(&mut self.milliseconds, 3)?;
                self.milliseconds *= 10i64.pow(3u32.saturating_sub(length as u32));
            }
            Pattern::Microsecond | Pattern::Fraction(_) => {
                let digits = if let Pattern::Fraction(digits) = pattern { usize::from(digits) } else { 6 };
                if pattern != Pattern::Microsecond {
                    self.precision = digits as u32;
                }
                let length = source.read_into(&mut self.microseconds, digits)?;
                self.microseconds *= 10i64.pow(6u32.saturating_sub(length as u32));
            }
            Pattern::Meridiem { periods } => {
                let words = if periods { ["a.m.", "p.m."] } else { ["am", "pm"] };
                let index = source.word(words.into_iter())?;
                set(&mut self.afternoon, index, source.spelling)?;
                self.hour_12 = true;
            }
            Pattern::Era { periods } => {
                let words = if periods { ["a.d.", "b.c."] } else { ["ad", "bc"] };
                let index = source.word(words.into_iter())?;
                set(&mut self.before_christ, index, source.spelling)?;
            }
            Pattern::ZoneAbbreviation | Pattern::ZoneOffset => {
                return Err(SqlError::new(
                    sqlstate::FEATURE_NOT_SUPPORTED,
                    format!("formatting field \"{}\" is only supported in to_char", source.spelling),
                ));
            }
            Pattern::ZoneHour => {
                let negative = source.rest.starts_with('-');
                if negative || source.rest.starts_with(['+', ' ']) {
                    source.skip();
                    self.zone_sign = if negative { -1 } else { 1 };
                } else {
                    self.zone_sign = if minus_before { -1 } else { 1 };
                }
                source.read_into(&mut self.zone_hours, 2)?;
            }
            Pattern::ZoneMinute => {
                if self.zone_sign == 0 {
                    self.zone_sign = 1;
                }
                source.read_into(&mut self.zone_minutes, 2)?;
            }
            Pattern::Exact => {}
            other => self.take_date(other, source)?,
        }
        Ok(())
    }

    fn take_date(&mut self, pattern: Pattern, source: &mut Source<'_>) -> Result<(), SqlError> {
        const ROMAN: [&str; 12] = ["xii", "xi", "x", "ix", "viii", "vii", "vi", "v", "iv", "iii", "ii", "i"];
        let width = source.spelling.0.len();
        match pattern {
            Pattern::YearWithComma => {
                let year = year_with_comma(&mut source.rest)?;
                set(&mut self.year, year, source.spelling)?;
                self.year_digits = 4;
            }
            Pattern::Year(digits) | Pattern::IsoYear(digits) => {
                let length = source.read_into(&mut self.year, width)?;
                if digits < 4 && length < 4 {
                    self.year = near_2020(self.year);
                }
                self.year_digits = digits;
            }
            Pattern::MonthName => {
                let index = source.word(MONTHS.into_iter())?;
                set(&mut self.month, index + 1, source.spelling)?;
            }
            Pattern::MonthAbbreviation => {
                let index = source.word(MONTHS.iter().map(|name| &name[..3]))?;
                set(&mut self.month, index + 1, source.spelling)?;
            }
            Pattern::RomanMonth => {
                let index = source.word(ROMAN.into_iter())?;
                set(&mut self.month, 12 - index, source.spelling)?;
            }
            Pattern::DayName => {
                let index = source.word(WEEKDAYS.into_iter())?;
                set(&mut self.day_of_week, index, source.spelling)?;
                self.day_of_week += 1;
            }
            Pattern::DayAbbreviation => {
                let index = source.word(WEEKDAYS.iter().map(|name| &name[..3]))?;
                set(&mut self.day_of_week, index, source.spelling)?;
                self.day_of_week += 1;
            }
            Pattern::IsoDayOfWeek => {
                source.read_into(&mut self.day_of_week, 1)?;
                self.day_of_week = if self.day_of_week >= 7 { 1 } else { self.day_of_week + 1 };
            }
            Pattern::Quarter => drop(source.number(width)?),
            Pattern::Month => drop(source.read_into(&mut self.month, width)?),
            Pattern::Day => drop(source.read_into(&mut self.day, width)?),
            Pattern::DayOfYear => drop(source.read_into(&mut self.day_of_year, width)?),
            Pattern::IsoDayOfYear => drop(source.read_into(&mut self.day_of_year, 3)?),
            Pattern::DayOfWeek => drop(source.read_into(&mut self.day_of_week, width)?),
            Pattern::WeekOfYear | Pattern::IsoWeek => drop(source.read_into(&mut self.week, width)?),
            Pattern::WeekOfMonth => drop(source.read_into(&mut self.week_of_month, width)?),
            Pattern::Century => drop(source.read_into(&mut self.century, width)?),
            Pattern::Julian => drop(source.read_into(&mut self.julian, width)?),
            _ => {}
        }
        Ok(())
    }

    /// The year, with 0 for 1 BC; `None` if none was given.
    fn year(&self) -> Option<i64> {
        let century = if self.before_christ == 1 { -self.century } else { self.century };
        if self.year != 0 && century != 0 && self.year_digits <= 2 {
            // The last digits of a year of the century, which begins with 1.
            return Some(match (self.year % 100, century >= 0) {
                (0, true) => century * 100,
                (0, false) => century * 100 + 1,
                (short, true) => (century - 1) * 100 + short,
                (short, false) => (century + 1) * 100 - short + 1,
            });
        }
        if self.year != 0 {
            let year = if self.before_christ == 1 { -self.year } else { self.year };
            return Some(if year < 0 { year + 1 } else { year });
        }
        match century {
            0 => None,
            century if century > 0 => Some((century - 1) * 100 + 1),
            century => Some(century * 100 + 1),
        }
    }

    /// Days since 2000 (`None` beyond all calendars) and microseconds of the day.
    fn settle(&self, text: &str) -> Result<(Option<i64>, i64), SqlError> {
        let micros = self.micros(text);
        // PostgreSQL tells a wrong hour before a wrong date, and other times after it.
        if let Err(error) = &micros
            && error.sqlstate == sqlstate::INVALID_DATETIME_FORMAT
        {
            return micros.map(|micros| (None, micros));
        }
        let days = self.days(text)?;
        Ok((days, micros?))
    }

    fn days(&self, text: &str) -> Result<Option<i64>, SqlError> {
        let iso = self.convention == Some(Convention::IsoWeek);
        let given = self.year();
        let mut year = given.unwrap_or(0);
        let civil_year = |year: i64| i32::try_from(year).ok().filter(|year| year.abs() < 6_000_000);
        let (mut month, mut day) = (1, 1);
        // Where the day is known by its number, month and day follow from it.
        let mut known = (self.julian != 0).then(|| self.julian - calendar::JULIAN_EPOCH);
        if self.week != 0 && iso {
            let Some(of) = civil_year(year) else { return Ok(None) };
            let monday = calendar::iso_week_start(of, 1) + (self.week - 1) * 7;
            let offset = match self.day_of_week {
                0 => 0,
                1 => 6,
                day => day - 2,
            };
            known = Some(monday + offset);
        }
        if let Some(days) = known {
            let civil = calendar::civil_from_days(days);
            (year, month, day) = (i64::from(civil.year), i64::from(civil.month), i64::from(civil.day));
        }
        let day_of_year = if self.week != 0 && !iso { (self.week - 1) * 7 + 1 } else { self.day_of_year };
        let day_of_month = if self.week_of_month != 0 { (self.week_of_month - 1) * 7 + 1 } else { self.day };
        if day_of_month != 0 {
            day = day_of_month;
        }
        if self.month != 0 {
            month = self.month;
        }
        if day_of_year != 0 && (month <= 1 || day <= 1) {
            if year == 0 && self.before_christ == 0 {
                return Err(invalid("cannot calculate day of year without year information".into()));
            }
            let Some(of) = civil_year(year) else { return Ok(None) };
            if iso {
                let civil = calendar::civil_from_days(calendar::iso_week_start(of, 1) + day_of_year - 1);
                (year, month, day) = (i64::from(civil.year), i64::from(civil.month), i64::from(civil.day));
            } else {
                let (of_month, of_day) = month_and_day(of, day_of_year);
                month = if month <= 1 { of_month } else { month };
                day = if day <= 1 { of_day } else { day };
            }
        }
        let Some(of) = civil_year(year) else { return Ok(None) };
        // A date with a part left out is not checked as a whole: a day too many is of the next
        // month.
        let whole =
            known.is_some() || given.is_some() && (day_of_year != 0 || self.month != 0 && day_of_month != 0);
        let longest = match month {
            1..=12 if whole => i64::from(days_in_month(of, month as u32)),
            1..=12 => 31,
            _ => 0,
        };
        if day < 1 || day > longest {
            return Err(out_of_range(text));
        }
        Ok(Some(days_from_civil(of, month as u32, 1) + day - 1))
    }

    fn micros(&self, text: &str) -> Result<i64, SqlError> {
        let of_day = |unit: i64, size: i64| self.second_of_day / unit % size;
        let or = |field: i64, otherwise: i64| if field != 0 { field } else { otherwise };
        let mut hour = or(self.hour, self.second_of_day / 3600);
        let minute = or(self.minute, of_day(60, 60));
        let second = or(self.second, of_day(1, 60));
        if self.hour_12 {
            if !(1..=12).contains(&hour) {
                return Err(invalid(format!("hour \"{hour}\" is invalid for the 12-hour clock"))
                    .with_hint("Use the 24-hour clock, or give an hour between 1 and 12."));
            }
            hour = hour % 12 + 12 * self.afternoon;
        }
        let fraction = self.milliseconds * 1000 + self.microseconds;
        if !(0..24).contains(&hour)
            || !(0..60).contains(&minute)
            || !(0..60).contains(&second)
            || !(0..SECOND).contains(&fraction)
        {
            return Err(out_of_range(text));
        }
        Ok(hour * HOUR + minute * MINUTE + second * SECOND + fraction)
    }

    /// Seconds east of UTC that the text names.
    fn offset(&self, text: &str) -> Result<Option<i64>, SqlError> {
        if self.zone_sign == 0 {
            return Ok(None);
        }
        if !(0..=15).contains(&self.zone_hours) || !(0..60).contains(&self.zone_minutes) {
            return Err(SqlError::new(
                sqlstate::INVALID_TIME_ZONE_DISPLACEMENT_VALUE,
                format!("time zone displacement out of range: \"{text}\""),
            ));
        }
        Ok(Some(self.zone_sign * (self.zone_hours * 3600 + self.zone_minutes * 60)))
    }
}

/// Month and day of a day of the year; a number too large ends up beyond the last month.
fn month_and_day(year: i32, day_of_year: i64) -> (i64, i64) {
    let mut left = day_of_year;
    for month in 1..=12 {
        let length = i64::from(days_in_month(year, month));
        if left <= length {
            return (i64::from(month), left);
        }
        left -= length;
    }
    (13, left)
}

/// `2,024`: thousands, and the rest.
fn year_with_comma(rest: &mut &str) -> Result<i64, SqlError> {
    let failure = || invalid("invalid input string for \"Y,YYY\"".into());
    let text = rest.trim_start_matches(is_blank);
    let (thousands, after) = text.split_once(',').ok_or_else(failure)?;
    let digits = after.bytes().take(3).take_while(u8::is_ascii_digit).count();
    let thousands: i32 = thousands.parse().map_err(|_| failure())?;
    let units: i32 = after[..digits].parse().map_err(|_| failure())?;
    *rest = &after[digits..];
    Ok(i64::from(thousands) * 1000 + i64::from(units))
}

/// Short years mean those nearest to 2020.
fn near_2020(year: i64) -> i64 {
    match year {
        ..70 | 100..520 => year + 2000,
        70..100 => year + 1900,
        520..1000 => year + 1000,
        _ => year,
    }
}
