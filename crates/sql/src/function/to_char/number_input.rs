//! Texts as numbers by template.
//!
//! The template's places are walked from the left until the text ends, and each takes its part of
//! the text: a place for a digit or the point takes one digit, the point or a sign, and passes over
//! one byte that is none of them; a literal passes over one character, whatever it is. This is what
//! PostgreSQL's `NUM_processor` does, oddities included: with FM a group separator takes nothing.
//!
//! ```text
//! to_number('12a34', '9999')    123     the third place passes over the a
//! to_number('1234', '99.99')    22003   four digits before the point, which has two places
//! ```

use super::number_template::{Anchor, Piece, Template};
use crate::error::{SqlError, sqlstate};
use crate::function::EvalContext;
use crate::function::string::str_of;
use crate::types::bounds::{Meter, ask};
use crate::types::{Datum, Numeric};

/// Precisions above are not checked: a type's modifier has no more bits for them.
const LARGEST_PRECISION: i32 = 0x7fff;

/// Walks the template's places over the text.
struct Reader<'a> {
    template: &'a Template,
    text: &'a [u8],
    /// Next byte of the text.
    at: usize,
    /// The sign, once one was read.
    sign: Option<u8>,
    /// Digits and the point, as they were read.
    digits: String,
    /// Digits read before the point.
    integer: usize,
    /// Digits read behind it.
    fraction: usize,
    /// The point was read.
    has_point: bool,
}

/// Bytes of the character that begins with this one.
fn width(first: u8) -> usize {
    match first {
        0xc0..=0xdf => 2,
        0xe0..=0xef => 3,
        0xf0.. => 4,
        _ => 1,
    }
}

impl Reader<'_> {
    fn next(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn run(&mut self) -> Result<(), SqlError> {
        let mut meter = Meter::default();
        for piece in &self.template.pieces {
            meter.add(0)?;
            let Some(byte) = self.next() else { break };
            let taken = match *piece {
                Piece::Nine | Piece::Zero => {
                    self.place(false);
                    1
                }
                Piece::Point => {
                    self.place(true);
                    1
                }
                Piece::Group => usize::from(byte == b',' && !self.template.fill),
                Piece::Currency => self.no_data(1),
                Piece::Ordinal { .. } if self.template.has_point => 0,
                Piece::Ordinal { .. } => self.no_data(2),
                Piece::Minus if byte == b'-' => self.take_sign(byte),
                Piece::Plus if byte == b'+' => self.take_sign(byte),
                Piece::AnySign if matches!(byte, b'-' | b'+') => self.take_sign(byte),
                Piece::Minus | Piece::Plus | Piece::AnySign => self.no_data(1),
                Piece::Literal(_) => width(byte),
                // A template with one is refused.
                Piece::Roman { .. } => 0,
            };
            self.at += taken;
        }
        Ok(())
    }

    fn take_sign(&mut self, sign: u8) -> usize {
        self.sign = Some(sign);
        1
    }

    /// Bytes of so many characters at most that can be no part of a number.
    fn no_data(&self, characters: usize) -> usize {
        let mut bytes = 0;
        for _ in 0..characters {
            match self.text.get(self.at + bytes) {
                Some(byte) if !b"0123456789.,+-".contains(byte) => bytes += width(*byte),
                _ => break,
            }
        }
        bytes
    }

    /// One place for a digit or the point. What it takes besides the last byte is passed over here.
    fn place(&mut self, is_point: bool) {
        if self.next() == Some(b' ') {
            self.at += 1;
        }
        if self.sign.is_none() && !is_point && self.integer + self.fraction == 0 {
            self.leading_sign();
        }
        let Some(byte) = self.next() else { return };
        let mut is_read = false;
        if byte.is_ascii_digit() {
            if self.has_point && self.fraction == self.template.fraction {
                return;
            }
            self.digits.push(char::from(byte));
            if self.has_point {
                self.fraction += 1;
            } else {
                self.integer += 1;
            }
            is_read = true;
        } else if byte == b'.' && self.template.has_point && !self.has_point {
            self.digits.push('.');
            self.has_point = true;
            is_read = true;
        }
        if self.sign.is_none() && self.integer + self.fraction > 0 {
            self.trailing_sign(byte, is_read);
        }
    }

    fn leading_sign(&mut self) {
        match self.next() {
            Some(sign @ (b'-' | b'+')) => self.at += self.take_sign(sign),
            // With S before the point there is no other spelling of a sign.
            Some(b'<') if self.template.brackets && self.template.anchor != Some(Anchor::Before) => {
                self.at += self.take_sign(b'-');
            }
            _ => {}
        }
    }

    /// A sign behind what was read: of S directly behind a digit or the point, of MI, PL and SG in
    /// the place of one.
    fn trailing_sign(&mut self, byte: u8, is_read: bool) {
        let has_anchor = self.template.anchor.is_some();
        if has_anchor && is_read {
            if let Some(sign @ (b'-' | b'+')) = self.text.get(self.at + 1).copied() {
                self.at += self.take_sign(sign);
            }
        } else if !has_anchor
            && !is_read
            && (self.template.plus || self.template.minus)
            && matches!(byte, b'-' | b'+')
        {
            self.sign = Some(byte);
        }
    }

    /// The number that was read. 22P02 if it has no digits, 22003 if it has more before the point
    /// than the template has places.
    fn number(mut self) -> Result<Numeric, SqlError> {
        if self.digits.ends_with('.') {
            self.digits.pop();
        }
        let sign = self.sign.map_or(' ', char::from);
        let value: Numeric = format!("{sign}{}", self.digits).parse()?;
        let places = self.template.integer + self.template.shift.unwrap_or(0) + self.fraction;
        match (i32::try_from(places), i32::try_from(self.fraction)) {
            (Ok(precision), Ok(scale)) if precision <= LARGEST_PRECISION => value.fit(precision, scale),
            _ => Ok(value),
        }
    }
}

/// `to_number(text, template)`; NULL without a template.
pub(in crate::function) fn to_number(arguments: &[Datum], _: &EvalContext<'_>) -> Result<Datum, SqlError> {
    let (text, template) = (str_of(&arguments[0])?, str_of(&arguments[1])?);
    if template.is_empty() {
        return Ok(Datum::Null);
    }
    let template = Template::parse(template)?;
    if template.scientific || template.roman {
        let word = if template.scientific { "EEEE" } else { "RN" };
        let message = format!("\"{word}\" not supported for input");
        return Err(SqlError::new(sqlstate::FEATURE_NOT_SUPPORTED, message));
    }
    let mut reader = Reader {
        template: &template,
        text: text.as_bytes(),
        at: 0,
        sign: None,
        digits: String::new(),
        integer: 0,
        fraction: 0,
        has_point: false,
    };
    reader.run()?;
    let value = reader.number()?;
    let Some(shift) = template.shift else { return Ok(Datum::Numeric(value)) };
    // A power of ten with 16 digits behind the point, which the product has, too.
    let power = Numeric::from(10i64).power(&Numeric::from(-(shift as i64)), &ask)?;
    value.multiply(&power).map(Datum::Numeric)
}
