//! Functions and operators of regular expressions, which [`crate::regex`] compiles and matches.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use super::EvalContext;
use super::operator::{Operator, infix};
use super::registry::{Function, plain, set};
use super::string::{integer, offset_of, str_of};
use crate::error::{SqlError, sqlstate};
use crate::regex::{Flavour, Matcher, Options, Regex, Span};
use crate::types::TypeId::{Bool, Bpchar, Int4, Name, Text as T, TextArray};
use crate::types::bounds::{Meter, check_size};
use crate::types::{Array, Datum, Dimension, TypeId};

type Computed = Result<Datum, SqlError>;

/// Compiled expressions that a thread keeps, and their states and characters together.
const CACHED_EXPRESSIONS: usize = 32;
const CACHED_SIZE: usize = 1 << 18;

/// How an expression is to be applied.
#[derive(Clone, Copy, Debug, Default)]
struct Flags {
    options: Options,
    global: bool,
}

impl Flags {
    /// 22023 for a letter that is no flag.
    fn parse(text: &str) -> Result<Flags, SqlError> {
        let mut flags = Flags::default();
        for letter in text.chars() {
            let options = &mut flags.options;
            match letter {
                'g' => flags.global = true,
                // Here (not in `(?e)`) PostgreSQL takes plain extended expressions for basic ones.
                'b' | 'e' => options.flavour = Flavour::Basic,
                'q' => options.flavour = Flavour::Literal,
                letter if options.embedded(letter) => {}
                other => return Err(invalid_option(&other.to_string())),
            }
        }
        Ok(flags)
    }

    /// Those of the argument of this index, if there is one.
    fn at(arguments: &[Datum], index: usize) -> Result<Flags, SqlError> {
        arguments.get(index).map_or(Ok(Flags::default()), |flags| Flags::parse(str_of(flags)?))
    }

    /// The same for a function that has no use for `g`.
    fn not_global(arguments: &[Datum], index: usize, function: &str) -> Result<Flags, SqlError> {
        let flags = Flags::at(arguments, index)?;
        if flags.global {
            return Err(SqlError::new(
                sqlstate::INVALID_PARAMETER_VALUE,
                format!("{function}() does not support the \"global\" option"),
            ));
        }
        Ok(flags)
    }
}

#[cold]
fn invalid_option(option: &str) -> SqlError {
    SqlError::new(
        sqlstate::INVALID_PARAMETER_VALUE,
        format!("invalid regular expression option: \"{option}\""),
    )
}

#[cold]
fn invalid_parameter(name: &str, value: i64) -> SqlError {
    SqlError::new(
        sqlstate::INVALID_PARAMETER_VALUE,
        format!("invalid value for parameter \"{name}\": {value}"),
    )
}

thread_local! {
    static EXPRESSIONS: RefCell<HashMap<(String, Options), Rc<Regex>>> = RefCell::new(HashMap::new());
}

/// The compiled expression. 2201B if it is none.
fn compile(pattern: &str, flags: Flags) -> Result<Rc<Regex>, SqlError> {
    // It is read as characters.
    check_size(pattern.len().saturating_mul(size_of::<char>()))?;
    let key = (pattern.to_owned(), flags.options);
    if let Some(found) = EXPRESSIONS.with_borrow(|cache| cache.get(&key).cloned()) {
        return Ok(found);
    }
    let compiled = Rc::new(Regex::new(pattern, flags.options)?);
    EXPRESSIONS.with_borrow_mut(|cache| {
        let size = |((pattern, _), regex): (&(String, Options), &Rc<Regex>)| pattern.len() + regex.states();
        let kept: usize = cache.iter().map(size).sum();
        if cache.len() >= CACHED_EXPRESSIONS || kept + size((&key, &compiled)) > CACHED_SIZE {
            cache.clear();
        }
        cache.insert(key, compiled.clone());
    });
    Ok(compiled)
}

fn is_match(
    text: &Datum,
    pattern: &Datum,
    flags: Flags,
    context: &EvalContext<'_>,
) -> Result<bool, SqlError> {
    compile(str_of(pattern)?, flags)?.is_match(str_of(text)?, &|| context.check_interrupt())
}

