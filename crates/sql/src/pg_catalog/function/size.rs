//! Sizes of relations and of databases, and how sizes print.

use std::sync::Arc;

use super::super::Source;
use super::{integer, oid, over_catalog, plain, text};
use crate::catalog::{Relation, Table};
use crate::ddl::database::undefined_database;
use crate::error::{Result, SqlError, sqlstate};
use crate::function::{EvalContext, Function, Volatility};
use crate::types::TypeId::{Int8, Name, Numeric, Oid, Regclass, Text};
use crate::types::{Datum, Type};

/// Sizes change while a statement runs.
const fn volatile(mut function: Function) -> Function {
    function.volatility = Volatility::Volatile;
    function
}

pub(super) static FUNCTIONS: &[Function] = &[
    volatile(over_catalog!(2325, "pg_relation_size", &[Regclass], Int8, relation_size)),
    volatile(over_catalog!(2332, "pg_relation_size", &[Regclass, Text], Int8, fork_size)),
    volatile(over_catalog!(2997, "pg_table_size", &[Regclass], Int8, relation_size)),
    volatile(over_catalog!(2998, "pg_indexes_size", &[Regclass], Int8, indexes_size)),
    volatile(over_catalog!(2286, "pg_total_relation_size", &[Regclass], Int8, total_size)),
    volatile(over_catalog!(2168, "pg_database_size", &[Name], Int8, database_size)),
    volatile(over_catalog!(2324, "pg_database_size", &[Oid], Int8, database_size)),
    volatile(over_catalog!(2322, "pg_tablespace_size", &[Oid], Int8, tablespace_size)),
    volatile(over_catalog!(2323, "pg_tablespace_size", &[Name], Int8, tablespace_size)),
    over_catalog!(2999, "pg_relation_filenode", &[Regclass], Oid, file_node),
    plain(2288, "pg_size_pretty", &[Int8], Text, pretty),
    plain(3166, "pg_size_pretty", &[Numeric], Text, pretty_numeric),
    plain(3334, "pg_size_bytes", &[Text], Int8, bytes),
];

/// The tree a relation's entries are in; a clustered primary key has none of its own.
fn tree(relation: &Relation) -> Option<u32> {
    match relation {
        Relation::Table(table) => Some(table.tree),
        Relation::Index(..) => {
            relation.as_index().filter(|index| !index.is_clustered()).map(|index| index.tree)
        }
        _ => None,
    }
}

fn relation_size(arguments: &[Datum], source: &Source<'_>) -> Result<Datum> {
    let relation = source.catalog.relation_by_oid(oid(arguments, 0));
    let exists = relation.is_some() || super::super::table_by_oid(oid(arguments, 0)).is_some();
    let bytes = relation.and_then(tree).map_or(0, |tree| source.tree_bytes(tree));
    Ok(if exists { Datum::Int8(bytes) } else { Datum::Null })
}

/// Only the main fork has anything in it.
fn fork_size(arguments: &[Datum], source: &Source<'_>) -> Result<Datum> {
    match text(arguments, 1) {
        "main" => relation_size(arguments, source),
        "fsm" | "vm" | "init" => Ok(Datum::Int8(0)),
        _ => Err(SqlError::new(sqlstate::INVALID_PARAMETER_VALUE, "invalid fork name")
            .with_hint("Valid fork names are \"main\", \"fsm\", \"vm\", and \"init\".")),
    }
}

fn index_bytes(table: &Arc<Table>, source: &Source<'_>) -> i64 {
    let own = table.indexes.iter().filter(|index| !index.is_clustered());
    own.map(|index| source.tree_bytes(index.tree)).sum()
}

fn indexes_size(arguments: &[Datum], source: &Source<'_>) -> Result<Datum> {
    let table = source.catalog.table_by_oid(oid(arguments, 0));
    Ok(Datum::Int8(table.map_or(0, |table| index_bytes(table, source))))
}

fn total_size(arguments: &[Datum], source: &Source<'_>) -> Result<Datum> {
    let own = relation_size(arguments, source)?;
    let table = source.catalog.table_by_oid(oid(arguments, 0));
    let indexes = table.map_or(0, |table| index_bytes(table, source));
    Ok(own.as_i64().map(|bytes| bytes + indexes).into())
}

