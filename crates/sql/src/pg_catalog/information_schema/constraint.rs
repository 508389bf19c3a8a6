//! Constraints and the columns they are about.

use std::collections::HashSet;
use std::sync::Arc;

use super::super::Source;
use super::super::constraint::all_constraints;
use super::super::definition::Constraint;
use super::super::deparse::Style;
use super::super::viewer::Viewer;
use super::{domain, yes};
use crate::catalog::{Catalog, ForeignKey, Oid, Privileges, Table};

/// A row of `table_constraints`; NOT NULL counts as CHECK.
struct Row {
    schema: String,
    table: String,
    name: String,
    kind: &'static str,
    deferral: (bool, bool),
    /// Of UNIQUE.
    nulls_distinct: Option<bool>,
}

/// The name and the column of each NOT NULL, which is no constraint of its own.
fn not_nulls(catalog: &Catalog) -> impl Iterator<Item = (&Arc<Table>, String, &str)> {
    catalog.tables().flat_map(|table| {
        let columns = table.visible_columns().filter(|(_, column)| column.not_null);
        columns.map(move |(place, column)| {
            let name = format!("{}_{}_{}_not_null", table.schema, table.oid, place + 1);
            (table, name, column.name.as_str())
        })
    })
}

/// Oids of the tables whose constraints are told: more than to read them must be allowed.
fn told_tables(source: &Source<'_>, viewer: &Viewer<'_>) -> HashSet<Oid> {
    let told = source.catalog.tables().filter(|table| {
        !viewer.is_of_another_session(table.schema) && viewer.sees_relation(table.oid, !Privileges::SELECT)
    });
    told.map(|table| table.oid).collect()
}

fn rows(source: &Source<'_>) -> Vec<Row> {
    let (catalog, told) = (source.catalog, told_tables(source, &Viewer::new(source)));
    let is_told = |table: &Table| told.contains(&table.oid);
    let named = all_constraints(catalog).filter(|(table, _)| is_told(table));
    let named = named.map(|(table, constraint)| Row {
        schema: table.schema_name.clone(),
        table: table.name.clone(),
        name: constraint.name().to_owned(),
        kind: match constraint.letter() {
            'p' => "PRIMARY KEY",
            'u' => "UNIQUE",
            'f' => "FOREIGN KEY",
            _ => "CHECK",
        },
        deferral: constraint.deferral(),
        nulls_distinct: match constraint {
            Constraint::Key(index) if !index.primary => Some(!index.nulls_not_distinct),
            _ => None,
        },
    });
    let not_null = not_nulls(catalog).filter(|(table, _, _)| is_told(table));
    let not_null = not_null.map(|(table, name, _)| Row {
        schema: table.schema_name.clone(),
        table: table.name.clone(),
        name,
        kind: "CHECK",
        deferral: (false, false),
        nulls_distinct: None,
    });
    named.chain(not_null).collect()
}

system_table! {
    pub(super) static TABLE_CONSTRAINTS = 13411 view "information_schema"."table_constraints",
    |source| rows(source).into_iter().map(|row| (source.database(), row)) => |(database, row)|,
    constraint_catalog: Name = database.clone(),
    constraint_schema: Name = row.schema.clone(),
    constraint_name: Name = row.name,
    table_catalog: Name = database,
    table_schema: Name = row.schema,
    table_name: Name = row.table,
    constraint_type: Varchar = row.kind,
    is_deferrable: Varchar = yes(row.deferral.0),
    initially_deferred: Varchar = yes(row.deferral.1),
    enforced: Varchar = yes(true),
    nulls_distinct: Varchar = row.nulls_distinct.map(yes),
}

/// A column of a constraint.
struct ColumnRow<'a> {
    /// Where the constraint is.
    home: &'a Table,
    constraint: String,
    /// Where the column is.
    table: &'a Table,
    column: &'a str,
    position: usize,
    referenced_position: Option<usize>,
}

fn column_name(table: &Table, place: usize) -> &str {
    table.columns.get(place).map_or("", |column| &column.name)
}