/// A regular-expression operator.
macro_rules! matches {
    ($($name:ident: $ignore_case:literal, $wanted:literal;)*) => {
        $(fn $name(a: &Datum, b: &Datum, context: &EvalContext<'_>) -> Computed {
            let options = Options { ignore_case: $ignore_case, ..Options::default() };
            let matched = is_match(a, b, Flags { options, global: false }, context)?;
            Ok(Datum::Bool(matched == $wanted))
        })*
    };
}
matches! {
    regex_matches: false, true;
    regex_imatches: true, true;
    regex_differs: false, false;
    regex_idiffers: true, false;
}

/// A match: where all of it is, then where its groups are.
type Found = Vec<Option<Span>>;

/// Where all of a match is.
fn whole(found: &Found) -> Span {
    found.first().copied().flatten().unwrap_or_default()
}

/// The matches from left to right. After an empty match the search goes on a character later; so a
/// match may be empty directly after another one.
struct Matches<'a> {
    matcher: Matcher<'a>,
    text: &'a str,
    next: Option<usize>,
    /// Whether the groups are asked for.
    groups: bool,
}

impl<'a> Matches<'a> {
    fn from(
        expression: &'a Regex,
        text: &'a str,
        start: usize,
        groups: bool,
        check: &'a dyn Fn() -> Result<(), SqlError>,
    ) -> Matches<'a> {
        let groups = groups && expression.groups() > 0;
        Matches { matcher: expression.search(text, check), text, next: Some(start), groups }
    }

    fn next(&mut self) -> Result<Option<Found>, SqlError> {
        let Some(from) = self.next.take() else { return Ok(None) };
        let Some(found) = self.matcher.find(from, self.groups)? else { return Ok(None) };
        let (start, end) = whole(&found);
        self.next = if start == end {
            self.text[end..].chars().next().map(|c| end + c.len_utf8())
        } else {
            Some(end)
        };
        Ok(Some(found))
    }
}

/// What an array of parts takes beside them, and the place where it is held.
const ARRAY_BYTES: usize =
    size_of::<Datum>() + 2 * size_of::<usize>() + size_of::<Array>() + size_of::<Dimension>();

/// What matched: the parts in parentheses, or all if there are none. Parts may be many, and lie
/// within each other: they are counted before they are made. 53200.
fn captured(text: &str, found: &Found, meter: &mut Meter, context: &EvalContext<'_>) -> Computed {
    let part = |span: &Option<Span>| span.map_or(Datum::Null, |(start, end)| text[start..end].into());
    let parts = if found.len() == 1 { &found[..] } else { &found[1..] };
    let characters: usize = parts.iter().flatten().map(|(start, end)| end - start).sum();
    let bytes = ARRAY_BYTES + parts.len() * size_of::<Datum>() + characters;
    meter.add(bytes)?;
    context.check_size(bytes)?;
    Ok(Array::new(TypeId::Text, parts.iter().map(part).collect()).into())
}

fn regexp_match(arguments: &[Datum], context: &EvalContext<'_>) -> Computed {
    let flags = Flags::not_global(arguments, 2, "regexp_match").map_err(|error| {
        match error.message.contains("global") {
            true => error.with_hint("Use the regexp_matches function instead."),
            false => error,
        }
    })?;
    let expression = compile(str_of(&arguments[1])?, flags)?;
    let text = str_of(&arguments[0])?;
    let check = || context.check_interrupt();
    let found = Matches::from(&expression, text, 0, true, &check).next()?;
    found.map_or(Ok(Datum::Null), |found| captured(text, &found, &mut Meter::default(), context))
}

/// The rows of `regexp_matches`: one, or with flag `g` all. Arguments: text, pattern, perhaps
/// flags.
pub(super) fn regexp_matches(arguments: &[Datum], context: &EvalContext<'_>) -> Result<Vec<Datum>, SqlError> {
    let flags = Flags::at(arguments, 2)?;
    let expression = compile(str_of(&arguments[1])?, flags)?;
    let text = str_of(&arguments[0])?;
    let check = || context.check_interrupt();
    let mut matches = Matches::from(&expression, text, 0, true, &check);
    let (mut rows, mut meter) = (Vec::new(), Meter::default());
    while let Some(found) = matches.next()? {
        rows.push(captured(text, &found, &mut meter, context)?);
        if !flags.global {
            break;
        }
    }
    Ok(rows)
}

