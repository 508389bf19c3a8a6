//! Facts about PostgreSQL 15, one a line, checked against this crate.
//!
//! Fields are separated by ` | `; the last is the answer. `\N` is NULL, `\p` is `|`. A value is a
//! type's name, a blank, and its text. The session's time zone is America/New_York. An answer of
//! `ERROR` has the SQLSTATE and the message.

use cognate_sql::SqlError;
use cognate_sql::function::operator::{self, Comparison};
use cognate_sql::function::{self, EvalContext};
use cognate_sql::types::cast::{self, CastContext};
use cognate_sql::types::{Datum, FormatContext, Type, TypeId, time_zone};

pub(crate) fn context() -> FormatContext {
    FormatContext { time_zone: time_zone("America/New_York").expect("a zone"), ..FormatContext::default() }
}

/// A type as the files write it: `int4`, `varchar(3)`, `numeric(5,2)[]`; `char` is the internal
/// one.
fn parse_type(text: &str) -> Type {
    let (body, array) = match text.strip_suffix("[]") {
        Some(body) => (body, true),
        None => (text, false),
    };
    let (name, modifiers) = match body.split_once('(') {
        Some((name, rest)) => {
            (name, rest.trim_end_matches(')').split(',').map(|n| n.parse().expect("a number")).collect())
        }
        None => (body, vec![]),
    };
    let modifiers: Vec<i32> = modifiers;
    let id = match (name, modifiers.is_empty()) {
        ("char", true) => TypeId::InternalChar,
        _ => TypeId::from_name(name).unwrap_or_else(|| panic!("type {name}")),
    };
    let modifier = match (id, modifiers.as_slice()) {
        (_, []) => -1,
        (TypeId::Varchar | TypeId::Bpchar, [n]) => n + 4,
        (TypeId::Numeric, [p]) => Type::numeric(*p as u16, 0).modifier,
        (TypeId::Numeric, [p, s]) => Type::numeric(*p as u16, *s as i16).modifier,
        (TypeId::Interval, [p]) => 0x7fff << 16 | p,
        (_, [p, ..]) => *p,
    };
    Type::modified(if array { id.array().expect("an array type") } else { id }, modifier)
}

fn unescape(text: &str) -> String {
    let mut out = String::new();
    let mut characters = text.chars();
    while let Some(c) = characters.next() {
        match c {
            '\\' => match characters.next() {
                Some('n') => out.push('\n'),
                Some('t') => out.push('\t'),
                Some('p') => out.push('|'),
                Some(other) => out.push(other),
                None => {}
            },
            other => out.push(other),
        }
    }
    out
}

/// A value written as a type and its text; an untyped literal stays one.
pub(crate) fn parse_value(text: &str, context: &FormatContext) -> Result<(Datum, Type), SqlError> {
    let (name, literal) = text.split_once(' ').unwrap_or((text, ""));
    let ty = parse_type(name);
    if literal == "\\N" {
        return Ok((Datum::Null, ty));
    }
    let literal = Datum::from(unescape(literal));
    let unknown = Type::new(TypeId::Unknown);
    Ok((cast::cast(&literal, unknown, ty, CastContext::Explicit, context)?, ty))
}

fn show(value: &Datum, ty: Type, context: &FormatContext) -> String {
    let name = ty.id.internal_name();
    if value.is_null() {
        return format!("{name} \\N");
    }
    let text = value.to_text_string(ty, context);
    let escaped = text.replace('\\', "\\\\").replace('\n', "\\n").replace('\t', "\\t").replace('|', "\\p");
    format!("{name} {escaped}")
}

/// A value converted as a call converts its arguments.
fn coerce(value: &Datum, from: Type, to: Type, context: &FormatContext) -> Result<Datum, SqlError> {
    if from == to || from.id == to.id {
        return Ok(value.clone());
    }
    cast::cast(value, from, to, CastContext::Implicit, context)
}

fn call(name: &str, arguments: &[(Datum, Type)], format: &FormatContext) -> Result<String, SqlError> {
    let types: Vec<Type> = arguments.iter().map(|(_, ty)| *ty).collect();
    let found = function::resolve(None, name, &types)?;
    let converted =
        arguments.iter().zip(&found.arguments).map(|((value, from), to)| coerce(value, *from, *to, format));
    let converted = converted.collect::<Result<Vec<_>, _>>()?;
    let result = found.call(&converted, &EvalContext::without_session(format))?;
    Ok(show(&result, found.result, format))
}

fn operate(
    name: &str,
    left: Option<(Datum, Type)>,
    right: (Datum, Type),
    format: &FormatContext,
) -> Result<String, SqlError> {
    let found = operator::resolve(name, left.as_ref().map(|(_, ty)| *ty), right.1)?;
    let left = match (left, found.left) {
        (Some((value, from)), Some(to)) => coerce(&value, from, to, format)?,
        _ => Datum::Null,
    };
    let right = coerce(&right.0, right.1, found.right, format)?;
    let result = found.call(&left, &right, &EvalContext::without_session(format))?;
    Ok(show(&result, found.result, format))
}

