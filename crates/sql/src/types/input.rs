//! Values from their text form.

use std::sync::Arc;

use bytes::Bytes;

use super::snapshot::Snapshot;
use super::{
    Datum, EnumValue, FormatContext, Inet, Numeric, Text, Type, TypeId, array_text, bytea, cast, datetime,
    float, json, object,
};
use crate::error::{SqlError, sqlstate};

impl Datum {
    /// Reads the text form of a value of type `ty`. A modifier is applied as in an explicit-length
    /// declaration: too long is an error. 22P02 for what is no such value, 22003 for what does not
    /// fit, 22007/22008 for dates and times, 22001 for too long texts.
    pub fn from_text(ty: Type, text: &str, context: &FormatContext) -> Result<Datum, SqlError> {
        if text.as_bytes().contains(&0) {
            return Err(SqlError::new(
                sqlstate::CHARACTER_NOT_IN_REPERTOIRE,
                "invalid byte sequence for encoding \"UTF8\": 0x00",
            ));
        }
        let datum = read(ty, text, context)?;
        if ty.modifier < 0 || ty.id.is_array() { Ok(datum) } else { cast::apply_modifier(datum, ty, false) }
    }
}

fn read(ty: Type, text: &str, context: &FormatContext) -> Result<Datum, SqlError> {
    Ok(match ty.id {
        TypeId::Bool => Datum::Bool(parse_bool(text).ok_or_else(|| SqlError::invalid_text("boolean", text))?),
        TypeId::Int2 => Datum::Int2(parse_integer(text, "smallint")?),
        TypeId::Int4 => Datum::Int4(parse_integer(text, "integer")?),
        TypeId::Int8 => Datum::Int8(parse_integer(text, "bigint")?),
        TypeId::Float4 => Datum::Float4(float::parse_f32(text)?),
        TypeId::Float8 => Datum::Float8(float::parse_f64(text)?),
        TypeId::Numeric => Datum::Numeric(Numeric::parse(text)?),
        TypeId::Text | TypeId::Varchar | TypeId::Unknown => Datum::Text(text.into()),
        TypeId::Bpchar => Datum::Bpchar(text.into()),
        TypeId::Name => Datum::Text(truncate_name(text).into()),
        TypeId::InternalChar => Datum::Text(internal_char(text).into()),
        TypeId::Json => {
            json::validate(text)?;
            Datum::Text(text.into())
        }
        TypeId::Jsonb => Datum::Jsonb(json::normalize(text)?.into()),
        TypeId::Bytea => Datum::Bytea(Bytes::from(bytea::parse(text)?)),
        TypeId::Date => Datum::Date(datetime::parse_date(text, context)?),
        TypeId::Time => Datum::Time(datetime::parse_time(text, context)?),
        TypeId::Timestamp => Datum::Timestamp(datetime::parse_timestamp(text, context)?),
        TypeId::Timestamptz => Datum::Timestamptz(datetime::parse_timestamptz(text, context)?),
        TypeId::Interval => {
            Datum::Interval(datetime::parse_interval(text, ty.modifier, context.interval_style)?)
        }
        TypeId::Uuid => Datum::Uuid(parse_uuid(text).ok_or_else(|| SqlError::invalid_text("uuid", text))?),
        TypeId::Inet | TypeId::Cidr => Datum::Inet(Inet::parse(text, ty.id == TypeId::Cidr)?),
        TypeId::Enum => Datum::Enum(EnumValue::parse(ty.bare().oid(), text, context)?),
        TypeId::Oid => Datum::Oid(parse_oid(text)?),
        TypeId::Xid => Datum::Oid(parse_xid(text) as u32),
        TypeId::Xid8 => Datum::Unsigned(parse_xid(text)),
        TypeId::PgLsn => {
            Datum::Unsigned(parse_lsn(text).ok_or_else(|| SqlError::invalid_text("pg_lsn", text))?)
        }
        id if id.is_snapshot() => Datum::Text(Snapshot::parse(text)?.to_string().into()),
        id if id.is_oid() => Datum::Oid(object::parse(id, text, context)?),
        TypeId::Int2vector | TypeId::Oidvector => read_vector(ty.id, text, context)?,
        TypeId::Void => Datum::Text(Text::default()),
        id => match ty.element().filter(|_| id.is_array()) {
            // The modifier is applied to each element as it is read.
            Some(element) => Datum::Array(Arc::new(array_text::parse(text, element, context)?)),
            None => {
                let what = match id {
                    TypeId::Record => "input of anonymous composite types is not implemented".to_owned(),
                    _ => format!("cannot accept a value of type {}", id.internal_name()),
                };
                return Err(SqlError::new(sqlstate::FEATURE_NOT_SUPPORTED, what));
            }
        },
    })
}

