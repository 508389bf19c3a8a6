//! Time zones in POSIX's notation: an abbreviation, an offset that counts *westwards*, and perhaps
//! summer time with the days on which it begins and ends, every year the same way.
//!
//! ```text
//! CST7CDT,M4.1.0,M10.5.0     seven hours west; an hour less from the first Sunday of April to the last one of October
//! ```

use super::SECOND;
use super::calendar::{civil_from_days, days_from_civil, days_in_month, is_leap, weekday};

/// Most hours of an offset, and of the time at which the clocks change.
pub(super) const MOST_HOURS: i32 = 167;
/// Most letters of an abbreviation.
const MOST_LETTERS: usize = 15;
const DAY_SECONDS: i64 = 86_400;
/// What PostgreSQL takes for summer time without days: those of the United States.
const USUAL_DAYS: &str = ",M3.2.0,M11.1.0";

/// An abbreviation, held where it is, so that zones can be copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Abbreviation {
    length: u8,
    letters: [u8; MOST_LETTERS],
}

impl Abbreviation {
    fn new(text: &str) -> Option<Abbreviation> {
        let mut letters = [0; MOST_LETTERS];
        letters.get_mut(..text.len())?.copy_from_slice(text.as_bytes());
        Some(Abbreviation { length: text.len() as u8, letters })
    }

    fn as_str(&self) -> &str {
        let letters = self.letters.get(..usize::from(self.length)).unwrap_or_default();
        std::str::from_utf8(letters).unwrap_or_default()
    }
}

/// A day of every year.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Day {
    /// `J60`: of 365; the 29th of February is not counted.
    OfCommonYear(i64),
    /// `59`: from 0 on; it is counted.
    OfYear(i64),
    /// `M4.1.0`: that Sunday (or later weekday) of the month; the fifth is the last.
    Weekday { month: u32, week: i64, weekday: i64 },
}

/// When the clocks change: a day, and seconds from its beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Change {
    day: Day,
    seconds: i64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Summer {
    abbreviation: Abbreviation,
    east: i32,
    begins: Change,
    ends: Change,
}

/// A zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PosixZone {
    abbreviation: Abbreviation,
    /// Seconds east of UTC.
    east: i32,
    summer: Option<Summer>,
}

/// What is left of the notation.
struct Reader<'a>(&'a str);

impl Reader<'_> {
    fn take(&mut self, letter: char) -> bool {
        match self.0.strip_prefix(letter) {
            Some(rest) => {
                self.0 = rest;
                true
            }
            None => false,
        }
    }

    /// Letters, or anything in angle brackets.
    fn abbreviation(&mut self) -> Option<Abbreviation> {
        let (name, rest) = match self.0.strip_prefix('<') {
            Some(inside) => inside.split_once('>')?,
            None => self.0.split_at(self.0.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(self.0.len())),
        };
        self.0 = rest;
        Abbreviation::new(name)
    }

    fn number(&mut self, range: std::ops::RangeInclusive<i64>) -> Option<i64> {
        let digits = self.0.bytes().take_while(u8::is_ascii_digit).count();
        let (number, rest) = self.0.split_at(digits);
        self.0 = rest;
        number.parse().ok().filter(|number| range.contains(number))
    }

    /// Hours, perhaps minutes and seconds, perhaps with a sign, as seconds.
    fn time(&mut self) -> Option<i64> {
        let negative = self.take('-');
        if !negative {
            self.take('+');
        }
        let mut seconds = self.number(0..=i64::from(MOST_HOURS))? * 3600;
        for unit in [60, 1] {
            if !self.take(':') {
                break;
            }
            seconds += self.number(0..=59)? * unit;
        }
        Some(if negative { -seconds } else { seconds })
    }

    fn change(&mut self) -> Option<Change> {
        let day = if self.take('J') || self.take('j') {
            Day::OfCommonYear(self.number(1..=365)?)
        } else if self.take('M') || self.take('m') {
            let month = self.number(1..=12)? as u32;
            let week = self.take('.').then(|| self.number(1..=5))??;
            let weekday = self.take('.').then(|| self.number(0..=6))??;
            Day::Weekday { month, week, weekday }
        } else {
            Day::OfYear(self.number(0..=365)?)
        };
        let seconds = if self.take('/') { self.time()? } else { 2 * 3600 };
        Some(Change { day, seconds })
    }

    fn summer(&mut self, standard_east: i32) -> Option<Summer> {
        let abbreviation = self.abbreviation().filter(|name| name.length > 0)?;
        let east = match self.0.chars().next() {
            None | Some(',' | ';') => standard_east + 3600,
            Some(_) => -self.time()? as i32,
        };
        let mut days = Reader(if self.0.is_empty() { USUAL_DAYS } else { self.0 });
        let begins = (days.take(',') || days.take(';')).then(|| days.change())??;
        let ends = days.take(',').then(|| days.change())??;
        days.0.is_empty().then_some(Summer { abbreviation, east, begins, ends })
    }
}

