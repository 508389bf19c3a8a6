//! `pg_describe_object`: in words what `pg_depend` and its kin speak of in numbers.

use super::super::names::AnyRelation;
use super::super::relation::{SEQUENCE_COLUMNS, defaults};
use super::super::{Source, acl, constraint, procedure, routine, table_by_oid};
use super::names::{any_type_name, type_name};
use super::{integer, oid, over_catalog};
use crate::catalog::{Relation, Securable};
use crate::error::{Result, SqlError};
use crate::function::Function;
use crate::types::Datum;
use crate::types::TypeId::{Int4, Oid, Text};

pub(super) static FUNCTIONS: &[Function] =
    &[over_catalog!(3537, "pg_describe_object", &[Oid, Oid, Int4], Text, describe)];

/// An object of a system table; NULL if it has none of that oid. 0A000 for other tables than those
/// that have objects of users.
fn describe(arguments: &[Datum], source: &Source<'_>) -> Result<Datum> {
    let (class, object) = (oid(arguments, 0), oid(arguments, 1));
    let catalog = source.catalog;
    let told = match table_by_oid(class).map(|table| table.name) {
        _ if class == 0 && object == 0 => None,
        Some("pg_class") => relation(source, object, integer(arguments, 2)),
        Some("pg_type") => data_type(source, object),
        Some("pg_proc") => function(source, object),
        Some("pg_constraint") => of_constraint(source, object),
        Some("pg_attrdef") => default_value(source, object),
        // The rule of a view has its oid.
        Some("pg_rewrite") => relation(source, object, 0).map(|view| format!("rule _RETURN on {view}")),
        Some("pg_namespace") => catalog.schema_by_oid(object).map(|found| format!("schema {}", found.name)),
        Some("pg_authid") => catalog.role_by_oid(object).map(|found| format!("role {}", found.name)),
        Some("pg_database") => {
            catalog.database_by_oid(object).map(|found| format!("database {}", found.name))
        }
        Some("pg_default_acl") => default_privileges(source, object),
        _ => return Err(SqlError::unsupported(format!("an object of the class {class}"))),
    };
    Ok(told.into())
}

/// A relation, or its column at a place from 1.
fn relation(source: &Source<'_>, oid: u32, place: i64) -> Option<String> {
    let found = AnyRelation::by_oid(source.catalog, oid)?;
    let kind = match found {
        AnyRelation::Stored(relation) => relation.kind(),
        AnyRelation::System(table) if table.view => "view",
        AnyRelation::System(_) => "table",
    };
    let told = format!("{kind} {}", source.display(oid)?);
    if place == 0 {
        return Some(told);
    }
    let place = usize::try_from(place).ok()?.checked_sub(1)?;
    let column = match found {
        AnyRelation::Stored(Relation::Table(table)) => {
            table.columns.get(place).filter(|column| !column.dropped)?.name.as_str()
        }
        AnyRelation::Stored(Relation::View(view)) => view.columns.get(place)?.name.as_str(),
        AnyRelation::Stored(Relation::Sequence(_)) => SEQUENCE_COLUMNS.get(place)?.0,
        AnyRelation::Stored(_) => return None,
        AnyRelation::System(table) => table.columns.get(place)?.0,
    };
    Some(format!("column {column} of {told}"))
}

fn data_type(source: &Source<'_>, oid: u32) -> Option<String> {
    let name = any_type_name(oid, &source.eval);
    (name != "???" && name != "-").then(|| format!("type {name}"))
}

fn function(source: &Source<'_>, oid: u32) -> Option<String> {
    let (name, types): (String, Vec<String>) = match source.catalog.routine_by_oid(oid) {
        Some(found) => {
            let inputs = found.input_types();
            let types = inputs.iter().map(|ty| ty.format_with(source.eval.format)).collect();
            (routine::display(source.catalog, &source.search_path(), found), types)
        }
        None => {
            let found = procedure::by_oid(oid)?;
            let types = found.arguments.iter().map(|argument| type_name(*argument)).collect();
            (found.name.to_owned(), types)
        }
    };
    Some(format!("function {name}({})", types.join(",")))
}

fn of_constraint(source: &Source<'_>, oid: u32) -> Option<String> {
    let (table, found) = constraint::by_oid(source, oid)?;
    let name = found.name();
    match table {
        Some(table) => Some(format!("constraint {name} on {}", relation(source, table.oid, 0)?)),
        None => Some(format!("constraint {name}")),
    }
}

fn default_value(source: &Source<'_>, oid: u32) -> Option<String> {
    let found = defaults(source.catalog).find(|default| default.oid == oid)?;
    let place = i64::try_from(found.place).ok()?;
    Some(format!("default value for {}", relation(source, found.table.oid, place + 1)?))
}

fn default_privileges(source: &Source<'_>, oid: u32) -> Option<String> {
    let found = source.catalog.default_accesses().find(|default| default.oid == oid)?;
    let objects = match found.kind {
        Securable::Table => "relations",
        Securable::Sequence => "sequences",
        Securable::Schema => "schemas",
        Securable::Routine => "functions",
        Securable::Type => "types",
        Securable::Database => "databases",
    };
    let role = acl::role_name(source, found.role);
    let within = match source.catalog.schema_by_oid(found.schema) {
        Some(schema) => format!(" in schema {}", schema.name),
        None => String::new(),
    };
    Some(format!("default privileges on new {objects} belonging to role {role}{within}"))
}
