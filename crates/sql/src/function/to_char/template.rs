//! Templates of dates and times, split into patterns and literal text.

use crate::error::SqlError;
use crate::types::bounds::Meter;

/// What a pattern stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pattern {
    Hour12,
    Hour24,
    Minute,
    Second,
    Millisecond,
    Microsecond,
    /// So many digits of a second.
    Fraction(u8),
    SecondOfDay,
    /// AM or PM, with periods or not.
    Meridiem {
        periods: bool,
    },
    YearWithComma,
    /// The last digits of the year; four stand for all.
    Year(u8),
    IsoYear(u8),
    /// BC or AD, with periods or not.
    Era {
        periods: bool,
    },
    MonthName,
    MonthAbbreviation,
    Month,
    DayName,
    DayAbbreviation,
    DayOfYear,
    IsoDayOfYear,
    Day,
    DayOfWeek,
    IsoDayOfWeek,
    WeekOfMonth,
    WeekOfYear,
    IsoWeek,
    Century,
    Julian,
    Quarter,
    RomanMonth,
    ZoneAbbreviation,
    ZoneHour,
    ZoneMinute,
    ZoneOffset,
    /// FX: from here on the text of a date must have exactly what the template has.
    Exact,
}

impl Pattern {
    /// Whether it reads digits.
    pub(super) fn is_digits(self) -> bool {
        !matches!(
            self,
            Pattern::Meridiem { .. }
                | Pattern::Era { .. }
                | Pattern::MonthName
                | Pattern::MonthAbbreviation
                | Pattern::DayName
                | Pattern::DayAbbreviation
                | Pattern::RomanMonth
                | Pattern::ZoneAbbreviation
                | Pattern::ZoneHour
                | Pattern::ZoneOffset
                | Pattern::Exact
        )
    }
}

/// How letters come out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Case {
    Upper,
    Capital,
    Lower,
}

/// One piece of a template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Piece {
    Literal(char),
    /// Punctuation or a blank outside quotes.
    Separator(char),
    Pattern {
        pattern: Pattern,
        /// As the template spells it.
        spelling: &'static str,
        case: Case,
        /// FM: no padding.
        fill: bool,
        /// TH or th after it.
        ordinal: Option<Case>,
    },
}

/// Spellings, a longer one before its prefixes.
const PATTERNS: &[(&str, Pattern)] = &[
    ("A.D.", Pattern::Era { periods: true }),
    ("A.M.", Pattern::Meridiem { periods: true }),
    ("AD", Pattern::Era { periods: false }),
    ("AM", Pattern::Meridiem { periods: false }),
    ("B.C.", Pattern::Era { periods: true }),
    ("BC", Pattern::Era { periods: false }),
    ("CC", Pattern::Century),
    ("DAY", Pattern::DayName),
    ("DDD", Pattern::DayOfYear),
    ("DD", Pattern::Day),
    ("DY", Pattern::DayAbbreviation),
    ("D", Pattern::DayOfWeek),
    ("FF1", Pattern::Fraction(1)),
    ("FF2", Pattern::Fraction(2)),
    ("FF3", Pattern::Fraction(3)),
    ("FF4", Pattern::Fraction(4)),
    ("FF5", Pattern::Fraction(5)),
    ("FF6", Pattern::Fraction(6)),
    ("FX", Pattern::Exact),
    ("HH24", Pattern::Hour24),
    ("HH12", Pattern::Hour12),
    ("HH", Pattern::Hour12),
    ("IDDD", Pattern::IsoDayOfYear),
    ("ID", Pattern::IsoDayOfWeek),
    ("IW", Pattern::IsoWeek),
    ("IYYY", Pattern::IsoYear(4)),
    ("IYY", Pattern::IsoYear(3)),
    ("IY", Pattern::IsoYear(2)),
    ("I", Pattern::IsoYear(1)),
    ("J", Pattern::Julian),
    ("MI", Pattern::Minute),
    ("MM", Pattern::Month),
    ("MONTH", Pattern::MonthName),
    ("MON", Pattern::MonthAbbreviation),
    ("MS", Pattern::Millisecond),
    ("OF", Pattern::ZoneOffset),
    ("P.M.", Pattern::Meridiem { periods: true }),
    ("PM", Pattern::Meridiem { periods: false }),
    ("Q", Pattern::Quarter),
    ("RM", Pattern::RomanMonth),
    ("SSSSS", Pattern::SecondOfDay),
    ("SSSS", Pattern::SecondOfDay),
    ("SS", Pattern::Second),
    ("TZH", Pattern::ZoneHour),
    ("TZM", Pattern::ZoneMinute),
    ("TZ", Pattern::ZoneAbbreviation),
    ("US", Pattern::Microsecond),
    ("WW", Pattern::WeekOfYear),
    ("W", Pattern::WeekOfMonth),
    ("Y,YYY", Pattern::YearWithComma),
    ("YYYY", Pattern::Year(4)),
    ("YYY", Pattern::Year(3)),
    ("YY", Pattern::Year(2)),
    ("Y", Pattern::Year(1)),
];

