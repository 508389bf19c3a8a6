//! Dates and times from text by template.

use super::template::{Case, Pattern, Piece, split};
use crate::error::{SqlError, sqlstate};
use crate::function::EvalContext;
use crate::function::string::str_of;
use crate::types::Datum;
use crate::types::datetime::calendar::{self, days_from_civil, days_in_month};
use crate::types::datetime::{
    DAY, HOUR, MINUTE, MONTHS, SECOND, WEEKDAYS, arithmetic, check_date, check_timestamp,
};

/// `to_date(text, template)`.
pub(in crate::function) fn to_date(arguments: &[Datum], _: &EvalContext<'_>) -> Result<Datum, SqlError> {
    let parts = Parts::read(str_of(&arguments[0])?, str_of(&arguments[1])?)?;
    let days = parts.days(str_of(&arguments[0])?)?;
    check_date(i32::try_from(days).ok()).map(Datum::Date)
}

/// `to_timestamp(text, template)`: local time, unless the text has an offset.
pub(in crate::function) fn to_timestamp(
    arguments: &[Datum],
    context: &EvalContext<'_>,
) -> Result<Datum, SqlError> {
    let text = str_of(&arguments[0])?;
    let parts = Parts::read(text, str_of(&arguments[1])?)?;
    let local = check_timestamp(
        parts.days(text)?.checked_mul(DAY).and_then(|d| d.checked_add(parts.micros(text).ok()?)),
    );
    parts.micros(text)?;
    let local = local?;
    match parts.offset {
        Some(seconds) => check_timestamp(local.checked_sub(i64::from(seconds) * SECOND)),
        None => arithmetic::local_to_utc(local, context.time_zone),
    }
    .map(Datum::Timestamptz)
}

/// The fields read.
#[derive(Default)]
struct Parts {
    year: Option<i64>,
    month: Option<i64>,
    day: Option<i64>,
    day_of_year: Option<i64>,
    julian: Option<i64>,
    iso_year: Option<i64>,
    iso_week: Option<i64>,
    iso_day: Option<i64>,
    week_of_year: Option<i64>,
    century: Option<i64>,
    hour: i64,
    minute: i64,
    second: i64,
    micros: i64,
    second_of_day: Option<i64>,
    hour_12: bool,
    afternoon: Option<bool>,
    before_christ: bool,
    offset: Option<i32>,
    negative_offset: bool,
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

impl Parts {
    fn read(text: &str, template: &str) -> Result<Parts, SqlError> {
        let mut parts = Parts::default();
        let mut rest = text.trim_start();
        let pieces = split(template);
        for (i, piece) in pieces.iter().enumerate() {
            match piece {
                Piece::Literal(c) if c.is_alphanumeric() => {
                    // Literal text skips as many characters, whatever they are.
                    rest = rest.strip_prefix(|_: char| true).unwrap_or(rest);
                }
                Piece::Literal(c) => rest = skip_separator(rest, *c),
                Piece::Pattern { pattern, case, .. } => {
                    rest = rest.trim_start();
                    // Digits run together end where the next pattern begins.
                    let exact = matches!(pieces.get(i + 1), Some(Piece::Pattern { .. }));
                    rest = parts.take(*pattern, *case, rest, exact)?;
                    if rest.is_empty() {
                        break;
                    }
                }
            }
        }
        Ok(parts)
    }

