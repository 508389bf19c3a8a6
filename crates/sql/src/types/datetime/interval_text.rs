//! Reads intervals: `1 year 2 mons 3 days 04:05:06`, `1-2 3 4:05:06`, `P1Y2M3DT4H5M6S`, `2 weeks
//! ago`.

use super::field::FieldError;
use super::token::{Kind, Token, tokenize};
use super::words::Unit;
use super::{DAY, HOUR, MINUTE, SECOND};
use crate::error::SqlError;
use crate::types::{Interval, IntervalStyle};

/// Bits of a modifier's range: which fields `INTERVAL DAY TO SECOND` and the like have.
pub(crate) mod range {
    pub(crate) const MONTH: i32 = 1 << 1;
    pub(crate) const YEAR: i32 = 1 << 2;
    pub(crate) const DAY: i32 = 1 << 3;
    pub(crate) const HOUR: i32 = 1 << 10;
    pub(crate) const MINUTE: i32 = 1 << 11;
    pub(crate) const SECOND: i32 = 1 << 12;
    pub(crate) const FULL: i32 = 0x7fff;
}

/// The range of fields of an interval type's modifier.
pub(crate) fn range_of(modifier: i32) -> i32 {
    if modifier < 0 { range::FULL } else { (modifier >> 16) & 0x7fff }
}

/// The fields that a type with this modifier has, as they stand behind the type's name.
pub(crate) fn field_names(modifier: i32) -> &'static str {
    use range::{DAY, HOUR, MINUTE, MONTH, SECOND, YEAR};
    const NAMES: [(i32, &str); 13] = [
        (YEAR, " year"),
        (MONTH, " month"),
        (DAY, " day"),
        (HOUR, " hour"),
        (MINUTE, " minute"),
        (SECOND, " second"),
        (YEAR | MONTH, " year to month"),
        (DAY | HOUR, " day to hour"),
        (DAY | HOUR | MINUTE, " day to minute"),
        (DAY | HOUR | MINUTE | SECOND, " day to second"),
        (HOUR | MINUTE, " hour to minute"),
        (HOUR | MINUTE | SECOND, " hour to second"),
        (MINUTE | SECOND, " minute to second"),
    ];
    let range = range_of(modifier);
    NAMES.iter().find(|(fields, _)| *fields == range).map_or("", |(_, names)| *names)
}

/// Microseconds of a part of a unit that has so many; halves of one go towards zero.
fn micros_of_fraction(fraction: f64, unit: i64) -> i128 {
    let micros = fraction * unit as f64;
    let whole = micros.trunc();
    let rest = micros - whole;
    whole as i128 + i128::from(rest > 0.5) - i128::from(rest < -0.5)
}

/// Sums of the fields before they are fitted into an interval.
#[derive(Default)]
struct Sum {
    /// Units that were given; each may be only once.
    seen: Vec<Unit>,
    months: i64,
    days: i64,
    micros: i128,
}

impl Sum {
    /// 22007 if one of the units was given before.
    fn see(&mut self, units: &[Unit]) -> Result<(), FieldError> {
        if units.iter().any(|unit| self.seen.contains(unit)) {
            return Err(FieldError::Format);
        }
        self.seen.extend_from_slice(units);
        Ok(())
    }

    /// Adds a number of units; fractions go to the next smaller unit, a month having 30 days.
    fn add(&mut self, whole: i64, fraction: f64, unit: Unit) -> Result<(), FieldError> {
        let micros = |unit: i64| i128::from(whole) * i128::from(unit) + micros_of_fraction(fraction, unit);
        match unit {
            Unit::Microsecond => self.micros += micros(1),
            Unit::Millisecond => self.micros += micros(1000),
            Unit::Second => self.micros += micros(SECOND),
            Unit::Minute => self.micros += micros(MINUTE),
            Unit::Hour => self.micros += micros(HOUR),
            Unit::Day => self.add_days(whole, fraction)?,
            Unit::Week => {
                self.add_days(whole.checked_mul(7).ok_or(FieldError::IntervalOverflow)?, fraction * 7.0)?
            }
            Unit::Month => {
                self.months = self.months.checked_add(whole).ok_or(FieldError::IntervalOverflow)?;
                self.add_days(0, fraction * 30.0)?;
            }
            Unit::Year => self.add_years(whole, fraction, 1)?,
            Unit::Decade => self.add_years(whole, fraction, 10)?,
            Unit::Century => self.add_years(whole, fraction, 100)?,
            Unit::Millennium => self.add_years(whole, fraction, 1000)?,
            _ => return Err(FieldError::Format),
        }
        Ok(())
    }

    fn add_days(&mut self, whole: i64, fraction: f64) -> Result<(), FieldError> {
        let extra = fraction.trunc();
        self.days = (self.days.checked_add(whole))
            .and_then(|d| d.checked_add(extra as i64))
            .ok_or(FieldError::IntervalOverflow)?;
        self.micros += micros_of_fraction(fraction - extra, DAY);
        Ok(())
    }