/// The case that a spelling asks for: by its first two letters.
fn case_of(spelling: &str) -> Case {
    let mut letters = spelling.chars().filter(|c| c.is_ascii_alphabetic());
    match (letters.next(), letters.next()) {
        (Some(first), _) if first.is_ascii_lowercase() => Case::Lower,
        (_, Some(second)) if second.is_ascii_lowercase() => Case::Capital,
        _ => Case::Upper,
    }
}

/// Patterns of names must be written in one of three ways of capitals.
fn matches(rest: &str, spelling: &str, pattern: Pattern) -> bool {
    let Some(written) = rest.get(..spelling.len()).filter(|w| w.eq_ignore_ascii_case(spelling)) else {
        return false;
    };
    match pattern {
        Pattern::MonthName | Pattern::MonthAbbreviation | Pattern::DayName | Pattern::DayAbbreviation => {
            let (upper, lower) = (spelling.to_owned(), spelling.to_ascii_lowercase());
            let capital = format!("{}{}", &upper[..1], &lower[1..]);
            [upper, lower, capital].iter().any(|form| form == written)
        }
        // Other patterns come in capitals or small letters throughout.
        _ => written == spelling || written == spelling.to_ascii_lowercase(),
    }
}

/// What may stand before a pattern: FM, or TM, which means nothing where months and days have one
/// language.
fn prefix(rest: &str) -> Option<bool> {
    match rest.get(..2) {
        Some("FM" | "fm") => Some(true),
        Some("TM" | "tm") => Some(false),
        _ => None,
    }
}

/// What may stand after a pattern.
fn postfix(rest: &str) -> Option<Option<Case>> {
    match rest.get(..2) {
        Some("TH") => Some(Some(Case::Upper)),
        Some("th") => Some(Some(Case::Lower)),
        // Numbers in words are not to be had, nor does PostgreSQL say so.
        Some("SP") => Some(None),
        _ => None,
    }
}

/// Splits a template. A long one has as many pieces as letters, each larger than a letter: it is
/// asked for as it goes.
pub(super) fn split(template: &str) -> Result<Vec<Piece>, SqlError> {
    let (mut pieces, mut meter) = (Vec::new(), Meter::default());
    let mut rest = template;
    while !rest.is_empty() {
        meter.add(size_of::<Piece>())?;
        let prefix = prefix(rest);
        if prefix.is_some() {
            rest = &rest[2..];
        }
        if let Some((spelling, pattern)) =
            PATTERNS.iter().find(|(spelling, pattern)| matches(rest, spelling, *pattern))
        {
            let case = case_of(&rest[..spelling.len()]);
            rest = &rest[spelling.len()..];
            let postfix = postfix(rest);
            if postfix.is_some() {
                rest = &rest[2..];
            }
            // Names in the language of the place have no blanks after them either.
            let is_name = matches!(pattern, Pattern::MonthName | Pattern::DayName);
            let fill = prefix == Some(true) || prefix.is_some() && is_name;
            let ordinal = postfix.flatten();
            pieces.push(Piece::Pattern { pattern: *pattern, spelling, case, fill, ordinal });
            continue;
        }
        if let Some(text) = rest.strip_prefix('"') {
            rest = quoted(text, &mut pieces, &mut meter)?;
            continue;
        }
        // A backslash means something only before a quote.
        if rest.starts_with("\\\"") {
            rest = &rest[1..];
        }
        let Some(first) = rest.chars().next() else { break };
        rest = &rest[first.len_utf8()..];
        let separates = first.is_ascii_punctuation() || first.is_ascii_whitespace();
        pieces.push(if separates { Piece::Separator(first) } else { Piece::Literal(first) });
    }
    Ok(pieces)
}

/// Takes literal text up to the closing quote; gives back what follows it.
fn quoted<'a>(text: &'a str, pieces: &mut Vec<Piece>, meter: &mut Meter) -> Result<&'a str, SqlError> {
    let mut characters = text.char_indices();
    while let Some((at, c)) = characters.next() {
        meter.add(size_of::<Piece>())?;
        match c {
            '"' => return Ok(&text[at + 1..]),
            '\\' => pieces.push(Piece::Literal(characters.next().map_or('\\', |(_, escaped)| escaped))),
            other => pieces.push(Piece::Literal(other)),
        }
    }
    Ok("")
}