    fn take<'a>(
        &mut self,
        pattern: Pattern,
        case: Case,
        rest: &'a str,
        exact: bool,
    ) -> Result<&'a str, SqlError> {
        let mut rest = rest;
        let mut number = |width: usize, name: &str| {
            take_number(&mut rest, if exact { width } else { width.max(9) }, width, name)
        };
        match pattern {
            Pattern::Hour12 => {
                self.hour = number(2, "HH12")?;
                self.hour_12 = true;
            }
            Pattern::Hour24 => self.hour = number(2, "HH24")?,
            Pattern::Minute => self.minute = number(2, "MI")?,
            Pattern::Second => self.second = number(2, "SS")?,
            Pattern::Millisecond => self.micros += take_fraction(&mut rest, 3, "MS")?,
            Pattern::Microsecond => self.micros += take_fraction(&mut rest, 6, "US")?,
            Pattern::Fraction(digits) => self.micros += take_fraction(&mut rest, usize::from(digits), "FF")?,
            Pattern::SecondOfDay => self.second_of_day = Some(number(5, "SSSS")?),
            Pattern::Year(digits) => {
                let before = rest.len();
                let negative = rest.starts_with('-');
                if negative {
                    rest = &rest[1..];
                }
                let value = take_number(
                    &mut rest,
                    if exact { usize::from(digits) } else { 9 },
                    usize::from(digits),
                    "YYYY",
                )?;
                let read = before - rest.len();
                let value =
                    if digits < 4 && read <= usize::from(digits) { near_2020(value, digits) } else { value };
                self.year = Some(value);
                self.before_christ |= negative;
            }
            Pattern::YearWithComma => {
                let end = rest.find(|c: char| !c.is_ascii_digit() && c != ',').unwrap_or(rest.len());
                let digits = rest[..end].replace(',', "");
                self.year = Some(digits.parse().map_err(|_| invalid_value(rest, "Y,YYY"))?);
                rest = &rest[end..];
            }
            Pattern::IsoYear(digits) => {
                let value = number(usize::from(digits), "IYYY")?;
                self.iso_year = Some(if digits < 4 { near_2020(value, digits) } else { value });
            }
            Pattern::Month => self.month = Some(number(2, "MM")?),
            Pattern::Day => self.day = Some(number(2, "DD")?),
            Pattern::DayOfYear => self.day_of_year = Some(number(3, "DDD")?),
            Pattern::IsoDayOfYear => self.day_of_year = Some(number(3, "IDDD")?),
            Pattern::DayOfWeek => {
                number(1, "D")?;
            }
            Pattern::IsoDayOfWeek => self.iso_day = Some(number(1, "ID")?),
            Pattern::WeekOfMonth => {
                let week = number(1, "W")?;
                self.day.get_or_insert((week - 1) * 7 + 1);
            }
            Pattern::WeekOfYear => self.week_of_year = Some(number(2, "WW")?),
            Pattern::IsoWeek => self.iso_week = Some(number(2, "IW")?),
            Pattern::Century => self.century = Some(number(2, "CC")?),
            Pattern::Julian => self.julian = Some(number(9, "J")?),
            Pattern::Quarter => {
                number(1, "Q")?;
            }
            Pattern::MonthName | Pattern::MonthAbbreviation => {
                let full = pattern == Pattern::MonthName;
                let index = take_word(&mut rest, &MONTHS, full);
                let index =
                    index.ok_or_else(|| invalid_name(rest, if full { "MONTH" } else { "MON" }, case))?;
                self.month = Some(index as i64 + 1);
            }
            Pattern::DayName | Pattern::DayAbbreviation => {
                let full = pattern == Pattern::DayName;
                take_word(&mut rest, &WEEKDAYS, full)
                    .ok_or_else(|| invalid_name(rest, if full { "DAY" } else { "DY" }, case))?;
            }
            Pattern::RomanMonth => rest = self.roman_month(rest)?,
            Pattern::Meridiem { periods } => {
                let words = if periods { ["A.M.", "P.M."] } else { ["AM", "PM"] };
                let index = take_exact(&mut rest, &words).ok_or_else(|| invalid_value(rest, words[0]))?;
                self.afternoon = Some(index == 1);
            }
            Pattern::Era { periods } => {
                let words = if periods { ["A.D.", "B.C."] } else { ["AD", "BC"] };
                let index = take_exact(&mut rest, &words).ok_or_else(|| invalid_value(rest, words[0]))?;
                self.before_christ = index == 1;
            }
            Pattern::ZoneHour => {
                self.negative_offset = rest.starts_with('-');
                rest = rest.trim_start_matches(['+', '-', ' ']);
                let hours = take_number(&mut rest, 2, 2, "TZH")?;
                self.add_offset(hours * 3600);
            }
            Pattern::ZoneMinute => {
                let minutes = number(2, "TZM")?;
                self.add_offset(minutes * 60);
            }
            Pattern::ZoneAbbreviation | Pattern::ZoneOffset => {
                return Err(SqlError::new(
                    sqlstate::FEATURE_NOT_SUPPORTED,
                    "formatting field \"TZ\" is only supported in to_char",
                ));
            }
        }
        Ok(rest)
    }

    fn add_offset(&mut self, seconds: i64) {
        let signed = if self.negative_offset { -seconds } else { seconds };
        self.offset = Some(self.offset.unwrap_or(0) + signed as i32);
    }

    fn roman_month<'a>(&mut self, rest: &'a str) -> Result<&'a str, SqlError> {
        const ROMAN: [&str; 12] = ["VIII", "XII", "VII", "III", "XI", "IX", "VI", "IV", "II", "X", "V", "I"];
        const NUMBERS: [i64; 12] = [8, 12, 7, 3, 11, 9, 6, 4, 2, 10, 5, 1];
        let mut rest = rest;
        let index = take_exact(&mut rest, &ROMAN).ok_or_else(|| invalid_value(rest, "RM"))?;
        self.month = Some(NUMBERS[index]);
        Ok(rest)
    }

    fn days(&self, text: &str) -> Result<i64, SqlError> {
        if let Some(julian) = self.julian {
            return Ok(julian - calendar::JULIAN_EPOCH);
        }
        if let (Some(year), Some(week)) = (self.iso_year, self.iso_week) {
            let year = i32::try_from(year).map_err(|_| out_of_range(text))?;
            return Ok(
                calendar::iso_week_start(year, week.clamp(1, 53) as u32) + self.iso_day.unwrap_or(1) - 1
            );
        }
        let mut year = self.year.or(self.iso_year).unwrap_or(match self.century {
            Some(century) => (century - 1) * 100 + 1,
            None => 0,
        });
        if let (Some(century), Some(short)) = (self.century, self.year)
            && short < 100
        {
            year = (century - 1) * 100 + short;
        }
        // Without a year, it is 1 BC, as is year 0.
        let year = if self.before_christ { 1 - year } else { year };
        let year =
            i32::try_from(year).ok().filter(|y| y.abs() < 6_000_000).ok_or_else(|| out_of_range(text))?;
        if let Some(day) = self.day_of_year.or(self.week_of_year.map(|week| (week - 1) * 7 + 1))
            && self.month.is_none()
        {
            let longest = 365 + i64::from(calendar::is_leap(year));
            if !(1..=longest).contains(&day) {
                return Err(out_of_range(text));
            }
            return Ok(days_from_civil(year, 1, 1) + day - 1);
        }
        let (month, day) = (self.month.unwrap_or(1), self.day.unwrap_or(1));
        if !(1..=12).contains(&month) || day < 1 || day > i64::from(days_in_month(year, month as u32)) {
            return Err(out_of_range(text));
        }
        Ok(days_from_civil(year, month as u32, day as u32))
    }

    fn micros(&self, text: &str) -> Result<i64, SqlError> {
        if let Some(seconds) = self.second_of_day {
            return Ok(seconds * SECOND + self.micros);
        }
        let mut hour = self.hour;
        if self.hour_12 {
            if !(1..=12).contains(&hour) {
                return Err(SqlError::new(
                    sqlstate::INVALID_DATETIME_FORMAT,
                    format!("hour \"{hour}\" is invalid for the 12-hour clock"),
                )
                .with_hint("Use the 24-hour clock, or give an hour between 1 and 12."));
            }
            match self.afternoon {
                Some(true) if hour < 12 => hour += 12,
                Some(false) if hour == 12 => hour = 0,
                None if hour == 12 => hour = 0,
                _ => {}
            }
        }
        if hour > 24 || self.minute > 59 || self.second > 59 {
            return Err(out_of_range(text));
        }
        Ok(hour * HOUR + self.minute * MINUTE + self.second * SECOND + self.micros)
    }
}

