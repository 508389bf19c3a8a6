//! Texts and byte strings.

mod format;
mod identifier;
mod letters;
mod normal;
mod quote;
mod search;
mod unistr;

use std::cmp::Ordering;
use std::collections::HashSet;

use bytes::Bytes;

use self::format::format_text;
use self::identifier::parse_ident;
use self::letters::{initcap, lower, lpad, repeat, reverse, rpad, translate, upper};
pub(super) use self::letters::{lower_char, mapped};
use self::normal::{is_normalized, normalize};
use self::quote::{quote_ident, quote_literal, quote_nullable};
pub(super) use self::search::parts;
use self::search::{position, replace, split_part, string_to_array};
use self::unistr::unistr;

use super::EvalContext;
use super::math::unexpected;
use super::operator::{Operator, infix, infix_typed};
use super::registry::{Function, plain, typed};
use crate::error::{SqlError, sqlstate};
use crate::types::TypeId::{Any, AnyNonArray, Bool, Bpchar, Bytea, Int4, Int8, Text as T, TextArray};
use crate::types::bounds::{Meter, append, pieces};
use crate::types::{Datum, Text, Type, TypeId};

type Computed = Result<Datum, SqlError>;

/// Largest text a function makes, in bytes.
const MAX_BYTES: usize = 0x3fff_ffff;

/// The text of a datum.
pub(super) fn text(datum: &Datum) -> Result<&Text, SqlError> {
    datum.as_text().ok_or_else(|| unexpected(&[datum]))
}

/// The characters of a datum.
pub(super) fn str_of(datum: &Datum) -> Result<&str, SqlError> {
    datum.as_str().ok_or_else(|| unexpected(&[datum]))
}

/// The integer of a datum.
pub(super) fn integer(datum: &Datum) -> Result<i64, SqlError> {
    datum.as_i64().ok_or_else(|| unexpected(&[datum]))
}

fn bytes_of(datum: &Datum) -> Result<&Bytes, SqlError> {
    if let Datum::Bytea(bytes) = datum { Ok(bytes) } else { Err(unexpected(&[datum])) }
}

#[cold]
pub(super) fn too_long() -> SqlError {
    SqlError::new(sqlstate::PROGRAM_LIMIT_EXCEEDED, "requested length too large")
}

fn length_result(length: usize) -> Computed {
    i32::try_from(length).map(Datum::Int4).map_err(|_| SqlError::out_of_range("integer"))
}

fn length(arguments: &[Datum], _: &EvalContext<'_>) -> Computed {
    match &arguments[0] {
        Datum::Bytea(bytes) => length_result(bytes.len()),
        // Padding does not count.
        Datum::Bpchar(text) => length_result(text.trim_end_blanks().chars()),
        other => length_result(text(other)?.chars()),
    }
}

fn octet_length(arguments: &[Datum], _: &EvalContext<'_>) -> Computed {
    match &arguments[0] {
        Datum::Bytea(bytes) => length_result(bytes.len()),
        other => length_result(text(other)?.len()),
    }
}

fn bit_length(arguments: &[Datum], context: &EvalContext<'_>) -> Computed {
    match octet_length(arguments, context)? {
        Datum::Int4(bytes) => length_result(bytes as usize * 8),
        other => Ok(other),
    }
}

fn trim(arguments: &[Datum], start: bool, end: bool) -> Computed {
    let whole = text(&arguments[0])?;
    let set: HashSet<char> = match arguments.get(1) {
        Some(set) => str_of(set)?.chars().collect(),
        None => HashSet::from([' ']),
    };
    let (characters, mut meter) = (whole.as_str(), Meter::default());
    let (mut from, mut to) = (0, characters.len());
    let mut is_cut = |c: char| meter.add(0).map(|()| set.contains(&c));
    for c in characters.chars().take_while(|_| start) {
        if !is_cut(c)? {
            break;
        }
        from += c.len_utf8();
    }
    for c in characters[from..].chars().rev().take_while(|_| end) {
        if !is_cut(c)? {
            break;
        }
        to -= c.len_utf8();
    }
    Ok(Datum::Text(whole.slice(from, to)))
}

fn btrim(arguments: &[Datum], _: &EvalContext<'_>) -> Computed {
    trim(arguments, true, true)
}

fn ltrim(arguments: &[Datum], _: &EvalContext<'_>) -> Computed {
    trim(arguments, true, false)
}

fn rtrim(arguments: &[Datum], _: &EvalContext<'_>) -> Computed {
    trim(arguments, false, true)
}

