//! Texts made letter by letter: other letters, another order, more of them.

use std::collections::HashMap;

use super::{MAX_BYTES, integer, offset_of, str_of, text, too_long};
use crate::error::SqlError;
use crate::function::EvalContext;
use crate::types::bounds::{Meter, PIECE, append, pieces};
use crate::types::{Datum, Text};

type Computed = Result<Datum, SqlError>;

/// Lower case, character by character, by Unicode's one-to-one mapping (as with `LC_CTYPE`
/// C.UTF-8).
pub(in crate::function) fn lower_char(c: char) -> char {
    if c.is_ascii() {
        return c.to_ascii_lowercase();
    }
    let mut mapped = c.to_lowercase();
    match (mapped.next(), mapped.next()) {
        (Some(single), None) => single,
        // The one letter whose small one Unicode has in one character and in two.
        _ if c == '\u{130}' => 'i',
        _ => c,
    }
}

/// The one-character capitals of the small Greek letters with an iota below, which in several
/// characters have others.
fn with_iota(c: char) -> char {
    let code = u32::from(c);
    let capital = match code {
        0x1f80..=0x1faf if code & 8 == 0 => code + 8,
        0x1fb3 | 0x1fc3 | 0x1ff3 => code + 9,
        _ => code,
    };
    char::from_u32(capital).unwrap_or(c)
}

fn upper_char(c: char) -> char {
    if c.is_ascii() {
        return c.to_ascii_uppercase();
    }
    let mut mapped = c.to_uppercase();
    match (mapped.next(), mapped.next()) {
        (Some(single), None) => single,
        _ => with_iota(c),
    }
}

/// Each letter replaced, or left out.
pub(in crate::function) fn mapped(
    characters: &str,
    mut map: impl FnMut(char) -> Option<char>,
) -> Result<String, SqlError> {
    let mut out = String::with_capacity(characters.len());
    for piece in pieces(characters) {
        out.extend(piece?.chars().filter_map(&mut map));
    }
    Ok(out)
}

pub(super) fn lower(arguments: &[Datum], _: &EvalContext<'_>) -> Computed {
    mapped(str_of(&arguments[0])?, |c| Some(lower_char(c))).map(Datum::from)
}

pub(super) fn upper(arguments: &[Datum], _: &EvalContext<'_>) -> Computed {
    mapped(str_of(&arguments[0])?, |c| Some(upper_char(c))).map(Datum::from)
}

pub(super) fn initcap(arguments: &[Datum], _: &EvalContext<'_>) -> Computed {
    let mut inside = false;
    let capitalize = |c: char| {
        let changed = if inside { lower_char(c) } else { upper_char(c) };
        inside = c.is_alphanumeric();
        Some(changed)
    };
    mapped(str_of(&arguments[0])?, capitalize).map(Datum::from)
}

pub(super) fn reverse(arguments: &[Datum], _: &EvalContext<'_>) -> Computed {
    let characters = str_of(&arguments[0])?;
    let mut out = vec![0; characters.len()];
    let mut at = out.len();
    for piece in pieces(characters) {
        for c in piece?.chars() {
            at -= c.len_utf8();
            c.encode_utf8(&mut out[at..]);
        }
    }
    Ok(Datum::Text(Text::from_stored(out.into())))
}

pub(super) fn translate(arguments: &[Datum], _: &EvalContext<'_>) -> Computed {
    let (mut targets, mut meter) = (HashMap::new(), Meter::default());
    let mut to = str_of(&arguments[2])?.chars();
    // The first of equal characters counts.
    for c in str_of(&arguments[1])?.chars() {
        meter.add(0)?;
        let target = to.next();
        targets.entry(c).or_insert(target);
    }
    mapped(str_of(&arguments[0])?, |c| targets.get(&c).copied().unwrap_or(Some(c))).map(Datum::from)
}

fn pad(arguments: &[Datum], context: &EvalContext<'_>, at_left: bool) -> Computed {
    let whole = text(&arguments[0])?;
    let target = usize::try_from(integer(&arguments[1])?.max(0)).unwrap_or(0);
    let characters = whole.as_str();
    let have = whole.chars();
    let fill = arguments.get(2).map_or(Ok(" "), str_of)?;
    if have >= target || fill.is_empty() {
        return Ok(Datum::Text(whole.slice(0, offset_of(characters, target)?)));
    }
    if target > MAX_BYTES / 4 {
        return Err(too_long());
    }
    let missing = target - have;
    let repeats = missing / fill.chars().count();
    let last = offset_of(fill, missing % fill.chars().count())?;
    let bytes = whole.len() + repeats * fill.len() + last;
    context.check_size(bytes)?;
    let mut out = Vec::with_capacity(bytes);
    if !at_left {
        append(whole.as_bytes(), &mut out)?;
    }
    append_repeated(fill, repeats, &mut out)?;
    append(&fill.as_bytes()[..last], &mut out)?;
    if at_left {
        append(whole.as_bytes(), &mut out)?;
    }
    Ok(Datum::Text(Text::from_stored(out.into())))
}

pub(super) fn lpad(arguments: &[Datum], context: &EvalContext<'_>) -> Computed {
    pad(arguments, context, true)
}

pub(super) fn rpad(arguments: &[Datum], context: &EvalContext<'_>) -> Computed {
    pad(arguments, context, false)
}

/// Appends a text so many times.
fn append_repeated(characters: &str, count: usize, out: &mut Vec<u8>) -> Result<(), SqlError> {
    // As many together as make a piece, so that short ones are not appended one by one.
    let together = (PIECE / characters.len().max(1)).clamp(1, count.max(1));
    let block = if together > 1 { characters.repeat(together) } else { String::new() };
    let block = if together > 1 { block.as_str() } else { characters };
    let mut meter = Meter::default();
    for _ in 0..count / together {
        meter.add(block.len())?;
        append(block.as_bytes(), out)?;
    }
    append(&block.as_bytes()[..characters.len() * (count % together)], out)
}

pub(super) fn repeat(arguments: &[Datum], context: &EvalContext<'_>) -> Computed {
    let (characters, count) = (str_of(&arguments[0])?, integer(&arguments[1])?.max(0));
    let count = usize::try_from(count).unwrap_or(0);
    let bytes = characters.len().saturating_mul(count);
    if bytes > MAX_BYTES {
        return Err(too_long());
    }
    context.check_size(bytes)?;
    let mut out = Vec::with_capacity(bytes);
    append_repeated(characters, if bytes == 0 { 0 } else { count }, &mut out)?;
    Ok(Datum::Text(Text::from_stored(out.into())))
}
