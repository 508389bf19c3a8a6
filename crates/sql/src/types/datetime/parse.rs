//! Reads dates and times in the many forms that PostgreSQL accepts.

use super::calendar::{JULIAN_EPOCH, split};
use super::field::{FieldError, Fields, Zone, fraction, named_zone, number, offset, run_of_digits, time};
use super::token::{Kind, Token, tokenize};
use super::zone::TimeZone;
use super::{
    DATE_INFINITY, DATE_NEG_INFINITY, DAY, END_DATE, HOUR, MIN_DATE, MINUTE, SECOND, TIMESTAMP_INFINITY,
    TIMESTAMP_NEG_INFINITY, check_timestamp, words, zone,
};
use crate::error::{SqlError, sqlstate};
use crate::types::FormatContext;

/// What a text says.
#[expect(clippy::large_enum_variant, reason = "it is taken apart at once, and a box would cost each date")]
enum Reading {
    Infinity,
    NegativeInfinity,
    /// Start of 1970.
    Epoch,
    /// The transaction's time.
    Now,
    Fields(Fields),
}

/// Reads a date. 22007, 22008.
pub(crate) fn parse_date(text: &str, context: &FormatContext) -> Result<i32, SqlError> {
    let days = match read(text, context, true).map_err(|e| e.report("date", text))? {
        Reading::Infinity => return Ok(DATE_INFINITY),
        Reading::NegativeInfinity => return Ok(DATE_NEG_INFINITY),
        Reading::Epoch => -10_957,
        Reading::Now => split(zone::to_local(context.time_zone, context.transaction_time)).0,
        Reading::Fields(fields) => {
            fields.micros().and_then(|_| fields.days()).map_err(|e| e.report("date", text))?
        }
    };
    i32::try_from(days).ok().filter(|d| (MIN_DATE..END_DATE).contains(d)).ok_or_else(|| {
        SqlError::new(sqlstate::DATETIME_FIELD_OVERFLOW, format!("date out of range: \"{text}\""))
    })
}

/// Reads a time of day. 22007, 22008.
pub(crate) fn parse_time(text: &str, context: &FormatContext) -> Result<i64, SqlError> {
    let report = |e: FieldError| e.report("time", text);
    match read(text, context, false).map_err(report)? {
        Reading::Now => Ok(split(zone::to_local(context.time_zone, context.transaction_time)).1),
        // What a zone's name means depends on the day.
        Reading::Fields(fields) if fields.zone.is_some_and(is_of_the_day) && !fields.has_any_date() => {
            Err(report(FieldError::Format))
        }
        Reading::Fields(fields) if fields.time.is_some() => match fields.micros() {
            // With letters, hours are taken as they are.
            Ok(micros) if micros > DAY => Err(report(FieldError::Overflow)),
            micros => micros.map_err(report),
        },
        _ => Err(report(FieldError::Format)),
    }
}

/// Does the zone's offset depend on the day?
fn is_of_the_day(zone: Zone) -> bool {
    match zone {
        Zone::Offset(_) | Zone::Abbreviation(..) | Zone::Named(TimeZone::Fixed(_) | TimeZone::UTC) => false,
        Zone::Named(TimeZone::Posix(zone)) => zone.changes(),
        Zone::Named(TimeZone::Named(_)) => true,
    }
}

fn special(reading: &Reading) -> Option<i64> {
    match reading {
        Reading::Infinity => Some(TIMESTAMP_INFINITY),
        Reading::NegativeInfinity => Some(TIMESTAMP_NEG_INFINITY),
        Reading::Epoch => Some(-zone::UNIX_EPOCH_SHIFT * SECOND),
        Reading::Now | Reading::Fields(_) => None,
    }
}

fn in_range(timestamp: Option<i64>, text: &str) -> Result<i64, SqlError> {
    check_timestamp(timestamp).map_err(|_| {
        SqlError::new(sqlstate::DATETIME_FIELD_OVERFLOW, format!("timestamp out of range: \"{text}\""))
    })
}

fn local(fields: &Fields) -> Result<Option<i64>, FieldError> {
    let micros = fields.micros()?;
    Ok(fields.days()?.checked_mul(DAY).and_then(|days| days.checked_add(micros)))
}

