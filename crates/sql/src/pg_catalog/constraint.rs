//! Constraints and comments: `pg_constraint`, `pg_description`; and `pg_rewrite`, through which
//! views depend on what they read.

use std::sync::Arc;

use super::definition::{Constraint, constraints};
use super::deparse::{self, Style};
use super::types::{equality_operator, extensions};
use super::value::{NULL, array, attribute_number};
use super::{Source, SystemTable, domain};
use crate::catalog::{Catalog, Domain, Oid, Relation, Table, View};
use crate::ddl::extension::available;
use crate::types::{Datum, TypeId};

pub(super) const TABLES: &[&SystemTable] = &[&PG_CONSTRAINT, &PG_REWRITE, &PG_DESCRIPTION, &PG_SHDESCRIPTION];

/// Oid of `pg_class`.
pub(super) const CLASS: Oid = 1259;
/// `pg_type`.
pub(super) const TYPE: Oid = 1247;
/// `pg_proc`.
pub(super) const PROC: Oid = 1255;
/// `pg_authid`.
pub(super) const AUTHID: Oid = 1260;
/// `pg_database`.
pub(super) const DATABASE: Oid = 1262;
/// `pg_extension`.
const EXTENSION: Oid = 3079;
/// Oid of `pg_constraint`.
pub(super) const CONSTRAINT: Oid = 2606;
/// Oid of `pg_attrdef`.
pub(super) const ATTRDEF: Oid = 2604;
/// Oid of `pg_namespace`.
pub(super) const NAMESPACE: Oid = 2615;
/// Oid of `pg_rewrite`.
pub(super) const REWRITE: Oid = 2618;

/// All constraints with their tables.
pub(super) fn all_constraints(catalog: &Catalog) -> impl Iterator<Item = (&Arc<Table>, Constraint<'_>)> {
    catalog.tables().flat_map(|table| constraints(table).map(move |constraint| (table, constraint)))
}

/// A row of `pg_constraint`: the constraint, with its table unless it is a domain's.
type Row<'a> = (Option<&'a Arc<Table>>, Constraint<'a>);

fn of_domain(domain: &Domain) -> impl Iterator<Item = Row<'_>> {
    domain.checks.iter().map(move |check| (None, Constraint::OfDomain(domain, check)))
}

fn rows(catalog: &Catalog) -> impl Iterator<Item = Row<'_>> {
    let of_tables = all_constraints(catalog).map(|(table, constraint)| (Some(table), constraint));
    of_tables.chain(catalog.domains().flat_map(|domain| of_domain(domain)))
}

/// Those of a table; of no table are those of domains.
fn rows_of_table(catalog: &Catalog, oid: Oid) -> impl Iterator<Item = Row<'_>> {
    let table = catalog.table_by_oid(oid).into_iter();
    let of_table = table.flat_map(|table| constraints(table).map(move |found| (Some(table), found)));
    let domains = (oid == 0).then(|| catalog.domains()).into_iter().flatten();
    of_table.chain(domains.flat_map(|domain| of_domain(domain)))
}

/// Those of a domain; of no domain are those of tables.
fn rows_of_domain(catalog: &Catalog, oid: Oid) -> impl Iterator<Item = Row<'_>> {
    let domain = catalog.domain_by_oid(oid).into_iter().flat_map(|domain| of_domain(domain));
    let tables = (oid == 0).then(|| all_constraints(catalog)).into_iter().flatten();
    domain.chain(tables.map(|(table, found)| (Some(table), found)))
}

fn numbers(places: impl IntoIterator<Item = usize>) -> Datum {
    array(TypeId::Int2, places.into_iter().map(attribute_number))
}

/// For each column of a foreign key the operator that compares it.
fn operators(table: &Table, constraint: &Constraint<'_>) -> Datum {
    let Constraint::Foreign(key) = constraint else { return NULL };
    let types = key.columns.iter().filter_map(|place| table.columns.get(*place));
    array(TypeId::Oid, types.map(|column| equality_operator(column.ty.id)))
}

