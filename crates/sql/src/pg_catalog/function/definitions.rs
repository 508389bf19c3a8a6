//! `pg_get_*def`, `pg_get_expr`: definitions as SQL text; and the comments.

use std::sync::Arc;

use super::super::constraint;
use super::super::definition;
use super::super::deparse::{self, Style};
use super::super::names::{AnyRelation, qualified, split};
use super::super::{Source, procedure, routine, table_by_oid};
use super::names::type_name;
use super::{null, oid, over_catalog, plain, text, truth};
use crate::catalog::{Relation, Sequence, TEMPORARY_ALIAS, Table};
use crate::error::{Result, SqlError, sqlstate};
use crate::function::Function;
use crate::types::Datum;
use crate::types::TypeId::{Bool, Int4, Name, Oid, Text};

pub(super) static FUNCTIONS: &[Function] = &[
    over_catalog!(1716, "pg_get_expr", &[Text, Oid], Text, expression),
    over_catalog!(2509, "pg_get_expr", &[Text, Oid, Bool], Text, expression),
    over_catalog!(1643, "pg_get_indexdef", &[Oid], Text, index),
    over_catalog!(2507, "pg_get_indexdef", &[Oid, Int4, Bool], Text, index),
    over_catalog!(1387, "pg_get_constraintdef", &[Oid], Text, constraint),
    over_catalog!(2508, "pg_get_constraintdef", &[Oid, Bool], Text, constraint),
    over_catalog!(1641, "pg_get_viewdef", &[Oid], Text, view),
    over_catalog!(2506, "pg_get_viewdef", &[Oid, Bool], Text, view),
    over_catalog!(3159, "pg_get_viewdef", &[Oid, Int4], Text, view),
    over_catalog!(1640, "pg_get_viewdef", &[Text], Text, view),
    over_catalog!(2505, "pg_get_viewdef", &[Text, Bool], Text, view),
    over_catalog!(1665, "pg_get_serial_sequence", &[Text, Text], Text, serial_sequence),
    over_catalog!(1215, "obj_description", &[Oid, Name], Text, object_comment),
    over_catalog!(1348, "obj_description", &[Oid], Text, object_comment),
    over_catalog!(1216, "col_description", &[Oid, Int4], Text, column_comment),
    over_catalog!(1993, "shobj_description", &[Oid, Name], Text, shared_comment),
    plain(1573, "pg_get_ruledef", &[Oid], Text, null),
    plain(2504, "pg_get_ruledef", &[Oid, Bool], Text, null),
    plain(1662, "pg_get_triggerdef", &[Oid], Text, null),
    plain(2730, "pg_get_triggerdef", &[Oid, Bool], Text, null),
    over_catalog!(2098, "pg_get_functiondef", &[Oid], Text, function_definition),
    over_catalog!(2165, "pg_get_function_result", &[Oid], Text, function_result),
    over_catalog!(2162, "pg_get_function_arguments", &[Oid], Text, function_arguments),
    over_catalog!(2232, "pg_get_function_identity_arguments", &[Oid], Text, identity_arguments),
    over_catalog!(3808, "pg_get_function_arg_default", &[Oid, Int4], Text, argument_default),
    plain(6197, "pg_get_function_sqlbody", &[Oid], Text, null),
    plain(3352, "pg_get_partkeydef", &[Oid], Text, null),
    plain(3415, "pg_get_statisticsobjdef", &[Oid], Text, null),
    plain(6174, "pg_get_statisticsobjdef_columns", &[Oid], Text, null),
    plain(3408, "pg_get_partition_constraintdef", &[Oid], Text, null),
];

/// Of what is shared by databases, roles have comments.
fn shared_comment(arguments: &[Datum], source: &Source<'_>) -> Result<Datum> {
    let oid = oid(arguments, 0);
    let comment = match text(arguments, 1) {
        "pg_authid" => source.catalog.role_by_oid(oid).and_then(|role| role.comment.clone()),
        "pg_database" => source.catalog.database_by_oid(oid).and_then(|known| known.comment.clone()),
        _ => None,
    };
    Ok(comment.into())
}

/// The stored form is the text already, so only the pretty form has to be made from it.
fn expression(arguments: &[Datum], source: &Source<'_>) -> Result<Datum> {
    let stored = text(arguments, 0);
    if !truth(arguments, 2) {
        return Ok(arguments[0].clone());
    }
    let table = source.catalog.table_by_oid(oid(arguments, 1));
    Ok(match table {
        Some(table) => deparse::again(source, table, stored, Style::Pretty).into(),
        None => arguments[0].clone(),
    })
}

fn index(arguments: &[Datum], source: &Source<'_>) -> Result<Datum> {
    let Some(Relation::Index(table, oid)) = source.catalog.relation_by_oid(oid(arguments, 0)) else {
        return Ok(Datum::Null);
    };
    let Some(index) = table.index(*oid) else { return Ok(Datum::Null) };
    let column = arguments.get(1).and_then(Datum::as_i64).unwrap_or(0);
    let style = if truth(arguments, 2) { Style::Pretty } else { Style::Plain };
    if column == 0 {
        return Ok(definition::index(source, table, index, style).into());
    }
    let key = usize::try_from(column - 1).ok().and_then(|place| index.shown().nth(place));
    let printed = key.map(|key| definition::index_key(source, table, index, key, style));
    Ok(printed.unwrap_or_default().into())
}

fn constraint(arguments: &[Datum], source: &Source<'_>) -> Result<Datum> {
    let style = if truth(arguments, 1) { Style::Pretty } else { Style::Plain };
    let found = constraint::by_oid(source, oid(arguments, 0));
    let printed =
        found.map(|(table, constraint)| constraint.definition(source, table.map(AsRef::as_ref), style));
    Ok(printed.into())
}

