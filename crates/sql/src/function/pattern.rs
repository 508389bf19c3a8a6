//! Patterns: LIKE and SIMILAR TO. The latter are translated to regular expressions.

use super::EvalContext;
use super::operator::{Operator, infix};
use super::registry::{Function, plain};
use super::string::{lower_char, mapped, str_of, text};
use crate::error::{SqlError, sqlstate};
use crate::types::Datum;
use crate::types::TypeId::{Bool, Bpchar, Bytea, Name, Text as T};
use crate::types::bounds::{Meter, PIECE, ask};

type Computed = Result<Datum, SqlError>;

#[cold]
fn pattern_ends_with_escape() -> SqlError {
    SqlError::new(sqlstate::INVALID_ESCAPE_SEQUENCE, "LIKE pattern must not end with escape character")
}

/// What `_` stands for, and where `%` may end: the offset behind the character at an offset.
type Step = fn(&[u8], usize) -> usize;

/// Does the text match a LIKE pattern, `\` being the escape? 22025.
fn like(text: &[u8], pattern: &[u8], next: Step) -> Result<bool, SqlError> {
    let (mut t, mut p) = (0, 0);
    // A text may be looked at again from each of its places, as far as the pattern is long.
    let (mut steps, is_long) = (0usize, pattern.len() > PIECE);
    // Where to go on after the last %: that place in the pattern, and the next start in the text.
    let mut retry: Option<(usize, usize)> = None;
    loop {
        if is_long {
            steps += 1;
        }
        if steps >= PIECE {
            steps = 0;
            ask()?;
        }
        let matched = match pattern.get(p) {
            Some(b'%') => {
                let Some(behind) = over_wildcards(text, pattern, (p + 1, t), next)? else { return Ok(false) };
                (p, t) = behind;
                retry = Some((p, t));
                continue;
            }
            None if t == text.len() => return Ok(true),
            None => false,
            Some(b'_') if t < text.len() => {
                t = next(text, t);
                p += 1;
                true
            }
            // An escape that ends the pattern is only an error where it is reached with text left.
            Some(b'\\') if t < text.len() => {
                let Some(literal) = pattern.get(p + 1) else { return Err(pattern_ends_with_escape()) };
                let same = text.get(t) == Some(literal);
                if same {
                    t += 1;
                    p += 2;
                }
                same
            }
            Some(byte) => {
                let same = !matches!(*byte, b'_' | b'\\') && text.get(t) == Some(byte);
                if same {
                    t += 1;
                    p += 1;
                }
                same
            }
        };
        if matched {
            continue;
        }
        match retry {
            Some((after, start)) if start < text.len() => {
                steps += t - start + 1;
                t = next(text, start);
                p = after;
                retry = Some((after, t));
            }
            _ => return Ok(false),
        }
    }
}

/// The places in the pattern and the text behind the wildcards that follow a `%`: in whatever order
/// they come, they take as many characters at least as there are `_`. None if there are too few.
/// 22025 if nothing but an escape is left, also without text, unless there was none before the `%`.
fn over_wildcards(
    text: &[u8],
    pattern: &[u8],
    (mut p, mut t): (usize, usize),
    next: Step,
) -> Result<Option<(usize, usize)>, SqlError> {
    let has_text = t < text.len();
    loop {
        match pattern.get(p) {
            Some(b'%') => p += 1,
            Some(b'_') if t < text.len() => {
                t = next(text, t);
                p += 1;
            }
            Some(b'_') => return Ok(None),
            Some(b'\\') if has_text && p + 1 == pattern.len() => return Err(pattern_ends_with_escape()),
            _ => return Ok(Some((p, t))),
        }
    }
}

/// Offset of the character after the one at `at`.
fn next_character(text: &[u8], at: usize) -> usize {
    let mut next = at + 1;
    while text.get(next).is_some_and(|b| b & 0xc0 == 0x80) {
        next += 1;
    }
    next
}

/// The characters of a bytea are its bytes.
fn next_byte(_: &[u8], at: usize) -> usize {
    at + 1
}

/// Bytes to match, and what a character of them is.
fn bytes(datum: &Datum) -> Result<(&[u8], Step), SqlError> {
    match datum {
        Datum::Bytea(bytes) => Ok((&bytes[..], next_byte as Step)),
        other => Ok((text(other)?.as_bytes(), next_character as Step)),
    }
}

fn is_like(a: &Datum, b: &Datum) -> Result<bool, SqlError> {
    let ((text, next), (pattern, _)) = (bytes(a)?, bytes(b)?);
    like(text, pattern, next)
}

fn fold(datum: &Datum) -> Result<String, SqlError> {
    mapped(str_of(datum)?, |c| Some(lower_char(c)))
}

fn like_operator(a: &Datum, b: &Datum, _: &EvalContext<'_>) -> Computed {
    is_like(a, b).map(Datum::Bool)
}

fn not_like(a: &Datum, b: &Datum, _: &EvalContext<'_>) -> Computed {
    is_like(a, b).map(|matched| Datum::Bool(!matched))
}

fn ilike(a: &Datum, b: &Datum, _: &EvalContext<'_>) -> Computed {
    like(fold(a)?.as_bytes(), fold(b)?.as_bytes(), next_character).map(Datum::Bool)
}

fn not_ilike(a: &Datum, b: &Datum, context: &EvalContext<'_>) -> Computed {
    Ok(Datum::Bool(ilike(a, b, context)?.as_bool() == Some(false)))
}

