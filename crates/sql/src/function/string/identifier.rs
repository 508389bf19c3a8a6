//! `parse_ident`: a dotted name taken apart.

use super::str_of;
use crate::error::{SqlError, sqlstate};
use crate::function::EvalContext;
use crate::types::bounds::Meter;
use crate::types::{Array, Datum, TypeId};

type Computed = Result<Datum, SqlError>;

fn invalid(whole: &str, detail: Option<&str>) -> SqlError {
    let message = format!("string is not a valid identifier: \"{whole}\"");
    let error = SqlError::new(sqlstate::INVALID_PARAMETER_VALUE, message);
    match detail {
        Some(detail) => error.with_detail(detail),
        None => error,
    }
}

/// What PostgreSQL's scanner passes over.
fn skip_space(text: &str) -> &str {
    text.trim_start_matches([' ', '\t', '\n', '\r', '\x0c'])
}

/// A name in quotes, of which the first is gone; and what follows it.
fn quoted<'a>(text: &'a str, whole: &str) -> Result<(String, &'a str), SqlError> {
    let mut name = String::new();
    let mut rest = text;
    loop {
        let Some(end) = rest.find('"') else {
            return Err(invalid(whole, Some("String has unclosed double quotes.")));
        };
        name.push_str(&rest[..end]);
        rest = &rest[end + 1..];
        match rest.strip_prefix('"') {
            Some(after) => {
                name.push('"');
                rest = after;
            }
            None if name.is_empty() => {
                return Err(invalid(whole, Some("Quoted identifier must not be empty.")));
            }
            None => return Ok((name, rest)),
        }
    }
}

/// A name without quotes, in small letters; and what follows it. None if none begins here.
fn plain(text: &str) -> Option<(String, &str)> {
    let begins = |c: char| c.is_ascii_alphabetic() || c == '_' || !c.is_ascii();
    if !text.starts_with(begins) {
        return None;
    }
    let goes_on = |c: char| begins(c) || c.is_ascii_digit() || c == '$';
    let end = text.find(|c| !goes_on(c)).unwrap_or(text.len());
    Some((text[..end].to_ascii_lowercase(), &text[end..]))
}

pub(super) fn parse_ident(arguments: &[Datum], _: &EvalContext<'_>) -> Computed {
    let whole = str_of(&arguments[0])?;
    let strict = arguments.get(1).and_then(Datum::as_bool) != Some(false);
    let (mut names, mut meter) = (Vec::<Datum>::new(), Meter::default());
    let mut rest = skip_space(whole);
    loop {
        let (name, after) = if let Some(text) = rest.strip_prefix('"') {
            quoted(text, whole)?
        } else if let Some(found) = plain(rest) {
            found
        } else if rest.starts_with('.') {
            return Err(invalid(whole, Some("No valid identifier before \".\".")));
        } else if names.is_empty() {
            return Err(invalid(whole, None));
        } else {
            return Err(invalid(whole, Some("No valid identifier after \".\".")));
        };
        meter.add(name.len() + size_of::<Datum>())?;
        names.push(name.into());
        let after = skip_space(after);
        match after.strip_prefix('.') {
            Some(next) => rest = skip_space(next),
            None if strict && !after.is_empty() => return Err(invalid(whole, None)),
            None => return Ok(Array::new(TypeId::Text, names).into()),
        }
    }
}
