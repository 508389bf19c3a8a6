//! Floats as text: the shortest digits that read back exactly, laid out as PostgreSQL does.

use std::fmt::LowerExp;
use std::io::Write;
use std::str::FromStr;

use crate::error::{SqlError, sqlstate};

/// Appends a float8.
pub(crate) fn write_f64(value: f64, extra_digits: i32, out: &mut Vec<u8>) {
    if !value.is_finite() {
        write_special(value, out);
    } else if extra_digits > 0 {
        write_shortest(&shortest(value, f64::DIGITS, f64::MANTISSA_DIGITS), 15, out);
    } else {
        write_general(value, (15 + extra_digits).max(1) as usize, out);
    }
}

/// Appends a float4.
pub(crate) fn write_f32(value: f32, extra_digits: i32, out: &mut Vec<u8>) {
    if !value.is_finite() {
        write_special(f64::from(value), out);
    } else if extra_digits > 0 {
        write_shortest(&shortest(value, f32::DIGITS, f32::MANTISSA_DIGITS), 6, out);
    } else {
        write_general(f64::from(value), (6 + extra_digits).max(1) as usize, out);
    }
}

/// A float is midway between two texts of the shortest length only if its binary places end here:
/// written out, it has one decimal digit more than they have.
const PLACES_OF_TIES: f64 = (1u32 << 25) as f64;

/// Digits with which any float reads back exactly.
const DIGITS: usize = 17;

/// The shortest digits that read back as a float of so many bits, as `d.ddde±x`. PostgreSQL's are
/// others than the library's in two cases. Of two texts that are as near to the float, such as
/// 100000000000000.12 and .13 to 100000000000000.125, it takes the even one, and the library the
/// larger. And it takes none that is midway to the next float, such as 1e23, though it reads back.
/// No two texts of `precision` digits read back as one float.
fn shortest<F>(value: F, precision: u32, bits: u32) -> String
where
    F: Copy + Into<f64> + PartialEq + LowerExp + FromStr,
{
    let text = format!("{value:e}");
    let wide: f64 = value.into();
    let digits = text.bytes().take_while(|b| *b != b'e').filter(u8::is_ascii_digit).count();
    let reads_back = |text: &str| text.parse::<F>().is_ok_and(|read| read == value);
    if wide.fract() == 0.0 {
        if !is_midway(&text, bits) {
            return text;
        }
        let mut longer = (digits..DIGITS).map(|places| format!("{value:.places$e}"));
        return longer.find(|longer| !is_midway(longer, bits) && reads_back(longer)).unwrap_or(text);
    }
    if digits <= precision as usize || (wide * PLACES_OF_TIES).fract() != 0.0 {
        return text;
    }
    // With as many digits the library rounds to even. At a power of two the range below is the
    // narrower one, and may not have the even text.
    let even = format!("{value:.*e}", digits - 1);
    if reads_back(&even) { even } else { text }
}

/// Whether the number `d.ddde±x`, near which there is a float of so many bits, is midway between
/// two: without its factors of two it has one bit more. Only integers that end with zeros are
/// looked at: others would be longer than the float itself.
fn is_midway(text: &str, bits: u32) -> bool {
    let (mantissa, exponent) = text.split_once('e').unwrap_or((text, "0"));
    let places = mantissa.split_once('.').map_or(0, |(_, places)| places.len() as u32);
    let zeros = exponent.parse::<u32>().ok().and_then(|exponent| exponent.checked_sub(places)).unwrap_or(0);
    if zeros == 0 {
        return false;
    }
    let digits = mantissa.bytes().filter(u8::is_ascii_digit);
    let number = digits.fold(0u64, |number, digit| number * 10 + u64::from(digit - b'0'));
    let odd = number >> number.trailing_zeros();
    let product = 5u64.checked_pow(zeros).and_then(|power| odd.checked_mul(power));
    product.is_some_and(|odd| odd >> bits == 1)
}

fn write_special(value: f64, out: &mut Vec<u8>) {
    out.extend_from_slice(if value.is_nan() {
        b"NaN"
    } else if value > 0.0 {
        b"Infinity"
    } else {
        b"-Infinity"
    });
}

