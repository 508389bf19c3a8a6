//! The oid types that print as names: regclass, regtype, regproc, regprocedure, regnamespace,
//! regrole, regoper and regoperator. The last two are read by number only.

use super::input::parse_oid;
use super::{FormatContext, TypeId};
use crate::error::{SqlError, sqlstate};
use crate::identifier::in_quotes;

/// Reads a name or a number. 42P01, 42704, 42883 or 3F000 if there is no such object,
/// 42725 if a name is that of several functions.
pub(super) fn parse(id: TypeId, text: &str, context: &FormatContext) -> Result<u32, SqlError> {
    let name = text.trim();
    let is_operator = matches!(id, TypeId::Regoper | TypeId::Regoperator);
    if name == "-" && !is_operator {
        return Ok(0);
    }
    if !name.is_empty() && name.bytes().all(|b| b.is_ascii_digit()) {
        return parse_oid(name);
    }
    if id == TypeId::Regtype {
        return parse_type(name, context);
    }
    if is_operator {
        return Err(SqlError::unsupported(format_args!("{} of a name", id.sql_name())));
    }
    let objects = context.objects.as_deref();
    let (found, sqlstate, kind) = match id {
        TypeId::Regclass => {
            (objects.and_then(|o| o.relation_oid(name)), sqlstate::UNDEFINED_TABLE, "relation")
        }
        TypeId::Regproc => {
            (objects.and_then(|o| o.function_oid(name)), sqlstate::UNDEFINED_FUNCTION, "function")
        }
        TypeId::Regprocedure => (procedure_oid(name, context)?, sqlstate::UNDEFINED_FUNCTION, "function"),
        TypeId::Regnamespace => {
            (objects.and_then(|o| o.schema_oid(name)), sqlstate::INVALID_SCHEMA_NAME, "schema")
        }
        _ => (objects.and_then(|o| o.role_oid(name)), sqlstate::UNDEFINED_OBJECT, "role"),
    };
    match found {
        Some(oid) => Ok(oid),
        None if id == TypeId::Regclass => Err(no_relation(name, context)),
        None if id == TypeId::Regproc && objects.is_some_and(|o| o.has_several_functions(name)) => {
            let message = format!("more than one function named \"{name}\"");
            Err(SqlError::new(sqlstate::AMBIGUOUS_FUNCTION, message))
        }
        None => Err(SqlError::new(sqlstate, format!("{kind} \"{name}\" does not exist"))),
    }
}

/// Oid of a function by its name and the types of its arguments in parentheses, if there is one.
/// 22P02 and 42602 for what is no such text, 42704 and 3F000 if there is no such type.
pub(crate) fn procedure_oid(text: &str, context: &FormatContext) -> Result<Option<u32>, SqlError> {
    let wrong = |message: &str| SqlError::new(sqlstate::INVALID_TEXT_REPRESENTATION, message);
    let mut is_quoted = false;
    let open = text.find(|letter: char| {
        is_quoted ^= letter == '"';
        letter == '(' && !is_quoted
    });
    let (name, rest) = text.split_at(open.ok_or_else(|| wrong("expected a left parenthesis"))?);
    let list = rest[1..].trim_end().strip_suffix(')');
    let list = list.ok_or_else(|| wrong("expected a right parenthesis"))?;
    let name = name.trim();
    match leading_name(name) {
        Some((parts, "")) if parts.iter().all(|part| !part.name.is_empty()) => {}
        _ => return Err(SqlError::new(sqlstate::INVALID_NAME, "invalid name syntax")),
    }
    let mut names = list_parts(list).ok_or_else(|| wrong("improper type name"))?;
    if names == [""] {
        names.clear();
    }
    if names.last().is_some_and(|name| name.is_empty()) {
        return Err(wrong("expected a type name"));
    }
    let types = names.into_iter().map(|name| argument_type(name, context));
    let types = types.collect::<Result<Vec<u32>, SqlError>>()?;
    Ok(context.objects.as_deref().and_then(|objects| objects.procedure_oid(name, &types)))
}

