//! Numbers as text by template, and back.

use crate::error::{SqlError, sqlstate};
use crate::function::EvalContext;
use crate::function::math::unexpected;
use crate::function::string::str_of;
use crate::types::{Datum, Numeric};

/// One piece of a template.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    /// `9` or `0`.
    Digit {
        zero: bool,
    },
    Point,
    Group,
    Currency,
    /// `S`, `MI`, `PL`, `SG`.
    Sign(Sign),
    Literal(char),
    Ordinal {
        lower: bool,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sign {
    /// `S`: next to the number.
    Anchored,
    Minus,
    Plus,
    Both,
}

/// A template taken apart.
#[derive(Default)]
struct Template {
    pieces: Vec<Piece>,
    integer_digits: usize,
    fraction_digits: usize,
    has_point: bool,
    /// `FM`: no padding.
    fill: bool,
    /// `PR`: negative numbers in angle brackets.
    brackets: bool,
    /// `V`: so many digits to shift by.
    shift: usize,
    scientific: bool,
    roman: Option<bool>,
    anchored_sign: Option<bool>,
}

#[cold]
fn invalid(what: &str) -> SqlError {
    SqlError::new(sqlstate::SYNTAX_ERROR, what.to_owned())
}

impl Template {
    fn parse(text: &str) -> Result<Template, SqlError> {
        let mut template = Template::default();
        let mut rest = text;
        let mut shifting = false;
        while let Some(first) = rest.chars().next() {
            let has = |word: &str| rest.get(..word.len()).is_some_and(|head| head.eq_ignore_ascii_case(word));
            let mut taken = first.len_utf8();
            match first.to_ascii_uppercase() {
                '9' | '0' => {
                    template.pieces.push(Piece::Digit { zero: first == '0' });
                    if shifting {
                        template.shift += 1;
                    } else if template.has_point {
                        template.fraction_digits += 1;
                    } else {
                        template.integer_digits += 1;
                    }
                }
                '.' | 'D' => {
                    if template.has_point {
                        return Err(invalid("multiple decimal points"));
                    }
                    if shifting {
                        return Err(invalid("cannot use \"V\" and decimal point together"));
                    }
                    template.has_point = true;
                    template.pieces.push(Piece::Point);
                }
                ',' | 'G' => template.pieces.push(Piece::Group),
                'L' => template.pieces.push(Piece::Currency),
                'V' => {
                    if template.has_point {
                        return Err(invalid("cannot use \"V\" and decimal point together"));
                    }
                    shifting = true;
                }
                'F' if has("FM") => {
                    template.fill = true;
                    taken = 2;
                }
                'M' if has("MI") => {
                    template.pieces.push(Piece::Sign(Sign::Minus));
                    taken = 2;
                }
                'P' if has("PL") => {
                    template.pieces.push(Piece::Sign(Sign::Plus));
                    taken = 2;
                }
                'P' if has("PR") => {
                    template.brackets = true;
                    taken = 2;
                }
                'S' if has("SG") => {
                    template.pieces.push(Piece::Sign(Sign::Both));
                    taken = 2;
                }
                'S' => {
                    let before = !template.pieces.iter().any(|p| matches!(p, Piece::Digit { .. }));
                    template.anchored_sign = Some(before);
                    template.pieces.push(Piece::Sign(Sign::Anchored));
                }
                'T' if has("TH") => {
                    template.pieces.push(Piece::Ordinal { lower: first == 't' });
                    taken = 2;
                }
                'R' if has("RN") => {
                    template.roman = Some(first == 'r');
                    taken = 2;
                }
                'E' if has("EEEE") => {
                    template.scientific = true;
                    taken = 4;
                }
                '"' => {
                    let end = rest[1..].find('"').map_or(rest.len(), |at| at + 2);
                    for c in rest[1..end].trim_end_matches('"').chars() {
                        template.pieces.push(Piece::Literal(c));
                    }
                    taken = end;
                }
                _ => template.pieces.push(Piece::Literal(first)),
            }
            rest = &rest[taken..];
        }
        Ok(template)
    }

    fn has_sign(&self) -> bool {
        self.pieces.iter().any(|piece| matches!(piece, Piece::Sign(_))) || self.brackets
    }
}

fn to_numeric(datum: &Datum) -> Result<Numeric, SqlError> {
    match datum {
        Datum::Numeric(value) => Ok(value.clone()),
        Datum::Float4(value) => Numeric::from_f32(*value),
        Datum::Float8(value) => Numeric::from_f64(*value),
        other => other.as_i64().map(Numeric::from).ok_or_else(|| unexpected(&[other])),
    }
}

/// `to_char(number, template)`.
pub(in crate::function) fn number_to_char(
    arguments: &[Datum],
    _: &EvalContext<'_>,
) -> Result<Datum, SqlError> {
    let template = Template::parse(str_of(&arguments[1])?)?;
    let value = to_numeric(&arguments[0])?;
    if let Some(lower) = template.roman {
        return Ok(roman(&value, lower, template.fill).into());
    }
    if template.scientific {
        return Ok(scientific(&value, &template).into());
    }
    let shifted = if template.shift > 0 {
        value.multiply(&Numeric::from(10i64.pow(template.shift.min(18) as u32)))?
    } else {
        value.clone()
    };
    Ok(render(&shifted, &template).into())
}

fn scientific(value: &Numeric, template: &Template) -> String {
    if !value.is_finite() {
        return format!(" {}", "#".repeat(template.integer_digits + template.fraction_digits + 5));
    }
    let digits = template.fraction_digits;
    let text = value.abs().to_string();
    let significant: String = text.chars().filter(char::is_ascii_digit).collect();
    let leading = significant.len() - significant.trim_start_matches('0').len();
    let point = text.find('.').unwrap_or(text.len()) as i64;
    let mut exponent = if value.is_zero() { 0 } else { point - leading as i64 - 1 };
    let mantissa_text = format!(
        "0{}.{}",
        &significant[leading.min(significant.len())..].get(..1).unwrap_or("0"),
        significant.get(leading + 1..).unwrap_or("")
    );
    let mut mantissa =
        mantissa_text.trim_end_matches('.').parse::<Numeric>().unwrap_or(Numeric::ZERO).round(digits as i32);
    if mantissa >= Numeric::from(10i64) {
        mantissa = mantissa.divide(&Numeric::from(10i64)).unwrap_or(mantissa).round(digits as i32);
        exponent += 1;
    }
    let sign = if value.signum() < 0 {
        "-"
    } else if template.fill {
        ""
    } else {
        " "
    };
    format!("{sign}{mantissa}e{}{:02}", if exponent < 0 { '-' } else { '+' }, exponent.abs())
}

fn roman(value: &Numeric, lower: bool, fill: bool) -> String {
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
    let mut rest = value.to_i64("integer").unwrap_or(0);
    if !(1..=3999).contains(&rest) {
        return "#".repeat(15);
    }
    let mut out = String::new();
    for (amount, letters) in TABLE {
        while rest >= amount {
            out.push_str(letters);
            rest -= amount;
        }
    }
    let out = if lower { out.to_lowercase() } else { out };
    if fill { out } else { format!("{out:>15}") }
}

/// The value's digits, filled into the template's places.
fn render(value: &Numeric, template: &Template) -> String {
    let places = template.integer_digits + template.shift;
    let rounded = value.round(template.fraction_digits as i32);
    let negative = rounded.signum() < 0 && !rounded.is_nan();
    let text = rounded.abs().to_string();
    let (integer, fraction) = text.split_once('.').unwrap_or((&text, ""));
    let overflow = !value.is_finite() || integer.trim_start_matches('0').len() > places;
    let integer =
        if overflow { "#".repeat(places) } else { format!("{:>places$}", integer.trim_start_matches('0')) };
    let fraction = if overflow { "#".repeat(template.fraction_digits) } else { fraction.to_owned() };
    Renderer { template, negative, integer: integer.into_bytes(), fraction: fraction.into_bytes() }.run()
}

struct Renderer<'a> {
    template: &'a Template,
    negative: bool,
    /// One byte for each place before the point; blanks where there is no digit.
    integer: Vec<u8>,
    fraction: Vec<u8>,
}