    fn add_years(&mut self, whole: i64, fraction: f64, years: i64) -> Result<(), FieldError> {
        let months = whole.checked_mul(12 * years).ok_or(FieldError::IntervalOverflow)?;
        let extra = (fraction * (12 * years) as f64).round_ties_even() as i64;
        self.months = (self.months.checked_add(months))
            .and_then(|m| m.checked_add(extra))
            .ok_or(FieldError::IntervalOverflow)?;
        Ok(())
    }

    fn finish(self, ago: bool) -> Result<Interval, FieldError> {
        let sign = if ago { -1 } else { 1 };
        let fit = |value: i64| {
            let signed = value.checked_mul(sign).and_then(|value| i32::try_from(value).ok());
            signed.ok_or(FieldError::IntervalOverflow)
        };
        Ok(Interval {
            months: fit(self.months)?,
            days: fit(self.days)?,
            micros: i64::try_from(self.micros * i128::from(sign))
                .map_err(|_| FieldError::IntervalOverflow)?,
        })
    }
}

/// Reads an interval whose type has this modifier. In the SQL standard's style `-1 2:00:00` is two
/// hours more in the past, in the others two hours less. 22007, 22008, 22015.
pub(crate) fn parse_interval(text: &str, modifier: i32, style: IntervalStyle) -> Result<Interval, SqlError> {
    // What ISO has begins with the letter, with no blank before it.
    let read = match text.strip_prefix('P') {
        Some(body) => iso(body),
        None => words(text.trim(), range_of(modifier), style == IntervalStyle::SqlStandard),
    };
    read.map_err(|error| match error {
        FieldError::Overflow | FieldError::DayMonthOverflow => {
            FieldError::IntervalOverflow.report("interval", text)
        }
        other => other.report("interval", text),
    })
}

/// A number taken apart: sign applied to both parts.
fn split_number(text: &str) -> Result<(i64, f64), FieldError> {
    let negative = text.starts_with('-');
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    let (whole, fraction) = match digits.find('.') {
        Some(at) => (&digits[..at], &digits[at..]),
        None => (digits, ""),
    };
    if whole.is_empty() && fraction.len() < 2 {
        return Err(FieldError::Format);
    }
    if !whole.bytes().chain(fraction.bytes().skip(1)).all(|b| b.is_ascii_digit()) {
        return Err(FieldError::Format);
    }
    let whole = if whole.is_empty() { "0" } else { whole };
    let signed = if negative { format!("-{whole}") } else { whole.to_owned() };
    let whole: i64 = signed.parse().map_err(|_| FieldError::Overflow)?;
    let fraction: f64 = if fraction.len() > 1 { format!("0{fraction}").parse().unwrap_or(0.0) } else { 0.0 };
    Ok((whole, if negative { -fraction } else { fraction }))
}

/// The unit of a number that has none: the last of the type's fields, or seconds.
fn default_unit(range: i32) -> Unit {
    match range {
        range::YEAR => Unit::Year,
        r if r == range::MONTH || r == range::YEAR | range::MONTH => Unit::Month,
        range::DAY => Unit::Day,
        r if r == range::HOUR || r == range::DAY | range::HOUR => Unit::Hour,
        r if r & range::MINUTE != 0 && r & range::SECOND == 0 && r != range::FULL => Unit::Minute,
        _ => Unit::Second,
    }
}

/// The units that a time of day gives.
const CLOCK: [Unit; 5] = [Unit::Hour, Unit::Minute, Unit::Second, Unit::Millisecond, Unit::Microsecond];

/// The unit of the number that comes next, to the left of what has been read.
#[derive(Clone, Copy)]
enum Next {
    /// Nothing has been read: the last of the type's fields.
    Default,
    Unit(Unit),
    /// No number may come: `5 ago`.
    Nothing,
}

/// The unit of a word. What only `extract` knows is none.
fn unit_word(word: &str) -> Result<Unit, FieldError> {
    let is_field_only = |unit: &Unit| {
        use Unit::*;
        matches!(unit, Epoch | DayOfWeek | IsoDayOfWeek | DayOfYear | IsoYear | Julian)
    };
    Unit::from_word(word).filter(|unit| !is_field_only(unit)).ok_or(FieldError::Format)
}

