//! `format`: texts by template.

use super::quote::{quote_identifier, quote_text};
use super::text_form;
use crate::error::{SqlError, sqlstate};
use crate::function::EvalContext;
use crate::types::bounds::Meter;
use crate::types::{Datum, Type};

type Computed = Result<Datum, SqlError>;

#[cold]
fn invalid_format(what: impl Into<String>) -> SqlError {
    SqlError::new(sqlstate::INVALID_PARAMETER_VALUE, what)
}

/// `format(template, ...)`: `%s`, `%I`, `%L`, with position and width.
pub(super) fn format_text(arguments: &[Datum], types: &[Type], context: &EvalContext<'_>) -> Computed {
    let Some(template) = arguments[0].as_str() else { return Ok(Datum::Null) };
    let mut out = String::new();
    let mut next = 1usize;
    let mut rest = template;
    let mut meter = Meter::default();
    while let Some(at) = rest.find('%') {
        meter.add(at)?;
        out.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix('%') {
            out.push('%');
            rest = after;
            continue;
        }
        let specifier = Specifier::parse(&mut rest)?;
        let width = specifier.resolve_width(arguments, &mut next)?;
        let index = specifier.position.unwrap_or(next);
        next = index + 1;
        let argument =
            arguments.get(index).ok_or_else(|| invalid_format("too few arguments for format()"))?;
        let text = match specifier.conversion {
            's' if argument.is_null() => String::new(),
            's' => text_form(argument, types[index], context)?,
            'L' if argument.is_null() => "NULL".to_owned(),
            'L' => quote_text(&text_form(argument, types[index], context)?, context)?,
            'I' if argument.is_null() => {
                return Err(SqlError::new(
                    sqlstate::NULL_VALUE_NOT_ALLOWED,
                    "null values cannot be formatted as an SQL identifier",
                ));
            }
            'I' => quote_identifier(&text_form(argument, types[index], context)?),
            other => {
                return Err(invalid_format(format!("unrecognized format() type specifier \"{other}\""))
                    .with_hint("For a single \"%\" use \"%%\"."));
            }
        };
        let missing = usize::try_from(width.unsigned_abs()).unwrap_or(0).saturating_sub(text.chars().count());
        context.check_size(out.len() + text.len() + missing)?;
        let padding = " ".repeat(missing);
        if width < 0 {
            out.push_str(&text);
            out.push_str(&padding);
        } else {
            out.push_str(&padding);
            out.push_str(&text);
        }
    }
    context.check_size(out.len() + rest.len())?;
    out.push_str(rest);
    Ok(out.into())
}

enum Width {
    None,
    Fixed(i64),
    /// From the next argument, or one by position.
    Argument(Option<usize>),
}

struct Specifier {
    position: Option<usize>,
    minus: bool,
    width: Width,
    conversion: char,
}

impl Specifier {
    fn parse(rest: &mut &str) -> Result<Specifier, SqlError> {
        let mut specifier = Specifier { position: None, minus: false, width: Width::None, conversion: 's' };
        let unterminated = || {
            invalid_format("unterminated format() type specifier").with_hint("For a single \"%\" use \"%%\".")
        };
        let number = |rest: &mut &str| {
            let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
            let value = rest[..end].parse::<i32>().ok();
            *rest = &rest[end..];
            value
        };
        let mut before = *rest;
        if let Some(value) = number(&mut before) {
            if let Some(after) = before.strip_prefix('$') {
                if value == 0 {
                    return Err(invalid_format(
                        "format specifies argument 0, but arguments are numbered from 1",
                    ));
                }
                specifier.position = usize::try_from(value).ok();
                *rest = after;
            } else {
                specifier.width = Width::Fixed(i64::from(value));
                *rest = before;
            }
        }
        while let Some(after) = rest.strip_prefix('-') {
            specifier.minus = true;
            *rest = after;
        }
        if let Some(after) = rest.strip_prefix('*') {
            *rest = after;
            let mut ahead = *rest;
            let position = number(&mut ahead).and_then(|p| usize::try_from(p).ok());
            if let (Some(position), Some(after)) = (position, ahead.strip_prefix('$')) {
                if position == 0 {
                    return Err(invalid_format(
                        "format specifies argument 0, but arguments are numbered from 1",
                    ));
                }
                specifier.width = Width::Argument(Some(position));
                *rest = after;
            } else {
                specifier.width = Width::Argument(None);
            }
        } else if let Some(value) = number(rest) {
            specifier.width = Width::Fixed(i64::from(value));
        }
        specifier.conversion = rest.chars().next().ok_or_else(unterminated)?;
        *rest = &rest[specifier.conversion.len_utf8()..];
        Ok(specifier)
    }

    fn resolve_width(&self, arguments: &[Datum], next: &mut usize) -> Result<i64, SqlError> {
        let width = match self.width {
            Width::None => return Ok(0),
            Width::Fixed(width) => width,
            Width::Argument(position) => {
                let index = position.unwrap_or(*next);
                *next = index + 1;
                let argument =
                    arguments.get(index).ok_or_else(|| invalid_format("too few arguments for format()"))?;
                match argument.as_i64() {
                    Some(width) => width,
                    None => argument.as_str().and_then(|s| s.trim().parse().ok()).unwrap_or(0),
                }
            }
        };
        Ok(if self.minus { -width.abs() } else { width })
    }
}
