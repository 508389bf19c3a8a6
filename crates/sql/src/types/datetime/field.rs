//! The fields of a date and time while they are being read.

use super::calendar::{days_from_civil, days_in_month};
use super::zone::TimeZone;
use super::{DAY, HOUR, MINUTE, SECOND, words, zone};
use crate::error::{SqlError, sqlstate};
use crate::types::DateOrder;

/// Why a text is no date or time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum FieldError {
    /// Not of the form: 22007.
    Format,
    /// A field is out of its range: 22008.
    Overflow,
    /// A day or month is, perhaps because they come in another order: 22008 with a hint.
    DayMonthOverflow,
    /// An interval is: 22015.
    IntervalOverflow,
    /// Of the zone's offset: 22009.
    ZoneOverflow,
    /// No zone of this name: 22023.
    UnknownZone(String),
}

impl FieldError {
    /// The error for the whole text.
    pub(super) fn report(self, type_name: &str, text: &str) -> SqlError {
        let overflow = format!("date/time field value out of range: \"{text}\"");
        match self {
            FieldError::Format => SqlError::new(
                sqlstate::INVALID_DATETIME_FORMAT,
                format!("invalid input syntax for type {type_name}: \"{text}\""),
            ),
            FieldError::Overflow => SqlError::new(sqlstate::DATETIME_FIELD_OVERFLOW, overflow),
            FieldError::DayMonthOverflow => SqlError::new(sqlstate::DATETIME_FIELD_OVERFLOW, overflow)
                .with_hint("Perhaps you need a different \"datestyle\" setting."),
            FieldError::IntervalOverflow => SqlError::new(
                sqlstate::INTERVAL_FIELD_OVERFLOW,
                format!("interval field value out of range: \"{text}\""),
            ),
            FieldError::ZoneOverflow => SqlError::new(
                sqlstate::INVALID_TIME_ZONE_DISPLACEMENT_VALUE,
                format!("time zone displacement out of range: \"{text}\""),
            ),
            FieldError::UnknownZone(name) => SqlError::new(
                sqlstate::INVALID_PARAMETER_VALUE,
                format!("time zone \"{name}\" not recognized"),
            ),
        }
    }
}

/// The zone a text names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Zone {
    /// Seconds east of UTC.
    Offset(i32),
    Named(TimeZone),
    /// An abbreviation that has stood for several offsets, and the zone that tells which.
    Abbreviation(TimeZone, &'static str),
}

impl Zone {
    /// Seconds east of UTC at a moment.
    pub(crate) fn offset_at(self, timestamp: i64) -> i32 {
        match self {
            Zone::Offset(east) => east,
            Zone::Named(zone) => zone::offset_at(zone, timestamp),
            Zone::Abbreviation(zone, word) => zone::offset_of_abbreviation(zone, word, timestamp),
        }
    }

    /// The same for a local time.
    pub(crate) fn offset_of_local(self, local: i64) -> i32 {
        match self {
            Zone::Offset(east) => east,
            Zone::Named(zone) => zone::offset_of_local(zone, local),
            Zone::Abbreviation(zone, word) => {
                let moment = zone::to_utc(zone, local).unwrap_or(local);
                zone::offset_of_abbreviation(zone, word, moment)
            }
        }
    }
}

/// What has been read so far.
#[derive(Clone, Debug, Default)]
pub(super) struct Fields {
    pub(super) year: Option<i32>,
    pub(super) month: Option<u32>,
    pub(super) day: Option<u32>,
    /// Set instead of month and day.
    pub(super) day_of_year: Option<i64>,
    /// Set instead of year, month and day: days since 2000-01-01.
    pub(super) julian: Option<i64>,
    /// Microseconds into the day.
    pub(super) time: Option<i64>,
    pub(super) zone: Option<Zone>,
    pub(super) text_month: bool,
    pub(super) two_digit_year: bool,
    pub(super) before_christ: Option<bool>,
    pub(super) afternoon: Option<bool>,
}