/// First and one past the last position, from 0, of `substring(... from start for count)` within a
/// length.
fn span(arguments: &[Datum], length: usize) -> Result<(usize, usize), SqlError> {
    let start = integer(&arguments[1])?;
    let end = match arguments.get(2) {
        Some(count) => {
            let count = integer(count)?;
            if count < 0 {
                return Err(SqlError::new(
                    sqlstate::SUBSTRING_ERROR,
                    "negative substring length not allowed",
                ));
            }
            start.saturating_add(count)
        }
        None => i64::MAX,
    };
    let clamp =
        |position: i64| usize::try_from(position.saturating_sub(1).max(0)).unwrap_or(length).min(length);
    let (start, end) = (clamp(start), clamp(end));
    Ok((start, end.max(start)))
}

/// Byte offset of the character at this index, or the end.
pub(super) fn offset_of(characters: &str, index: usize) -> Result<usize, SqlError> {
    if characters.is_ascii() {
        return Ok(index.min(characters.len()));
    }
    let (mut offset, mut left) = (0, index);
    for piece in pieces(characters) {
        let piece = piece?;
        let count = piece.chars().count();
        if left < count {
            return Ok(offset + piece.char_indices().nth(left).map_or(piece.len(), |(at, _)| at));
        }
        left -= count;
        offset += piece.len();
    }
    Ok(offset)
}

fn substring(arguments: &[Datum], _: &EvalContext<'_>) -> Computed {
    if let Datum::Bytea(bytes) = &arguments[0] {
        let (start, end) = span(arguments, bytes.len())?;
        return Ok(Datum::Bytea(bytes.slice(start..end)));
    }
    let whole = text(&arguments[0])?;
    let characters = whole.as_str();
    let (start, end) = span(arguments, characters.len())?;
    Ok(Datum::Text(whole.slice(offset_of(characters, start)?, offset_of(characters, end)?)))
}

fn overlay(arguments: &[Datum], context: &EvalContext<'_>) -> Computed {
    let start = integer(&arguments[2])?;
    if start <= 0 {
        return Err(SqlError::new(sqlstate::SUBSTRING_ERROR, "negative substring length not allowed"));
    }
    // The place behind what is replaced, which is as long as what replaces it unless that is said.
    let end = |length: usize| {
        let count = arguments.get(3).map_or(Ok(length as i64), integer)?;
        i32::try_from(start + count).map(i64::from).map_err(|_| SqlError::out_of_range("integer"))
    };
    let index = |place: i64| usize::try_from(place - 1).unwrap_or(0);
    if let (Datum::Bytea(whole), Datum::Bytea(new)) = (&arguments[0], &arguments[1]) {
        let (head, tail) = (index(start).min(whole.len()), index(end(new.len())?).min(whole.len()));
        return Ok(Datum::Bytea(joined([&whole[..head], &new[..], &whole[tail..]], context)?.into()));
    }
    let (whole, new) = (str_of(&arguments[0])?, str_of(&arguments[1])?);
    let head = offset_of(whole, index(start))?;
    let tail = offset_of(whole, index(end(new.chars().count())?))?;
    let parts = [&whole[..head], new, &whole[tail..]];
    Ok(Datum::Text(Text::from_stored(joined(parts.map(str::as_bytes), context)?.into())))
}

/// Three parts one after the other.
fn joined(parts: [&[u8]; 3], context: &EvalContext<'_>) -> Result<Vec<u8>, SqlError> {
    let bytes: usize = parts.iter().map(|part| part.len()).sum();
    context.check_size(bytes)?;
    let mut out = Vec::with_capacity(bytes);
    for part in parts {
        append(part, &mut out)?;
    }
    Ok(out)
}

/// Number of characters that a count from the left or (negative) all but so many means.
fn counted(characters: &str, count: i64) -> usize {
    if count >= 0 {
        return usize::try_from(count).unwrap_or(usize::MAX);
    }
    let all = characters.chars().count() as i64;
    usize::try_from(all.saturating_add(count)).unwrap_or(0)
}

fn left(arguments: &[Datum], _: &EvalContext<'_>) -> Computed {
    let whole = text(&arguments[0])?;
    let end = offset_of(whole.as_str(), counted(whole.as_str(), integer(&arguments[1])?))?;
    Ok(Datum::Text(whole.slice(0, end)))
}

