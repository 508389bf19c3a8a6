//! Numbers as text by template.
//!
//! The number is first written plainly with as many fraction digits as the template has places for.
//! Then the template's places are walked from the left: those before the number's first digit give
//! blanks or zeros, the others take its characters one by one. A sign that the template does not
//! place itself stands directly before the first digit written.

use super::number_template::{Anchor, Piece, Template};
use crate::error::{SqlError, sqlstate};
use crate::function::EvalContext;
use crate::function::math::unexpected;
use crate::function::string::str_of;
use crate::types::bounds::{Meter, ask};
use crate::types::{Datum, Numeric};

/// A number written plainly: its sign and its characters.
struct Plain {
    negative: bool,
    text: String,
}

impl Plain {
    fn new(text: String) -> Plain {
        match text.strip_prefix('-') {
            Some(rest) => Plain { negative: true, text: rest.to_owned() },
            None => Plain { negative: false, text },
        }
    }
}

/// The number with the template's fraction digits. Floats have no more than 15 digits in all.
fn plain(datum: &Datum, template: &mut Template) -> Result<Plain, SqlError> {
    let shift = template.shift.unwrap_or(0);
    let power = 10f64.powi(i32::try_from(shift).unwrap_or(i32::MAX));
    let text = match datum {
        Datum::Float4(_) | Datum::Float8(_) => {
            let (value, most) = match datum {
                Datum::Float4(value) => (f64::from(*value), 6),
                Datum::Float8(value) => (*value, 15),
                _ => return Err(unexpected(&[datum])),
            };
            let value = value * power;
            let name = if value.is_nan() { "NaN" } else { "Infinity" };
            let digits = if value.is_finite() { format!("{:.0}", value.abs()).len() } else { name.len() };
            template.fraction = template.fraction.min(usize::saturating_sub(most, digits));
            if value.is_finite() {
                format!("{value:.*}", template.fraction)
            } else {
                format!("{}{name}", if value < 0.0 { "-" } else { "" })
            }
        }
        Datum::Numeric(value) => {
            let shifted =
                value.multiply(&Numeric::from(10i64).power(&Numeric::from(shift as i64), &ask)?.round(0))?;
            shifted.round(template.fraction as i32).to_string()
        }
        other => {
            let value = Numeric::from(other.as_i64().ok_or_else(|| unexpected(&[other]))?);
            let shifted =
                value.multiply(&Numeric::from(10i64).power(&Numeric::from(shift as i64), &ask)?.round(0))?;
            shifted.round(template.fraction as i32).to_string()
        }
    };
    template.integer += shift;
    Ok(Plain::new(text))
}

/// `to_char(number, template)`.
pub(in crate::function) fn number_to_char(
    arguments: &[Datum],
    _: &EvalContext<'_>,
) -> Result<Datum, SqlError> {
    let mut template = Template::parse(str_of(&arguments[1])?)?;
    let datum = &arguments[0];
    if template.scientific {
        return Ok(scientific(datum, &template)?.into());
    }
    if template.roman {
        return roman_template(datum, &template).map(Datum::from);
    }
    let mut number = plain(datum, &mut template)?;
    let integer_length = number.text.find('.').unwrap_or(number.text.len());
    let leading = template.integer.saturating_sub(integer_length);
    if integer_length > template.integer {
        // Too long: signs of that in every place.
        number.text = format!("{}.{}", "#".repeat(template.integer), "#".repeat(template.fraction));
    }
    Writer::new(&template, number, leading).run().map(Datum::from)
}

fn to_numeric(datum: &Datum) -> Result<Numeric, SqlError> {
    match datum {
        Datum::Numeric(value) => Ok(value.clone()),
        Datum::Float4(value) => Numeric::from_f32(*value),
        Datum::Float8(value) => Numeric::from_f64(*value),
        other => other.as_i64().map(Numeric::from).ok_or_else(|| unexpected(&[other])),
    }
}

/// So many digits of a float are written behind the point, as in PostgreSQL; beyond them are zeros.
const FLOAT_DIGITS: usize = 350;