/// Lays out `d.ddde±x`: with a point while the exponent is at least -4 and below `limit`, else with
/// an exponent of two digits or more.
fn write_shortest(scientific: &str, limit: i32, out: &mut Vec<u8>) {
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let mantissa = match mantissa.strip_prefix('-') {
        Some(rest) => {
            out.push(b'-');
            rest
        }
        None => mantissa,
    };
    if exponent < -4 || exponent >= limit {
        out.extend_from_slice(mantissa.as_bytes());
        let sign = if exponent < 0 { '-' } else { '+' };
        // Writing to a vector does not fail.
        let _ = write!(out, "e{sign}{:02}", exponent.abs());
        return;
    }
    let digits: Vec<u8> = mantissa.bytes().filter(|b| *b != b'.').collect();
    if exponent < 0 {
        out.extend_from_slice(b"0.");
        out.resize(out.len() + (-exponent - 1) as usize, b'0');
        out.extend_from_slice(&digits);
        return;
    }
    let integer = exponent as usize + 1;
    if digits.len() <= integer {
        out.extend_from_slice(&digits);
        out.resize(out.len() + integer - digits.len(), b'0');
    } else {
        out.extend_from_slice(&digits[..integer]);
        out.push(b'.');
        out.extend_from_slice(&digits[integer..]);
    }
}

/// C's `%.{digits}g`.
fn write_general(value: f64, digits: usize, out: &mut Vec<u8>) {
    let text = format!("{value:.*e}", digits - 1);
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let mantissa =
        if mantissa.contains('.') { mantissa.trim_end_matches('0').trim_end_matches('.') } else { mantissa };
    write_shortest(&format!("{mantissa}e{exponent}"), digits as i32, out);
}

/// What a float's text may be, apart from numbers.
fn special(text: &str) -> Option<f64> {
    let is = |word: &str| text.eq_ignore_ascii_case(word);
    // C's `strtod` takes a sign before it, and so does PostgreSQL.
    if is("nan") || is("+nan") || is("-nan") {
        Some(f64::NAN)
    } else if is("infinity") || is("inf") || is("+infinity") || is("+inf") {
        Some(f64::INFINITY)
    } else if is("-infinity") || is("-inf") {
        Some(f64::NEG_INFINITY)
    } else {
        None
    }
}

fn is_number(text: &str) -> bool {
    let rest = text.strip_prefix(['+', '-']).unwrap_or(text);
    rest.bytes().next().is_some_and(|b| b.is_ascii_digit() || b == b'.')
        && rest.bytes().all(|b| b.is_ascii_digit() || matches!(b, b'.' | b'e' | b'E' | b'+' | b'-'))
}

#[cold]
fn out_of_range(text: &str, type_name: &str) -> SqlError {
    SqlError::new(
        sqlstate::NUMERIC_VALUE_OUT_OF_RANGE,
        format!("\"{text}\" is out of range for type {type_name}"),
    )
}

fn is_zero_text(text: &str) -> bool {
    !text.bytes().take_while(|b| !matches!(b, b'e' | b'E')).any(|b| matches!(b, b'1'..=b'9'))
}

/// Reads a float8. 22P02, or 22003 if it overflows or vanishes.
pub(crate) fn parse_f64(text: &str) -> Result<f64, SqlError> {
    let trimmed = text.trim_matches(|c: char| c.is_ascii_whitespace() || c == '\x0b');
    if let Some(value) = special(trimmed) {
        return Ok(value);
    }
    let invalid = || SqlError::invalid_text("double precision", text);
    let value: f64 =
        if is_number(trimmed) { trimmed.parse().map_err(|_| invalid())? } else { return Err(invalid()) };
    if value.is_infinite() || (value == 0.0 && !is_zero_text(trimmed)) {
        return Err(out_of_range(trimmed, "double precision"));
    }
    Ok(value)
}

/// Reads a float4. 22P02, or 22003 if it overflows or vanishes.
pub(crate) fn parse_f32(text: &str) -> Result<f32, SqlError> {
    let trimmed = text.trim_matches(|c: char| c.is_ascii_whitespace() || c == '\x0b');
    if let Some(value) = special(trimmed) {
        return Ok(value as f32);
    }
    let invalid = || SqlError::invalid_text("real", text);
    let value: f32 =
        if is_number(trimmed) { trimmed.parse().map_err(|_| invalid())? } else { return Err(invalid()) };
    if value.is_infinite() || (value == 0.0 && !is_zero_text(trimmed)) {
        return Err(out_of_range(trimmed, "real"));
    }
    Ok(value)
}