/// A zone's notation; with no abbreviation and no summer time it is only an offset.
pub(super) fn parse(text: &str) -> Option<PosixZone> {
    let mut reader = Reader(text);
    let abbreviation = reader.abbreviation()?;
    let east = -reader.time()? as i32;
    let summer = if reader.0.is_empty() { None } else { Some(reader.summer(east)?) };
    Some(PosixZone { abbreviation, east, summer })
}

impl Change {
    /// Seconds from 2000-01-01 to the change, on the clocks as they are before it.
    fn in_year(self, year: i32) -> i64 {
        let days = match self.day {
            Day::OfCommonYear(day) => {
                days_from_civil(year, 1, 1) + day - 1 + i64::from(is_leap(year) && day >= 60)
            }
            Day::OfYear(day) => days_from_civil(year, 1, 1) + day,
            Day::Weekday { month, week, weekday: wanted } => {
                let first = days_from_civil(year, month, 1);
                let next = first + i64::from(days_in_month(year, month));
                let first = first + (wanted - i64::from(weekday(first))).rem_euclid(7);
                let last = first + (next - 1 - first) / 7 * 7;
                (first + (week - 1) * 7).min(last)
            }
        };
        days * DAY_SECONDS + self.seconds
    }
}

impl PosixZone {
    /// Without an abbreviation and without summer time: seconds east of UTC.
    pub(super) fn bare_offset(&self) -> Option<i32> {
        (self.abbreviation.length == 0 && self.summer.is_none()).then_some(self.east)
    }

    /// Does its offset change?
    pub(crate) fn changes(&self) -> bool {
        self.summer.is_some()
    }

    /// The summer time that is in force at a moment, microseconds since 2000-01-01 UTC.
    fn summer_at(&self, timestamp: i64) -> Option<&Summer> {
        let summer = self.summer.as_ref()?;
        let seconds = timestamp.div_euclid(SECOND);
        let year = civil_from_days(seconds.div_euclid(DAY_SECONDS)).year;
        let changes = (year - 1..=year + 1).flat_map(|year| {
            let begins = summer.begins.in_year(year) - i64::from(self.east);
            let ends = summer.ends.in_year(year) - i64::from(summer.east);
            [(begins, true), (ends, false)]
        });
        // Of an end and a beginning at the same moment the beginning counts: summer time all year.
        let last = changes.filter(|(moment, _)| *moment <= seconds).max()?;
        last.1.then_some(summer)
    }

    /// Seconds east of UTC.
    pub(super) fn offset_at(&self, timestamp: i64) -> i32 {
        self.summer_at(timestamp).map_or(self.east, |summer| summer.east)
    }

    pub(super) fn abbreviation_at(&self, timestamp: i64) -> &str {
        self.summer_at(timestamp).map_or(&self.abbreviation, |summer| &summer.abbreviation).as_str()
    }
}
