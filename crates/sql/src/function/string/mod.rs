//! Texts and byte strings.

mod format;
mod quote;

use std::collections::{HashMap, HashSet};

use bytes::Bytes;

use self::format::format_text;
pub(crate) use self::quote::quote_identifier;
use self::quote::{quote_ident, quote_literal, quote_nullable};

use super::EvalContext;
use super::math::unexpected;
use super::operator::{Operator, infix, infix_typed};
use super::registry::{Function, plain, typed};
use crate::error::{SqlError, sqlstate};
use crate::types::TypeId::{Any, AnyNonArray, Bool, Bpchar, Bytea, Int4, Int8, Text as T, TextArray};
use crate::types::{Array, Datum, Text, Type, TypeId};

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

/// Lower case, character by character, by Unicode's one-to-one mapping (as with `LC_CTYPE` C.UTF-8).
pub(super) fn lower_char(c: char) -> char {
    if c.is_ascii() {
        return c.to_ascii_lowercase();
    }
    let mut mapped = c.to_lowercase();
    match (mapped.next(), mapped.next()) {
        (Some(single), None) => single,
        _ => c,
    }
}

fn upper_char(c: char) -> char {
    if c.is_ascii() {
        return c.to_ascii_uppercase();
    }
    let mut mapped = c.to_uppercase();
    match (mapped.next(), mapped.next()) {
        (Some(single), None) => single,
        _ => c,
    }
}

fn lower(arguments: &[Datum], _: &EvalContext<'_>) -> Computed {
    Ok(str_of(&arguments[0])?.chars().map(lower_char).collect::<String>().into())
}

fn upper(arguments: &[Datum], _: &EvalContext<'_>) -> Computed {
    Ok(str_of(&arguments[0])?.chars().map(upper_char).collect::<String>().into())
}

fn initcap(arguments: &[Datum], _: &EvalContext<'_>) -> Computed {
    let mut inside = false;
    let capitalize = |c: char| {
        let changed = if inside { lower_char(c) } else { upper_char(c) };
        inside = c.is_alphanumeric();
        changed
    };
    Ok(str_of(&arguments[0])?.chars().map(capitalize).collect::<String>().into())
}