/// The parts of a text between matches. Arguments: text, pattern, perhaps flags.
pub(super) fn regexp_split(
    arguments: &[Datum],
    function: &str,
    context: &EvalContext<'_>,
) -> Result<Vec<Datum>, SqlError> {
    let flags = Flags::not_global(arguments, 2, function)?;
    let expression = compile(str_of(&arguments[1])?, flags)?;
    let text = str_of(&arguments[0])?;
    let check = || context.check_interrupt();
    let mut matches = Matches::from(&expression, text, 0, false, &check);
    let mut parts = Vec::new();
    let (mut start, mut previous_end) = (0, 0);
    while let Some(found) = matches.next()? {
        let (from, to) = whole(&found);
        // Empty matches at either end, or directly after another match, split nothing off.
        if from < text.len() && to > previous_end {
            parts.push(text[start..from].into());
            start = to;
            context.check_size(parts.len() * size_of::<Datum>() + text.len())?;
        }
        previous_end = to;
    }
    parts.push(text[start..].into());
    Ok(parts)
}

fn regexp_split_to_array(arguments: &[Datum], context: &EvalContext<'_>) -> Computed {
    let parts = regexp_split(arguments, "regexp_split_to_array", context)?;
    Ok(Array::new(TypeId::Text, parts).into())
}

fn regexp_like(arguments: &[Datum], context: &EvalContext<'_>) -> Computed {
    let flags = Flags::not_global(arguments, 2, "regexp_like")?;
    is_match(&arguments[0], &arguments[1], flags, context).map(Datum::Bool)
}

/// A parameter with a least value, and what it is if it is left out.
fn at_least(
    arguments: &[Datum],
    index: usize,
    name: &str,
    least: i64,
    otherwise: i64,
) -> Result<i64, SqlError> {
    let value = arguments.get(index).map_or(Ok(otherwise), integer)?;
    if value < least { Err(invalid_parameter(name, value)) } else { Ok(value) }
}

/// Where a search begins that should begin at a character, counted from 1; `None` beyond the end.
fn start_of(text: &str, start: i64) -> Result<Option<usize>, SqlError> {
    let Ok(skipped) = usize::try_from(start - 1) else { return Ok(None) };
    let offset = offset_of(text, skipped)?;
    Ok((offset < text.len() || text.chars().count() == skipped).then_some(offset))
}

fn regexp_count(arguments: &[Datum], context: &EvalContext<'_>) -> Computed {
    let start = at_least(arguments, 2, "start", 1, 1)?;
    let flags = Flags::not_global(arguments, 3, "regexp_count")?;
    let expression = compile(str_of(&arguments[1])?, flags)?;
    let text = str_of(&arguments[0])?;
    let mut count = 0;
    if let Some(start) = start_of(text, start)? {
        let check = || context.check_interrupt();
        let mut matches = Matches::from(&expression, text, start, false, &check);
        while matches.next()?.is_some() {
            count += 1;
        }
    }
    Ok(Datum::Int4(count))
}

/// The match of this number from a start on, or a group of it. `None` if there is none.
fn numbered(
    expression: &Regex,
    text: &str,
    start: i64,
    number: i64,
    group: i64,
    context: &EvalContext<'_>,
) -> Result<Option<Span>, SqlError> {
    let Some(start) = start_of(text, start)? else { return Ok(None) };
    // Of an expression without groups all that matched is the first one.
    let group = if group == 1 && expression.groups() == 0 { 0 } else { group };
    let check = || context.check_interrupt();
    let mut matches = Matches::from(expression, text, start, group > 0, &check);
    for _ in 1..number {
        if matches.next()?.is_none() {
            return Ok(None);
        }
    }
    let Some(found) = matches.next()? else { return Ok(None) };
    Ok(usize::try_from(group).ok().and_then(|group| found.get(group).copied().flatten()))
}

/// Arguments: text, pattern, start, number, whether the end is asked for, flags, group.
fn regexp_instr(arguments: &[Datum], context: &EvalContext<'_>) -> Computed {
    let start = at_least(arguments, 2, "start", 1, 1)?;
    let number = at_least(arguments, 3, "n", 1, 1)?;
    let end_wanted = at_least(arguments, 4, "endoption", 0, 0)?;
    if end_wanted > 1 {
        return Err(invalid_parameter("endoption", end_wanted));
    }
    let group = at_least(arguments, 6, "subexpr", 0, 0)?;
    let flags = Flags::not_global(arguments, 5, "regexp_instr")?;
    let expression = compile(str_of(&arguments[1])?, flags)?;
    let text = str_of(&arguments[0])?;
    let found = numbered(&expression, text, start, number, group, context)?;
    let position = found.map_or(0, |(start, end)| {
        let place = if end_wanted == 1 { end } else { start };
        text[..place].chars().count() as i32 + 1
    });
    Ok(Datum::Int4(position))
}

