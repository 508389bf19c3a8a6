//! Parts of texts: finding them, replacing them, cutting at them.

use super::{integer, length_result, str_of, text};
use crate::error::{SqlError, sqlstate};
use crate::function::EvalContext;
use crate::types::bounds::{Meter, PIECE, append, ask, parts as bytes_in_parts, pieces};
use crate::types::{Array, Datum, Text, TypeId};

type Computed = Result<Datum, SqlError>;

/// Tells each place where a part begins in a text, from left to right and without overlaps, until
/// `found` says that this is enough.
///
/// The text is searched in windows, between which it asks whether to go on. A window is as long as
/// a piece, or as the part if that is longer, and reaches over the next one by what a part may lie
/// across.
fn each_place(
    whole: &str,
    part: &str,
    mut found: impl FnMut(usize) -> Result<bool, SqlError>,
) -> Result<(), SqlError> {
    let mut from = 0;
    loop {
        let to = whole.ceil_char_boundary((from + part.len() + part.len().max(PIECE)).min(whole.len()));
        let mut next = from;
        for (at, _) in whole[from..to].match_indices(part) {
            if !found(from + at)? {
                return Ok(());
            }
            next = from + at + part.len();
        }
        if to == whole.len() {
            return Ok(());
        }
        from = next.max(whole.floor_char_boundary(to - part.len() + 1));
        ask()?;
    }
}

/// Where a part is first found in bytes, in time linear in both: the table says how much of the
/// part still matches after a mismatch.
fn find_bytes(whole: &[u8], part: &[u8], context: &EvalContext<'_>) -> Result<Option<usize>, SqlError> {
    if part.is_empty() || part.len() > whole.len() {
        return Ok(part.is_empty().then_some(0));
    }
    context.check_size(part.len() * size_of::<usize>())?;
    let mut table = vec![0usize; part.len()];
    let (mut matched, mut meter) = (0, Meter::default());
    for at in 1..part.len() {
        meter.add(0)?;
        while matched > 0 && part[at] != part[matched] {
            matched = table[matched - 1];
        }
        matched += usize::from(part[at] == part[matched]);
        table[at] = matched;
    }
    let (mut matched, mut at) = (0, 0);
    for bytes in bytes_in_parts(whole) {
        for byte in bytes? {
            while matched > 0 && *byte != part[matched] {
                matched = table[matched - 1];
            }
            matched += usize::from(*byte == part[matched]);
            at += 1;
            if matched == part.len() {
                return Ok(Some(at - part.len()));
            }
        }
    }
    Ok(None)
}

pub(super) fn position(arguments: &[Datum], context: &EvalContext<'_>) -> Computed {
    if let (Datum::Bytea(whole), Datum::Bytea(part)) = (&arguments[0], &arguments[1]) {
        return length_result(find_bytes(whole, part, context)?.map_or(0, |at| at + 1));
    }
    let (whole, part) = (str_of(&arguments[0])?, str_of(&arguments[1])?);
    let mut place = None;
    each_place(whole, part, |at| {
        place = Some(at);
        Ok(false)
    })?;
    length_result(place.map_or(0, |at| whole[..at].chars().count() + 1))
}

pub(super) fn replace(arguments: &[Datum], context: &EvalContext<'_>) -> Computed {
    let (whole, from, to) = (text(&arguments[0])?, str_of(&arguments[1])?, str_of(&arguments[2])?);
    let mut count = 0;
    if !from.is_empty() {
        each_place(whole.as_str(), from, |_| {
            count += 1;
            Ok(true)
        })?;
    }
    if count == 0 {
        return Ok(Datum::Text(whole.clone()));
    }
    let characters = whole.as_str();
    let bytes = characters.len() - count * from.len() + count * to.len();
    context.check_size(bytes)?;
    let (mut out, mut rest) = (Vec::with_capacity(bytes), 0);
    each_place(characters, from, |at| {
        append(&characters.as_bytes()[rest..at], &mut out)?;
        append(to.as_bytes(), &mut out)?;
        rest = at + from.len();
        Ok(true)
    })?;
    append(&characters.as_bytes()[rest..], &mut out)?;
    Ok(Datum::Text(Text::from_stored(out.into())))
}