fn words(text: &str, range: i32, standard: bool) -> Result<Interval, FieldError> {
    let mut tokens = tokenize(text)?;
    let has_sign = |token: &Token| token.text.starts_with(['-', '+']);
    // In the standard's style a sign at the start, and no other, is that of all fields.
    let all_negative = standard && text.starts_with('-') && !tokens.iter().skip(1).any(has_sign);
    let mut sum = Sum::default();
    let mut ago = false;
    // Read from the end, so that a number knows the unit after it. A unit stays until there is
    // another one, so of two without a number in between the first counts.
    let mut next = Next::Default;
    while let Some(Token { kind, text }) = tokens.pop() {
        match kind {
            Kind::Word if text == "ago" => {
                ago = true;
                next = Next::Nothing;
            }
            Kind::Word => next = Next::Unit(unit_word(&text)?),
            Kind::Time | Kind::Signed if text.contains(':') => {
                sum.see(&CLOCK)?;
                clock(&text, range, all_negative, &mut sum)?;
                next = Next::Unit(Unit::Day);
            }
            Kind::Date | Kind::Signed if text[1..].contains('-') => {
                sum.see(&[Unit::Month])?;
                years_and_months(&text, all_negative, &mut sum)?;
                next = Next::Unit(Unit::Month);
            }
            Kind::Number | Kind::Signed => {
                let unit = match next {
                    Next::Default => default_unit(range),
                    Next::Unit(unit) => unit,
                    Next::Nothing => return Err(FieldError::Format),
                };
                let (mut whole, mut fraction) = split_number(&text)?;
                if all_negative {
                    (whole, fraction) = (-whole.saturating_abs(), -fraction.abs());
                }
                // A fraction of a second says all that there is of it.
                match unit {
                    Unit::Second if fraction != 0.0 => sum.see(&CLOCK[2..])?,
                    unit => sum.see(&[unit])?,
                }
                sum.add(whole, fraction, unit)?;
                // `1 2 hours` is a day and two hours.
                next = Next::Unit(if unit == Unit::Hour { Unit::Day } else { unit });
            }
            _ => return Err(FieldError::Format),
        }
    }
    if sum.seen.is_empty() {
        return Err(FieldError::Format);
    }
    sum.finish(ago)
}

fn years_and_months(text: &str, negative: bool, sum: &mut Sum) -> Result<(), FieldError> {
    let negative = negative || text.starts_with('-');
    let body = text.trim_start_matches(['+', '-']);
    let (years, months) = body.split_once('-').ok_or(FieldError::Format)?;
    let years: i64 = years.parse().map_err(|_| FieldError::Format)?;
    let months: i64 = months.parse().map_err(|_| FieldError::Format)?;
    if !(0..12).contains(&months) {
        return Err(FieldError::IntervalOverflow);
    }
    let total =
        years.checked_mul(12).and_then(|y| y.checked_add(months)).ok_or(FieldError::IntervalOverflow)?;
    let total = if negative { -total } else { total };
    sum.months = sum.months.checked_add(total).ok_or(FieldError::IntervalOverflow)?;
    Ok(())
}

/// `hh:mm`, `hh:mm:ss.f`, signed; the hours may be many. `mm:ss.f`, and `mm:ss` for MINUTE TO
/// SECOND. What fractions of days to the right of it came to is lost, as it is in PostgreSQL.
fn clock(text: &str, range: i32, negative: bool, sum: &mut Sum) -> Result<(), FieldError> {
    let is_signed = text.starts_with(['-', '+']);
    let negative = negative || text.starts_with('-');
    let body = text.trim_start_matches(['+', '-']);
    let parts: Vec<&str> = body.split(':').collect();
    // The one sign is that of the whole.
    if parts.iter().any(|part| part.starts_with(['+', '-'])) {
        return Err(FieldError::Format);
    }
    let whole = |text: &str| text.parse::<i64>().map_err(|_| FieldError::Format);
    let minutes_first = range == range::MINUTE | range::SECOND;
    let (hours, minutes, seconds) = match parts.as_slice() {
        [minutes, seconds] if seconds.contains('.') || minutes_first => (0, whole(minutes)?, *seconds),
        [hours, minutes] => (whole(hours)?, whole(minutes)?, "0"),
        [hours, minutes, seconds] => (whole(hours)?, whole(minutes)?, *seconds),
        _ => return Err(FieldError::Format),
    };
    let (second, fraction) = split_number(seconds)?;
    if minutes > 59 || second > 60 {
        // With a sign it is taken for another kind of number then, and is none.
        return Err(if is_signed { FieldError::Format } else { FieldError::Overflow });
    }
    let total = i128::from(hours) * i128::from(HOUR)
        + i128::from(minutes * MINUTE + second * SECOND)
        + (fraction * SECOND as f64).round_ties_even() as i128;
    sum.micros = if negative { -total } else { total };
    Ok(())
}