/// What stands between the commas of a list, but for those in quotes and brackets. None if one of
/// these is not closed.
fn list_parts(list: &str) -> Option<Vec<&str>> {
    let (mut parts, mut start) = (Vec::new(), 0);
    let (mut depth, mut is_quoted) = (0i32, false);
    for (at, letter) in list.char_indices() {
        match letter {
            '"' => is_quoted = !is_quoted,
            _ if is_quoted => {}
            '(' | '[' => depth += 1,
            ')' | ']' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(list[start..at].trim());
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(list[start..].trim());
    (!is_quoted && depth == 0).then_some(parts)
}

fn argument_type(name: &str, context: &FormatContext) -> Result<u32, SqlError> {
    if name.is_empty() {
        return Err(SqlError::syntax("invalid type name \"\""));
    }
    parse_type(name, context)
}

/// Why no relation is called so.
fn no_relation(name: &str, context: &FormatContext) -> SqlError {
    let Some((parts, "")) = leading_name(name) else {
        return SqlError::new(sqlstate::INVALID_NAME, "invalid name syntax");
    };
    let shown = parts.iter().map(|part| part.name.as_str()).collect::<Vec<_>>().join(".");
    match parts.as_slice() {
        [database, _, _] if !is_own_database(&database.name, context) => SqlError::new(
            sqlstate::FEATURE_NOT_SUPPORTED,
            format!("cross-database references are not implemented: \"{shown}\""),
        ),
        [schema, _] | [_, schema, _] if !schema_exists(&schema.name, context) => no_schema(&schema.name),
        [_, _, _, _, ..] => {
            SqlError::syntax(format!("improper relation name (too many dotted names): {shown}"))
        }
        _ => SqlError::new(sqlstate::UNDEFINED_TABLE, format!("relation \"{shown}\" does not exist")),
    }
}

fn is_own_database(name: &str, context: &FormatContext) -> bool {
    context.objects.as_deref().is_none_or(|objects| objects.is_own_database(name))
}

fn schema_exists(name: &str, context: &FormatContext) -> bool {
    let quoted = format!("\"{}\"", name.replace('"', "\"\""));
    context.objects.as_deref().is_some_and(|objects| objects.schema_oid(&quoted).is_some())
}

fn no_schema(name: &str) -> SqlError {
    SqlError::new(sqlstate::INVALID_SCHEMA_NAME, format!("schema \"{name}\" does not exist"))
}

/// A type by its name as SQL writes it, with or without schema and modifier.
fn parse_type(name: &str, context: &FormatContext) -> Result<u32, SqlError> {
    let unknown =
        |name: &str| SqlError::new(sqlstate::UNDEFINED_OBJECT, format!("type \"{name}\" does not exist"));
    let (parts, suffix) = leading_name(name).ok_or_else(|| unknown(name))?;
    let suffix = without_modifier(&suffix.to_ascii_lowercase());
    // What stands for any enum type is a name, and what one of them is made of is none.
    let is_named =
        |id: &TypeId, name: &str| !matches!(id, TypeId::Enum | TypeId::EnumArray) || name == "anyenum";
    let found = match parts.as_slice() {
        // Words that are keywords, such as `double precision`, are names without quotes only.
        [Part { name, quoted: false }] => {
            TypeId::from_name(&format!("{name}{suffix}")).filter(|id| is_named(id, name))
        }
        [schema, _] | [_, schema, _] if schema.name != "pg_catalog" => None,
        [.., bare] => {
            let id = TypeId::from_internal_name(&bare.name).filter(|id| is_named(id, &bare.name));
            id.and_then(|id| match (suffix.as_str(), id.is_array()) {
                ("", _) | ("[]", true) => Some(id),
                ("[]", false) => id.array(),
                _ => None,
            })
        }
        [] => None,
    };
    let made_here = || context.objects.as_deref()?.named_type_oid(name);
    let shown = || parts.iter().map(|part| part.name.as_str()).collect::<Vec<_>>().join(".");
    found.map(TypeId::oid).or_else(made_here).ok_or_else(|| match parts.as_slice() {
        [Part { quoted: false, .. }] => unknown(name),
        [schema, bare] | [_, schema, bare] if schema.name != "pg_catalog" => {
            match schema_exists(&schema.name, context) {
                true => unknown(&format!("{}.{}", schema.name, bare.name)),
                false => no_schema(&schema.name),
            }
        }
        _ => unknown(&shown()),
    })
}

/// A modifier is allowed and means nothing: `numeric(5,2)`, `timestamp(3) with time zone`.
fn without_modifier(text: &str) -> String {
    match (text.find('('), text.rfind(')')) {
        (Some(open), Some(close)) if open < close => {
            format!("{}{}", text[..open].trim_end(), &text[close + 1..])
        }
        _ => text.trim_end().to_owned(),
    }
}

/// A part of a dotted name, in small letters unless it is quoted.
struct Part {
    name: String,
    quoted: bool,
}

/// The dotted name that a text begins with, and what follows it. None if a quote is not closed.
fn leading_name(text: &str) -> Option<(Vec<Part>, &str)> {
    let mut parts = Vec::new();
    let mut rest = text;
    loop {
        if let Some(mut inner) = rest.strip_prefix('"') {
            let mut name = String::new();
            loop {
                let (before, after) = inner.split_once('"')?;
                name.push_str(before);
                match after.strip_prefix('"') {
                    Some(after) => {
                        name.push('"');
                        inner = after;
                    }
                    None => {
                        rest = after;
                        break;
                    }
                }
            }
            parts.push(Part { name, quoted: true });
        } else {
            let end = rest.find(['.', '"', ' ', '(', '[']).unwrap_or(rest.len());
            parts.push(Part { name: rest[..end].to_ascii_lowercase(), quoted: false });
            rest = &rest[end..];
        }
        match rest.trim_start().strip_prefix('.') {
            Some(after) => rest = after.trim_start(),
            None => return Some((parts, rest)),
        }
    }
}

/// A name that has quotes where it needs them, with quotes everywhere if these are asked for.
pub(crate) fn requoted(name: String, context: &FormatContext) -> String {
    if !context.quote_all {
        return name;
    }
    match leading_name(&name) {
        Some((parts, rest)) => {
            let parts = parts.iter().map(|part| in_quotes(&part.name));
            format!("{}{rest}", parts.collect::<Vec<_>>().join("."))
        }
        None => name.clone(),
    }
}

/// The same of a type's name, unless it is made of words of the grammar.
pub(crate) fn requoted_type(name: String, context: &FormatContext) -> String {
    const GRAMMAR: [&str; 12] = [
        "bigint",
        "bit",
        "boolean",
        "character",
        "double",
        "integer",
        "interval",
        "numeric",
        "real",
        "smallint",
        "time",
        "timestamp",
    ];
    let word = name.split([' ', '(', '[']).next().unwrap_or_default();
    if GRAMMAR.contains(&word) { name } else { requoted(name, context) }
}

/// Appends the name; the number if there is no such object.
pub(super) fn write(id: TypeId, oid: u32, context: &FormatContext, out: &mut Vec<u8>) {
    let objects = context.objects.as_deref();
    let quoted = |name: Option<String>| name.map(|name| requoted(name, context));
    let name = match id {
        // There is an operator of the name.
        TypeId::Regoper | TypeId::Regoperator if oid == 0 => None,
        _ if oid == 0 => Some("-".to_owned()),
        TypeId::Regtype => TypeId::from_oid(oid)
            .map(|ty| ty.sql_name().to_owned())
            .or_else(|| objects.and_then(|o| o.type_name(oid)))
            .map(|name| requoted_type(name, context)),
        TypeId::Regclass => quoted(objects.and_then(|o| o.relation_name(oid))),
        TypeId::Regproc => quoted(objects.and_then(|o| o.function_name(oid))),
        TypeId::Regprocedure => objects.and_then(|o| o.procedure_name(oid)),
        TypeId::Regnamespace => quoted(objects.and_then(|o| o.schema_name(oid))),
        TypeId::Regrole => quoted(objects.and_then(|o| o.role_name(oid))),
        TypeId::Regoper => objects.and_then(|o| o.operator_name(oid, false)),
        TypeId::Regoperator => objects.and_then(|o| o.operator_name(oid, true)),
        _ => None,
    };
    out.extend_from_slice(name.unwrap_or_else(|| oid.to_string()).as_bytes());
}