/// Arguments: text, pattern, start, number, flags, group.
fn regexp_substr(arguments: &[Datum], context: &EvalContext<'_>) -> Computed {
    let start = at_least(arguments, 2, "start", 1, 1)?;
    let number = at_least(arguments, 3, "n", 1, 1)?;
    let group = at_least(arguments, 5, "subexpr", 0, 0)?;
    let flags = Flags::not_global(arguments, 4, "regexp_substr")?;
    let expression = compile(str_of(&arguments[1])?, flags)?;
    let text = str_of(&arguments[0])?;
    let found = numbered(&expression, text, start, number, group, context)?;
    Ok(found.map_or(Datum::Null, |(start, end)| text[start..end].into()))
}

/// `substring(text from pattern)`: the first part in parentheses, or all that matched.
pub(super) fn substring(arguments: &[Datum], context: &EvalContext<'_>) -> Computed {
    let expression = compile(str_of(&arguments[1])?, Flags::default())?;
    let text = str_of(&arguments[0])?;
    let group = i64::from(expression.groups() > 0);
    let found = numbered(&expression, text, 1, 1, group, context)?;
    Ok(found.map_or(Datum::Null, |(start, end)| text[start..end].into()))
}

/// Appends the replacement of one match: `\1` to `\9` are its parts, `\&` all of it. Each may be
/// large, and there may be many: what a statement may hold is asked for before each. 53200.
fn expand(
    replacement: &str,
    text: &str,
    found: &Found,
    out: &mut String,
    context: &EvalContext<'_>,
) -> Result<(), SqlError> {
    let mut meter = Meter::default();
    let mut rest = replacement;
    while let Some(at) = rest.find('\\') {
        out.push_str(&rest[..at]);
        let group = match rest.as_bytes().get(at + 1) {
            Some(b'&') => Some(0),
            Some(digit @ b'1'..=b'9') => Some(usize::from(digit - b'0')),
            Some(b'\\') => None,
            // Another character, or none, after it: the escape means itself.
            _ => {
                out.push('\\');
                rest = &rest[at + 1..];
                continue;
            }
        };
        match group {
            None => out.push('\\'),
            Some(group) => {
                if let Some((start, end)) = found.get(group).copied().flatten() {
                    meter.add(end - start)?;
                    // And for what is still to be copied, which had room before.
                    make_room(end - start + rest.len(), out, context)?;
                    out.push_str(&text[start..end]);
                }
            }
        }
        rest = &rest[at + 2..];
    }
    out.push_str(rest);
    Ok(())
}

/// Makes room for more bytes, but not for twice as many: that may be more than there is. 53200.
fn make_room(more: usize, out: &mut String, context: &EvalContext<'_>) -> Result<(), SqlError> {
    context.check_size(out.len() + more)?;
    if out.capacity() - out.len() < more {
        out.reserve_exact(more.max(out.len() / 2));
    }
    Ok(())
}

/// Replaces the match of this number from a start on, or all if the number is 0.
fn replace(
    arguments: &[Datum],
    flags: Flags,
    start: i64,
    number: i64,
    context: &EvalContext<'_>,
) -> Computed {
    let expression = compile(str_of(&arguments[1])?, flags)?;
    let (text, replacement) = (str_of(&arguments[0])?, str_of(&arguments[2])?);
    let Some(start) = start_of(text, start)? else { return Ok(arguments[0].clone()) };
    let check = || context.check_interrupt();
    let mut matches = Matches::from(&expression, text, start, replacement.contains('\\'), &check);
    let mut out = String::with_capacity(text.len());
    let (mut copied, mut seen) = (0, 0);
    while let Some(found) = matches.next()? {
        seen += 1;
        if number > 0 && seen != number {
            continue;
        }
        let (from, to) = whole(&found);
        make_room(from - copied + replacement.len(), &mut out, context)?;
        out.push_str(&text[copied..from]);
        expand(replacement, text, &found, &mut out, context)?;
        copied = to;
        if number > 0 {
            break;
        }
    }
    out.push_str(&text[copied..]);
    Ok(out.into())
}

