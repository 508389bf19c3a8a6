//! The oid types that print as names: regclass, regtype, regproc, regnamespace, regrole.

use super::input::parse_oid;
use super::{FormatContext, TypeId};
use crate::error::{SqlError, sqlstate};

/// Reads a name or a number. 42P01, 42704, 42883 or 3F000 if there is no such object.
pub(super) fn parse(id: TypeId, text: &str, context: &FormatContext) -> Result<u32, SqlError> {
    let name = text.trim();
    if name == "-" {
        return Ok(0);
    }
    if !name.is_empty() && name.bytes().all(|b| b.is_ascii_digit()) {
        return parse_oid(name);
    }
    if id == TypeId::Regtype {
        return parse_type(name, context);
    }
    let objects = context.objects.as_deref();
    let (found, sqlstate, kind) = match id {
        TypeId::Regclass => {
            (objects.and_then(|o| o.relation_oid(name)), sqlstate::UNDEFINED_TABLE, "relation")
        }
        TypeId::Regproc => {
            (objects.and_then(|o| o.function_oid(name)), sqlstate::UNDEFINED_FUNCTION, "function")
        }
        TypeId::Regnamespace => {
            (objects.and_then(|o| o.schema_oid(name)), sqlstate::INVALID_SCHEMA_NAME, "schema")
        }
        _ => (objects.and_then(|o| o.role_oid(name)), sqlstate::UNDEFINED_OBJECT, "role"),
    };
    found.ok_or_else(|| SqlError::new(sqlstate, format!("{kind} \"{name}\" does not exist")))
}

/// A type by its name as SQL writes it, with or without schema and modifier.
fn parse_type(name: &str, context: &FormatContext) -> Result<u32, SqlError> {
    let lower = name.to_ascii_lowercase();
    let bare = lower.strip_prefix("pg_catalog.").unwrap_or(&lower);
    // A modifier is allowed and means nothing: `numeric(5,2)`, `timestamp(3) with time zone`.
    let without_modifier = match (bare.find('('), bare.rfind(')')) {
        (Some(open), Some(close)) if open < close => {
            format!("{}{}", bare[..open].trim_end(), &bare[close + 1..])
        }
        _ => bare.to_owned(),
    };
    let found = TypeId::from_name(&without_modifier)
        .filter(|id| !matches!(id, TypeId::Enum | TypeId::EnumArray) || bare == "anyenum");
    found
        .map(TypeId::oid)
        .or_else(|| context.objects.as_deref()?.named_type_oid(name))
        .ok_or_else(|| SqlError::new(sqlstate::UNDEFINED_OBJECT, format!("type \"{name}\" does not exist")))
}

/// Appends the name; the number if there is no such object.
pub(super) fn write(id: TypeId, oid: u32, context: &FormatContext, out: &mut Vec<u8>) {
    let objects = context.objects.as_deref();
    let name = match id {
        _ if oid == 0 => Some("-".to_owned()),
        TypeId::Regtype => TypeId::from_oid(oid)
            .map(|ty| ty.sql_name().to_owned())
            .or_else(|| objects.and_then(|o| o.type_name(oid))),
        TypeId::Regclass => objects.and_then(|o| o.relation_name(oid)),
        TypeId::Regproc => objects.and_then(|o| o.function_name(oid)),
        TypeId::Regnamespace => objects.and_then(|o| o.schema_name(oid)),
        TypeId::Regrole => objects.and_then(|o| o.role_name(oid)),
        _ => None,
    };
    out.extend_from_slice(name.unwrap_or_else(|| oid.to_string()).as_bytes());
}