fn right(arguments: &[Datum], _: &EvalContext<'_>) -> Computed {
    let whole = text(&arguments[0])?;
    let characters = whole.as_str();
    let wanted = counted(characters, integer(&arguments[1])?);
    let skipped = characters.chars().count().saturating_sub(wanted);
    Ok(Datum::Text(whole.slice(offset_of(characters, skipped)?, characters.len())))
}

fn starts_with(arguments: &[Datum], _: &EvalContext<'_>) -> Computed {
    Ok(Datum::Bool(text(&arguments[0])?.as_bytes().starts_with(text(&arguments[1])?.as_bytes())))
}

fn starts_with_operator(a: &Datum, b: &Datum, _: &EvalContext<'_>) -> Computed {
    Ok(Datum::Bool(text(a)?.as_bytes().starts_with(text(b)?.as_bytes())))
}

/// The operators that order by bytes. All texts are ordered so here, char(n) without its padding.
fn by_bytes(a: &Datum, b: &Datum, holds: fn(Ordering) -> bool) -> Computed {
    Ok(Datum::Bool(holds(a.compare(b))))
}

fn chr(arguments: &[Datum], _: &EvalContext<'_>) -> Computed {
    let code = integer(&arguments[0])?;
    if code == 0 {
        return Err(SqlError::new(sqlstate::PROGRAM_LIMIT_EXCEEDED, "null character not permitted"));
    }
    if code < 0 {
        return Err(SqlError::new(sqlstate::INVALID_PARAMETER_VALUE, "character number must be positive"));
    }
    let character = u32::try_from(code).ok().and_then(char::from_u32);
    character.map(|c| c.to_string().into()).ok_or_else(|| {
        SqlError::new(
            sqlstate::PROGRAM_LIMIT_EXCEEDED,
            if code > 0x10_ffff {
                format!("requested character too large for encoding: {code}")
            } else {
                format!("requested character not valid for encoding: {code}")
            },
        )
    })
}

fn ascii(arguments: &[Datum], _: &EvalContext<'_>) -> Computed {
    Ok(Datum::Int4(str_of(&arguments[0])?.chars().next().map_or(0, |c| c as i32)))
}

fn to_hex(arguments: &[Datum], _: &EvalContext<'_>) -> Computed {
    Ok(match &arguments[0] {
        Datum::Int4(value) => format!("{value:x}").into(),
        other => format!("{:x}", integer(other)?).into(),
    })
}

/// Appends the text of a value as `concat` and `||` print it. 53200 for more than a statement may
/// hold.
fn append_text(
    datum: &Datum,
    ty: Type,
    context: &EvalContext<'_>,
    out: &mut Vec<u8>,
) -> Result<(), SqlError> {
    if let Some(text) = datum.as_text() {
        context.check_size(out.len() + text.len())?;
        return append(text.as_bytes(), out);
    }
    datum.write_text(ty, context, out)?;
    context.check_size(out.len())
}

/// A value's text as a string.
fn text_form(datum: &Datum, ty: Type, context: &EvalContext<'_>) -> Result<String, SqlError> {
    let mut out = Vec::new();
    append_text(datum, ty, context, &mut out)?;
    Ok(String::from_utf8(out).unwrap_or_default())
}

pub(super) fn from_utf8(bytes: Vec<u8>) -> Computed {
    Text::take(bytes).map(Datum::Text)
}

fn concat(arguments: &[Datum], types: &[Type], context: &EvalContext<'_>) -> Computed {
    let mut out = Vec::new();
    for (argument, ty) in arguments.iter().zip(types) {
        append_text(argument, *ty, context, &mut out)?;
    }
    from_utf8(out)
}

fn concat_ws(arguments: &[Datum], types: &[Type], context: &EvalContext<'_>) -> Computed {
    let Some(separator) = arguments[0].as_str() else { return Ok(Datum::Null) };
    let mut out = Vec::new();
    let mut first = true;
    for (argument, ty) in arguments.iter().zip(types).skip(1).filter(|(a, _)| !a.is_null()) {
        if !first {
            out.extend_from_slice(separator.as_bytes());
        }
        first = false;
        append_text(argument, *ty, context, &mut out)?;
    }
    from_utf8(out)
}

fn concatenate(a: &Datum, b: &Datum, context: &EvalContext<'_>) -> Computed {
    let (a, b) = (text(a)?, text(b)?);
    if a.len() + b.len() > MAX_BYTES {
        return Err(too_long());
    }
    context.check_size(a.len() + b.len())?;
    let mut out = Vec::with_capacity(a.len() + b.len());
    append(a.as_bytes(), &mut out)?;
    append(b.as_bytes(), &mut out)?;
    Ok(Datum::Text(Text::from_stored(Bytes::from(out))))
}