/// A separator in the template skips blanks and at most one separator in the text.
fn skip_separator(rest: &str, separator: char) -> &str {
    let rest = if separator.is_whitespace() { rest } else { rest.trim_start() };
    match rest.chars().next() {
        Some(c) if c.is_ascii_punctuation() && (c != '-' && c != '+' || c == separator) => &rest[1..],
        Some(c) if c.is_whitespace() => rest.trim_start(),
        _ => rest,
    }
}

/// Short years mean those nearest to 2020.
fn near_2020(value: i64, digits: u8) -> i64 {
    match digits {
        1 => 2020 + value,
        2 if value < 70 => 2000 + value,
        2 => 1900 + value,
        3 if value < 520 => 2000 + value,
        3 => 1000 + value,
        _ => value,
    }
}

#[cold]
fn invalid_value(rest: &str, pattern: &str) -> SqlError {
    let shown: String = rest.chars().take_while(|c| !c.is_whitespace()).take(9).collect();
    invalid(format!("invalid value \"{shown}\" for \"{pattern}\""))
}

fn take_number(rest: &mut &str, most: usize, width: usize, pattern: &str) -> Result<i64, SqlError> {
    let text = *rest;
    let digits = text.bytes().take(most).take_while(u8::is_ascii_digit).count();
    if digits == 0 {
        let shown: String = text.chars().take(width).collect();
        if shown.is_empty() {
            return Err(invalid(format!("source string too short for \"{pattern}\" formatting field")));
        }
        return Err(invalid(format!("invalid value \"{shown}\" for \"{pattern}\""))
            .with_detail("Value must be an integer."));
    }
    *rest = &text[digits..];
    text[..digits].parse().map_err(|_| invalid_value(text, pattern))
}

