//! `format`: texts by template.

use super::quote::quote_text;
use super::text_form;
use crate::error::{SqlError, sqlstate};
use crate::function::EvalContext;
use crate::types::bounds::Meter;
use crate::types::input::parse_integer;
use crate::types::{Datum, Type};

type Computed = Result<Datum, SqlError>;

#[cold]
fn invalid_format(what: impl Into<String>) -> SqlError {
    SqlError::new(sqlstate::INVALID_PARAMETER_VALUE, what)
}

#[cold]
fn too_few_arguments() -> SqlError {
    invalid_format("too few arguments for format()")
}

#[cold]
fn out_of_range() -> SqlError {
    SqlError::new(sqlstate::NUMERIC_VALUE_OUT_OF_RANGE, "number is out of range")
}

/// The number that a text begins with, which is taken off it. 22003.
fn number(rest: &mut &str) -> Result<Option<i32>, SqlError> {
    let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    let (digits, behind) = rest.split_at(end);
    *rest = behind;
    if digits.is_empty() { Ok(None) } else { digits.parse().map(Some).map_err(|_| out_of_range()) }
}

/// The place of an argument, which are counted from 1.
fn place(number: i32) -> Result<usize, SqlError> {
    usize::try_from(number)
        .ok()
        .filter(|place| *place > 0)
        .ok_or_else(|| invalid_format("format specifies argument 0, but arguments are numbered from 1"))
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
        let width = specifier.resolve_width(arguments, types, &mut next, context)?;
        let index = specifier.position.unwrap_or(next);
        next = index + 1;
        let argument = arguments.get(index).ok_or_else(too_few_arguments)?;
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
            // The reader of specifiers lets no other one through.
            _ => context.quoted(&text_form(argument, types[index], context)?),
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
    /// Takes a specifier off the front of a template, behind its `%`.
    fn parse(rest: &mut &str) -> Result<Specifier, SqlError> {
        let mut specifier = Specifier { position: None, minus: false, width: Width::None, conversion: 's' };
        let first = number(rest)?;
        match (first, rest.strip_prefix('$')) {
            (Some(position), Some(after)) => {
                specifier.position = Some(place(position)?);
                *rest = after;
            }
            (Some(width), None) => specifier.width = Width::Fixed(i64::from(width)),
            (None, _) => {}
        }
        // Behind a number that is no position stands the conversion and nothing else.
        if first.is_none() || specifier.position.is_some() {
            specifier.parse_width(rest)?;
        }
        let hint = "For a single \"%\" use \"%%\".";
        let Some(conversion) = rest.chars().next() else {
            return Err(invalid_format("unterminated format() type specifier").with_hint(hint));
        };
        if !matches!(conversion, 's' | 'I' | 'L') {
            let what = format!("unrecognized format() type specifier \"{conversion}\"");
            return Err(invalid_format(what).with_hint(hint));
        }
        specifier.conversion = conversion;
        *rest = &rest[conversion.len_utf8()..];
        Ok(specifier)
    }

    /// Flags and width.
    fn parse_width(&mut self, rest: &mut &str) -> Result<(), SqlError> {
        while let Some(after) = rest.strip_prefix('-') {
            self.minus = true;
            *rest = after;
        }
        let Some(after) = rest.strip_prefix('*') else {
            if let Some(width) = number(rest)? {
                self.width = Width::Fixed(i64::from(width));
            }
            return Ok(());
        };
        *rest = after;
        let Some(position) = number(rest)? else {
            self.width = Width::Argument(None);
            return Ok(());
        };
        match rest.strip_prefix('$') {
            Some(after) => *rest = after,
            // What is not there at all is found to be missing later.
            None if rest.is_empty() => return Ok(()),
            None => return Err(invalid_format("width argument position must be ended by \"$\"")),
        }
        self.width = Width::Argument(Some(place(position)?));
        Ok(())
    }

    /// The width; negative if the text stands at the left of it.
    fn resolve_width(
        &self,
        arguments: &[Datum],
        types: &[Type],
        next: &mut usize,
        context: &EvalContext<'_>,
    ) -> Result<i64, SqlError> {
        let width = match self.width {
            Width::None => return Ok(0),
            Width::Fixed(width) => width,
            Width::Argument(position) => {
                let index = position.unwrap_or(*next);
                *next = index + 1;
                match arguments.get(index).ok_or_else(too_few_arguments)? {
                    Datum::Null => 0,
                    Datum::Int2(width) => i64::from(*width),
                    Datum::Int4(width) => i64::from(*width),
                    other => {
                        let text = text_form(other, types[index], context)?;
                        i64::from(parse_integer::<i32>(&text, "integer")?)
                    }
                }
            }
        };
        if width == i64::from(i32::MIN) {
            return Err(out_of_range());
        }
        Ok(if self.minus { -width.abs() } else { width })
    }
}