/// Appends the value cast to text, which spells out booleans and the bits of networks and drops
/// padding.
fn append_cast(
    datum: &Datum,
    ty: Type,
    context: &EvalContext<'_>,
    out: &mut Vec<u8>,
) -> Result<(), SqlError> {
    match datum {
        Datum::Bool(value) => out.extend_from_slice(if *value { b"true" } else { b"false" }),
        Datum::Bpchar(text) => out.extend_from_slice(text.trim_end_blanks().as_bytes()),
        Datum::Inet(value) => value.write(true, out),
        other => append_text(other, ty, context, out)?,
    }
    Ok(())
}

/// Unlike `concat`, the operator casts its operand to text.
fn concatenate_any(a: &Datum, b: &Datum, types: [Type; 2], context: &EvalContext<'_>) -> Computed {
    let mut out = Vec::new();
    append_cast(a, types[0], context, &mut out)?;
    append_cast(b, types[1], context, &mut out)?;
    from_utf8(out)
}

fn concatenate_bytes(a: &Datum, b: &Datum, context: &EvalContext<'_>) -> Computed {
    let (a, b) = (bytes_of(a)?, bytes_of(b)?);
    context.check_size(a.len() + b.len())?;
    let mut out = Vec::with_capacity(a.len() + b.len());
    append(a, &mut out)?;
    append(b, &mut out)?;
    Ok(Datum::Bytea(out.into()))
}

fn array_to_string(arguments: &[Datum], types: &[Type], context: &EvalContext<'_>) -> Computed {
    let (Datum::Array(array), Some(delimiter)) = (&arguments[0], arguments[1].as_str()) else {
        return Ok(Datum::Null);
    };
    let null = arguments.get(2).and_then(Datum::as_str);
    let element = types[0].element().unwrap_or(Type::new(array.element));
    let (mut out, mut meter) = (Vec::new(), Meter::default());
    let mut first = true;
    for item in array.elements.iter().filter(|item| !item.is_null() || null.is_some()) {
        if !first {
            out.extend_from_slice(delimiter.as_bytes());
        }
        first = false;
        match null {
            Some(null) if item.is_null() => out.extend_from_slice(null.as_bytes()),
            _ => append_text(item, element, context, &mut out)?,
        }
        context.check_size(out.len() + delimiter.len())?;
        meter.add(0)?;
    }
    from_utf8(out)
}