/// Numbers separated by blanks, with subscripts from 0.
fn read_vector(id: TypeId, text: &str, context: &FormatContext) -> Result<Datum, SqlError> {
    let element = if id == TypeId::Int2vector { TypeId::Int2 } else { TypeId::Oid };
    let elements =
        text.split_ascii_whitespace().map(|item| Datum::from_text(Type::new(element), item, context));
    let elements = elements.collect::<Result<Vec<_>, _>>()?;
    Ok(Datum::Array(Arc::new(super::Array::vector(element, elements))))
}

/// A name's first 63 bytes.
pub(crate) fn truncate_name(text: &str) -> &str {
    if text.len() < 64 {
        return text;
    }
    let end = (0..64).rev().find(|&i| text.is_char_boundary(i)).unwrap_or(0);
    &text[..end]
}

/// 32 hexadecimal digits; a hyphen may stand after each group of four, and braces around all.
fn parse_uuid(text: &str) -> Option<[u8; 16]> {
    let body = match text.strip_prefix('{') {
        Some(rest) => rest.strip_suffix('}')?,
        None => text,
    };
    let bytes = body.as_bytes();
    let mut uuid = [0u8; 16];
    let mut at = 0;
    for (i, slot) in uuid.iter_mut().enumerate() {
        let high = char::from(*bytes.get(at)?).to_digit(16)?;
        let low = char::from(*bytes.get(at + 1)?).to_digit(16)?;
        *slot = (high << 4 | low) as u8;
        at += 2;
        if i % 2 == 1 && i < 15 && bytes.get(at) == Some(&b'-') {
            at += 1;
        }
    }
    (at == bytes.len()).then_some(uuid)
}

/// An unsigned number of 32 bits; negative ones wrap, as in PostgreSQL.
pub(crate) fn parse_oid(text: &str) -> Result<u32, SqlError> {
    let value: i64 = parse_integer(text, "oid")?;
    if value < i64::from(i32::MIN) || value > i64::from(u32::MAX) {
        return Err(SqlError::new(
            sqlstate::NUMERIC_VALUE_OUT_OF_RANGE,
            format!("value \"{text}\" is out of range for type oid"),
        ));
    }
    Ok(value as u32)
}

/// The id of a transaction. As in PostgreSQL 15 everything is one: the number that the text begins
/// with, decimal, octal (`0...`) or hexadecimal (`0x...`); a negative one wraps.
fn parse_xid(text: &str) -> u64 {
    let trimmed = text.trim_start_matches(|c: char| c.is_ascii_whitespace() || c == '\x0b');
    let (negative, digits) = match trimmed.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, trimmed.strip_prefix('+').unwrap_or(trimmed)),
    };
    let hexadecimal = digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X"));
    let (radix, digits) = match hexadecimal {
        Some(rest) if rest.starts_with(|c: char| c.is_ascii_hexdigit()) => (16, rest),
        _ if digits.starts_with('0') => (8, digits),
        _ => (10, digits),
    };
    let digits = digits.chars().map_while(|c| c.to_digit(radix));
    let value = digits.fold(0u64, |n, digit| n.saturating_mul(radix.into()).saturating_add(digit.into()));
    if negative { value.wrapping_neg() } else { value }
}

/// A place in the log: its two halves, in hexadecimal digits.
pub(crate) fn parse_lsn(text: &str) -> Option<u64> {
    let half = |digits: &str| match digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        true if (1..=8).contains(&digits.len()) => u64::from_str_radix(digits, 16).ok(),
        _ => None,
    };
    let (high, low) = text.split_once('/')?;
    Some(half(high)? << 32 | half(low)?)
}

/// PostgreSQL's spellings of true and false, and their unique prefixes.
pub(crate) fn parse_bool(text: &str) -> Option<bool> {
    let word = text.trim_matches(|c: char| c.is_ascii_whitespace() || c == '\x0b').to_ascii_lowercase();
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
            format!("value \"{text}\" is out of range for type {type_name}"),
        )
    })
}

/// A "char": the first character, or the byte that an octal escape means. One that is no character
/// stays written so.
pub(crate) fn internal_char(text: &str) -> String {
    let octal = text.strip_prefix('\\').filter(|digits| {
        digits.len() == 3 && digits.as_bytes()[0] < b'4' && digits.bytes().all(|b| (b'0'..b'8').contains(&b))
    });
    match octal.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
        Some(0) => String::new(),
        Some(byte) if byte < 0x80 => char::from(byte).to_string(),
        Some(_) => text.to_owned(),
        None => text.chars().next().map(String::from).unwrap_or_default(),
    }
}
