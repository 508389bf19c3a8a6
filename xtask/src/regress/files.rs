//! Which of PostgreSQL's scripts count.

use std::path::Path;

/// Those that a transactional application needs: everything but what is about features that Cognate
/// leaves out on purpose or has for a later day, such as partitions, triggers and procedural
/// languages, full text, geometry, ranges, XML, foreign data, publications, security labels, large
/// objects, parallel plans, inheritance, extended statistics, rules, access methods, roles.
pub(crate) const TRANSACTIONAL: &[&str] = &[
    "boolean",
    "varchar",
    "int2",
    "int4",
    "int8",
    "float4",
    "float8",
    "numeric",
    "uuid",
    "enum",
    "strings",
    "date",
    "time",
    "timestamp",
    "timestamptz",
    "interval",
    "horology",
    "regex",
    "arrays",
    "json",
    "jsonb",
    "rowtypes",
    "domain",
    "copy",
    "copy2",
    "insert",
    "insert_conflict",
    "update",
    "delete",
    "returning",
    "select",
    "select_distinct",
    "select_having",
    "subselect",
    "union",
    "case",
    "join",
    "aggregates",
    "groupingsets",
    "window",
    "with",
    "limit",
    "tsrf",
    "tablesample",
    "create_table",
    "create_index",
    "create_view",
    "constraints",
    "foreign_key",
    "identity",
    "generated",
    "sequence",
    "alter_table",
    "truncate",
    "functional_deps",
    "temp",
    "transactions",
    "portals",
    "prepared_xacts",
    "prepare",
    "errors",
    "vacuum",
];

/// All that PostgreSQL itself runs, in its order.
pub(crate) fn every(folder: &Path) -> Result<Vec<String>, String> {
    let path = folder.join("parallel_schedule");
    let text = std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    let lines = text.lines().filter_map(|line| line.strip_prefix("test:"));
    let names = lines.flat_map(str::split_whitespace);
    Ok(names.filter(|name| *name != "test_setup").map(str::to_owned).collect())
}