fn scientific(datum: &Datum, template: &Template) -> Result<String, SqlError> {
    // Floats are rounded as what they are in binary, half to even, and so are integers that a float
    // holds.
    let float = match datum {
        Datum::Float4(value) => Some(f64::from(*value)),
        Datum::Float8(value) => Some(*value),
        Datum::Int4(value) => Some(f64::from(*value)),
        _ => None,
    };
    if let Some(value) = float.filter(|value| value.is_finite()) {
        let digits = template.fraction.min(FLOAT_DIGITS);
        let text = format!("{value:.digits$e}");
        let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        let exponent: i32 = exponent.parse().unwrap_or(0);
        let blank = if value.is_sign_negative() { "" } else { " " };
        let zeros = "0".repeat(template.fraction - digits);
        return Ok(format!(
            "{blank}{mantissa}{zeros}e{}{:02}",
            if exponent < 0 { '-' } else { '+' },
            exponent.abs()
        ));
    }
    let value = to_numeric(datum)?;
    if !value.is_finite() {
        let marks = "#".repeat(template.fraction + 4);
        return Ok(format!(" {}.{marks}", "#".repeat(template.integer)));
    }
    let sign = if value.signum() < 0 { '-' } else { ' ' };
    let (digits, exponent) = value.key_digits_for_display();
    // One digit before the point, rounded to the template's fraction.
    let mantissa: Numeric = format!("{}.{}", &digits[..1], &digits[1..]).trim_end_matches('.').parse()?;
    let mut mantissa = mantissa.round(template.fraction as i32);
    let mut exponent = exponent - 1;
    if mantissa >= Numeric::from(10i64) {
        mantissa = Numeric::from(1i64).round(template.fraction as i32);
        exponent += 1;
    }
    Ok(format!("{sign}{mantissa}e{}{:02}", if exponent < 0 { '-' } else { '+' }, exponent.abs()))
}

fn roman_template(datum: &Datum, template: &Template) -> Result<String, SqlError> {
    let value = match datum {
        Datum::Float4(value) => f64::from(*value).round_ties_even() as i64,
        Datum::Float8(value) => value.round_ties_even() as i64,
        other => to_numeric(other)?.to_i64("integer")?,
    };
    // Of floats there is none that is refused: what is beyond has no Roman numeral either.
    if i32::try_from(value).is_err() && !matches!(datum, Datum::Float4(_) | Datum::Float8(_)) {
        return Err(SqlError::out_of_range("integer"));
    }
    let (mut out, mut meter) = (String::new(), Meter::default());
    for piece in &template.pieces {
        let before = out.len();
        match piece {
            Piece::Roman { lower } => {
                let letters = roman(value);
                let letters = if *lower { letters.to_lowercase() } else { letters };
                out.push_str(&if template.fill { letters } else { format!("{letters:>15}") });
            }
            Piece::Literal(c) => out.push(*c),
            _ => {}
        }
        meter.add(out.len() - before)?;
    }
    Ok(out)
}

fn roman(value: i64) -> String {
    const TABLE: [(i64, &str); 13] = [
        (1000, "M"),
        (900, "CM"),
        (500, "D"),
        (400, "CD"),
        (100, "C"),
        (90, "XC"),
        (50, "L"),
        (40, "XL"),
        (10, "X"),
        (9, "IX"),
        (5, "V"),
        (4, "IV"),
        (1, "I"),
    ];
    if !(1..=3999).contains(&value) {
        return "#".repeat(15);
    }
    let mut rest = value;
    let mut out = String::new();
    for (amount, letters) in TABLE {
        while rest >= amount {
            out.push_str(letters);
            rest -= amount;
        }
    }
    out
}

/// Walks the template's places.
struct Writer<'a> {
    template: &'a Template,
    number: Vec<u8>,
    negative: bool,
    brackets: bool,
    anchor: Option<Anchor>,
    /// Places before the number's first digit.
    leading: usize,
    /// With FM, the last character of the number that is not a superfluous zero.
    last_relevant: Option<usize>,
    /// Nothing more to do for the sign.
    sign_written: bool,
    /// The place after the last, where a sign behind the number goes.
    end: usize,
    /// Next character of the number.
    at: usize,
    /// Number of the current place.
    place: usize,
    /// The last place wrote a digit.
    inside: bool,
    out: String,
}