fn view(arguments: &[Datum], source: &Source<'_>) -> Result<Datum> {
    let relation = match arguments[0].as_str() {
        Some(name) => find(source, name)?,
        None => match AnyRelation::by_oid(source.catalog, oid(arguments, 0)) {
            Some(relation) => relation,
            None => return Ok(Datum::Null),
        },
    };
    Ok(match relation {
        AnyRelation::Stored(Relation::View(view)) => definition::view(view, source).into(),
        _ => Datum::Null,
    })
}

/// A relation by its name. 42P01.
pub(super) fn find<'a>(source: &Source<'a>, name: &str) -> Result<AnyRelation<'a>> {
    AnyRelation::find(source.catalog, &source.search_path(), name).ok_or_else(|| {
        let shown = split(name).map_or_else(|| name.to_owned(), |parts| parts.join("."));
        SqlError::new(sqlstate::UNDEFINED_TABLE, format!("relation \"{shown}\" does not exist"))
    })
}

fn serial_sequence(arguments: &[Datum], source: &Source<'_>) -> Result<Datum> {
    let relation = find(source, text(arguments, 0))?;
    let AnyRelation::Stored(Relation::Table(table)) = relation else { return Ok(Datum::Null) };
    let column = place(table, text(arguments, 1))?;
    let all = source.catalog.sequences().filter(|sequence| sequence.owner == Some((table.oid, column)));
    let owned = all.min_by_key(|sequence| sequence.oid);
    let named = |sequence: &Arc<Sequence>| {
        let is_own = source.temporary_schema().is_some_and(|schema| schema.oid == sequence.schema);
        let schema = if is_own { TEMPORARY_ALIAS } else { &sequence.schema_name };
        qualified(schema, &sequence.name)
    };
    Ok(owned.map(named).into())
}

/// The place of a column. 42703.
fn place(table: &Table, name: &str) -> Result<usize> {
    table.column_place(name).ok_or_else(|| {
        SqlError::new(
            sqlstate::UNDEFINED_COLUMN,
            format!("column \"{name}\" of relation \"{}\" does not exist", table.name),
        )
    })
}

fn object_comment(arguments: &[Datum], source: &Source<'_>) -> Result<Datum> {
    let oid = oid(arguments, 0);
    let class = arguments.get(1).map(|_| text(arguments, 1));
    let comment = constraint::comments(source.catalog).into_iter().find(|comment| {
        let (object, comment_class, column) = comment.object;
        let fits =
            class.is_none_or(|class| table_by_oid(comment_class).is_some_and(|table| table.name == class));
        object == oid && column == 0 && fits
    });
    Ok(comment.map(|comment| comment.text).into())
}

fn column_comment(arguments: &[Datum], source: &Source<'_>) -> Result<Datum> {
    let place = usize::try_from(super::integer(arguments, 1) - 1).ok();
    let column = match source.catalog.relation_by_oid(oid(arguments, 0)) {
        Some(Relation::Table(table)) => place.and_then(|place| table.columns.get(place)),
        Some(Relation::View(view)) => place.and_then(|place| view.columns.get(place)),
        _ => None,
    };
    Ok(column.filter(|column| !column.dropped).and_then(|column| column.comment.clone()).into())
}

fn function_definition(arguments: &[Datum], source: &Source<'_>) -> Result<Datum> {
    if let Some(found) = source.catalog.routine_by_oid(oid(arguments, 0)) {
        return Ok(routine::definition(source, found).into());
    }
    let Some(procedure) = procedure::by_oid(oid(arguments, 0)) else { return Ok(Datum::Null) };
    let (taken, given) = (function_arguments(arguments, source)?, function_result(arguments, source)?);
    let texts = (taken.as_str().unwrap_or_default(), given.as_str().unwrap_or_default());
    procedure.definition(texts.0, texts.1).map(Datum::from).ok_or_else(|| {
        let message = format!("\"{}\" is an aggregate function", procedure.name);
        SqlError::new(sqlstate::WRONG_OBJECT_TYPE, message)
    })
}

fn function_result(arguments: &[Datum], source: &Source<'_>) -> Result<Datum> {
    if let Some(found) = source.catalog.routine_by_oid(oid(arguments, 0)) {
        return Ok(routine::result(source, found).into());
    }
    let Some(procedure) = procedure::by_oid(oid(arguments, 0)) else { return Ok(Datum::Null) };
    let set = if procedure.returns_set() { "SETOF " } else { "" };
    Ok(format!("{set}{}", type_name(procedure.result)).into())
}

/// Of built-in functions none is known.
fn argument_default(arguments: &[Datum], source: &Source<'_>) -> Result<Datum> {
    let found = source.catalog.routine_by_oid(oid(arguments, 0));
    Ok(found.and_then(|found| routine::argument_default(found, super::integer(arguments, 1))).into())
}

fn identity_arguments(arguments: &[Datum], source: &Source<'_>) -> Result<Datum> {
    match source.catalog.routine_by_oid(oid(arguments, 0)) {
        Some(found) => Ok(routine::arguments(source, found, false).into()),
        None => function_arguments(arguments, source),
    }
}

fn function_arguments(arguments: &[Datum], source: &Source<'_>) -> Result<Datum> {
    if let Some(found) = source.catalog.routine_by_oid(oid(arguments, 0)) {
        return Ok(routine::arguments(source, found, true).into());
    }
    let Some(procedure) = procedure::by_oid(oid(arguments, 0)) else { return Ok(Datum::Null) };
    let mut types: Vec<String> = procedure.arguments.iter().map(|oid| type_name(*oid)).collect();
    if procedure.variadic() != 0
        && let Some(last) = types.last_mut()
    {
        *last = format!("VARIADIC {last}");
    }
    Ok(types.join(", ").into())
}