system_table! {
    static PG_CONSTRAINT = 2606 table "pg_catalog"."pg_constraint",
    |source| rows(source.catalog).map(|row| (source, row)) => |(source, (table, constraint))|,
    [by conrelid(key) => rows_of_table(source.catalog, key).map(|row| (source, row))],
    [by contypid(key) => rows_of_domain(source.catalog, key).map(|row| (source, row))],
    [by oid(key) => by_oid(source, key).map(|row| (source, row))],
    oid: Oid = constraint.oid(),
    conname: Name = constraint.name().to_owned(),
    connamespace: Oid = match constraint {
        Constraint::OfDomain(domain, _) => domain.schema,
        _ => table.map_or(0, |table| table.schema),
    },
    contype: InternalChar = constraint.letter(),
    condeferrable: Bool = constraint.deferral().0,
    condeferred: Bool = constraint.deferral().1,
    convalidated: Bool = match constraint {
        Constraint::Key(_) => true,
        Constraint::Check(check) => !check.not_valid,
        Constraint::Foreign(key) => !key.not_valid,
        Constraint::OfDomain(_, check) => !check.not_valid,
    },
    conrelid: Oid = table.map_or(0, |table| table.oid),
    contypid: Oid = if let Constraint::OfDomain(domain, _) = constraint { domain.oid } else { 0 },
    conindid: Oid = match constraint {
        Constraint::Key(index) => index.oid,
        Constraint::Foreign(key) => key.referenced_index,
        Constraint::Check(_) | Constraint::OfDomain(..) => 0,
    },
    conparentid: Oid = 0,
    confrelid: Oid = if let Constraint::Foreign(key) = constraint { key.referenced_table } else { 0 },
    confupdtype: InternalChar = if let Constraint::Foreign(key) = constraint { key.on_update.letter() } else { ' ' },
    confdeltype: InternalChar = if let Constraint::Foreign(key) = constraint { key.on_delete.letter() } else { ' ' },
    confmatchtype: InternalChar = match constraint {
        Constraint::Foreign(key) if key.match_full => 'f',
        Constraint::Foreign(_) => 's',
        _ => ' ',
    },
    conislocal: Bool = true,
    coninhcount: Int4 = 0,
    connoinherit: Bool = match constraint {
        Constraint::Check(check) => check.no_inherit,
        Constraint::OfDomain(..) => false,
        _ => true,
    },
    conkey: Int2Array = match table {
        Some(_) => numbers(constraint.columns()),
        None => NULL,
    },
    confkey: Int2Array = match constraint {
        Constraint::Foreign(key) => numbers(key.referenced_columns.iter().copied()),
        _ => NULL,
    },
    conpfeqop: OidArray = table.map_or(NULL, |table| operators(table, &constraint)),
    conppeqop: OidArray = table.map_or(NULL, |table| operators(table, &constraint)),
    conffeqop: OidArray = table.map_or(NULL, |table| operators(table, &constraint)),
    confdelsetcols: Int2Array = match constraint {
        Constraint::Foreign(key) if !key.on_delete_columns.is_empty() => {
            numbers(key.on_delete_columns.iter().copied())
        }
        _ => NULL,
    },
    conexclop: OidArray = NULL,
    conbin: Text = match (table, constraint) {
        (_, Constraint::OfDomain(of, check)) => Some(domain::check(source, of, check, Style::Plain)),
        (Some(table), Constraint::Check(check)) => {
            Some(deparse::check(source, table, &check.expression, Style::Plain))
        }
        _ => None,
    },
}

/// The view of an oid.
fn view(catalog: &Catalog, oid: Oid) -> Option<&Arc<View>> {
    match catalog.relation_by_oid(oid) {
        Some(Relation::View(view)) => Some(view),
        _ => None,
    }
}