/// Arguments: text, pattern, replacement, perhaps flags.
fn regexp_replace(arguments: &[Datum], context: &EvalContext<'_>) -> Computed {
    if let Some(flags) = arguments.get(3)
        && let flags = str_of(flags)?
        && flags.starts_with(|c: char| c.is_ascii_digit())
    {
        return Err(invalid_option(&flags.chars().take(1).collect::<String>()).with_hint(
            "If you meant to use regexp_replace() with a start parameter, cast the fourth argument to integer explicitly.",
        ));
    }
    let flags = Flags::at(arguments, 3)?;
    replace(arguments, flags, 1, i64::from(!flags.global), context)
}

/// Arguments: text, pattern, replacement, start, perhaps number, perhaps flags.
fn regexp_replace_from(arguments: &[Datum], context: &EvalContext<'_>) -> Computed {
    let start = at_least(arguments, 3, "start", 1, 1)?;
    let number = at_least(arguments, 4, "n", 0, 1)?;
    let flags = Flags::at(arguments, 5)?;
    replace(arguments, flags, start, number, context)
}

pub(super) static FUNCTIONS: &[Function] = &[
    plain(2073, "substring", &[T, T], T, substring),
    plain(3396, "regexp_match", &[T, T], TextArray, regexp_match),
    plain(3397, "regexp_match", &[T, T, T], TextArray, regexp_match),
    set(2763, "regexp_matches", &[T, T], TextArray),
    set(2764, "regexp_matches", &[T, T, T], TextArray),
    plain(2284, "regexp_replace", &[T, T, T], T, regexp_replace),
    plain(2285, "regexp_replace", &[T, T, T, T], T, regexp_replace),
    plain(6253, "regexp_replace", &[T, T, T, Int4], T, regexp_replace_from),
    plain(6252, "regexp_replace", &[T, T, T, Int4, Int4], T, regexp_replace_from),
    plain(6251, "regexp_replace", &[T, T, T, Int4, Int4, T], T, regexp_replace_from),
    plain(2767, "regexp_split_to_array", &[T, T], TextArray, regexp_split_to_array),
    plain(2768, "regexp_split_to_array", &[T, T, T], TextArray, regexp_split_to_array),
    set(2765, "regexp_split_to_table", &[T, T], T),
    set(2766, "regexp_split_to_table", &[T, T, T], T),
    plain(6263, "regexp_like", &[T, T], Bool, regexp_like),
    plain(6264, "regexp_like", &[T, T, T], Bool, regexp_like),
    plain(6254, "regexp_count", &[T, T], Int4, regexp_count),
    plain(6255, "regexp_count", &[T, T, Int4], Int4, regexp_count),
    plain(6256, "regexp_count", &[T, T, Int4, T], Int4, regexp_count),
    plain(6257, "regexp_instr", &[T, T], Int4, regexp_instr),
    plain(6258, "regexp_instr", &[T, T, Int4], Int4, regexp_instr),
    plain(6259, "regexp_instr", &[T, T, Int4, Int4], Int4, regexp_instr),
    plain(6260, "regexp_instr", &[T, T, Int4, Int4, Int4], Int4, regexp_instr),
    plain(6261, "regexp_instr", &[T, T, Int4, Int4, Int4, T], Int4, regexp_instr),
    plain(6262, "regexp_instr", &[T, T, Int4, Int4, Int4, T, Int4], Int4, regexp_instr),
    plain(6265, "regexp_substr", &[T, T], T, regexp_substr),
    plain(6266, "regexp_substr", &[T, T, Int4], T, regexp_substr),
    plain(6267, "regexp_substr", &[T, T, Int4, Int4], T, regexp_substr),
    plain(6268, "regexp_substr", &[T, T, Int4, Int4, T], T, regexp_substr),
    plain(6269, "regexp_substr", &[T, T, Int4, Int4, T, Int4], T, regexp_substr),
];

pub(super) fn operators() -> Vec<Operator> {
    let mut all = Vec::new();
    for left in [T, Bpchar, Name] {
        all.push(infix("~", left, T, Bool, regex_matches));
        all.push(infix("~*", left, T, Bool, regex_imatches));
        all.push(infix("!~", left, T, Bool, regex_differs));
        all.push(infix("!~*", left, T, Bool, regex_idiffers));
    }
    all
}