/// The position of a referenced column in the unique constraint that a foreign key refers to.
fn referenced_position(catalog: &Catalog, key: &ForeignKey, place: usize) -> Option<usize> {
    let index = catalog.table_by_oid(key.referenced_table)?.index(key.referenced_index)?;
    let column = key.referenced_columns.get(place)?;
    index.key_columns().position(|candidate| candidate == *column).map(|position| position + 1)
}

fn key_columns<'a>(source: &Source<'a>) -> Vec<ColumnRow<'a>> {
    let (catalog, viewer) = (source.catalog, Viewer::new(source));
    let mut rows = Vec::new();
    for (table, constraint) in all_constraints(catalog) {
        if matches!(constraint, Constraint::Check(_)) || viewer.is_of_another_session(table.schema) {
            continue;
        }
        let is_shown = viewer.columns(table.oid, Privileges::COLUMN);
        let columns = constraint.columns().into_iter().enumerate();
        for (position, place) in columns.filter(|(_, place)| is_shown(*place)) {
            rows.push(ColumnRow {
                home: table,
                constraint: constraint.name().to_owned(),
                table,
                column: column_name(table, place),
                position: position + 1,
                referenced_position: match constraint {
                    Constraint::Foreign(key) => referenced_position(catalog, key, position),
                    _ => None,
                },
            });
        }
    }
    rows
}

fn cardinal(number: usize) -> Option<i32> {
    i32::try_from(number).ok()
}

system_table! {
    pub(super) static KEY_COLUMN_USAGE = 13329 view "information_schema"."key_column_usage",
    |source| key_columns(source).into_iter().map(|row| (source.database(), row)) => |(database, row)|,
    constraint_catalog: Name = database.clone(),
    constraint_schema: Name = row.home.schema_name.clone(),
    constraint_name: Name = row.constraint,
    table_catalog: Name = database,
    table_schema: Name = row.table.schema_name.clone(),
    table_name: Name = row.table.name.clone(),
    column_name: Name = row.column.to_owned(),
    ordinal_position: Int4 = cardinal(row.position),
    position_in_unique_constraint: Int4 = row.referenced_position.and_then(cardinal),
}

/// The columns that constraints need: those referenced of foreign keys, their own of others. They
/// are told to who owns the columns' table.
fn needed_columns<'a>(source: &Source<'a>) -> Vec<ColumnRow<'a>> {
    let (catalog, viewer) = (source.catalog, Viewer::new(source));
    let mut rows = Vec::new();
    for (home, constraint) in all_constraints(catalog) {
        let (table, places): (&Table, Vec<usize>) = match constraint {
            Constraint::Foreign(key) => match catalog.table_by_oid(key.referenced_table) {
                Some(referenced) => (referenced, key.referenced_columns.clone()),
                None => continue,
            },
            _ => (home, constraint.columns()),
        };
        if !viewer.owns(table.oid) {
            continue;
        }
        rows.extend(places.into_iter().enumerate().map(|(position, place)| ColumnRow {
            home,
            constraint: constraint.name().to_owned(),
            table,
            column: column_name(table, place),
            position: position + 1,
            referenced_position: None,
        }));
    }
    rows
}

system_table! {
    pub(super) static CONSTRAINT_COLUMN_USAGE = 13300 view "information_schema"."constraint_column_usage",
    |source| needed_columns(source).into_iter().map(|row| (source.database(), row)) => |(database, row)|,
    table_catalog: Name = database.clone(),
    table_schema: Name = row.table.schema_name.clone(),
    table_name: Name = row.table.name.clone(),
    column_name: Name = row.column.to_owned(),
    constraint_catalog: Name = database,
    constraint_schema: Name = row.home.schema_name.clone(),
    constraint_name: Name = row.constraint,
}

/// The first column stands for its table. PostgreSQL leaves CHECK out of this view.
fn needed_tables<'a>(source: &Source<'a>) -> impl Iterator<Item = ColumnRow<'a>> {
    let is_check = |row: &ColumnRow<'_>| row.home.checks.iter().any(|check| check.name == row.constraint);
    needed_columns(source).into_iter().filter(move |row| row.position == 1 && !is_check(row))
}