/// A number at the start of an ISO text, as floating point reads it; whole part, fraction, and what
/// follows.
fn iso_number(text: &str) -> Result<(i64, f64, &str), FieldError> {
    let bytes = text.as_bytes();
    let digits = |at: usize| at + bytes[at..].iter().take_while(|b| b.is_ascii_digit()).count();
    let sign = usize::from(matches!(bytes.first(), Some(b'-' | b'+')));
    let mut end = digits(sign);
    if bytes.get(end) == Some(&b'.') {
        end = digits(end + 1);
    }
    if !bytes[sign..end].iter().any(u8::is_ascii_digit) || bytes.first() == Some(&b'+') {
        return Err(FieldError::Format);
    }
    if matches!(bytes.get(end), Some(b'e' | b'E')) {
        let from = end + 1 + usize::from(matches!(bytes.get(end + 1), Some(b'-' | b'+')));
        let exponent = bytes.get(from..).map_or(from, |_| digits(from));
        end = if exponent > from { exponent } else { end };
    }
    let value: f64 = text[..end].parse().map_err(|_| FieldError::Format)?;
    if value.is_nan() || value.abs() >= i64::MAX as f64 {
        return Err(FieldError::IntervalOverflow);
    }
    Ok((value.trunc() as i64, value.fract(), &text[end..]))
}

/// `P1Y2M3W4DT5H6M7.8S`, each number perhaps signed; `P0001-02-03T04:05:06`; `P00010203T040506`:
/// what follows the first letter.
fn iso(body: &str) -> Result<Interval, FieldError> {
    if body.is_empty() {
        return Err(FieldError::Format);
    }
    let mut sum = Sum::default();
    let (date, time) = match body.find('T') {
        Some(at) => (&body[..at], Some(&body[at + 1..])),
        None => (body, None),
    };
    const DATE: [(char, Unit); 4] =
        [('Y', Unit::Year), ('M', Unit::Month), ('W', Unit::Week), ('D', Unit::Day)];
    const TIME: [(char, Unit); 3] = [('H', Unit::Hour), ('M', Unit::Minute), ('S', Unit::Second)];
    iso_part(date, &DATE, '-', 8, [Unit::Year, Unit::Month, Unit::Day], &mut sum)?;
    if let Some(time) = time {
        iso_part(time, &TIME, ':', 6, [Unit::Hour, Unit::Minute, Unit::Second], &mut sum)?;
    }
    sum.finish(false)
}

/// A half of an ISO text: numbers with designators; or three with something between them, or run
/// together to so many digits.
fn iso_part(
    text: &str,
    designators: &[(char, Unit)],
    joint: char,
    run: usize,
    units: [Unit; 3],
    sum: &mut Sum,
) -> Result<(), FieldError> {
    let mut rest = text;
    let mut first = true;
    while !rest.is_empty() {
        let start = rest;
        let (whole, fraction, after) = iso_number(rest)?;
        if let Some((_, unit)) = designators.iter().find(|(letter, _)| after.starts_with(*letter)) {
            sum.add(whole, fraction, *unit)?;
            rest = &after[1..];
            first = false;
            continue;
        }
        if !first || !(after.is_empty() || after.starts_with(joint)) {
            return Err(FieldError::Format);
        }
        let digits = start.trim_start_matches('-').bytes().take_while(u8::is_ascii_digit).count();
        if after.is_empty() && digits == run {
            let parts = [whole / 10_000, whole / 100 % 100, whole % 100];
            for (part, unit) in parts.into_iter().zip(units) {
                let fraction = if unit == units[2] { fraction } else { 0.0 };
                sum.add(part, fraction, unit)?;
            }
            return Ok(());
        }
        sum.add(whole, fraction, units[0])?;
        rest = after;
        for unit in &units[1..] {
            let Some(next) = rest.strip_prefix(joint) else { break };
            let (whole, fraction, after) = iso_number(next)?;
            sum.add(whole, fraction, *unit)?;
            rest = after;
        }
        return if rest.is_empty() { Ok(()) } else { Err(FieldError::Format) };
    }
    Ok(())
}

/// The interval as a type with this modifier holds it: smaller fields than the range has are cut
/// off.
pub(crate) fn fit(interval: Interval, modifier: i32) -> Interval {
    if modifier < 0 {
        return interval;
    }
    let fields = range_of(modifier);
    let mut fitted = interval;
    if fields != range::FULL {
        let time = range::HOUR | range::MINUTE | range::SECOND;
        if fields & (range::DAY | time) == 0 {
            fitted.days = 0;
        }
        if fields & time == 0 {
            fitted.micros = 0;
        } else if fields & (range::MINUTE | range::SECOND) == 0 {
            fitted.micros = fitted.micros / HOUR * HOUR;
        } else if fields & range::SECOND == 0 {
            fitted.micros = fitted.micros / MINUTE * MINUTE;
        }
        if fields == range::YEAR {
            fitted.months = fitted.months / 12 * 12;
        }
    }
    let digits = modifier & 0xffff;
    if digits != 0xffff {
        fitted.micros = super::round_micros(fitted.micros, digits as u32);
    }
    fitted
}