impl<'a> Writer<'a> {
    fn new(template: &'a Template, number: Plain, leading: usize) -> Writer<'a> {
        let own_sign = template.minus || template.plus;
        let negative = number.negative;
        let number = number.text.into_bytes();
        let mut brackets = template.brackets;
        let sign_written = if own_sign {
            // PL alone leaves a minus to be written.
            !template.plus || template.minus
        } else {
            if !negative && template.fill {
                brackets = false;
            }
            !negative && template.fill && template.anchor.is_none()
        };
        // S after all places stands behind the number.
        let anchor = match template.anchor {
            Some(Anchor::Before) if !own_sign && template.places_before_sign == template.integer => {
                Some(Anchor::After)
            }
            anchor => anchor,
        };
        let mut last_relevant = None;
        if template.fill
            && template.has_point
            && let Some(point) = number.iter().position(|b| *b == b'.')
        {
            let mut last = number.iter().rposition(|b| *b != b'0').filter(|at| *at > point).unwrap_or(point);
            if template.zero_end > leading {
                last = last.max((number.len() - 1).min(template.zero_end - leading));
            }
            last_relevant = Some(last);
        }
        let places = (template.fraction + template.integer + usize::from(!sign_written && leading == 0))
            .saturating_sub(1);
        let end = places + usize::from(leading > 0) + usize::from(template.has_point);
        Writer {
            template,
            number,
            negative,
            brackets,
            anchor,
            leading,
            last_relevant,
            sign_written,
            end,
            at: 0,
            place: 0,
            inside: false,
            out: String::new(),
        }
    }

    fn run(mut self) -> Result<String, SqlError> {
        let mut meter = Meter::default();
        for piece in &self.template.pieces {
            // A place writes a sign and a digit at most.
            meter.add(2)?;
            let fill = self.template.fill;
            match *piece {
                Piece::Nine | Piece::Point => self.digit(false),
                Piece::Zero => self.digit(true),
                Piece::Group if self.inside => self.out.push(','),
                Piece::Group if !fill => self.out.push(' '),
                Piece::Currency => self.out.push(' '),
                Piece::Minus if self.negative => self.out.push('-'),
                Piece::Plus if !self.negative => self.out.push('+'),
                Piece::Minus | Piece::Plus if !fill => self.out.push(' '),
                Piece::AnySign => self.out.push(if self.negative { '-' } else { '+' }),
                Piece::Literal(c) => self.out.push(c),
                Piece::Ordinal { lower } => {
                    let refused =
                        self.number.first() == Some(&b'#') || self.negative || self.template.has_point;
                    if !refused {
                        self.out.push_str(ordinal(&self.number, lower)?);
                    }
                }
                Piece::Group | Piece::Minus | Piece::Plus | Piece::Roman { .. } => {}
            }
        }
        Ok(self.out)
    }

    /// Is the next character the zero before the point, for which the template has only nines?
    fn is_lone_zero(&self) -> bool {
        self.template.zero_start.is_none()
            && self.at == 0
            && self.number.first() == Some(&b'0')
            && self.template.fraction != 0
    }

    fn ends_at_point(&self) -> bool {
        self.last_relevant.is_some_and(|at| self.number[at] == b'.')
    }

    fn zeros_begun(&self) -> bool {
        self.template.zero_start.is_some_and(|start| start <= self.place)
    }

    fn write_sign(&mut self) {
        match (self.anchor, self.brackets) {
            (Some(Anchor::Before), _) => self.out.push(if self.negative { '-' } else { '+' }),
            (Some(Anchor::After), _) => return,
            (None, true) => self.out.push(if self.negative { '<' } else { ' ' }),
            (None, false) if self.negative => self.out.push('-'),
            (None, false) if !self.template.fill => self.out.push(' '),
            (None, false) => {}
        }
        self.sign_written = true;
    }

    /// One place for a digit or the point.
    fn digit(&mut self, zero: bool) {
        self.inside = false;
        let started = self.place >= self.leading || self.template.zero_start == Some(self.place);
        if !self.sign_written && started && (!self.is_lone_zero() || self.ends_at_point()) {
            self.write_sign();
        }
        if self.place < self.leading && !self.zeros_begun() {
            if !self.template.fill {
                self.out.push(' ');
            }
        } else if self.place < self.leading {
            self.out.push('0');
            self.inside = true;
        } else {
            self.next_character(zero);
            if self.at < self.number.len() {
                self.at += 1;
            }
        }
        let end = if self.last_relevant.is_some_and(|last| last == self.at) { self.place } else { self.end };
        if self.place + 1 == end {
            if self.sign_written && self.brackets {
                self.out.push(if self.negative { '>' } else { ' ' });
            } else if self.anchor == Some(Anchor::After) {
                self.out.push(if self.negative { '-' } else { '+' });
            }
        }
        self.place += 1;
    }

    fn next_character(&mut self, zero: bool) {
        let Some(&character) = self.number.get(self.at) else { return };
        if character == b'.' {
            self.out.push('.');
        } else if !zero && self.last_relevant.is_some_and(|last| self.at > last) {
            // A zero at the end that FM drops.
        } else if self.is_lone_zero() {
            if !self.template.fill {
                self.out.push(' ');
            } else if self.ends_at_point() {
                self.out.push('0');
            }
        } else {
            self.out.push(char::from(character));
            self.inside = true;
        }
    }
}

/// What makes it an ordinal number. 22P02 for NaN.
fn ordinal(number: &[u8], lower: bool) -> Result<&'static str, SqlError> {
    if !number.last().is_some_and(u8::is_ascii_digit) {
        let message = format!("\"{}\" is not a number", String::from_utf8_lossy(number));
        return Err(SqlError::new(sqlstate::INVALID_TEXT_REPRESENTATION, message));
    }
    let teen = number.len() > 1 && number[number.len() - 2] == b'1';
    let suffixes = if lower { ["st", "nd", "rd", "th"] } else { ["ST", "ND", "RD", "TH"] };
    Ok(match number.last() {
        Some(b'1') if !teen => suffixes[0],
        Some(b'2') if !teen => suffixes[1],
        Some(b'3') if !teen => suffixes[2],
        _ => suffixes[3],
    })
}