system_table! {
    pub(super) static CONSTRAINT_TABLE_USAGE = 13305 view "information_schema"."constraint_table_usage",
    |source| needed_tables(source).map(|row| (source.database(), row)) => |(database, row)|,
    table_catalog: Name = database.clone(),
    table_schema: Name = row.table.schema_name.clone(),
    table_name: Name = row.table.name.clone(),
    constraint_catalog: Name = database,
    constraint_schema: Name = row.home.schema_name.clone(),
    constraint_name: Name = row.constraint,
}

/// A foreign key with what it refers to.
struct ReferenceRow<'a> {
    table: &'a Table,
    key: &'a ForeignKey,
    /// Schema and name of the unique constraint; none if it refers to an index without one.
    unique: Option<(String, String)>,
}

fn references<'a>(source: &Source<'a>) -> Vec<ReferenceRow<'a>> {
    let (catalog, viewer) = (source.catalog, Viewer::new(source));
    let tables = catalog.tables().filter(|table| viewer.sees_relation(table.oid, !Privileges::SELECT));
    let keys = tables.flat_map(|table| table.foreign_keys.iter().map(move |key| (table, key)));
    keys.map(|(table, key)| {
        let referenced = catalog.table_by_oid(key.referenced_table);
        let unique = referenced.and_then(|referenced| {
            let index = referenced.index(key.referenced_index)?;
            index.constraint.map(|_| (referenced.schema_name.clone(), index.name.clone()))
        });
        ReferenceRow { table, key, unique }
    })
    .collect()
}

system_table! {
    pub(super) static REFERENTIAL_CONSTRAINTS = 13339 view "information_schema"."referential_constraints",
    |source| references(source).into_iter().map(|row| (source.database(), row)) => |(database, row)|,
    constraint_catalog: Name = database.clone(),
    constraint_schema: Name = row.table.schema_name.clone(),
    constraint_name: Name = row.key.name.clone(),
    unique_constraint_catalog: Name = row.unique.as_ref().map(|_| database),
    unique_constraint_schema: Name = row.unique.as_ref().map(|(schema, _)| schema.clone()),
    unique_constraint_name: Name = row.unique.map(|(_, name)| name),
    match_option: Varchar = if row.key.match_full { "FULL" } else { "NONE" },
    update_rule: Varchar = row.key.on_update.sql(),
    delete_rule: Varchar = row.key.on_delete.sql(),
}

/// A constraint without its first word.
fn without_word(definition: &str) -> String {
    definition.strip_prefix("CHECK ").unwrap_or(definition).to_owned()
}

/// They are told to owners.
fn checks(source: &Source<'_>) -> Vec<(String, String, String)> {
    let viewer = Viewer::new(source);
    let owned: HashSet<Oid> =
        source.catalog.tables().map(|table| table.oid).filter(|oid| viewer.owns(*oid)).collect();
    let checks = source.catalog.tables().filter(|table| owned.contains(&table.oid)).flat_map(|table| {
        table.checks.iter().map(move |check| {
            let definition = Constraint::Check(check).definition(source, Some(table.as_ref()), Style::Plain);
            (table.schema_name.clone(), check.name.clone(), without_word(&definition))
        })
    });
    let not_null = not_nulls(source.catalog).filter(|(table, _, _)| owned.contains(&table.oid));
    let not_null = not_null
        .map(|(table, name, column)| (table.schema_name.clone(), name, format!("{column} IS NOT NULL")));
    let of_domains = domain::constraints(source.catalog).filter(|(of, _)| viewer.owns(of.oid));
    let of_domains = of_domains.map(|(of, check)| {
        let definition = Constraint::OfDomain(of, check).definition(source, None, Style::Plain);
        (of.schema_name.clone(), check.name.clone(), without_word(&definition))
    });
    checks.chain(of_domains).chain(not_null).collect()
}

system_table! {
    pub(super) static CHECK_CONSTRAINTS = 13260 view "information_schema"."check_constraints",
    |source| checks(source).into_iter().map(|row| (source.database(), row)) => |(database, (schema, name, clause))|,
    constraint_catalog: Name = database,
    constraint_schema: Name = schema,
    constraint_name: Name = name,
    check_clause: Varchar = clause,
}
