//! Numerics from and to texts, integers and floats.

use super::{Finite, MAX_SCALE, Numeric, Repr, big_power_of_ten, overflow, power_of_ten};
use crate::error::{SqlError, sqlstate};
use crate::types::bounds::count_leading;

impl From<i64> for Numeric {
    fn from(value: i64) -> Numeric {
        Numeric::new(i128::from(value), 0)
    }
}

impl From<i32> for Numeric {
    fn from(value: i32) -> Numeric {
        Numeric::new(i128::from(value), 0)
    }
}

impl From<i128> for Numeric {
    fn from(value: i128) -> Numeric {
        Numeric::new(value, 0)
    }
}

impl std::str::FromStr for Numeric {
    type Err = SqlError;

    /// Reads PostgreSQL's input syntax: `-12.50`, `1e-3`, `NaN`, `Infinity`, blanks around it.
    fn from_str(text: &str) -> Result<Numeric, SqlError> {
        Numeric::parse(text)
    }
}

impl Numeric {
    /// See [`FromStr`](std::str::FromStr).
    pub fn parse(text: &str) -> Result<Numeric, SqlError> {
        let trimmed = text.trim_matches(|c: char| c.is_ascii_whitespace() || c == '\x0b');
        parse_finite(trimmed)?
            .or_else(|| parse_special(trimmed))
            .ok_or_else(|| SqlError::invalid_text("numeric", text))
    }

    /// Appends the text form.
    pub fn write_text(&self, out: &mut Vec<u8>) {
        match &self.0 {
            Repr::NaN => out.extend_from_slice(b"NaN"),
            Repr::PositiveInfinity => out.extend_from_slice(b"Infinity"),
            Repr::NegativeInfinity => out.extend_from_slice(b"-Infinity"),
            Repr::Small { scale, .. } => {
                let value = self.small().map_or(0, |(value, _)| value);
                if value < 0 {
                    out.push(b'-');
                }
                let mut buffer = [0u8; 40];
                let digits = format_magnitude(value.unsigned_abs(), &mut buffer);
                write_with_point(digits, usize::from(*scale), out);
            }
            Repr::Big(big) => {
                if self.signum() < 0 {
                    out.push(b'-');
                }
                let digits = big.mantissa.magnitude().to_string();
                write_with_point(digits.as_bytes(), usize::from(big.scale), out);
            }
        }
    }

    /// The nearest float8.
    pub fn to_f64(&self) -> f64 {
        match &self.0 {
            Repr::NaN => f64::NAN,
            Repr::PositiveInfinity => f64::INFINITY,
            Repr::NegativeInfinity => f64::NEG_INFINITY,
            _ => {
                if let Some((value, 0)) = self.small() {
                    return value as f64;
                }
                // Through the text: correctly rounded whatever the size.
                self.to_string().parse().unwrap_or(f64::NAN)
            }
        }
    }

    /// A float8 as numeric: 15 significant digits, as PostgreSQL converts.
    pub fn from_f64(value: f64) -> Result<Numeric, SqlError> {
        Numeric::from_float(value, 15)
    }

    /// A float4 as numeric: 6 significant digits.
    pub fn from_f32(value: f32) -> Result<Numeric, SqlError> {
        Numeric::from_float(f64::from(value), 6)
    }

    fn from_float(value: f64, digits: usize) -> Result<Numeric, SqlError> {
        if value.is_nan() {
            return Ok(Numeric::NAN);
        }
        if value.is_infinite() {
            return Ok(if value > 0.0 { Numeric::INFINITY } else { Numeric::NEG_INFINITY });
        }
        // `%.{digits}g`: that many significant digits, zeros at the end dropped.
        let text = format!("{value:.*e}", digits - 1);
        let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        let mantissa = if mantissa.contains('.') {
            mantissa.trim_end_matches('0').trim_end_matches('.')
        } else {
            mantissa
        };
        Numeric::parse(&format!("{mantissa}e{exponent}"))
    }

    /// Rounded to an integer of 64 bits; 22003 if it does not fit, 0A000 for NaN and infinities,
    /// naming `type_name`.
    pub fn to_i64(&self, type_name: &str) -> Result<i64, SqlError> {
        let rounded = match &self.0 {
            Repr::NaN => return Err(cannot_convert("NaN", type_name)),
            Repr::PositiveInfinity | Repr::NegativeInfinity => {
                return Err(cannot_convert("infinity", type_name));
            }
            _ => self.round(0),
        };
        let value = rounded.small().and_then(|(value, _)| i64::try_from(value).ok());
        value.ok_or_else(|| SqlError::out_of_range(type_name))
    }
}

fn cannot_convert(what: &str, type_name: &str) -> SqlError {
    SqlError::new(sqlstate::FEATURE_NOT_SUPPORTED, format!("cannot convert {what} to {type_name}"))
}

fn parse_special(text: &str) -> Option<Numeric> {
    let is = |word: &str| text.eq_ignore_ascii_case(word);
    if is("nan") {
        Some(Numeric::NAN)
    } else if is("infinity") || is("inf") || is("+infinity") || is("+inf") {
        Some(Numeric::INFINITY)
    } else if is("-infinity") || is("-inf") {
        Some(Numeric::NEG_INFINITY)
    } else {
        None
    }
}