pub(super) static FUNCTIONS: &[Function] = &[
    plain(1317, "length", &[T], Int4, length),
    plain(1318, "length", &[Bpchar], Int4, length),
    plain(2010, "length", &[Bytea], Int4, length),
    plain(1381, "char_length", &[T], Int4, length),
    plain(1372, "char_length", &[Bpchar], Int4, length),
    plain(1369, "character_length", &[T], Int4, length),
    plain(1367, "character_length", &[Bpchar], Int4, length),
    plain(1374, "octet_length", &[T], Int4, octet_length),
    plain(1375, "octet_length", &[Bpchar], Int4, octet_length),
    plain(720, "octet_length", &[Bytea], Int4, octet_length),
    plain(1811, "bit_length", &[T], Int4, bit_length),
    plain(1810, "bit_length", &[Bytea], Int4, bit_length),
    plain(870, "lower", &[T], T, lower),
    plain(871, "upper", &[T], T, upper),
    plain(872, "initcap", &[T], T, initcap),
    plain(885, "btrim", &[T], T, btrim),
    plain(884, "btrim", &[T, T], T, btrim),
    plain(881, "ltrim", &[T], T, ltrim),
    plain(875, "ltrim", &[T, T], T, ltrim),
    plain(882, "rtrim", &[T], T, rtrim),
    plain(876, "rtrim", &[T, T], T, rtrim),
    plain(937, "substring", &[T, Int4], T, substring),
    plain(936, "substring", &[T, Int4, Int4], T, substring),
    plain(2013, "substring", &[Bytea, Int4], Bytea, substring),
    plain(2012, "substring", &[Bytea, Int4, Int4], Bytea, substring),
    plain(883, "substr", &[T, Int4], T, substring),
    plain(877, "substr", &[T, Int4, Int4], T, substring),
    plain(2086, "substr", &[Bytea, Int4], Bytea, substring),
    plain(2085, "substr", &[Bytea, Int4, Int4], Bytea, substring),
    plain(1405, "overlay", &[T, T, Int4], T, overlay),
    plain(1404, "overlay", &[T, T, Int4, Int4], T, overlay),
    plain(752, "overlay", &[Bytea, Bytea, Int4], Bytea, overlay),
    plain(749, "overlay", &[Bytea, Bytea, Int4, Int4], Bytea, overlay),
    plain(849, "position", &[T, T], Int4, position),
    plain(2014, "position", &[Bytea, Bytea], Int4, position),
    plain(868, "strpos", &[T, T], Int4, position),
    plain(3060, "left", &[T, Int4], T, left),
    plain(3061, "right", &[T, Int4], T, right),
    plain(879, "lpad", &[T, Int4], T, lpad),
    plain(873, "lpad", &[T, Int4, T], T, lpad),
    plain(880, "rpad", &[T, Int4], T, rpad),
    plain(874, "rpad", &[T, Int4, T], T, rpad),
    plain(1622, "repeat", &[T, Int4], T, repeat),
    plain(2087, "replace", &[T, T, T], T, replace),
    plain(3062, "reverse", &[T], T, reverse),
    plain(878, "translate", &[T, T, T], T, translate),
    plain(2088, "split_part", &[T, T, Int4], T, split_part),
    plain(4350, "normalize", &[T, T], T, normalize).with_optional(1),
    plain(4351, "is_normalized", &[T, T], Bool, is_normalized).with_optional(1),
    plain(3696, "starts_with", &[T, T], Bool, starts_with),
    plain(1621, "chr", &[Int4], T, chr),
    plain(1620, "ascii", &[T], Int4, ascii),
    plain(6198, "unistr", &[T], T, unistr),
    plain(2089, "to_hex", &[Int4], T, to_hex),
    plain(2090, "to_hex", &[Int8], T, to_hex),
    typed(3058, "concat", &[Any], T, concat).variadic().called_on_null().stable(),
    typed(3059, "concat_ws", &[T, Any], T, concat_ws).variadic().called_on_null().stable(),
    typed(3540, "format", &[T], T, format_text).called_on_null().stable(),
    typed(3539, "format", &[T, Any], T, format_text).variadic().called_on_null().stable(),
    plain(1282, "quote_ident", &[T], T, quote_ident),
    plain(1268, "parse_ident", &[T, Bool], TextArray, parse_ident)
        .with_optional(1)
        .with_names(&["str", "strict"]),
    typed(1283, "quote_literal", &[T], T, quote_literal),
    typed(1285, "quote_literal", &[TypeId::AnyElement], T, quote_literal).stable(),
    typed(1289, "quote_nullable", &[T], T, quote_nullable).called_on_null(),
    typed(1290, "quote_nullable", &[TypeId::AnyElement], T, quote_nullable).called_on_null().stable(),
    plain(394, "string_to_array", &[T, T], TextArray, string_to_array).called_on_null(),
    plain(376, "string_to_array", &[T, T, T], TextArray, string_to_array).called_on_null(),
    typed(395, "array_to_string", &[TypeId::AnyArray, T], T, array_to_string).stable(),
    typed(384, "array_to_string", &[TypeId::AnyArray, T, T], T, array_to_string).called_on_null().stable(),
];

pub(super) fn operators() -> Vec<Operator> {
    vec![
        infix("||", T, T, T, concatenate),
        infix_typed("||", T, AnyNonArray, T, concatenate_any).writing_operands(),
        infix_typed("||", AnyNonArray, T, T, concatenate_any).writing_operands(),
        infix("||", Bytea, Bytea, Bytea, concatenate_bytes),
        infix("^@", T, T, Bool, starts_with_operator),
        infix("~<~", T, T, Bool, |a, b, _| by_bytes(a, b, Ordering::is_lt)),
        infix("~<=~", T, T, Bool, |a, b, _| by_bytes(a, b, Ordering::is_le)),
        infix("~>=~", T, T, Bool, |a, b, _| by_bytes(a, b, Ordering::is_ge)),
        infix("~>~", T, T, Bool, |a, b, _| by_bytes(a, b, Ordering::is_gt)),
        infix("~<~", Bpchar, Bpchar, Bool, |a, b, _| by_bytes(a, b, Ordering::is_lt)),
        infix("~<=~", Bpchar, Bpchar, Bool, |a, b, _| by_bytes(a, b, Ordering::is_le)),
        infix("~>=~", Bpchar, Bpchar, Bool, |a, b, _| by_bytes(a, b, Ordering::is_ge)),
        infix("~>~", Bpchar, Bpchar, Bool, |a, b, _| by_bytes(a, b, Ordering::is_gt)),
    ]
}