// What PostgreSQL stores of a view is a rule. Dumps put views behind what these read.
system_table! {
    static PG_REWRITE = 2618 table "pg_catalog"."pg_rewrite",
    |source| source.catalog.views() => |view|,
    [by oid(key) => view(source.catalog, key)],
    [by ev_class(key) => view(source.catalog, key)],
    oid: Oid = view.oid,
    rulename: Name = "_RETURN",
    ev_class: Oid = view.oid,
    ev_type: InternalChar = '1',
    ev_enabled: InternalChar = 'O',
    is_instead: Bool = true,
    ev_qual: Text = "<>",
    ev_action: Text = "<>",
}

fn column(place: usize) -> i32 {
    i32::from(attribute_number(place))
}

/// A comment on an object (oid, class, column).
pub(super) struct Comment {
    pub(super) object: (Oid, Oid, i32),
    pub(super) text: String,
}

/// All comments.
pub(super) fn comments(catalog: &Catalog) -> Vec<Comment> {
    let mut all = Vec::new();
    let mut add = |object: (Oid, Oid, i32), text: &Option<String>| {
        if let Some(text) = text {
            all.push(Comment { object, text: text.clone() });
        }
    };
    for schema in catalog.schemas() {
        add((schema.oid, NAMESPACE, 0), &schema.comment);
    }
    for (oid, name, _) in extensions(catalog) {
        add((oid, EXTENSION, 0), &available(&name).map(|known| known.comment.to_owned()));
    }
    for table in catalog.tables() {
        add((table.oid, CLASS, 0), &table.comment);
        for (place, column_) in table.visible_columns() {
            add((table.oid, CLASS, column(place)), &column_.comment);
        }
        for index in &table.indexes {
            add((index.oid, CLASS, 0), &index.comment);
            if let Some(constraint) = index.constraint {
                add((constraint, CONSTRAINT, 0), &index.constraint_comment);
            }
        }
        for check in &table.checks {
            add((check.oid, CONSTRAINT, 0), &check.comment);
        }
        for key in &table.foreign_keys {
            add((key.oid, CONSTRAINT, 0), &key.comment);
        }
    }
    for domain in catalog.domains() {
        add((domain.oid, TYPE, 0), &domain.comment);
        for check in &domain.checks {
            add((check.oid, CONSTRAINT, 0), &check.comment);
        }
    }
    for ty in catalog.enum_types() {
        add((ty.oid, TYPE, 0), &ty.comment);
    }
    for routine in catalog.routines() {
        add((routine.oid, PROC, 0), &routine.comment);
    }
    for sequence in catalog.sequences() {
        add((sequence.oid, CLASS, 0), &sequence.comment);
    }
    for view in catalog.views() {
        add((view.oid, CLASS, 0), &view.comment);
        for (place, column_) in view.columns.iter().enumerate() {
            add((view.oid, CLASS, column(place)), &column_.comment);
        }
    }
    all
}

system_table! {
    static PG_DESCRIPTION = 2609 table "pg_catalog"."pg_description",
    |source| comments(source.catalog) => |comment|,
    [by objoid(key) => comments(source.catalog).into_iter().filter(move |comment| comment.object.0 == key)],
    objoid: Oid = comment.object.0,
    classoid: Oid = comment.object.1,
    objsubid: Int4 = comment.object.2,
    description: Text = comment.text,
}

/// Comments of roles and databases: oid, catalog, text.
fn shared_comments(source: &Source<'_>) -> Vec<(Oid, Oid, String)> {
    let roles = source.catalog.roles().map(|role| (role.oid, AUTHID, role.comment.clone()));
    let databases = source.catalog.databases();
    let all = roles.chain(databases.map(|known| (known.oid, DATABASE, known.comment.clone())));
    all.filter_map(|(oid, class, comment)| Some((oid, class, comment?))).collect()
}

system_table! {
    static PG_SHDESCRIPTION = 2396 table "pg_catalog"."pg_shdescription",
    |source| shared_comments(source) => |(oid, class, comment)|,
    objoid: Oid = oid,
    classoid: Oid = class,
    description: Text = comment,
}

/// The constraint of this oid, with its table unless it is a domain's.
pub(super) fn by_oid<'a>(source: &Source<'a>, oid: Oid) -> Option<Row<'a>> {
    rows(source.catalog).find(|(_, constraint)| constraint.oid() == oid)
}