impl Fields {
    pub(super) fn has_date(&self) -> bool {
        let has_day = self.day_of_year.is_some() || (self.month.is_some() && self.day.is_some());
        self.julian.is_some() || (self.year.is_some() && has_day)
    }

    pub(super) fn has_any_date(&self) -> bool {
        self.julian.is_some() || self.year.is_some() || self.month.is_some() || self.day.is_some()
    }

    fn set_year(&mut self, digits: &str) -> Result<(), FieldError> {
        self.year = Some(number(digits)?);
        self.two_digit_year = digits.len() <= 2;
        Ok(())
    }

    /// Takes a number as the next part of the date. Either the year has three digits or more and
    /// comes first, or the order is the session's.
    pub(super) fn date_number(&mut self, digits: &str, order: DateOrder) -> Result<(), FieldError> {
        let long = digits.len() >= 3;
        if self.day_of_year.is_some() {
            return Err(FieldError::Format);
        }
        if digits.len() == 3
            && !self.text_month
            && self.month.is_none()
            && self.day.is_none()
            && self.year.is_some()
        {
            return self.set_day_of_year(digits);
        }
        match (self.year.is_some(), self.month.is_some(), self.day.is_some()) {
            (false, false, false) if long || order == DateOrder::Ymd => self.set_year(digits)?,
            (false, false, false) if order == DateOrder::Dmy => self.day = Some(number(digits)?),
            (false, false, false) | (true, false, false) => self.month = Some(number(digits)?),
            (false, true, false) if self.text_month && (long || order == DateOrder::Ymd) => {
                self.set_year(digits)?
            }
            (false, true, false) => self.day = Some(number(digits)?),
            (true, true, false) if self.text_month && long && self.two_digit_year => {
                // What was taken for a short year was the day.
                self.day = self.year.and_then(|y| u32::try_from(y).ok());
                self.set_year(digits)?;
            }
            (true, true, false) => self.day = Some(number(digits)?),
            (false, false, true) => self.month = Some(number(digits)?),
            (false, true, true) => self.set_year(digits)?,
            _ => return Err(FieldError::Format),
        }
        Ok(())
    }

    /// Takes the number of a day in the year.
    pub(super) fn set_day_of_year(&mut self, digits: &str) -> Result<(), FieldError> {
        let day: i64 = number(digits)?;
        if !(1..=366).contains(&day) {
            return Err(FieldError::Overflow);
        }
        self.day_of_year = Some(day);
        Ok(())
    }

    /// Takes the word as the month, if it is one.
    pub(super) fn month_word(&mut self, word: &str) -> Result<bool, FieldError> {
        let Some(month) = words::month(word) else { return Ok(false) };
        if self.text_month || self.day_of_year.is_some() {
            return Err(FieldError::Format);
        }
        if let Some(taken) = self.month {
            // A number was taken for the month; it was the day.
            if self.day.is_some() || !(1..=31).contains(&taken) {
                return Err(FieldError::Format);
            }
            self.day = Some(taken);
        }
        self.month = Some(month);
        self.text_month = true;
        Ok(true)
    }

    /// Days since 2000-01-01 of a complete date.
    pub(super) fn days(&self) -> Result<i64, FieldError> {
        if let Some(days) = self.julian {
            return Ok(days);
        }
        let Some(mut year) = self.year else { return Err(FieldError::Format) };
        if self.before_christ == Some(true) {
            if year <= 0 {
                return Err(FieldError::Overflow);
            }
            year = 1 - year;
        } else if self.two_digit_year {
            year += if year < 70 { 2000 } else { 1900 };
        } else if year <= 0 {
            return Err(FieldError::Overflow);
        }
        if let Some(day) = self.day_of_year {
            return Ok(days_from_civil(year, 1, 1) + day - 1);
        }
        let (Some(month), Some(day)) = (self.month, self.day) else { return Err(FieldError::Format) };
        if !(1..=12).contains(&month) || !(1..=31).contains(&day) {
            return Err(FieldError::DayMonthOverflow);
        }
        if day > days_in_month(year, month) {
            return Err(FieldError::Overflow);
        }
        Ok(days_from_civil(year, month, day))
    }