impl Renderer<'_> {
    /// From which place on there are digits: the first of the number, or the first `0` of the template.
    fn first_place(&self) -> usize {
        let mut place = 0;
        let first_digit = self.integer.iter().position(|b| *b != b' ').unwrap_or(self.integer.len());
        for piece in &self.template.pieces {
            match piece {
                Piece::Digit { zero } if place < self.integer.len() => {
                    if *zero {
                        return first_digit.min(place);
                    }
                    place += 1;
                }
                _ => {}
            }
        }
        first_digit
    }

    /// With FM, zeros at the end of the fraction that only nines stand for are left out.
    fn last_fraction(&self) -> usize {
        if !self.template.fill {
            return self.fraction.len();
        }
        let mut keep = self.fraction.iter().rposition(|b| *b != b'0').map_or(0, |at| at + 1);
        let mut place = 0;
        let mut after_point = false;
        for piece in &self.template.pieces {
            match piece {
                Piece::Point => after_point = true,
                Piece::Digit { zero } if after_point => {
                    place += 1;
                    if *zero {
                        keep = keep.max(place);
                    }
                }
                _ => {}
            }
        }
        keep
    }

    fn run(&self) -> String {
        let template = self.template;
        let first = self.first_place();
        let last_fraction = self.last_fraction();
        let mut out = String::new();
        // Without a sign in the template, a minus stands directly before the first digit.
        let own_sign = !template.has_sign();
        let anchored_before = template.anchored_sign == Some(true);
        let mut sign_pending = own_sign || anchored_before || template.brackets;
        let sign = |renderer: &Self| -> &str {
            match (renderer.negative, own_sign, template.brackets) {
                (true, _, true) => "<",
                (true, ..) => "-",
                (false, true, _) | (false, _, true) => {
                    if template.fill {
                        ""
                    } else {
                        " "
                    }
                }
                (false, false, false) => "+",
            }
        };
        let (mut place, mut fraction_place, mut after_point) = (0, 0, false);
        for piece in &template.pieces {
            match piece {
                Piece::Digit { .. } if after_point => {
                    if fraction_place < last_fraction {
                        out.push(char::from(self.fraction.get(fraction_place).copied().unwrap_or(b'0')));
                    }
                    fraction_place += 1;
                }
                Piece::Digit { .. } => {
                    if place < first {
                        if !template.fill {
                            out.push(' ');
                        }
                    } else {
                        if std::mem::take(&mut sign_pending) {
                            out.push_str(sign(self));
                        }
                        out.push(match self.integer[place] {
                            b' ' => '0',
                            digit => char::from(digit),
                        });
                    }
                    place += 1;
                }
                Piece::Point => {
                    if std::mem::take(&mut sign_pending) {
                        out.push_str(sign(self));
                    }
                    // A number below 1 shows its zero only where the template has a place for one.
                    if first == place
                        && place > 0
                        && !out.ends_with(|c: char| c.is_ascii_digit() || c == '#')
                        && template.fill
                    {
                        out.push('0');
                    }
                    out.push('.');
                    after_point = true;
                }
                Piece::Group => {
                    if place > first
                        || (place == first
                            && first < self.integer.len()
                            && place > 0
                            && out.ends_with(|c: char| c.is_ascii_digit()))
                    {
                        out.push(',');
                    } else if !template.fill {
                        out.push(' ');
                    }
                }
                Piece::Currency => out.push_str(if template.fill { "" } else { " " }),
                Piece::Sign(kind) => out.push_str(self.explicit_sign(*kind)),
                Piece::Literal(c) => out.push(*c),
                Piece::Ordinal { lower } => {
                    if !self.negative && !template.has_point {
                        out.push_str(ordinal(&out, *lower));
                    }
                }
            }
        }
        if sign_pending {
            out.push_str(sign(self));
        }
        if template.brackets {
            out.push_str(if self.negative {
                ">"
            } else if template.fill {
                ""
            } else {
                " "
            });
        }
        out
    }

    fn explicit_sign(&self, kind: Sign) -> &'static str {
        let blank = if self.template.fill { "" } else { " " };
        match (kind, self.negative) {
            (Sign::Anchored, _) if self.template.anchored_sign == Some(true) => "",
            (Sign::Anchored | Sign::Both | Sign::Minus, true) => "-",
            (Sign::Anchored | Sign::Both | Sign::Plus, false) => "+",
            (Sign::Minus, false) | (Sign::Plus, true) => blank,
        }
    }
}

