//! Values from their text form.

use bytes::Bytes;

use super::{Datum, FormatContext, Numeric, Text, Type, TypeId, cast, float};
use crate::error::{SqlError, sqlstate};

impl Datum {
    /// Reads the text form of a value of type `ty`. A modifier is applied as in an explicit-length declaration: too long is an error.
    /// 22P02 for what is no such value, 22003 for what does not fit, 22007/22008 for dates and times, 22001 for too long texts.
    pub fn from_text(ty: Type, text: &str, context: &FormatContext) -> Result<Datum, SqlError> {
        if text.as_bytes().contains(&0) {
            return Err(SqlError::new(
                sqlstate::CHARACTER_NOT_IN_REPERTOIRE,
                "invalid byte sequence for encoding \"UTF8\": 0x00",
            ));
        }
        let datum = read(ty, text, context)?;
        if ty.modifier < 0 { Ok(datum) } else { cast::apply_modifier(datum, ty, false) }
    }
}

fn read(ty: Type, text: &str, context: &FormatContext) -> Result<Datum, SqlError> {
    let _ = context;
    Ok(match ty.id {
        TypeId::Bool => Datum::Bool(parse_bool(text).ok_or_else(|| SqlError::invalid_text("boolean", text))?),
        TypeId::Int2 => Datum::Int2(parse_integer(text, "smallint")?),
        TypeId::Int4 => Datum::Int4(parse_integer(text, "integer")?),
        TypeId::Int8 => Datum::Int8(parse_integer(text, "bigint")?),
        TypeId::Float4 => Datum::Float4(float::parse_f32(text)?),
        TypeId::Float8 => Datum::Float8(float::parse_f64(text)?),
        TypeId::Numeric => Datum::Numeric(Numeric::parse(text)?),
        TypeId::Text | TypeId::Varchar | TypeId::Unknown | TypeId::Json => Datum::Text(text.into()),
        TypeId::Bpchar => Datum::Bpchar(text.into()),
        TypeId::Bytea => Datum::Bytea(Bytes::copy_from_slice(text.as_bytes())),
        TypeId::Oid => Datum::Oid(parse_integer::<i64>(text, "oid")? as u32),
        TypeId::Name => Datum::Text(Text::from(text)),
        _ => return Err(SqlError::unsupported(format!("reading type {}", ty.format()))),
    })
}

/// PostgreSQL's spellings of true and false, and their unique prefixes.
pub(crate) fn parse_bool(text: &str) -> Option<bool> {
    let word = text.trim_matches(|c: char| c.is_ascii_whitespace()).to_ascii_lowercase();
    if word.is_empty() {
        return None;
    }
    match word.as_str() {
        "1" => return Some(true),
        "0" => return Some(false),
        "on" => return Some(true),
        "o" => return None,
        _ => {}
    }
    if "true".starts_with(&word) || "yes".starts_with(&word) {
        Some(true)
    } else if "false".starts_with(&word) || "no".starts_with(&word) || "off".starts_with(&word) {
        Some(false)
    } else {
        None
    }
}

/// Reads an integer with blanks around it. 22P02, or 22003 if it does not fit.
pub(crate) fn parse_integer<T: TryFrom<i64>>(text: &str, type_name: &str) -> Result<T, SqlError> {
    let trimmed = text.trim_matches(|c: char| c.is_ascii_whitespace() || c == '\x0b');
    let (negative, digits) = match trimmed.as_bytes() {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        all => (false, all),
    };
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return Err(SqlError::invalid_text(type_name, text));
    }
    let value = digits.iter().try_fold(0i64, |n, d| {
        let n = n.checked_mul(10)?;
        let digit = i64::from(d - b'0');
        if negative { n.checked_sub(digit) } else { n.checked_add(digit) }
    });
    value.and_then(|n| T::try_from(n).ok()).ok_or_else(|| {
        SqlError::new(
            sqlstate::NUMERIC_VALUE_OUT_OF_RANGE,
            format!("value \"{trimmed}\" is out of range for type {type_name}"),
        )
    })
}