    /// Microseconds into the day, with am or pm applied; midnight if there was no time.
    pub(super) fn micros(&self) -> Result<i64, FieldError> {
        let Some(time) = self.time else { return Ok(0) };
        match self.afternoon {
            None => Ok(time),
            Some(_) if time >= 13 * HOUR => Err(FieldError::Overflow),
            Some(false) if time >= 12 * HOUR => Ok(time - 12 * HOUR),
            Some(true) if time < 12 * HOUR => Ok(time + 12 * HOUR),
            Some(_) => Ok(time),
        }
    }
}

pub(super) fn number<T: std::str::FromStr>(digits: &str) -> Result<T, FieldError> {
    digits.parse().map_err(|_| {
        if digits.bytes().all(|b| b.is_ascii_digit()) { FieldError::Overflow } else { FieldError::Format }
    })
}

/// Microseconds of a fraction such as `.5`, rounded half to even as the floating-point rounding of
/// PostgreSQL does.
pub(super) fn fraction(text: &str) -> Result<i64, FieldError> {
    let digits = text.strip_prefix('.').ok_or(FieldError::Format)?;
    if !digits.bytes().all(|b| b.is_ascii_digit()) {
        return Err(FieldError::Format);
    }
    if digits.len() <= 6 {
        return Ok(format!("{digits:0<6}").parse().unwrap_or(0));
    }
    let value: f64 = format!("0.{digits}").parse().map_err(|_| FieldError::Format)?;
    Ok((value * 1e6).round_ties_even() as i64)
}

/// `hh:mm`, `hh:mm:ss`, with a fraction of the last; `mm:ss.f` too. Microseconds.
pub(super) fn time(text: &str) -> Result<i64, FieldError> {
    let (whole, fraction_text) = match text.find('.') {
        Some(at) => (&text[..at], Some(&text[at..])),
        None => (text, None),
    };
    let micros = fraction_text.map_or(Ok(0), fraction)?;
    let mut parts = whole.split(':');
    let mut next = || parts.next().map(number::<i64>).transpose();
    let (first, second, third, rest) = (next()?, next()?, next()?, next()?);
    let (hour, minute, second) = match (first, second, third, rest, fraction_text) {
        (Some(minute), Some(second), None, None, Some(_)) => (0, minute, second),
        (Some(hour), Some(minute), third, None, _) => (hour, minute, third.unwrap_or(0)),
        _ => return Err(FieldError::Format),
    };
    clock(hour, minute, second, micros)
}

/// Microseconds of a time of day. Up to 24:00:00; a second may be 60.
pub(super) fn clock(hour: i64, minute: i64, second: i64, micros: i64) -> Result<i64, FieldError> {
    if !(0..=24).contains(&hour) || minute > 59 || second > 60 {
        return Err(FieldError::Overflow);
    }
    let total = hour * HOUR + minute * MINUTE + second * SECOND + micros;
    if total > DAY { Err(FieldError::Overflow) } else { Ok(total) }
}

/// Digits run together: a date (`20240131`, `240131`) if there is none yet, or with `time_only`,
/// else a time (`040506`, `0405`), with a fraction.
pub(super) fn run_of_digits(text: &str, fields: &mut Fields, time_only: bool) -> Result<(), FieldError> {
    let (digits, fraction_text) = match text.find('.') {
        Some(at) => (&text[..at], Some(&text[at..])),
        None => (text, None),
    };
    if fraction_text.is_none() && !time_only && !fields.has_any_date() && digits.len() >= 6 {
        let (year, rest) = digits.split_at(digits.len() - 4);
        fields.year = Some(number(year)?);
        fields.two_digit_year = year.len() == 2;
        fields.month = Some(number(&rest[..2])?);
        fields.day = Some(number(&rest[2..])?);
        return Ok(());
    }
    if fields.time.is_some() {
        return Err(FieldError::Format);
    }
    let micros = fraction_text.map_or(Ok(0), fraction)?;
    let part = |from: usize| number::<i64>(&digits[from..from + 2]);
    fields.time = Some(match digits.len() {
        6 => clock(part(0)?, part(2)?, part(4)?, micros)?,
        4 if fraction_text.is_none() => clock(part(0)?, part(2)?, 0, 0)?,
        _ => return Err(FieldError::Format),
    });
    Ok(())
}