pub(super) fn split_part(arguments: &[Datum], _: &EvalContext<'_>) -> Computed {
    let (whole, delimiter, field) = (text(&arguments[0])?, str_of(&arguments[1])?, integer(&arguments[2])?);
    if field == 0 {
        return Err(SqlError::new(sqlstate::INVALID_PARAMETER_VALUE, "field position must not be zero"));
    }
    let mut index = usize::try_from(field.unsigned_abs() - 1).unwrap_or(usize::MAX);
    let characters = whole.as_str();
    if characters.is_empty() || delimiter.is_empty() {
        let is_whole = index == 0 && !characters.is_empty();
        return Ok(if is_whole { Datum::Text(whole.clone()) } else { "".into() });
    }
    if field < 0 {
        // From the end: as many from the beginning as are before it.
        let mut count = 0;
        each_place(characters, delimiter, |_| {
            count += 1;
            Ok(true)
        })?;
        let Some(before) = usize::checked_sub(count, index) else { return Ok("".into()) };
        index = before;
    }
    let (mut start, mut end) = (0, None);
    each_place(characters, delimiter, |at| {
        if index == 0 {
            end = Some(at);
            return Ok(false);
        }
        index -= 1;
        start = at + delimiter.len();
        Ok(true)
    })?;
    // Behind the last delimiter is the last part, if that is the one.
    let end = end.or((index == 0).then_some(characters.len()));
    Ok(end.map_or_else(|| "".into(), |end| Datum::Text(whole.slice(start, end))))
}

pub(super) fn string_to_array(arguments: &[Datum], context: &EvalContext<'_>) -> Computed {
    if arguments[0].is_null() {
        return Ok(Datum::Null);
    }
    Ok(Array::new(TypeId::Text, parts(arguments, context)?).into())
}

/// The parts of a text between delimiters; single characters if the delimiter is NULL. Those equal
/// to a third argument are NULL.
pub(in crate::function) fn parts(
    arguments: &[Datum],
    context: &EvalContext<'_>,
) -> Result<Vec<Datum>, SqlError> {
    let Some(whole) = arguments[0].as_text() else { return Ok(vec![]) };
    let null = arguments.get(2).and_then(Datum::as_str);
    let characters = whole.as_str();
    let element = |part: &str| if Some(part) == null { Datum::Null } else { part.into() };
    let mut elements = Vec::new();
    // A short part is in its place; a longer one has its text elsewhere.
    let check = |count: usize| context.check_size(count * size_of::<Datum>() + characters.len());
    match arguments[1].as_str() {
        _ if characters.is_empty() => {}
        Some("") => elements.push(element(characters)),
        Some(delimiter) => {
            let mut count = 1;
            each_place(characters, delimiter, |_| {
                count += 1;
                Ok(true)
            })?;
            check(count)?;
            elements.reserve_exact(count);
            let mut start = 0;
            each_place(characters, delimiter, |at| {
                elements.push(element(&characters[start..at]));
                start = at + delimiter.len();
                Ok(true)
            })?;
            elements.push(element(&characters[start..]));
        }
        None => {
            let count = whole.chars();
            check(count)?;
            elements.reserve_exact(count);
            for piece in pieces(characters) {
                let piece = piece?;
                elements.extend(piece.char_indices().map(|(at, c)| element(&piece[at..at + c.len_utf8()])));
            }
        }
    }
    Ok(elements)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(whole: &str, part: &str) -> Vec<usize> {
        let mut places = vec![];
        each_place(whole, part, |at| {
            places.push(at);
            Ok(true)
        })
        .expect("nothing bounds it");
        places
    }

    #[test]
    fn windows_find_what_a_search_of_the_whole_finds() {
        for part in ["a", "aa", "aba", "ü", "üa", "€ü", &"ab".repeat(PIECE), &"x".repeat(PIECE + 1)] {
            for unit in ["ab", "aab", "üa", "a€ü", "x", "xxü", "b"] {
                for length in [PIECE - 1, PIECE, PIECE + 1, 3 * PIECE, 5 * PIECE + 7] {
                    let whole = unit.repeat(length / unit.len() + 1);
                    let all: Vec<usize> = whole.match_indices(part).map(|(at, _)| at).collect();
                    assert_eq!(places(&whole, part), all, "{} of {unit} x {length}", part.len());
                }
            }
        }
    }
}