fn like_function(arguments: &[Datum], context: &EvalContext<'_>) -> Computed {
    like_operator(&arguments[0], &arguments[1], context)
}

fn not_like_function(arguments: &[Datum], context: &EvalContext<'_>) -> Computed {
    not_like(&arguments[0], &arguments[1], context)
}

/// The pattern rewritten so that `\` is the escape instead of another character, or of none.
fn like_escape(arguments: &[Datum], _: &EvalContext<'_>) -> Computed {
    let pattern = str_of(&arguments[0])?;
    let mut escape = str_of(&arguments[1])?.chars();
    let (escape, rest) = (escape.next(), escape.next());
    if rest.is_some() {
        return Err(invalid_escape());
    }
    if escape == Some('\\') {
        return Ok(arguments[0].clone());
    }
    let mut out = String::with_capacity(pattern.len());
    let mut escaped = false;
    let mut meter = Meter::default();
    for c in pattern.chars() {
        meter.add(0)?;
        if escape == Some(c) && !escaped {
            out.push('\\');
            escaped = true;
            continue;
        }
        // A backslash of its own means itself.
        if c == '\\' && !escaped {
            out.push('\\');
        }
        out.push(c);
        escaped = false;
    }
    Ok(out.into())
}

#[cold]
fn invalid_escape() -> SqlError {
    SqlError::new(sqlstate::INVALID_ESCAPE_SEQUENCE, "invalid escape string")
        .with_hint("Escape string must be empty or one character.")
}

/// A SIMILAR TO pattern as a regular expression.
///
/// Two separators (the escape character and a double quote) divide it into three parts, of which
/// `substring` gives the middle one. The parts before and after it match as little as they can: so
/// the first is made lazy, and the middle one greedy.
fn similar_to_escape(arguments: &[Datum], _: &EvalContext<'_>) -> Computed {
    let pattern = str_of(&arguments[0])?;
    let escape = match arguments.get(1) {
        Some(escape) => {
            let mut characters = str_of(escape)?.chars();
            let first = characters.next();
            if characters.next().is_some() {
                return Err(invalid_escape());
            }
            first
        }
        None => Some('\\'),
    };
    translate_similar(pattern, escape).map(Datum::from)
}

fn translate_similar(pattern: &str, escape: Option<char>) -> Result<String, SqlError> {
    let mut out = "^(?:".to_owned();
    let (mut escaped, mut separators) = (false, 0);
    // Open brackets, and how far in the outer one we are: a bracket first in it, or after its `^`,
    // means itself.
    let (mut brackets, mut place) = (0u32, 0u32);
    let mut meter = Meter::default();
    for c in pattern.chars() {
        meter.add(0)?;
        if escaped && c == '"' && brackets == 0 {
            out.push_str(match separators {
                0 => "){1,1}?(",
                1 => "){1,1}(?:",
                _ => return Err(too_many_separators()),
            });
            separators += 1;
            escaped = false;
        } else if escaped {
            out.push('\\');
            out.push(c);
            place = 3;
            escaped = false;
        } else if escape == Some(c) {
            escaped = true;
        } else if brackets > 0 {
            if c == '\\' {
                out.push('\\');
            }
            out.push(c);
            match c {
                ']' if place > 2 => brackets -= 1,
                '[' => (brackets, place) = (brackets + 1, 3),
                '^' => place += 1,
                _ => place = 3,
            }
        } else {
            match c {
                '[' => {
                    out.push('[');
                    (brackets, place) = (1, 1);
                }
                '%' => out.push_str(".*"),
                '_' => out.push('.'),
                '(' => out.push_str("(?:"),
                '\\' | '.' | '^' | '$' => out.extend(['\\', c]),
                other => out.push(other),
            }
        }
    }
    out.push_str(")$");
    Ok(out)
}

#[cold]
fn too_many_separators() -> SqlError {
    SqlError::new(
        sqlstate::INVALID_USE_OF_ESCAPE_CHARACTER,
        "SQL regular expression may not contain more than two escape-double-quote separators",
    )
}

/// `substring(text from pattern for escape)`.
fn similar_substring(arguments: &[Datum], context: &EvalContext<'_>) -> Computed {
    let pattern = similar_to_escape(&arguments[1..], context)?;
    super::regexp::substring(&[arguments[0].clone(), pattern], context)
}

pub(super) static FUNCTIONS: &[Function] = &[
    plain(1569, "like", &[T, T], Bool, like_function),
    plain(2007, "like", &[Bytea, Bytea], Bool, like_function),
    plain(1570, "notlike", &[T, T], Bool, not_like_function),
    plain(2008, "notlike", &[Bytea, Bytea], Bool, not_like_function),
    plain(1637, "like_escape", &[T, T], T, like_escape),
    plain(1987, "similar_to_escape", &[T], T, similar_to_escape),
    plain(1986, "similar_to_escape", &[T, T], T, similar_to_escape),
    plain(2074, "substring", &[T, T, T], T, similar_substring),
];

pub(super) fn operators() -> Vec<Operator> {
    let mut all =
        vec![infix("~~", Bytea, Bytea, Bool, like_operator), infix("!~~", Bytea, Bytea, Bool, not_like)];
    for left in [T, Bpchar, Name] {
        all.push(infix("~~", left, T, Bool, like_operator));
        all.push(infix("!~~", left, T, Bool, not_like));
        all.push(infix("~~*", left, T, Bool, ilike));
        all.push(infix("!~~*", left, T, Bool, not_ilike));
    }
    all
}