/// The pattern is shown as it was written.
#[cold]
fn invalid_name(rest: &str, pattern: &str, case: Case) -> SqlError {
    let lower = pattern.to_ascii_lowercase();
    match case {
        Case::Upper => invalid_value(rest, pattern),
        Case::Lower => invalid_value(rest, &lower),
        Case::Capital => invalid_value(rest, &format!("{}{}", &pattern[..1], &lower[1..])),
    }
}

/// Digits of a fraction, in microseconds.
fn take_fraction(rest: &mut &str, most: usize, pattern: &str) -> Result<i64, SqlError> {
    let text = *rest;
    let digits = text.bytes().take(most).take_while(u8::is_ascii_digit).count();
    if digits == 0 {
        return Err(invalid_value(text, pattern));
    }
    *rest = &text[digits..];
    let value: i64 = text[..digits].parse().map_err(|_| invalid_value(text, pattern))?;
    Ok(value * 10i64.pow(6 - digits.min(6) as u32))
}

/// One of the names, in full or its first three letters, in any case.
fn take_word(rest: &mut &str, names: &[&str], full: bool) -> Option<usize> {
    let text = *rest;
    let starts = |name: &str| text.get(..name.len()).is_some_and(|head| head.eq_ignore_ascii_case(name));
    if full && let Some(index) = names.iter().position(|name| starts(name)) {
        *rest = &text[names[index].len()..];
        return Some(index);
    }
    if full {
        return None;
    }
    let index = names.iter().position(|name| starts(&name[..3]))?;
    *rest = &text[3..];
    Some(index)
}

fn take_exact(rest: &mut &str, words: &[&str]) -> Option<usize> {
    let text = *rest;
    let index = words
        .iter()
        .position(|word| text.get(..word.len()).is_some_and(|head| head.eq_ignore_ascii_case(word)))?;
    *rest = &text[words[index].len()..];
    Some(index)
}