fn aggregate(
    name: &str,
    name_of_type: &str,
    values: &[&str],
    format: &FormatContext,
) -> Result<String, SqlError> {
    let ty = parse_type(name_of_type);
    let mut types = vec![ty];
    if name == "string_agg" {
        types.push(Type::new(TypeId::Unknown));
    }
    let found = function::resolve(None, name, &types)?;
    let context = EvalContext::without_session(format);
    let mut accumulator = found.accumulator().expect("an aggregate");
    for value in values {
        let (value, from) = parse_value(&format!("{name_of_type} {value}"), format)?;
        let mut arguments = vec![coerce(&value, from, found.arguments[0], format)?];
        if name == "string_agg" {
            arguments.push(",".into());
        }
        accumulator.add(&arguments, &context)?;
    }
    let result = accumulator.finish(&context)?;
    Ok(show(&result, found.result, format))
}

fn compare(a: &str, b: &str, format: &FormatContext) -> Result<String, SqlError> {
    let (a, b) = (parse_value(a, format)?, parse_value(b, format)?);
    let is = |comparison: Comparison| {
        operate(comparison.symbol(), Some(a.clone()), b.clone(), format).map(|answer| answer == "bool t")
    };
    Ok(match (is(Comparison::Less)?, is(Comparison::Equal)?) {
        (true, false) => "<",
        (false, true) => "=",
        _ => ">",
    }
    .to_owned())
}

fn answer(fields: &[&str], format: &FormatContext) -> Result<String, SqlError> {
    let values = |texts: &[&str]| {
        texts.iter().map(|text| parse_value(text, format)).collect::<Result<Vec<(Datum, Type)>, SqlError>>()
    };
    match fields {
        ["input", ty, text] => {
            let (value, ty) = parse_value(&format!("{ty} {text}"), format)?;
            Ok(show(&value, ty, format))
        }
        ["binary", ty, text] => {
            let (value, ty) = parse_value(&format!("{ty} {text}"), format)?;
            let mut out = Vec::new();
            value.to_binary(ty, &mut out);
            let back = Datum::from_binary(ty, &out)?;
            assert_eq!(back.to_text_string(ty, format), value.to_text_string(ty, format), "{fields:?}");
            Ok(out.iter().map(|byte| format!("{byte:02x}")).collect())
        }
        ["cast", value, to] => {
            let (value, from) = parse_value(value, format)?;
            let to = parse_type(to);
            Ok(show(&cast::cast(&value, from, to, CastContext::Explicit, format)?, to, format))
        }
        ["assign", value, to] => {
            let (value, from) = parse_value(value, format)?;
            let to = parse_type(to);
            match cast::find(from, to, CastContext::Assignment) {
                Some(found) => Ok(show(&found.apply(&value, format)?, to, format)),
                None => Err(SqlError::new("42804", "no assignment cast")),
            }
        }
        ["function", name] | ["function", name, ""] => call(name, &[], format),
        ["function", name, arguments @ ..] => call(name, &values(arguments)?, format),
        ["prefix", name, right] => operate(name, None, parse_value(right, format)?, format),
        ["operator", name, left, right] => {
            operate(name, Some(parse_value(left, format)?), parse_value(right, format)?, format)
        }
        ["compare", a, b] => compare(a, b, format),
        ["aggregate", name, ty, texts @ ..] => aggregate(name, ty, texts, format),
        other => panic!("what is {other:?}?"),
    }
}

/// Checks every line of a file; fails with all differences.
fn check(name: &str, file: &str) {
    let format = context();
    let mut differences = Vec::new();
    let mut count = 0;
    for line in file.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let fields: Vec<&str> = line.split(" | ").collect();
        let (expected, question) = fields.split_last().expect("a line has fields");
        let got = match answer(question, &format) {
            Ok(text) => text,
            Err(error) => format!("ERROR {} {}", error.sqlstate, error.message.replace('\n', " ")),
        };
        count += 1;
        // PostgreSQL's reasons against an expression are its own.
        let same = got == *expected
            || (expected.starts_with("ERROR 2201B") && got.starts_with("ERROR 2201B"))
            || (expected.starts_with("ERROR 42804") && got.starts_with("ERROR 42804"));
        if !same {
            differences.push(format!("{}\n  expected {expected}\n  got      {got}", question.join(" | ")));
        }
    }
    assert!(count > 0, "{name} is empty");
    assert!(
        differences.is_empty(),
        "{name}: {} of {count} differ\n{}",
        differences.len(),
        differences.join("\n")
    );
}

macro_rules! golden {
    ($($name:ident)*) => {
        $(#[test]
        fn $name() {
            check(stringify!($name), include_str!(concat!(stringify!($name), ".txt")));
        })*
    };
}

golden! { input binary casts operators order aggregates functions }
