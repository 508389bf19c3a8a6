//! Patterns: LIKE, SIMILAR TO and regular expressions.
//!
//! Regular expressions run on the `regex` crate, in time linear in the text: back references and look-around of PostgreSQL's
//! advanced expressions are refused with 2201B. Word boundaries `\m \M \y \Y` and flags are translated.

use std::cell::RefCell;
use std::collections::HashMap;

use regex::{Captures, Regex, RegexBuilder};

use super::EvalContext;
use super::operator::{Operator, infix};
use super::registry::{Function, plain, set};
use super::string::{integer, lower_char, offset_of, str_of, text};
use crate::error::{SqlError, sqlstate};
use crate::types::TypeId::{Bool, Bpchar, Bytea, Int4, Name, Text as T, TextArray};
use crate::types::{Array, Datum, TypeId};

type Computed = Result<Datum, SqlError>;

/// Compiled expressions that a thread keeps.
const CACHED_EXPRESSIONS: usize = 64;

#[cold]
fn pattern_ends_with_escape() -> SqlError {
    SqlError::new(sqlstate::INVALID_ESCAPE_SEQUENCE, "LIKE pattern must not end with escape character")
}

/// Does the text match a LIKE pattern, `\` being the escape? 22025.
pub(super) fn like(text: &[u8], pattern: &[u8]) -> Result<bool, SqlError> {
    let (mut t, mut p) = (0, 0);
    // Where to go on after the last %: that place in the pattern, and the next start in the text.
    let mut retry: Option<(usize, usize)> = None;
    loop {
        let matched = match pattern.get(p) {
            Some(b'%') => {
                retry = Some((p + 1, t));
                p += 1;
                continue;
            }
            None if t == text.len() => return Ok(true),
            None => false,
            Some(b'_') if t < text.len() => {
                t = next_character(text, t);
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
                t = next_character(text, start);
                p = after;
                retry = Some((after, t));
            }
            _ => return Ok(false),
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

fn bytes(datum: &Datum) -> Result<&[u8], SqlError> {
    match datum {
        Datum::Bytea(bytes) => Ok(bytes),
        other => Ok(text(other)?.as_bytes()),
    }
}

fn fold(characters: &str) -> String {
    characters.chars().map(lower_char).collect()
}

fn like_operator(a: &Datum, b: &Datum, _: &EvalContext<'_>) -> Computed {
    like(bytes(a)?, bytes(b)?).map(Datum::Bool)
}

fn not_like(a: &Datum, b: &Datum, _: &EvalContext<'_>) -> Computed {
    like(bytes(a)?, bytes(b)?).map(|matched| Datum::Bool(!matched))
}

fn ilike(a: &Datum, b: &Datum, _: &EvalContext<'_>) -> Computed {
    like(fold(str_of(a)?).as_bytes(), fold(str_of(b)?).as_bytes()).map(Datum::Bool)
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
    for c in pattern.chars() {
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
    let mut out = "^(?:".to_owned();
    let (mut in_brackets, mut escaped) = (false, false);
    for c in pattern.chars() {
        if escaped {
            if !c.is_alphanumeric() {
                out.push('\\');
            }
            out.push(c);
            escaped = false;
        } else if escape == Some(c) {
            escaped = true;
        } else if in_brackets {
            if c == '\\' {
                out.push('\\');
            }
            out.push(c);
            in_brackets = c != ']';
        } else {
            match c {
                '[' => in_brackets = true,
                '%' => out.push_str(".*"),
                '_' => out.push('.'),
                '\\' | '.' | '^' | '$' => out.push('\\'),
                _ => {}
            }
            match c {
                '%' | '_' => {}
                '(' => out.push_str("(?:"),
                other => out.push(other),
            }
        }
    }
    out.push_str(")$");
    Ok(out.into())
}

/// How an expression is to be applied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Flags {
    ignore_case: bool,
    /// `.` and negated sets leave out line ends, `^` and `$` match at them.
    newline_sensitive: bool,
    expanded: bool,
    literal: bool,
    global: bool,
}

impl Flags {
    /// 22023 for a letter that is no flag.
    fn parse(text: &str) -> Result<Flags, SqlError> {
        let mut flags = Flags::default();
        for letter in text.chars() {
            match letter {
                'i' => flags.ignore_case = true,
                'c' => flags.ignore_case = false,
                'n' | 'm' | 'w' | 'p' => flags.newline_sensitive = true,
                's' => flags.newline_sensitive = false,
                'x' => flags.expanded = true,
                't' => flags.expanded = false,
                'q' => flags.literal = true,
                'g' => flags.global = true,
                'e' | 'b' => {}
                other => {
                    return Err(SqlError::new(
                        sqlstate::INVALID_PARAMETER_VALUE,
                        format!("invalid regular expression option: \"{other}\""),
                    ));
                }
            }
        }
        Ok(flags)
    }
}

thread_local! {
    static EXPRESSIONS: RefCell<HashMap<(String, Flags), Regex>> = RefCell::new(HashMap::new());
}

/// The compiled expression. 2201B if it is none.
fn compile(pattern: &str, flags: Flags) -> Result<Regex, SqlError> {
    let flags = Flags { global: false, ..flags };
    let key = (pattern.to_owned(), flags);
    if let Some(found) = EXPRESSIONS.with_borrow(|cache| cache.get(&key).cloned()) {
        return Ok(found);
    }
    let source = if flags.literal { regex::escape(pattern) } else { translate(pattern) };
    let built = RegexBuilder::new(&source)
        .case_insensitive(flags.ignore_case)
        .dot_matches_new_line(!flags.newline_sensitive)
        .multi_line(flags.newline_sensitive)
        .ignore_whitespace(flags.expanded)
        .size_limit(4 << 20)
        .build();
    let compiled = built.map_err(|error| {
        let reason = error.to_string();
        let last = reason.lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned();
        SqlError::new(sqlstate::INVALID_REGULAR_EXPRESSION, format!("invalid regular expression: {last}"))
    })?;
    EXPRESSIONS.with_borrow_mut(|cache| {
        if cache.len() >= CACHED_EXPRESSIONS {
            cache.clear();
        }
        cache.insert(key, compiled.clone());
    });
    Ok(compiled)
}

/// PostgreSQL's escapes in the crate's notation.
fn translate(pattern: &str) -> String {
    let pattern = pattern.strip_prefix("***:").unwrap_or(pattern);
    let mut out = String::with_capacity(pattern.len());
    let mut characters = pattern.chars().peekable();
    let mut in_brackets = false;
    while let Some(c) = characters.next() {
        match c {
            '\\' => match characters.next() {
                Some('m') => out.push_str(r"\b{start}"),
                Some('M') => out.push_str(r"\b{end}"),
                Some('y') => out.push_str(r"\b"),
                Some('Y') => out.push_str(r"\B"),
                Some('Z') => out.push_str(r"\z"),
                Some('B') => out.push_str(r"\\"),
                Some('e') => out.push_str(r"\x1B"),
                Some(other) => {
                    out.push('\\');
                    out.push(other);
                }
                None => out.push('\\'),
            },
            '[' if in_brackets => {
                out.push_str(if matches!(characters.peek(), Some(':' | '.' | '=')) { "[" } else { r"\[" });
            }
            '[' => {
                in_brackets = true;
                out.push('[');
                if characters.peek() == Some(&'^') {
                    characters.next();
                    out.push('^');
                }
                // A bracket first in a set means itself.
                if characters.peek() == Some(&']') {
                    characters.next();
                    out.push_str(r"\]");
                }
            }
            ']' if in_brackets
                && out.ends_with(':')
                && out.rfind("[:").is_some_and(|at| at + 2 < out.len()) =>
            {
                out.push(']');
            }
            ']' => {
                in_brackets = false;
                out.push(']');
            }
            // The crate's set operations mean nothing in PostgreSQL.
            '&' | '~' if in_brackets => {
                out.push('\\');
                out.push(c);
            }
            other => out.push(other),
        }
    }
    out.replace("[[:<:]]", r"\b{start}").replace("[[:>:]]", r"\b{end}")
}

/// A regular-expression operator.
macro_rules! matches {
    ($($name:ident: $ignore_case:literal, $wanted:literal;)*) => {
        $(fn $name(a: &Datum, b: &Datum, _: &EvalContext<'_>) -> Computed {
            let expression = compile(str_of(b)?, Flags { ignore_case: $ignore_case, ..Flags::default() })?;
            Ok(Datum::Bool(expression.is_match(str_of(a)?) == $wanted))
        })*
    };
}
matches! {
    regex_matches: false, true;
    regex_imatches: true, true;
    regex_differs: false, false;
    regex_idiffers: true, false;
}

/// Flags from the argument of this index, if there is one.
fn flags_at(arguments: &[Datum], index: usize) -> Result<Flags, SqlError> {
    arguments.get(index).map_or(Ok(Flags::default()), |flags| Flags::parse(str_of(flags)?))
}

fn refuse_global(flags: Flags, function: &str) -> Result<(), SqlError> {
    if flags.global {
        return Err(SqlError::new(
            sqlstate::INVALID_PARAMETER_VALUE,
            format!("{function}() does not support the \"global\" option"),
        ));
    }
    Ok(())
}

/// What matched: the parts in parentheses, or all if there are none.
fn captured(captures: &Captures<'_>) -> Datum {
    let part = |index: usize| captures.get(index).map_or(Datum::Null, |m| m.as_str().into());
    let parts = if captures.len() == 1 { vec![part(0)] } else { (1..captures.len()).map(part).collect() };
    Array::new(TypeId::Text, parts).into()
}

fn regexp_match(arguments: &[Datum], _: &EvalContext<'_>) -> Computed {
    let flags = flags_at(arguments, 2)?;
    if flags.global {
        return Err(SqlError::new(
            sqlstate::INVALID_PARAMETER_VALUE,
            "regexp_match() does not support the \"global\" option",
        )
        .with_hint("Use the regexp_matches function instead."));
    }
    let expression = compile(str_of(&arguments[1])?, flags)?;
    Ok(expression.captures(str_of(&arguments[0])?).map_or(Datum::Null, |captures| captured(&captures)))
}

/// The matches from left to right. After an empty match the search goes on a character later; so a match may be empty directly after
/// another one.
struct Matches<'r, 't> {
    expression: &'r Regex,
    text: &'t str,
    next: Option<usize>,
}

impl<'t> Iterator for Matches<'_, 't> {
    type Item = Captures<'t>;

    fn next(&mut self) -> Option<Captures<'t>> {
        let captures = self.expression.captures_at(self.text, self.next.take()?)?;
        let found = captures.get(0)?;
        self.next = if found.is_empty() {
            self.text[found.end()..].chars().next().map(|c| found.end() + c.len_utf8())
        } else {
            Some(found.end())
        };
        Some(captures)
    }
}

fn matches_in<'r, 't>(expression: &'r Regex, text: &'t str) -> Matches<'r, 't> {
    Matches { expression, text, next: Some(0) }
}

/// The rows of `regexp_matches`: one, or with flag `g` all. Arguments: text, pattern, perhaps flags.
pub(super) fn regexp_matches(arguments: &[Datum]) -> Result<Vec<Datum>, SqlError> {
    let flags = flags_at(arguments, 2)?;
    let expression = compile(str_of(&arguments[1])?, flags)?;
    let limit = if flags.global { usize::MAX } else { 1 };
    Ok(matches_in(&expression, str_of(&arguments[0])?).take(limit).map(|c| captured(&c)).collect())
}

/// The rows of `regexp_split_to_table`. Arguments: text, pattern, perhaps flags.
pub(super) fn regexp_split(arguments: &[Datum]) -> Result<Vec<Datum>, SqlError> {
    let flags = flags_at(arguments, 2)?;
    refuse_global(flags, "regexp_split_to_table")?;
    let expression = compile(str_of(&arguments[1])?, flags)?;
    let whole = str_of(&arguments[0])?;
    let mut parts = Vec::new();
    let (mut start, mut previous_end) = (0, 0);
    for captures in matches_in(&expression, whole) {
        let Some(found) = captures.get(0) else { break };
        // Empty matches at either end, or directly after another match, split nothing off.
        if found.start() < whole.len() && found.end() > previous_end {
            parts.push(whole[start..found.start()].into());
            start = found.end();
        }
        previous_end = found.end();
    }
    parts.push(whole[start..].into());
    Ok(parts)
}

fn regexp_split_to_array(arguments: &[Datum], _: &EvalContext<'_>) -> Computed {
    Ok(Array::new(TypeId::Text, regexp_split(arguments)?).into())
}

fn regexp_like(arguments: &[Datum], _: &EvalContext<'_>) -> Computed {
    let flags = flags_at(arguments, 2)?;
    refuse_global(flags, "regexp_like")?;
    Ok(Datum::Bool(compile(str_of(&arguments[1])?, flags)?.is_match(str_of(&arguments[0])?)))
}

fn regexp_count(arguments: &[Datum], _: &EvalContext<'_>) -> Computed {
    let flags = flags_at(arguments, 3)?;
    refuse_global(flags, "regexp_count")?;
    let whole = str_of(&arguments[0])?;
    let start = arguments.get(2).map_or(Ok(1), integer)?;
    if start <= 0 {
        return Err(SqlError::new(
            sqlstate::INVALID_PARAMETER_VALUE,
            format!("invalid value for parameter \"start\": {start}"),
        ));
    }
    let from = offset_of(whole, start as usize - 1);
    Ok(Datum::Int4(matches_in(&compile(str_of(&arguments[1])?, flags)?, &whole[from..]).count() as i32))
}

fn regexp_substr(arguments: &[Datum], _: &EvalContext<'_>) -> Computed {
    let expression = compile(str_of(&arguments[1])?, Flags::default())?;
    Ok(expression.find(str_of(&arguments[0])?).map_or(Datum::Null, |m| m.as_str().into()))
}

/// `substring(text from pattern)`: the first part in parentheses, or all that matched.
fn regex_substring(arguments: &[Datum], _: &EvalContext<'_>) -> Computed {
    let expression = compile(str_of(&arguments[1])?, Flags::default())?;
    let Some(captures) = expression.captures(str_of(&arguments[0])?) else { return Ok(Datum::Null) };
    let part = if captures.len() > 1 { captures.get(1) } else { captures.get(0) };
    Ok(part.map_or(Datum::Null, |m| m.as_str().into()))
}

/// Appends the replacement of one match: `\1` to `\9` are its parts, `\&` all of it.
fn expand(replacement: &str, captures: &Captures<'_>, out: &mut String) {
    let mut characters = replacement.chars();
    while let Some(c) = characters.next() {
        if c != '\\' {
            out.push(c);
            continue;
        }
        match characters.next() {
            Some('&') => out.push_str(captures.get(0).map_or("", |m| m.as_str())),
            Some(digit @ '1'..='9') => {
                let index = digit as usize - '0' as usize;
                out.push_str(captures.get(index).map_or("", |m| m.as_str()));
            }
            Some('\\') | None => out.push('\\'),
            Some(other) => {
                out.push('\\');
                out.push(other);
            }
        }
    }
}

fn regexp_replace(arguments: &[Datum], context: &EvalContext<'_>) -> Computed {
    let flags = flags_at(arguments, 3)?;
    let expression = compile(str_of(&arguments[1])?, flags)?;
    let (whole, replacement) = (str_of(&arguments[0])?, str_of(&arguments[2])?);
    let limit = if flags.global { usize::MAX } else { 1 };
    let mut out = String::with_capacity(whole.len());
    let mut copied = 0;
    for captures in matches_in(&expression, whole).take(limit) {
        let Some(found) = captures.get(0) else { break };
        out.push_str(&whole[copied..found.start()]);
        expand(replacement, &captures, &mut out);
        context.check_size(out.len())?;
        copied = found.end();
    }
    out.push_str(&whole[copied..]);
    Ok(out.into())
}

pub(super) static FUNCTIONS: &[Function] = &[
    plain(1569, "like", &[T, T], Bool, like_function),
    plain(2007, "like", &[Bytea, Bytea], Bool, like_function),
    plain(1570, "notlike", &[T, T], Bool, not_like_function),
    plain(1637, "like_escape", &[T, T], T, like_escape),
    plain(1987, "similar_to_escape", &[T], T, similar_to_escape),
    plain(1986, "similar_to_escape", &[T, T], T, similar_to_escape),
    plain(2073, "substring", &[T, T], T, regex_substring),
    plain(3396, "regexp_match", &[T, T], TextArray, regexp_match),
    plain(3397, "regexp_match", &[T, T, T], TextArray, regexp_match),
    set(2763, "regexp_matches", &[T, T], TextArray),
    set(2764, "regexp_matches", &[T, T, T], TextArray),
    plain(2284, "regexp_replace", &[T, T, T], T, regexp_replace),
    plain(2285, "regexp_replace", &[T, T, T, T], T, regexp_replace),
    plain(2767, "regexp_split_to_array", &[T, T], TextArray, regexp_split_to_array),
    plain(2768, "regexp_split_to_array", &[T, T, T], TextArray, regexp_split_to_array),
    set(2765, "regexp_split_to_table", &[T, T], T),
    set(2766, "regexp_split_to_table", &[T, T, T], T),
    plain(6263, "regexp_like", &[T, T], Bool, regexp_like),
    plain(6264, "regexp_like", &[T, T, T], Bool, regexp_like),
    plain(6254, "regexp_count", &[T, T], Int4, regexp_count),
    plain(6255, "regexp_count", &[T, T, Int4], Int4, regexp_count),
    plain(6256, "regexp_count", &[T, T, Int4, T], Int4, regexp_count),
    plain(6265, "regexp_substr", &[T, T], T, regexp_substr),
];

pub(super) fn operators() -> Vec<Operator> {
    let mut all =
        vec![infix("~~", Bytea, Bytea, Bool, like_operator), infix("!~~", Bytea, Bytea, Bool, not_like)];
    for left in [T, Bpchar, Name] {
        all.push(infix("~~", left, T, Bool, like_operator));
        all.push(infix("!~~", left, T, Bool, not_like));
        all.push(infix("~~*", left, T, Bool, ilike));
        all.push(infix("!~~*", left, T, Bool, not_ilike));
        all.push(infix("~", left, T, Bool, regex_matches));
        all.push(infix("~*", left, T, Bool, regex_imatches));
        all.push(infix("!~", left, T, Bool, regex_differs));
        all.push(infix("!~*", left, T, Bool, regex_idiffers));
    }
    all
}