fn trim(arguments: &[Datum], start: bool, end: bool) -> Computed {
    let whole = text(&arguments[0])?;
    let set: HashSet<char> = match arguments.get(1) {
        Some(set) => str_of(set)?.chars().collect(),
        None => HashSet::from([' ']),
    };
    let characters = whole.as_str();
    let rest = if start { characters.trim_start_matches(|c| set.contains(&c)) } else { characters };
    let from = characters.len() - rest.len();
    let kept = if end { rest.trim_end_matches(|c| set.contains(&c)) } else { rest };
    Ok(Datum::Text(whole.slice(from, from + kept.len())))
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

/// First and one past the last position, from 0, of `substring(... from start for count)` within a length.
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
pub(super) fn offset_of(characters: &str, index: usize) -> usize {
    if characters.is_ascii() {
        return index.min(characters.len());
    }
    characters.char_indices().nth(index).map_or(characters.len(), |(at, _)| at)
}

fn substring(arguments: &[Datum], _: &EvalContext<'_>) -> Computed {
    if let Datum::Bytea(bytes) = &arguments[0] {
        let (start, end) = span(arguments, bytes.len())?;
        return Ok(Datum::Bytea(bytes.slice(start..end)));
    }
    let whole = text(&arguments[0])?;
    let characters = whole.as_str();
    let (start, end) = span(arguments, characters.len())?;
    Ok(Datum::Text(whole.slice(offset_of(characters, start), offset_of(characters, end))))
}

fn overlay(arguments: &[Datum], _: &EvalContext<'_>) -> Computed {
    let (whole, new) = (str_of(&arguments[0])?, str_of(&arguments[1])?);
    let start = integer(&arguments[2])?;
    if start <= 0 {
        return Err(SqlError::new(sqlstate::SUBSTRING_ERROR, "negative substring length not allowed"));
    }
    let count = match arguments.get(3) {
        Some(count) => integer(count)?,
        None => new.chars().count() as i64,
    };
    let position = |index: i64| offset_of(whole, usize::try_from(index.max(0)).unwrap_or(usize::MAX));
    let (head, tail) = (position(start - 1), position((start - 1).saturating_add(count)));
    Ok([&whole[..head], new, &whole[tail..]].concat().into())
}

/// Where a part is first found, in time linear in both: the table says how much of the part still matches after a mismatch.
fn find_bytes(whole: &[u8], part: &[u8]) -> Option<usize> {
    let mut table = vec![0usize; part.len()];
    let mut matched = 0;
    for at in 1..part.len() {
        while matched > 0 && part[at] != part[matched] {
            matched = table[matched - 1];
        }
        matched += usize::from(part[at] == part[matched]);
        table[at] = matched;
    }
    matched = 0;
    if part.is_empty() {
        return Some(0);
    }
    for (at, byte) in whole.iter().enumerate() {
        while matched > 0 && *byte != part[matched] {
            matched = table[matched - 1];
        }
        matched += usize::from(*byte == part[matched]);
        if matched == part.len() {
            return Some(at + 1 - part.len());
        }
    }
    None
}

fn position(arguments: &[Datum], _: &EvalContext<'_>) -> Computed {
    if let (Datum::Bytea(whole), Datum::Bytea(part)) = (&arguments[0], &arguments[1]) {
        return length_result(find_bytes(whole, part).map_or(0, |at| at + 1));
    }
    let (whole, part) = (str_of(&arguments[0])?, str_of(&arguments[1])?);
    length_result(whole.find(part).map_or(0, |at| whole[..at].chars().count() + 1))
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
    let end = offset_of(whole.as_str(), counted(whole.as_str(), integer(&arguments[1])?));
    Ok(Datum::Text(whole.slice(0, end)))
}

fn right(arguments: &[Datum], _: &EvalContext<'_>) -> Computed {
    let whole = text(&arguments[0])?;
    let characters = whole.as_str();
    let wanted = counted(characters, integer(&arguments[1])?);
    let skipped = characters.chars().count().saturating_sub(wanted);
    Ok(Datum::Text(whole.slice(offset_of(characters, skipped), characters.len())))
}

fn pad(arguments: &[Datum], context: &EvalContext<'_>, at_left: bool) -> Computed {
    let whole = text(&arguments[0])?;
    let target = usize::try_from(integer(&arguments[1])?.max(0)).unwrap_or(0);
    let fill: Vec<char> = match arguments.get(2) {
        Some(fill) => str_of(fill)?.chars().collect(),
        None => vec![' '],
    };
    let characters = whole.as_str();
    let have = characters.chars().count();
    if have >= target || fill.is_empty() {
        return Ok(Datum::Text(whole.slice(0, offset_of(characters, target))));
    }
    if target > MAX_BYTES / 4 {
        return Err(too_long());
    }
    let longest = fill.iter().map(|c| c.len_utf8()).max().unwrap_or(1);
    context.check_size(2 * (target - have) * longest + characters.len())?;
    let padding: String = fill.iter().cycle().take(target - have).collect();
    Ok(if at_left { padding + characters } else { characters.to_owned() + &padding }.into())
}

fn lpad(arguments: &[Datum], context: &EvalContext<'_>) -> Computed {
    pad(arguments, context, true)
}

fn rpad(arguments: &[Datum], context: &EvalContext<'_>) -> Computed {
    pad(arguments, context, false)
}

fn repeat(arguments: &[Datum], context: &EvalContext<'_>) -> Computed {
    let (characters, count) = (str_of(&arguments[0])?, integer(&arguments[1])?.max(0));
    let count = usize::try_from(count).unwrap_or(0);
    if characters.len().saturating_mul(count) > MAX_BYTES {
        return Err(too_long());
    }
    context.check_size(characters.len() * count)?;
    Ok(characters.repeat(count).into())
}

fn replace(arguments: &[Datum], context: &EvalContext<'_>) -> Computed {
    let (whole, from, to) = (text(&arguments[0])?, str_of(&arguments[1])?, str_of(&arguments[2])?);
    if from.is_empty() || !whole.as_str().contains(from) {
        return Ok(Datum::Text(whole.clone()));
    }
    if to.len() > from.len() {
        let found = whole.as_str().matches(from).count();
        context.check_size(whole.len() + found * (to.len() - from.len()))?;
    }
    let whole = whole.as_str();
    let (mut replaced, mut rest) = (String::with_capacity(whole.len()), 0);
    for (count, (at, _)) in whole.match_indices(from).enumerate() {
        if count % UNASKED == 0 {
            context.check_interrupt()?;
        }
        replaced.push_str(&whole[rest..at]);
        replaced.push_str(to);
        rest = at + from.len();
    }
    replaced.push_str(&whole[rest..]);
    Ok(replaced.into())
}

/// Places found between two questions whether to stop.
const UNASKED: usize = 1 << 14;

fn reverse(arguments: &[Datum], _: &EvalContext<'_>) -> Computed {
    Ok(str_of(&arguments[0])?.chars().rev().collect::<String>().into())
}

fn translate(arguments: &[Datum], _: &EvalContext<'_>) -> Computed {
    let from: Vec<char> = str_of(&arguments[1])?.chars().collect();
    let to: Vec<char> = str_of(&arguments[2])?.chars().collect();
    // The first of equal characters counts.
    let mut targets: HashMap<char, Option<char>> = HashMap::new();
    for (index, c) in from.into_iter().enumerate() {
        targets.entry(c).or_insert_with(|| to.get(index).copied());
    }
    let changed = str_of(&arguments[0])?.chars().filter_map(|c| targets.get(&c).copied().unwrap_or(Some(c)));
    Ok(changed.collect::<String>().into())
}

fn split_part(arguments: &[Datum], _: &EvalContext<'_>) -> Computed {
    let (whole, delimiter, field) = (text(&arguments[0])?, str_of(&arguments[1])?, integer(&arguments[2])?);
    if field == 0 {
        return Err(SqlError::new(sqlstate::INVALID_PARAMETER_VALUE, "field position must not be zero"));
    }
    let index = usize::try_from(field.unsigned_abs() - 1).unwrap_or(usize::MAX);
    let characters = whole.as_str();
    let part = if characters.is_empty() {
        None
    } else if delimiter.is_empty() {
        (index == 0).then_some(characters)
    } else if field > 0 {
        characters.split(delimiter).nth(index)
    } else {
        let parts: Vec<&str> = characters.split(delimiter).collect();
        parts.len().checked_sub(index + 1).map(|i| parts[i])
    };
    Ok(part.unwrap_or("").into())
}

fn starts_with(arguments: &[Datum], _: &EvalContext<'_>) -> Computed {
    Ok(Datum::Bool(text(&arguments[0])?.as_bytes().starts_with(text(&arguments[1])?.as_bytes())))
}

fn starts_with_operator(a: &Datum, b: &Datum, _: &EvalContext<'_>) -> Computed {
    Ok(Datum::Bool(text(a)?.as_bytes().starts_with(text(b)?.as_bytes())))
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

/// Appends the text of a value as `concat` and `||` print it.
pub(super) fn append_text(datum: &Datum, ty: Type, context: &EvalContext<'_>, out: &mut Vec<u8>) {
    datum.to_text(ty, context, out);
}

pub(super) fn from_utf8(bytes: Vec<u8>) -> Computed {
    Text::read(&bytes).map(Datum::Text)
}

fn concat(arguments: &[Datum], types: &[Type], context: &EvalContext<'_>) -> Computed {
    let mut out = Vec::new();
    for (argument, ty) in arguments.iter().zip(types) {
        append_text(argument, *ty, context, &mut out);
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
        append_text(argument, *ty, context, &mut out);
        context.check_size(out.len() + separator.len())?;
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
    out.extend_from_slice(a.as_bytes());
    out.extend_from_slice(b.as_bytes());
    Ok(Datum::Text(Text::from_stored(Bytes::from(out))))
}

/// Appends the value cast to text, which spells out booleans and drops padding.
fn append_cast(datum: &Datum, ty: Type, context: &EvalContext<'_>, out: &mut Vec<u8>) {
    match datum {
        Datum::Bool(value) => out.extend_from_slice(if *value { b"true" } else { b"false" }),
        Datum::Bpchar(text) => out.extend_from_slice(text.trim_end_blanks().as_bytes()),
        other => append_text(other, ty, context, out),
    }
}

/// Unlike `concat`, the operator casts its operand to text.
fn concatenate_any(a: &Datum, b: &Datum, types: [Type; 2], context: &EvalContext<'_>) -> Computed {
    let mut out = Vec::new();
    append_cast(a, types[0], context, &mut out);
    append_cast(b, types[1], context, &mut out);
    from_utf8(out)
}

fn concatenate_bytes(a: &Datum, b: &Datum, _: &EvalContext<'_>) -> Computed {
    Ok(Datum::Bytea([&bytes_of(a)?[..], &bytes_of(b)?[..]].concat().into()))
}

fn string_to_array(arguments: &[Datum], context: &EvalContext<'_>) -> Computed {
    if arguments[0].is_null() {
        return Ok(Datum::Null);
    }
    Ok(Array::new(TypeId::Text, parts(arguments, context)?).into())
}

/// The parts of a text between delimiters; single characters if the delimiter is NULL. Those equal to a third argument are NULL.
pub(super) fn parts(arguments: &[Datum], context: &EvalContext<'_>) -> Result<Vec<Datum>, SqlError> {
    let Some(whole) = arguments[0].as_text() else { return Ok(vec![]) };
    let null = arguments.get(2).and_then(Datum::as_str);
    let characters = whole.as_str();
    let count = match arguments[1].as_str() {
        Some("") => 1,
        Some(delimiter) => characters.matches(delimiter).count() + 1,
        None => characters.len(),
    };
    // A short part is in its place; a longer one has its text elsewhere.
    context.check_size(count * size_of::<Datum>() + characters.len())?;
    let element = |part: &str| if Some(part) == null { Datum::Null } else { part.into() };
    Ok(match arguments[1].as_str() {
        _ if characters.is_empty() => vec![],
        None => characters.split("").filter(|c| !c.is_empty()).map(element).collect(),
        Some("") => vec![element(characters)],
        Some(delimiter) => characters.split(delimiter).map(element).collect(),
    })
}

fn array_to_string(arguments: &[Datum], types: &[Type], context: &EvalContext<'_>) -> Computed {
    let (Datum::Array(array), Some(delimiter)) = (&arguments[0], arguments[1].as_str()) else {
        return Ok(Datum::Null);
    };
    let null = arguments.get(2).and_then(Datum::as_str);
    let element = types[0].element().unwrap_or(Type::new(array.element));
    let mut out = Vec::new();
    let mut first = true;
    for item in array.elements.iter().filter(|item| !item.is_null() || null.is_some()) {
        if !first {
            out.extend_from_slice(delimiter.as_bytes());
        }
        first = false;
        match null {
            Some(null) if item.is_null() => out.extend_from_slice(null.as_bytes()),
            _ => append_text(item, element, context, &mut out),
        }
        context.check_size(out.len() + delimiter.len())?;
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
    plain(3696, "starts_with", &[T, T], Bool, starts_with),
    plain(1621, "chr", &[Int4], T, chr),
    plain(1620, "ascii", &[T], Int4, ascii),
    plain(2089, "to_hex", &[Int4], T, to_hex),
    plain(2090, "to_hex", &[Int8], T, to_hex),
    typed(3058, "concat", &[Any], T, concat).variadic().called_on_null().stable(),
    typed(3059, "concat_ws", &[T, Any], T, concat_ws).variadic().called_on_null().stable(),
    typed(3540, "format", &[T], T, format_text).called_on_null().stable(),
    typed(3539, "format", &[T, Any], T, format_text).variadic().called_on_null().stable(),
    plain(1282, "quote_ident", &[T], T, quote_ident),
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
        infix_typed("||", T, AnyNonArray, T, concatenate_any).stable(),
        infix_typed("||", AnyNonArray, T, T, concatenate_any).stable(),
        infix("||", Bytea, Bytea, Bytea, concatenate_bytes),
        infix("^@", T, T, Bool, starts_with_operator),
    ]
}