/// NULL for an oid that no database has. 3D000.
fn database_size(arguments: &[Datum], source: &Source<'_>) -> Result<Datum> {
    let database = match &arguments[0] {
        Datum::Oid(oid) => *oid,
        name => {
            let name = name.as_str().unwrap_or("");
            source.database_named(name).ok_or_else(|| undefined_database(name))?
        }
    };
    match source.catalog.database_by_oid(database) {
        Some(_) => Ok(Datum::Int8(source.server.database_bytes(database))),
        None => Ok(Datum::Null),
    }
}

/// There is one tablespace, and all databases are in it.
fn tablespace_size(_: &[Datum], source: &Source<'_>) -> Result<Datum> {
    let all = source.catalog.databases().map(|known| source.server.database_bytes(known.oid));
    Ok(Datum::Int8(all.sum()))
}

fn file_node(arguments: &[Datum], source: &Source<'_>) -> Result<Datum> {
    let relation = source.catalog.relation_by_oid(oid(arguments, 0));
    Ok(relation.and_then(tree).map_or(Datum::Null, Datum::Oid))
}

/// Units, and up to how many of them (with rounding by half) are printed in the unit rather than
/// the next.
const UNITS: [&str; 6] = ["bytes", "kB", "MB", "GB", "TB", "PB"];

/// As PostgreSQL prints sizes: at most five digits, halves rounded up.
fn pretty_size(size: i128) -> String {
    let mut size = size;
    // In half units after the first step, so that the last step can round.
    let mut halves = false;
    for (place, unit) in UNITS.iter().enumerate() {
        let limit = if halves { 20 * 1024 - 1 } else { 10 * 1024 };
        if size.abs() < limit || place + 1 == UNITS.len() {
            let rounded = if halves { (size + i128::from(size >= 0)) / 2 } else { size };
            return format!("{rounded} {unit}");
        }
        // The first step goes to halves of the next unit, the later ones from halves to halves.
        size /= if halves { 1024 } else { 512 };
        halves = true;
    }
    format!("{size} bytes")
}

fn pretty(arguments: &[Datum], _: &EvalContext<'_>) -> Result<Datum> {
    Ok(pretty_size(i128::from(integer(arguments, 0))).into())
}

fn pretty_numeric(arguments: &[Datum], context: &EvalContext<'_>) -> Result<Datum> {
    let mut printed = Vec::new();
    arguments[0].to_text(Type::new(Numeric), context.format, &mut printed);
    let printed = String::from_utf8_lossy(&printed).into_owned();
    let whole = printed.split('.').next().unwrap_or("");
    match whole.parse::<i128>() {
        // A fraction shows only where the number is printed in bytes.
        Ok(size) if size.abs() >= 10 * 1024 => Ok(pretty_size(size).into()),
        _ => Ok(format!("{printed} bytes").into()),
    }
}

fn bytes(arguments: &[Datum], _: &EvalContext<'_>) -> Result<Datum> {
    let given = text(arguments, 0);
    let invalid = |detail: String| {
        SqlError::new(sqlstate::INVALID_PARAMETER_VALUE, format!("invalid size: \"{given}\""))
            .with_detail(detail)
    };
    let trimmed = given.trim();
    let end =
        trimmed.find(|c: char| c.is_ascii_alphabetic() && !matches!(c, 'e' | 'E')).unwrap_or(trimmed.len());
    let number: f64 = trimmed[..end].trim().parse().map_err(|_| {
        SqlError::new(sqlstate::INVALID_PARAMETER_VALUE, format!("invalid size: \"{given}\""))
    })?;
    let unit = trimmed[end..].trim().to_ascii_lowercase();
    let power = match unit.as_str() {
        "" | "b" | "bytes" => 0,
        "kb" => 1,
        "mb" => 2,
        "gb" => 3,
        "tb" => 4,
        "pb" => 5,
        _ => return Err(invalid(format!("Invalid size unit: \"{}\".", trimmed[end..].trim()))),
    };
    let size = number * 1024f64.powi(power);
    if size.abs() >= i64::MAX as f64 {
        return Err(SqlError::out_of_range("bigint"));
    }
    Ok(Datum::Int8(size.round() as i64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_print_as_in_postgresql() {
        for (size, expected) in [
            (0, "0 bytes"),
            (8192, "8192 bytes"),
            (10239, "10239 bytes"),
            (10240, "10 kB"),
            (10752, "11 kB"),
            (-10240, "-10 kB"),
            (10 * 1024 * 1024 - 1, "10 MB"),
            (8192 * 1024, "8192 kB"),
            (12_345_678, "12 MB"),
            (1_234_567_890, "1177 MB"),
            (1_234_567_890_123, "1150 GB"),
        ] {
            assert_eq!(pretty_size(size), expected, "{size}");
        }
    }
}
