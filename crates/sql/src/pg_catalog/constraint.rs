//! Constraints, dependencies and comments: `pg_constraint`, `pg_depend`, `pg_description`.

use std::sync::Arc;

use super::definition::{Constraint, constraints};
use super::deparse::{self, Style};
use super::relation::defaults;
use super::types::equality_operator;
use super::value::{NULL, array, attribute_number};
use super::{Source, SystemTable};
use crate::catalog::{Catalog, Oid, Table};
use crate::types::{Datum, TypeId};

pub(super) const TABLES: &[&SystemTable] = &[&PG_CONSTRAINT, &PG_DEPEND, &PG_DESCRIPTION, &PG_SHDESCRIPTION];

/// Oid of `pg_class`.
const CLASS: Oid = 1259;
/// `pg_type`.
const TYPE: Oid = 1247;
/// Oid of `pg_constraint`.
const CONSTRAINT: Oid = 2606;
/// Oid of `pg_attrdef`.
const ATTRDEF: Oid = 2604;
/// Oid of `pg_namespace`.
const NAMESPACE: Oid = 2615;
/// Oid of `pg_rewrite`.
const REWRITE: Oid = 2618;

/// All constraints with their tables.
pub(super) fn all_constraints(catalog: &Catalog) -> impl Iterator<Item = (&Arc<Table>, Constraint<'_>)> {
    catalog.tables().flat_map(|table| constraints(table).map(move |constraint| (table, constraint)))
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
    |source| all_constraints(source.catalog).map(|row| (source, row)) => |(source, (table, constraint))|,
    [by conrelid(key) => source.catalog.table_by_oid(key).into_iter().flat_map(move |table| {
        constraints(table).map(move |constraint| (source, (table, constraint)))
    })],
    [by oid(key) => by_oid(source, key).map(|row| (source, row))],
    oid: Oid = constraint.oid(),
    conname: Name = constraint.name().to_owned(),
    connamespace: Oid = table.schema,
    contype: InternalChar = constraint.letter(),
    condeferrable: Bool = constraint.deferral().0,
    condeferred: Bool = constraint.deferral().1,
    convalidated: Bool = match constraint {
        Constraint::Key(_) => true,
        Constraint::Check(check) => !check.not_valid,
        Constraint::Foreign(key) => !key.not_valid,
    },
    conrelid: Oid = table.oid,
    contypid: Oid = 0,
    conindid: Oid = match constraint {
        Constraint::Key(index) => index.oid,
        Constraint::Foreign(key) => key.referenced_index,
        Constraint::Check(_) => 0,
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
    connoinherit: Bool = !matches!(constraint, Constraint::Check(_)),
    conkey: Int2Array = numbers(constraint.columns()),
    confkey: Int2Array = match constraint {
        Constraint::Foreign(key) => numbers(key.referenced_columns.iter().copied()),
        _ => NULL,
    },
    conpfeqop: OidArray = operators(table, &constraint),
    conppeqop: OidArray = operators(table, &constraint),
    conffeqop: OidArray = operators(table, &constraint),
    confdelsetcols: Int2Array = NULL,
    conexclop: OidArray = NULL,
    conbin: Text = match constraint {
        Constraint::Check(check) => Some(deparse::check(source, table, &check.expression, Style::Plain)),
        _ => None,
    },
}

/// A row of `pg_depend`: an object (class, oid, column) and what it needs.
struct Dependency {
    object: (Oid, Oid, i32),
    needs: (Oid, Oid, i32),
    /// `n`ormal, `a`uto or `i`nternal.
    kind: char,
}

fn column(place: usize) -> i32 {
    i32::from(attribute_number(place))
}

fn dependencies(catalog: &Catalog) -> Vec<Dependency> {
    let mut all = Vec::new();
    for sequence in catalog.sequences() {
        if let Some((table, place)) = sequence.owner {
            let kind = if sequence.identity { 'i' } else { 'a' };
            all.push(Dependency {
                object: (CLASS, sequence.oid, 0),
                needs: (CLASS, table, column(place)),
                kind,
            });
        }
    }
    for default in defaults(catalog) {
        let object = (ATTRDEF, default.oid, 0);
        all.push(Dependency { object, needs: (CLASS, default.table.oid, column(default.place)), kind: 'a' });
        if let Some(sequence) = default.table.columns.get(default.place).and_then(|column| column.sequence) {
            all.push(Dependency { object, needs: (CLASS, sequence, 0), kind: 'n' });
        }
    }
    for table in catalog.tables() {
        table_dependencies(catalog, table, &mut all);
    }
    for view in catalog.views() {
        // A view needs what its rule reads; the rule has the view's oid here.
        let object = (REWRITE, view.oid, 0);
        all.push(Dependency { object, needs: (CLASS, view.oid, 0), kind: 'i' });
        all.extend(view.depends_on.iter().map(|oid| {
            let class = if catalog.enum_by_oid(*oid).is_some() { TYPE } else { CLASS };
            Dependency { object, needs: (class, *oid, 0), kind: 'n' }
        }));
    }
    all
}

fn table_dependencies(catalog: &Catalog, table: &Table, all: &mut Vec<Dependency>) {
    all.push(Dependency { object: (CLASS, table.oid, 0), needs: (NAMESPACE, table.schema, 0), kind: 'n' });
    for constraint in constraints(table) {
        let object = (CONSTRAINT, constraint.oid(), 0);
        let places = constraint.columns();
        all.extend(places.iter().map(|place| Dependency {
            object,
            needs: (CLASS, table.oid, column(*place)),
            kind: 'a',
        }));
        if let Constraint::Foreign(key) = constraint {
            let referenced = key.referenced_columns.iter().map(|place| Dependency {
                object,
                needs: (CLASS, key.referenced_table, column(*place)),
                kind: 'n',
            });
            all.extend(referenced);
            if catalog.relation_by_oid(key.referenced_index).is_some() {
                all.push(Dependency { object, needs: (CLASS, key.referenced_index, 0), kind: 'n' });
            }
        }
    }
    for index in &table.indexes {
        let object = (CLASS, index.oid, 0);
        match index.constraint {
            Some(constraint) => {
                all.push(Dependency { object, needs: (CONSTRAINT, constraint, 0), kind: 'i' })
            }
            None => {
                let mut places: Vec<usize> =
                    index.made_from().chain(index.included.iter().copied()).collect();
                places.sort_unstable();
                places.dedup();
                all.extend(places.into_iter().map(|place| Dependency {
                    object,
                    needs: (CLASS, table.oid, column(place)),
                    kind: 'a',
                }));
            }
        }
    }
}

system_table! {
    static PG_DEPEND = 2608 table "pg_catalog"."pg_depend",
    |source| dependencies(source.catalog) => |dependency|,
    [by objid(key) => dependencies(source.catalog).into_iter().filter(move |d| d.object.1 == key)],
    [by refobjid(key) => dependencies(source.catalog).into_iter().filter(move |d| d.needs.1 == key)],
    classid: Oid = dependency.object.0,
    objid: Oid = dependency.object.1,
    objsubid: Int4 = dependency.object.2,
    refclassid: Oid = dependency.needs.0,
    refobjid: Oid = dependency.needs.1,
    refobjsubid: Int4 = dependency.needs.2,
    deptype: InternalChar = dependency.kind,
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
    for table in catalog.tables() {
        add((table.oid, CLASS, 0), &table.comment);
        for (place, column_) in table.visible_columns() {
            add((table.oid, CLASS, column(place)), &column_.comment);
        }
        for index in &table.indexes {
            add((index.oid, CLASS, 0), &index.comment);
        }
        for check in &table.checks {
            add((check.oid, CONSTRAINT, 0), &check.comment);
        }
        for key in &table.foreign_keys {
            add((key.oid, CONSTRAINT, 0), &key.comment);
        }
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

empty_table! {
    PG_SHDESCRIPTION = 2396 table "pg_catalog"."pg_shdescription",
    objoid: Oid, classoid: Oid, description: Text,
}

/// The constraint of this oid, with its table.
pub(super) fn by_oid<'a>(source: &Source<'a>, oid: Oid) -> Option<(&'a Arc<Table>, Constraint<'a>)> {
    all_constraints(source.catalog).find(|(_, constraint)| constraint.oid() == oid)
}