fn ordinal(number: &str, lower: bool) -> &'static str {
    let digits: Vec<u8> = number.bytes().filter(u8::is_ascii_digit).collect();
    let teen = digits.len() > 1 && digits[digits.len() - 2] == b'1';
    let suffixes = if lower { ["st", "nd", "rd", "th"] } else { ["ST", "ND", "RD", "TH"] };
    match digits.last() {
        Some(b'1') if !teen => suffixes[0],
        Some(b'2') if !teen => suffixes[1],
        Some(b'3') if !teen => suffixes[2],
        _ => suffixes[3],
    }
}

/// `to_number(text, template)`: the digits, point and sign, whatever stands between them.
pub(in crate::function) fn to_number(arguments: &[Datum], _: &EvalContext<'_>) -> Result<Datum, SqlError> {
    let text = str_of(&arguments[0])?;
    let template = Template::parse(str_of(&arguments[1])?)?;
    let negative = text.contains('-') || (template.brackets && text.contains('<'));
    let (mut integer, mut fraction, mut after_point) = (0, 0, false);
    let mut digits = String::new();
    for c in text.chars() {
        match c {
            '0'..='9' if after_point && fraction < template.fraction_digits => {
                digits.push(c);
                fraction += 1;
            }
            '0'..='9' if after_point => {}
            '0'..='9' => {
                if integer == template.integer_digits + template.shift {
                    break;
                }
                digits.push(c);
                integer += 1;
            }
            '.' if template.has_point => {
                after_point = true;
                digits.push('.');
            }
            '.' => break,
            _ => {}
        }
    }
    if digits.trim_matches('.').is_empty() {
        return Err(SqlError::invalid_text("numeric", text.trim()));
    }
    let magnitude: Numeric = digits.trim_end_matches('.').parse()?;
    let magnitude = if template.shift > 0 {
        magnitude.divide(&Numeric::from(10i64.pow(template.shift.min(18) as u32)))?
    } else {
        magnitude
    };
    // The scale is the template's.
    let scaled = magnitude.round(template.fraction_digits as i32);
    Ok(Datum::Numeric(if negative { scaled.negate() } else { scaled }))
}