/// `+02`, `-0330`, `+05:30:15`, east positive. Seconds.
pub(super) fn offset(text: &str) -> Result<i32, FieldError> {
    let (negative, digits) = match text.as_bytes().first() {
        Some(b'-') => (true, &text[1..]),
        Some(b'+') => (false, &text[1..]),
        _ => return Err(FieldError::Format),
    };
    // A number of hours that no zone has is told before other faults.
    let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
    if end > 0 && end < digits.len() && number::<i32>(&digits[..end])? > 15 {
        return Err(FieldError::ZoneOverflow);
    }
    let (hour, minute, second) = match digits.split(':').collect::<Vec<_>>().as_slice() {
        // Only digits are cut in two: other letters may take several bytes, and are refused below.
        [run] if run.len() > 2 && run.bytes().all(|b| b.is_ascii_digit()) => {
            let split = run.len() - 2;
            (number::<i32>(&run[..split])?, number::<i32>(&run[split..])?, 0)
        }
        [hour] => (number::<i32>(hour)?, 0, 0),
        [hour, minute] => (number::<i32>(hour)?, number::<i32>(minute)?, 0),
        [hour, minute, second] => (number::<i32>(hour)?, number::<i32>(minute)?, number::<i32>(second)?),
        _ => return Err(FieldError::Format),
    };
    // Each of them may have come with a sign of its own.
    if !(0..=15).contains(&hour) || !(0..=59).contains(&minute) || !(0..=59).contains(&second) {
        return Err(FieldError::ZoneOverflow);
    }
    let seconds = hour * 3600 + minute * 60 + second;
    Ok(if negative { -seconds } else { seconds })
}

/// The zone of a lower-case abbreviation or name, or of an offset after letters, which counts
/// westwards.
pub(super) fn named_zone(word: &str) -> Option<Zone> {
    if let Some(seconds) = words::zone_abbreviation(word) {
        return Some(Zone::Offset(seconds));
    }
    if let Some((word, name)) = words::changing_abbreviation(word) {
        return zone::by_name(name).map(|zone| Zone::Abbreviation(TimeZone::Named(zone), word));
    }
    zone::by_name_or_offset(word).map(Zone::Named)
}

/// The zone that a text names in SQL: an abbreviation, a name, or an offset, which counts
/// westwards, as POSIX has it.
pub(crate) fn zone_of(text: &str) -> Option<Zone> {
    named_zone(&text.trim().to_ascii_lowercase())
}

/// The zone that `make_timestamptz` is told: as in the text of a time, an offset has a sign and
/// counts eastwards.
pub(crate) fn zone_in_time(text: &str) -> Result<Zone, SqlError> {
    let invalid = |message: String| SqlError::new(sqlstate::INVALID_PARAMETER_VALUE, message);
    if text.starts_with(|c: char| c.is_ascii_digit()) {
        return Err(invalid(format!("invalid input syntax for type numeric time zone: \"{text}\""))
            .with_hint("Numeric time zones must have \"-\" or \"+\" as first character."));
    }
    match offset(text) {
        Ok(east) => Ok(Zone::Offset(east)),
        Err(FieldError::ZoneOverflow) => Err(invalid(format!("numeric time zone \"{text}\" out of range"))),
        Err(_) => zone_of(text).ok_or_else(|| invalid(format!("time zone \"{text}\" not recognized"))),
    }
}