/// Reads a timestamp; a zone in the text is ignored. 22007, 22008.
pub(crate) fn parse_timestamp(text: &str, context: &FormatContext) -> Result<i64, SqlError> {
    let report = |e: FieldError| e.report("timestamp", text);
    let reading = read(text, context, true).map_err(report)?;
    match reading {
        Reading::Now => Ok(zone::to_local(context.time_zone, context.transaction_time)),
        Reading::Fields(fields) => in_range(local(&fields).map_err(report)?, text),
        other => Ok(special(&other).unwrap_or(0)),
    }
}

/// Reads a timestamp with time zone; without one in the text it is local time. 22007, 22008,
/// 22009, 22023.
pub(crate) fn parse_timestamptz(text: &str, context: &FormatContext) -> Result<i64, SqlError> {
    let report = |e: FieldError| e.report("timestamp with time zone", text);
    let reading = read(text, context, true).map_err(report)?;
    match reading {
        Reading::Now => Ok(context.transaction_time),
        Reading::Fields(fields) => {
            let local = local(&fields).map_err(report)?;
            let moment = local.and_then(|local| match fields.zone {
                Some(zone) => local.checked_sub(i64::from(zone.offset_of_local(local)) * SECOND),
                None => zone::to_utc(context.time_zone, local),
            });
            in_range(moment, text)
        }
        other => Ok(special(&other).unwrap_or(0)),
    }
}

fn read(text: &str, context: &FormatContext, needs_date: bool) -> Result<Reading, FieldError> {
    let tokens = tokenize(text)?;
    if let [only] = tokens.as_slice() {
        match (only.kind, only.text.as_str()) {
            (Kind::Word, "infinity" | "inf") | (Kind::SignedWord, "+infinity" | "+inf") => {
                return Ok(Reading::Infinity);
            }
            (Kind::SignedWord, "-infinity" | "-inf") => return Ok(Reading::NegativeInfinity),
            (Kind::Word, "epoch") => return Ok(Reading::Epoch),
            (Kind::Word, "now") => return Ok(Reading::Now),
            _ => {}
        }
    }
    let mut reader = FieldReader {
        fields: Fields::default(),
        context,
        after_t: false,
        time_only: !needs_date,
        labelled: [false; 3],
    };
    let mut at = 0;
    while at < tokens.len() {
        at += reader.take(&tokens[at..])?;
    }
    let fields = reader.fields;
    if tokens.is_empty() || reader.after_t || (needs_date && !fields.has_date()) {
        return Err(FieldError::Format);
    }
    if fields.has_any_date() && !fields.has_date() {
        return Err(FieldError::Format);
    }
    Ok(Reading::Fields(fields))
}

struct FieldReader<'a> {
    fields: Fields,
    context: &'a FormatContext,
    /// The last field was the `T` between date and time.
    after_t: bool,
    /// A time is wanted, so digits run together are one.
    time_only: bool,
    /// Which of hours, minutes and seconds came with their letters.
    labelled: [bool; 3],
}