/// `Ok(None)` if the text is no decimal number.
fn parse_finite(text: &str) -> Result<Option<Numeric>, SqlError> {
    let (negative, rest) = match text.as_bytes().first() {
        Some(b'-') => (true, &text[1..]),
        Some(b'+') => (false, &text[1..]),
        _ => (false, text),
    };
    let (integer, rest) = digits(rest)?;
    let (fraction, rest) = match rest.strip_prefix('.') {
        Some(rest) => digits(rest)?,
        None => ("", rest),
    };
    if integer.len() + fraction.len() == 0 {
        return Ok(None);
    }
    let exponent = match rest.strip_prefix(['e', 'E']) {
        None if rest.is_empty() => 0,
        None => return Ok(None),
        Some(text) => {
            let (digits, rest) = digits(text.strip_prefix(['+', '-']).unwrap_or(text))?;
            if digits.is_empty() || !rest.is_empty() {
                return Ok(None);
            }
            text.parse::<i32>()
                .ok()
                .filter(|e| e.unsigned_abs() < i32::MAX as u32 / 2)
                .ok_or_else(overflow)?
        }
    };
    build(negative, integer, fraction, exponent).map(Some)
}

/// The digits that a text begins with, and what is behind them.
fn digits(text: &str) -> Result<(&str, &str), SqlError> {
    let count = count_leading(text.as_bytes(), |byte| byte.is_ascii_digit())?;
    Ok(text.split_at(count))
}

/// Digits without the zeros that they begin with.
fn without_zeros(digits: &str) -> Result<&str, SqlError> {
    let count = count_leading(digits.as_bytes(), |byte| byte == b'0')?;
    Ok(&digits[count..])
}

fn build(negative: bool, integer: &str, fraction: &str, exponent: i32) -> Result<Numeric, SqlError> {
    let scale = fraction.len() as i64 - i64::from(exponent);
    if scale > i64::from(MAX_SCALE) {
        return Err(overflow());
    }
    let integer = without_zeros(integer)?;
    let fraction = if integer.is_empty() { without_zeros(fraction)? } else { fraction };
    let count = integer.len() + fraction.len();
    // A positive exponent beyond the fraction multiplies.
    let factor = u32::try_from(-scale).unwrap_or(0);
    let shown = u32::try_from(scale).unwrap_or(0);
    if count == 0 {
        return Ok(Numeric::new(0, shown as u16));
    }
    // Before the digits are put together, which takes far longer than counting them.
    if count as i64 - scale > super::MAX_INTEGER_DIGITS {
        return Err(overflow());
    }
    if count <= 38 {
        let digits = integer.bytes().chain(fraction.bytes());
        let value = digits.fold(0i128, |value, byte| value * 10 + i128::from(byte - b'0'));
        let value = if negative { -value } else { value };
        if let Some(scaled) = power_of_ten(factor).and_then(|p| value.checked_mul(p)) {
            return Ok(Numeric::new(scaled, shown as u16));
        }
    }
    let digits = [integer.as_bytes(), fraction.as_bytes()].concat();
    let magnitude = super::radix::parse(&digits).ok_or_else(overflow)? * big_power_of_ten(factor);
    Numeric::from_big(if negative { -magnitude } else { magnitude }, shown)
}

/// Decimal digits of `value` at the end of `buffer`.
fn format_magnitude(value: u128, buffer: &mut [u8; 40]) -> &[u8] {
    let mut at = buffer.len();
    let mut rest = value;
    // Machine words divide much faster than 128 bits.
    while rest > u128::from(u64::MAX) {
        let mut chunk = (rest % 10_000_000_000_000_000_000) as u64;
        rest /= 10_000_000_000_000_000_000;
        for _ in 0..19 {
            at -= 1;
            buffer[at] = b'0' + (chunk % 10) as u8;
            chunk /= 10;
        }
    }
    let mut rest = rest as u64;
    loop {
        at -= 1;
        buffer[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    &buffer[at..]
}

fn write_with_point(digits: &[u8], scale: usize, out: &mut Vec<u8>) {
    if scale == 0 {
        out.extend_from_slice(digits);
        return;
    }
    if let Some(integer) = digits.len().checked_sub(scale).filter(|&n| n > 0) {
        out.extend_from_slice(&digits[..integer]);
        out.push(b'.');
        out.extend_from_slice(&digits[integer..]);
    } else {
        out.extend_from_slice(b"0.");
        out.resize(out.len() + scale - digits.len(), b'0');
        out.extend_from_slice(digits);
    }
}

impl Finite<'_> {
    /// Decimal digits of the magnitude.
    pub(super) fn digits(&self) -> Vec<u8> {
        match self {
            Finite::Small(value, _) => {
                let mut buffer = [0u8; 40];
                format_magnitude(value.unsigned_abs(), &mut buffer).to_vec()
            }
            Finite::Big(value, _) => super::radix::text(value.magnitude()),
        }
    }
}
