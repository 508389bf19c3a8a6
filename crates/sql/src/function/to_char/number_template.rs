//! Templates of numbers, taken apart.

use crate::error::{SqlError, sqlstate};
use crate::types::bounds::Meter;

/// One piece of a template.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Piece {
    Nine,
    Zero,
    Point,
    Group,
    Currency,
    Minus,
    Plus,
    AnySign,
    Literal(char),
    Ordinal { lower: bool },
    Roman { lower: bool },
}

/// Where `S` puts the sign.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Anchor {
    Before,
    After,
}

/// A template taken apart.
#[derive(Default)]
pub(super) struct Template {
    pub(super) pieces: Vec<Piece>,
    /// Places before the point.
    pub(super) integer: usize,
    /// Places after it.
    pub(super) fraction: usize,
    pub(super) has_point: bool,
    /// `FM`: no padding.
    pub(super) fill: bool,
    /// `PR`: negative numbers in angle brackets.
    pub(super) brackets: bool,
    /// `V`: so many digits to shift by.
    pub(super) shift: Option<usize>,
    pub(super) scientific: bool,
    pub(super) roman: bool,
    pub(super) anchor: Option<Anchor>,
    /// Places before `S`.
    pub(super) places_before_sign: usize,
    pub(super) minus: bool,
    pub(super) plus: bool,
    /// First place that a `0` stands for.
    pub(super) zero_start: Option<usize>,
    /// Number of places up to the last `0`.
    pub(super) zero_end: usize,
}

#[cold]
fn invalid(what: &str) -> SqlError {
    SqlError::new(sqlstate::SYNTAX_ERROR, what.to_owned())
}

#[cold]
fn not_last() -> SqlError {
    invalid("\"EEEE\" must be the last pattern used")
}

/// Spellings of more than one letter come in capitals or small letters throughout.
const WORDS: [&str; 9] = ["EEEE", "FM", "MI", "PL", "PR", "RN", "SG", "SP", "TH"];

impl Template {
    pub(super) fn parse(text: &str) -> Result<Template, SqlError> {
        let (mut template, mut meter) = (Template::default(), Meter::default());
        let mut rest = text;
        while let Some(first) = rest.chars().next() {
            meter.add(size_of::<Piece>())?;
            if first == '"' {
                rest = template.quoted(&rest[1..], &mut meter)?;
                continue;
            }
            if let Some(after) = rest.strip_prefix("\\\"") {
                template.pieces.push(Piece::Literal('"'));
                rest = after;
                continue;
            }
            let word = WORDS.iter().find(|word| {
                rest.strip_prefix(**word).is_some() || rest.strip_prefix(&word.to_ascii_lowercase()).is_some()
            });
            if let Some(word) = word {
                template.word(word, first.is_ascii_lowercase())?;
                rest = &rest[word.len()..];
            } else {
                template.letter(first)?;
                rest = &rest[first.len_utf8()..];
            }
        }
        Ok(template)
    }

    /// Literal text up to the closing quote; gives back what follows. A backslash makes a literal
    /// of any character after it.
    fn quoted<'a>(&mut self, text: &'a str, meter: &mut Meter) -> Result<&'a str, SqlError> {
        let mut letters = text.chars();
        while let Some(letter) = letters.next() {
            meter.add(size_of::<Piece>())?;
            let literal = match letter {
                '"' => break,
                '\\' => letters.next().unwrap_or('\\'),
                other => other,
            };
            self.pieces.push(Piece::Literal(literal));
        }
        Ok(letters.as_str())
    }

    fn word(&mut self, word: &str, lower: bool) -> Result<(), SqlError> {
        let signed = self.anchor.is_some();
        if self.scientific {
            return Err(if word == "EEEE" { invalid("cannot use \"EEEE\" twice") } else { not_last() });
        }
        match word {
            "EEEE" => {
                if self.fill
                    || signed
                    || self.brackets
                    || self.minus
                    || self.plus
                    || self.roman
                    || self.shift.is_some()
                {
                    return Err(invalid("\"EEEE\" is incompatible with other formats").with_detail(
                        "\"EEEE\" may only be used together with digit and decimal point patterns.",
                    ));
                }
                self.scientific = true;
            }
            "FM" => self.fill = true,
            "MI" if signed => return Err(invalid("cannot use \"S\" and \"MI\" together")),
            "PL" if signed => return Err(invalid("cannot use \"S\" and \"PL\" together")),
            "SG" if signed => return Err(invalid("cannot use \"S\" and \"SG\" together")),
            "MI" => {
                self.minus = true;
                self.pieces.push(Piece::Minus);
            }
            "PL" => {
                self.plus = true;
                self.pieces.push(Piece::Plus);
            }
            "SG" => {
                (self.minus, self.plus) = (true, true);
                self.pieces.push(Piece::AnySign);
            }
            "PR" if signed || self.minus || self.plus => {
                return Err(invalid("cannot use \"PR\" and \"S\"/\"PL\"/\"MI\"/\"SG\" together"));
            }
            "PR" => self.brackets = true,
            "RN" => {
                self.roman = true;
                self.pieces.push(Piece::Roman { lower });
            }
            "TH" => self.pieces.push(Piece::Ordinal { lower }),
            _ => {}
        }
        Ok(())
    }

    fn letter(&mut self, letter: char) -> Result<(), SqlError> {
        // Literals may stand behind it.
        if self.scientific && "90.,DdGgLlSsVvBb".contains(letter) {
            return Err(not_last());
        }
        match letter {
            '9' | '0' if self.brackets => {
                return Err(invalid(&format!("\"{letter}\" must be ahead of \"PR\"")));
            }
            '9' => {
                match (&mut self.shift, self.has_point) {
                    (Some(shift), _) => *shift += 1,
                    (None, true) => self.fraction += 1,
                    (None, false) => self.integer += 1,
                }
                self.pieces.push(Piece::Nine);
            }
            '0' => {
                if self.zero_start.is_none() && !self.has_point {
                    self.zero_start = Some(self.integer);
                }
                if self.has_point {
                    self.fraction += 1;
                } else {
                    self.integer += 1;
                }
                self.zero_end = self.integer + self.fraction;
                self.pieces.push(Piece::Zero);
            }
            '.' | 'D' | 'd' => {
                if self.has_point {
                    return Err(invalid("multiple decimal points"));
                }
                if self.shift.is_some() {
                    return Err(invalid("cannot use \"V\" and decimal point together"));
                }
                self.has_point = true;
                self.pieces.push(Piece::Point);
            }
            ',' | 'G' | 'g' => self.pieces.push(Piece::Group),
            'L' | 'l' => self.pieces.push(Piece::Currency),
            'S' | 's' => {
                if self.anchor.is_some() {
                    return Err(invalid("cannot use \"S\" twice"));
                }
                if self.plus || self.minus || self.brackets {
                    return Err(invalid("cannot use \"S\" and \"PL\"/\"MI\"/\"SG\"/\"PR\" together"));
                }
                self.anchor = Some(if self.has_point { Anchor::After } else { Anchor::Before });
                self.places_before_sign = self.integer;
            }
            'V' | 'v' => {
                if self.has_point {
                    return Err(invalid("cannot use \"V\" and decimal point together"));
                }
                self.shift.get_or_insert(0);
            }
            // Two that mean nothing, and show nothing.
            'B' | 'b' | 'C' | 'c' => {}
            other => self.pieces.push(Piece::Literal(other)),
        }
        Ok(())
    }
}