impl FieldReader<'_> {
    /// Takes the first token, and perhaps more; says how many.
    fn take(&mut self, tokens: &[Token]) -> Result<usize, FieldError> {
        let Token { kind, text } = &tokens[0];
        let was_after_t = std::mem::take(&mut self.after_t);
        match kind {
            Kind::Date if self.fields.has_date() || self.fields.time.is_some() => self.zone_or_time(text)?,
            Kind::Date => self.date(text)?,
            Kind::Time => self.set_time(time(text)?)?,
            Kind::Signed => {
                // After a complete time a sign starts the offset from UTC.
                if self.fields.time.is_none() || self.fields.zone.is_some() {
                    return self.signed_date(text);
                }
                self.fields.zone = Some(Zone::Offset(offset(text)?));
            }
            Kind::Number => self.number(text, was_after_t)?,
            Kind::Word => return self.word(text, tokens),
            Kind::SignedWord => return Err(FieldError::Format),
        }
        Ok(1)
    }

    /// Offsets with dates are read without a time too; nothing else starts with a sign.
    fn signed_date(&mut self, text: &str) -> Result<usize, FieldError> {
        if self.fields.has_date() && self.fields.zone.is_none() {
            self.fields.zone = Some(Zone::Offset(offset(text)?));
            return Ok(1);
        }
        offset(text)?;
        Err(FieldError::Format)
    }

    /// A zone's name with punctuation in it, or a time run together with an offset: `040506-08`.
    fn zone_or_time(&mut self, text: &str) -> Result<(), FieldError> {
        if !text.starts_with(|c: char| c.is_ascii_digit()) {
            return self.set_zone_word(text);
        }
        let at = text.find('-').ok_or(FieldError::Format)?;
        if self.fields.zone.is_some() {
            return Err(FieldError::Format);
        }
        self.fields.zone = Some(Zone::Offset(offset(&text[at..])?));
        run_of_digits(&text[..at], &mut self.fields, true)
    }

    fn set_time(&mut self, micros: i64) -> Result<(), FieldError> {
        if self.fields.time.replace(micros).is_some() { Err(FieldError::Format) } else { Ok(()) }
    }

    fn set_zone_word(&mut self, word: &str) -> Result<(), FieldError> {
        if self.fields.zone.is_some() {
            return Err(FieldError::Format);
        }
        match named_zone(word) {
            Some(zone) => self.fields.zone = Some(zone),
            None if word.contains('/') => return Err(FieldError::UnknownZone(word.to_owned())),
            None => return Err(FieldError::Format),
        }
        Ok(())
    }

    /// `1999-01-08`, `1/8/1999`, `08-jan-1999`, `1999.008`; the order of the numbers follows the
    /// settings.
    fn date(&mut self, text: &str) -> Result<(), FieldError> {
        if self.fields.has_any_date() && !self.fields.text_month {
            return self.set_zone_word(text);
        }
        if text.starts_with(|c: char| c.is_ascii_alphabetic()) && named_zone(text).is_some() {
            return self.set_zone_word(text);
        }
        let parts: Vec<&str> = text.split(['-', '/', '.', '_']).filter(|p| !p.is_empty()).collect();
        // A date with the time run on to it: 2024-01-31t04.
        let mut numbers = Vec::new();
        for part in parts {
            if part.bytes().all(|b| b.is_ascii_digit()) {
                numbers.push(part);
            } else if !self.fields.month_word(part)? {
                return if part.contains('/') { self.set_zone_word(text) } else { Err(FieldError::Format) };
            }
        }
        for part in numbers {
            self.fields.date_number(part, self.context.date_order)?;
        }
        if self.fields.has_date() { Ok(()) } else { Err(FieldError::Format) }
    }

    fn number(&mut self, text: &str, after_t: bool) -> Result<(), FieldError> {
        if after_t || self.fields.has_date() {
            return run_of_digits(text, &mut self.fields, after_t);
        }
        if let Some(at) = text.find('.') {
            // Year and day of the year, or a time with a fraction.
            if !self.fields.has_any_date() && at == 4 && text.len() == 8 {
                self.fields.year = Some(number(&text[..4])?);
                return self.fields.set_day_of_year(&text[5..]);
            }
            fraction(&text[at..])?;
            return run_of_digits(text, &mut self.fields, self.time_only);
        }
        let time_only = self.time_only && matches!(text.len(), 4 | 6);
        if time_only || (text.len() >= 6 && !self.fields.has_any_date()) {
            return run_of_digits(text, &mut self.fields, time_only);
        }
        self.fields.date_number(text, self.context.date_order)
    }

    fn word(&mut self, word: &str, tokens: &[Token]) -> Result<usize, FieldError> {
        if self.fields.month_word(word)? || words::is_weekday(word) {
            return Ok(1);
        }
        match word {
            "am" | "pm" if self.fields.afternoon.is_none() => self.fields.afternoon = Some(word == "pm"),
            "ad" | "bc" if self.fields.before_christ.is_none() => {
                self.fields.before_christ = Some(word == "bc");
            }
            "at" | "on" | "of" => {}
            "dst" => {
                let Some(Zone::Offset(seconds)) = self.fields.zone else { return Err(FieldError::Format) };
                self.fields.zone = Some(Zone::Offset(seconds + 3600));
            }
            "t" if self.fields.has_date() || self.fields.time.is_none() => self.after_t = true,
            "allballs" => {
                self.set_time(0)?;
                self.fields.zone = Some(Zone::Offset(0));
            }
            "today" | "tomorrow" | "yesterday" => self.relative_day(word)?,
            "now" => {
                let local = zone::to_local(self.context.time_zone, self.context.transaction_time);
                let (days, micros) = split(local);
                self.fields.julian = Some(days);
                self.fields.time = Some(micros);
            }
            "j" | "jd" | "julian" => return self.julian(tokens),
            "y" | "m" | "d" | "h" | "mm" | "s" => return self.label(word, tokens),
            _ if !self.fields.has_date() && self.fields.time.is_none() => return Err(FieldError::Format),
            _ => self.set_zone_word(word)?,
        }
        Ok(1)
    }

    fn relative_day(&mut self, word: &str) -> Result<(), FieldError> {
        if self.fields.has_any_date() {
            return Err(FieldError::Format);
        }
        let today = split(zone::to_local(self.context.time_zone, self.context.transaction_time)).0;
        self.fields.julian = Some(match word {
            "tomorrow" => today + 1,
            "yesterday" => today - 1,
            _ => today,
        });
        Ok(())
    }

    /// `J2451187`, a Julian day; with a part of a day, or with an offset from UTC (`J2451187-08`),
    /// it has a time, too.
    fn julian(&mut self, tokens: &[Token]) -> Result<usize, FieldError> {
        let Some(Token { kind: Kind::Number | Kind::Date, text }) = tokens.get(1) else {
            return Err(FieldError::Format);
        };
        if self.fields.has_any_date() {
            return Err(FieldError::Format);
        }
        let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let (day, rest) = text.split_at(end);
        self.fields.julian = Some(i64::from(number::<i32>(day)?) - JULIAN_EPOCH);
        if rest.starts_with('-') && self.fields.zone.is_none() {
            self.fields.zone = Some(Zone::Offset(offset(rest)?));
            self.set_time(0)?;
        } else if rest.starts_with('.') {
            let part: f64 = format!("0{rest}").parse().map_err(|_| FieldError::Format)?;
            self.set_time((part * DAY as f64) as i64)?;
        } else if !rest.is_empty() {
            return Err(FieldError::Format);
        }
        Ok(2)
    }

    /// A number after the letter that says what it is: `y2001m12d27h04mm05s06.7`.
    fn label(&mut self, letter: &str, tokens: &[Token]) -> Result<usize, FieldError> {
        let Some(Token { kind: Kind::Number, text }) = tokens.get(1) else { return Err(FieldError::Format) };
        let end = text.find('.').filter(|_| letter == "s").unwrap_or(text.len());
        let (digits, rest) = text.split_at(end);
        let value: i32 = number(digits)?;
        let has_day = self.fields.julian.is_some() || self.fields.day_of_year.is_some();
        if has_day && matches!(letter, "y" | "m" | "d") {
            return Err(FieldError::Format);
        }
        match letter {
            "y" if self.fields.year.is_none() => self.fields.year = Some(value),
            "m" if self.fields.month.is_none() => self.fields.month = Some(value as u32),
            "d" if self.fields.day.is_none() => self.fields.day = Some(value as u32),
            "h" => self.part_of_time(0, i64::from(value) * HOUR)?,
            // After an hour a second `m` is the minutes.
            "mm" => self.part_of_time(1, i64::from(value) * MINUTE)?,
            "m" if self.labelled[0] => self.part_of_time(1, i64::from(value) * MINUTE)?,
            "s" => {
                let micros = if rest.is_empty() { 0 } else { fraction(rest)? };
                self.part_of_time(2, i64::from(value) * SECOND + micros)?;
            }
            _ => return Err(FieldError::Format),
        }
        Ok(2)
    }

    /// Adds hours, minutes or seconds. None of them is looked at whether it is too many, as none is
    /// in PostgreSQL.
    fn part_of_time(&mut self, part: usize, micros: i64) -> Result<(), FieldError> {
        let has_other = self.fields.time.is_some() && !self.labelled.contains(&true);
        if has_other || self.labelled[part] {
            return Err(FieldError::Format);
        }
        self.labelled[part] = true;
        *self.fields.time.get_or_insert(0) += micros;
        Ok(())
    }
}
